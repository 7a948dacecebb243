"""What a profile is read into, the figures that profilers print, and the sums that must agree with them. A figure is
read exactly: `5.9230us` is 5923 ns. What cannot be right is a ValueError with the reason; `error_location` adds the
file and the line."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from statistics import median
from typing import Any, NamedTuple

from warpbook.common.errors import UserError

EVENTS_AT_MOST = 250_000  # events of one profile that are kept one by one; of a longer one only the sums

_NS = {
    **dict.fromkeys(("ns", "nsec"), 1),
    # µ is two characters of Unicode; a converter may have lost the s
    **dict.fromkeys(("us", "usec", "\u00b5s", "\u03bcs", "u"), 10**3),
    **dict.fromkeys(("ms", "msec"), 10**6),
    **dict.fromkeys(("s", "sec"), 10**9),
}
TIME_UNIT = "|".join(sorted(map(re.escape, _NS), key=len, reverse=True))
_NUMBER = re.compile(r"(\d{1,3}(?:,\d{3}){1,5}|\d{1,18})(\.\d{1,12})?")
_TIME = re.compile(rf"({_NUMBER.pattern}) ?({TIME_UNIT})?")
_OTHER_MARKS = re.compile(r"(?=.*\d[,'\u2019_ ]\d)[<-]?[\d.,'\u2019_\s]++(?:%|[a-zA-Z\u00b5\u03bc/]{1,7})?")
_COUNTED = ("ns", "nsec", "B", "")  # units of whole numbers
_EITHER = re.compile(r"(\d{1,3},\d{3}) ?([^\d\s]*)")  # thousands, or three decimals
_EITHER_POINT = re.compile(r"(\d{1,3}(?:\.\d{3})+) ?([^\d\s.]*)")
SHAPE = re.compile(r" \(\d+, \d+, \d+\)x\(\d+, \d+, \d+\)$")
_NO_BRACKET = re.compile(r"->|[<>]=|<<|>>(?=\d)")
_NAME_BEGIN = re.compile(r"[A-Za-z_~\[]|\(anonymous namespace\)|<unnamed>")
_NO_NAME = re.compile(r"[,#|\"\u2500-\u257f]|\s\s|(?:^|\s)\d|\)\s?(?!const\b)\w")  # in no brackets
_NEVER = re.compile(
    r"[\\;\u2010-\u2015]|(?<!:)(?<!\[abi):(?!:)|\s\|(?!\|)|\d{4}-\d\d-\d\d|,\s*> \w|.\[CUDA |</|(?<!operator\()\)<|^\[[\w -]+\](?! \[\d+\]$).|\) +\(\d[\d, ]*\)"
)  # of no name a part
_TWO_WORDS = re.compile(r"\b([A-Za-z]\w*)\s+(?=([A-Za-z]\w*))")
TYPES = {"void", "bool", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "const", "volatile"}
"""Words that a type is made of."""
_BEFORE_A_WORD = TYPES | {
    "struct", "class", "enum", "union", "auto", "operator", "lambda", "instance", "unnamed", "anonymous", "type",
}  # fmt: skip
_BEHIND_A_WORD = {"const", "volatile"}
_NO_KERNEL = re.compile(r"\[(?!CUDA (?:Unified Memory )?mem(?:cpy|set)\b|Unified Memory )")  # nor a copy or memset
_API = re.compile(r"cu(da)?[A-Z]\w*")
_API_VERSION = re.compile(r"_v\d{4,}(_pt(sz|ds))?$")
_COPIES = (
    ("memcpy_htod", re.compile(r"HtoD|Host-to-Device")),
    ("memcpy_dtoh", re.compile(r"DtoH|Device-to-Host")),
    ("memcpy_dtod", re.compile(r"DtoD|Device-to-Device")),
)
_ROLES = {
    "share": ("time%",), "total": ("time", "totaltime"),
    "calls": ("calls", "call", "numcalls", "instances", "count", "operations"),
    "avg": ("avg", "average"), "med": ("med",), "min": ("min", "minimum"), "max": ("max", "maximum"),
    "name": ("name", "operation", "range", "kernelfunction"), "type": ("type", "category"),
    "start": ("start",), "duration": ("duration",), "correlation": ("corrid", "correlation_id"),
    "grid_x": ("grdx", "gridx"), "grid_y": ("grdy", "gridy"), "grid_z": ("grdz", "gridz"),
    "block_x": ("blkx", "blockx"), "block_y": ("blky", "blocky"), "block_z": ("blkz", "blockz"),
    "registers": ("reg/trd", "registersperthread"), "static": ("stcsmem", "staticsmem"),
    "dynamic": ("dymsmem", "dynamicsmem"), "bytes": ("bytes", "size"), "stream": ("strm", "stream"),
    "device": ("device",),
}  # fmt: skip
_ROLE_OF = {head: role for role, heads in _ROLES.items() for head in heads}

Row = dict[str, Any]


@dataclass(frozen=True)
class Profile:
    """What one file holds: `what` it is, the `tool` that made it, and its rows, as yet without variant and size.

    Events carry the columns of ACTIVITIES with times in ns on the tool's own clock; summaries those of SUMMARIES;
    counters those of COUNTERS; `ranges` the NVTX ranges around launches, as the tool prints them. `omissions` names
    what the file holds besides, or shows to be missing, `device` the GPUs where it says which.
    """

    what: str
    tool: str
    events: list[Row] = field(default_factory=list)
    summaries: list[Row] = field(default_factory=list)
    counters: list[Row] = field(default_factory=list)
    ranges: dict[int, str] = field(default_factory=dict)
    omissions: tuple[str, ...] = ()
    device: str = ""


class PrintedNumber(NamedTuple):
    """A printed number: its value, and what one more in its last digit would add."""

    value: Decimal
    step: Decimal

    def whole(self) -> int:
        """The value as an integer; ValueError when it is finer than that."""
        if self.value != self.value.to_integral_value():
            raise ValueError(f"{self.value.normalize():f} is finer than 1")
        return int(self.value)


@contextmanager
def error_location(origin: str, line: int) -> Iterator[None]:
    """Turn a ValueError into a UserError that begins with the file and the line."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{origin}, line {line}: {error}") from error


PRINT_AGAIN = "have the profiler print it again under LC_ALL=C, or import its own report file"


def reject_other_marks(text: str, anywhere: bool = False) -> None:
    """ValueError where a number has another mark than a comma between thousands; with `anywhere`, for each mark."""
    number = text.strip()
    read = not anywhere and re.match(_NUMBER.pattern + r"(?![\d.,'\u2019_]| \d)", number)
    if _OTHER_MARKS.fullmatch(number) and not read:
        raise ValueError(f"{number!r} has other marks in it than 1,234.5: {PRINT_AGAIN}")


def reject_thousands_point(text: str, unit: str = "") -> None:
    """ValueError for a whole number such as `1.234`, whose point stands between thousands or before three decimals."""
    match = _EITHER_POINT.fullmatch(text.strip())
    if match and (match[2] or unit) in _COUNTED:
        whole = match[1].replace(".", "")
        raise ValueError(f"{text.strip()!r} is {whole}, or it is no whole number: {PRINT_AGAIN}")


def reject_ambiguous_comma(text: str, unit: str) -> None:
    """ValueError for a number such as `4,194` where decimals are printed too: its comma can be either."""
    match = _EITHER.fullmatch(text.strip())
    if match and (unit := match[2] or unit) not in _COUNTED:
        whole, part = match[1].split(",")
        raise ValueError(f"{match[1]!r} {unit} is {whole}{part} or {whole}.{part}: {PRINT_AGAIN}")


def parse_number(text: str, scale: int = 1) -> PrintedNumber:
    """A printed number such as `1,979,310` or `13.166`, times `scale`; ValueError when it is none."""
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        reject_other_marks(text)
        raise ValueError(f"{text.strip()!r} is no number of at most 18 digits")
    value = Decimal(text.strip().replace(",", ""))
    if value * scale >= 2**63:
        raise ValueError(f"{text.strip()!r} is more than 64 bits hold")
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)  # what matches _NUMBER is neither infinite nor NaN
    return PrintedNumber(value * scale, Decimal(scale).scaleb(exponent))


def time_ns(text: str, unit: str = "") -> PrintedNumber:
    """A printed time in ns: `1.97931s`, `5.9230us`, `13.166` where `unit` is ms. Its own unit goes before `unit`."""
    match = _TIME.fullmatch(text.strip())
    if not match or not (match[4] or unit):
        reject_other_marks(text)
        raise ValueError(f"{text.strip()!r} is no time; times are printed as 1.97931s, 13.166ms, 5.9230us or 897ns")
    if (match[4] or unit) not in _NS:
        raise ValueError(f"{unit!r} is no unit of time; known: {', '.join(_NS)}")
    return parse_number(match[1], _NS[match[4] or unit])


def size_bytes(text: str, unit: str, kilo: int) -> int | None:
    """A printed size in bytes, None if open by more than 1 %, as 0.001 MB. `unit`: KB of `kilo`, KiB, and so on."""
    power = "BKMG".find(unit.upper()[:1] or "?")
    if power < 0 or unit.upper()[1:] not in ("", "B", "IB"):
        raise ValueError(f"{unit!r} is no unit of size; known: B, KB, MB, GB, KiB, MiB, GiB")
    size = parse_number(text, (1024 if "i" in unit else kilo) ** power)
    return round(size.value) if size.step <= max(Decimal(2), size.value / 50) else None


def role(head: str) -> tuple[str, str]:
    """(what a column is, its unit): `Total Time (ns)` is ("total", "ns"); a column that is not read is ("", ...)."""
    name, _, unit = head.strip().removesuffix(")").partition("(")
    name = "".join(name.lower().split())
    return _ROLE_OF.get(name + "%" if unit == "%" else name, ""), unit.strip()


def column_roles(heads: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """(role, unit) of each column; ValueError where they are neither those of sums nor those of a trace."""
    heads = [*heads]
    columns = tuple(role(head) for head in heads)
    for head, (known, _) in zip(heads, columns, strict=True):
        words = head.partition("(")[0].lower().split()
        once = "".join(dict.fromkeys(words))
        if not known and (once in _ROLE_OF or any("".join(words) in name for name in _ROLE_OF)):
            raise ValueError(f"{head!r} is no whole name of a column")  # a word is lost or stands twice
    names = [name for name, _ in columns if name]
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise ValueError(f"two columns for the {doubled[0]}")
    if not any(needed <= {*names} for needed in ({"share", "total", "name"}, {"start", "duration", "name"})):
        raise ValueError(f"a header with {', '.join(names) or 'nothing known'}, without share, total and name")
    return columns


def clean(name: str) -> str:
    """A name on one line and fit for a table; an API function without the version of its entry point."""
    return _API_VERSION.sub("", " ".join(name.replace("\0", " ").split()))


def reject_strange_name(name: str) -> None:
    """ValueError for what no kernel and no copy is called: the rest of a broken line, or a name that is cut off."""
    name = SHAPE.sub("", name)
    angles = depth = 0
    lone, before = False, ""
    outside = []  # what stands in no brackets
    for character in _NO_BRACKET.sub("", name):
        lone |= character == ">" and not angles and before != ">"  # a converter may have doubled one
        depth += (character in "([{") - (character in ")]}")
        angles, before = max(0, angles + (character == "<") - (character == ">")), character
        outside.append("" if depth or angles or character in "]}>" else character)
        if depth < 0:
            break
    strange = bool(_NEVER.search(name) or _NO_NAME.search("".join(outside)))
    if not name.startswith("["):
        pairs = _TWO_WORDS.findall(name)
        strange = strange or any(a not in _BEFORE_A_WORD and b not in _BEHIND_A_WORD for a, b in pairs)
    if depth < 0 or not _NAME_BEGIN.match(name) or ")x(" in name or strange or not name.isprintable():
        raise ValueError(f"{name[:60]!r} is no name of a kernel: a line is broken, or a mark was added to it")
    if _NO_KERNEL.match(name):
        raise ValueError(f"{name[:60]!r} is neither a copy nor a memset, as [CUDA memcpy HtoD] is: a word is lost")
    closed = not (depth or angles or lone)
    if not closed and not name.endswith(("...", "\u2026")) and "operator" not in name:
        raise ValueError(f"the name {name[:60]!r} is cut off: its brackets do not open and close")


def is_api(name: str) -> bool:
    """Whether a name is that of a function of the runtime or the driver API."""
    return _API.fullmatch(name) is not None


def reject_other_call(name: str) -> None:
    """ValueError for what is no call of CUDA; nvprof's trace puts the kernel in brackets behind a launch's name."""
    if not is_api(name.partition(" (")[0]):
        raise ValueError(f"{name[:60]!r} is no call of CUDA's API")


def activity_kind(name: str, api: bool) -> str:
    """The kind, as ACTIVITIES has it, of what a profiler calls `name`; `api`: it is a call, not work of the device."""
    if api:
        return "api_driver" if re.match(r"cu[A-Z]", name) else "api_runtime"
    if name.startswith("[CUDA memset"):
        return "memset"
    if name.startswith(("[CUDA", "[Unified Memory")):
        return next((kind for kind, words in _COPIES if words.search(name)), "memcpy_other")
    return "kernel"


def event(kind: str, name: str, start: int, end: int, **details: Any) -> Row:
    """A row of events; what `details` (stream, correlation, grid, ...) does not give is empty."""
    nothing = dict.fromkeys(("stream", "correlation", "registers", "shared_bytes", "static_shared_bytes", "bytes"))
    return {"kind": kind, "name": name, "start_ns": start, "end_ns": end, "grid": "", "block": "", **nothing, **details}


def traced_event(cells: Mapping[str, tuple[str, str]], kilo: int) -> Row:
    """An event from the printed cells of a trace, {role: (text, unit)}; `kilo` is what the tool's KB stands for."""

    def text(name: str) -> str:
        return cells[name][0].strip() if name in cells else ""

    def number(name: str) -> int | None:
        digits = text(name)
        if digits.isdecimal() and len(digits) <= 18:
            return int(digits)
        reject_thousands_point(digits)
        return parse_number(digits).whole() if digits else None

    def extent(name: str) -> str:
        axes = [number(f"{name}_{axis}") for axis in "xyz"]
        if None in axes and any(axes):
            raise ValueError(f"the {name} has not three extents: a column or a cell is lost")
        return "" if None in axes else "x".join(map(str, axes))

    def size(name: str) -> int | None:
        if name in cells:
            reject_ambiguous_comma(*cells[name])
        return size_bytes(*cells[name], kilo) if text(name) else None

    static, dynamic = size("static"), size("dynamic")
    name, start = clean(cells["name"][0]), time_ns(*cells["start"]).whole()
    if not name:
        raise ValueError("the event has no name")
    for time in ("start", "duration"):
        reject_ambiguous_comma(*cells[time])
    api = not text("grid_x") and not name.startswith("[")
    if api:
        reject_other_call(name)
    else:
        reject_strange_name(name)
    return event(
        activity_kind(name, api),
        name,
        start,
        start + time_ns(*cells["duration"]).whole(),
        stream=number("stream"),
        correlation=number("correlation"),
        grid=extent("grid"),
        block=extent("block"),
        registers=number("registers"),
        shared_bytes=None if static is None or dynamic is None else static + dynamic,
        static_shared_bytes=static,
        bytes=size("bytes"),
    )


@dataclass(frozen=True)
class SumRow:
    """A printed row of sums: the share in percent (`below`: only known to be less), times in ns."""

    line: int
    name: str
    share: PrintedNumber
    below: bool
    total: PrintedNumber
    calls: int | None = None
    avg: PrintedNumber | None = None
    min: PrintedNumber | None = None
    max: PrintedNumber | None = None

    def whole_ns(self) -> tuple[float, float]:
        """The least and the most that the whole can be of which `total` is `share`."""
        step = float(self.share.step + self.share.value / 10**6)  # shares printed to six decimals are not all good
        low = float(self.total.value - self.total.step) / (float(self.share.value) + step)
        least = 0.0 if self.below else float(self.share.value) - step
        return 100 * low, 100 * float(self.total.value + self.total.step) / least if least > 0 else float("inf")


def sum_row(line: int, cells: Mapping[str, tuple[str, str]], free_name: bool = False) -> SumRow:
    """A row of sums from {role: (text, unit)}; ValueError for a contradiction. `free_name`: any words name it."""
    name = clean(cells["name"][0])
    if not name:
        raise ValueError("the row has no name")
    share = cells["share"][0].strip().removesuffix("%").strip()
    reject_other_marks(share, anywhere=True)  # at most 100: its comma tells those of the other figures
    if not free_name and not is_api(name):
        reject_strange_name(name)
    if "." not in share:
        for part in ("total", "avg", "min", "max"):
            reject_ambiguous_comma(*cells.get(part, ("", "")))
    for part in ("calls", "total", "min", "max"):
        reject_thousands_point(*cells.get(part, ("", "")))
    calls = parse_number(cells["calls"][0]).whole() if "calls" in cells else None
    total = time_ns(*cells["total"])
    avg, med, least, most = (time_ns(*cells[part]) if part in cells else None for part in ("avg", "med", "min", "max"))
    for time in filter(None, (total, least, most)):
        time.whole()
    if calls == 0:
        raise ValueError(f"{name} has a row, but no calls")
    for what, middle in (("average", avg), ("median", med)):
        if middle and least and most and not least.value - middle.step <= middle.value <= most.value + middle.step:
            raise ValueError(
                f"the {what} of {name} is {middle.value:f} ns, outside its {least.value:f} to {most.value:f} ns"
            )
    # nvprof cuts an average to whole ns before it prints it
    if avg and calls and abs(avg.value * calls - total.value) > max(avg.step, Decimal(1)) * calls + total.step:
        raise ValueError(
            f"{calls} calls of {name} at {avg.value:f} ns each make {avg.value * calls:f} ns, not {total.value:f} ns"
        )
    if calls and least and most:
        slack = total.step + calls * (least.step + most.step)
        low, high = (calls - 1) * least.value + most.value, least.value + (calls - 1) * most.value
        if not low - slack <= total.value <= high + slack:
            raise ValueError(
                f"{calls} calls of {name}, one of {least.value:f} and one of {most.value:f} ns, cannot make "
                f"{total.value:f} ns"
            )
    return SumRow(
        line, name, parse_number(share.removeprefix("<")), share.startswith("<"), total, calls, avg, least, most
    )


def contradiction(rows: Sequence[SumRow]) -> tuple[int, str] | None:
    """(line, reason) where times and shares do not make one whole, within what the printed digits leave open."""
    seen: dict[tuple[Any, ...], int] = {}
    for row in rows:
        figures = (row.name, row.total, row.calls, row.avg, row.min, row.max)
        if earlier := seen.get(figures):
            return row.line, f"the row of line {earlier} once more"
        seen[figures] = row.line
    wholes = [row.whole_ns() for row in rows]
    least, most = max(low for low, _ in wholes), min(high for _, high in wholes)
    if least > most * (1 + 1e-9):
        # the row that is wrong is the one that the others outvote
        middle = median(low for row, (low, _) in zip(rows, wholes, strict=True) if row.share.value >= row.share.step)
        worst = max(range(len(rows)), key=lambda n: max(wholes[n][0] - middle, middle - wholes[n][1]) / middle)
        row = rows[worst]
        whole = row.total.value / max(row.share.value, row.share.step) * 100
        return row.line, (
            f"{float(row.total.value) / 1e6:g} ms at {row.share.value} % are of {float(whole) / 1e6:.4g} ms in all, "
            f"but the table's other rows of {middle / 1e6:.4g} ms: a time, a unit or a share is wrong"
        )
    shares = sum(row.share.value for row in rows if not row.below)
    slack = sum(row.share.step for row in rows)
    if shares > 100 + slack:
        return rows[-1].line, f"the shares add up to {shares} %, more than 100 %: rows of two tables, or one row twice"
    if shares < 100 - slack:
        return rows[-1].line, f"the shares add up to {shares} %, not 100 %: the table is cut off, or lacks rows"
    listed = sum(float(row.total.value) for row in rows)
    open_ns = sum(float(row.total.step) for row in rows)
    if not least * (1 - 1e-6) - open_ns <= listed <= most * (1 + 1e-6) + open_ns:
        return rows[-1].line, (
            f"the rows make {listed / 1e6:g} ms, and their shares are of {least / 1e6:g} to {most / 1e6:g} ms: "
            "a row is missing, or stands twice"
        )
    return None


def summary_rows(tool: str, share_of: str, rows: Iterable[SumRow], kind: str = "") -> list[Row]:
    """Printed sums as rows of SUMMARIES; `kind` where the table says it, else by each name."""
    return [
        {
            "tool": tool,
            "share_of": share_of,
            "row": number,
            "kind": kind or activity_kind(row.name, api=share_of == "api"),
            "name": row.name,
            "share_percent": None if row.below else float(row.share.value),
            "total_ns": row.total.whole(),
            "calls": row.calls,
            "avg_ns": float(row.avg.value) if row.avg else None,
            "min_ns": row.min.whole() if row.min else None,
            "max_ns": row.max.whole() if row.max else None,
        }
        for number, row in enumerate(rows)
    ]


class Sums:
    """Calls and times of events by kind and name, which need not be kept for it."""

    def __init__(self) -> None:
        self._merged: dict[tuple[str, str], tuple[int, int, int, int]] = {}

    def add(self, event: Row) -> None:
        kind, name, length = event["kind"], event["name"], event["end_ns"] - event["start_ns"]
        calls, total, least, most = self._merged.get((kind, name), (0, 0, length, length))
        self._merged[kind, name] = (calls + 1, total + length, min(least, length), max(most, length))

    def rows(self, tool: str) -> list[Row]:
        """Rows of SUMMARIES; shares are of each `activity_group`."""
        rows: list[Row] = []
        for share_of in ("gpu", "api", "range"):
            within = [(key, of) for key, of in self._merged.items() if activity_group(key[0]) == share_of]
            whole = sum(total for _, (_, total, _, _) in within)
            for number, ((kind, name), (calls, total, least, most)) in enumerate(
                sorted(within, key=lambda g: -g[1][1])
            ):
                rows.append(
                    {"tool": tool, "share_of": share_of, "row": number, "kind": kind, "name": name,
                     "share_percent": 100 * total / whole if whole else None, "total_ns": total, "calls": calls,
                     "avg_ns": total / calls, "min_ns": least, "max_ns": most}
                )  # fmt: skip
        return rows


def sums(tool: str, events: Iterable[Row]) -> list[Row]:
    """Rows of SUMMARIES from events; shares are of each `activity_group`."""
    found = Sums()
    for event in events:
        found.add(event)
    return found.rows(tool)


def activity_group(kind: str) -> str:
    """Which whole a kind of event is part of: gpu (kernels, copies, sets), api or range."""
    return "api" if kind.startswith("api_") else "range" if kind == "range" else "gpu"


def limit_events(profile: Profile) -> Profile:
    """The profile itself, or its sums where it has more than EVENTS_AT_MOST events, and that said."""
    if len(profile.events) <= EVENTS_AT_MOST:
        return profile
    rows = sums(profile.tool, profile.events)
    printed = {row["share_of"] for row in profile.summaries}
    return replace(
        profile,
        what=summary_title(profile.what, len(profile.events)),
        events=[],
        summaries=[*profile.summaries, *(row for row in rows if row["share_of"] not in printed)],
    )


def summary_title(what: str, events: int) -> str:
    """What to call a profile of so many events, of which only the sums are kept."""
    return f"{what}, {events:,} events summarised (at most {EVENTS_AT_MOST:,} are kept one by one)"
