import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from warpbook.harness import reference
from warpbook.kernels import variants
from warpbook.problems import networks

EXACT, ROUNDED = variants.read("direct"), variants.read("cudnn_tf32")
LAYER = networks.ConvLayer("small", 3, 7, 9, 2, 4)


def test_definition_gives_a_case_worked_out_by_hand():
    x = np.array([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], np.float32)
    w = np.array([[[[1, 0], [0, -1]]], [[[0, 2], [3, 0]]]], np.float32)
    expected = [[[[-4, -4], [-4, -4]], [[16, 21], [31, 36]]]]
    assert reference.convolve_by_definition(x, w).tolist() == expected


def test_difference_of_a_right_result_is_rounding_alone():
    generator = np.random.default_rng(2)
    x = generator.standard_normal(LAYER.at(2).shape("x")).astype(np.float32)
    w = generator.standard_normal(LAYER.w_shape).astype(np.float32)
    difference = reference.difference(x, w, reference.convolve(x, w).astype(np.float32))
    assert 0 < difference.worst_unit < 2.0**-24
    assert difference.not_finite == 0


def test_difference_counts_what_is_not_finite_and_goes_on():
    x, w = np.ones(LAYER.at(1).shape("x"), np.float32), np.ones(LAYER.w_shape, np.float32)
    y = reference.convolve(x, w).astype(np.float32)
    y[0, 0, 0, :2] = np.nan, np.inf
    y[0, 1, 3, 3] += 0.5
    difference = reference.difference(x, w, y)
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


def test_where_a_result_is_wrong_is_told_by_its_first_output():
    x, w = np.ones((1, 1, 2, 3), np.float32), np.array([[[[1]]], [[[2]]]], np.float32)
    y = np.array([[[[1, 1, 1], [1, 1, 1]], [[2, 2, 5], [2, np.nan, 2]]]], np.float32)
    told = reference.describe_mismatch(x, w, y, 0.5)
    assert told == "2 of 12 outputs are wrong, the first y[0, 1, 0, 2] (image, map, row, column): 5 in place of 2"
    assert reference.describe_mismatch(x, w, np.where(y == 5, 2.25, np.nan_to_num(y, nan=2)), 0.5) == ""


def test_right_values_in_the_wrong_places_are_told():
    x, w = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3), np.ones((1, 1, 1, 1), np.float32)
    assert "every value is there, in another's place" in reference.describe_mismatch(x, w, x[..., ::-1], 0.0)
    assert "every value is there" not in reference.describe_mismatch(x, w, x + 1, 0.0)
