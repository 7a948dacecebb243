"""Pack a run's tables as one zip, small enough for git, and the profilers' own files as another beside it."""

import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

from warpbook import runs, tables
from warpbook.errors import UserError, exit_status
from warpbook.files import written_whole

LIMIT_BYTES = 15 << 20


def pack(files: dict[str, Path], target: Path) -> None:
    """Write a zip of files by their names in it, the same bytes for the same contents."""
    with (
        written_whole(target) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed,
    ):
        for name, path in files.items():
            entry = zipfile.ZipInfo(name, date_time=(2000, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".gz") else zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            with packed.open(entry, "w") as out, open(path, "rb") as source:
                shutil.copyfileobj(source, out)


def archive(folder: Path, target_folder: Path) -> list[Path]:
    """Pack the run in `folder`; the paths written. Raises UserError where it is no sound run or too large."""
    run = runs.open_run(folder)
    if run.problem:
        raise UserError(run.problem)
    names = ["run.json", *(table.name for table in tables.RUN_TABLES)]
    size = sum((folder / name).stat().st_size for name in names if name.endswith(".gz"))
    if size > LIMIT_BYTES:
        raise UserError(
            f"{folder}: the compressed tables take {size / 2**20:.1f} MiB; an archive holds {LIMIT_BYTES >> 20} MiB"
        )
    made = [target_folder / f"{run.run_id}.zip"]
    pack({name: folder / name for name in names}, made[0])
    own = sorted(path for path in (folder / "profiles").rglob("*") if path.is_file())
    if own:
        made.append(target_folder / f"{run.run_id}.profiles.zip")
        pack({str(path.relative_to(folder / "profiles")): path for path in own}, made[1])
    return made


def main(job: Any) -> None:
    """Archive what a Snakemake job names."""
    made = archive(Path(job.input.run), Path(job.params.folder))
    with written_whole(job.output[0]) as temporary:
        temporary.write_text("".join(f"{path}\n" for path in made))
    print("archived as " + " and ".join(map(str, made)))


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(snakemake)))  # noqa: F821
