"""All archived runs, for the pages of `snakemake site`: an overview, and each network's history and variants."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.figures import history_plots
from warpbook.report.run_history import Headline, History, MeasuredVariant
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, Fact, Figure, HtmlTable, View, numbers, words
from warpbook.report.views.other_gpus import APART, comparison_tables
from warpbook.runs.catalog import Run


@dataclass(frozen=True)
class Link:
    """A file beside the pages, and what it is."""

    file: str
    words: str


def overview(
    history: History,
    refused: Sequence[str] = (),
    reports: Sequence[Link] = (),
    traces: Mapping[str, Sequence[Link]] | None = None,
) -> View:
    """What the pages show. traces: by network."""
    pages = tuple(_page(history, name, (traces or {}).get(name, ())) for name in history.networks)
    return View(
        facts=tuple(_fact(history, page.name, page.file) for page in pages),
        runs=_runs(history.runs),
        refused=tuple(refused),
        networks=pages,
        models=tuple(model.name for model in history.models if model.device == "gpu"),
        devices=comparison_tables(history),
        reports=tuple(reports),
    )


def network_page_name(network: str, networks: Sequence[str]) -> str:
    """The page of a network, whose name may be a stranger's."""
    return f"network-{networks.index(network) + 1}-{re.sub('[^a-z0-9]+', '-', network.lower())[:40].strip('-')}.html"


def _fact(history: History, network: str, file: str) -> Fact:
    """The newest headline of a network."""
    line = history.for_network(network)[-1]
    ratio = f", {units.ratio_beside_interval(line.over[1].ratio)}† over {line.over[0]}" if line.over else ""
    label = Markup('<a href="{}">{}</a>, {} images').format(file, network, units.count(line.size))
    spread = f"{units.spread(line.time)} {units.sample_size([line.time])}".strip()
    return Fact(label, units.time(line.time.value), f"{spread}, {line.best}{ratio}, {line.model.name}")


def _runs(runs: Sequence[Run]) -> HtmlTable:
    """Newest first."""
    head = (*words("Run", "Ended", "Commit", "GPU", "CPU", "Studies"), *numbers("Variants"))
    rows = tuple(
        (
            run.run_id,
            str(run.record["ended"])[:10],
            run.commit,
            run.device_name("gpu"),
            run.device_name("cpu"),
            ", ".join(run.record["studies"]),
            str(len(run.record["variants"])),
        )
        for run in reversed(runs)
    )
    return HtmlTable("runs", "Archived runs, the newest first; + marks a working tree with changes.", head, rows)


def _page(history: History, name: str, traces: Sequence[Link]) -> View:
    lines = history.for_network(name)
    models = [model for model in history.models if history.newest(name, model)]
    return View(
        file=network_page_name(name, history.networks),
        name=name,
        images=units.count(lines[-1].size),
        history=_history(name, lines),
        figures=_figures(lines) if any(len(history.for_network(name, model)) > 1 for model in models) else (),
        variants=tuple(
            _variants(history, line, number)
            for number, model in enumerate(models, 1)
            if (line := history.newest(name, model))
        ),
        traces=tuple(traces),
    )


def _history(name: str, lines: Sequence[Headline]) -> HtmlTable:
    """Newest first."""
    head = (
        *words("Run", "Commit", "Device", "Best variant"),
        *numbers("Op time", "Over the naive one", "Over the fastest FP32 library"),
        *words("Since the run before"),
    )
    rows = tuple(
        (
            str(line.run.record["ended"])[:10],
            line.run.commit,
            line.model.name,
            line.best,
            cell_markup.time_cell(line.time),
            cell_markup.speedup_cell(line.over[1]) if line.over else MISSING,
            Markup("{} ({})").format(cell_markup.speedup_cell(line.peer[1]), line.peer[0]) if line.peer else MISSING,
            _step(line),
        )
        for line in reversed(lines)
    )
    caption = (
        f"The best FP32 variant of each run on {name}, without libraries: op times of all layers at the "
        "largest size, with half the width of their 95 % interval. Since the run before on the same kind of device: the "
        "speedup and the verdict, corrected by how far unchanged variants differ between the two runs. "
        f"{APART}"
    )
    return HtmlTable("history", caption, head, rows)


def _step(line: Headline) -> Cell:
    if line.step is None:
        return "the first"
    if line.step.speedup is None:
        return f"not compared: {line.step.why}"
    return Markup("{} {}").format(
        cell_markup.verdict_cell(line.step.speedup), cell_markup.speedup_cell(line.step.speedup)
    )


def _figures(lines: Sequence[Headline]) -> tuple[Figure, ...]:
    rules = "A vertical rule marks a run that is faster (green) or slower (red) than the one before on its device"
    interval = "with its 95 % interval, each device on its own axis"
    shown = list(lines)
    times, ratios = (
        "Op time of the best variant of each run",
        "The best variant's speedup over the naive one in each run",
    )
    return (
        Figure("times", history_plots.op_times(shown), times, f"{times}, {interval}. {rules}."),
        Figure("speedups", history_plots.speedups(shown), ratios, f"{ratios}, {interval}."),
    )


def _variants(history: History, line: Headline, number: int) -> HtmlTable:
    """Every variant of a model's newest run, fastest first."""
    head = (
        *words("Variant"),
        *numbers("Op time", "Over the naive one"),
        *words("Against what it builds on"),
        *numbers("Op time over its bound", "Registers"),
    )
    caption = (
        f"Variants on {line.model.name}, {units.count(line.size)} images, run {line.run.run_id}. The bound: the least "
        "time of the direct method in FP32 on the device. "
        f"{APART}"
    )
    return HtmlTable(f"variants-{number}", caption, head, tuple(map(_variant, history.variants(line))), "dense")


def _variant(row: MeasuredVariant) -> tuple[Cell, ...]:
    return (
        f"{row.name} ({'library' if row.peer else row.precision})" if row.peer or row.precision != "fp32" else row.name,
        cell_markup.time_cell(row.time),
        cell_markup.speedup_cell(row.over_naive),
        cell_markup.comparison_cell(row.over_baseline, row.builds_on) if row.over_baseline else MISSING,
        units.significant(row.bound, 3) if row.bound else MISSING,
        str(row.registers) if row.registers is not None else MISSING,
    )


def report_links(folder: Path, titles: Mapping[str, str]) -> list[Link]:
    """The rendered reports of a folder, of studies that are configured, report and supplement and page."""
    endings = {".pdf": "report, PDF", "-supplement.pdf": "supplement, PDF", ".html": "both, as a page"}
    return [
        Link(f"{study}{ending}", f"{study}: {title} ({kind})")
        for study, title in titles.items()
        for ending, kind in endings.items()
        if (folder / f"{study}{ending}").is_file()
    ]
