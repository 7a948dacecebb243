"""Times of whole networks on a GPU, from images on the device to scores and labels there."""

from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.common import statistics
from warpbook.common.statistics import Estimate
from warpbook.kernels.whole_networks import Implementation
from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall
from warpbook.report.evidence.run_selection import whole_network_rows
from warpbook.report.evidence.scope import EvidencePart, cached_method
from warpbook.runs import summaries, tables
from warpbook.runs.schema import Table

_OUTCOME = ["state", "kind", "status", "reason"]


class NetworkTimes(EvidencePart):
    """Times and checks of the study's network at its sizes, those of sources that changed since left out."""

    @cached_property
    def _checks(self) -> pd.DataFrame:
        frame = self._rows(tables.CORRECTNESS)
        return frame[frame["size"].isin(self._ev.sizes)]

    @cached_property
    def _network_samples(self) -> pd.DataFrame:
        return self._rows(tables.SAMPLES)

    def _rows(self, table: Table) -> pd.DataFrame:
        """The rows of the study's network as a whole, in the run that GPU figures come from."""
        frame = whole_network_rows(self._ev.selection.run_rows(table))
        return frame[frame.network == self._ev.network.name]

    @cached_property
    def _samples(self) -> pd.DataFrame:
        frame = self._network_samples
        return frame[(frame.status == "ok") & ~frame.throttled & (frame.state == "cold")]

    @cached_property
    def recorded_implementations(self) -> list[Implementation]:
        """Implementations that the run holds and whose figures are not stale."""
        return self._ev.selection.implementations(self._ev.gpu_run) if self._ev.gpu_run else []

    def stale_reason(self, one: Implementation) -> str:
        """Why the recorded figures of an implementation are no longer about what stands here; empty when they are."""
        return self._ev.selection.stale_network_reason(one, self._ev.gpu_run) if self._ev.gpu_run else ""

    @cached_property
    def omission_reasons(self) -> dict[str, str]:
        """Why no figure of an implementation that stands here is shown, by name."""
        run, held = self._ev.gpu_run, set(self._checks.variant)
        if run is None or not held:
            return {}
        shown = {one.name for one in self.recorded_implementations}
        return {
            one.name: f"recorded in {run.run_id}, but {self.stale_reason(one)}"
            if one.name in held
            else f"the run {run.run_id} has no time of it"
            for one in self._ev.selection.whole_networks
            if one.name not in shown
        }

    def check(self, name: str, size: int) -> "pd.Series[str] | None":
        """The test of one size, a row of CORRECTNESS; None where there is none."""
        rows = self._checks[(self._checks.variant == name) & (self._checks["size"] == size)]
        return None if rows.empty else rows.iloc[0]

    def outcomes(self, name: str, size: int) -> pd.DataFrame:
        """What came of an implementation at a size: state, kind, status and reason of each series of its own job, or
        of its test where that failed; empty where the run holds neither."""
        check = self.check(name, size)
        if check is None or check.status != "ok":
            rows = [] if check is None else [("", "", check.status, check.reason)]
            return pd.DataFrame(rows, columns=_OUTCOME)
        frame = self._network_samples
        own = frame[(frame.job == name) & (frame.variant == name) & (frame["size"] == size)]
        slowed = own.throttled & (own.status == "ok")
        own = own.assign(
            status=own.status.astype(str).mask(slowed, "refused"),
            reason=own.reason.mask(slowed, "a slowdown was active in every sample"),
        )
        # A series has a figure where any sample is sound.
        own = own.sort_values("status", key=lambda status: status != "ok", kind="stable")
        return own.drop_duplicates(["state", "kind"])[_OUTCOME]

    @cached_method
    def time(self, name: str, size: int, kind: str = "gpu") -> Estimate | None:
        """Median in ms with its interval, the L2 cache flushed before; None where there is no sound figure."""
        return summaries.series_median(self._series(name, name, size, kind).to_numpy())

    def baseline(self, one: Implementation, size: int) -> str:
        """The baseline whose samples were interleaved with its own; empty where there were none."""
        held = (below.name for below in one.baselines)
        return next((name for name in held if len(self._series(one.name, name, size, "gpu"))), "")

    def gain(self, one: Implementation, size: int) -> Estimate | None:
        """Times of its baseline over its own, interleaved in one process; None where they were not."""
        mine, base = (self._series(one.name, name, size, "gpu") for name in (one.name, self.baseline(one, size)))
        both = mine.index.intersection(base.index)
        return statistics.paired_ratio(base[both].to_numpy(), mine[both].to_numpy()) if len(both) else None

    def separate_ratio(self, one: Implementation, size: int) -> Estimate | None:
        """The same gain by each one's own job, where that differs from the interleaved one; else None."""
        gain, ratio = self.gain(one, size), self.ratio(one.name, self.baseline(one, size), size)
        return ratio if gain and ratio and not statistics.agree(gain, ratio) else None

    @cached_method
    def ratio(self, name: str, over: str, size: int) -> Estimate | None:
        """Times of `over` over those of `name`, from two jobs, widened by the drift between such; None without both."""
        mine, others = (self._series(each, each, size, "gpu").to_numpy() for each in (name, over))
        if not len(mine) or not len(others):
            return None
        return statistics.unpaired_ratio(others, mine).widen(self._drift(size, name, over))

    def _drift(self, size: int, *names: str) -> float:
        """How far times of two jobs may differ: the most seen between its own job and one of what builds on it."""
        frame = self._samples[(self._samples["size"] == size) & (self._samples.kind == "gpu")]
        medians: dict[Any, float] = frame.groupby(["job", "variant"]).time_ms.median().to_dict()
        of = {one.name for one in self.recorded_implementations if not one.header.peer} | set(names)
        changes = [
            abs(ms / medians[variant, variant] - 1)
            for (job, variant), ms in medians.items()
            if job != variant and variant in of and (variant, variant) in medians
        ]
        return float(max(changes, default=0.0))

    @cached_property
    def _counters(self) -> pd.DataFrame:
        run, frame = self._ev.selection.run_with(tables.COUNTERS), self._rows(tables.COUNTERS)
        shown = [one.name for one in self._ev.selection.implementations(run)] if run else []
        return frame[frame.variant.isin(shown)]

    @cached_property
    def calls(self) -> dict[str, CountedCall]:
        """Calls whose hardware counters were read, by implementation."""
        return {name: call for (name, _), call in counters.counted_calls(self._counters).items()}

    @cached_property
    def counter_failures(self) -> dict[str, str]:
        """Why there are no hardware counters of an implementation, where it was tried."""
        failed = self._counters[self._counters.status != "ok"]
        return dict(zip(failed.variant, failed.reason, strict=True))

    def fastest(self, size: int, peers: bool, precision: str = "") -> Implementation | None:
        """The fastest of ours, or of the libraries', of one precision where it is named; None where there is none."""
        timed = [(time.value, one) for one in self.recorded_implementations if (time := self.time(one.name, size))]
        alike = [(value, one) for value, one in timed if one.header.peer == peers]
        chosen = [(value, one) for value, one in alike if precision in ("", one.header.precision)]
        return min(chosen, key=lambda each: each[0])[1] if chosen else None

    def _series(self, job: str, name: str, size: int, kind: str) -> "pd.Series[float]":
        """Times of one series by round."""
        frame = self._samples
        chosen = (frame.job == job) & (frame.variant == name) & (frame["size"] == size) & (frame.kind == kind)
        return frame[chosen].set_index("sample").time_ms.astype(float)
