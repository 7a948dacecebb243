"""Measure how long the main commands take on this machine, and how much disk they need.

python scripts/benchmark.py            measure in this folder, after `make report`
python scripts/benchmark.py --fresh    measure `make report` and `make test` in a fresh clone, too
python scripts/benchmark.py --times 5  medians of five
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from warpbook.common import version

PROJECT = Path(__file__).parents[1]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--cores", "1"]
REPORT = [*SNAKEMAKE, "report"]
COURSE_FILE = PROJECT / "tests" / "data" / "course" / "unrolled_blas.cu"


def seconds(command: list[str], folder: Path = PROJECT) -> float:
    """Wall time of a command, which must succeed. Its output is shown only when it fails."""
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - began


def megabytes(folder: Path) -> float:
    """Size of a folder's files in MB (1e6 bytes), links not followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def fresh_clone() -> Iterator[tuple[str, float, str]]:
    """What a newcomer waits for: (what, how much, its unit)."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "warpbook"
        subprocess.run(["git", "clone", "--quiet", PROJECT, clone], check=True)
        yield "`make report` in a fresh clone, installs included", seconds(["make", "report"], clone), "s"
        yield "its `.venv`", megabytes(clone / ".venv"), "MB"
        yield "`make test` after it", seconds(["make", "test"], clone), "s"


def here() -> Iterator[tuple[str, float, str]]:
    """What one waits for day by day: (what, how much, its unit)."""
    seconds(REPORT)
    yield "`snakemake --cores 1 report`, nothing changed", seconds(REPORT), "s"
    kernel = PROJECT / "kernels" / "conv" / "direct.cu"
    text = kernel.read_text()
    try:
        kernel.write_text(text.rstrip("\n") + "\n// one line more\n")
        yield "the same, one kernel's source changed", seconds(REPORT), "s"
    finally:
        kernel.write_text(text)
    seconds(REPORT)
    yield "rendering alone", seconds([*REPORT, "--forcerun", "render_report"]), "s"
    with tempfile.TemporaryDirectory() as folder:
        layer = Path(folder) / "mine" / "project" / "src" / "layer" / "custom"
        layer.mkdir(parents=True)
        # Another text each time: nothing of it was built or checked before.
        (layer / "new-forward.cu").write_text(f"{COURSE_FILE.read_text()}// {time.time_ns()}\n")
        submission = [*SNAKEMAKE, "submission", "--config", f"path={layer.parents[2]}", "study=sp25"]
        yield "a submission of the course, a file, to its PDF", seconds(submission), "s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"Warpbook {version.VERSION}")
    parser.add_argument("--fresh", action="store_true", help="also clone, install and make everything again")
    parser.add_argument("--times", type=int, default=1, help="how often, for a median")
    arguments = parser.parse_args()
    found: dict[tuple[str, str], list[float]] = {}
    for measure in [fresh_clone, here] if arguments.fresh else [here]:
        for _ in range(arguments.times):
            for what, value, unit in measure():
                found.setdefault((what, unit), []).append(value)
    print("| what | here |\n| --- | --- |")
    for (what, unit), values in found.items():
        value = statistics.median(values)
        print(f"| {what} | {value:.{1 if value < 100 else 0}f} {unit} |")


if __name__ == "__main__":
    main()
