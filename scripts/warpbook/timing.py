"""Timing samples: a variant and its baseline in turn, until the figures are precise enough or the time is spent.

What a sample of each kind and state brackets:

- `gpu`: two CUDA events around the call. The device is kept busy while the host queues event, call and event, so that
  no launch latency falls between them: the time of the kernels alone, and of the gaps between them where there are
  several.
- `op`: the host's clock around the call and a wait for the device.
- `layer`: the host's clock around copying x and w from page-locked memory to the device, the call, and copying y back.
- cold: the L2 cache is overwritten first. hot: the same call on the same buffers comes right before, untimed or as
  the sample before; not taken where the buffers are several times what the L2 holds.

On a CPU there is `op`, hot: all images in chunks of at most `CPU_CHUNK`, the output of one overwritten by the next; a
call longer than `SHORT_CALL_MS` is its own warm-up.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warpbook import checking, estimates
from warpbook.bench import Bench
from warpbook.config import Measuring, Series
from warpbook.networks import ConvLayer
from warpbook.supervision import Failed
from warpbook.variants import Operation, Variant

PROTOCOL = 2
"""Raised whenever the meaning of a sample changes: figures of different protocols are not the same thing."""

LONG_ROUND_S = 0.005
"""Looking whether a series is precise takes a fraction of this: after a shorter round it waits for a few more."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """One sample: its time, and the device's state read right after its round."""

    time_ms: float
    sm_clock_mhz: float | None = None
    throttled: bool = False


@dataclass(frozen=True)
class SeriesResult:
    """The samples of each name in the order taken, index by index a round, and why the series ended."""

    samples: dict[str, list[Sample]]
    stop_reason: str


def in_turn(
    timers: dict[str, Callable[[], float]],
    series: Series,
    relative_noise: float,
    read_device: Callable[[], tuple[float | None, bool]] = lambda: (None, False),
) -> SeriesResult:
    """Take rounds of samples, one of each timer a round, the order reversed every other round.

    Ends when every name's median is known to `relative_noise` from its samples that were not throttled (`precise`),
    when `budget_s` is spent (`time`), or at `max_samples` (`samples`); never before `min_samples`, unless
    `patience_s` is spent. The first `warmup` rounds are not counted, unless they alone outlast the budget: then they
    are long enough to stand.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in timers}
    order = list(timers)
    began = time.perf_counter()

    def take_round() -> tuple[float, float]:
        """(seconds of this round, seconds spent in all)."""
        started = time.perf_counter()
        taken = {name: timers[name]() for name in order}
        clock, throttled = read_device()
        for name, time_ms in taken.items():
            samples[name].append(Sample(time_ms, clock, throttled))
        order.reverse()
        now = time.perf_counter()
        return now - started, now - began

    for _ in range(series.warmup):
        round_s, spent = take_round()
        if spent >= series.budget_s:
            break
    else:
        for taken in samples.values():
            taken.clear()
        began = time.perf_counter()
        round_s, spent = take_round()

    while True:
        rounds = len(samples[order[0]])
        enough = rounds >= series.min_samples or spent >= series.patience_s
        if enough and (rounds % 5 == 0 or round_s >= LONG_ROUND_S or spent >= series.budget_s):
            noise = max(estimates.median(np.array(kept(taken))).relative_noise for taken in samples.values())
            if noise <= relative_noise:
                return SeriesResult(samples, "precise")
            if spent >= series.budget_s:
                return SeriesResult(samples, "time")
        if rounds >= series.max_samples:
            return SeriesResult(samples, "samples")
        round_s, spent = take_round()


def kept(samples: list[Sample]) -> list[float]:
    """Times of the samples taken while no slowdown was active."""
    return [sample.time_ms for sample in samples if not sample.throttled]


def measure_layer(
    bench: Bench, variants: list[Variant], layer: ConvLayer, images: int, series: Series, measuring: Measuring
) -> list[Row]:
    """Samples of one layer at one size, for a variant and (second, where given) its baseline: the columns of SAMPLES
    from `variant` on, without `network` and `device`.

    All calls read the same inputs, drawn fresh. After the timing each variant's very operation is tested as in
    checking. Raises Failed where one faults or its result is wrong.
    """
    batches = bench.batches(images)
    first = batches[0]
    x, w = bench.guarded(layer.x_shape(images)), bench.guarded(layer.w_shape)
    y = bench.guarded(layer.y_shape(first))
    seed = secrets.randbits(62)
    bench.draw(x.values, seed, False)
    bench.draw(w.values, seed + 1, False)

    operations: dict[str, dict[int, Operation]] = {}
    timers = {}
    for variant in variants:
        with checking.faults_named(variant, "prepared"):
            prepared = {n: bench.prepare(variant, layer, n) for n in sorted(set(batches))}
            operations[variant.name] = prepared
            timers[variant.name] = bench.timers(_over_batches(prepared, batches), x.values, w.values, y.values)

    rows = []
    for state, kind in timers[variants[0].name]:
        # Claims rest on what the figures are quoted in; the rest is the variant's own, beside it.
        compared = timers if (state, kind) in bench.compared else [variants[0].name]
        chosen = {name: timers[name][state, kind] for name in compared}
        with checking.faults_named(variants[0], "timed"):
            result = in_turn(chosen, series, measuring.relative_noise, bench.read_clock)
        for name, samples in result.samples.items():
            for number, sample in enumerate(samples):
                rows.append(
                    {
                        "variant": name,
                        "layer": layer.name,
                        "size": images,
                        "state": state,
                        "kind": kind,
                        "sample": number,
                        "time_ms": sample.time_ms,
                        "sm_clock_mhz": sample.sm_clock_mhz,
                        "throttled": sample.throttled,
                        "stop_reason": result.stop_reason,
                        "status": "ok",
                        "reason": "",
                    }
                )

    for variant in variants:
        operation = operations[variant.name][first]
        result = checking.checked_call(bench, variant, lambda x, w, y, op=operation: op(x[:first], w, y), x, w, y)
        verdict = checking.judged(
            variant, layer, bench.compare(layer, x.values[:first], w.values, result), integers=False
        )
        if not verdict["ok"]:
            raise Failed("wrong_result", f"after timing: {verdict['reason']}")
    return rows


def _over_batches(prepared: dict[int, Operation], batches: list[int]) -> Operation:
    """One call for all batches, the output of each overwritten by the next."""
    if len(batches) == 1:
        return prepared[batches[0]]

    def call(x: Any, w: Any, y: Any) -> None:
        start = 0
        for n in batches:
            prepared[n](x[start : start + n], w, y[:n])
            start += n

    return call


def lower_bound_ms(
    layer: ConvLayer, images: int, copy_gb_per_s: float, peak_gflop_per_s: float | None, kept_bytes: int = 0
) -> float:
    """Least time for one layer: its bytes at the measured copy bandwidth, or its operations at the peak rate.

    `kept_bytes` may stay in the L2 cache and need not reach memory; `peak_gflop_per_s` is None for a method that may do
    fewer operations.
    """
    moved = max(0, layer.bytes(images) - kept_bytes) / (copy_gb_per_s * 1e9) * 1e3
    computed = layer.flops(images) / (peak_gflop_per_s * 1e9) * 1e3 if peak_gflop_per_s else 0.0
    return max(moved, computed)
