"""The report's end: how times were taken, and what is not in the figures."""

from dataclasses import dataclass

from warpbook.harness import bench
from warpbook.report.evidence import Evidence
from warpbook.report.views.parts import Table, words


@dataclass(frozen=True)
class Ending:
    """aside: what has no figure, None where nothing was left out; refused: archived runs that were passed over;
    hot_within: how many times what the L2 cache holds a layer's data may be for a hot sample; archive: the GPU's run,
    empty where it is this machine's."""

    aside: Table | None
    refused: tuple[str, ...]
    hot_within: str
    archive: str


def view(ev: Evidence) -> Ending:
    """Of any study."""
    archived = ev.gpu_run is not None and ev.gpu_run is not ev.local
    return Ending(
        aside=None if ev.problems.table.empty else _aside(ev),
        refused=tuple(ev.source.refused),
        hot_within=str(bench.HOT_WITHIN),
        archive=f"reports/runs/{ev.gpu_run.run_id}.zip" if ev.gpu_run and archived else "",
    )


def _aside(ev: Evidence) -> Table:
    return Table(
        "a-aside",
        "Variants, or layers of them, without a figure, and why.",
        words("Variant", "Device", "Layer", "Status", "Reason"),
        tuple(
            (row["variant"], row["device"], row["layer"] or "all", row["status"].replace("_", " "), row["reason"])
            for row in ev.problems.table.to_dict("records")
        ),
    )
