"""What Nsight Compute prints as CSV (`ncu --csv`)."""

import csv
import re
from collections.abc import Sequence

from warpbook.common.errors import UserError
from warpbook.profiling.profile_schema import (
    Profile,
    clean,
    error_location,
    reject_ambiguous_comma,
    reject_decimal_comma,
)

_HEADER = re.compile(r'\s*"?ID"?,.*"?Kernel Name"?')
_NUMBER = re.compile(r"(?:\(!\) )?(-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?)(?: \(.*\))?", re.IGNORECASE)
_NONE = re.compile(r"(?:\(!\) )?(?:n/a|-?nan|-?inf|no data|)", re.IGNORECASE)
_RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
_PLACE = {
    _RANGES, "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name",
}  # fmt: skip


def is_header(line: str) -> bool:
    """Whether a line is the header of Nsight Compute's CSV."""
    return _HEADER.match(line) is not None


def label(metric: str, section: str) -> str:
    """A metric's name, or its label on the details page with the section that tells it from others."""
    metric, section = clean(metric), clean(section)
    return metric if "__" in metric or not section else f"{section}/{metric}"


class Word(Exception):
    """A metric whose value is no number, such as CachePreferNone."""


def parse_reading(text: str, unit: str) -> float | None:
    """A counter's value, None where ncu gave none. Word for a word, ValueError for a decimal comma."""
    if _NONE.fullmatch(text.strip()):
        return None
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        reject_decimal_comma(text)
        raise Word
    if unit == "%":
        reject_ambiguous_comma(match[1], unit)
    return float(match[1].replace(",", ""))


def read_csv(lines: Sequence[str], origin: str, first_line: int = 1) -> Profile:
    """Nsight Compute's CSV, `--page raw` (a row a launch) or `--page details` (a row a metric).

    On the details page a metric's label needs its section to be told from others: `Occupancy/Achieved Occupancy`.
    Metrics whose value is a word are left out. UserError names the line of what is wrong.
    """
    numbered = list(enumerate(lines, first_line))
    start = next(place for place, (_, line) in enumerate(numbered) if is_header(line))
    rows: list[tuple[int, list[str]]] = []
    for number, line in numbered[start:]:
        if not line.strip() or line.startswith("=="):
            continue
        try:
            rows.append((number, next(csv.reader([line], strict=True))))
        except csv.Error as error:
            raise UserError(f"{origin}, line {number}: {error}") from error
    (header_line, heads), *rows = rows
    details = "Metric Name" in heads
    # on the details page, cells that speak of a rule may be left out behind the metric
    fewest = heads.index("Metric Value") + 1 if details and "Metric Value" in heads else len(heads)
    for number, cells in rows:
        if not fewest <= len(cells) <= len(heads):
            raise UserError(f"{origin}, line {number}: {len(cells)} cells where the header names {len(heads)}")
    needed = ["ID", "Kernel Name", *(["Metric Value", "Metric Unit"] if details else [])]
    if missing := [name for name in needed if heads.count(name) != 1]:
        raise UserError(f"{origin}, line {header_line}: {heads.count(missing[0])} columns {missing[0]!r}, not one")
    units = [""] * len(heads)
    if not details and rows and not rows[0][1][heads.index("ID")]:
        units = rows.pop(0)[1]
    launches: dict[tuple[str, str], int] = {}
    kernels: dict[int, str] = {}
    ranges: dict[int, str] = {}
    readings: dict[tuple[int, str], tuple[str, float | None]] = {}
    words: set[str] = set()
    for number, cells in rows:
        place = dict(zip(heads, cells, strict=False))
        if not place["Kernel Name"] or not place["ID"].isdecimal():
            raise UserError(f"{origin}, line {number}: a launch without a number or a kernel's name")
        launch = launches.setdefault((place.get("Process ID", ""), place["ID"]), len(launches))
        kernels[launch] = clean(place["Kernel Name"])
        if around := place.get(_RANGES, "").strip():
            ranges[launch] = clean(around)
        if details:
            name = label(place["Metric Name"], place.get("Section Name", ""))
            printed = [(name, place["Metric Unit"], place["Metric Value"])] if place["Metric Name"].strip() else []
        else:
            triples = zip(heads, units, cells, strict=True)
            printed = [(clean(head), unit, text) for head, unit, text in triples if head not in _PLACE]
        for name, unit, text in printed:
            try:
                with error_location(origin, number):
                    value = (clean(unit), parse_reading(text, unit.strip()))
            except Word:
                words.add(name)
                continue
            if readings.setdefault((launch, name), value) != value:
                raise UserError(f"{origin}, line {number}: a second value of {name} for launch {place['ID']}")
    if not readings:
        raise UserError(f"{origin}, line {header_line}: the header of ncu's CSV and no counters under it")
    counters = [
        {"launch": launch, "kernel": kernels[launch], "metric": metric, "unit": unit, "value": value}
        for (launch, metric), (unit, value) in readings.items()
        if metric not in words
    ]
    left_out = (f"{len(words)} metrics that are words",) if words else ()
    page = "details" if details else "raw"
    return Profile(
        f"ncu CSV ({page} page, {len(launches)} launches)", "ncu", counters=counters, ranges=ranges, omissions=left_out
    )
