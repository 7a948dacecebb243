"""Figures that the report which a study follows stated, and ours beside them."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.common.files import both_folders, find_file
from warpbook.report.evidence.scope import EvidencePart
from warpbook.report.evidence.time_series import Speedup

FOLDERS = both_folders("reports/published")
_WEIGHTS = re.compile(r"weights: (high|low)")


@dataclass(frozen=True)
class PublishedSpeedup:
    """A published time over another of the same report, and the ratio of our times; ours: None where there is none."""

    variant: str
    over: str
    quantity: str
    layer: str
    size: int
    published: float
    ours: Speedup | None


class PublishedValues(EvidencePart):
    """What was published, as data."""

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each figure; empty where no report stands behind the study."""
        path = find_file(f"{self._ev.name}.csv", FOLDERS)
        if not path.exists():
            return pd.DataFrame()
        texts = pd.read_csv(path, dtype=str, keep_default_na=False)
        return texts.assign(value=texts.value.astype(float))

    @cached_property
    def gains(self) -> list[PublishedSpeedup]:
        """What each published variant gained over the nearest that it builds on, on one machine each."""
        table = self.table
        if table.empty:
            return []
        times = table[table.quantity.isin(["op_ms", "kernel_ms"]) & table.layer.isin([*self._ev.layer_names, "both"])]
        found: dict[tuple[str, str, str, str, int], PublishedSpeedup] = {}
        for row in times[times.variant.isin(list(self._ev.plan.variants))].itertuples():
            alike = times[[self._is_same_quantity(row, other) for other in times.itertuples()]]
            for over in self._predecessors(str(row.variant)):
                bases = alike[alike.variant == over]
                if len(bases):
                    beside = bases[bases["where"] == row.where]
                    gain = self._gain(row, over, (beside if len(beside) else bases).iloc[0].value)
                    found.setdefault((gain.variant, over, gain.quantity, gain.layer, gain.size), gain)
                    break
        return list(found.values())

    def _is_same_quantity(self, row: Any, other: Any) -> bool:
        """Whether two published times are of one layer, size and set of weights."""
        weights = [_WEIGHTS.findall(one.note) for one in (row, other)]
        return (row.quantity, row.layer, row.size) == (other.quantity, other.layer, other.size) and (
            weights[0] == weights[1]
        )

    def _predecessors(self, name: str) -> list[str]:
        """The variants that a variant builds on, nearest first; the CPU's starting point comes last."""
        known, above = self._ev.plan.variants, [name]
        while (name := known[above[-1]].header.builds_on) in known and name not in above:
            above.append(name)
        return [*above[1:], *(["loop_nest"] if "loop_nest" not in above else [])]

    def _gain(self, row: Any, over: str, base: float) -> PublishedSpeedup:
        size = self._size(row)
        kind = "op" if row.quantity == "op_ms" else "gpu"
        both = row.layer not in self._ev.layer_names
        if over not in self._ev.plan.variants:
            ours = None
        elif both:
            ours = self._ev.times.total_speedup(row.variant, size, over, kind)
        else:
            ours = self._ev.times.speedup(row.variant, row.layer, size, over, kind)
        return PublishedSpeedup(row.variant, over, row.quantity, row.layer, size, base / row.value, ours)

    def _size(self, row: Any) -> int:
        """The size of ours that a published figure is held against: its own, or the largest."""
        return int(row.size) if row.size.isdigit() and int(row.size) in self._ev.sizes else self._ev.largest

    def own_value(self, row: Any) -> float | None:
        """Our own value for a published one: the same variant and layer, at its size or the largest."""
        name = row.variant
        if name in ("framework_cpu", "framework_gpu"):
            framework = self._ev.programs.framework(name.removeprefix("framework_"))
            name = framework.name if framework else ""
        if name not in self._ev.plan.variants:
            return None
        size = self._size(row)
        if row.quantity in ("op_ms", "kernel_ms"):
            return self._time_ms(name, row, size)
        low = "low" if "weights: low" in row.note and "low" in self._ev.network.weight_sets else None
        runs = self._ev.programs.runs(name, size, low)
        if runs.empty or row.quantity not in runs:
            return None
        return float(runs[row.quantity].median())

    def _time_ms(self, variant: str, row: Any, size: int) -> float | None:
        device, layers = self._ev.plan.variants[variant].device, self._ev.layer_names
        kind = "op" if row.quantity == "op_ms" or device == "cpu" else "gpu"
        if row.layer in layers:
            time = self._ev.times.op(variant, row.layer, size, kind)
        elif row.layer == "both" or len(layers) == 1:
            time = self._ev.times.total(variant, size, kind)
        else:
            return None  # one layer's, not said which
        return time.value if time else None
