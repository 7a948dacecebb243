"""From samples to estimates: which samples are sound, and each series' median beside the hardware's bounds; and from
jobs to what each GPU was busy with."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from warpbook.common import statistics
from warpbook.common.files import COMMAND
from warpbook.common.intervals import covered_length
from warpbook.common.statistics import Estimate
from warpbook.kernels import lower_bounds, variants
from warpbook.problems import case_sets
from warpbook.runs import tables

CALL = ["job", "variant", "problem", "case", "device", "size", "state"]
"""What samples of one call have in common: of its kernels alone, of the call, and with copies."""
SERIES = [*CALL, "kind"]


def sound_ms(samples: pd.DataFrame) -> pd.Series:
    """The time of each of SAMPLES; NaN where the sample failed, was throttled, or is a kernel time of more than twice
    its call's, which measured something else."""
    times = samples.time_ms.where((samples.status == "ok") & ~samples.throttled)
    call_ms = times.where(samples.kind == "op").groupby([samples[name] for name in CALL]).transform("median")
    return times.mask((samples.kind == "gpu") & (times > 2 * call_ms))


def refused_count(samples: pd.DataFrame) -> int:
    """How many otherwise sound SAMPLES are refused for being longer than twice their call."""
    measured = samples.time_ms.notna() & (samples.status == "ok") & ~samples.throttled
    return int(measured.sum()) - int(sound_ms(samples).notna().sum())


NONE_SOUND = "none of"
"""How the reason begins where a series has samples and none of them is a figure: the machine's doing, no variant's."""


def group_by_series(samples: pd.DataFrame, keys: list[str]) -> dict[tuple[Any, ...], np.ndarray]:
    """The sound times of each series of SAMPLES that has some, by key; NaN for the others: pairs stay in step."""
    times = sound_ms(samples)
    series = {key: group.to_numpy() for key, group in times.groupby([samples[name] for name in keys], sort=False)}
    return {key: times for key, times in series.items() if not np.isnan(times).all()}


def drop_nan(times_ms: np.ndarray) -> np.ndarray:
    """A series' sound times, those that are NaN left out."""
    sound: np.ndarray = times_ms[~np.isnan(times_ms)]
    return sound


def series_median(times_ms: np.ndarray) -> Estimate | None:
    """The median of a series' sound times, if any, with its interval: runs and reports hold this one."""
    sound = drop_nan(times_ms)
    return statistics.median(sound) if len(sound) else None


def summarize_series(samples: pd.DataFrame, machine: dict[str, Any]) -> pd.DataFrame:
    """OP_TIMES from SAMPLES: one row for each series that a variant's own job took, the samples left out counted."""
    samples = samples[samples.job == samples.variant]
    samples = samples.assign(sound_ms=sound_ms(samples))
    headers = {name: variant.header for name, variant in variants.discover().items()}
    rows = []
    for key, series in samples.groupby(SERIES, sort=False):
        place: dict[str, Any] = dict(zip(SERIES, key, strict=True))
        first = series.iloc[0]
        estimate = series_median(series.sound_ms.to_numpy()) or Estimate(math.nan, math.nan, math.nan, 0)
        throttled = int(series.throttled.sum())
        status, reason = first.status, first.reason
        refused = len(series) - throttled - estimate.n if status == "ok" else 0
        if status == "ok" and estimate.n == 0:
            status = "refused"
            cause = f"{throttled} were taken while a slowdown was active, {refused} are longer than twice their call"
            if place["device"] == "cpu":
                cause = (
                    "other programs kept the CPU busy (tolerated_load in config.yaml); close them and measure again: "
                    f"{COMMAND} report --forcerun measure_variant"
                )
            reason = f"{NONE_SOUND} {len(series)} samples is a figure: {cause}"
        bound: dict[str, float | None] = {"method_bound_ms": None, "fp32_bound_ms": None}
        # Of a whole network, and of what a file's own host code does, no bound is known.
        if place["device"] == "gpu" and status == "ok" and place["state"] and first.layer:
            found = next(case for case in case_sets.find(first.network).cases if case.name == first.layer)
            case = found.at(place["size"])
            header, gpu = headers[place["variant"]], machine["gpu"]
            bound = {
                "method_bound_ms": lower_bounds.method_bound_ms(case, header, gpu),
                "fp32_bound_ms": lower_bounds.fp32_bound_ms(case, gpu),
            }
        rows.append(
            {
                **{name: place[name] for name in tables.OP_TIMES.key},
                "n": estimate.n,
                "median_ms": estimate.value,
                "ci_low_ms": estimate.low,
                "ci_high_ms": estimate.high,
                "energy_j": series.energy_j.median(),
                "throttled_count": throttled,
                "refused_count": refused,
                **bound,
                "stop_reason": first.stop_reason,
                "status": status,
                "reason": reason,
            }
        )
    return pd.DataFrame(rows, columns=list(tables.OP_TIMES.columns))


_ESTIMATED = (
    ("median_ms", "median", "value"), ("ci_low_ms", "interval's low end", "low"),
    ("ci_high_ms", "interval's high end", "high"),
)  # fmt: skip
"""Columns of OP_TIMES that hold an estimate, in words, and which end of it each holds."""


def disagreement(samples: pd.DataFrame, op_times: pd.DataFrame) -> tuple[int, str, str] | None:
    """(row from 0, column, how it differs) of the first of OP_TIMES that is not what SAMPLES give; None where all are."""
    keys = list(tables.OP_TIMES.key)
    series = group_by_series(samples[samples.job == samples.variant], keys)
    for row, recorded in enumerate(op_times.to_dict("records")):
        estimate = series_median(series.get(tuple(recorded[name] for name in keys), np.empty(0)))
        n = estimate.n if estimate else 0
        if recorded["n"] != n:
            return row, "n", f"{recorded['n']}, but {tables.SAMPLES.name} has {n} sound samples of the series"
        for column, what, end in _ESTIMATED if estimate else ():
            told, due = recorded[column], getattr(estimate, end)
            if not (math.isclose(told, due, rel_tol=1e-9) or (math.isnan(told) and math.isnan(due))):
                return row, column, f"{told}, but the {what} of its samples is {due}"
    return None


def contradiction(correctness: pd.DataFrame) -> tuple[int, str, str] | None:
    """(row from 0, column, why) of the first of CORRECTNESS that passed by one column and failed by another."""
    passed = correctness.status == "ok"
    for column, wrong, why in (
        ("ok", correctness.ok != passed, "it contradicts the status"),
        ("worst_ratio", passed & (correctness.worst_ratio > 1), "more than 1, and the test passed"),
    ):
        if wrong.any():
            return int(wrong.to_numpy().argmax()), column, why
    return None


def gpu_shares(jobs: pd.DataFrame) -> pd.DataFrame:
    """Of JOBS, a row for each GPU: measured_on, cores, jobs, busy_s (by any job), idle_s, wall_s (the run's)."""
    measuring = jobs[jobs.alone] if jobs.alone.any() else jobs
    begin, end = measuring.began_s.min(), measuring.ended_s.max()
    rows = []
    for measured_on, held in jobs.groupby("measured_on"):
        busy_s = covered_length([(begin, end)], zip(held.began_s, held.ended_s, strict=True))
        cores = " or ".join(sorted(held.cores.unique()))
        rows.append([measured_on, cores, len(held), busy_s, end - begin - busy_s, end - begin])
    return pd.DataFrame(rows, columns=["measured_on", "cores", "jobs", "busy_s", "idle_s", "wall_s"])


@dataclass(frozen=True)
class PairVerdicts:
    """Verdicts on kernels whose difference is known: how many of each, and which are false and which find it."""

    what: str
    called: dict[str, int]
    slower_percent: float

    @property
    def n(self) -> int:
        return sum(self.called.values())

    def false_share(self, margin: float) -> Estimate:
        """The share of verdicts that are not true; within the margin of 1, `same` is true."""
        wrong = {"faster", "slower"} if not self.slower_percent else {"faster"}
        if self.slower_percent / 100 > margin:
            wrong.add("same")
        return statistics.share(sum(self.called[verdict] for verdict in wrong), self.n)

    @property
    def found_share(self) -> Estimate | None:
        """The share of verdicts that find the difference; None where there is none."""
        return statistics.share(self.called["slower"], self.n) if self.slower_percent else None


def _compared(row: Any) -> tuple[Any, ...]:
    """What tells one comparison of PAIRS from the others."""
    return tuple(getattr(row, column) for column in tables.PAIRS.key if column != "kind")


def _slowed(row: Any, factor: float) -> Estimate:
    return Estimate(row.speedup / factor, row.ci_low / factor, row.ci_high / factor, row.n)


def judge_pairs(pairs: pd.DataFrame, margin: float) -> list[PairVerdicts]:
    """PAIRS of one device by what they are, judged as a report judges: by the time of the call, and on a GPU by that of its
    kernels too. Pairs of copies are judged a second time as if one were slower: its times are multiplied."""
    pairs = pairs[(pairs.status == "ok") & pairs.ci_low.notna()]
    by_device = {_compared(row): row for row in pairs[pairs.kind == "gpu"].itertuples()}
    pairs = pairs[pairs.kind == "op"]
    known = sorted(pairs.slower_percent.unique())
    groups = [(percent, pairs[pairs.slower_percent == percent], 1.0) for percent in known]
    groups += [(percent, pairs[pairs.slower_percent == 0], 1 + percent / 100) for percent in known if percent]
    judged = []
    for percent, rows, factor in groups:
        verdicts = dict.fromkeys(("same", "faster", "slower", "ambiguous"), 0)
        for row in rows.itertuples():
            second = by_device.get(_compared(row))
            host, device = _slowed(row, factor), _slowed(second, factor) if second else None
            verdicts[statistics.agreed_verdict(host, device, margin)] += 1
        kernels = f"{rows.variant.nunique()} kernels against their copies"
        what = kernels if not percent else f"{percent} % more instructions"
        if factor > 1:
            what = f"{kernels}, times taken {factor:g} times"
        if sum(verdicts.values()):
            judged.append(PairVerdicts(what, verdicts, percent))
    return judged
