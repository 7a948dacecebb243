"""Tables of times with heads above their rows: nvprof's CSV, and what `nsys stats` prints in each of its formats."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

from warpbook.common.errors import UserError
from warpbook.profiling import printed_tables, profile_schema
from warpbook.profiling.printed_tables import PrintedRun, ProfilerTable
from warpbook.profiling.profile_schema import Profile, Row, SumRow

KERNEL_SUMS = "nsys stats --report cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_api_sum --format csv REPORT"
"""The command that prints what is read, of a report of Nsight Systems."""

_KILO = {"nsys": 1000, "nvprof": 1024}
_CAPTION_UNITS = {"nanoseconds": "ns", "microseconds": "us", "milliseconds": "ms", "seconds": "s"}
_SECTIONS = {"GPU activities": "gpu", "API calls": "api"}
_KINDS = {"kernels": "kernel", "copies": "mem"}  # how the kinds of a whole's rows begin
_OTHER_SECTIONS = ("CPU profiling", "Metric", "Event", "NVTX", "Unified Memory profiling", "OpenACC", "OpenMP")
_ROW_INSIDE = re.compile(r"\s\d+\.\d[\s,]+\d")
_DEVICE_ROWS = {"CUDA_KERNEL", "MEMORY_OPER"}


def parts(tables: Sequence[ProfilerTable], origin: str) -> list[PrintedRun]:
    """The profiles that tables of times make, run by run."""
    found: list[PrintedRun] = []
    for table in tables:
        if table.rows and table.kind in ("sums", "trace") and table.tool == "nvprof":
            cells = table.rows[0][1]
            if not any(character.isdecimal() for cell in cells for character in cell):
                table.units = table.rows.pop(0)[1]
    for tool, what in (("nvprof", "nvprof CSV"), ("nsys", "nsys stats")):
        of_tool = [table for table in tables if table.kind in ("sums", "trace", "other") and table.tool == tool]
        found += [
            PrintedRun(what, run[0].first, run[-1].last, partial(_read, run, origin, what))
            for run in printed_tables.runs(of_tool, _key)
        ]
    return found


def _key(table: ProfilerTable) -> str:
    """What a run of the tool prints one table of; empty for tables that are not read."""
    if table.kind == "trace":
        return (
            "trace of the GPU" if any("Grd" in head or "Grid" in head for head in table.heads) else "trace of the API"
        )
    if _is_left_out(table):
        return ""
    return "/".join(sorted({share_of for share_of, _ in _wholes(table)}))


def _is_left_out(table: ProfilerTable) -> bool:
    return table.kind == "other" or table.section.startswith(_OTHER_SECTIONS)


def _wholes(table: ProfilerTable) -> list[tuple[str, str]]:
    """(what a row's share is of, its kind where the table says it) for each row of a table of sums."""
    roles = [role for role, _ in profile_schema.column_roles(table.heads)]
    if "Type" in table.heads:
        at = table.heads.index("Type")
        return [(_SECTIONS.get(cells[at], ""), "") for _, cells in table.rows]
    names = {head.lower() for head in table.heads}
    calls = [profile_schema.is_api(cells[roles.index("name")].strip()) for _, cells in table.rows]
    whole, kind = "", ""
    if "range" in names:
        whole = kind = "range"
    elif "type" in roles:
        types = {cells[roles.index("type")].strip() for _, cells in table.rows}
        whole = "gpu" if types <= _DEVICE_ROWS else ""
    elif "operation" in names or "operations" in names:
        whole = "copies"
    elif all(calls) or (any(calls) and "instances" not in names):
        whole = "api"
    elif table.tool == "nvprof":
        whole = "gpu"
    elif "instances" in names:  # tables of the operating system's calls count calls
        whole, kind = "kernels", "kernel"
    return [(whole, kind)] * len(table.rows)


def _units(table: ProfilerTable, origin: str) -> list[tuple[str, str]]:
    """(role, unit) of each column, from its head, from nvprof's row of units, or from nsys' caption."""
    with profile_schema.error_location(origin, table.line):
        columns = list(profile_schema.column_roles(table.heads))
    if table.tool == "nvprof":
        units = table.units or [""] * len(columns)
        return [(name, unit) for (name, _), unit in zip(columns, units, strict=True)]
    # before 2021 the unit stood over the total alone, or in the caption, which a copy may have lost: nanoseconds
    whole = dict(columns).get("total") or _CAPTION_UNITS.get(table.unit or "nanoseconds", "")
    if not whole and table.kind == "sums":
        known = ", ".join(_CAPTION_UNITS)
        raise UserError(f"{origin}, line {table.line}: a table of times in {table.unit!r}; known: {known}")
    return [(name, unit or whole if name in ("total", "avg", "min", "max") else unit) for name, unit in columns]


def _read(tables: Sequence[ProfilerTable], origin: str, what: str) -> Profile:
    """The profile that a run's tables make. UserError names the line of what is wrong."""
    events: list[Row] = []
    summaries: list[Row] = []
    left_out: list[str] = []
    devices: dict[str, None] = {}
    counts: dict[str, tuple[int, int]] = {}  # of kernels, copies and calls, each with the line of its table
    for table in tables:
        if _is_left_out(table) and table.rows:
            left_out.append(f"the {'section' if table.tool == 'nvprof' else 'table'} at line {table.line}")
        if _is_left_out(table):
            continue
        if not table.rows:
            raise UserError(f"{origin}, line {table.line}: a header of {what} and no rows under it")
        if (
            table.padded
            and table.short_row
            and (table.kind == "trace" or any(share_of for share_of, _ in _wholes(table)))
        ):
            raise UserError(f"{origin}, line {table.short_row}: this row is cut off: others are filled up with blanks")
        columns = _units(table, origin)
        before = len(events), len(summaries)
        if table.kind == "trace":
            left_out += _read_trace(table, columns, origin, events, devices)
        else:
            left_out += _read_sums(table, columns, origin, summaries)
        for counted, count in _counts([*events[before[0] :], *summaries[before[1] :]]).items():
            other, line = counts.setdefault(counted, (count, table.line))
            if other != count:
                raise UserError(
                    f"{origin}, line {table.line}: {count} {counted} in this table, and {other} in that of line {line}: rows "
                    "are missing, or they are of two runs; import the lines of one, as --lines FIRST-LAST"
                )
    if not events and not summaries:
        hint = f": import what `{KERNEL_SUMS}` prints" if tables[0].tool == "nsys" else ""
        raise UserError(f"{origin} holds no times of kernels, copies or API calls, only {', '.join(left_out)}{hint}")
    tool = tables[0].tool
    profile = Profile(what, tool, events, summaries, omissions=tuple(left_out), device=", ".join(devices))
    return profile_schema.limit_events(profile)


def _counts(rows: Sequence[Row]) -> Counter[str]:
    """How many kernels, copies and calls a table of events or of sums has; none where it does not count them."""
    counts: Counter[str] = Counter()
    for row in rows:
        what = {"kernel": "kernels", "range": ""}.get(
            row["kind"], "calls" if row["kind"].startswith("api_") else "copies"
        )
        if what and row.get("calls", 1):
            counts[what] += row.get("calls", 1)
    return counts


def _texts(columns: Sequence[tuple[str, str]], cells: Sequence[str]) -> dict[str, tuple[str, str]]:
    return {name: (text, unit) for (name, unit), text in zip(columns, cells, strict=True) if name}


def _read_trace(
    table: ProfilerTable, columns: Sequence[tuple[str, str]], origin: str, events: list[Row], devices: dict[str, None]
) -> list[str]:
    without_duration = []
    seen: dict[tuple[str, ...], int] = {}
    for number, cells in table.rows:
        texts = _texts(columns, cells)
        if not texts["duration"][0].strip() and texts["name"][0].startswith("[Unified Memory"):
            without_duration.append(number)
            continue
        if earlier := seen.setdefault(tuple(cells), 0):
            raise UserError(f"{origin}, line {number}: the event of line {earlier} once more")
        seen[tuple(cells)] = number
        with profile_schema.error_location(origin, number):
            events.append(profile_schema.traced_event(texts, _KILO[table.tool]))
        if "device" in texts and texts["device"][0].strip():
            devices[texts["device"][0].strip()] = None
    return [f"the event without a duration at line {number}" for number in without_duration]


def _read_sums(
    table: ProfilerTable, columns: Sequence[tuple[str, str]], origin: str, summaries: list[Row]
) -> list[str]:
    """Add a table's sums, each whole of them complete; gives what is left out."""
    groups: dict[tuple[str, str], list[SumRow]] = {}
    left_out: dict[str, None] = {}
    heads = [head.lower() for head in table.heads]
    names = [cells[-1] for _, cells in table.rows]
    for (number, cells), (share_of, kind) in zip(table.rows, _wholes(table), strict=True):
        if "gridxyz" in heads and names.count(cells[-1]) > 1:  # the shape tells launches of one kernel apart
            grid, block = (", ".join(cells[heads.index(name)].split()) for name in ("gridxyz", "blockxyz"))
            cells = [*cells[:-1], f"{cells[-1]} ({grid})x({block})"]
        if not share_of:
            if "calls" not in dict(columns) or printed_tables.READ_REPORT.fullmatch(table.report):
                raise UserError(f"{origin}, line {table.line}: a table without its column of calls or instances")
            if _ROW_INSIDE.search(cells[-1]):
                raise UserError(f"{origin}, line {number}: several rows run together: {cells[-1][:60]!r}")
            if not cells[0].strip():
                raise UserError(f"{origin}, line {number}: a row without its {table.heads[0]}")
            left_out[cells[0] if heads[0] == "type" else f"the table at line {table.line}"] = None
            continue
        with profile_schema.error_location(origin, number):
            row = profile_schema.sum_row(number, _texts(columns, cells), free_name=kind == "range")
            if share_of == "api":
                profile_schema.reject_other_call(row.name)
            of_name = profile_schema.activity_kind(row.name, api=profile_schema.is_api(row.name))
            if not of_name.startswith(_KINDS.get(share_of, "")):
                raise ValueError(f"{row.name[:60]!r} is none of the {share_of} that the table is of")
        groups.setdefault((share_of, kind), []).append(row)
    for (share_of, kind), rows in groups.items():
        if problem := profile_schema.contradiction(rows):
            raise UserError(f"{origin}, line {problem[0]}: {problem[1]}")
        summaries += profile_schema.summary_rows(table.tool, share_of, rows, kind)
    return list(left_out)
