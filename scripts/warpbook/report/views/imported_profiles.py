"""Profiles that were imported: in the same tables and timelines as those taken here, and named as what they are."""

import re
from collections.abc import Iterator
from typing import Any

import pandas as pd

from warpbook.common import units
from warpbook.machine.available_profilers import NAMES
from warpbook.profiling import counters
from warpbook.profiling.imported_tables import ImportedTables
from warpbook.report.evidence import API_KINDS, GPU_KINDS, Evidence, ProfileRow, first_rows_covering
from warpbook.report.evidence.profile_values import ProfileValues
from warpbook.report.figures import timelines
from warpbook.report.views.components import Figure, HtmlTable, View, numbers, words
from warpbook.report.views.profile_tables import launch_table, profile_table, share, short_names
from warpbook.runs import tables

WHOLES = {
    "gpu": "GPU activities",
    "kernels": "kernels",
    "copies": "copies and sets",
    "api": "CUDA API calls",
    "range": "NVTX ranges",
}
"""What the shares of a profile's rows are of, in words."""
MOST_COUNTERS = 40  # rows of counters of one tool that are printed; the imported table has all
MOST_FOREIGN = 6  # kernels that are not the variant's and are named
_DURATION = re.compile(r"gpu__time_duration\.\w+|GPU Speed Of Light[^/]*/Duration")


def imported_profiles_view(ev: Evidence) -> tuple[View, ...]:
    """Every profile that was imported for a study."""
    return tuple(imported_profile(one) for one in ev.imported)


def places(ev: Evidence) -> dict[str, str]:
    """By the ids of places for profiles of our own, the imported profile of the same program: that of the framework, of
    the first kernel at a size, or of an optimization that the study shows."""
    found: dict[str, str] = {}
    for one in ev.imported:
        variant, size = ev.plan.variants.get(one.record.variant), one.record.size
        if variant is None:
            continue
        ours = [f"profiled-{variant.name}-gpu", f"profiled-{variant.name}-api"]
        if variant.header.peer:
            ours = ["m1-kernels", "m1-api"]
        elif not variant.header.builds_on:
            ours = [f"m3-gpu-{size}", f"m3-api-{size}"]
            ours += ["m3-timeline-figure", "m3-kernel-table"] if size == ev.largest else []
        found |= dict.fromkeys(ours, _id(one))
    return found


def _id(one: ImportedTables) -> str:
    return f"imported-{one.record.variant}-{one.record.size}"


def imported_profile(one: ImportedTables) -> View:
    """What the report shows of one imported profile."""
    record, events, id = one.record, one.table(tables.ACTIVITIES), _id(one)
    by_tool = {str(tool): frame for tool, frame in events.groupby("tool", sort=False)}
    return View(
        id=id,
        title=f"Imported: {record.variant} at {units.count(record.size)} images",
        source=_source(one, id),
        tables=tuple(_tables(one, id, by_tool)),
        timelines=tuple(_timelines(one, id, by_tool)),
        launches=tuple(_launches(one, id, by_tool)),
        counters=tuple(_counters(one, id)),
    )


def _device(one: ImportedTables) -> str:
    return one.record.device or "a device that neither the files nor the import name"


def _foreign(one: ImportedTables) -> str:
    """A sentence on the kernels that are not the variant's; empty where all are, or where that is not known."""
    kernels = one.record.foreign_kernels
    return f" Not kernels of {one.record.variant}: {units.join_some(kernels, MOST_FOREIGN)}." if kernels else ""


def _source(one: ImportedTables, id: str) -> HtmlTable:
    return HtmlTable(
        f"{id}-files",
        f"The files that this profile was imported from. Device: {_device(one)}.{_foreign(one)}",
        words("File", "What it is", "SHA-256"),
        tuple((file.name, file.what, file.sha256) for file in one.record.files),
        "dense",
    )


def _tables(one: ImportedTables, id: str, by_tool: dict[str, pd.DataFrame]) -> Iterator[HtmlTable]:
    """A table for each whole that shares are of: summed from events where there are any, else as they were printed."""
    summed: set[tuple[str, str]] = set()
    for tool, events in by_tool.items():
        for whole, kinds in (("gpu", GPU_KINDS), ("api", API_KINDS)):
            if rows := ProfileValues.sum_by_name(events, kinds):
                summed.add((tool, whole))
                yield _table(one, id, tool, whole, rows)
    printed: Any = one.table(tables.SUMMARIES).groupby(["tool", "share_of"], sort=False)
    for (tool, whole), frame in printed:
        if (tool, whole) not in summed:
            yield _table(one, id, tool, whole, [_row(row, frame) for row in frame.itertuples()])


def _row(row: Any, whole: pd.DataFrame) -> ProfileRow:
    part = row.total_ns / whole.total_ns.sum() if pd.isna(row.share_percent) else row.share_percent / 100
    rest = (None if pd.isna(value) else value for value in (row.calls, row.avg_ns, row.min_ns, row.max_ns))
    return ProfileRow(row.name, part, row.total_ns, *rest)


def _table(one: ImportedTables, id: str, tool: str, whole: str, rows: list[ProfileRow]) -> HtmlTable:
    most = first_rows_covering(rows)
    return profile_table(
        f"{id}-{tool}-{whole}",
        f"Imported: {WHOLES[whole]} of the program with {one.record.variant} at {units.count(one.record.size)} images "
        f"on {_device(one)}, as {NAMES[tool]} has them. The first {len(most)} of {len(rows)} take {share(most)}.",
        rows,
        spread=True,
    )


def _timelines(one: ImportedTables, id: str, by_tool: dict[str, pd.DataFrame]) -> Iterator[Figure]:
    for tool, events in by_tool.items():
        if (events.kind == "kernel").any():
            yield Figure(
                f"{id}-{tool}-timeline",
                timelines.program_timeline(events),
                "Rows of bars over time: API calls, copies and kernels of the imported profile, whole and from the "
                "largest copy to the device's last work.",
                f"Imported: the program with {one.record.variant} at {units.count(one.record.size)} images on "
                f"{_device(one)}, as {NAMES[tool]} saw it: above all of it, below the part in which the device works.",
                "timeline",
            )


def _launches(one: ImportedTables, id: str, by_tool: dict[str, pd.DataFrame]) -> Iterator[HtmlTable]:
    for tool, events in by_tool.items():
        launches = [launch for launch in ProfileValues.group_launches(events, {}) if launch.grid]
        if launches:
            yield launch_table(
                f"{id}-{tool}-kernels",
                f"Imported: kernels of the program with {one.record.variant} on {_device(one)}, in the order of their "
                "first launch, with launch shapes and registers.",
                launches,
            )


def _counters(one: ImportedTables, id: str) -> Iterator[HtmlTable]:
    """Counters of each tool, one row for each counter of a kernel over its launches, the longest kernel's first."""
    frame = one.table(tables.COUNTERS)
    for tool, of_tool in frame[frame.value.notna()].groupby("tool", sort=False):
        spreads = _spreads(of_tool)
        names = short_names(kernel for _, kernel, _ in spreads)
        left_out = len(spreads) - MOST_COUNTERS
        more = f" {units.count(left_out)} more rows are in the imported table." if left_out > 0 else ""
        yield HtmlTable(
            f"{id}-{tool}-counters",
            f"Imported: hardware counters of {one.record.variant} at {units.count(one.record.size)} images on "
            f"{_device(one)}, as {NAMES[str(tool)]} read them; the kernel that takes the most time comes first.{more}",
            (*words("Kernel"), *numbers("Launches"), *words("Counter"), *numbers("Min", "Mean", "Max"), *words("Unit")),
            tuple((names[kernel], *cells) for _, kernel, cells in spreads[:MOST_COUNTERS]),
            "dense",
        )
    yield from _bounds(one, id, frame)


def _spreads(readings: pd.DataFrame) -> list[tuple[float, str, tuple[str, ...]]]:
    """(the time of its kernel's launches in ns, 0 where nothing says it; the kernel; the other cells) of each counter
    of each kernel, the longest kernel's first; values of a counter all in the first of its units."""
    parts = readings.metric.str.extract(r"^(?P<counter>.*?)(?: \((?P<part>minimum|maximum|average)\))?$")
    rows = readings.assign(
        counter=parts.counter, part=parts.part.fillna(""), base=readings.unit.map(counters.base_unit)
    )
    found = []
    for kernel, of_kernel in rows.groupby("kernel", sort=False):
        time_ns, cells = 0.0, []
        for (counter, _), same in of_kernel.groupby(["counter", "base"], sort=False):
            unit = same.unit.iloc[0]
            values = same.value * same.unit.map(counters.scale) / counters.scale(unit)
            known = {part: values[same.part == part] for part in ("minimum", "average", "maximum")}
            least, mean, most = (part if len(part) else values for part in known.values())
            launches = int(max(same.launch.nunique(), same.launches.fillna(1).max()))
            if _DURATION.fullmatch(str(counter)):
                time_ns = max(time_ns, mean.mean() * counters.scale(unit) * launches)
            figures = map(units.significant, (least.min(), mean.mean(), most.max()))
            cells.append((units.count(launches), str(counter), *figures, unit))
        found += [(time_ns, str(kernel), of_counter) for of_counter in cells]
    return sorted(found, key=lambda spread: -spread[0])


def _bounds(one: ImportedTables, id: str, frame: pd.DataFrame) -> Iterator[HtmlTable]:
    """What bounds each layer's longest kernel, where Nsight Compute read all that the rule asks for."""
    calls = counters.counted_calls(frame)
    rows = tuple(
        (short_names([call.longest.kernel])[call.longest.kernel], layer or "not said", sentence)
        for (_, layer), call in calls.items()
        if (sentence := counters.bound_sentence(call.longest))
    )
    if rows:
        yield HtmlTable(
            f"{id}-bounds",
            f"Imported: what bounds the longest kernel on {_device(one)}, by the rule of the analysis.",
            words("Kernel", "Layer", "What bounds it"),
            rows,
            "sentences",
        )
