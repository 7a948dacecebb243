import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from warpbook.harness import reference
from warpbook.kernels import variants
from warpbook.problems import networks, problem

EXACT, ROUNDED = variants.read("direct"), variants.read("cudnn_tf32")
LAYER = networks.ConvLayer("small", 3, 7, 9, 2, 4)


def convolve_by_definition(x, w, bias=None, stride=(1, 1), before=(0, 0), after=(0, 0), dilation=(1, 1), groups=1):
    """y (N, M, H_out, W_out) in float64 from x (N, C, H, W), w (M, C / groups, K, KW) and bias (M): loops, slow and
    obvious. Pairs are of rows and of columns; `before` and `after` are what is padded on either side."""
    N, _, H, W = x.shape
    M, channels, K, KW = w.shape
    padded = [extent + low + high for extent, low, high in zip((H, W), before, after, strict=True)]
    spans = [(taps - 1) * apart + 1 for taps, apart in zip((K, KW), dilation, strict=True)]
    H_out, W_out = ((extent - span) // step + 1 for extent, span, step in zip(padded, spans, stride, strict=True))
    y = np.zeros((N, M, H_out, W_out))
    for n, m, h, v in np.ndindex(y.shape):
        group = m // (M // groups)
        for c, p, q in np.ndindex(channels, K, KW):
            row, column = h * stride[0] + p * dilation[0] - before[0], v * stride[1] + q * dilation[1] - before[1]
            if 0 <= row < H and 0 <= column < W:
                y[n, m, h, v] += float(x[n, group * channels + c, row, column]) * float(w[m, c, p, q])
        y[n, m, h, v] += 0 if bias is None else float(bias[m])
    return y


def test_definition_gives_cases_worked_out_by_hand():
    x = np.array([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], np.float32)
    w = np.array([[[[1, 0], [0, -1]]], [[[0, 2], [3, 0]]]], np.float32)
    assert convolve_by_definition(x, w).tolist() == [[[[-4, -4], [-4, -4]], [[16, 21], [31, 36]]]]
    first, one = w[:1], (1, 1)
    assert convolve_by_definition(x, first, stride=(2, 2)).tolist() == [[[[-4]]]]
    both = convolve_by_definition(x, first, stride=(2, 2), before=one, after=one)
    assert both.tolist() == [[[[-1, -3], [-7, -4]]]]
    assert convolve_by_definition(x, first, stride=(1, 2), after=(1, 0)).tolist() == [[[[-4], [-4], [7]]]]
    assert convolve_by_definition(x, first, dilation=(2, 1)).tolist() == [[[[-7, -7]]]]
    assert convolve_by_definition(x, w[:, :, :, :1], bias=[10, 20]).tolist() == [
        [[[11, 12, 13], [14, 15, 16]], [[32, 35, 38], [41, 44, 47]]]
    ]
    assert convolve_by_definition(np.concatenate([x, -x], axis=1), w, groups=2).tolist() == [
        [[[-4, -4], [-4, -4]], [[-16, -21], [-31, -36]]]
    ]


def extents(**most):
    """Extents from 1 on, or from 0 where their name begins with a P."""
    return st.fixed_dictionaries({name: st.integers(int(name[0] != "P"), value) for name, value in most.items()})


@settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    extents(C=2, M=2, G=2, H=9, W=9, K=3, KW=4, S=3, SW=3, P=2, PW=2, P_end=2, PW_end=2, D=2, DW=2),
    st.integers(1, 2),
    st.booleans(),
)
def test_the_reference_of_convolutions_equals_the_definition(drawn, images, biased):
    conv, drawn = problem.find("conv"), {**drawn, "C": drawn["C"] * drawn["G"], "M": drawn["M"] * drawn["G"]}
    assume(drawn["H"] + drawn["P"] + drawn["P_end"] > drawn["D"] * (drawn["K"] - 1))
    assume(drawn["W"] + drawn["PW"] + drawn["PW_end"] > drawn["DW"] * (drawn["KW"] - 1))
    case = conv.case("drawn", drawn, ["bias"] if biased else []).at(images)
    generator = np.random.default_rng(5)
    inputs = {name: generator.standard_normal(case.shape(name)) for name in case.inputs}
    expected = convolve_by_definition(
        **inputs, stride=(case.S, case.SW), before=(case.P, case.PW), after=(case.P_end, case.PW_end),
        dilation=(case.D, case.DW), groups=case.G,
    )  # fmt: skip
    assert expected.shape == case.shape("y")
    assert np.allclose(problem.compute(case, inputs, np)["y"], expected, rtol=1e-13, atol=1e-13)


def test_a_layer_of_a_network_is_convolved_with_its_stride_and_padding():
    generator = np.random.default_rng(6)
    x, w = generator.standard_normal((2, 3, 8, 9)), generator.standard_normal((4, 3, 3, 3))
    expected = convolve_by_definition(x, w, stride=(2, 2), before=(1, 1), after=(1, 1))
    assert np.allclose(reference.convolve(x, w, 2, 1), expected, rtol=1e-13, atol=1e-13)


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
