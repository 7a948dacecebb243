"""Pack a run's tables as one zip, small enough for git, and the profilers' files as another beside it."""

import argparse
import shutil
import sys
import zipfile
from pathlib import Path

from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import atomic_write
from warpbook.runs import catalog, tables

LIMIT_BYTES = 15 << 20


def pack(files: dict[str, Path], target: Path) -> None:
    """Write a zip of files by their names in it, the same bytes for the same contents."""
    with (
        atomic_write(target) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed,
    ):
        for name, path in files.items():
            entry = zipfile.ZipInfo(name, date_time=(2000, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".gz") else zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with packed.open(entry, "w") as out, open(path, "rb") as source:
                shutil.copyfileobj(source, out)


def archive(folder: Path, target_folder: Path) -> list[Path]:
    """Pack the run in `folder` and return the paths written. Raises UserError where the run is damaged or too large."""
    run = catalog.open_run(folder).check_all()
    names = ["run.json", *(table.name for table in tables.RUN_TABLES)]
    size = sum((folder / name).stat().st_size for name in names if name.endswith(".gz"))
    if size > LIMIT_BYTES:
        raise UserError(
            f"{folder}: the compressed tables take {size / 2**20:.1f} MiB; an archive holds {LIMIT_BYTES >> 20} MiB"
        )
    made = [target_folder / f"{run.run_id}.zip"]
    pack({name: folder / name for name in names}, made[0])
    reports = sorted(path for path in (folder / "profiles").rglob("*") if path.is_file())
    if reports:
        made.append(target_folder / f"{run.run_id}.profiles.zip")
        pack({str(path.relative_to(folder / "profiles")): path for path in reports}, made[1])
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="folder for the archives")
    parser.add_argument("--out", type=Path, required=True, help="a list of the archives written")
    arguments = parser.parse_args()
    made = archive(arguments.run, arguments.folder)
    with atomic_write(arguments.out) as temporary:
        temporary.write_text("".join(f"{path}\n" for path in made))
    print("archived as " + " and ".join(map(str, made)))


if __name__ == "__main__":
    sys.exit(exit_status(main))
