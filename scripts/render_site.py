"""Make static pages about all archived runs: history, comparison of devices, every variant. They need no web server."""

import argparse
import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import atomic_write
from warpbook.config import settings
from warpbook.kernels import variants
from warpbook.profiling import perfetto
from warpbook.report import rendering
from warpbook.report.run_history import History
from warpbook.report.views import run_archive
from warpbook.report.views.run_archive import Link
from warpbook.runs import catalog, tables
from warpbook.runs.catalog import Run

PLAIN = r"\w[\w.:-]{0,60}"  # a word of a stranger's that may be part of a file's name


def open_archived_runs(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Archived runs that are in order, and why others are not."""
    sound, refused = [], []
    for path in paths:
        try:
            sound.append(catalog.open_run(path).check_all())
        except UserError as error:
            refused.append(str(error))
    return sound, refused


def write_traces(history: History, folder: Path) -> dict[str, list[Link]]:
    """The profiled programs of each GPU's newest run, by network."""
    found: dict[str, list[Link]] = {}
    newest = {run.device_name("gpu"): run for run in history.runs if run.gpu}
    for run in newest.values():
        activities = run.table(tables.ACTIVITIES)
        for column in ("network", "variant", "tool"):
            activities = activities[activities[column].str.fullmatch(PLAIN)]
        activities = activities[activities.weights.str.fullmatch(f"({PLAIN})?")]
        for network, its in activities.groupby("network", sort=False):
            for path in perfetto.write(its, folder / "traces" / run.run_id):
                words = f"{path.name.removesuffix('.json.gz')} on {run.device_name('gpu')}"
                found.setdefault(str(network), []).append(Link(path.relative_to(folder).as_posix(), words))
    return found


def render(archived: Iterable[Path], reports: Path, values: dict[str, Any], out: Path) -> None:
    """Write the folder of pages over runs at those paths, with copies of the reports that are rendered."""
    configured = settings.load(values, list(variants.discover()))
    sound, refused = open_archived_runs(archived)
    history = History(sound, configured.tolerance)
    links = run_archive.report_links(reports, {name: study.title for name, study in configured.studies.items()})
    with atomic_write(out) as folder:
        folder.mkdir()
        traces = write_traces(history, folder)
        for path in sorted((rendering.FOLDER / "fonts").glob("*.*")):
            (folder / "fonts").mkdir(exist_ok=True)
            shutil.copyfile(path, folder / "fonts" / path.name)
        for link in links:
            shutil.copyfile(reports / link.file, folder / link.file)
        shown = run_archive.overview(history, refused, links, traces)
        for name, page in rendering.site_pages(configured.report.title, shown).items():
            (folder / name).write_text(page)
    print(f"Pages over {len(sound)} archived runs: {out / 'index.html'}")
    for problem in refused:
        print(f"  passed over: {problem}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--archived", type=Path, nargs="*", default=[], help="archived runs")
    parser.add_argument("--reports", type=Path, required=True, help="folder of rendered reports")
    parser.add_argument("--config", type=json.loads, required=True, help="the configuration, as JSON")
    parser.add_argument("--out", type=Path, required=True, help="folder to create")
    arguments = parser.parse_args()
    render(arguments.archived, arguments.reports, arguments.config, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
