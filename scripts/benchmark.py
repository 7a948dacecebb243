"""Measure how long the main commands take on this machine, and how much disk they need.

python scripts/benchmark.py            measure in this folder, after `make report`
python scripts/benchmark.py --fresh    measure `make report` and `make test` in a fresh clone, too
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from warpbook.common import version

PROJECT = Path(__file__).parents[1]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--cores", "1", "report"]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"Warpbook {version.VERSION}")
    parser.add_argument("--fresh", action="store_true", help="also clone, install and make everything again")
    arguments = parser.parse_args()
    rows: list[tuple[str, str]] = []
    if arguments.fresh:
        with tempfile.TemporaryDirectory() as folder:
            clone = Path(folder) / "warpbook"
            subprocess.run(["git", "clone", "--quiet", PROJECT, clone], check=True)
            rows.append(
                ("`make report` in a fresh clone, installs included", f"{seconds(['make', 'report'], clone):.0f} s")
            )
            rows.append(("its `.venv`", f"{megabytes(clone / '.venv'):.0f} MB"))
            rows.append(("`make test` after it", f"{seconds(['make', 'test'], clone):.0f} s"))
    seconds(SNAKEMAKE)
    rows.append(("`snakemake --cores 1 report`, nothing changed", f"{seconds(SNAKEMAKE):.1f} s"))
    kernel = PROJECT / "kernels" / "conv" / "direct.cu"
    text = kernel.read_text()
    try:
        kernel.write_text(text.rstrip("\n") + "\n// one line more\n")
        rows.append(("the same, one kernel's source changed", f"{seconds(SNAKEMAKE):.1f} s"))
    finally:
        kernel.write_text(text)
    seconds(SNAKEMAKE)
    rows.append(("rendering alone", f"{seconds([*SNAKEMAKE, '--forcerun', 'render_report']):.1f} s"))
    print("| what | here |\n| --- | --- |")
    for what, figure in rows:
        print(f"| {what} | {figure} |")


if __name__ == "__main__":
    main()
