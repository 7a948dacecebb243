"""Make the reports of docs/gallery/ from its notebook folders, with the archived runs: each PDF, and a picture of a page.

PDFs go to reports/out/gallery/, which is no part of the repository; pictures stand beside the folders, which are.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
FOLDERS, PDFS, WORK = (PROJECT / path for path in ("docs/gallery", "reports/out/gallery", "results/gallery"))
COMMAND = re.compile(r"^    warpbook (.*)$", re.M)
REPORT = re.compile(r"^The report is `(.*)`\.$", re.M)
PIXELS = 700  # of a picture's width
SHOWN_PAGE = {"class-table": 1}  # of the others the second, which has the findings


def main() -> None:
    if not shutil.which("pdftoppm"):
        sys.exit("error: pdftoppm is missing, which makes the pictures: apt-get install poppler-utils")
    PDFS.mkdir(parents=True, exist_ok=True)
    for folder in sorted(path for path in FOLDERS.iterdir() if path.is_dir()):
        text = (folder / "README.md").read_text(encoding="utf-8")
        command, report = COMMAND.search(text), REPORT.search(text)
        assert command and report, f"{folder}/README.md names no command, or no report"
        notebook = WORK / folder.name  # it keeps what it made: a second time takes seconds
        shutil.copytree(folder, notebook, dirs_exist_ok=True)
        print(f"{folder.name}: warpbook {command[1]}", flush=True)
        subprocess.run(
            [sys.executable, "-m", "warpbook", *shlex.split(command[1])],
            cwd=notebook,
            env={**os.environ, "PYTHONPATH": str(PROJECT / "scripts")},
            check=True,
        )
        pdf = PDFS / f"{folder.name}.pdf"
        shutil.copy(notebook / report[1], pdf)
        page = str(SHOWN_PAGE.get(folder.name, 2))
        subprocess.run(
            ["pdftoppm", "-png", "-singlefile", "-f", page, "-scale-to-x", str(PIXELS), "-scale-to-y", "-1",
             pdf, FOLDERS / folder.name],
            check=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
