"""Compare two runs. Write the result as Markdown and PDF; the exit status is the verdict.

    python scripts/compare_runs.py --base 20261120-nvidia-h200-3f2a1c --head results/run

For two files that nvbench wrote with `--jsonbin`, print the result by the same rule.

Exit status 0: no regression, 3: regression, 4: ambiguous, 5: the runs are not comparable, 1: the command failed.
"""

import argparse
import math
import sys
from pathlib import Path

from warpbook.common import units, version
from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import atomic_write
from warpbook.problems import networks
from warpbook.profiling import nvbench
from warpbook.report import comparison, pdf, rendering
from warpbook.report.comparison import Comparison
from warpbook.report.views.runs_compared import notes
from warpbook.runs import catalog

FOLDER = Path("reports/out")
TOLERANCE = "smallest change that is reported; by default that of config.yaml"
NVBENCH_STATUS = {comparison.REGRESSION: "slower", comparison.AMBIGUOUS: "ambiguous"}


def open_named_run(side: str, name: str) -> catalog.Run:
    """The run that `base` or `head` names, by path or by the id of an archived run; every table is read."""
    if not name:
        raise UserError(f"compare needs two runs, base=<run> and head=<run>, ids or paths: {side} is missing")
    run = catalog.open_run(Path(name)) if Path(name).exists() else catalog.find_archived(name, side)
    return run.check_all()


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1, as 0.02 for 2 %")
    return value


def compare_nvbench(base: Path, head: Path, tolerance: float) -> int:
    """Print a line for each state of both files; the exit status."""
    compared = nvbench.compare(base, head, tolerance)
    for one in compared:
        ratio = f"{one.speedup.value:.4f} [{one.speedup.low:.4f}, {one.speedup.high:.4f}]"
        times = f"{units.milliseconds(one.base_ms.value)} to {units.milliseconds(one.head_ms.value)} ms"
        print(f"{one.verdict:9}  {ratio}  {times}  {one.name}")
    verdicts = {one.verdict for one in compared}
    outcome = next((code for code, word in NVBENCH_STATUS.items() if word in verdicts), comparison.NO_REGRESSION)
    print(f"{comparison.OUTCOMES[outcome]}; head's speedup over base with its 95 % interval, from {base} to {head}")
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"Warpbook {version.VERSION}")
    parser.add_argument("--base", required=True, help="the run to compare with: an id of reports/runs, or a path")
    parser.add_argument("--head", required=True, help="the run to judge")
    configured = str(networks.project_configuration().get("tolerance", 0.02))
    parser.add_argument("--tolerance", type=_tolerance, default=configured, help=TOLERANCE)
    parser.add_argument("--markdown", type=Path, default=FOLDER / "compare.md")
    parser.add_argument("--notes", action="store_true", help="print only the worst changes, as a few lines of Markdown")
    parser.add_argument("--pdf", type=Path, default=FOLDER / "compare.pdf")
    arguments = parser.parse_args()
    if arguments.base.endswith(".json") and arguments.head.endswith(".json"):
        return compare_nvbench(Path(arguments.base), Path(arguments.head), arguments.tolerance)
    base, head = open_named_run("base", arguments.base), open_named_run("head", arguments.head)
    if base.run_id == head.run_id:
        said = f"note: base and head are the same run, {base.run_id}: nothing differs but what somebody changed in one"
        print(said, file=sys.stderr)
    compared = Comparison(base, head, arguments.tolerance)
    if arguments.notes:
        print(notes(compared), end="")
        return compared.outcome
    markdown, document = rendering.comparison_text(compared), rendering.comparison_html(compared)
    pdf.weasyprint()  # loaded here, the process below shares it
    with atomic_write(arguments.markdown) as text, atomic_write(arguments.pdf) as pages:
        text.write_text(markdown)
        pdf.within_limits(lambda: pdf.write_pdf(document, pages))
    print(f"{comparison.OUTCOMES[compared.outcome]}: see {arguments.markdown} and {arguments.pdf}")
    return compared.outcome


if __name__ == "__main__":
    sys.exit(exit_status(main, failed=1))
