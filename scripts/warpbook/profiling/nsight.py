"""What Nsight Systems prints (`nsys stats`, `nsys profile --stats=true`), and the report files of both Nsight tools."""

import csv
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from warpbook.common.errors import UserError
from warpbook.profiling.profile_schema import (
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

KILO = 1000  # nsys' KB
EXPORT_TIMEOUT_S = 900

_STATS_HEADER = re.compile(r'[\s|"]*(?:Time ?\(%\)[\s|",]+Total Time|Start \(\w+\)[\s|",]+Duration \()')
_CAPTION = re.compile(r"[\s#*]*(?:CUDA|NVTX|Operating System|OpenGL|OpenACC)\b.* Statistics \((\w+)\):?[\s*]*")
_CAPTION_UNITS = {"nanoseconds": "ns", "microseconds": "us", "milliseconds": "ms", "seconds": "s"}
_RULE = re.compile(r"[\s|+-]*-{2}[\s|+-]*")
_FIGURE = re.compile(r"(?<!\S)[\d.,]*\d[\d.,]*(?!\S)")
_STATS_END = re.compile(r"\s*(?:\*\* |Processing \[|Generating |NOTICE|SKIPPED|\[\d+/\d+\])")


class _Table(NamedTuple):
    line: int
    caption_unit: str
    heads: list[str]
    rows: list[tuple[int, list[str]]]


def is_stats_header(line: str) -> bool:
    """Whether a line is the header of a table of `nsys stats`, as CSV or as text."""
    return _STATS_HEADER.match(line) is not None


def _tables(lines: Sequence[str], origin: str, first_line: int) -> Iterator[_Table]:
    """The tables of `nsys stats`: CSV, columns over a rule of dashes, or columns between pipes."""
    table: _Table | None = None
    spans: list[tuple[int, int | None]] = []
    unit = ""

    def cells(line: str, number: int) -> list[str]:
        if line.lstrip().startswith("|"):
            return [cell.strip() for cell in line.strip().strip("|").split("|")]
        if spans:
            between = [line[end:begin] for (_, end), (begin, _) in pairwise(spans)]
            if not any(gap.strip() for gap in between):
                return [line[begin:end].strip() for begin, end in spans]
            if table and table.heads[0].startswith("Time"):
                return line.split(None, len(spans) - 1)  # sums leave no cell empty
            raise UserError(f"{origin}, line {number}: {line.strip()[:60]!r} does not stand under its columns' heads")
        try:
            return next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise UserError(f"{origin}, line {number}: {error}") from error

    for number, line in enumerate(lines, first_line):
        if is_stats_header(line):
            if table:
                yield table
            rule = lines[number - first_line + 1] if number - first_line + 1 < len(lines) else ""
            spans = []
            if _RULE.fullmatch(rule) and not line.lstrip().startswith("|"):
                spans = [match.span() for match in re.finditer(r"-+", rule)]
                spans[-1:] = [(spans[-1][0], None)]  # the name, last, may be longer than its rule
            table, unit = _Table(number, unit, cells(line, number), []), ""
        elif caption := _CAPTION.fullmatch(line):
            if table:
                yield table
            table, unit = None, caption[1]
        elif not table or (line.strip() and _RULE.fullmatch(line)):
            continue
        elif not line.strip() or _STATS_END.match(line) or (spans and len(_FIGURE.findall(line)) < 3):
            yield table
            table = None
        else:
            row = cells(line, number)
            if len(row) != len(table.heads):
                raise UserError(f"{origin}, line {number}: {len(row)} cells where the header names {len(table.heads)}")
            table.rows.append((number, row))
    if table:
        yield table


def _share_basis(heads: Sequence[str], rows: Sequence[SumRow], types: set[str]) -> tuple[str, str]:
    """(what the shares of a table of sums are of, the kind of its rows where all have one); ("", "") for others."""
    names = {head.lower() for head in heads}
    if "range" in names:
        return "range", "range"
    if types:
        return ("gpu", "") if types <= {"CUDA_KERNEL", "MEMORY_OPER"} else ("", "")
    if "num calls" in names:
        return ("api", "") if all(is_api(row.name) for row in rows) else ("", "")
    if "operation" in names or "operations" in names:
        return "copies", ""
    if "name" in names and ("instances" in names or "calls" in names):
        if all(is_api(row.name) for row in rows):
            return "api", ""
        # before 2021 the tables of the API and of the operating system counted calls too
        return ("kernels", "kernel") if "instances" in names else ("", "")
    return "", ""


def read_stats(lines: Sequence[str], origin: str, first_line: int = 1) -> Profile:
    """The tables of `nsys stats`: sums of kernels, copies, API calls and ranges, traces of the GPU and the API.

    Other tables (operating system, sizes) are left out and named. UserError names the line of what is wrong.
    """
    events: list[Row] = []
    summaries: list[Row] = []
    left_out: list[str] = []
    for table in _tables(lines, origin, first_line):
        with error_location(origin, table.line):
            columns = list(column_roles(table.heads))
        # before 2021 the unit stood over the total alone, or in the caption, which a copy may have lost: nanoseconds
        unit = table.caption_unit or "nanoseconds"
        if "total" in dict(columns) and not dict(columns)["total"]:
            if unit not in _CAPTION_UNITS:
                known = ", ".join(_CAPTION_UNITS)
                raise UserError(f"{origin}, line {table.line}: a table of times in {unit!r}; known: {known}")
            columns = [(name, _CAPTION_UNITS[unit] if name == "total" else printed) for name, printed in columns]
        whole = dict(columns).get("total", "")
        columns = [(name, unit or whole if name in ("avg", "min", "max") else unit) for name, unit in columns]
        sums: list[SumRow] = []
        types: set[str] = set()
        for number, cells in table.rows:
            texts = {name: (text, unit) for (name, unit), text in zip(columns, cells, strict=True) if name}
            with error_location(origin, number):
                if "start" in texts:
                    events.append(traced_event(texts, KILO))
                else:
                    sums.append(sum_row(number, texts))
                    types |= {texts["type"][0]} if "type" in texts else set()
        if not sums:
            continue
        share_of, kind = _share_basis(table.heads, sums, types)
        if not share_of:
            left_out.append(f"the table at line {table.line}")
            continue
        if problem := contradiction(sums, complete=True):
            raise UserError(f"{origin}, line {problem[0]}: {problem[1]}")
        if any(row["share_of"] == share_of for row in summaries):
            raise UserError(
                f"{origin}, line {table.line}: a second table of {share_of} times; "
                "give the lines of one report, as --lines 1-99"
            )
        summaries += summary_rows("nsys", share_of, sums, kind)
    if not events and not summaries:
        others = f", only {', '.join(left_out)}" if left_out else ""
        raise UserError(f"{origin} holds no times of kernels, copies or API calls{others}")
    return limit_events(Profile("nsys stats", "nsys", events, summaries, omissions=tuple(left_out)))


def export(report: Path, target: Path) -> None:
    """Have nsys export a report (.nsys-rep, .qdrep) as SQLite; UserError where nsys is missing or fails."""
    _run(
        "nsys",
        ["export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(target), str(report)],
        f"nsys export --type sqlite --output {report.stem}.sqlite {report.name}",
    )


_NAMES = ("nameId", "demangledName", "shortName", "mangledName", "textId")


def copy_events(exported: Path, target: Path) -> None:
    """Copy what an SQLite export holds of events and of the tool: its record of the machine's processes, and of their
    environment, stays behind."""
    with closing(sqlite3.connect(target)) as database:
        database.execute("ATTACH ? AS whole", [str(exported)])
        made = database.execute("SELECT name, sql FROM whole.sqlite_master WHERE type = 'table'").fetchall()
        wanted = re.compile(r"CUPTI_ACTIVITY|NVTX_EVENTS|META_DATA_EXPORT|ENUM_")
        tables = {name: sql for name, sql in made if wanted.match(name)}
        for name, sql in tables.items():
            database.execute(sql)
            database.execute(f"INSERT INTO main.[{name}] SELECT * FROM whole.[{name}]")
        database.execute(dict(made)["StringIds"])
        for name in tables:
            columns = {row[1] for row in database.execute(f"PRAGMA main.table_info([{name}])")}
            for column in columns.intersection(_NAMES):
                database.execute(
                    "INSERT OR IGNORE INTO main.StringIds SELECT * FROM whole.StringIds "
                    f"WHERE id IN (SELECT [{column}] FROM main.[{name}])"
                )
        database.commit()


def raw_page(report: Path) -> str:
    """The raw page of an Nsight Compute report (.ncu-rep) as CSV; UserError where ncu is missing or fails."""
    arguments = ["--import", str(report), "--csv", "--page", "raw"]
    return _run("ncu", arguments, f"ncu --import {report.name} --csv --page raw > {report.stem}.csv")


def _run(tool: str, arguments: list[str], by_hand: str) -> str:
    program = shutil.which(tool)
    if not program:
        raise UserError(
            f"{tool} is not on PATH, and only it reads its own reports: run `{by_hand}` where it is installed, "
            "and import what that writes"
        )
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, errors="replace", timeout=EXPORT_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"`{by_hand}` failed: {error}") from error
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UserError(f"`{by_hand}` failed: {words[-1][:200] if words else f'exit status {done.returncode}'}")
    return done.stdout
