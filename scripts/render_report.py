"""Render a study's report from the runs that it cites: one HTML file and one PDF."""

import gc
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from warpbook import config, evidence, plan, provenance, rendering, runs, variants
from warpbook.errors import exit_status
from warpbook.files import written_whole


def render(study: str, values: dict[str, Any], run: Path, html: Path, pdf: Path) -> None:
    """Write the report of `study` under a configuration's values, with this machine's run at `run`."""
    planned = plan.make(config.load(values, list(variants.discover())))
    found = evidence.load(planned, study, runs.open_run(run))
    commit, dirty = provenance.commit()
    document = rendering.to_html(found, datetime.now().astimezone(), commit, dirty)
    with written_whole(html) as temporary_html, written_whole(pdf) as temporary_pdf:
        temporary_html.write_text(rendering.standalone(document))
        rendering.to_pdf(document, temporary_pdf)


def main(job: Any) -> None:
    """Render what a Snakemake job names."""
    gc.disable()  # a document's objects live until it is written: looking for dead ones takes a seventh of the time
    render(job.wildcards.study, job.params.config, Path(job.input.run), Path(job.output.html), Path(job.output.pdf))


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(snakemake)))  # noqa: F821
