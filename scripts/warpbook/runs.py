"""Runs: everything measured on one machine at one time, as a folder (results/run) or packed
(reports/runs/<run_id>.zip)."""

import io
import json
import zipfile
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpbook import tables
from warpbook.errors import UserError, nearest
from warpbook.tables import Table

if TYPE_CHECKING:
    import pandas as pd

ARCHIVES = Path("reports/runs")
FORMAT = 1

# What run.json must hold, by top-level key, for anything to be made of the run.
_REQUIRED = {
    "format": int, "run_id": str, "studies": list, "networks": dict, "variants": dict, "started": str, "ended": str,
    "machine": dict, "measuring": dict, "protocol": int,
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A run at `path`, a folder or a zip; `record` is its run.json. Its tables are read when asked for."""

    path: Path
    record: dict[str, Any]
    _read: dict[str, "pd.DataFrame"] = field(default_factory=dict, repr=False, compare=False)

    @property
    def run_id(self) -> str:
        return self.record["run_id"]

    @property
    def gpu(self) -> dict[str, Any] | None:
        return self.record["machine"]["gpu"]

    def device_name(self, device: str) -> str:
        """The name of the hardware that a device's figures were measured on."""
        machine = self.record["machine"]
        if device == "gpu":
            return machine["gpu"]["name"] if machine["gpu"] else "no GPU"
        return f"{machine['cpu']['model'].replace('(R)', '')}, {machine['cpu']['cores']} cores"

    def table(self, table: Table) -> "pd.DataFrame":
        """One of its tables, checked, and read once; UserError names file, row and column of what is wrong."""
        if table.name not in self._read:
            self._read[table.name] = self._table(table)
        return self._read[table.name]

    def _table(self, table: Table) -> "pd.DataFrame":
        if self.path.is_dir():
            path = self.path / table.name
            return table.empty() if table.optional and not path.exists() else table.read(path)
        try:
            with zipfile.ZipFile(self.path) as packed:
                content = packed.read(table.name)
        except KeyError as error:
            if table.optional:
                return table.empty()
            raise UserError(f"{self.path} lacks {table.name}: it is no whole run") from error
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise UserError(f"{self.path} is damaged at {table.name} ({error}); fetch it again") from error
        return table.read(io.BytesIO(content), origin=f"{self.path}:{table.name}")

    @cached_property
    def problem(self) -> str:
        """Why the run cannot be used, every table of it read; empty when it can."""
        try:
            for table in tables.RUN_TABLES:
                self.table(table)
        except UserError as error:
            return str(error)
        return ""


def open_run(path: Path) -> Run:
    """The run at a path, its run.json checked; UserError names what is missing or damaged."""
    try:
        if path.is_dir():
            text = (path / "run.json").read_text()
        else:
            with zipfile.ZipFile(path) as packed:
                text = packed.read("run.json").decode()
        record = json.loads(text)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist") from error
    except KeyError as error:
        raise UserError(f"{path} holds no run.json: it is no run") from error
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}); fetch it again") from error
    for key, kind in _REQUIRED.items():
        if not isinstance(record, dict) or not isinstance(record.get(key), kind):
            raise UserError(f"{path}: run.json lacks {key!r}, or it is not of the kind {kind.__name__}")
    if record["format"] != FORMAT:
        raise UserError(f"{path} is of format {record['format']}; this Warpbook reads format {FORMAT}")
    return Run(path, record)


def archived(folder: Path = ARCHIVES) -> list[Path]:
    """Paths of the archived runs, tools' own files left out."""
    return sorted(path for path in folder.glob("*.zip") if not path.name.endswith(".profiles.zip"))


def find_archived(run_id: str, key: str, folder: Path = ARCHIVES, words: tuple[str, ...] = ()) -> Run:
    """The archived run of that id; UserError with the nearest id, or word that `key` may be, when there is none."""
    path = folder / f"{run_id}.zip"
    if not path.exists():
        known = [other.stem for other in archived(folder)]
        raise UserError(f"{key}: no archived run is called {run_id!r}: {nearest(run_id, [*words, *known])}")
    return open_run(path)


def newest_archived(network: str, folder: Path = ARCHIVES) -> tuple[Run | None, list[str]]:
    """The archived run with a GPU that ended last of those that hold a network, and why others were passed over."""
    found, refused = [], []
    for path in archived(folder):
        try:
            run = open_run(path)
        except UserError as error:
            refused.append(str(error))
            continue
        if network in run.record["networks"] and run.gpu:
            found.append(run)
    found.sort(key=lambda run: run.record["ended"], reverse=True)
    for run in found:
        if not run.problem:
            return run, refused
        refused.append(run.problem)
    return None, refused
