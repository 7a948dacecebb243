"""Report files of both Nsight tools, and the SQLite files that Nsight Systems exports."""

import importlib
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from warpbook.common.errors import UserError
from warpbook.profiling.counter_readings import Readings
from warpbook.profiling.ncu import DEVICE_NAME
from warpbook.profiling.profile_schema import Profile

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


PACKAGE = "ncu-report"
# What the report repeats of the device, and lists of other counters' names.
_NO_COUNTERS = ("device__attribute_", "breakdown:", "group:")


def read_counters(path: Path, origin: str) -> Profile | None:
    """Counters of every kernel in a report in base units; None without the package. UserError without kernels."""
    try:
        package = importlib.import_module("ncu_report")
    except ImportError:
        return None
    try:
        report = package.load_report(str(path))
        actions = [action for part in report for action in part]
    except Exception as error:  # whatever its native code raises
        raise UserError(
            f"{origin}: {PACKAGE} cannot read it ({error}): the file is damaged, or newer than it"
        ) from error
    readings = Readings(origin)
    for number, action in enumerate(actions):
        try:
            key = readings.launch(number, action.name(action.NameBase_DEMANGLED), shape=_shape(action))
        except ValueError as error:
            raise UserError(f"{origin}, launch {number}: {error}") from error
        for name in action.metric_names():
            metric = action.metric_by_name(name)
            value = metric.value()
            if name == DEVICE_NAME:
                readings.devices[str(value)] = None
            elif not name.startswith(_NO_COUNTERS):
                if isinstance(value, str):
                    readings.words.add(name)
                else:
                    readings.add(0, key, name, metric.unit(), None if value is None else float(value))
    if not actions:
        raise UserError(f"{origin} holds no kernel that {PACKAGE} can read: it is damaged, or newer than the package")
    what = f"ncu report ({len(actions)} launches)"
    return readings.profile(what, "ncu")


def _shape(action: Any) -> str:
    """Grid and block as ncu prints them, empty where the report does not have them."""
    metrics = [action.metric_by_name(f"launch__{part}_dim_{axis}") for part in ("grid", "block") for axis in "xyz"]
    if any(metric is None for metric in metrics):
        return ""
    x, y, z, *block = (round(metric.as_double()) for metric in metrics)
    return f"({x}, {y}, {z})x({', '.join(map(str, block))})"
