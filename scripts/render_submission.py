"""Render the report of the submission that this project was made for, and its rows of a table over many."""

import argparse
import gc
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from warpbook import plan, provenance, runs
from warpbook.errors import exit_status
from warpbook.files import written_whole
from warpbook.grades import GRADES
from warpbook.report import evidence, grading, rendering
from warpbook.report.pdf import paged, write_strangers_pdf


def render(values: dict[str, Any], run: Path, out: Path) -> None:
    """Write report.pdf, report.html and report.csv into the folder `out`."""
    planned = plan.of(values)
    ev = evidence.load(planned, planned.config.study, runs.open_run(run))
    commit, dirty = provenance.commit()
    ended = datetime.fromisoformat(ev.local.record["ended"]).astimezone(UTC)
    document = paged(rendering.of_submission(ev, ended, commit, dirty))
    with written_whole(out) as folder:
        folder.mkdir()
        (folder / "report.html").write_text(rendering.standalone(document))
        write_strangers_pdf(document, folder / "report.pdf", ev.cited)
        GRADES.write(grading.rows(ev, document), folder / "report.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="the configuration, as JSON")
    parser.add_argument("--run", type=Path, required=True, help="this machine's run")
    parser.add_argument("--out", type=Path, required=True, help="folder of the report")
    arguments = parser.parse_args()
    gc.disable()  # all objects live until the document is written: collecting garbage would take a seventh of the time
    render(arguments.config, arguments.run, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
