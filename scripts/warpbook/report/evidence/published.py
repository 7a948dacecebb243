"""Figures that the report which a study follows stated, and ours beside them."""

from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.files import PROJECT
from warpbook.report.evidence.programs import Programs
from warpbook.report.evidence.scope import Scope
from warpbook.report.evidence.times import Times

FOLDER = PROJECT / "reports" / "published"


class Published:
    """What was published, as data."""

    def __init__(self, scope: Scope, times: Times, programs: Programs):
        self._scope, self._times, self._programs = scope, times, programs

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each figure; empty where no report stands behind the study."""
        path = FOLDER / f"{self._scope.name}.csv"
        if not path.exists():
            return pd.DataFrame()
        texts = pd.read_csv(path, dtype=str, keep_default_na=False)
        return texts.assign(value=texts.value.astype(float))

    def beside(self, row: Any) -> float | None:
        """Our figure for a published one: the same variant and layer, at its size or the largest."""
        name = row.variant
        if name in ("framework_cpu", "framework_gpu"):
            framework = self._programs.framework(name.removeprefix("framework_"))
            name = framework.name if framework else ""
        if name not in self._scope.plan.variants:
            return None
        sizes = self._scope.sizes
        size = int(row.size) if row.size.isdigit() and int(row.size) in sizes else self._scope.largest
        if row.quantity in ("op_ms", "kernel_ms"):
            return self._time_ms(name, row, size)
        low = "low" if "weights: low" in row.note and "low" in self._scope.network.weight_sets else None
        runs = self._programs.runs(name, size, low)
        if runs.empty or row.quantity not in runs:
            return None
        return float(runs[row.quantity].median())

    def _time_ms(self, variant: str, row: Any, size: int) -> float | None:
        device, layers = self._scope.plan.variants[variant].device, self._scope.layer_names
        kind = "op" if row.quantity == "op_ms" or device == "cpu" else "gpu"
        if row.layer in layers:
            time = self._times.op(variant, row.layer, size, kind)
        elif row.layer == "both" or len(layers) == 1:
            time = self._times.total(variant, size, kind)
        else:
            return None  # one layer's, not said which
        return time.value if time else None
