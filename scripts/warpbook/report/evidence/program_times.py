"""Runs of the whole inference program, and streams of more images than the data set has."""

from functools import cached_property

import pandas as pd

from warpbook.kernels.variants import Variant
from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import tables
from warpbook.runs.schema import Row
from warpbook.workflow import streams


class ProgramTimes(EvidencePart):
    """Whole programs, timed as GNU time does."""

    @cached_property
    def table(self) -> pd.DataFrame:
        return self._ev.selection.at_sizes(tables.PROGRAMS)

    def runs(self, variant: str, size: int, weight_set: str | None = None) -> pd.DataFrame:
        """The sound runs of the program with one variant at one size, with the network's first weights by default."""
        frame = self.table
        weights = weight_set or next(iter(self._ev.network.weight_sets), "")
        chosen = (frame.variant == variant) & (frame["size"] == size) & (frame.weights == weights)
        return frame[chosen & (frame.status == "ok")]

    def framework(self, device: str) -> Variant | None:
        """The peer that runs whole networks on a device: milestone 1's framework."""
        peers = [variant for variant in self._ev.compared_variants(device) if variant.header.peer]
        return next((peer for peer in peers if not self.runs(peer.name, self._ev.largest).empty), None)


class StreamTimes(EvidencePart):
    """Streams of the runs cited, stale ones left out."""

    @cached_property
    def rows(self) -> list[Row]:
        """Rows of STREAMS, a variant's together, fewer images and devices first."""
        shards = self._ev.selection.rows(tables.STREAM_SHARDS)
        return sorted(
            streams.summarize_streams(shards),
            key=lambda row: (row["variant"], row["images"], row["devices"], row["shards"]),
        )
