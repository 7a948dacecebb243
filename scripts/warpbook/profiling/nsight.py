"""The report files of both Nsight tools, and the SQLite files that Nsight Systems exports."""

import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from warpbook.common.errors import UserError

EXPORT_TIMEOUT_S = 900


def export(report: Path, target: Path) -> None:
    """Have nsys export a report (.nsys-rep, .qdrep) as SQLite; UserError where nsys is missing or fails."""
    _run(
        "nsys",
        ["export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(target), str(report)],
        f"nsys export --type sqlite --output {report.stem}.sqlite {report.name}",
    )


_NAMES = ("nameId", "demangledName", "shortName", "mangledName", "textId")


def copy_events(exported: Path, target: Path) -> None:
    """Copy an SQLite export's events and tool, but not its record of the machine's processes and environment."""
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
    by_hand = f"ncu --import {report.name} --csv --page raw > {report.stem}.csv"
    return _run("ncu", arguments, by_hand, "or install the package ncu-report here: pip install ncu-report")


def _run(tool: str, arguments: list[str], by_hand: str, otherwise: str = "") -> str:
    program = shutil.which(tool)
    if not program:
        raise UserError(
            f"{tool} is not on PATH, and only it reads its own reports: run `{by_hand}` where it is installed, "
            f"and import what that writes{otherwise and '; '}{otherwise}"
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
