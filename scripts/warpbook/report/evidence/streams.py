"""Images streamed through the study's network, beyond those of the data set."""

from functools import cached_property

from warpbook import stream_tables, streams
from warpbook.report.evidence.selection import Selection
from warpbook.table import Row


class Streams:
    """Streams of the runs cited, stale ones left out."""

    def __init__(self, selection: Selection):
        self._selection = selection

    @cached_property
    def rows(self) -> list[Row]:
        """Rows of STREAMS, a variant's together, fewer images and devices first."""
        shards = self._selection.rows(stream_tables.STREAM_SHARDS)
        return sorted(
            streams.summarised(shards), key=lambda row: (row["variant"], row["images"], row["devices"], row["shards"])
        )
