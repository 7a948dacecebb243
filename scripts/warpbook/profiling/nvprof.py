"""nvprof's console tables, also damaged by conversion to Markdown or another format."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from warpbook.common.errors import UserError
from warpbook.profiling import profile_schema
from warpbook.profiling.printed_tables import FENCE, PrintedRun
from warpbook.profiling.profile_schema import Profile, SumRow

_GPU_OR_API = ("GPU activities", "API calls")
_SHARE_OF = dict(zip(_GPU_OR_API, ("gpu", "api"), strict=True))

_HEAD = r"(?:Type|Time ?\(%\)|Time(?: ?\((?:ns|us|ms|s)\))?|Calls?|Avg|Min|Max|Name|Kernel Function)"
_HEADER = re.compile(rf"\s*(?:{_HEAD}\s+)+(?:Name|Kernel Function)\s*")
_SECTION = re.compile(r"[\s#*]*+(?:==\d+==[\s*]*+)?(GPU activities|API calls|Profiling result):[\s*]*")
_OTHER_SECTION = re.compile(
    r"[\s#*]*+(?:==\d*==+[\s*]*+)?((?:CPU profiling|Metric|Event|NVTX|Unified Memory profiling) result|Open(?:ACC|MP)\b"
    r"|Dependency Analysis:)"
)
_MESSAGE = re.compile(r"[\s#*]*==\d*==")
_NOTHING = re.compile(r"[\s`|+:=-]*")  # blank, or the frame of a table or a code block
_LIKE_A_ROW = re.compile(r"\s*<?\d+(?:\.\d+%?|,\d+%|%)\s+\d")
_WITH_UNITS = re.compile(rf"\s*<?(?:\d+(?:[.,]\d+)?%|\d{{1,3}}\.\d\d)\s+[\d.,]+ ?(?:{profile_schema.TIME_UNIT})(?!\w)")
_RUN_TOGETHER = re.compile(r"(?<![\w.])\d+\.\d+(?:ns|us|ms|s|%)(?!\w)")
_CELLS = {
    "share": r"(<?\d+(?:[.,]\d+)?\s?%?)",
    "calls": r"(\d+)",
    **dict.fromkeys(("total", "avg", "min", "max"), rf"([\d.,]+(?: ?(?:{profile_schema.TIME_UNIT})(?!\w))?)"),
}
_FULL = (("share", "%"), ("total", ""), ("calls", ""), ("avg", ""), ("min", ""), ("max", ""), ("name", ""))
_NAME_LINES = 12
_TIME = rf"(?<![\d.,])[\d.,]++ ?(?:{profile_schema.TIME_UNIT})(?!\w)"
_ROW_INSIDE = re.compile(rf"\d%\s+{_TIME}\s+\d+\s+{_TIME}")
_PART_OF_A_ROW = re.compile(rf"\d%?\s+{_TIME}\s+\d+\s+\S|(?:\d%|{_TIME})\s+\d+\s+{_TIME}|{_TIME}\s+[\d.,]+%")
_REST_OF_A_NAME = re.compile(r"[\w:]+(?:[<(].*)?|[<(:,>*&)].*")
_BROKEN_HEADER = re.compile(r"\s*(?:Type\s+)?Time ?\(%\)\s+Time\s")
_PROCESS = re.compile(r"\s*==(\d+)== ")
_MIXED = re.compile(r"twice under one header|a second header before")
_TWO_AT_ONCE = "a second header before any row of the first"


@dataclass
class PrintedTable:
    """A table of sums: what its shares are of (gpu or api), its rows or its problem, and the lines of row and head."""

    line: int
    header: int
    share_of: str = ""
    rows: list[SumRow] = field(default_factory=list)
    problem: tuple[int, str] | None = None
    last: int = 0
    process: str = ""


def _plain(line: str) -> str:
    """The line without what a converter added: pipes, tags, backslashes."""
    line = re.sub(r"\\([\\_*<>|])", r"\1", line)
    if line.lstrip().startswith("|"):
        line = line.replace("|", "\t")
    return line


def _columns(line: str) -> tuple[tuple[str, str], ...]:
    """(role, unit) of each column that a header line names; none where the line is no header."""
    if not _HEADER.fullmatch(line):
        return ()
    try:
        # Type stands in front of the rows, not in them
        return profile_schema.column_roles(head for head in re.findall(_HEAD, line) if head != "Type")
    except ValueError:
        return ()


def _continues(name: str) -> bool:
    """Whether a name goes on in the next line: `void`, an open bracket, a comma."""
    if name.endswith(("...", "…")):
        return False
    opened = any(name.count(pair[0]) > name.count(pair[1]) for pair in ("()", "<>", "[]"))
    return opened or name in ("", "void") or name.endswith(",")


def _join_name(name: str, rest: str) -> str:
    """A name joined from two lines; ValueError where it is unclear whether a blank belongs between them."""
    left, right = name.rstrip(), rest.strip()
    if not left or left.endswith(("(", "<", "::")) or right.startswith((")", ">", ",", "(", "<", "::")):
        return left + right
    in_words = f"{left[-1]}{right[0]}".replace("_", "a").isalnum() and left == name
    first, last = re.split(r"\W", right)[0], re.split(r"\W", left)[-1]
    if in_words and left != "void" and not {first, last} <= profile_schema.TYPES:
        raise ValueError(f"the line is broken inside of a name, after {left[-20:]!r}: join it with the next")
    return f"{left} {right}"


class _Console:
    """The tables of a console text, line by line."""

    def __init__(self) -> None:
        self.tables: list[PrintedTable] = []
        self.table: PrintedTable | None = None
        self.columns: tuple[tuple[str, str], ...] = ()
        self.section = ""
        self.header = 0
        self.rows = 0  # since the header
        self.labels: set[str] = set()  # since the header
        self.process = ""  # that nvprof's last message was of
        self.strange: tuple[int, str] | None = None  # a line that ended a table, by which its rows may go on
        self.row: tuple[int, list[str]] | None = None  # line and cells; the name, last, may still grow
        self.grown = 0

    def fail(self, number: int, reason: str) -> None:
        """Keep the first problem of the table, or of one that has no row yet."""
        if self.table is None:
            self.table = PrintedTable(number, self.header or number, self.section, last=number, process=self.process)
            self.tables.append(self.table)
        self.table.problem = self.table.problem or (number, reason)

    def end_row(self) -> None:
        if self.row and self.table and not self.table.problem:
            line, cells = self.row
            texts = {name: (text, unit) for (name, unit), text in zip(self.columns or _FULL, cells, strict=True)}
            try:
                if _RUN_TOGETHER.search(texts["name"][0]):
                    raise ValueError(f"several rows run together: {' '.join(texts['name'][0].split())[:60]!r}")
                if texts["name"][0].strip() in ("", "void"):
                    raise ValueError("the row's name is lost")
                row = profile_schema.sum_row(line, texts)
                if self.section == "api":
                    profile_schema.reject_other_call(row.name)
                self.table.rows.append(row)
            except ValueError as error:
                self.fail(line, str(error))
        self.row = None

    def end_table(self) -> None:
        self.end_row()
        self.table = None

    def leave(self) -> None:
        """A message of nvprof: whatever table there was is over, its header too."""
        self.end_table()
        self.columns, self.section, self.header, self.labels, self.strange = (), "", 0, set(), None

    def label(self, number: int, name: str) -> None:
        self.end_table()
        self.section = _SHARE_OF.get(name, "")
        if self.section in self.labels:
            self.fail(number, f"{name!r} twice under one header")
        self.labels.add(self.section)

    def open(self, number: int, columns: tuple[tuple[str, str], ...]) -> None:
        if self.columns and not self.rows:
            self.fail(number, _TWO_AT_ONCE)
        self.end_table()
        self.columns, self.header, self.rows, self.labels, self.strange = columns, number, 0, set(), None

    def read(self, number: int, line: str) -> None:
        """A line that is no header: a row, the rest of a name, or something else, which ends the table."""
        columns = self.columns or _FULL
        figures = r"\s+".join(_CELLS[name] for name, _ in columns[:-1])
        cells = re.fullmatch(rf"\s*{figures}(?:\s+(.*))?", line)
        begun = (_LIKE_A_ROW if self.columns else _WITH_UNITS).match(line)
        if begun or (cells and self.columns):
            self.end_row()
            if self.table is None:
                self.table = PrintedTable(number, self.header or number, self.section, process=self.process)
                self.tables.append(self.table)
                if self.strange:
                    reason = f"{self.strange[1][:60]!r} stands between a table's rows"
                    for table in self.tables[-2:]:  # the rows before it and those behind it
                        table.problem = table.problem or (self.strange[0], reason)
            self.rows += 1
            self.table.last = number
            if cells:
                self.row, self.grown = (number, list(cells.groups(default=""))), 0
            else:
                wanted = ", ".join(name for name, _ in columns)
                self.fail(number, f"{line.strip()[:60]!r} has not the columns {wanted}: one, or the header, was lost")
        elif self.row and _continues(self.row[1][-1].strip()) and self.grown < _NAME_LINES:
            try:
                self.row[1][-1] = _join_name(self.row[1][-1], line)
            except ValueError as error:
                self.fail(number - 1, str(error))
            self.grown += 1
            if self.table:
                self.table.last = number
        else:
            behind = self.row if self.table and self.table.last == number - 1 else None
            name = behind[1][-1].strip() if behind else ""
            rest = line.replace("|", " ").strip()
            whole = name.endswith((")", "]")) or (profile_schema.is_api(name) and not re.fullmatch(r"\w+", rest))
            if _BROKEN_HEADER.match(line):
                self.fail(number, f"{line.strip()[:60]!r} begins as the columns' names do, and does not end so")
            in_row = _ROW_INSIDE.search(rest) or (behind and _PART_OF_A_ROW.search(rest))
            if in_row or (name and not whole and _REST_OF_A_NAME.fullmatch(rest)):
                self.fail(number, f"{line.strip()[:60]!r} is no row, and stands where one is, or the rest of a name")
            if self.table:
                self.strange = (number, line.strip())
            self.end_table()
            self.columns, self.section, self.header = (), "", 0


def console_tables(lines: Sequence[str], first_line: int = 1) -> list[PrintedTable]:
    """Every table of sums in nvprof's console text, in order; one that cannot be read right has its `problem`. A row
    may go on over several lines, a table over blank lines and code fences. A message of nvprof ends it. Anything else
    does where no row comes after it, and is a problem where one does."""
    text = _Console()
    skipping = False  # a section that is not of the device's or the API's times
    for number, raw in enumerate(lines, first_line):
        line = _plain(raw)
        if _NOTHING.fullmatch(line) or FENCE.fullmatch(line):
            continue
        if _OTHER_SECTION.match(line):
            text.leave()
            skipping = True
            continue
        match = _SECTION.match(line)
        if of_process := _PROCESS.match(line):
            text.process = of_process[1]
        skipping = skipping and not _MESSAGE.match(line) and not match
        if skipping:
            continue
        if match:
            if match[1] == "Profiling result":
                text.leave() if text.rows or not text.columns else text.end_table()
            else:
                text.label(number, match[1])
            line = line[match.end() :]
            if not line.strip():
                continue
        elif _MESSAGE.match(line):
            text.leave() if text.rows else text.end_table()
            continue
        if columns := _columns(line):
            text.open(number, columns)
        else:
            text.read(number, line)
    if text.columns and not text.rows:
        text.fail(text.header, "a header and no rows under it")
    text.end_table()
    for table in text.tables:
        if table.rows:
            table.share_of = table.share_of or (
                "api" if all(profile_schema.is_api(row.name) for row in table.rows) else "gpu"
            )
        if table.rows and not table.problem:
            table.problem = profile_schema.contradiction(table.rows)
    return text.tables


def parts(lines: Sequence[str], origin: str, first_line: int = 1) -> list[PrintedRun]:
    """The profiles in nvprof's console text, run by run: each has one table of the device's times, one of the API's."""
    found: list[list[PrintedTable]] = []
    tables = console_tables(lines, first_line)
    processes = list(dict.fromkeys(match[1] for line in lines if (match := _PROCESS.match(line))))
    for table in tables:
        if table.problem and len(processes) > 1 and _MIXED.search(table.problem[1]):
            raise UserError(
                f"{origin}, line {table.problem[0]}: {table.problem[1]}: processes {', '.join(processes)} printed at "
                "once; have nvprof write a file for each, as --log-file profile-%p.txt"
            )
        run = found[-1] if found else []
        # a run's tables have one header, or the device's times stand before the API's: "gpu" > "api"
        if not any(table.header == other.header for other in run) and (
            not run
            or len({table.process, run[-1].process, ""}) > 2
            or any(table.share_of >= other.share_of > "" for other in run)
        ):
            found.append([])
        found[-1].append(table)
    return [
        PrintedRun(
            "nvprof console text", run[0].header, run[-1].last, partial(_profile, run, lines, origin, first_line)
        )
        for run in found
    ]


def _profile(tables: Sequence[PrintedTable], lines: Sequence[str], origin: str, first_line: int) -> Profile:
    for table in tables:
        if table.problem:
            line, reason = table.problem
            raise UserError(f"{origin}, line {line}: {reason}")
    rows = [row for table in tables for row in profile_schema.summary_rows("nvprof", table.share_of, table.rows)]
    others = tuple(f"the section at line {n}" for n, text in enumerate(lines, first_line) if _OTHER_SECTION.match(text))
    return Profile("nvprof console text", "nvprof", summaries=rows, omissions=others)
