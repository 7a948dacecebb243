"""Report on one submission of the course: its own project made or brought up to date, and its Snakemake run."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from warpbook import files, submissions
from warpbook.errors import UserError, exit_status
from warpbook.harness.supervision import leave_with

REPORT = Path("results/report")
"""What the room's Snakemake makes, from the room's folder."""


def work(room: Path, cores: int) -> None:
    """Have the room's own Snakemake make the report. Raises UserError where it fails."""
    parent = os.getpid()
    command: list[str | Path] = [sys.executable, "-m", "snakemake", "--cores", str(cores), REPORT]
    environment = {**os.environ, files.GIVEN: str(room.absolute())}
    done = subprocess.run(command, cwd=room, env=environment, preexec_fn=lambda: leave_with(parent))
    if done.returncode:
        raise UserError(f"the Snakemake of {room} failed with exit status {done.returncode}; what it said stands above")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the submission")
    parser.add_argument("--name", required=True, help="what it is called")
    parser.add_argument("--config", type=json.loads, required=True, help="what its project has of this one's, as JSON")
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the reports")
    arguments = parser.parse_args()
    study = arguments.config["study"]
    room = submissions.ROOMS / study / arguments.name
    submissions.open_room(room, arguments.name, arguments.folder, arguments.config)
    work(room, arguments.cores)
    named = f"ECE408_{study.upper()}_{arguments.name}_m3_report"  # as the course wants it called
    with files.written_whole(arguments.out) as out:
        out.mkdir()
        for ending in (".pdf", ".html", ".csv"):
            shutil.copyfile(room / REPORT / f"report{ending}", out / f"{named}{ending}")
    print(f"Report of {arguments.name}: {arguments.out / f'{named}.pdf'}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
