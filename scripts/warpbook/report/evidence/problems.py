"""What keeps variants, or layers of them, out of the figures."""

from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.report.evidence.builds import Builds
from warpbook.report.evidence.checks import Checks
from warpbook.report.evidence.scope import Scope
from warpbook.report.evidence.selection import Selection
from warpbook.variants import Variant


class Problems:
    """Variants without a figure, or with layers without one, and why."""

    def __init__(self, scope: Scope, selection: Selection, builds: Builds, checks: Checks):
        self._scope, self._selection, self._builds, self._checks = scope, selection, builds, checks

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each problem: variant, device, layer (empty for all), size, status, reason."""
        rows = [
            {"variant": variant.name, "device": device, **problem}
            for device in ("gpu", "cpu")
            for variant in self._scope.wanted(device)
            for problem in self._problems(variant)
        ]
        return pd.DataFrame(rows, columns=["variant", "device", "layer", "size", "status", "reason"])

    def of(self, variant: str) -> pd.DataFrame:
        """A variant's rows."""
        return self.table[self.table.variant == variant]

    def _problems(self, variant: Variant) -> list[dict[str, Any]]:
        problem = self._of_the_whole(variant)
        if problem:
            status, reason = problem
            return [{"layer": "", "size": None, "status": status, "reason": reason}]
        series = self._selection.summaries
        failed = series[(series.variant == variant.name) & (series.status != "ok")].drop_duplicates("reason")
        rows: Any = failed[["layer", "size", "status", "reason"]].to_dict("records")
        return list(rows)

    def _of_the_whole(self, variant: Variant) -> tuple[str, str] | None:
        """(status, reason) where nothing of a variant can be shown."""
        if variant.problem:
            return "compile_failed", variant.problem
        failed = self._builds.failed
        failed = failed[failed.variant == variant.name]
        if len(failed):
            words = failed.log.iloc[0].splitlines() or ["the compiler said nothing"]
            return "compile_failed", f"for {', '.join(failed.arch)}: {words[0]}"
        emulated = self._checks.emulated(variant.name)
        if emulated and emulated.failure:
            return emulated.failure["status"], f"on the CPU emulator: {emulated.failure['reason']}"
        run = self._scope.run_of(variant.device)
        if run is None:
            return "not_measured", self._scope.source.why
        if reason := self._selection.stale(variant):
            return "stale", f"recorded in {run.run_id}, but {reason}"
        if variant.name not in set(self._selection.summaries.variant):
            return "not_measured", f"the run {run.run_id} holds no figure of it"
        return None
