"""From samples to estimates: one rule for the run's own summary, the report and comparisons."""

import pandas as pd
import pytest

from warpbook.kernels import lower_bounds, variants
from warpbook.problems import networks
from warpbook.runs import summaries, tables

SERIES = {
    "job": "direct", "variant": "direct", "problem": "conv", "case": "fa18/conv2", "device": "gpu", "size": 10_000,
}  # fmt: skip


def samples(kinds: dict[str, list[float]], throttled: tuple[int, ...] = (), **changed: str) -> pd.DataFrame:
    """SAMPLES of one call, its times by kind; the rounds named were throttled."""
    frame = pd.DataFrame(
        {
            **SERIES, "state": "cold", "kind": kind, "sample": number, "time_ms": time_ms, "sm_clock_mhz": 1980.0, "energy_j": None,
            "throttled": number in throttled, "stop_reason": "precise", "status": "ok", "reason": "", **changed,
        }
        for kind, times in kinds.items()
        for number, time_ms in enumerate(times)
    )  # fmt: skip
    return tables.with_places(frame)


PEAKS = {"fp32": 66_908.16, "tf32": 535_265.28, "fp16": 1_070_530.56, "bf16": 1_070_530.56}
MACHINE = {"gpu": {"arch": "sm_90", "l2_bytes": 50 << 20, "copy_gb_per_s": 4150.0, "peak_gflop_per_s": PEAKS}}


def test_a_kernel_time_of_more_than_twice_its_call_is_left_out_and_counted():
    taken = samples({"gpu": [1.0, 1.1, 2.1, 2.3], "op": [1.1, 1.1, 1.2, 1.1]})
    times = summaries.summarize_series(taken, MACHINE).set_index("kind")
    assert times.n.to_dict() == {"gpu": 3, "op": 4}
    assert times.median_ms["gpu"] == 1.1
    assert times.refused_count.to_dict() == {"gpu": 1, "op": 0}
    assert summaries.refused_count(taken) == 1


def test_a_call_that_a_slowdown_made_long_excuses_no_kernel_time():
    taken = samples({"gpu": [1.0, 1.1, 3.0], "op": [1.1, 9.0, 9.0]}, throttled=(1, 2))
    times = summaries.summarize_series(taken, MACHINE).set_index("kind")
    assert times.n.to_dict() == {"gpu": 1, "op": 1}
    assert times.throttled_count.to_dict() == {"gpu": 2, "op": 2}
    assert times.refused_count.to_dict() == {"gpu": 0, "op": 0}


def test_two_samples_far_apart_have_an_interval_that_a_run_can_hold():
    rows = summaries.summarize_series(samples({"op": [1.0, 50.0]}), MACHINE).to_dict("records")
    assert rows[0]["ci_low_ms"] < 1e-6
    assert tables.OP_TIMES.text(rows, "op_times.csv")


def test_pairs_stay_in_step_where_a_sample_is_no_figure():
    taken = pd.concat([samples({"op": [1.0, 2.0, 3.0]}, throttled=(1,)), samples({"op": [4.0, 5.0, 6.0]}, job="tiled")])
    series = summaries.group_by_series(taken, ["job", "kind"])
    assert [str(time) for time in series["direct", "op"]] == ["1.0", "nan", "3.0"]
    assert series["tiled", "op"].tolist() == [4.0, 5.0, 6.0]


def test_a_series_without_a_sound_sample_is_refused_with_what_was_left_out():
    (row,) = summaries.summarize_series(samples({"op": [1.0, 1.0]}, throttled=(0, 1)), MACHINE).to_dict("records")
    assert row["status"] == "refused"
    assert row["reason"].startswith("none of 2 samples is a figure: 2 were taken while a slowdown was active")


def test_each_bound_is_called_what_it_bounds():
    fft, gpu = variants.read("fft").header, MACHINE["gpu"]
    taken = samples({"op": [1.0]}, job="fft", variant="fft")
    (row,) = summaries.summarize_series(taken, MACHINE).to_dict("records")
    layer = networks.find("fa18").convs[1].at(10_000)
    assert row["method_bound_ms"] == lower_bounds.method_bound_ms(layer, fft, gpu) == pytest.approx(0.155, rel=0.03)
    assert row["fp32_bound_ms"] == lower_bounds.fp32_bound_ms(layer, gpu) == pytest.approx(0.485, rel=0.01)


def test_a_kernel_may_move_its_bytes_as_fast_as_the_gpu_writes_alone():
    layer, gpu, fft = networks.find("fa17").convs[0].at(10_000), MACHINE["gpu"], variants.read("fft").header
    written = gpu | {"write_gb_per_s": 1.1 * gpu["copy_gb_per_s"]}
    bound = lower_bounds.method_bound_ms(layer, fft, gpu)
    assert lower_bounds.method_bound_ms(layer, fft, written) == pytest.approx(bound / 1.1)
    assert lower_bounds.memory_bound_ms(layer, written) == lower_bounds.memory_bound_ms(layer, gpu)


def test_products_made_of_several_on_tensor_cores_are_bound_by_the_tensor_cores():
    layer, gpu = networks.find("fa19").convs[1].at(10_000), MACHINE["gpu"]
    split = variants.read("fp16x3_mma").header
    tensor_cores_ms = 3 * layer.flops / (gpu["peak_gflop_per_s"]["fp16"] * 1e9) * 1e3
    bound = lower_bounds.method_bound_ms(layer, split, gpu)
    assert bound == pytest.approx(tensor_cores_ms) == pytest.approx(0.59, rel=0.05)
    assert bound < 1.5 < lower_bounds.fp32_bound_ms(layer, gpu)


def job(measured_on: str, began_s: float, ended_s: float, alone: bool = True) -> dict:
    part = f"samples/gpu/fa18/at_{began_s}"
    span = {"waited_s": 0.0, "began_s": began_s, "ended_s": ended_s}
    return {"part": part, "measured_on": measured_on, "alone": alone, "cores": "0-3", **span}


def test_a_gpu_is_busy_while_any_job_holds_it_between_the_first_and_the_last_measurement_of_all():
    checks = [job("node/1", 0, 12, alone=False), job("node/1", 11, 13, alone=False), job("node/2", 0, 9, alone=False)]
    jobs = pd.DataFrame([*checks, job("node/1", 13, 18), job("node/1", 20, 30), job("node/2", 10, 14)])
    shares = summaries.gpu_shares(jobs).set_index("measured_on")
    assert shares.jobs.to_dict() == {"node/1": 4, "node/2": 2}
    assert shares.busy_s.to_dict() == {"node/1": 18, "node/2": 4}  # 10 to 18 and 20 to 30; 10 to 14
    assert shares.idle_s.to_dict() == {"node/1": 2, "node/2": 16}
    assert set(shares.wall_s) == {20}


def test_a_run_without_a_gpu_has_no_gpu_s_share():
    assert summaries.gpu_shares(tables.JOBS.empty()).empty


def pairs(percent: int, speedups: dict[float, float], variant: str = "direct") -> list[dict[str, object]]:
    """PAIRS whose intervals reach half a percent to each side but where said."""
    return [
        {"problem": "conv", "case": "conv1", "size": 10, "process": 0, "number": number, "measured_on": "node", "device": "gpu",
         "variant": variant, "slower_percent": percent, "kind": "op", "status": "ok", "n": 20,
         "speedup": value, "ci_low": value * (1 - half), "ci_high": value * (1 + half)}
        for number, (value, half) in enumerate(speedups.items())
    ]  # fmt: skip


def test_verdicts_on_known_differences_are_false_where_they_are_not_true():
    rows = pairs(0, {1.0: 0.005, 1.02: 0.005, 1.001: 0.02}) + pairs(0, {0.999: 0.005}, "fft")
    rows += pairs(2, {0.98: 0.005, 0.999: 0.005, 1.02: 0.005, 0.9801: 0.03})
    rows.append({**rows[0], "kind": "gpu"})
    rows.append({**rows[0], "status": "refused", "ci_low": None})
    same, slower, scaled = summaries.judge_pairs(pd.DataFrame(rows), 0.01)
    assert (same.what, same.called) == (
        "2 kernels against their copies", {"same": 2, "faster": 1, "slower": 0, "ambiguous": 1},
    )  # fmt: skip
    assert same.false_share(0.01).value == 1 / 4 and same.found_share is None
    assert (slower.n, slower.false_share(0.01).value, slower.found_share.value) == (4, 1 / 2, 1 / 4)
    assert slower.false_share(0.03).value == 1 / 4  # the same within 3 % is true
    # Copies of which one takes 1.02 times as long: that which seemed 2 % faster is now the same.
    assert scaled.called == {"same": 1, "faster": 0, "slower": 2, "ambiguous": 1}


def test_a_verdict_on_a_gpu_is_one_that_both_clocks_tell():
    for by_host, by_device, verdict in [
        ({1.1: 0.01}, {1.0: 0.001}, "ambiguous"),
        ({1.1: 0.01}, {1.05: 0.001}, "faster"),
        ({1.1: 0.01}, {1.008: 0.001}, "ambiguous"),  # within the margin of 1
        ({1.1: 0.01}, {}, "faster"),
        ({0.9: 0.01}, {1.05: 0.001}, "ambiguous"),
        ({1.0: 0.005}, {1.0: 0.03}, "same"),
        ({1.0: 0.005}, {1.05: 0.001}, "ambiguous"),
    ]:
        rows = pairs(0, by_host) + [{**row, "kind": "gpu"} for row in pairs(0, by_device)]
        (judged,) = summaries.judge_pairs(pd.DataFrame(rows), 0.01)
        assert [told for told, count in judged.called.items() if count] == [verdict]
