"""Which recorded figures may be shown: those that are still about the sources, options, shapes and policy of today."""

from functools import cached_property

import pandas as pd

from warpbook import tables
from warpbook.harness import building, timing
from warpbook.report.evidence.scope import Scope
from warpbook.runs import Run
from warpbook.table import Table
from warpbook.variants import Variant


class Selection:
    """Rows of the runs cited that a report may draw on."""

    def __init__(self, scope: Scope):
        self._scope = scope

    def stale(self, variant: Variant) -> str:
        """Why a variant's recorded figures are no longer about what stands here; empty when they are, or there are
        none."""
        run, network = self._scope.run_of(variant.device), self._scope.network
        if run is None or variant.name not in run.record["variants"] or network.name not in run.record["networks"]:
            return ""
        recorded = run.record["variants"][variant.name]["source_sha256"]
        if reason := self.outdated(run, variant.device, recorded, variant.source_sha256):
            return reason
        builds = run.table(tables.BUILDS)
        for name, arch, options in zip(builds.variant, builds.arch, builds.options, strict=True):
            if name == variant.name and options != building.options_of(variant, arch):
                return f"the compile options differ: it was built with `{options}`"
        return ""

    def outdated(self, run: Run, device: str, recorded_sha256: str, source_sha256: str) -> str:
        """Why what a run recorded of a source is not what would be measured here; empty when it is."""
        record, policy, network = run.record, run.record["measuring"], self._scope.network
        if recorded_sha256 != source_sha256:
            return "its sources changed after it was measured"
        if record["networks"][network.name]["shapes_sha256"] != network.shapes_sha256:
            return "the network's shapes changed after it was measured"
        now = self._scope.config.measuring.model_dump(mode="json")
        for key in ("relative_noise", device):
            if policy[key] != now[key]:
                return f"the measuring policy differs: `{key}` was {policy[key]}, is {now[key]}"
        if record["protocol"] != timing.PROTOCOL:
            return f"it was measured under timing protocol {record['protocol']}, this is {timing.PROTOCOL}"
        return ""

    def usable(self, device: str) -> list[str]:
        """Names of the variants that the study compares on a device and whose figures are not stale."""
        return [variant.name for variant in self._scope.wanted(device) if not self.stale(variant)]

    def rows(self, table: Table) -> pd.DataFrame:
        """Rows of the study's network and variants, each from its device's run, stale ones left out."""
        frames = []
        for device in ("cpu", "gpu"):
            run = self._scope.run_of(device)
            if run is None:
                continue
            frame = run.table(table)
            frame = frame[frame.network == self._scope.network.name]
            if "device" in frame:
                frame = frame[frame.device == device]
            elif device == "cpu":
                continue  # only GPU programs are profiled
            frames.append(frame[frame.variant.isin(self.usable(device))].assign(run_id=run.run_id))
        return pd.concat(frames, ignore_index=True) if frames else table.empty().assign(run_id="")

    def at_sizes(self, table: Table) -> pd.DataFrame:
        """The same at the study's sizes."""
        frame = self.rows(table)
        return frame[frame["size"].isin(self._scope.sizes)]

    def optional(self, table: Table) -> pd.DataFrame:
        """A table that the GPU's run holds only where it was asked for, over all its networks, stale rows left out."""
        frame = self._scope.gpu_run.table(table) if self._scope.gpu_run else table.empty()
        return frame[frame.variant.isin(self.usable("gpu"))] if "variant" in frame else frame

    @cached_property
    def summaries(self) -> pd.DataFrame:
        """A row for each series of samples, those that failed too."""
        return self.at_sizes(tables.OP_TIMES)
