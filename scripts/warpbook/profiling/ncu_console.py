"""What Nsight Compute prints on the console: a table for each section of each launch, or for each kernel over its
launches (`--print-summary per-kernel`)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from warpbook.common.errors import UserError
from warpbook.profiling.counter_readings import Readings
from warpbook.profiling.ncu import SPREAD_HEADS, ValueReader, device_label, label
from warpbook.profiling.printed_tables import FENCE, PrintedRun
from warpbook.profiling.profile_schema import Profile, error_location, reject_strange_name

REMEDY = "print it with ncu --csv --page raw, or `ncu --import REPORT --csv --page raw` of its report"

_LAUNCH = re.compile(
    r"(?P<kernel>[^\s=\[].*?)(?P<shape> \(\d+, \d+, \d+\)x\(\d+, \d+, \d+\))?"
    r"(?:, \d{4}-\w{3}-\d\d \d\d:\d\d:\d\d)?(?P<context>, Context \d+, Stream \d+)?"
    r"(?:, Device \d+, CC (?P<capability>\d+\.\d+))?(?:, Invocations (?P<launches>\d+))?"
)
_PART_OF_A_LAUNCH = re.compile(
    r"\(\d+, \d+, \d+\)x\(|\)x\(\d|, \d{4}-\w{3}-\d\d |, (?:Context|Stream|Device|Invocations) \d|\bCC \d|^\s*Device \d"
    r"|\) \(\d+(?:, ?\d+)*,? *$"
)
_DEVICE = re.compile(r"\s*Device \d+, CC (?P<capability>\d+\.\d+)\s*")
_SECTION = re.compile(r"\s*Section: (\w[\w .,:/()&+#-]*?)\s*")
_PROCESS = re.compile(r"\s*(?:\[\d+\] \S+@\S+|==PROF== Connected to process \d+.*)")
_ADVICE = re.compile(r"\s*[A-Z]{3}\s.*|\s*\*{2,}.*")
_RULE = re.compile(r"\s*-{3,}(?: -{3,}){2}(?: -{3,} -{3,})?\s*")
_OTHER_RULE = re.compile(r"(?=.*---)[\s-]++")
_OTHER_TABLES = re.compile(r"NVLink|NUMA|Topology")  # sections whose tables are not of metrics
_VALUE_HEADS = ["Metric Name", "Metric Unit", "Metric Value"]
_HEADS = (_VALUE_HEADS, [*_VALUE_HEADS[:2], *SPREAD_HEADS])
_NUMBER = re.compile(r"(?:\(!\) )?(?:[\d.,]*\d|n/a)")
_MOST_LINES = 5  # that a launch's line is broken into


@dataclass
class _PrintedLaunch:
    """The launch, or the kernel of so many launches, under whose line tables stand."""

    line: int
    key: tuple[str, ...] | int
    kernel: str
    shape: str
    launches: int | None
    capability: str
    rows: list[tuple[int, str, str, list[str]]] = field(default_factory=list)  # line, metric, unit, values


@dataclass
class _Run:
    first: int
    last: int = 0
    launches: list[_PrintedLaunch] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def _launch(line: str) -> re.Match[str] | None:
    match = _LAUNCH.fullmatch(line.strip())
    if not match or not (match["context"] or match["launches"]):
        return None
    try:
        reject_strange_name(match["kernel"].rstrip())
    except ValueError:
        return None
    return match


def _is_other(line: str) -> bool:
    """Whether a line cannot be a part of a launch's line: ncu's messages, sections, rules, and no words at all."""
    others = (_SECTION, _PROCESS, _ADVICE, _RULE, _OTHER_RULE, _DEVICE, FENCE)
    return not line.strip() or line.startswith("==") or any(other.fullmatch(line) for other in others)


def _tight(name: str) -> str:
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(name.split()))


def _launch_at(lines: Sequence[str], place: int) -> tuple[re.Match[str], int] | None:
    """(a launch's line, how many lines it takes) at a place; None if none begins. ValueError where unsure."""
    for taken in range(1, _MOST_LINES + 1):
        pieces = lines[place : place + taken]
        if len(pieces) < taken or _is_other(pieces[-1]):
            break
        following = next((line for line in lines[place + taken :] if line.strip()), "")
        if not _SECTION.fullmatch(following) and not following.startswith("=="):
            continue
        texts = [pieces[0]]
        for piece in pieces[1:]:  # a blank may have stood where the line was broken, or not
            ends = (" ",) if texts[0][-1:].isspace() else ("", " ")
            texts = [text.rstrip() + between + piece.lstrip() for text in texts for between in ends]
        found = [match for text in texts if (match := _launch(text))]
        if len({_tight(match["kernel"]) for match in found}) > 1 or (found and taken > 1 and _launch(pieces[-1])):
            raise ValueError("the line of a launch is broken inside of a name: join it with the next")
        if found:
            return found[-1], taken
    if _PART_OF_A_LAUNCH.search(lines[place]):
        raise ValueError(
            f"{lines[place].strip()[:60]!r} is part of a launch's line, or has no section under it: {REMEDY}"
        )
    return None


def _cells(line: str, rule: str) -> list[str]:
    """A row's cells, under the dashes that show how wide each column is."""
    spans: list[tuple[int, int | None]] = [match.span() for match in re.finditer("-+", rule)]
    if any(line[end:begin].strip() for (_, end), (begin, _) in pairwise([(0, 0), *spans])):
        raise ValueError(f"{line.strip()[:60]!r} does not stand under its columns' heads: {REMEDY}")
    spans[-1] = (spans[-1][0], None)
    return [line[begin:end].strip() for begin, end in spans]


def _is_row(line: str, rule: str) -> bool:
    """Whether a line is a row of a table with that rule: a name, a unit without blanks, and a number under its dashes."""
    try:
        name, unit, *values = _cells(line, rule)
    except ValueError:
        return False
    return bool(name) and " " not in unit and any(_NUMBER.fullmatch(value) for value in values)


def parts(lines: Sequence[str], origin: str, first_line: int = 1) -> list[PrintedRun]:
    """The profiles in ncu's console text, one for each process. UserError names the line of what is wrong."""
    lines = [line.expandtabs() for line in lines]
    if not any(_SECTION.fullmatch(line) or _launch(line) for line in lines):
        return []
    runs: list[_Run] = []
    section = capability = rule = closed = ""
    begin = opened = taken = 0
    heads: list[str] = []
    place = ""  # what may come next: a "section" under a launch, a "table" under its section, or "advice" under both
    for index, line in enumerate(lines):
        number = index + first_line
        taken -= 1
        if taken > 0:
            continue
        with error_location(origin, number):
            if rule:
                closed = rule
                rule, heads = _in_table(line, rule, heads, runs, section, number, opened)
                place = "advice" if not rule else place
            elif match := _PROCESS.fullmatch(line):
                if runs and runs[-1].last > begin:
                    begin = number
                begin = begin or number
            elif match := _DEVICE.fullmatch(line):
                capability, begin = match["capability"], begin or number
            elif match := _SECTION.fullmatch(line):
                section, place, closed = match[1], "table", ""
            elif _RULE.fullmatch(line):
                below = lines[index + 1].split()[:2] if index + 1 < len(lines) else []
                if place == "table" and not runs:
                    raise ValueError(f"a table without the line of its kernel above it: {REMEDY}")
                if place == "table":
                    rule, heads, opened = line, [], number
                elif index and _is_row(lines[index - 1], line):
                    raise ValueError("the end of a table, and no line above it that begins one")
                elif below == _VALUE_HEADS[0].split():
                    raise ValueError("a table of metrics without the line of its section above it")
            elif line.split()[:4] == ["Metric", "Name", "Metric", "Unit"]:
                raise ValueError("the heads of a table without the dashes above them")
            elif place == "table" and _OTHER_TABLES.search(section) and _OTHER_RULE.fullmatch(line):
                place = "advice"
                runs[-1].left_out.append(f"the table at line {number}")
            elif _ADVICE.fullmatch(line) and not _PART_OF_A_LAUNCH.search(line):
                place = "advice"
            elif line.strip() and not _is_other(line):
                found = _launch_at(lines, index)
                if found:
                    match, taken = found
                    if not runs or begin > runs[-1].first:
                        runs.append(_Run(begin or number))
                    begin = runs[-1].first
                    launches = int(match["launches"][:9]) if match["launches"] else None
                    shape = (match["shape"] or "").strip()
                    key = (capability, match["kernel"], shape) if launches else number
                    runs[-1].launches.append(
                        _PrintedLaunch(number, key, match["kernel"], shape, launches, match["capability"] or capability)
                    )
                    section, place = "", "section"
                elif place in ("section", "table"):
                    raise ValueError(f"{line.strip()[:60]!r} stands where a {place} has to come")
                elif closed and _is_row(line, closed):
                    raise ValueError(f"{line.strip()[:60]!r} is a row outside of its table, whose end is above it")
    if rule:
        raise UserError(f"{origin}, line {opened}: the table that begins here is cut off: no dashes close it")
    return [
        PrintedRun("ncu console text", run.first, run.last, partial(_profile, run, origin)) for run in runs if run.last
    ]


def _in_table(
    line: str, rule: str, heads: list[str], runs: list[_Run], section: str, number: int, opened: int
) -> tuple[str, list[str]]:
    """Read a line of a table; gives its rule and its heads, an empty rule where the table ends."""
    rows = runs[-1].launches[-1].rows
    has_rows = bool(rows) and rows[-1][0] > opened
    if _RULE.fullmatch(line):
        if line.strip() != rule.strip():
            raise ValueError(f"a table other than that of line {opened}, which is cut off")
        if heads and not has_rows:
            return rule, heads  # the dashes under the heads
        if not has_rows:
            raise ValueError("two lines of dashes and no row between them")
        runs[-1].last = number
        return "", []
    if not line.strip():
        return rule, heads
    cells = _cells(line, rule)
    if cells[0] == _VALUE_HEADS[0]:
        if cells not in _HEADS or heads or has_rows:
            raise ValueError(f"a table of {', '.join(cells)}, not of metrics: {REMEDY}")
        return rule, cells
    if not cells[0] or not all(cells[2:]) or not all(cell.strip("-") for cell in cells if cell):
        raise ValueError(f"{line.strip()[:60]!r} has no name or no value")
    rows.append((number, label(cells[0], section), cells[1], cells[2:]))
    return rule, heads


def _profile(run: _Run, origin: str) -> Profile:
    """The counters of a run. A label gets its section, as from the details page: `Occupancy/Achieved Occupancy`."""
    readings = Readings(origin, of_ncu=True)
    reader = ValueReader(readings, (text for launch in run.launches for *_, texts in launch.rows for text in texts))
    for launch in run.launches:
        if not launch.rows:
            raise UserError(f"{origin}, line {launch.line}: a launch of {launch.kernel[:60]} without any counter")
        with error_location(origin, launch.line):
            key = readings.launch(launch.key, launch.kernel, launch.launches, launch.shape)
        readings.devices[device_label(launch.capability)] = None
        for line, metric, unit, texts in launch.rows:
            reader.add(line, key, metric, unit, texts)
    what = f"ncu console text ({len(readings)} launches or kernels)"
    return readings.profile(what, "ncu", left_out=run.left_out)
