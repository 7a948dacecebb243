from types import SimpleNamespace

import pandas as pd

from warpbook.common import units
from warpbook.common.statistics import Estimate


def test_profile_times_are_printed_as_nvprof_prints_them():
    for ns, printed in [
        (1_979_310_000, "1.97931s"), (118_490_000, "118.49ms"), (13_166_000, "13.166ms"), (3_734_100, "3.7341ms"),
        (949_530, "949.53us"), (40_448, "40.448us"), (1_024, "1.0240us"), (897, "897ns"), (0, "0ns"),
        (999_996, "1.0000ms"), (999_999_999, "1.00000s"),
    ]:  # fmt: skip
        assert units.nvprof_time(ns) == printed


def test_times_are_shown_in_the_unit_that_suits_them():
    shown = {15266.1: "15.27\u202fs", 3.7776: "3.778\u202fms", 0.00897: "8.970\u202fµs", 2.1e-6: "2.100\u202fns"}
    assert {ms: units.time(ms) for ms in shown} == shown


def test_gnu_time_s_line_is_the_course_s():
    counts = {"input_blocks": 0, "output_blocks": 8, "major_faults": 3, "minor_faults": 37059}
    run = SimpleNamespace(user_s=13.16, system_s=12.04, elapsed_s=11.76, max_rss_kib=2830016, **counts)
    first = "13.16user 12.04system 0:11.76elapsed 214%CPU (0avgtext+0avgdata 2830016maxresident)k"
    assert units.gnu_time(run) == f"{first}\n0inputs+8outputs (3major+37059minor)pagefaults 0swaps"
    for unknown in (None, pd.NA, float("nan")):
        run.minor_faults = unknown
        assert units.gnu_time(run) == first
    run.elapsed_s = 76.5
    assert units.gnu_time(run).split()[2] == "1:16.50elapsed"


def test_speedups_keep_three_digits():
    shown = {0.2638: "0.264×", 1.1624: "1.16×", 41.61: "41.6×", 1523.4: "1\u202f523×", 998.2: "998×"}
    assert {value: units.ratio(value) for value in shown} == shown


def test_an_interval_shows_enough_digits_to_tell_its_ends_apart():
    assert units.ratio_interval(Estimate(1.1396, 1.1381, 1.1409, 20)) == "[1.138, 1.141]"
    assert units.ratio_interval(Estimate(41.6, 41.44, 41.71, 20)) == "[41.44, 41.71]"
    assert units.ratio_interval(Estimate(0.0777, 0.07755, 0.07782, 20)) == "[0.07755, 0.07782]"
    assert units.ratio_interval(Estimate(998, 960, 1040, 20)) == "[960, 1040]"
    assert units.ratio_interval(Estimate(2.0, float("nan"), float("nan"), 1)) == "no interval"


def test_a_ratio_has_the_digits_of_the_interval_beside_it_and_lies_within_it_as_printed():
    assert units.ratio_beside_interval(Estimate(1.0046, 1.0043, 1.0059, 20)) == "1.005×"
    assert units.ratio_beside_interval(Estimate(1.8115, 1.8111, 1.8119, 20)) == "1.812×"
    assert units.ratio_beside_interval(Estimate(41.6, 41.44, 41.71, 20)) == "41.60×"
    assert units.ratio_beside_interval(Estimate(2.0, float("nan"), float("nan"), 1)) == "2.00×"


def test_the_samples_behind_intervals_are_told_as_one_number_or_as_their_span():
    one, other = Estimate(1.0, 0.9, 1.1, 6), Estimate(1.0, 0.9, 1.1, 300)
    assert units.sample_size([one]) == units.sample_size([one, one]) == "n\u202f6"
    assert units.sample_size([other, one]) == "n\u202f6 to 300"
    assert units.sample_size([]) == ""


def test_an_exponent_has_the_minus_of_every_other_number():
    assert units.scientific(2.81e-7) == "2.8e−07"
    assert units.scientific(0.0) == "0"


def test_an_infinite_value_is_shown_as_such():
    assert units.significant(float("inf")) == "∞"


def test_missing_values_are_dashes_everywhere():
    for shown in (
        units.time(None),
        units.milliseconds(None),
        units.ratio(None),
        units.percent(None),
        units.seconds(None),
    ):
        assert shown == units.MISSING


def test_all_names_of_a_sentence_are_told_with_one_and():
    for names, said in [([], ""), (["10"], "10"), (["10", "100"], "10 and 100"), ("abc", "a, b and c")]:
        assert units.join_all(names) == said


def test_a_small_number_in_a_sentence_is_a_word():
    for number, said in [(2, "two"), (10, "ten"), (11, "11")]:
        assert units.number_word(number) == said
