"""What Nsight Compute prints as CSV (`ncu --csv`), and what each of its readings says."""

import re
from collections.abc import Hashable, Iterable, Sequence
from functools import partial

from warpbook.common.errors import UserError
from warpbook.profiling import profile_schema
from warpbook.profiling.counter_readings import Readings
from warpbook.profiling.printed_tables import PrintedRun, ProfilerTable, find
from warpbook.profiling.profile_schema import Profile

_NUMBER = re.compile(r"(?:\(!\) )?(-?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[+-]\d+)?))(?: \(.*\))?")
_NONE = re.compile(r"(?:\(!\) )?(?:n/a|-?nan|-?inf|no data|)", re.IGNORECASE)
_WORD = re.compile(r"(?:\(!\) )?(?:[A-Za-z]|\((?![\d.,]+\)))(?:(?!.*\s\s).*[^\\|;>])?")
_COUNTED = re.compile(
    r"(?:(?:ns|nsec|nsecond|register|cycle|inst|warp|thread|block|sector|request|byte)s?(?:/\w+)?)?", re.IGNORECASE
)
_EITHER = re.compile(r"\d{1,3}[.,]\d{3}")  # thousands, or three decimals
_WITH_POINT = re.compile(r"[\d,]*\.(?:\d{1,2}|\d{4,})|\d{1,3}(?:,\d{3}){2,}(?:\.\d+)?|\d{1,3},\d{3}\.\d+")
_RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
_PLACE = {
    _RANGES, "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name",
}  # fmt: skip
DEVICE_NAME = "device__attribute_display_name"
SPREAD_HEADS = ["Minimum", "Maximum", "Average"]


def label(metric: str, section: str) -> str:
    """A metric's name, or its label on the details page with the section that tells it from others."""
    metric, section = profile_schema.clean(metric), profile_schema.clean(section)
    return metric if "__" in metric or not section else f"{section}/{metric}"


class Word(Exception):
    """A metric whose value is no number, such as CachePreferNone."""


class ValueReader:
    """Reads the values of one file, whose numbers all have the same decimal mark: a point, where ncu printed them `for_us`."""

    def __init__(self, readings: Readings, texts: Iterable[str], for_us: bool = False) -> None:
        self._readings = readings
        self._for_us = for_us
        self.known_point = for_us or any(map(_WITH_POINT.fullmatch, map(str.strip, texts)))

    def add(self, line: int, key: Hashable, metric: str, unit: str, texts: list[str], once_more: bool = False) -> None:
        """Add a printed value, or least, most and average, to the readings. UserError with the line of what is none."""
        try:
            with profile_schema.error_location(self._readings.origin, line):
                values = [self.value(text, unit) for text in texts]
        except Word:
            self._readings.words.add(metric)
            return
        if len(values) == 1:
            self._readings.add(line, key, metric, unit, values[0], once_more)
        else:
            self._readings.add_spread(line, key, metric, [(unit, value) for value in values])

    def value(self, text: str, unit: str) -> float | None:
        """A counter's value, None where ncu gave none. Word for a word, ValueError for another decimal mark."""
        text = text.strip()
        if _NONE.fullmatch(text):
            return None
        match = _NUMBER.fullmatch(text)
        if not match:
            profile_schema.reject_other_marks(text)
            profile_schema.reject_thousands_point(text)
            if not _WORD.fullmatch(text):
                raise ValueError(f"{text[:60]!r} is no value of a counter")
            if unit:
                raise ValueError(f"{text[:60]!r} {unit} is no value of a counter: a cell is lost, or moved")
            raise Word
        if unit == "%" and not self._for_us:
            profile_schema.reject_ambiguous_comma(match[1], unit)
        counted = bool(_COUNTED.fullmatch(unit))
        if not self.known_point and _EITHER.fullmatch(match[1]) and counted == ("." in match[1]):
            whole, part = re.split(r"[.,]", match[1])
            raise ValueError(f"{match[1]!r} {unit} is {whole}{part} or {whole}.{part}: {profile_schema.PRINT_AGAIN}")
        return float(match[1].replace(",", ""))


def device_label(capability: str) -> str:
    """A device's description by its compute capability, for texts without its name."""
    return f"a GPU of compute capability {capability}" if capability else ""


def parts(tables: Sequence[ProfilerTable], origin: str) -> list[PrintedRun]:
    """The profiles that tables of ncu's CSV make: each header begins one."""
    names = {"launches": "ncu CSV", "summary": "ncu summary as CSV"}
    readers = {"launches": _read_launches, "summary": _read_summary}
    return [
        PrintedRun(names[table.kind], table.line, table.last, partial(readers[table.kind], table, origin))
        for table in tables
        if table.kind in readers
    ]


def read_page(lines: Sequence[str]) -> Profile | None:
    """The launches on the raw page that ncu printed for us, their kernels by name alone; None where it printed none."""
    origin = "ncu's raw page"
    launches = [table for table in find(lines, origin) if table.kind == "launches"]
    return _read_launches(launches[0], origin, for_us=True) if launches else None


def _shape(place: dict[str, str]) -> str:
    shape = f" {place.get('Grid Size', '')}x{place.get('Block Size', '')}"
    if "(" in shape and not profile_schema.SHAPE.fullmatch(shape):
        raise ValueError(f"{shape.strip()[:60]!r} is no shape of a grid and its blocks, as (100, 8, 1)x(16, 16, 1)")
    return shape.strip(" x")


def _read_launches(table: ProfilerTable, origin: str, for_us: bool = False) -> Profile:
    """Nsight Compute's CSV, `--page raw` (a row a launch) or `--page details` (a row a metric, whose label gets its
    section). Metrics that are words are left out; grids too of what ncu printed `for_us`. UserError names the line."""
    heads, rows = table.heads, table.rows
    details = "Metric Name" in heads
    needed = ["ID", "Kernel Name", *(["Metric Value", "Metric Unit"] if details else [])]
    table.require(needed, origin)
    units = [""] * len(heads)
    if not details and rows:
        (number, units), *rows = rows
        if units[heads.index("ID")]:
            raise UserError(f"{origin}, line {number}: a launch where the row of the columns' units has to be")
    readings = Readings(origin, of_ncu=not for_us)
    ranges: dict[int, str] = {}
    numbers: dict[tuple[str, str], int] = {}
    count: dict[str, int] = {}  # of a process' launches, by their numbers, which begin with 0
    values = [head == "Metric Value" if details else head not in _PLACE for head in heads]
    texts = (cell for _, cells in rows for cell, is_value in zip(cells, values, strict=False) if is_value)
    reader = ValueReader(readings, texts, for_us)
    for number, cells in rows:
        place = dict(zip(heads, cells, strict=False))
        if not place["Kernel Name"] or not place["ID"].isdecimal():
            raise UserError(f"{origin}, line {number}: a launch without a number or a kernel's name")
        key = (place.get("Process ID", ""), place["ID"])
        count[key[0]] = max(count.get(key[0], 0), int(place["ID"][:18]) + 1)
        launch = numbers.setdefault(key, len(numbers))
        with profile_schema.error_location(origin, number):
            readings.launch(key, place["Kernel Name"], shape="" if for_us else _shape(place))
        readings.devices[place.get(DEVICE_NAME) or device_label(place.get("CC", ""))] = None
        if around := place.get(_RANGES, "").strip():
            ranges[launch] = profile_schema.clean(around)
        if details:
            name = label(place["Metric Name"], place.get("Section Name", ""))
            printed = [(name, place["Metric Unit"], place["Metric Value"])] if place["Metric Name"].strip() else []
        else:
            triples = zip(heads, units, cells, strict=True)
            printed = [(profile_schema.clean(head), unit, text) for head, unit, text in triples if head not in _PLACE]
        for name, unit, text in printed:
            reader.add(number, key, name, unit.strip(), [text], once_more=True)
    if not rows or not (len(readings) and readings.rows()):
        raise UserError(f"{origin}, line {table.line}: the header of ncu's CSV and no counters under it")
    what = f"ncu CSV ({'details' if details else 'raw'} page, {len(readings)} launches)"
    whole = sum(count.values())
    left_out = (f"{whole - len(numbers)} of {whole} launches, by their numbers",) if whole > len(numbers) else ()
    return readings.profile(what, "ncu", ranges, left_out)


_SUMMARY_PLACE = ("Process ID", "Device", "Kernel Name", "Block Size", "Grid Size", "Context", "Stream")


def _read_summary(table: ProfilerTable, origin: str) -> Profile:
    """The CSV of `ncu --print-summary per-kernel`: a row for each metric over the launches of a kernel."""
    readings = Readings(origin, of_ncu=True)
    table.require((*SPREAD_HEADS, "Metric Unit"), origin)
    rows = [(number, dict(zip(table.heads, cells, strict=True))) for number, cells in table.rows]
    reader = ValueReader(readings, (row[head] for _, row in rows for head in SPREAD_HEADS))
    for number, row in rows:
        if not row["Kernel Name"] or not row["Invocations"].isdecimal() or row["Invocations"].strip("0") == "":
            raise UserError(f"{origin}, line {number}: a row without a kernel's name or its number of invocations")
        place = tuple(row.get(name, "") for name in _SUMMARY_PLACE)
        with profile_schema.error_location(origin, number):
            key = readings.launch(place, row["Kernel Name"], int(row["Invocations"][:9]), _shape(row))
        readings.devices[device_label(row.get("CC", ""))] = None
        metric = label(row["Metric Name"], row.get("Section Name", ""))
        reader.add(number, key, metric, row["Metric Unit"], [row[which] for which in SPREAD_HEADS])
    what = f"ncu summary as CSV ({len(readings)} kernels)"
    return readings.profile(what, "ncu")
