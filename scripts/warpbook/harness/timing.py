"""Timing samples: a variant and its baseline interleaved, until the figures are precise enough or the time is spent.

What a sample of each kind and state brackets:

- `gpu`: two CUDA events around the call. The device is kept busy while the host queues event, call and event, so that
  no launch latency falls between them: the time of the kernels alone, and of the gaps between them where there are
  several.
- `op`: the host's clock around the call and a wait for the device.
- `layer`: the host's clock around copying inputs from page-locked memory to the device, the call, and copying outputs
  back.
- steady: calls follow each other without a pause for half a second; what each takes of it, and of the device's energy.
- cold: the L2 cache is flushed first. hot: a call on the same buffers comes before, untimed or as the sample before, and
  then new inputs; not taken where the buffers are several times what the L2 holds.

Every timed call of a variant finds inputs that it has not seen before (`timed_variant`).

On a CPU there is `op`, hot: a problem with a `batch` in chunks of at most `CPU_CHUNK`, each on inputs of its own; before the
first, unless the calls are longer than `SHORT_CALL_MS`, an untimed call on other inputs wakes the threads.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter, sleep  # by name: a launcher may replace them in their module
from typing import Any

import numpy as np

from warpbook.common import statistics
from warpbook.common.supervision import VariantFailure
from warpbook.config.settings import Measuring, SeriesPolicy
from warpbook.harness import checking, tamper_check
from warpbook.harness.bench import OTHERS_COMPUTE, Bench, Buffers, SteadyCall, Timers
from warpbook.harness.checking import NamedSubject
from warpbook.harness.timed_variant import FalseClaim, TimedVariant
from warpbook.kernels.variants import Operation
from warpbook.problems.problem import Case

RESOLUTION_DIGITS = 6
"""Decimals of a time in milliseconds: the host's clock counts nanoseconds, a CUDA event half a microsecond."""

PROTOCOL = 3
"""Raised whenever the meaning of a sample changes: figures of different protocols are not the same thing."""

OLDEST_SHOWN = 2
"""The oldest protocol whose runs a report shows: it says how their samples differ. They are compared with no others."""

LONG_ROUND_S = 0.005
"""Looking whether a series is precise takes a fraction of this: after a shorter round it waits for a few more."""

JUDGED = 3
"""A series on a GPU that verdicts rest on may last so many times `max_time_s`: fresh inputs, waking calls and messages
between two samples of a short call take longer than the call."""

REST_S = 0.2
"""A GPU rests so long after a round that a slowdown was active in: power that limits the clock is averaged over about that
time. A kernel that needs more than the limit is timed at the full clock so, as one that is called now and then has it."""

OTHERS_S = 20.0
"""So long after a case was begun it is timed again where another process computed on the GPU meanwhile."""

SLOWER_WHEN_FRESH, FRESH_SLACK_MS, FRESH_CALLS = 3, 0.2, 5
"""A call on fresh inputs may take so many times its median and so much more; the fastest of so many counts."""

Row = dict[str, Any]

NOT_TIMED: Row = {
    "state": "",
    "kind": "",
    "sample": 0,
    "time_ms": None,
    "sm_clock_mhz": None,
    "energy_j": None,
    "throttled": False,
}
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


def sample_interleaved(
    timers: dict[str, Callable[[], float]],
    series: SeriesPolicy,
    relative_noise: float,
    read_device: Callable[[], tuple[float | None, bool | None]] = lambda: (None, False),
    rest_s: float = 0.0,
) -> SeriesResult:
    """Take rounds of samples, one of each timer a round, the order reversed every other round.

    Ends when every name's median is known to `relative_noise` from its samples that were not throttled (`precise`),
    when `max_time_s` is spent (`time`), or at `max_samples` (`samples`); never before `min_samples` that were not, unless
    `min_samples_timeout_s` is spent. The first `warmup` rounds are not counted, unless they alone outlast the budget:
    then they are long enough to stand. Whether a round was throttled may be known some rounds later: until then
    `read_device` says None, and what was known last is taken to hold. After a throttled round comes a rest.
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
                # Of a claim of less than any clock shows there are still ratios; the judge's clock refuses it.
                shown_ms = max(round(time_ms, RESOLUTION_DIGITS), 10**-RESOLUTION_DIGITS)
                samples[name].append(Sample(shown_ms, clock, slowed))
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
        if slowed:
            sleep(rest_s)
        round_s, spent = take_round(kept=not full)


def unthrottled_ms(samples: list[Sample]) -> list[float]:
    """Times of the samples that nothing slowed down: no clock, and on a CPU no other program."""
    return [sample.time_ms for sample in samples if not sample.throttled]


def measure_case(
    bench: Bench,
    timed: Sequence[TimedVariant],
    case: Case,
    series: SeriesPolicy,
    measuring: Measuring,
    compared_only: bool = False,
) -> list[Row]:
    """Samples of one case at its size, for a variant and (second, where given) its baseline: the columns of SAMPLES from
    `variant` on, without `device`, and `case`, its own name. Of all kinds, or of those that verdicts rest on.

    Raises VariantFailure where one faults, a result of a timed call is wrong, it claims less time than it takes, or the
    device cannot be trusted. A claim that looks false is timed again once, and looked at in longer batches: a machine that
    became slower between the samples and the judge's look at them makes an honest one look so, and not twice. Samples that
    another process on the GPU disturbed are taken again for `OTHERS_S`.
    """
    until, doubted = perf_counter() + OTHERS_S, False
    while True:  # without what an exception holds: the arrays of an audit may be large
        try:
            return _measure_case(bench, timed, case, series, measuring, compared_only, doubted)
        except FalseClaim:
            if doubted:
                raise
            doubted = True
        except DisturbedTiming:
            if perf_counter() >= until:
                raise


def _measure_case(
    bench: Bench,
    timed: Sequence[TimedVariant],
    case: Case,
    series: SeriesPolicy,
    measuring: Measuring,
    compared_only: bool,
    doubted: bool,
) -> list[Row]:
    reject_distrusted(bench)
    timers = {}
    for one in timed:
        with checking.fault_context(one.variant, "prepared"):
            arranged = one.arrange(case)
        chosen = bench.compared if compared_only else arranged
        timers[one.variant.name] = {kind: arranged[kind] for kind in chosen}
    rows, _ = sample_rows(
        bench, [one.variant for one in timed], timers, series, measuring, longer=JUDGED if bench.on_device else 1
    )
    reject_distrusted(bench)
    state, _ = bench.compared[-1]
    mine = [row for row in rows if row["variant"] == timed[0].variant.name and row["state"] == state]
    taken = {kind: [row["time_ms"] for row in mine if row["kind"] == kind] for _, kind in bench.compared}
    medians = {kind: statistics.median(np.array(times)).value for kind, times in taken.items()}
    timed[0].verify(medians, doubted)
    for one in timed[1:]:
        one.verify({})  # the clock looks at it in its own job
    return [{"case": case.name, "size": case.size, **row} for row in rows]


def steady_rows(one: TimedVariant, case: Case, op_ms: float) -> list[Row]:
    """The sample of a row of calls, as `measure_case` gives samples; `op_ms` is what a call takes alone. Empty where the
    device does not tell its energy. Raises VariantFailure."""
    with checking.fault_context(one.variant, "prepared"):
        one.arrange(case)
    steady = one.steady_call(op_ms)
    place = {"case": case.name, "size": case.size, "variant": one.variant.name}
    return [{**place, **steady_columns(steady)}] if steady else []


class DisturbedTiming(VariantFailure):
    """Another process computed on the GPU: the machine's fault, not the variant's."""


def steady_columns(call: SteadyCall) -> Row:
    """The columns of SAMPLES from `state` on, of a call in a row of calls."""
    return {
        "state": "steady",
        "kind": "op",
        "sample": 0,
        "time_ms": call.time_ms,
        "sm_clock_mhz": call.sm_clock_mhz,
        "throttled": False,  # a steady state has what clock it has
        "energy_j": call.energy_j,
        "stop_reason": "time",
        "status": "ok",
        "reason": "",
    }


def sample_rows(
    bench: Bench,
    named: Sequence[NamedSubject],
    timers: dict[str, Timers],
    series: SeriesPolicy,
    measuring: Measuring,
    longer: int = 1,
) -> tuple[list[Row], dict[str, list[float]]]:
    """The samples of each state and kind, a row each: columns of SAMPLES from `state` on, and `variant`;
    and the times of the kind that others are compared in, by name.

    The first of `named` has every kind; a baseline behind it those that are compared, interleaved with it. These may
    last `longer` times the policy's time.
    """
    rows: list[Row] = []
    told_ms: dict[str, list[float]] = {}
    for state, kind in timers[named[0].name]:
        # Claims rest on what the figures are quoted in; the rest is the variant's own, beside it.
        compared = (state, kind) in bench.compared
        chosen = {name: timers[name][state, kind] for name in (timers if compared else [named[0].name])}
        longest_s = series.max_time_s * (longer if compared else 1)
        with checking.fault_context(named[0], "timed"):
            result = sample_interleaved(
                chosen,
                series.model_copy(update={"max_time_s": longest_s}),
                measuring.target_rel_ci,
                bench.read_clock,
                REST_S if bench.on_device else 0.0,
            )
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
                        "energy_j": None,
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
        raise (DisturbedTiming if OTHERS_COMPUTE in reason else VariantFailure)("refused", reason)


def reject_memoized(
    bench: Bench,
    variant: NamedSubject,
    operation: Operation,
    samples_ms: list[float],
    buffers: Buffers,
) -> None:
    """Raises VariantFailure where every call on inputs not seen before takes much longer than its samples did.

    All samples read the same inputs: an operation that remembers its answers by their values is fast there alone.
    The machine may have become slower meanwhile: before a refusal, as many calls on the same inputs are taken again.
    """
    inputs = buffers.input_values

    def call_ms() -> float:
        bench.synchronize()
        began = perf_counter()
        operation(*buffers.values)
        bench.synchronize()
        return (perf_counter() - began) * 1e3

    def fastest_fresh_ms(limit_ms: float) -> float:
        fastest = float("inf")
        for _ in range(FRESH_CALLS):
            checking.draw_fresh(bench, None, inputs)
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


tamper_check.remember(sys.modules[__name__])
