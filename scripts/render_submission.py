"""Render the report of this project's submission, and its rows of the table over all."""

import argparse
import gc
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from warpbook.common import version
from warpbook.common.errors import exit_status
from warpbook.common.files import atomic_write
from warpbook.course.grades_table import GRADES
from warpbook.report import class_report, evidence, pdf, rendering
from warpbook.runs import catalog
from warpbook.workflow import plan


def render(values: dict[str, Any], run: Path, out: Path) -> None:
    """Write report.pdf, .html and .csv into `out`; without the answers, and saying so, beyond pdf.within_limits."""
    planned = plan.from_config(values)
    ev = evidence.load(planned, planned.config.study, catalog.open_run(run))
    commit, dirty = version.commit()
    ended = datetime.fromisoformat(ev.local.record["ended"]).astimezone(UTC)

    with atomic_write(out) as folder:
        folder.mkdir()

        def write() -> None:
            document = pdf.add_page_numbers(rendering.submission_html(ev, ended, commit, dirty))
            (folder / "report.html").write_text(rendering.embed_assets(document), encoding="utf-8")
            pdf.write_untrusted_pdf(document, folder / "report.pdf", ev.cited_runs)
            GRADES.write(class_report.rows(ev, document), folder / "report.csv")

        pdf.weasyprint()  # loaded here, the processes share it
        try:
            pdf.within_limits(write)
        except pdf.LayoutLimit as limit:
            ev.submitted.answers_left_out = f"The answers are left out: {limit}. Read them in the submission."
            pdf.within_limits(write)


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
