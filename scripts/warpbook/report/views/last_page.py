"""The report's end: how times were taken, and what is not in the figures."""

from statistics import median
from typing import Any

from warpbook.common import units
from warpbook.harness import bench, timing
from warpbook.report.evidence import Evidence
from warpbook.report.views.components import HtmlTable, View, words
from warpbook.runs.run_parts import WHOLE

ALL = "all"

COLD = {
    2: "twice the L2 cache's size is overwritten before the sample",
    3: "before the sample, the L2 cache is filled with other data; as much of it is dirty (not yet written back) as the call writes",
}
"""What comes before a cold sample, by the timing protocol of a run."""


def last_page_view(ev: Evidence) -> View:
    """Of any study."""
    protocol = ev.gpu_run.record["protocol"] if ev.gpu_run else timing.PROTOCOL
    archived = ev.gpu_run is not None and ev.gpu_run is not ev.local
    missing = None if ev.problems.table.empty else _missing_table(ev)
    return View(
        missing_table=missing,
        missing_sentence=missing_sentence(missing) if missing else "",
        unwanted=ev.missing_reason("cpu"),
        hot_within=bench.HOT_WITHIN,
        cold=COLD.get(protocol, COLD[timing.PROTOCOL]),
        has_energy=bool(ev.times.samples.energy_j.notna().any()),
        names_judge="the judge" in " ".join(ev.problems.table.reason),
        drift=_drift(ev),
        archive=f"reports/runs/{ev.gpu_run.run_id}.zip" if ev.gpu_run and archived else "",
    )


def _drift(ev: Evidence) -> str:
    """How far the study's baselines differed between jobs, as sentences; empty where none was timed in two."""
    told = list[str]()
    for device, name in (("gpu", "GPU"), ("cpu", "CPU")):
        if changes := ev.times.drift.between_jobs(device):
            by_size = {size: ev.times.drift.between_jobs(device, size) for size in ev.sizes}
            at_sizes = ", ".join(
                f"{units.percent(max(found), 1)} at {units.count(size)}" for size, found in by_size.items() if found
            )
            told.append(
                f"On the {name} the op time of a baseline of this study differs between jobs by "
                f"{units.percent(median(changes), 1)} (median of {len(changes)} comparisons), and at most by {at_sizes}"
                f"{' images' * ev.is_network}."
            )
    return " ".join([*told, "Libraries are left out: they choose an algorithm in each process." * bool(told)])


def _missing_table(ev: Evidence) -> HtmlTable:
    """A row for all that lack the same for the same reason; what all of them lack wholly has no column."""
    same = ["device", "layers", "sizes", "kinds", "status", "reason"]
    rows: dict[tuple[Any, ...], list[str]] = {}
    for row in ev.problems.table.to_dict("records"):
        rows.setdefault(tuple(row[name] for name in same), []).append(row["variant"])
    cells = [(", ".join(names), device, *map(_list_missing, lacking), status.replace("_", " "), reason)
             for (device, *lacking, status, reason), names in rows.items()]  # fmt: skip
    whole = f" “{WHOLE}”: implementations of whole networks." if WHOLE in "".join(row[0] for row in cells) else ""
    head = words("Variant", "Device", f"{ev.case_word.capitalize()}s", ev.size_word, "Times", "Status", "Reason")
    shown = [place for place, column in enumerate(zip(*cells, strict=True)) if {*column} != {ALL}]
    return HtmlTable(
        "a-aside",
        f"What has no time, or lacks some, and why.{whole}",
        tuple(head[place] for place in shown),
        tuple(tuple(row[place] for place in shown) for row in cells),
    )


def missing_sentence(table: HtmlTable) -> str:
    """What a table of one row that lacks all its times says; empty of any other."""
    if len(table.rows) > 1 or len(table.head) > 4:
        return ""
    names, device, status, reason = table.rows[0]
    return f"{names} ({str(device).upper()}), {status}: {reason}."


def _list_missing(lacking: tuple[str | int, ...]) -> str:
    """Layers, sizes or kinds of time that are lacking."""
    return ", ".join(units.count(one) if isinstance(one, int) else one for one in lacking) or ALL
