"""Imported profiles as `scripts/import_profile.py` keeps them: a folder for each variant and size, with its tables and
a record of the files that they were read from."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT, atomic_write
from warpbook.profiling.profile_schema import Profile, Row
from warpbook.runs import tables
from warpbook.runs.schema import Table

if TYPE_CHECKING:
    import pandas as pd

FOLDER = PROJECT / "results" / "imported"
RECORD = "imported.json"
TABLES = (tables.ACTIVITIES, tables.SUMMARIES, tables.COUNTERS)


class File(BaseModel):
    """A file that was imported: its name without its folder, its SHA-256, what it is, and the devices that it names."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: str
    sha256: str
    what: str
    device: str = ""


class ImportRecord(BaseModel):
    """What was imported together. device: as said, or as files name it. foreign_kernels: not in the source."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    variant: str
    network: str
    size: int
    device: str
    files: list[File]
    foreign_kernels: list[str] = []


@dataclass(frozen=True)
class ImportedTables:
    """A profile of one variant at one size that somebody else took."""

    path: Path
    record: ImportRecord

    def table(self, table: Table) -> "pd.DataFrame":
        """One of TABLES; without rows where the files had none for it."""
        path = self.path / table.name
        return tables.with_places(table.read(path) if path.exists() else table.empty())


def write(folder: Path, record: ImportRecord, rows_of: Mapping[Table, list[Row]]) -> None:
    """Write an import's tables and its record in place of what the folder held of an earlier one."""
    (folder / RECORD).unlink(missing_ok=True)
    for table in TABLES:
        if table in rows_of:
            table.write(rows_of[table], folder / table.name)
        else:
            (folder / table.name).unlink(missing_ok=True)
    with atomic_write(folder / RECORD) as temporary:
        temporary.write_text(record.model_dump_json(indent=1) + "\n")


def describe_file(path: Path, profile: Profile) -> File:
    """The record of a file that was read."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return File(name=path.name, sha256=digest, what=profile.what, device=profile.device)


def imported_for_study(folder: Path) -> tuple[ImportedTables, ...]:
    """What was imported for a study, by variant and size. UserError names a damaged record."""
    found = []
    for path in folder.glob(f"*/{RECORD}"):
        try:
            found.append(ImportedTables(path.parent, ImportRecord.model_validate_json(path.read_text())))
        except (ValidationError, UnicodeDecodeError) as error:
            raise UserError(f"{path} is damaged: import the profile again") from error
    return tuple(sorted(found, key=lambda one: (one.record.variant, one.record.size)))
