"""Hardware counters of the GPU's run."""

from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall, CountedLaunch
from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import tables


class CounterValues(EvidencePart):
    """Calls whose hardware counters were read, and what kept others from it."""

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each reading, and for each layer that could not be counted."""
        return self._ev.selection.rows(tables.COUNTERS)

    @property
    def gpu(self) -> dict[str, Any]:
        """The GPU that they were read on, as its run describes it."""
        run = self._ev.selection.run_with(tables.COUNTERS)
        assert run is not None and run.gpu is not None  # which the counters are of
        return run.gpu

    @cached_property
    def calls(self) -> dict[tuple[str, str], CountedCall]:
        """Calls whose counters were read, by (variant, layer)."""
        return counters.counted_calls(self.table)

    @cached_property
    def kernels_launched(self) -> dict[str, set[str]]:
        """By variant the kernels that it launched on the layers on which it was counted."""
        return {name: {launch.kernel for launch in self.launches(name)} for name in {name for name, _ in self.calls}}

    @cached_property
    def counted(self) -> list[tuple[Variant, Case, CountedCall]]:
        """The counted calls of variants with sound figures, variant by variant."""
        return [
            (variant, layer, self.calls[variant.name, layer.name])
            for variant in self._ev.ranking.measured_variants("gpu")
            for layer in self._ev.layers
            if (variant.name, layer.name) in self.calls
        ]

    def launches(self, variant: str) -> list[CountedLaunch]:
        """The counted launches of a variant on every layer."""
        calls = (self.calls.get((variant, layer)) for layer in self._ev.layer_names)
        return [launch for call in calls if call for launch in call.launches]

    @property
    def size(self) -> int:
        """The size that they were read at, of calls that were counted: the run's largest, which may not be the study's."""
        return self.counted[0][2].images

    @cached_property
    def numbers(self) -> dict[str, int]:
        """By variant its number in the roofline, from 1 on in the order of `counted`."""
        return {name: number for number, name in enumerate(dict.fromkeys(one.name for one, *_ in self.counted), 1)}

    def failed_rows(self, variants: tuple[str, ...] | None = None) -> pd.DataFrame:
        """Rows of counters that could not be read, of all variants or of those named."""
        frame = self.table[self.table.status != "ok"]
        return frame if variants is None else frame[frame.variant.isin(variants)]

    def stale(self, variant: str) -> str:
        """Why an older run's counters of a variant are not shown; empty where that is another run's matter."""
        older = self._ev.selection.from_other_run.get(tables.COUNTERS)
        known = self._ev.plan.variants.get(variant)
        reason = self._ev.selection.stale(known, older) if older and known else ""
        return f"counters are of the older run {older.run_id}, but {reason}" if older and reason else ""

    @property
    def uncounted(self) -> dict[str, list[str]]:
        """What kept counters from being read: {reason: the calls that it kept from it}."""
        places: dict[str, set[str]] = {}
        for variant, layer, reason in self.failed_rows()[["variant", "layer", "reason"]].itertuples(index=False):
            # Of a reason that begins with the variant's name, which stands before it.
            places.setdefault(str(reason).removeprefix(f"{variant}: "), set()).add(f"{variant} on {layer}")
        return {reason: sorted(places[reason]) for reason in sorted(places)}

    @property
    def unread(self) -> list[str]:
        """Counters that were asked for, and of which the profiler gave no reading at all."""
        asked = self.table[self.table.status == "ok"]
        return sorted(str(metric) for metric, values in asked.groupby("metric").value if values.isna().all())
