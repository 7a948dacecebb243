"""Images streamed through the study's network, beyond those of the data set."""

from functools import cached_property

from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import tables
from warpbook.runs.schema import Row
from warpbook.workflow import streams


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
