"""Render a study's report from the runs that it cites: one HTML file, a PDF, and a PDF that supplements it."""

import argparse
import gc
import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from warpbook.common import version
from warpbook.common.errors import exit_status
from warpbook.common.files import atomic_write
from warpbook.common.supervision import process_pool
from warpbook.profiling import imported_tables
from warpbook.report import console_summary, evidence, rendering
from warpbook.report import pdf as layout
from warpbook.report.views.components import View
from warpbook.runs import catalog
from warpbook.workflow import plan

IN_OTHER_PROCESS: list[rendering.Documents] = []
"""Whose supplement another process makes: it is forked with them, for they are too large to send."""


def render(
    study: str,
    values: dict[str, Any],
    run: Path,
    html: Path,
    pdf: Path,
    profiles: Path | None = None,
    said: Path | None = None,
) -> None:
    """Write the report of `study`, and its supplement beside `pdf`, with this machine's run at `run`. profiles: folder
    of imported profiles. said: a file for the console's words. What exceeds pdf.within_limits is left out, which the
    report says."""
    planned = plan.from_config(values)
    ev = evidence.load(
        planned, study, catalog.open_run(run), imported_tables.imported_for_study(profiles) if profiles else ()
    )
    commit, dirty = version.commit()
    # Not the time of day: the same run and code make the same bytes, whenever and wherever they are rendered.
    ended = datetime.fromisoformat(ev.local.record["ended"]).astimezone(UTC)
    supplement_pdf = pdf.with_name(f"{pdf.stem}-supplement.pdf")
    # Both before the process that lays out is forked: what it takes to tell the result, the pages need too.
    layout.weasyprint()
    words = "\n".join(console_summary.summary_lines(ev, pdf, html))
    with (
        atomic_write(html) as temporary_html,
        atomic_write(pdf) as temporary_pdf,
        atomic_write(supplement_pdf) as temporary_supplement,
    ):

        def write() -> None:
            documents = rendering.Documents(ev, ended, commit, dirty)
            IN_OTHER_PROCESS.append(documents)
            with process_pool(1) as pool:
                pool.submit(_prepare_supplement)
                # What takes half of its time is made here: the other process has more to lay out.
                part = pool.submit(_supplement_part, documents.remaining_optimizations)
                supplement = pool.submit(_write_supplement, temporary_supplement)
                _ = documents.report_but_last_page  # made while the other process makes the supplement
                documents.supplement_part = part.result()
                temporary_html.write_text(rendering.embed_assets(documents.whole))
                layout.write_pdf(documents.report, temporary_pdf, ev.cited_runs)
                supplement.result()

        try:
            layout.within_limits(write)
        except layout.LayoutLimit as limit:
            ev.imported, ev.texts_left_out = (), f"The authors' discussion and imported profiles are left out: {limit}."
            layout.within_limits(write)
            print(f"warning: {ev.texts_left_out}", file=sys.stderr)
    if said:
        with atomic_write(said) as temporary:
            temporary.write_text(f"{words}\n")
    print(words)


def _prepare_supplement() -> None:
    _ = IN_OTHER_PROCESS[-1].supplement_view


def _supplement_part(optimizations: tuple[View, ...]) -> rendering.DocumentPart:
    documents = IN_OTHER_PROCESS[-1]
    documents.remaining_optimizations = optimizations
    return documents.supplement_part


def _write_supplement(pdf: Path) -> None:
    layout.write_pdf(IN_OTHER_PROCESS[-1].supplement, pdf)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", required=True)
    parser.add_argument("--config", type=json.loads, required=True, help="the configuration, as JSON")
    parser.add_argument("--run", type=Path, required=True, help="this machine's run")
    parser.add_argument("--imported", type=Path, help="folder of the profiles that were imported for the study")
    parser.add_argument("--html", type=Path, required=True)
    parser.add_argument("--pdf", type=Path, required=True)
    parser.add_argument("--console-summary", type=Path, help="file for the last lines on the console")
    arguments = parser.parse_args()
    gc.disable()  # all objects live until the document is written: collecting garbage would take a seventh of the time
    given = arguments.study, arguments.config, arguments.run, arguments.html, arguments.pdf
    # WeasyPrint's folders of fonts are in this one: it takes them away with its objects, which the end leaves alone.
    with tempfile.TemporaryDirectory(prefix="weasyprint-") as tempfile.tempdir:
        render(*given, arguments.imported, arguments.console_summary)


if __name__ == "__main__":
    status = exit_status(main)
    if not sys.stderr.closed:
        sys.stdout.flush()
    os._exit(status)  # taking all objects apart one by one would take as long as a tenth of the work
