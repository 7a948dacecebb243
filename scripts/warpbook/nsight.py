"""What Nsight Systems and Nsight Compute print (`nsys stats`, `ncu --csv`), and their report files."""

import csv
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from warpbook.errors import UserError
from warpbook.profile_rows import (
    Profile,
    Row,
    Summed,
    clean,
    columns_of,
    contradiction,
    is_api,
    kept,
    located,
    summary_rows,
    summed,
    traced,
)

KILO = 1000  # nsys' KB
EXPORT_TIMEOUT_S = 900

_STATS_HEADER = re.compile(r'[\s|"]*(?:Time ?\(%\)[\s|",]+Total Time|Start \(\w+\)[\s|",]+Duration \()')
_RULE = re.compile(r"[\s|+-]*-{2}[\s|+-]*")
_STATS_END = re.compile(r"\s*(?:\*\* |Processing \[|Generating |NOTICE|SKIPPED|\[\d+/\d+\])")
_NCU_HEADER = re.compile(r'\s*"?ID"?,.*"?Kernel Name"?')
_NCU_NUMBER = re.compile(r"(?:\(!\) )?(-?[\d,]+(?:\.\d+)?(?:e[+-]?\d+)?)(?: \(.*\))?", re.IGNORECASE)
_NCU_NONE = re.compile(r"(?:\(!\) )?(?:n/a|-?nan|-?inf|no data|)", re.IGNORECASE)
_NCU_PLACE = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream", "Block Size",
    "Grid Size", "Device", "CC", "Section Name",
}  # fmt: skip


class _Table(NamedTuple):
    line: int
    heads: list[str]
    rows: list[tuple[int, list[str]]]


def is_stats_header(line: str) -> bool:
    """Whether a line is the header of a table of `nsys stats`, as CSV or as text."""
    return _STATS_HEADER.match(line) is not None


def _tables(lines: Sequence[str], origin: str, first_line: int) -> Iterator[_Table]:
    """The tables of `nsys stats`: CSV, columns over a rule of dashes, or columns between pipes."""
    table: _Table | None = None
    spans: list[tuple[int, int | None]] = []

    def cells(line: str, number: int) -> list[str]:
        if line.lstrip().startswith("|"):
            return [cell.strip() for cell in line.strip().strip("|").split("|")]
        if spans:
            return [line[begin:end].strip() for begin, end in spans]
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
            table = _Table(number, cells(line, number), [])
        elif table and (not line.strip() or _STATS_END.match(line)):
            yield table
            table = None
        elif table and not _RULE.fullmatch(line):
            row = cells(line, number)
            if len(row) != len(table.heads):
                raise UserError(f"{origin}, line {number}: {len(row)} cells where the header names {len(table.heads)}")
            table.rows.append((number, row))
    if table:
        yield table


def _share_of(heads: Sequence[str], rows: Sequence[Summed], types: set[str]) -> tuple[str, str]:
    """(what the shares of a table of sums are of, the kind of its rows where all have one); ("", "") for others."""
    names = {head.lower() for head in heads}
    if "range" in names:
        return "range", "range"
    if types:
        return ("gpu", "") if types <= {"CUDA_KERNEL", "MEMORY_OPER"} else ("", "")
    if "num calls" in names:
        return ("api", "") if all(is_api(row.name) for row in rows) else ("", "")
    if "operation" in names:
        return "copies", ""
    if "name" in names and ("instances" in names or "calls" in names):
        # before 2021 the API's table counted calls too
        return ("api", "") if all(is_api(row.name) for row in rows) else ("kernels", "kernel")
    return "", ""


def read_stats(lines: Sequence[str], origin: str, first_line: int = 1) -> Profile:
    """The tables of `nsys stats`: sums of kernels, copies, API calls and ranges, traces of the GPU and the API.

    Other tables (operating system, sizes) are left out and named. UserError names the line of what is wrong.
    """
    events: list[Row] = []
    summaries: list[Row] = []
    left_out: list[str] = []
    for table in _tables(lines, origin, first_line):
        with located(origin, table.line):
            columns = columns_of(table.heads)
        whole = dict(columns).get("total", "")  # before 2021 the unit stood over the total alone
        columns = [(name, unit or whole if name in ("avg", "min", "max") else unit) for name, unit in columns]
        sums: list[Summed] = []
        types: set[str] = set()
        for number, cells in table.rows:
            texts = {name: (text, unit) for (name, unit), text in zip(columns, cells, strict=True) if name}
            with located(origin, number):
                if "start" in texts:
                    events.append(traced(texts, KILO))
                else:
                    sums.append(summed(number, texts))
                    types |= {texts["type"][0]} if "type" in texts else set()
        if not sums:
            continue
        share_of, kind = _share_of(table.heads, sums, types)
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
    return kept(Profile("nsys stats", "nsys", events, summaries, left_out=tuple(left_out)))


def is_ncu_header(line: str) -> bool:
    """Whether a line is the header of Nsight Compute's CSV."""
    return _NCU_HEADER.match(line) is not None


def _reading(text: str) -> float | None:
    """A counter's value, None where ncu gave none; ValueError for a word."""
    if _NCU_NONE.fullmatch(text.strip()):
        return None
    match = _NCU_NUMBER.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text.strip()!r} is no number")
    return float(match[1].replace(",", ""))


def read_ncu(lines: Sequence[str], origin: str, first_line: int = 1) -> Profile:
    """Nsight Compute's CSV, `--page raw` (a row a launch) or `--page details` (a row a metric).

    On the details page a metric's label needs its section to be told from others: `Occupancy/Achieved Occupancy`.
    Metrics whose value is a word are left out. UserError names the line of what is wrong.
    """
    numbered = list(enumerate(lines, first_line))
    start = next(place for place, (_, line) in enumerate(numbered) if is_ncu_header(line))
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
    readings: dict[tuple[int, str], tuple[str, float | None]] = {}
    words: set[str] = set()
    for number, cells in rows:
        place = dict(zip(heads, cells, strict=False))
        if not place["Kernel Name"] or not place["ID"].isdecimal():
            raise UserError(f"{origin}, line {number}: a launch without a number or a kernel's name")
        launch = launches.setdefault((place.get("Process ID", ""), place["ID"]), len(launches))
        kernels[launch] = clean(place["Kernel Name"])
        if details:
            name, section = clean(place["Metric Name"]), clean(place.get("Section Name", ""))
            name = name if "__" in name or not section else f"{section}/{name}"
            found = [(name, place["Metric Unit"], place["Metric Value"])] if place["Metric Name"].strip() else []
        else:
            triples = zip(heads, units, cells, strict=True)
            found = [(clean(head), unit, text) for head, unit, text in triples if head not in _NCU_PLACE]
        for name, unit, text in found:
            try:
                reading = (clean(unit), _reading(text))
            except ValueError:
                words.add(name)
                continue
            if readings.setdefault((launch, name), reading) != reading:
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
    return Profile(f"ncu CSV ({page} page, {len(launches)} launches)", "ncu", counters=counters, left_out=left_out)


def export(report: Path, target: Path) -> None:
    """Have nsys export a report (.nsys-rep, .qdrep) as SQLite; UserError where nsys is missing or fails."""
    _run(
        "nsys",
        ["export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(target), str(report)],
        f"nsys export --type sqlite --output {report.stem}.sqlite {report.name}",
    )


_NAMES = ("nameId", "demangledName", "shortName", "mangledName", "textId")


def keep_events(exported: Path, target: Path) -> None:
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
    found = shutil.which(tool)
    if not found:
        raise UserError(
            f"{tool} is not on PATH, and only it reads its own reports: run `{by_hand}` where it is installed, "
            "and import what that writes"
        )
    try:
        done = subprocess.run(
            [found, *arguments], capture_output=True, text=True, errors="replace", timeout=EXPORT_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"`{by_hand}` failed: {error}") from error
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UserError(f"`{by_hand}` failed: {words[-1][:200] if words else f'exit status {done.returncode}'}")
    return done.stdout
