import contextlib
import itertools
import time

import pytest

from warpbook.common.supervision import VariantFailure
from warpbook.config.settings import Measuring, ProgramRuns, SeriesPolicy
from warpbook.harness import timing
from warpbook.harness.bench import CPU_CHUNK, CpuBench
from warpbook.kernels import lower_bounds
from warpbook.problems import networks

LAYER = networks.ConvLayer("odd", 2, 9, 11, 3, 4)
QUICK = SeriesPolicy(warmup=1, min_samples=6, max_samples=12, max_time_s=0.2, min_samples_timeout_s=1)
MEASURING = Measuring(
    target_rel_ci=0.05,
    equivalence_margin=0.01,
    gpu=QUICK,
    cpu=QUICK,
    programs=ProgramRuns(runs=1, min_samples_timeout_s=1),
    timeout_s=10,
)


def series(**changes):
    return SeriesPolicy(**{**QUICK.model_dump(), **changes})


def test_a_series_of_steady_samples_ends_as_precise():
    result = timing.interleaved({"steady": lambda: 5.0}, series(max_samples=1000, max_time_s=5), 0.01)
    assert result.stop_reason == "precise"
    assert len(result.samples["steady"]) == 10


def test_a_noisy_series_goes_on_until_its_samples_are_spent():
    noisy = itertools.cycle([1.0, 9.0])
    result = timing.interleaved({"noisy": lambda: next(noisy)}, series(max_samples=37, max_time_s=5), 0.01)
    assert result.stop_reason == "samples"
    assert len(result.samples["noisy"]) == 37


def slow():
    time.sleep(0.05)
    return float(time.perf_counter_ns() % 7 + 1)


def test_a_slow_series_takes_its_least_samples_before_it_heeds_the_time():
    result = timing.interleaved({"slow": slow}, series(warmup=0, max_time_s=0.1, min_samples_timeout_s=5), 1e-9)
    assert result.stop_reason == "time"
    assert len(result.samples["slow"]) == 6


def test_patience_ends_a_series_whose_samples_are_too_long():
    result = timing.interleaved({"slow": slow}, series(warmup=0, max_time_s=0.05, min_samples_timeout_s=0.12), 1e-9)
    assert 1 <= len(result.samples["slow"]) <= 3


def test_warmup_rounds_are_not_counted_unless_they_outlast_the_budget():
    numbers = itertools.count()
    result = timing.interleaved({"n": lambda: float(next(numbers) >= 3) + 1}, series(warmup=3), 0.01)
    assert {sample.time_ms for sample in result.samples["n"]} == {2.0}
    long = timing.interleaved({"slow": slow}, series(warmup=3, min_samples=1, max_time_s=0.04), 1e9)
    assert len(long.samples["slow"]) == 1


def test_variant_and_baseline_take_turns_in_both_orders():
    order = []
    timers = {name: lambda name=name: order.append(name) or 1.0 for name in ("variant", "baseline")}
    timing.interleaved(timers, series(warmup=0, max_samples=6), 1e-12)
    assert order[:4] == ["variant", "baseline", "baseline", "variant"]
    assert order.count("variant") == order.count("baseline")


def test_throttled_samples_are_kept_and_do_not_count_for_the_precision():
    readings = itertools.cycle([(1500.0, True), (1980.0, False)])
    times = itertools.cycle([9.0, 1.0])
    result = timing.interleaved(
        {"n": lambda: next(times)}, series(warmup=0, max_samples=40), 0.01, lambda: next(readings)
    )
    assert result.stop_reason == "precise"
    assert any(sample.throttled for sample in result.samples["n"])
    assert set(timing.unthrottled_ms(result.samples["n"])) == {1.0}


def test_a_slowdown_that_shows_rounds_later_counts_for_all_of_them():
    readings = itertools.chain([(None, None), (None, None), (None, True)], itertools.repeat((None, False)))
    times = itertools.chain([9.0] * 3, itertools.repeat(1.0))
    result = timing.interleaved(
        {"n": lambda: next(times)}, series(warmup=0, max_samples=40), 0.01, lambda: next(readings)
    )
    assert [sample.throttled for sample in result.samples["n"]] == [True] * 3 + [False] * 7
    assert result.stop_reason == "precise"


def test_a_series_goes_on_until_it_has_its_least_samples_without_a_slowdown_or_loses_patience():
    readings = itertools.chain([(None, True)] * 30, itertools.repeat((None, False)))
    policy = series(warmup=0, min_samples=6, max_samples=12)
    result = timing.interleaved({"n": lambda: 1.0}, policy, 0.01, lambda: next(readings))
    assert len(result.samples["n"]) >= 36 and len(timing.unthrottled_ms(result.samples["n"])) >= 6

    def slow():
        time.sleep(0.01)
        return 1.0

    policy = series(warmup=0, max_time_s=0.05, min_samples_timeout_s=0.12)
    result = timing.interleaved({"n": slow}, policy, 0.01, lambda: (None, True))
    assert timing.unthrottled_ms(result.samples["n"]) == []
    assert 5 < len(result.samples["n"]) <= 14


def test_a_layer_s_samples_come_with_their_pairs(cpu_variant):
    variant = cpu_variant("y[...] = convolve(x, w)")
    rows = timing.measure_case(CpuBench(), [variant], LAYER.at(3), QUICK, MEASURING)
    assert {(row["variant"], row["case"], row["size"], row["state"], row["kind"]) for row in rows} == {
        ("mine", "odd", 3, "hot", "op")
    }
    assert all(row["time_ms"] > 0 for row in rows)
    assert [row["sample"] for row in rows] == list(range(len(rows)))


def test_all_images_of_a_large_dataset_go_through_in_chunks(cpu_variant, tmp_path):
    log = tmp_path / "calls.txt"
    body = f"y[...] = convolve(x, w)\nopen({str(log)!r}, 'a').write(f'{{len(x)}} ')"
    timing.measure_case(CpuBench(), [cpu_variant(body)], LAYER.at(2 * CPU_CHUNK + 7), series(warmup=0), MEASURING)
    lengths = [int(length) for length in log.read_text().split()]
    assert lengths[:3] == [CPU_CHUNK, CPU_CHUNK, 7]


def test_a_variant_that_does_less_when_it_is_timed_is_caught_after_the_timing(cpu_variant):
    body = "calls[0] += 1\nif calls[0] < 4: y[...] = convolve(x, w)"
    with pytest.raises(VariantFailure, match=r"leaves .* outputs unwritten") as raised:
        timing.measure_case(CpuBench(), [cpu_variant(body, before="calls = [0]")], LAYER.at(3), QUICK, MEASURING)
    assert raised.value.status == "wrong_result"


def test_a_variant_that_is_wrong_when_it_is_timed_is_caught_after_the_timing(cpu_variant):
    with pytest.raises(VariantFailure, match="after timing: mine is wrong"):
        timing.measure_case(CpuBench(), [cpu_variant("y[...] = 1")], LAYER.at(3), QUICK, MEASURING)


def test_a_variant_that_remembers_answers_by_their_inputs_is_refused_after_the_timing(cpu_variant):
    body = (
        "key = x.tobytes() + w.tobytes()\n"
        "if key not in kept:\n    import time; time.sleep(0.005)\n    kept[key] = convolve(x, w)\ny[...] = kept[key]"
    )
    with pytest.raises(VariantFailure, match="on inputs not seen before and took") as raised:
        timing.measure_case(CpuBench(), [cpu_variant(body, before="kept = {}")], LAYER.at(3), QUICK, MEASURING)
    assert raised.value.status == "refused"


@pytest.mark.parametrize("peer", [True, False], ids=["a library", "a kernel"])
def test_only_a_library_may_pack_fresh_weights_before_the_clock_starts(peer, cpu_variant):
    body = "key = w.tobytes()\nif key not in kept: time.sleep(0.02)\nkept.add(key)\ny[...] = convolve(x, w)"
    variant = cpu_variant(body, before="import time\nkept = set()", header="peer: true\n" if peer else "")
    with contextlib.nullcontext() if peer else pytest.raises(VariantFailure, match="must not remember"):
        timing.measure_case(CpuBench(), [variant], LAYER.at(3), QUICK, MEASURING)


def test_a_library_that_remembers_answers_is_refused_as_well(cpu_variant):
    body = "key = x.tobytes()\nif key not in kept: time.sleep(0.02)\nkept.add(key)\ny[...] = convolve(x, w)"
    variant = cpu_variant(body, before="import time\nkept = set()", header="peer: true\n")
    with pytest.raises(VariantFailure, match="must not remember"):
        timing.measure_case(CpuBench(), [variant], LAYER.at(3), QUICK, MEASURING)


def test_a_machine_that_becomes_slower_after_the_timing_refuses_no_variant(cpu_variant, tmp_path):
    body = "import time; time.sleep(0.004 * busy.exists())\ny[...] = convolve(x, w)"
    busy = tmp_path / "busy"
    variant = cpu_variant(body, before=f"from pathlib import Path\nbusy = Path({str(busy)!r})")

    class Bench(CpuBench):
        """One whose machine gets other work once the samples are taken, when it is asked what speaks against them."""

        asked = 0

        def distrust_reason(self):
            self.asked += 1
            if self.asked > 1:
                busy.touch()
            return ""

    rows = timing.measure_case(Bench(), [variant], LAYER.at(3), QUICK, MEASURING)
    assert busy.exists()
    assert min(row["time_ms"] for row in rows) < 4


def test_a_variant_that_works_only_for_poison_is_wrong_after_the_timing(cpu_variant):
    body = "if y.view(np.uint32).flat[0] == 0x7FC0DEAD: y[...] = convolve(x, w)"
    with pytest.raises(VariantFailure, match="after timing: mine is wrong"):
        timing.measure_case(CpuBench(), [cpu_variant(body)], LAYER.at(3), QUICK, MEASURING)


def test_a_variant_that_replays_once_it_is_called_often_is_wrong_after_the_timing(cpu_variant):
    body = "calls[0] += 1\nif calls[0] < 4: kept.append(convolve(x, w))\ny[...] = kept[-1]"
    with pytest.raises(VariantFailure, match="after timing: mine is wrong"):
        timing.measure_case(
            CpuBench(), [cpu_variant(body, before="kept, calls = [], [0]")], LAYER.at(3), QUICK, MEASURING
        )


def test_a_clock_that_a_variant_puts_in_its_place_changes_no_sample_and_is_told(cpu_variant, monkeypatch):
    monkeypatch.setattr(time, "perf_counter", time.perf_counter)  # put back after the test
    variant = cpu_variant("y[...] = convolve(x, w)", before="import time\ntime.perf_counter = lambda: 0.0")
    with pytest.raises(
        VariantFailure, match=r"mine replaces time\.perf_counter, by which the harness judges it"
    ) as raised:
        timing.measure_case(CpuBench(), [variant], LAYER.at(3), QUICK, MEASURING)
    assert raised.value.status == "refused"


def test_lower_bound_is_the_larger_of_bytes_and_operations():
    first, second = (conv.at(10_000) for conv in networks.find("fa18").convs)
    assert lower_bounds.lower_bound_ms(first, 4240, 66_908) == pytest.approx(0.2425, rel=1e-3)  # bytes
    assert lower_bounds.lower_bound_ms(second, 4240, 66_908) == pytest.approx(0.4850, rel=1e-3)  # operations


def test_what_the_cache_may_keep_is_left_out_of_the_bound():
    layer = networks.find("fa18").convs[0]
    assert lower_bounds.lower_bound_ms(layer.at(10), 4240, None, kept_bytes=60 << 20) == 0
    assert lower_bounds.lower_bound_ms(layer.at(10_000), 4240, None, kept_bytes=60 << 20) == pytest.approx(
        0.2277, rel=1e-3
    )
