"""Tables as profilers print them: their heads, their rows, and where they end.

Every text is read by one rule. A table begins with its heads and ends where its tool says so: with a blank line, the
tool's next message, or the end of the file. A line before that which is no row refuses the file, with the line. A row
outside of a table refuses it too: the line of its columns' names was lost.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from warpbook.common.errors import UserError
from warpbook.profiling.profile_schema import Profile, column_roles, reject_other_marks

FENCE = re.compile(
    r"\s*(?:`{3,}|~{3,}|</?\w+>.*|\\(?:begin|end)\{\w+\}|\{\w+\}|\[/?\w+\]|#\+(?:begin|end)_\w+)\s*\w*\s*"
)
"""What a page puts around a text that it quotes."""

# nsys names the report, or before 2021 the unit of its times, above a table.
_REPORT = re.compile(
    r"\s*(?:\*\* .*\((\w+)\):|Processing \[(.*)\] with \[(?:.*/)?(\w+?)(?:\.py)?\]|\[\d+/\d+\] Executing '(\w+)' stats report)"
)
_CAPTION = re.compile(r"\b(?:CUDA|NVTX|Operating System|OpenGL|OpenACC)\b.* Statistics(?: \((\w+)\))?")
READ_REPORT = re.compile(r"(?:cuda_?)?(?:api|gpu)_?(?:kern|mem_?time)?_?(?:gb_?)?(?:sum|trace)|nvtx_?(?:pushpop_?)?sum")
_NSYS_MESSAGE = re.compile(r"\s*(?:Generating |NOTICE|SKIPPED|ERROR|\[\d+/\d+\])")
_MESSAGE = re.compile(r"[\s#*]*==+(\w*)==+[\s*]*(.*)")
_RULE = re.compile(r"(?=.*(?:--|==))[\s|+:=-]++")
_NUMBER = re.compile(r"[\d.,]*\d")
_NEEDED_OF_DETAILS = ("ID", "Kernel Name", "Section Name", "Metric Name", "Metric Unit", "Metric Value")
_TWO_NUMBERS = re.compile(r"[\s|]*[\d.]+[\s|,]+[\d.]+[\s|,]")
_UNITS = ("%", "s", "ms", "us", "ns")
_FREE_TEXT = re.compile(r"Rule|Metric Description|Est|Process Name|Host")
_CELL_LINES = 40  # a quoted cell's, of advice
_NUMBERS_OF_A_ROW = 5
_UNREAD_FIGURE = re.compile(r"Med|StdDev")
_SOME_HEAD = re.compile(r'Time ?\(%\)|\bDuration\b|(?:Kernel|Metric|Event) Name|"Kernel"|\bTotal\b')
_DECIMALS_IN_WORDS = re.compile(r"[A-Za-z/] +\d*\.\d")  # of no name a part: a program printed them
_SIZES = re.compile(r"Total(?: \(\w+\))?")
_SHAPES = ("gridxyz", "blockxyz")  # three numbers in a cell
_LAST_BEFORE_NAME = re.compile(r"[A-Za-z_~\[(<]")


@dataclass
class ProfilerTable:
    """A table: its kind, its heads, and its rows, each with its line. `first` is the line of its caption, or `line`.
    kind: sums or trace (of times), launches or summary (ncu), counters (nvprof), or other: one that nobody reads."""

    kind: str
    line: int
    heads: list[str]
    split: Callable[[str], list[str]]
    report: str = ""  # nsys' name of it
    source: str = ""  # the file that nsys made it of
    first: int = 0
    last: int = 0
    unit: str = ""  # of its times, from a caption
    section: str = ""  # nvprof's message above it
    units: list[str] = field(default_factory=list)  # of the columns, where a row of them stands above the others
    spans: list[tuple[int, int | None]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # columns that tell a row: the share or start, and unread numbers
    width: int = 0  # of a rule, to which nsys fills up rows with blanks
    padded: bool = False
    short_row: int = 0  # the line of the first row that ends before that width
    rows: list[tuple[int, list[str]]] = field(default_factory=list)

    def require(self, heads: Iterable[str], origin: str) -> None:
        """UserError names a head that the table has not once, or says that it has no rows."""
        if not self.rows:
            raise UserError(f"{origin}, line {self.line}: the names of columns and no rows under them")
        for head in heads:
            if (count := self.heads.count(head)) != 1:
                raise UserError(f"{origin}, line {self.line}: {count} columns {head!r}, not one")

    @property
    def tool(self) -> str:
        """nvprof, nsys or ncu."""
        if self.kind in ("launches", "summary"):
            return "ncu"
        heads = {head.lower() for head in self.heads}
        return "nvprof" if self.kind == "counters" or heads & {"time", "start"} else "nsys"


@dataclass(frozen=True)
class PrintedRun:
    """What one tool printed in one run, from line `first` to `last`. `read` gives the profile that it is."""

    what: str
    first: int
    last: int
    read: Callable[[], Profile]


def runs(tables: Iterable[ProfilerTable], key: Callable[[ProfilerTable], str]) -> Iterator[list[ProfilerTable]]:
    """Tables of one tool, run by run: each is of one file, and has no two tables of the same key, but without one."""
    run: list[ProfilerTable] = []
    for table in tables:
        if any(len({table.source, other.source, ""}) > 2 or key(table) == key(other) != "" for other in run):
            yield run
            run = []
        run.append(table)
    if run:
        yield run


def csv_cells(line: str, delimiter: str = ",") -> list[str]:
    """The cells of one line of CSV; csv.Error where its quotes are not closed."""
    return next(
        csv.reader(
            [part + "\n" for part in line.split("\n")], delimiter=delimiter, strict=True, skipinitialspace=', "' in line
        )
    ) or [""]


def _kind(heads: Sequence[str]) -> str:
    names = {head.lower() for head in heads}
    for kind, needed in (
        ("launches", {"id", "kernel name"}),
        ("summary", {"kernel name", "invocations", "metric name"}),
        ("counters", {"device", "kernel", "invocations"}),
        ("each launch", {"device", "context", "stream", "kernel"}),
    ):
        if needed <= names:
            return kind
    if _SIZES.fullmatch(heads[0]) and len(heads) > 3:
        return "other"
    try:
        return "trace" if "start" in dict(column_roles(heads)) else "sums"
    except ValueError:
        return ""


def _between_pipes(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [_unmarked(cell.strip()) for cell in re.split(r"(?<!\\)\|", inner)]


def _unmarked(cell: str) -> str:
    """A cell without Markdown's marks: code, bold, and backslashes before punctuation."""
    if code := re.fullmatch(r"(`+)(.*)\1", cell):
        return code[2].strip()
    cell = cell.removeprefix("**").removesuffix("**") if cell[:2] == cell[-2:] == "**" else cell
    return re.sub(r"\\([!-/:-@[-`{-~])", r"\1", cell)


def _between_tabs(line: str) -> list[str]:
    return csv_cells(line, "\t")


def _start_table(number: int, line: str, below: str, report: str) -> ProfilerTable | None:
    """The table whose heads a line has: between pipes, commas or tabs, or as columns; None for any other line."""
    if not report and not _SOME_HEAD.search(line):
        return None
    in_rule = bool(_RULE.fullmatch(below))
    for split, possible in (
        (_between_pipes, line.count("|") > 2),
        (csv_cells, line.count(",") > 1),
        (_between_tabs, "\t" in line and not in_rule),
        (re.compile(r"\s{2,}|\s*\t\s*").split, True),
    ):
        try:
            heads = [head.strip() for head in split(line.strip().rstrip(","))] if possible else [""]
        except csv.Error:
            continue
        columns = not (split is _between_pipes or split is csv_cells or split is _between_tabs)
        kind = _kind(heads) if all(heads) else ""
        unread = report and not READ_REPORT.fullmatch(report) and not _NUMBER.fullmatch(heads[0])
        if not kind and len(heads) > 2 and unread:
            kind = "other"
        if not kind or (columns and kind not in ("sums", "trace", "other")):
            continue
        table = ProfilerTable(kind, number, heads, split, report)
        if kind in ("sums", "trace") and table.tool == "nvprof" and split is not csv_cells:
            continue  # its columns are read elsewhere
        if kind in ("sums", "trace"):
            roles = [role for role, _ in column_roles(heads)]
            table.numbers = [roles.index("share" if kind == "sums" else "start")]
            table.numbers += [place for place, head in enumerate(heads) if _UNREAD_FIGURE.match(head)]
        if columns:
            if in_rule:
                spans: list[tuple[int, int | None]] = [match.span() for match in re.finditer("[-=]+", below)]
                table.width = len(below.rstrip())
                table.spans = [*spans[:-1], (spans[-1][0], None)]  # a name, last, may be longer than its rule
            table.split = _columns(table) if kind == "trace" else _words(table)
        return table
    return None


def _words(table: ProfilerTable) -> Callable[[str], list[str]]:
    """Sums leave no cell empty: words in their order, whatever became of the columns; the last cell takes the rest."""
    counts = [3 if head.lower() in _SHAPES else 1 for head in table.heads[:-1]]

    def split(line: str) -> list[str]:
        words = line.split(None, sum(counts))
        cells = [" ".join(words[sum(counts[:n]) : sum(counts[: n + 1])]) for n in range(len(counts))]
        return [cell for cell in [*cells, *words[sum(counts) :]] if cell]

    return split


def _columns(table: ProfilerTable) -> Callable[[str], list[str]]:
    """A trace leaves cells empty: they stand under the dashes of their heads."""

    def split(line: str) -> list[str]:
        between = [line[end:begin] for (_, end), (begin, _) in pairwise([(0, 0), *table.spans])]
        if not table.spans or any(gap.strip() for gap in between):
            raise csv.Error(f"{line.strip()[:60]!r} does not stand under its columns' heads")
        cells = [line[begin:end].strip() for begin, end in table.spans]
        if sum(map(bool, map(_NUMBER.fullmatch, cells[-1].split()))) > 2:
            raise csv.Error(f"{cells[-1][:60]!r} is no {table.heads[-1]}: several rows run together")
        return cells

    return split


def _row(table: ProfilerTable, lines: Sequence[str], place: int) -> tuple[list[str], int]:
    """The cells of the row at a place, and its lines: quoted cells may hold line ends. csv.Error where it is none."""
    taken = 1
    if table.kind == "other":
        return [lines[place]], taken
    if table.split is csv_cells:
        while '"' in lines[place] and "\n".join(lines[place : place + taken]).count('"') % 2 and taken < _CELL_LINES:
            taken += 1
    text = "\n".join(lines[place : place + taken])
    if taken == _CELL_LINES or place + taken > len(lines):
        raise csv.Error("a quoted cell is not closed")
    text = text.strip() if table.split is csv_cells else text
    cells = table.split(text)
    names = len(table.heads)
    if table.split is csv_cells and not any(cells[names:]):
        del cells[names:]  # a spreadsheet fills up every row to the longest
    if table.split is csv_cells and '"' in cells[0] and not text.startswith('"'):
        raise csv.Error(f"{cells[0][:60]!r} has something before its quotes")
    if any("\n" in cell and not _FREE_TEXT.match(head) for head, cell in zip(table.heads, cells, strict=False)):
        raise csv.Error("a line ends inside a name or a number")
    times = table.kind in ("sums", "trace")
    if times and table.split is csv_cells and len(cells) > names and '"' not in text and "Name" in table.heads:
        begin = table.heads.index("Name")  # commas that nobody quoted
        end = len(cells) - (names - begin - 1)
        if _LAST_BEFORE_NAME.match(cells[begin]):
            cells[begin:end] = [",".join(cells[begin:end])]
    fewest = names
    if table.kind == "launches" and "Metric Value" in table.heads:
        # on ncu's details page, cells that speak of a rule may be left out behind the metric
        fewest = 1 + max(number for number, head in enumerate(table.heads) if head in _NEEDED_OF_DETAILS)
    if not fewest <= len(cells) <= names:
        hint = "; decimal commas? Print it again under LC_ALL=C" if times and len(cells) > names else ""
        raise csv.Error(f"{len(cells)} cells where the header names {names}{hint}")
    for number in table.numbers:
        cell = cells[number].strip()
        if not _NUMBER.fullmatch(cell.strip("<%")) and not (cell in _UNITS and not table.rows):
            reject_other_marks(cell)
            raise csv.Error(f"{cell!r} is no {table.heads[number]}")
    return cells, taken


def _is_size(table: ProfilerTable, line: str) -> bool:
    """Whether a line is a row of a table of sizes, behind a blank line too: its numbers, and one cell of words."""
    numbers = re.match(r"(?:[\d.,]+[\s|]+)+", line.lstrip(" |"))
    return bool(numbers and _SIZES.fullmatch(table.heads[0]) and len(numbers[0].split()) == len(table.heads) - 1)


def _looks_like_a_row(line: str) -> bool:
    """Whether a line has numbers and a name as only a row has, or quoted cells as only CSV has."""
    if line.count('","') > 1:
        return True
    words, cells = line.replace("|", " ").split(), line.split(",")
    if not re.search(r"\d", cells[0]):
        del cells[0]  # what the row is of
    for texts, begin in ((cells, 1), (words, 2)):
        numbers = [bool(_NUMBER.fullmatch(text)) for text in texts]
        if sum(numbers) >= _NUMBERS_OF_A_ROW and all(numbers[:begin]):
            return any(map(str.isalpha, line)) and not _DECIMALS_IN_WORDS.search(line)
    return False


def find(lines: Sequence[str], origin: str, first_line: int = 1) -> list[ProfilerTable]:
    """The tables of a text with heads above their rows: CSV, TSV, columns of words, columns between pipes. UserError
    with the line for one in a table that is no row, and for a row in no table."""
    found: list[ProfilerTable] = []
    table: ProfilerTable | None = None
    blank = False  # since the last row
    report = unit = section = source = ""
    caption = heading = taken = 0
    for place, line in enumerate(lines):
        number = place + first_line
        taken -= 1
        if taken > 0:
            continue
        below = lines[place + 1] if place + 1 < len(lines) else ""
        if not line.strip():
            blank = True
        elif match := _REPORT.match(line) or _CAPTION.search(line):
            table, blank, caption = None, True, number
            if heading and found:
                break
            heading = number if line.lstrip().startswith("**") else 0
            unit, report = (match[1] or "") if match.re is _CAPTION else "", ""
            if match.re is _REPORT:
                source, report = match[2] or source, match[1] or match[3] or match[4]
        elif opened := _start_table(number, line, below, report):
            table, blank = opened, False
            table.unit, table.section, table.first, table.last = unit, section, caption or number, number
            table.source = source
            unit, report, caption, heading = "", "", 0, 0
            found.append(table)
        elif ";" in line and _start_table(number, line.replace(";", ","), below, ""):
            raise UserError(
                f"{origin}, line {number}: cells between semicolons, as a spreadsheet with decimal commas saves them: "
                "import the file that the profiler wrote"
            )
        elif match := _MESSAGE.fullmatch(line):
            source = match[1] if match[1].isdecimal() else source  # nvprof's process
            section, blank = match[2].rstrip("* \t") if match[1].isdecimal() or not match[1] else section, True
            if table and table.tool != "ncu":
                table = None  # ncu's messages stand between its rows too
        elif FENCE.fullmatch(line) or _NSYS_MESSAGE.match(line):
            table, blank, heading = None, True, 0
        elif _RULE.fullmatch(line):
            continue
        else:
            if table and table.kind == "other" and blank and not _is_size(table, line):
                table = None
            try:
                if table:
                    cells, taken = _row(table, lines, place)
                    table.rows.append((number, cells))
                    table.last, blank = number + taken - 1, False
                    if "\t" not in line:
                        table.padded |= line != line.rstrip()
                        table.short_row = table.short_row or (number if len(line) < table.width else 0)
                    continue
                if READ_REPORT.fullmatch(report):
                    raise UserError(
                        f"{origin}, line {number}: {line.strip()[:60]!r} stands where the heads of {report} have to: a "
                        "terminal broke its lines, or some are missing; import what the profiler wrote to a file"
                    )
                reason = f"{line.strip()[:60]!r} is a row, and no line above it names its columns in known words"
            except (csv.Error, ValueError) as error:
                reason = str(error)
            if (table and (not blank or _TWO_NUMBERS.match(line))) or _looks_like_a_row(line):
                raise UserError(f"{origin}, line {number}: {reason}")
            table = None
    if heading and found:
        raise UserError(f"{origin}, line {heading}: the title of a table, and no table under it: the file is cut off")
    padded = any(table.padded for table in found)
    for table in found:
        table.padded = padded
    return found
