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
_BEGIN = r"\s*(?P<launches>\d+)\s+(?P<name>[\w.]+)\s+"
_VALUE = r"(?:[A-Za-z]+ \(\d+\)|\S+)"
_METRIC = re.compile(rf"{_BEGIN}(?P<what>\S.*?)\s+(?P<min>{_VALUE})\s+(?P<max>{_VALUE})\s+(?P<avg>{_VALUE})\s*")
_HOLDS_A_VALUE = re.compile(r"\s(?:[\d.,]+(?:%|[KMGT]?B(?:/s)?)?|[A-Za-z]+ \(\d+\))$|\s\d+\s+[a-z]\w*_\w+\s")
_EVENT = re.compile(rf"{_BEGIN}(?P<min>\S+)\s+(?P<max>\S+)\s+(?P<avg>\S+)\s+\S+\s*")
_LEVEL = re.compile(r"[A-Za-z]+ \((\d+)\)")
_WITH_UNIT = re.compile(r"([\d.,]+(?:e[+-]?\d+)?)(%|[KMGT]?B(?:/s)?)?")
_NONE = ("nan", "-nan", "inf", "<OVERFLOW>", "")

Reading = tuple[int, str, str, Sequence[str]]
"""A printed row: its line, the device, the kernel, and its launches, name, least, most and average."""


def csv_parts(tables: Sequence[ProfilerTable], origin: str) -> list[PrintedRun]:
    """The profiles that tables of counters as CSV make, run by run."""
    for table in tables:
        if table.kind == "each launch":
            raise UserError(f"{origin}, line {table.line}: a row for each launch: print it without --print-gpu-trace")
    found = []
    for run in runs([table for table in tables if table.kind == "counters"], _form):
        rows = []
        for table in run:
            wanted = ("Device", "Kernel", "Invocations", f"{_form(table)} Name", "Min", "Max", "Avg")
            table.require(wanted, origin)
            places = [table.heads.index(head) for head in wanted]
            for number, cells in table.rows:
                device, kernel, *others = (cells[place] for place in places)
                rows.append((number, device, kernel, others))
        found.append(PrintedRun("nvprof's counters", run[0].line, run[-1].last, partial(_profile, rows, origin)))
    return found


def _form(table: ProfilerTable) -> str:
    return "Event" if "Event Name" in table.heads else "Metric"


def text_parts(lines: Sequence[str], origin: str, first_line: int = 1) -> list[PrintedRun]:
    """The profiles in nvprof's tables of counters as text, run by run. UserError for a line in one that is no row."""
    found: list[PrintedRun] = []
    forms: set[str] = set()  # of this run
    above = ""
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
        before, above = above, line
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
            if _KERNEL.fullmatch(before) and (_METRIC.fullmatch(line) or _EVENT.fullmatch(line)):
                raise UserError(f"{origin}, line {number}: a counter, and no line above it names the columns")
        elif re.match(r'\s*"?Device"?,', line) and form == "awaited":
            form = ""  # CSV
        elif form == "awaited":
            raise UserError(f"{origin}, line {number}: {line.strip()[:60]!r} is not the line of the counters' columns")
        elif match := _KERNEL.fullmatch(line):
            device, kernel, blank, bare = match["device"] or device, match["kernel"], False, number
            if not device:
                raise UserError(f"{origin}, line {number}: a kernel, and no line above it names the device")
            with profile_schema.error_location(origin, number):
                profile_schema.reject_strange_name(profile_schema.clean(kernel))
        elif match := _DEVICE.fullmatch(line):
            device, kernel, blank, bare = match[1], "", False, number
        elif re.match(r"\s*\d+\s+\w", line):
            match = (_EVENT if form == "Event" else _METRIC).fullmatch(line)
            if not match or (form == "Metric" and _HOLDS_A_VALUE.search(match["what"])):
                raise UserError(f"{origin}, line {number}: {line.strip()[:60]!r} has not the columns of the header")
            rows.append((number, device, kernel, match.group("launches", "name", "min", "max", "avg")))
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
    profile_schema.reject_other_marks(text, anywhere=True)  # nvprof puts no commas between thousands
    profile_schema.reject_thousands_point(text)
    match = _WITH_UNIT.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no reading of a counter")
    return match[2] or "", float(match[1]) if "e" in match[1] else float(profile_schema.parse_number(match[1]).value)


def _profile(rows: Sequence[Reading], origin: str) -> Profile:
    readings = Readings(origin)
    for line, device, kernel, (launches, metric, *texts) in rows:
        with profile_schema.error_location(origin, line):
            if not kernel.strip() or not metric.strip():
                raise ValueError("a counter without its name or the kernel's")
            count = profile_schema.parse_number(launches).whole()
            if not count:
                raise ValueError(f"{metric} over 0 invocations")
            spread = [_value(text) for text in texts]
            key = readings.launch((device, kernel), kernel, count)
        readings.add_spread(line, key, metric.strip(), spread)
        readings.devices[device] = None
    what = f"nvprof counters ({len(readings)} kernels)"
    return readings.profile(what, "nvprof")
