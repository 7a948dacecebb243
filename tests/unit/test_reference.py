import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from warpbook.harness import reference
from warpbook.kernels import variants
from warpbook.problems import networks

EXACT, ROUNDED = variants.read("direct"), variants.read("cudnn_tf32")
LAYER = networks.ConvLayer("small", 3, 7, 9, 2, 4)


def convolve_by_definition(x: np.ndarray, w: np.ndarray, stride: int = 1, padding: int = 0) -> np.ndarray:
    """y (N, M, H_out, W_out) in float64 from x (N, C, H, W) and w (M, C, K, K): the course's seven loops, slow and
    obvious."""
    N, C, H, W = x.shape
    M, _, K, _ = w.shape
    H_out, W_out = ((extent + 2 * padding - K) // stride + 1 for extent in (H, W))
    y = np.zeros((N, M, H_out, W_out))
    for n in range(N):
        for m in range(M):
            for h in range(H_out):
                for v in range(W_out):
                    for c in range(C):
                        for p in range(K):
                            for q in range(K):
                                row, column = h * stride + p - padding, v * stride + q - padding
                                if 0 <= row < H and 0 <= column < W:
                                    y[n, m, h, v] += float(x[n, c, row, column]) * float(w[m, c, p, q])
    return y


def test_definition_gives_cases_worked_out_by_hand():
    x = np.array([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], np.float32)
    w = np.array([[[[1, 0], [0, -1]]], [[[0, 2], [3, 0]]]], np.float32)
    assert convolve_by_definition(x, w).tolist() == [[[[-4, -4], [-4, -4]], [[16, 21], [31, 36]]]]
    assert convolve_by_definition(x, w[:1], stride=2).tolist() == [[[[-4]]]]
    assert convolve_by_definition(x, w[:1], stride=2, padding=1).tolist() == [[[[-1, -3], [-7, -4]]]]


@settings(deadline=None)
@given(*(st.integers(1, most) for most in (2, 3, 9, 9, 3, 4, 3)), st.data())
def test_the_reference_of_convolutions_equals_the_definition(images, C, H, W, M, K, S, data):
    K = min(H, W, K)
    layer = networks.ConvLayer("drawn", C, H, W, M, K, S, data.draw(st.integers(0, K - 1), label="padding")).at(images)
    generator = np.random.default_rng(5)
    x, w = generator.standard_normal(layer.shape("x")), generator.standard_normal(layer.shape("w"))
    expected = convolve_by_definition(x, w, layer.S, layer.P)
    assert expected.shape == layer.shape("y")
    assert np.allclose(reference.convolve(x, w, layer.S, layer.P), expected, rtol=1e-13, atol=1e-13)


def differences(case, x, w, y):
    """How y differs from the reference: the one output's."""
    (difference,) = reference.differences(case, {"x": x, "w": w}, {"y": y}).values()
    return difference


def test_difference_of_a_right_result_is_rounding_alone():
    generator = np.random.default_rng(2)
    x, w = (generator.standard_normal(LAYER.at(2).shape(name)).astype(np.float32) for name in ("x", "w"))
    difference = differences(LAYER.at(2), x, w, reference.convolve(x, w).astype(np.float32))
    assert 0 < difference.worst_unit < 2.0**-24
    assert difference.not_finite == 0


def test_difference_counts_what_is_not_finite_and_goes_on():
    x, w = np.ones(LAYER.at(1).shape("x"), np.float32), np.ones(LAYER.w_shape, np.float32)
    y = reference.convolve(x, w).astype(np.float32)
    y[0, 0, 0, :2] = np.nan, np.inf
    y[0, 1, 3, 3] += 0.5
    difference = differences(LAYER.at(1), x, w, y)
    assert difference.not_finite == 2
    assert difference.max_abs_err == 0.5
    assert difference.max_magnitude == LAYER.accumulation


@given(st.integers(1, 600))
def test_tolerance_grows_with_the_sum_and_shrinks_with_precision(products):
    layer = networks.ConvLayer("sum", products, 1, 1, 1, 1)
    # Never tighter than what any order of summing may do to a random walk of ten deviations, nor wider than a theorem.
    unit = reference.unit_error(layer, EXACT)
    assert min(products + 1, 10 * (products + 1) ** 0.5) * 2.0**-24 <= unit <= (products + 1) * 2.0**-24
    assert unit <= 20 * (products + 1) ** 0.5 * 2.0**-24
    assert reference.unit_error(layer, ROUNDED) >= unit + 2 * 2.0**-11


def described(layer, x, w, y, tolerance):
    return reference.describe_mismatch(layer.at(len(x)), {"x": x, "w": w}, {"y": y}, tolerance)


def test_where_a_result_is_wrong_is_told_by_its_first_output():
    layer = networks.ConvLayer("two maps", 1, 2, 3, 2, 1)
    x, w = np.ones((1, 1, 2, 3), np.float32), np.array([[[[1]]], [[[2]]]], np.float32)
    y = np.array([[[[1, 1, 1], [1, 1, 1]], [[2, 2, 5], [2, np.nan, 2]]]], np.float32)
    told = described(layer, x, w, y, 0.5)
    assert told == "2 of 12 outputs are wrong, the first y[0, 1, 0, 2] (of [N, M, H_out, W_out]): 5 in place of 2"
    assert described(layer, x, w, np.where(y == 5, 2.25, np.nan_to_num(y, nan=2)), 0.5) == ""


def test_right_values_in_the_wrong_places_are_told():
    layer = networks.ConvLayer("copied", 1, 2, 3, 1, 1)
    x, w = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3), np.ones((1, 1, 1, 1), np.float32)
    assert "every value is there, in another's place" in described(layer, x, w, x[..., ::-1], 0.0)
    assert "every value is there" not in described(layer, x, w, x + 1, 0.0)
