"""What nvprof prints of counters (`--metrics`, `--events`), as text and as CSV: each over the launches of a kernel."""

import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from warpbook.common.errors import UserError
from warpbook.profiling import profile_schema
from warpbook.profiling.counter_readings import Readings
from warpbook.profiling.printed_tables import FENCE, PrintedRun, ProfilerTable, runs
from warpbook.profiling.profile_schema import Profile

_HEADER = re.compile(r"\s*Invocations\s+(Metric|Event) Name\s.*\b(?:Avg|Total)\s*")
_MESSAGE = re.compile(r"\s*==\d*==+\s*((?:Metric|Event) result)?.*")
_KERNEL = re.compile(r"\s*(?:Device \"(?P<device>.*)\"\s+)?Kernel: (?P<kernel>\S.*?)\s*")
_DEVICE = re.compile(r'\s*Device "(.*)"\s*')
_VALUE = r"(?:[A-Za-z]+ \(\d+\)|\S+)"
_METRIC = re.compile(rf"\s*(\d+)\s+([\w.]+)\s+(\S.*?)\s+({_VALUE})\s+({_VALUE})\s+({_VALUE})\s*")
_HOLDS_A_VALUE = re.compile(r"\s(?:[\d.,]+(?:%|[KMGT]?B(?:/s)?)?|[A-Za-z]+ \(\d+\))$|\s\d+\s+[a-z]\w*_\w+\s")
_EVENT = re.compile(r"\s*(\d+)\s+([\w.]+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*")
_LEVEL = re.compile(r"[A-Za-z]+ \((\d+)\)")
_WITH_UNIT = re.compile(r"([\d.,]+(?:e[+-]?\d+)?)(%|[KMGT]?B(?:/s)?)?")
_NONE = ("nan", "-nan", "inf", "<OVERFLOW>", "")

Reading = tuple[int, str, str, bool, Sequence[str]]
"""A printed row: its line, the device, the kernel, whether it is an event's, and its cells."""


def csv_parts(tables: Sequence[ProfilerTable], origin: str) -> list[PrintedRun]:
    """The profiles that tables of counters as CSV make, run by run."""
    for table in tables:
        if table.kind == "each launch":
            raise UserError(f"{origin}, line {table.line}: a row for each launch: print it without --print-gpu-trace")
    found = []
    for run in runs([table for table in tables if table.kind == "counters"], lambda table: table.heads[3]):
        rows = [
            (number, cells[0], cells[1], "Event Name" in table.heads, cells[2:])
            for table in run
            for number, cells in table.rows
        ]
        found.append(PrintedRun("nvprof's counters", run[0].line, run[-1].last, partial(_profile, rows, origin)))
    return found


def text_parts(lines: Sequence[str], origin: str, first_line: int = 1) -> list[PrintedRun]:
    """The profiles in nvprof's tables of counters as text, run by run. UserError for a line in one that is no row."""
    found: list[PrintedRun] = []
    forms: set[str] = set()  # of this run
    rows: list[Reading] = []
    form = device = kernel = ""
    header = last = bare = 0  # bare: the last line that says what rows are of, where none is below
    blank = False

    def end_run() -> None:
        nonlocal rows
        if forms:
            found.append(PrintedRun("nvprof's counters", header, last, partial(_profile, rows, origin)))
        rows = []
        forms.clear()

    for number, line in enumerate(lines, first_line):
        if heads := _HEADER.fullmatch(line):
            if heads[1] in forms or not forms:
                end_run()
                header = number
            form, device, kernel, last, blank, bare = heads[1], "", "", number, False, number
            forms.add(form)
        elif match := _MESSAGE.fullmatch(line):
            form, bare = ("awaited", number) if match[1] else ("", 0)
        elif not line.strip() or FENCE.fullmatch(line):
            blank = True
        elif not form:
            continue
        elif line.lstrip().startswith('"') and form == "awaited":
            form = ""  # CSV
        elif form == "awaited":
            raise UserError(f"{origin}, line {number}: {line.strip()[:60]!r} is not the line of the counters' columns")
        elif match := _KERNEL.fullmatch(line):
            device, kernel, blank, bare = match["device"] or device, match["kernel"], False, number
            with profile_schema.error_location(origin, number):
                profile_schema.reject_strange_name(profile_schema.clean(kernel))
        elif match := _DEVICE.fullmatch(line):
            device, kernel, blank, bare = match[1], "", False, number
        elif re.match(r"\s*\d+\s+\w", line):
            match = (_EVENT if form == "Event" else _METRIC).fullmatch(line)
            if not match or (form == "Metric" and _HOLDS_A_VALUE.search(match[3])):
                raise UserError(f"{origin}, line {number}: {line.strip()[:60]!r} has not the columns of the header")
            rows.append((number, device, kernel, form == "Event", match.groups()))
            last, blank, bare = number, False, 0
        elif blank and not _is_part_of_a_table(line):
            form = ""
        else:
            raise UserError(f"{origin}, line {number}: {line.strip()[:60]!r} stands among counters, and is none")
    end_run()
    if bare and form and found:
        raise UserError(f"{origin}, line {bare}: {lines[bare - first_line].strip()[:60]!r} and no counter under it")
    return found


def _is_part_of_a_table(line: str) -> bool:
    """Whether a line is the rest of a counter's (launches, name, three values), or names a kernel or device."""
    words = line.split()
    counted = any(a[-1].isdecimal() and re.fullmatch(r"[\w.]+", b) for a, b in pairwise(words[:-3]))
    return (counted and re.search(r"\d", words[-3]) is not None) or "Kernel:" in line or "Device " in line


def _value(text: str) -> tuple[str, float | None]:
    """(unit, value): `462.55MB/s`, `100.00%`, `12.5`; of `Low (2)` the 2. ValueError for what is no number."""
    text = text.strip()
    if text in _NONE:
        return "", None
    if level := _LEVEL.fullmatch(text):
        return "level of 10", float(level[1])
    profile_schema.reject_decimal_comma(text, anywhere=True)  # nvprof puts no commas between thousands
    match = _WITH_UNIT.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no reading of a counter")
    return match[2] or "", float(match[1]) if "e" in match[1] else float(profile_schema.parse_number(match[1]).value)


def _profile(rows: Sequence[Reading], origin: str) -> Profile:
    """Of each row: invocations, name, a metric's description, least, most, average, an event's total."""
    readings = Readings(origin)
    devices: dict[str, None] = {}
    for line, device, kernel, event, cells in rows:
        launches, metric = cells[:2]
        with profile_schema.error_location(origin, line):
            if not kernel.strip() or not metric.strip():
                raise ValueError("a counter without its name or the kernel's")
            count = profile_schema.parse_number(launches).whole()
            if not count:
                raise ValueError(f"{metric} over 0 invocations")
            spread = [_value(text) for text in (cells[2:5] if event else cells[3:6])]
            key = readings.launch((device, kernel), kernel, count)
        readings.add_spread(line, key, metric.strip(), spread)
        if device:
            devices[device] = None
    what = f"nvprof counters ({len(readings)} kernels)"
    return Profile(what, "nvprof", counters=readings.rows(), device=", ".join(devices))
