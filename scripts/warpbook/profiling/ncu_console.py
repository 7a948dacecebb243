"""What Nsight Compute prints on the console: a table for each section of each launch, or for each kernel over its
launches (`--print-summary per-kernel`), there as CSV too."""

import csv
import re
from collections.abc import Hashable, Sequence
from itertools import pairwise

from warpbook.common.errors import UserError
from warpbook.profiling.counter_readings import Readings
from warpbook.profiling.ncu import Word, label, parse_reading
from warpbook.profiling.profile_schema import Profile, error_location

REMEDY = "print it with ncu --csv --page raw, or `ncu --import REPORT --csv --page raw` of its report"

_LAUNCH = re.compile(
    r"\s*(?P<kernel>[^\s=\[].*?)(?P<shape> \(\d+, \d+, \d+\)x\(\d+, \d+, \d+\))?"
    r"(?:, \d{4}-\w{3}-\d\d \d\d:\d\d:\d\d)?(?P<context>, Context \d+, Stream \d+)?"
    r"(?P<device>, Device \d+, CC [\d.]+)?(?:, Invocations (?P<launches>\d+))?\s*"
)
_DEVICE = re.compile(r"\s*(Device \d+, CC [\d.]+)\s*")
_SECTION = re.compile(r"\s*Section: (\S.*?)\s*")
_KNOWN_SECTION = re.compile(r"\s*Section: (?:GPU Speed Of Light|Command line profiler metrics|Launch Stat|Occupancy)")
_RULE = re.compile(r"\s*-{3,}(?: -{3,}){2}(?: -{3,} -{3,})?\s*")
_VALUE_HEADS = ["Metric Name", "Metric Unit", "Metric Value"]
_SPREAD_HEADS = ["Metric Name", "Metric Unit", "Minimum", "Maximum", "Average"]


def _launch(line: str) -> re.Match[str] | None:
    if ", Context " not in line and ", Invocations " not in line:
        return None
    match = _LAUNCH.fullmatch(line)
    return match if match and (match["context"] or match["launches"]) else None


def is_console(line: str) -> bool:
    """Whether a line is one of ncu's console text: a launch, or the head of a section."""
    return bool(_launch(line) or _KNOWN_SECTION.match(line))


def _cells(line: str, rule: str, origin: str, number: int) -> list[str]:
    """A row's cells, under the dashes that show how wide each column is."""
    spans: list[tuple[int, int | None]] = [match.span() for match in re.finditer("-+", rule)]
    if any(line[end:begin].strip() for (_, end), (begin, _) in pairwise([(0, 0), *spans])):
        raise UserError(
            f"{origin}, line {number}: {line.strip()[:60]!r} does not stand under its columns' heads: {REMEDY}"
        )
    spans[-1] = (spans[-1][0], None)
    return [line[begin:end].strip() for begin, end in spans]


def read_console(lines: Sequence[str], origin: str, first_line: int = 1) -> Profile:
    """ncu's console text. A metric's label gets its section, as from the details page: `Occupancy/Achieved Occupancy`.

    UserError names the line of what is wrong.
    """
    readings = Readings(origin)
    key: Hashable = None
    opened = body = 0
    section = device = rule = ""
    heads: list[str] = []
    awaited = False  # a table of metrics comes next; other tables belong to what ncu advises
    for number, line in enumerate(lines, first_line):
        if not rule:
            if match := _launch(line):
                launches = match["launches"] and int(match["launches"])
                place = (device, match["kernel"], match["shape"]) if launches else number
                key, awaited, section = readings.launch(place, match["kernel"], launches or None), True, ""
            elif match := _SECTION.fullmatch(line):
                section, awaited = match[1], True
            elif match := _DEVICE.fullmatch(line):
                device = match[1]
            elif _RULE.fullmatch(line):
                following = lines[number - first_line + 1].split() if number - first_line + 1 < len(lines) else []
                if awaited or following[:2] == ["Metric", "Name"]:
                    rule, heads, awaited = line, [], False
                    opened, body = number, 0
            continue
        if _RULE.fullmatch(line):
            if line.strip() != rule.strip():
                raise UserError(f"{origin}, line {number}: a table other than that of line {opened}, which is cut off")
            if heads and not body:
                body = 1  # the dashes under the heads
                continue
            rule = ""
            continue
        if not line.strip():
            break
        cells = _cells(line, rule, origin, number)
        if cells[0] == "Metric Name" and not heads and not body:
            heads = cells
            if heads not in (_VALUE_HEADS, _SPREAD_HEADS):
                raise UserError(f"{origin}, line {number}: a table of {', '.join(heads)}, not of metrics: {REMEDY}")
            continue
        if key is None:
            raise UserError(f"{origin}, line {number}: a table without the line of its kernel above it: {REMEDY}")
        body = 1
        if not cells[0] or not any(cells[2:]):
            raise UserError(f"{origin}, line {number}: {line.strip()[:60]!r} has no name or no value")
        _add(readings, origin, number, key, label(cells[0], section), cells[1], cells[2:])
    if rule:
        raise UserError(f"{origin}, line {opened}: the table that begins here is cut off: no dashes close it")
    what = f"ncu console text ({len(readings)} launches or kernels)"
    return Profile(what, "ncu", counters=readings.rows(), omissions=readings.omissions)


def _add(readings: Readings, origin: str, line: int, key: Hashable, metric: str, unit: str, texts: list[str]) -> None:
    try:
        with error_location(origin, line):
            values = [parse_reading(text, unit) for text in texts]
    except Word:
        if any(text[:1].isdecimal() for text in texts):
            raise UserError(f"{origin}, line {line}: {' '.join(texts)!r} is no value of {metric}") from None
        readings.words.add(metric)
        return
    if len(values) == 1:
        readings.add(line, key, metric, unit, values[0])
    else:
        readings.add_spread(line, key, metric, [(unit, value) for value in values])


_PLACE = ("Process ID", "Device", "Kernel Name", "Block Size", "Grid Size", "Context", "Stream")


def is_summary_header(line: str) -> bool:
    """Whether a line is the header of `ncu --csv --print-summary per-kernel`."""
    return all(f'"{head}"' in line for head in ("Kernel Name", "Invocations", *_SPREAD_HEADS))


def read_summary(lines: Sequence[str], origin: str, first_line: int = 1) -> Profile:
    """The CSV of `ncu --print-summary per-kernel`: a row for each metric over the launches of a kernel."""
    readings = Readings(origin)
    heads: list[str] = []
    for number, line in enumerate(lines, first_line):
        if not line.strip() or line.startswith("==") or (not heads and not is_summary_header(line)):
            continue
        try:
            cells = next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise UserError(f"{origin}, line {number}: {error}") from error
        if not heads:
            heads = cells
            continue
        if len(cells) != len(heads):
            raise UserError(f"{origin}, line {number}: {len(cells)} cells where the header names {len(heads)}")
        row = dict(zip(heads, cells, strict=True))
        if not row["Kernel Name"] or not row["Invocations"].isdecimal() or row["Invocations"].strip("0") == "":
            raise UserError(f"{origin}, line {number}: a row without a kernel's name or its number of invocations")
        place = tuple(row.get(name, "") for name in _PLACE)
        key = readings.launch(place, row["Kernel Name"], int(row["Invocations"][:9]))
        metric = label(row["Metric Name"], row.get("Section Name", ""))
        _add(readings, origin, number, key, metric, row["Metric Unit"], [row[which] for which in _SPREAD_HEADS[2:]])
    what = f"ncu summary as CSV ({len(readings)} kernels)"
    return Profile(what, "ncu", counters=readings.rows(), omissions=readings.omissions)
