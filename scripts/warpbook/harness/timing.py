"""Timing samples: a variant and its baseline in turn, until the figures are precise enough or the time is spent.

What a sample of each kind and state brackets:

- `gpu`: two CUDA events around the call. The device is kept busy while the host queues event, call and event, so that
  no launch latency falls between them: the time of the kernels alone, and of the gaps between them where there are
  several.
- `op`: the host's clock around the call and a wait for the device.
- `layer`: the host's clock around copying inputs from page-locked memory to the device, the call, and copying outputs
  back.
- cold: the L2 cache is overwritten first. hot: the same call on the same buffers comes right before, untimed or as
  the sample before; not taken where the buffers are several times what the L2 holds.

On a CPU there is `op`, hot: a problem with a `batch` in chunks of at most `CPU_CHUNK`, the output of one overwritten by the
next; a call longer than `SHORT_CALL_MS` is its own warm-up.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter  # by name: a launcher may replace it in its module
from typing import Any

import numpy as np

from warpbook.common import statistics
from warpbook.common.supervision import VariantFailure
from warpbook.config.settings import Measuring, SeriesPolicy
from warpbook.harness import bench as benches
from warpbook.harness import checking, tamper_check
from warpbook.harness.bench import SHORT_CALL_MS, Bench, Buffers, Timers
from warpbook.harness.checking import NamedSubject
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems.problem import Case

PROTOCOL = 2
"""Raised whenever the meaning of a sample changes: figures of different protocols are not the same thing."""

LONG_ROUND_S = 0.005
"""Looking whether a series is precise takes a fraction of this: after a shorter round it waits for a few more."""

SLOWER_WHEN_FRESH, FRESH_SLACK_MS, FRESH_CALLS = 3, 0.2, 5
"""A call on fresh inputs may take so many times its median and so much more; the fastest of so many counts."""

Row = dict[str, Any]

NOT_TIMED: Row = {"state": "", "kind": "", "sample": 0, "time_ms": None, "sm_clock_mhz": None, "throttled": False}
"""What the one row says that stands for samples that there are not."""


def failure_columns(failure: VariantFailure) -> Row:
    """The columns of the one row that stands for a series which failed."""
    return {**NOT_TIMED, "stop_reason": "", **failure.columns}


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


def interleaved(
    timers: dict[str, Callable[[], float]],
    series: SeriesPolicy,
    relative_noise: float,
    read_device: Callable[[], tuple[float | None, bool | None]] = lambda: (None, False),
) -> SeriesResult:
    """Take rounds of samples, one of each timer a round, the order reversed every other round.

    Ends when every name's median is known to `relative_noise` from its samples that were not throttled (`precise`),
    when `max_time_s` is spent (`time`), or at `max_samples` (`samples`); never before `min_samples` that were not, unless
    `min_samples_timeout_s` is spent. The first `warmup` rounds are not counted, unless they alone outlast the budget:
    then they are long enough to stand. Whether a round was throttled may be known some rounds later: until then
    `read_device` says None, and what was known last is taken to hold.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in timers}
    order = list(timers)
    began = perf_counter()
    unknown, slowed = 0, False  # how many of the last rounds, and what was known last

    def take_round(kept: bool = True) -> tuple[float, float]:
        """(seconds of this round, seconds spent in all)."""
        nonlocal unknown, slowed
        started = perf_counter()
        taken = {name: timers[name]() for name in order}
        clock, throttled = read_device()
        if kept:
            unknown += 1
            for name, time_ms in taken.items():
                samples[name].append(Sample(time_ms, clock, slowed))
        if throttled is not None:
            slowed = throttled
            for held in samples.values():
                first = len(held) - unknown
                held[first:] = [replace(one, throttled=slowed) for one in held[first:]]
            unknown = 0
        order.reverse()
        now = perf_counter()
        return now - started, now - began

    for _ in range(series.warmup):
        round_s, spent = take_round()
        if spent >= series.max_time_s:
            break
    else:
        for taken in samples.values():
            taken.clear()
        unknown = 0
        began = perf_counter()
        round_s, spent = take_round()

    while True:
        rounds = len(samples[order[0]])
        quiet = len(unthrottled_ms(samples[order[0]]))
        enough = quiet >= series.min_samples or spent >= series.min_samples_timeout_s
        if enough and (rounds % 5 == 0 or round_s >= LONG_ROUND_S or spent >= series.max_time_s):
            noise = max(statistics.median(np.array(unthrottled_ms(taken))).relative_noise for taken in samples.values())
            if noise <= relative_noise and not unknown:
                return SeriesResult(samples, "precise")
            if spent >= series.max_time_s:
                return SeriesResult(samples, "time")
        full = quiet >= series.max_samples
        if full and not unknown:
            return SeriesResult(samples, "samples")
        round_s, spent = take_round(kept=not full)


def unthrottled_ms(samples: list[Sample]) -> list[float]:
    """Times of the samples that nothing slowed down: no clock, and on a CPU no other program."""
    return [sample.time_ms for sample in samples if not sample.throttled]


def measure_case(
    bench: Bench, variants: list[Variant], case: Case, series: SeriesPolicy, measuring: Measuring
) -> list[Row]:
    """Samples of one case at its size, for a variant and (second, where given) its baseline: the columns of SAMPLES from
    `variant` on, without `device`, and `case`, its own name.

    All calls read the same inputs, drawn fresh. After the timing each variant's very operation is tested on others, as
    in checking. Raises VariantFailure where one faults, its result is wrong, it is slower on inputs not seen before, or
    the device cannot be trusted.
    """
    reject_distrusted(bench)
    parts = bench.parts(case)
    first = parts[0]
    buffers = benches.allocate(bench, case, first)
    checking.draw_fresh(bench, case, buffers.input_values)

    operations: dict[str, dict[Case, Operation]] = {}
    timers = {}
    for variant in variants:
        with checking.fault_context(variant, "prepared"):
            prepared = {part: bench.prepare(variant, part) for part in dict.fromkeys(parts)}
            operations[variant.name] = prepared
            timers[variant.name] = bench.timers(_over_parts(prepared, parts), buffers)

    rows, told_ms = sample_rows(bench, variants, timers, series, measuring)
    rows = [{"case": case.name, "size": case.size, **row} for row in rows]
    reject_distrusted(bench)
    called = _part_buffers(buffers, first) if len(parts) > 1 else buffers
    for variant in variants:
        operation = operations[variant.name][first]
        _check_after_timing(bench, variant, first, operation, buffers, called)
        if variant.name in told_ms:
            share = 1 if first == case else first.flops / case.flops
            samples_ms = [time_ms * share for time_ms in told_ms[variant.name]]
            reject_memoized(bench, variant, operation, samples_ms, first, called, packs_weights=variant.header.peer)
    return rows


def sample_rows(
    bench: Bench, named: Sequence[NamedSubject], timers: dict[str, Timers], series: SeriesPolicy, measuring: Measuring
) -> tuple[list[Row], dict[str, list[float]]]:
    """The samples of each state and kind, a row each: columns of SAMPLES from `state` on, and `variant`;
    and the times of the kind that others are compared in, by name.

    The first of `named` has every kind; a baseline behind it those that are compared, in turn with it.
    """
    rows: list[Row] = []
    told_ms: dict[str, list[float]] = {}
    for state, kind in timers[named[0].name]:
        # Claims rest on what the figures are quoted in; the rest is the variant's own, beside it.
        compared = timers if (state, kind) in bench.compared else [named[0].name]
        chosen = {name: timers[name][state, kind] for name in compared}
        with checking.fault_context(named[0], "timed"):
            result = interleaved(chosen, series, measuring.target_rel_ci, bench.read_clock)
        for name, samples in result.samples.items():
            if (state, kind) == bench.compared[-1] and unthrottled_ms(samples):
                told_ms[name] = unthrottled_ms(samples)
            for number, sample in enumerate(samples):
                rows.append(
                    {
                        "variant": name,
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
    return rows, told_ms


def reject_distrusted(bench: Bench) -> None:
    """Raises VariantFailure where no figure of the device is to be trusted now."""
    if reason := bench.distrust_reason():
        raise VariantFailure("refused", reason)


def _check_after_timing(
    bench: Bench, variant: Variant, case: Case, operation: Operation, whole: Buffers, called: Buffers
) -> None:
    """Test an operation that was timed, on inputs not seen before: its outputs poisoned, then left as the call before
    left them, as they were when timed. The margins are those of the `whole` buffers, a part of which it is called on."""

    def call(*_: Any) -> Any:
        return operation(*called.values)

    for poisoned in (True, False):
        checking.draw_fresh(bench, case, called.input_values)
        results = checking.guarded_call(bench, variant, call, whole, poisoned)
        verdict = checking.comparison_columns(
            variant, case, bench.compare(case, called.input_values, results), integers=False
        )
        if not verdict["ok"]:
            raise VariantFailure("wrong_result", f"after timing: {verdict['reason']}")


def reject_memoized(
    bench: Bench,
    variant: NamedSubject,
    operation: Operation,
    samples_ms: list[float],
    case: Case | None,
    buffers: Buffers,
    packs_weights: bool = False,
) -> None:
    """Raises VariantFailure where every call on inputs not seen before takes much longer than its samples did.

    All samples read the same inputs: an operation that remembers its answers by their values is fast there alone. A
    library that `packs_weights`, the inputs behind the first, once for all calls with them, does so for new ones before
    the clock starts.
    The machine may have become slower meanwhile: before a refusal, as many calls on the same inputs are taken again.
    """
    inputs = buffers.input_values
    first = dict(list(inputs.items())[:1])

    def call_ms() -> float:
        bench.synchronize()
        began = perf_counter()
        operation(*buffers.values)
        bench.synchronize()
        return (perf_counter() - began) * 1e3

    def fastest_fresh_ms(limit_ms: float) -> float:
        fastest = float("inf")
        for _ in range(FRESH_CALLS):
            checking.draw_fresh(bench, case, inputs)
            if packs_weights or usual_ms < SHORT_CALL_MS:  # wake the threads that sleep between calls
                operation(*buffers.values)
                checking.draw_fresh(bench, case, first if packs_weights else inputs)
            fastest = min(fastest, call_ms())
            if fastest <= limit_ms:
                break
        return fastest

    usual_ms = float(np.median(samples_ms))
    with checking.fault_context(variant, "called on fresh inputs"):
        for again in (True, False):
            limit_ms = SLOWER_WHEN_FRESH * usual_ms + FRESH_SLACK_MS
            fresh_ms = fastest_fresh_ms(limit_ms)
            if fresh_ms <= limit_ms:
                return
            if again:
                usual_ms = max(usual_ms, float(np.median([call_ms() for _ in samples_ms])))
    raise VariantFailure(
        "refused",
        f"{variant.name} takes {fresh_ms:.4g} ms on inputs not seen before and took {usual_ms:.4g} ms when timed on "
        f"the same ones again and again; {limit_ms:.4g} ms would pass. It must not remember answers",
    )


def _over_parts(prepared: Mapping[Case, Operation], parts: Sequence[Case]) -> Operation:
    """One call for all parts of a case, the outputs of each overwritten by the next."""
    if len(parts) == 1:
        return prepared[parts[0]]
    arrays = parts[0].arrays
    batch = parts[0].problem.facts.batch

    def call(*whole: Any) -> None:
        start = 0
        for part in parts:
            n = part.extents[batch]
            taken = [
                values if array.shape[0] != batch else values[:n] if name in part.problem.outputs
                else values[start : start + n]
                for (name, array), values in zip(arrays.items(), whole, strict=True)
            ]  # fmt: skip
            prepared[part](*taken)
            start += n

    return call


def _part_buffers(buffers: Buffers, part: Case) -> Buffers:
    """The arrays of a part of a case, in buffers of all its inputs and of the part's outputs."""
    batch = part.problem.facts.batch
    inputs = {
        name: replace(one, values=one.values[: part.extents[batch]]) if part.arrays[name].shape[0] == batch else one
        for name, one in buffers.inputs.items()
    }
    return Buffers(inputs, buffers.outputs)


tamper_check.remember(sys.modules[__name__])
