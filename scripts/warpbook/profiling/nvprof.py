"""nvprof's output: console tables, also damaged by conversion to Markdown or another format, and CSV."""

import csv
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from warpbook.common.errors import UserError
from warpbook.profiling.profile_schema import (
    TIME_UNIT,
    Profile,
    Row,
    SumRow,
    column_roles,
    contradiction,
    error_location,
    is_api,
    limit_events,
    sum_row,
    summary_rows,
    traced_event,
)

KIBI = 1024  # nvprof's KB

_GPU_OR_API = ("GPU activities", "API calls")
_SHARE_OF = dict(zip(_GPU_OR_API, ("gpu", "api"), strict=True))

_HEAD = r"(?:Type|Time ?\(%\)|Time(?: ?\((?:ns|us|ms|s)\))?|Calls?|Avg|Min|Max|Name|Kernel Function)"
_HEADER = re.compile(rf"\s*(?:{_HEAD}\s+)+(?:Name|Kernel Function)\s*")
_SECTION = re.compile(r"[\s#*]*(?:==\d+==)?[\s*]*(GPU activities|API calls|Profiling result):[\s*]*")
_OTHER_SECTION = re.compile(
    r"[\s#*]*(?:==\d*==+)?[\s*]*((?:CPU profiling|Metric|Event|NVTX|Unified Memory profiling) result|Open(?:ACC|MP)\b)"
)
_MESSAGE = re.compile(r"[\s#*]*==\d*==")
_NOTHING = re.compile(r"[\s`|+:=-]*")  # blank, or the frame of a table or a code block
_LIKE_A_ROW = re.compile(r"\s*<?\d+(?:\.\d+%?|,\d+%|%)\s+\d")
_WITH_UNITS = re.compile(rf"\s*<?(?:\d+(?:[.,]\d+)?%|\d{{1,3}}\.\d\d)\s+[\d.,]+ ?(?:{TIME_UNIT})(?!\w)")
_RUN_TOGETHER = re.compile(r"(?<![\w.])\d+\.\d+(?:ns|us|ms|s|%)(?!\w)")
_CELLS = {
    "share": r"(<?\d+(?:[.,]\d+)?\s?%?)",
    "calls": r"(\d+)",
    **dict.fromkeys(("total", "avg", "min", "max"), rf"([\d.,]+(?: ?(?:{TIME_UNIT})(?!\w))?)"),
}
_FULL = (("share", "%"), ("total", ""), ("calls", ""), ("avg", ""), ("min", ""), ("max", ""), ("name", ""))
_NAME_LINES = 12
_TRACE_TEXT = re.compile(r"\s*Start\s+Duration\s+(?:Grid Size|Name)")


@dataclass
class PrintedTable:
    """A table of sums found in a text: what its shares are of (gpu or api), its rows or its problem.

    `line` is its first row's, `header` that of the line which names its columns, or its first row's too.
    """

    line: int
    header: int
    share_of: str = ""
    rows: list[SumRow] = field(default_factory=list)
    problem: tuple[int, str] | None = None


def _plain(line: str) -> str:
    """The line without what a converter added: pipes, tags, entities, backslashes."""
    line = re.sub(r"\\([\\_*<>|])", r"\1", html.unescape(line))
    if "</b>" in line:
        line = line.replace("<b>", "").replace("</b>", "")
    if line.lstrip().startswith("|"):
        line = line.replace("|", "\t")
    return line


def _columns(line: str) -> tuple[tuple[str, str], ...]:
    """(role, unit) of each column that a header line names; none where the line is no header."""
    if not _HEADER.fullmatch(line):
        return ()
    try:
        # Type stands in front of the rows, not in them
        return column_roles(head for head in re.findall(_HEAD, line) if head != "Type")
    except ValueError:
        return ()


def _continues(name: str) -> bool:
    """Whether a name goes on in the next line: `void`, an open bracket, a comma."""
    if name.endswith(("...", "…")):
        return False
    return name in ("", "void") or name.endswith(",") or any(name.count(a) > name.count(b) for a, b in ("()", "<>"))


def console_tables(lines: Sequence[str], first_line: int = 1) -> list[PrintedTable]:
    """Every table of sums in nvprof's console text, in order; one that cannot be read right has its `problem`.

    A row may go on over several lines, a table over blank lines and code fences. Anything else ends it.
    """
    tables: list[PrintedTable] = []
    table: PrintedTable | None = None
    columns: tuple[tuple[str, str], ...] = ()
    section = ""
    header = 0
    skipping = False  # a section that is not of the device's or the API's times
    row: tuple[int, list[str]] | None = None  # line and cells; the name, last, may still grow
    grown = 0

    def end_row() -> None:
        nonlocal row
        if row and table and not table.problem:
            line, cells = row
            texts = {name: (text, unit) for (name, unit), text in zip(columns or _FULL, cells, strict=True)}
            try:
                if _RUN_TOGETHER.search(texts["name"][0]):
                    raise ValueError(f"several rows run together: {' '.join(texts['name'][0].split())[:60]!r}")
                if texts["name"][0].strip() in ("", "void"):
                    raise ValueError("the row's name is lost")
                table.rows.append(sum_row(line, texts))
            except ValueError as error:
                table.problem = (line, str(error))
        row = None

    def end_table() -> None:
        nonlocal table
        end_row()
        table = None

    for number, raw in enumerate(lines, first_line):
        line = _plain(raw)
        if _NOTHING.fullmatch(line):
            continue
        if _OTHER_SECTION.match(line):
            end_table()
            columns, section, header, skipping = (), "", 0, True
            continue
        skipping = skipping and not _MESSAGE.match(line) and not _SECTION.match(line)
        if skipping:
            continue
        if match := _SECTION.match(line):
            end_table()
            section = _SHARE_OF.get(match[1], "")
            line = line[match.end() :]
            if not line.strip():
                continue
        if heads := _columns(line):
            end_table()
            columns, header = heads, number
            continue
        figures = r"\s+".join(_CELLS[name] for name, _ in (columns or _FULL)[:-1])
        cells = re.fullmatch(rf"\s*{figures}(?:\s+(.*))?", line)
        if (cells and (columns or _WITH_UNITS.match(line))) or (_LIKE_A_ROW if columns else _WITH_UNITS).match(line):
            end_row()
            if table is None:
                table = PrintedTable(number, header or number, section)
                tables.append(table)
            if cells:
                row, grown = (number, list(cells.groups(default=""))), 0
            elif not table.problem:
                wanted = ", ".join(name for name, _ in columns or _FULL)
                table.problem = (
                    number,
                    f"{line.strip()[:60]!r} has not the columns {wanted}: one, or the header, was lost",
                )
        elif row and _continues(row[1][-1].strip()) and grown < _NAME_LINES:
            row[1][-1] += " " + line.strip()
            grown += 1
        else:
            end_table()
            columns, section, header = (), "", 0
    end_table()
    for table in tables:
        table.share_of = table.share_of or ("api" if all(is_api(row.name) for row in table.rows) else "gpu")
        if table.rows and not table.problem:
            table.problem = contradiction(table.rows, complete=False)
    return tables


def read_console(lines: Sequence[str], origin: str, first_line: int = 1) -> Profile | None:
    """nvprof's console text; None when it holds no table.

    UserError for a table that cannot be read right, for two profiles in one text, and for a trace.
    """
    tables = console_tables(lines, first_line)
    for table in tables:
        if table.problem:
            line, reason = table.problem
            raise UserError(f"{origin}, line {line}: {reason}")
    for share_of in ("gpu", "api"):
        begin = [str(table.header) for table in tables if table.share_of == share_of]
        if len(begin) > 1:
            raise UserError(
                f"{origin} holds {len(begin)} tables of {share_of} times, from lines {', '.join(begin)}: "
                "give the lines of one profile, as --lines 1-99"
            )
    if not tables:
        for number, text in enumerate(lines, first_line):
            if _TRACE_TEXT.match(text):
                raise UserError(f"{origin}, line {number}: an nvprof trace as text; print it with nvprof --csv")
        return None
    rows = [row for table in tables for row in summary_rows("nvprof", table.share_of, table.rows)]
    others = tuple(f"the section at line {n}" for n, text in enumerate(lines, first_line) if _OTHER_SECTION.match(text))
    return Profile("nvprof console text", "nvprof", summaries=rows, omissions=others)


_CSV_HEADER = re.compile(r'\s*"?(?:Type"?,"?Time\(%\)"?,|Time\(%\)"?,"?Time"?,|Start"?,"?Duration"?,)')


def is_csv_header(line: str) -> bool:
    """Whether a line is the header of one of nvprof's CSV tables, of sums or of a trace."""
    return _CSV_HEADER.match(line) is not None


def read_csv(lines: Sequence[str], origin: str, first_line: int = 1) -> Profile:
    """nvprof's CSV: sums, or a trace of the GPU, the API or both. UserError names the line of what is wrong."""
    events: list[Row] = []
    summaries: list[Row] = []
    columns: list[tuple[str, str]] = []
    parts: dict[str, list[SumRow]] = {}
    left_out: dict[str, None] = {}
    units_next = skipping = False

    def end_table() -> None:
        for share_of, rows in parts.items():
            if problem := contradiction(rows, complete=True):
                raise UserError(f"{origin}, line {problem[0]}: {problem[1]}")
            if any(row["share_of"] == share_of for row in summaries):
                raise UserError(
                    f"{origin}, line {rows[0].line}: a second table of {share_of} times; "
                    "give the lines of one profile, as --lines 1-99"
                )
            summaries.extend(summary_rows("nvprof", share_of, rows))
        parts.clear()

    for number, line in enumerate(lines, first_line):
        if not line.strip() or line.startswith("=="):
            if columns:
                end_table()
            columns = []
            if _OTHER_SECTION.match(line):
                skipping = True
                left_out[f"the section at line {number}"] = None
            elif line.strip():
                skipping = False
        elif skipping:
            continue
        elif is_csv_header(line):
            end_table()
            with error_location(origin, number):
                columns, units_next = list(column_roles(_cells(line, origin, number))), True
        elif columns:
            cells = _cells(line, origin, number)
            if len(cells) != len(columns):
                hint = "; decimal commas? Print it again under LC_ALL=C" if len(cells) > len(columns) else ""
                raise UserError(
                    f"{origin}, line {number}: {len(cells)} cells where the header names {len(columns)}{hint}"
                )
            if units_next:
                columns = [(name, unit) for (name, _), unit in zip(columns, cells, strict=True)]
                units_next = False
                continue
            texts = {name: (text, unit) for (name, unit), text in zip(columns, cells, strict=True) if name}
            with error_location(origin, number):
                if "start" in texts:
                    events.append(traced_event(texts, KIBI))
                else:
                    row = sum_row(number, texts)
                    section = texts["type"][0] if "type" in texts else _GPU_OR_API[is_api(row.name)]
                    if section in _SHARE_OF:
                        parts.setdefault(_SHARE_OF[section], []).append(row)
                    else:
                        left_out[section] = None
    end_table()
    if not events and not summaries:
        raise UserError(f"{origin} has the header of nvprof's CSV and no rows under it")
    return limit_events(Profile("nvprof CSV", "nvprof", events, summaries, omissions=tuple(left_out)))


def _cells(line: str, origin: str, number: int) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise UserError(f"{origin}, line {number}: {error}") from error
