"""Hold one run against another: as Markdown, as PDF, and as the exit status of `snakemake compare`."""

import sys
from pathlib import Path
from typing import Any

from warpbook import comparison, rendering, runs
from warpbook.comparison import Comparison
from warpbook.errors import UserError, exit_status
from warpbook.files import written_whole


def named(side: str, name: str) -> runs.Run:
    """The run that `base` or `head` names: a path, or the id of an archived run. It is read whole."""
    if not name:
        raise UserError(f"compare needs two runs; give --config base=<run> head=<run>, ids or paths: {side} is missing")
    run = runs.open_run(Path(name)) if Path(name).exists() else runs.find_archived(name, side)
    if run.problem:
        raise UserError(run.problem)
    return run


def main(job: Any) -> None:
    """Compare what a Snakemake job names; the exit status goes into a file."""
    params = job.params
    found = Comparison(named("base", params.base), named("head", params.head), params.tolerance)
    markdown, document = rendering.comparison_text(found), rendering.comparison_html(found)
    with written_whole(params.markdown) as text, written_whole(params.pdf) as pdf:
        text.write_text(markdown)
        rendering.to_pdf(document, pdf)
    print(f"{comparison.OUTCOMES[found.outcome]}: see {params.markdown} and {params.pdf}")
    with written_whole(params.outcome) as temporary:
        temporary.write_text(str(found.outcome))


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(snakemake)))  # noqa: F821
