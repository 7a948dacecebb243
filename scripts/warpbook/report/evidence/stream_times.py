"""Images streamed through the study's network, beyond those of the data set."""

from functools import cached_property

from warpbook.report.evidence.run_selection import Selection
from warpbook.runs import tables
from warpbook.runs.schema import Row
from warpbook.workflow import streams


class StreamTimes:
    """Streams of the runs cited, stale ones left out."""

    def __init__(self, selection: Selection):
        self._selection = selection

    @cached_property
    def rows(self) -> list[Row]:
        """Rows of STREAMS, a variant's together, fewer images and devices first."""
        shards = self._selection.rows(tables.STREAM_SHARDS)
        return sorted(
            streams.summarize_streams(shards),
            key=lambda row: (row["variant"], row["images"], row["devices"], row["shards"]),
        )
