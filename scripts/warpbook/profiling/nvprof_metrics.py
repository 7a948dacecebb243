"""What nvprof prints of counters (`--metrics`, `--events`), as text and as CSV: each over the launches of a kernel."""

import csv
import re
from collections.abc import Sequence

from warpbook.common.errors import UserError
from warpbook.profiling import nvprof
from warpbook.profiling.counter_readings import Readings
from warpbook.profiling.profile_schema import Profile, error_location, parse_number, reject_decimal_comma

_TEXT_HEADER = re.compile(r"\s*Invocations\s+(?:Metric|Event) Name\s.*")
_CSV_HEADER = re.compile(r'\s*"Device","Kernel","Invocations","(?:Metric|Event) Name",.*')
_EACH_LAUNCH = re.compile(r'\s*"Device","Context","Stream","Kernel",.*')
_KERNEL = re.compile(r'\s*(?:Device ".*"\s+)?Kernel: (\S.*?)\s*')
_DEVICE = re.compile(r'\s*Device "(.*)"\s*')
_VALUE = r"(?:[A-Za-z]+ \(\d+\)|\S+)"
_METRIC = re.compile(rf"\s*(\d+)\s+([\w.]+)\s+(\S.*?)\s+({_VALUE})\s+({_VALUE})\s+({_VALUE})\s*")
_EVENT = re.compile(r"\s*(\d+)\s+([\w.]+)\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*")
_LEVEL = re.compile(r"[A-Za-z]+ \((\d+)\)")
_WITH_UNIT = re.compile(r"([\d.,]+(?:e[+-]?\d+)?)(%|[KMGT]?B(?:/s)?)?")
_NONE = ("nan", "-nan", "inf", "<OVERFLOW>", "")


def is_header(line: str) -> bool:
    """Whether a line is the header of one of nvprof's tables of counters."""
    return any(header.match(line) for header in (_TEXT_HEADER, _CSV_HEADER, _EACH_LAUNCH))


def _value(text: str) -> tuple[str, float | None]:
    """(unit, value): `462.55MB/s`, `100.00%`, `12.5`; of `Low (2)` the 2. ValueError for what is no number."""
    text = text.strip()
    if text in _NONE:
        return "", None
    if level := _LEVEL.fullmatch(text):
        return "level of 10", float(level[1])
    reject_decimal_comma(text, anywhere=True)  # nvprof puts no commas between thousands
    match = _WITH_UNIT.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no reading of a counter")
    return match[2] or "", float(match[1]) if "e" in match[1] else float(parse_number(match[1]).value)


def read(lines: Sequence[str], origin: str, first_line: int = 1) -> Profile:
    """nvprof's tables of counters. UserError names the line of what is wrong."""
    readings = Readings(origin)
    form = device = kernel = ""
    other = 0  # line of something else among the counters
    for number, line in enumerate(lines, first_line):
        if _EACH_LAUNCH.match(line):
            raise UserError(f"{origin}, line {number}: a row for each launch: print it without --print-gpu-trace")
        if _TEXT_HEADER.fullmatch(line) or _CSV_HEADER.fullmatch(line):
            form, kernel = ("csv" if '"' in line else "text") + (" event" if "Event Name" in line else ""), ""
            other = 0
        elif not line.strip() or line.startswith("=="):
            form, other = (form, other) if not line.strip() else ("", 0)
        elif form.startswith("csv"):
            device, kernel, *cells = _csv(line, origin, number)
            _add(readings, origin, number, (device, kernel), cells, "event" in form)
        elif form and (match := _KERNEL.fullmatch(line)):
            kernel = match[1]
        elif form and (match := _DEVICE.fullmatch(line)):
            device = match[1]
        elif form and re.match(r"\s*\d+\s+\w", line):
            match = (_EVENT if "event" in form else _METRIC).fullmatch(line)
            if not match:
                raise UserError(f"{origin}, line {number}: {line.strip()[:60]!r} has not all columns of the header")
            _add(readings, origin, number, (device, kernel), match.groups(), "event" in form)
        elif form:
            form, other = "", number
        elif other and _METRIC.fullmatch(line):
            raise UserError(f"{origin}, line {other}: {lines[other - first_line].strip()[:60]!r} stands among counters")
    tables = nvprof.console_tables(lines, first_line)
    if tables:
        raise UserError(
            f"{origin} holds tables of times too, the first at line {tables[0].header}: "
            "give the lines of one profile, as --lines 1-99"
        )
    return Profile(f"nvprof counters ({len(readings)} kernels)", "nvprof", counters=readings.rows())


def _csv(line: str, origin: str, number: int) -> list[str]:
    try:
        cells = next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise UserError(f"{origin}, line {number}: {error}") from error
    if len(cells) != 8:
        raise UserError(f"{origin}, line {number}: {len(cells)} cells where the header names 8")
    return cells


def _add(readings: Readings, origin: str, line: int, place: tuple[str, str], cells: Sequence[str], event: bool) -> None:
    """One row: invocations, name, a metric's description, least, most, average, an event's total."""
    launches, metric = cells[:2]
    printed = cells[2:5] if event else cells[3:6]
    if not place[1].strip() or not metric.strip():
        raise UserError(f"{origin}, line {line}: a counter without its name or the kernel's")
    with error_location(origin, line):
        count = parse_number(launches).whole()
        if not count:
            raise ValueError(f"{metric} over 0 invocations")
        spread = [_value(text) for text in printed]
    key = readings.launch(place, place[1], count)
    readings.add_spread(line, key, metric.strip(), spread)
