"""Runs: everything measured on one machine at one time, as a folder (results/run) or packed
(reports/runs/<run_id>.zip)."""

import csv
import hashlib
import io
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import PROJECT, twin
from warpbook.runs import archive_reader, tables
from warpbook.runs.manifest import FORMAT, Record
from warpbook.runs.schema import Table

if TYPE_CHECKING:
    import pandas as pd

ARCHIVES = Path("reports/runs")
SOUND = Path("results/sound")  # marks of archives that were read whole and are in order


@dataclass(frozen=True)
class Run:
    """A run at `path`, a folder or a zip; `record` is its run.json. Its tables are read when asked for; those of a
    `sound` one were read before and found in order."""

    path: Path
    record: dict[str, Any]
    loaded: dict[str, "pd.DataFrame"] = field(default_factory=dict, repr=False, compare=False)
    sound: bool = field(default=False, compare=False)

    @property
    def run_id(self) -> str:
        return str(self.record["run_id"])

    @property
    def gpu(self) -> dict[str, Any] | None:
        gpu: dict[str, Any] | None = self.record["machine"]["gpu"]
        return gpu

    @property
    def commit(self) -> str:
        """The commit that it was made from, short; + behind it where the working tree had changes."""
        return (self.record["commit"] or "unknown")[:12] + ("+" if self.record["dirty"] else "")

    def device_name(self, device: str) -> str:
        """The name of the hardware that a device's figures were measured on."""
        machine = self.record["machine"]
        if device == "gpu":
            return machine["gpu"]["name"] if machine["gpu"] else "no GPU"
        return f"{machine['cpu']['model'].replace('(R)', '')}, {machine['cpu']['cores']} cores"

    def table(self, table: Table) -> "pd.DataFrame":
        """One of its tables, checked and read once. UserError names the file, row and column at fault."""
        if table.name not in self.loaded:
            self.loaded[table.name] = self._table(table)
        return self.loaded[table.name]

    def _table(self, table: Table) -> "pd.DataFrame":
        try:
            content = archive_reader.read(self.path, table.name)
        except archive_reader.MissingMember:
            if table.optional:
                return tables.with_places(table.empty())
            raise
        if self.sound:
            return tables.with_places(table.read_checked(content))
        origin = str(self.path / table.name) if self.path.is_dir() else f"{self.path}:{table.name}"
        return tables.with_places(table.read(io.BytesIO(content), origin))

    def another_source(self, variant: str, source_sha256: str, cases: str, shapes_sha256: str) -> str:
        """Why what it recorded of a variant on a network, or on a study's cases, is of another source or other shapes than
        these; empty when it is not."""
        if self.record["variants"][variant]["source_sha256"] != source_sha256:
            return "its sources changed after it was measured"
        if self.record["networks"][cases]["shapes_sha256"] != shapes_sha256:
            return "the network's shapes changed after it was measured"
        return ""

    def right_on_gpu(self, cases: str) -> set[str]:
        """The variants whose results on a GPU were right on a network, or on a study's cases."""
        text = archive_reader.read(self.path, tables.CORRECTNESS.name).decode()
        rows = csv.DictReader(io.StringIO(text))  # without pandas, which takes long to import
        tests = [row for row in rows if row["device"] == "gpu" and row["case"].partition("/")[0] == cases]
        right = {row["variant"] for row in tests if row["ok"] == "true"}
        wrong = {row["variant"] for row in tests if row["ok"] != "true" and row["status"] != "unsupported"}
        return (right - wrong) & {*self.record["variants"]}

    def built(self, variant: str, source_sha256: str, architectures: Iterable[str]) -> bool:
        """Whether it built this source of a variant for all these architectures."""
        known = self.record["variants"].get(variant, {"source_sha256": ""})["source_sha256"] == source_sha256
        return known and {(variant, arch) for arch in architectures} <= self._built

    @cached_property
    def _built(self) -> set[tuple[str, str]]:
        """(variant, architecture) of all that it built."""
        rows = list(csv.DictReader(io.StringIO(archive_reader.read(self.path, tables.BUILDS.name).decode())))
        failed = {row["variant"] for row in rows if row["ok"] != "true"}
        return {(row["variant"], row["arch"]) for row in rows if row["variant"] not in failed}

    @cached_property
    def problem(self) -> str:
        """Why the run cannot be used, every table of it read; empty when it can."""
        try:
            for table in tables.RUN_TABLES:
                self.table(table)
        except UserError as error:
            return str(error)
        from warpbook.runs import summaries  # with pandas, which the tables have just imported

        times = summaries.disagreement(self.table(tables.SAMPLES), self.table(tables.OP_TIMES))
        tests = summaries.contradiction(self.table(tables.CORRECTNESS))
        for table, found in ((tables.OP_TIMES, times), (tables.CORRECTNESS, tests)):
            if found:
                row, column, how = found
                return f"{self.path}: {table.name}, row {row + 2}, column {column}: {how}"
        return ""

    def check_all(self) -> "Run":
        """Itself, every table read now or, of an archive, before; UserError where one is damaged."""
        proven = _verify(self) if self.path.is_file() else None
        if proven is None and self.problem:
            raise UserError(self.problem)
        return proven or self


def open_run(path: Path) -> Run:
    """The run at a path, its run.json checked; UserError names what is missing or damaged."""
    if not path.exists():
        raise UserError(f"{path} does not exist")
    if path.is_dir():
        return Run(path, _read_record(path))
    state = path.stat()
    return Run(path, _record_of_archive(path, state.st_ino, state.st_size, state.st_mtime_ns))


@lru_cache(maxsize=64)
def _record_of_archive(path: Path, *_: int) -> dict[str, Any]:
    """The record of an archive, read once while the file stays as it is: a report asks for those of all archives often."""
    return _read_record(path)


def _read_record(path: Path) -> dict[str, Any]:
    """A run's run.json, checked."""
    try:
        record: dict[str, Any] = archive_reader.read_json(path, "run.json")
    except archive_reader.MissingMember as error:
        raise UserError(f"{path} holds no run.json: it is no run") from error
    if isinstance(record, dict) and isinstance(number := record.get("format"), int) and number != FORMAT:
        raise UserError(f"{path} is of format {number}; this Warpbook reads format {FORMAT}")
    try:
        Record.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        if first["type"] == "missing":
            raise UserError(f"{path}: run.json lacks {place!r}: it is no run of Warpbook") from error
        raise UserError(f"{path}: run.json, {place or 'as a whole'}: {first['msg']}") from error
    return record


def archived_paths(folder: Path | None = None) -> list[Path]:
    """Paths of archived runs of a folder, else of project and library, without the profilers' archives."""
    folders = [folder] if folder else [ARCHIVES, *twin(PROJECT / ARCHIVES)]
    there = {path.name: path for each in reversed(folders) for path in each.glob("*.zip")}
    return [there[name] for name in sorted(there) if not name.endswith(".profiles.zip")]


def find_archived(run_id: str, key: str, folder: Path | None = None, words: tuple[str, ...] = ()) -> Run:
    """The archived run of that id; UserError with the nearest id, or word that `key` may be, when there is none."""
    known = {path.stem: path for path in archived_paths(folder)}
    if run_id not in known:
        raise UserError(f"{key}: no archived run is called {run_id!r}: {nearest_name(run_id, [*words, *known])}")
    return open_run(known[run_id])


def command_name(run: Run, folder: Path | None = None) -> str:
    """A run's name on a command line: its id if it is archived, else its path."""
    return run.run_id if run.run_id in {path.stem for path in archived_paths(folder)} else str(run.path)


def gpu_runs(folder: Path | None = None) -> list[Run]:
    """Archived runs with a GPU, the newest last; those that cannot be read are left out."""
    return _gpu_runs(folder)[0]


def runs_of_other_models(run: Run, network: str, folder: Path | None = None) -> list[Run]:
    """The newest sound run of each other GPU model, of a network of these shapes and the same protocol."""
    found: dict[str, Run] = {}
    for other in reversed(gpu_runs(folder)):
        name = other.device_name("gpu")
        if name == run.device_name("gpu") or name in found or not _is_comparable(run, other, network):
            continue
        if proven := _verify(other):
            found[name] = proven
    return list(found.values())


def earlier_runs_of_model(run: Run, network: str, folder: Path | None = None) -> list[Run]:
    """Sound runs of a run's GPU model before it, of a network of these shapes and its protocol, newest first."""
    older = (one for one in _earlier_runs(run, network, folder) if one.device_name("gpu") == run.device_name("gpu"))
    return [proven for one in older if _is_comparable(run, one, network) and (proven := _verify(one))]


def runs_of_model(run: Run, folder: Path | None = None) -> list[Run]:
    """Sound runs of a run's GPU model and its protocol, whenever they were made and of whatever problem, newest first."""
    alike = (one for one in reversed(gpu_runs(folder)) if one.device_name("gpu") == run.device_name("gpu"))
    return [proven for one in alike if one.record["protocol"] == run.record["protocol"] and (proven := _verify(one))]


def find_newest(network: str, folder: Path | None = None) -> tuple[Run | None, list[str]]:
    """The newest archived run with a GPU that holds a network, and why others were passed over."""
    usable, refused = _gpu_runs(folder)
    for run in reversed(usable):
        if network in run.record["networks"]:
            if proven := _verify(run):
                return proven, refused
            refused.append(run.problem)
    return None, refused


def run_before(run: Run, network: str, folder: Path | None = None) -> Run | None:
    """The newest archived run with a GPU that holds a network and ended before `run`; None where there is none."""
    return next((proven for one in _earlier_runs(run, network, folder) if (proven := _verify(one))), None)


def _earlier_runs(run: Run, network: str, folder: Path | None) -> list[Run]:
    """Archived runs with a GPU that hold a network and ended before `run`, the newest first."""
    held = [one for one in reversed(gpu_runs(folder)) if network in one.record["networks"]]
    return [one for one in held if one.record["ended"] < run.record["ended"]]


def _is_comparable(run: Run, other: Run, network: str) -> bool:
    """Whether another run holds a network of the shapes that a run has it in, timed under the same protocol."""
    held = [one.record["networks"].get(network, {}).get("shapes_sha256") for one in (run, other)]
    return bool(held[0] and held[0] == held[1] and run.record["protocol"] == other.record["protocol"])


def _gpu_runs(folder: Path | None) -> tuple[list[Run], list[str]]:
    """Archived runs with a GPU, the newest last, and why others cannot be read."""
    usable, refused = [], []
    for path in archived_paths(folder):
        try:
            usable.append(open_run(path))
        except UserError as error:
            refused.append(str(error))
    return sorted((run for run in usable if run.gpu), key=lambda run: str(run.record["ended"])), refused


def _verify(run: Run) -> Run | None:
    """An archive that can be used, or None. Reading it whole takes seconds: a mark, kept for its bytes and the code
    that reads them, says that it was done."""
    code = (
        Path(__file__).with_name(name)
        for name in ("archive_reader.py", "manifest.py", "catalog.py", "schema.py", "summaries.py", "tables.py")
    )
    mark = SOUND / hashlib.sha256(b"".join(path.read_bytes() for path in (run.path, *code))).hexdigest()
    if mark.exists():
        return replace(run, sound=True)
    if run.problem:
        return None
    with suppress(OSError):  # a folder that cannot be written: the next command reads the archive again
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return run
