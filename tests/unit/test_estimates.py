import math

import numpy as np
import pytest

from warpbook.common import statistics
from warpbook.common.statistics import Estimate


def test_intervals_cover_the_true_median_about_as_often_as_they_say():
    for n in (2, 3, 5, 6, 10, 30, 200):
        generator = np.random.default_rng(n)
        drawn = {"lognormal": np.exp(generator.normal(0, 0.1, (1000, n)))}
        if n >= statistics.SMALLEST_RANKED:  # below, Student's interval on the logarithms supposes their normality
            drawn["exponential"] = generator.exponential(1, (1000, n)) / math.log(2)
        for distribution, series in drawn.items():
            found = [statistics.median(samples) for samples in series]
            covered = np.mean([estimate.low <= 1 <= estimate.high for estimate in found])
            assert 0.935 <= covered <= 0.995, (n, distribution)


def test_order_statistics_are_those_of_the_tables():
    for n, ranks in [(6, (0, 5)), (9, (1, 7)), (20, (5, 14)), (100, (39, 60))]:
        estimate = statistics.median(np.arange(1.0, n + 1))
        assert (estimate.low, estimate.high) == (ranks[0] + 1, ranks[1] + 1)


def test_a_single_sample_has_no_interval():
    estimate = statistics.median(np.array([3.0]))
    assert estimate.value == 3.0
    assert math.isnan(estimate.low)
    assert estimate.relative_noise == math.inf


def test_no_samples_give_no_estimate():
    assert statistics.median(np.array([])).n == 0


def test_more_samples_than_floats_can_count_still_give_an_interval():
    estimate = statistics.median(np.arange(1.0, 5001.0))
    assert 2420 < estimate.low < 2440
    assert 2560 < estimate.high < 2580


def test_a_drift_that_both_sides_saw_leaves_a_paired_ratio_alone():
    drift = np.linspace(1, 2, 40)
    paired = statistics.paired_ratio(3 * drift, 2 * drift)
    unpaired = statistics.unpaired_ratio(3 * drift, 2 * drift)
    assert paired == Estimate(1.5, 1.5, 1.5, 40)
    assert unpaired.high - unpaired.low > 0.2


def bursts(generator, n, length):
    """Samples around 1, a few per cent longer or shorter for about `length` of them at a time."""
    ends = np.cumsum(generator.geometric(1 / length, n))
    shifts = generator.choice([-1, 0, 0, 1], n)[np.searchsorted(ends, np.arange(n), "right")]
    return np.exp(0.04 * (shifts + 0.3 * generator.standard_normal(n)))


def test_the_interval_of_a_paired_ratio_allows_for_samples_that_come_in_bursts():
    generator = np.random.default_rng(7)
    for length, least in ((4, 0.92), (8, 0.85)):
        series = [bursts(generator, 80, length) for _ in range(500)]
        for found in (
            [statistics.paired_ratio(one, np.ones(80)) for one in series],
            [statistics.ratio_of_sums([one], [np.ones(80)], paired=True) for one in series[:100]],
        ):
            assert np.mean([one.low <= 1 <= one.high for one in found]) >= least, length


def test_samples_that_have_nothing_to_do_with_their_neighbours_keep_their_interval():
    generator = np.random.default_rng(8)
    series = [np.round(np.exp(0.04 * generator.standard_normal(80)), 2) for _ in range(300)]  # many are equal
    same = [statistics.paired_ratio(one, np.ones(80)) == statistics.median(one) for one in series]
    assert np.mean(same) > 0.9


def test_the_interval_of_an_unpaired_ratio_is_narrower_than_that_of_neither_median():
    sure, unsure = np.full(14, 2.0), np.array([*np.linspace(3.99, 4.01, 10), 4.2, 4.3, 4.4, 4.5])
    known = statistics.median(unsure)
    over = statistics.unpaired_ratio(unsure, sure)
    assert (over.value, over.low, over.high, over.n) == pytest.approx(
        (known.value / 2, known.low / 2, known.high / 2, 14)
    )
    under = statistics.unpaired_ratio(sure, unsure)
    assert (under.low, under.high) == pytest.approx((2 / known.high, 2 / known.low))
    both = statistics.unpaired_ratio(unsure, unsure)
    assert both.relative_noise > known.relative_noise
    assert math.isnan(statistics.unpaired_ratio(sure[:1], unsure).low)


def test_ratio_of_sums_weighs_each_layer_by_its_time():
    short, long = np.full(10, 1.0), np.full(10, 9.0)
    ratio = statistics.ratio_of_sums([2 * short, long], [short, long], paired=True)
    assert ratio.value == pytest.approx(1.1)


def test_the_same_samples_give_the_same_interval():
    samples = [np.random.default_rng(1).normal(5, 1, 30)]
    assert statistics.sum_of_medians(samples) == statistics.sum_of_medians(samples)


def test_verdicts_follow_from_the_interval():
    for low, high, expected in [
        (1.05, 1.10, "faster"),
        (1.001, 1.02, "faster"),
        (0.90, 0.95, "slower"),
        (0.995, 1.005, "same"),
        (1.001, 1.009, "same"),
        (0.98, 1.02, "ambiguous"),
        (math.nan, math.nan, "ambiguous"),
    ]:
        assert statistics.verdict(Estimate(1.0, low, high, 10), 0.01) == expected


def test_a_difference_needs_an_interval_of_99_percent():
    for low, expected in ((1.003, "ambiguous"), (1.006, "faster")):
        assert statistics.verdict(Estimate(1.02, low, 1.04, 10), 0.01) == expected
        slower = Estimate(0.98, 0.96, 2 - low, 10)
        assert statistics.verdict(slower, 0.01) == expected.replace("faster", "slower")


def test_so_many_samples_more_decide_and_few_less_do_not():
    def verdict(value, samples):
        half = 0.04 * (50 / samples) ** 0.5
        return statistics.verdict(Estimate(value, value - half, value + half, samples), 0.02, 0.03)

    for value, expected in ((0.96, "slower"), (0.995, "same"), (1.01, "same"), (1.05, "faster")):
        assert verdict(value, 50) == "ambiguous"
        needed = statistics.samples_to_decide(Estimate(value, value - 0.04, value + 0.04, 50), 0.02, 0.03)
        assert (verdict(value, needed - 5), verdict(value, needed + 1)) == ("ambiguous", expected)


def test_a_share_has_the_interval_of_wilson_s_paper_and_stays_within_nought_and_one():
    found = statistics.share(5, 50)
    assert (round(found.low, 3), found.value, round(found.high, 3)) == (0.043, 0.1, 0.214)
    assert statistics.share(0, 300).low == 0 and 0.01 < statistics.share(0, 300).high < 0.013


def test_no_number_of_samples_decides_where_runs_of_the_same_code_differ_as_much():
    for value in [0.975, 1.025]:
        assert statistics.samples_to_decide(Estimate(value, value - 0.01, value + 0.01, 50), 0.02, 0.03) is None


def test_an_interval_that_ends_at_its_value_narrows_from_the_other_side_alone():
    for low, high in [(0.995, 1.1), (0.9, 0.995)]:
        assert statistics.samples_to_decide(Estimate(0.995, low, high, 10), 0.02, 0.03) > 10


def test_a_sum_of_short_series_is_no_surer_than_its_parts():
    series = [np.array([10.0, 11.0, 9.0]), np.array([20.0, 19.0, 21.0])]
    parts = [statistics.median(samples) for samples in series]
    whole = statistics.sum_of_medians(series)
    half = (whole.high - whole.low) / 2
    least = max((part.high - part.low) / 2 for part in parts)
    assert least < half < sum((part.high - part.low) / 2 for part in parts)
    ratio = statistics.unpaired_ratio(*series)
    assert ratio.relative_noise > max(part.relative_noise for part in parts)


def test_a_paired_ratio_of_sums_of_few_rounds_is_no_surer_than_that_of_its_largest_layer():
    bases = [np.array([10.0, 10.2]), np.array([100.0, 101.0])]
    speedups = [np.array([1.5, 1.6]), np.array([2.0, 2.08])]
    variants = [base / speedup for base, speedup in zip(bases, speedups, strict=True)]
    whole = statistics.ratio_of_sums(bases, variants, paired=True)
    largest = statistics.paired_ratio(bases[1], variants[1])
    assert largest.low < 2 < largest.high
    assert whole.low < whole.value < whole.high
    assert whole.relative_noise > 0.5 * largest.relative_noise


def test_a_ratio_taken_apart_agrees_with_a_paired_one_within_its_interval_or_two_per_cent():
    for value, agrees in [(1.015, True), (0.985, True), (1.04, True), (1.06, False), (0.97, False), (1.021, True)]:
        paired, apart = Estimate(1.0, 0.99, 1.05, 9), Estimate(value, value, value, 9)
        assert statistics.agree(paired, apart) is agrees
        alone = Estimate(1.0, math.nan, math.nan, 1)
        assert statistics.agree(alone, apart) is (abs(value - 1) <= 0.02)
