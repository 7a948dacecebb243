import itertools
import math
import time
from types import SimpleNamespace

import pytest

from policies import QUICK
from warpbook.common.supervision import VariantFailure
from warpbook.config.settings import SeriesPolicy
from warpbook.harness import timed_variant, timing
from warpbook.harness.timed_variant import TimedVariant
from warpbook.kernels import lower_bounds
from warpbook.problems import networks


def series(**changes):
    return SeriesPolicy(**{**QUICK.model_dump(), **changes})


def test_a_series_of_steady_samples_ends_as_precise():
    result = timing.sample_interleaved({"steady": lambda: 5.0}, series(max_samples=1000, max_time_s=5), 0.01)
    assert result.stop_reason == "precise"
    assert len(result.samples["steady"]) == 10


def test_a_claim_of_less_than_any_clock_shows_ends_a_series_too():
    result = timing.sample_interleaved({"false": lambda: 1e-9}, series(), 0.01)
    assert result.stop_reason == "precise" and {one.time_ms for one in result.samples["false"]} == {1e-6}


def test_a_noisy_series_goes_on_until_its_samples_are_spent():
    noisy = itertools.cycle([1.0, 9.0])
    result = timing.sample_interleaved({"noisy": lambda: next(noisy)}, series(max_samples=37, max_time_s=5), 0.01)
    assert result.stop_reason == "samples"
    assert len(result.samples["noisy"]) == 37


def slow():
    time.sleep(0.05)
    return float(time.perf_counter_ns() % 7 + 1)


def test_a_slow_series_takes_its_least_samples_before_it_heeds_the_time():
    result = timing.sample_interleaved({"slow": slow}, series(warmup=0, max_time_s=0.1, min_samples_timeout_s=5), 1e-9)
    assert result.stop_reason == "time"
    assert len(result.samples["slow"]) == 6


def test_patience_ends_a_series_whose_samples_are_too_long():
    result = timing.sample_interleaved(
        {"slow": slow}, series(warmup=0, max_time_s=0.05, min_samples_timeout_s=0.12), 1e-9
    )
    assert 1 <= len(result.samples["slow"]) <= 3


def test_warmup_rounds_are_not_counted_unless_they_outlast_the_budget():
    numbers = itertools.count()
    result = timing.sample_interleaved({"n": lambda: float(next(numbers) >= 3) + 1}, series(warmup=3), 0.01)
    assert {sample.time_ms for sample in result.samples["n"]} == {2.0}
    long = timing.sample_interleaved({"slow": slow}, series(warmup=3, min_samples=1, max_time_s=0.04), 1e9)
    assert len(long.samples["slow"]) == 1


def test_variant_and_baseline_take_turns_in_both_orders():
    order = []
    timers = {name: lambda name=name: order.append(name) or 1.0 for name in ("variant", "baseline")}
    timing.sample_interleaved(timers, series(warmup=0, max_samples=6), 1e-12)
    assert order[:4] == ["variant", "baseline", "baseline", "variant"]
    assert order.count("variant") == order.count("baseline")


def test_throttled_samples_are_kept_and_do_not_count_for_the_precision():
    readings = itertools.cycle([(1500.0, True), (1980.0, False)])
    times = itertools.cycle([9.0, 1.0])
    result = timing.sample_interleaved(
        {"n": lambda: next(times)}, series(warmup=0, max_samples=40), 0.01, lambda: next(readings)
    )
    assert result.stop_reason == "precise"
    assert any(sample.throttled for sample in result.samples["n"])
    assert set(timing.unthrottled_ms(result.samples["n"])) == {1.0}


def test_a_slowdown_that_shows_rounds_later_counts_for_all_of_them():
    readings = itertools.chain([(None, None), (None, None), (None, True)], itertools.repeat((None, False)))
    times = itertools.chain([9.0] * 3, itertools.repeat(1.0))
    result = timing.sample_interleaved(
        {"n": lambda: next(times)}, series(warmup=0, max_samples=40), 0.01, lambda: next(readings)
    )
    assert [sample.throttled for sample in result.samples["n"]] == [True] * 3 + [False] * 7
    assert result.stop_reason == "precise"


def test_a_series_goes_on_until_it_has_its_least_samples_without_a_slowdown_or_loses_patience():
    readings = itertools.chain([(None, True)] * 30, itertools.repeat((None, False)))
    policy = series(warmup=0, min_samples=6, max_samples=12)
    result = timing.sample_interleaved({"n": lambda: 1.0}, policy, 0.01, lambda: next(readings))
    assert len(result.samples["n"]) >= 36 and len(timing.unthrottled_ms(result.samples["n"])) >= 6

    def slow():
        time.sleep(0.01)
        return 1.0

    policy = series(warmup=0, max_time_s=0.05, min_samples_timeout_s=0.12)
    result = timing.sample_interleaved({"n": slow}, policy, 0.01, lambda: (None, True))
    assert timing.unthrottled_ms(result.samples["n"]) == []
    assert 5 < len(result.samples["n"]) <= 14


def test_a_gpu_whose_power_limits_its_clock_rests_until_a_series_has_its_least_samples(monkeypatch):
    """A simulated GPU: its clock halves while its average power is above 1, and a call needs 3."""
    now = averaged = 0.0

    def passes(seconds, power):
        nonlocal now, averaged
        now += seconds
        averaged = power + (averaged - power) * math.exp(-seconds / 0.1)

    monkeypatch.setattr(timing, "perf_counter", lambda: now)
    monkeypatch.setattr(timing, "sleep", lambda seconds: passes(seconds, 0.1))
    policy = series(warmup=1, min_samples=6, max_samples=300, max_time_s=0.15, min_samples_timeout_s=3)

    def sound(rest_s):
        def call():
            slowed = averaged > 1
            passes(0.02 if slowed else 0.01, 3.0)
            return 20.0 if slowed else 10.0

        taken = timing.sample_interleaved({"n": call}, policy, 1e-9, lambda: (1980.0, averaged > 1), rest_s)
        return timing.unthrottled_ms(taken.samples["n"])

    assert len(sound(0.0)) < 6
    averaged = 0.0
    assert len(sound(timing.REST_S)) >= 6 and set(sound(timing.REST_S)) == {10.0}


@pytest.mark.parametrize("on_device", [True, False])
def test_a_series_on_a_gpu_that_verdicts_rest_on_has_time_for_the_judge_s_work(on_device, monkeypatch):
    longest_s = []

    def sample(timers, policy, *_):
        longest_s.append(policy.max_time_s)
        return timing.SeriesResult({name: [timing.Sample(1.0)] for name in timers}, "time")

    monkeypatch.setattr(timing, "sample_interleaved", sample)
    bench = SimpleNamespace(
        on_device=on_device, compared=(("cold", "op"),), distrust_reason=lambda: "", read_clock=lambda: (None, False)
    )
    timers = {("cold", "op"): lambda: 1.0, ("cold", "layer"): lambda: 1.0}
    timed = SimpleNamespace(
        variant=SimpleNamespace(name="mine"), arrange=lambda _: timers, verify=lambda *_, **__: None
    )
    policy = SimpleNamespace(target_rel_ci=0.01)
    timing.measure_case(bench, [timed], networks.find("fa18").convs[0].at(1), QUICK, policy)
    assert longest_s == pytest.approx([QUICK.max_time_s * (timing.JUDGED if on_device else 1), QUICK.max_time_s])


@pytest.mark.parametrize(("disturbed", "reason"), [(3, "1 more processes compute on the GPU"), (1, "it is locked")])
def test_samples_that_other_processes_disturbed_are_taken_again_and_no_others(disturbed, reason, monkeypatch):
    def measure(waits_s):
        monkeypatch.setattr(timing, "OTHERS_S", waits_s)
        said = iter([reason] * disturbed)
        bench = SimpleNamespace(
            on_device=True, compared=(("cold", "op"),), distrust_reason=lambda: next(said, ""), read_clock=tuple
        )
        timed = SimpleNamespace(
            variant=SimpleNamespace(name="mine"),
            arrange=lambda _: {("cold", "op"): lambda: 1.0},
            verify=lambda *_, **__: None,
        )
        case, policy = networks.find("fa18").convs[0].at(1), SimpleNamespace(target_rel_ci=0.01)
        return [row["status"] for row in timing.measure_case(bench, [timed], case, QUICK, policy)]

    result = timing.SeriesResult({"mine": [timing.Sample(1.0)]}, "time")
    monkeypatch.setattr(timing, "sample_interleaved", lambda *_: result)
    if "compute" in reason:
        assert measure(waits_s=60.0) == ["ok"]
    for waits_s in (0.0, *([60.0] * ("compute" not in reason))):
        with pytest.raises(VariantFailure, match=reason):
            measure(waits_s)


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


CASE = networks.ConvLayer("odd", 2, 9, 11, 3, 4).at(100)


class OnDevice(TimedVariant):
    """A process on a GPU, by the judge's clock: each call takes `call_ms`, and any batch of them `once_ms` besides."""

    def __init__(self, call_ms, once_ms):
        self.variant = SimpleNamespace(name="mine")
        self._bench = SimpleNamespace(on_device=True, audited_bytes=16 << 30)
        self._rings, self._ordered, self._call_ms, self._once_ms = {}, 0, call_ms, once_ms
        self._others_now = lambda: 0.0
        self._others_from_now = lambda: lambda: 0.0

    def _make_ring(self, part, sets):
        return SimpleNamespace(shared=SimpleNamespace(results=lambda number: {}))

    def _refill(self, ring, numbers):
        return [(0, 0)] * len(numbers)

    def _lay_out(self, ring):
        pass

    def _handing_ms(self, ring):
        return 0.0

    def _compare_some(self, found):
        pass

    def _call(self, ring, do, numbers):
        self._ordered, self._asked_ms = len(numbers), 0.01 * len(numbers)

    def _ask(self, do):
        self._asked_ms = self._once_ms + (self._call_ms - 0.01) * self._ordered


def test_an_honest_claim_that_waited_for_its_turn_on_a_gpu_stands_when_it_is_looked_at_again(monkeypatch):
    monkeypatch.setattr(timed_variant, "AUDIT_S", 0)
    claimed_ms = {"op": 0.051, "gpu": 0.0378}
    with pytest.raises(timed_variant.FalseClaim):
        OnDevice(0.0378, 1.2)._audit(CASE, claimed_ms)
    OnDevice(0.0378, 1.2)._audit(CASE, claimed_ms, doubted=True)


@pytest.mark.parametrize("doubted", [False, True])
@pytest.mark.parametrize("call_ms", [0.02, 0.0378, 0.3, 3.0])
def test_a_claim_of_too_little_on_a_gpu_is_refused_however_many_calls_are_looked_at(call_ms, doubted, monkeypatch):
    monkeypatch.setattr(timed_variant, "AUDIT_S", 0)
    with pytest.raises(timed_variant.FalseClaim, match="mine claims"):
        OnDevice(call_ms, 1.2)._audit(CASE, {"op": 0.7 * call_ms, "gpu": 0.7 * call_ms}, doubted)
