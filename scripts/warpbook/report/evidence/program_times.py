"""Runs of the whole inference program."""

from functools import cached_property

import pandas as pd

from warpbook.kernels.variants import Variant
from warpbook.report.evidence.run_selection import Selection
from warpbook.report.evidence.scope import Scope
from warpbook.runs import tables


class ProgramTimes:
    """Whole programs, timed as GNU time does."""

    def __init__(self, scope: Scope, selection: Selection):
        self._scope, self._selection = scope, selection

    @cached_property
    def table(self) -> pd.DataFrame:
        return self._selection.at_sizes(tables.PROGRAMS)

    def runs(self, variant: str, size: int, weight_set: str | None = None) -> pd.DataFrame:
        """The sound runs of the program with one variant at one size, with the network's first weights by default."""
        frame = self.table
        weights = weight_set or next(iter(self._scope.network.weight_sets), "")
        chosen = (frame.variant == variant) & (frame["size"] == size) & (frame.weights == weights)
        return frame[chosen & (frame.status == "ok")]

    def framework(self, device: str) -> Variant | None:
        """The peer that runs whole networks on a device: milestone 1's framework."""
        peers = [variant for variant in self._scope.compared_variants(device) if variant.header.peer]
        return next((peer for peer in peers if not self.runs(peer.name, self._scope.largest).empty), None)
