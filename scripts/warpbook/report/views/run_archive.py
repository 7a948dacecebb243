"""Archived runs: GPU models beside each other, and the pages of `snakemake site`."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.evidence import Evidence
from warpbook.report.figures import history_plots
from warpbook.report.run_history import GpuModel, Headline, History, MeasuredVariant
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, Fact, Figure, HtmlTable, TableColumn, View, numbers, words
from warpbook.runs import catalog
from warpbook.runs.catalog import Run

BOUND = "Its bound: the least time of the direct method in FP32 on the device."
APART = "†: times of two separate jobs. The interval holds the spread of both times and no drift between the jobs."


def other_gpus_view(ev: Evidence) -> View | None:
    """None where no archived run is of another GPU model."""
    if ev.gpu_run is None or ev.gpu is None:
        return None
    return times_on_other_gpus(ev, catalog.runs_of_other_models(ev.gpu_run, ev.network.name))


def times_on_other_gpus(ev: Evidence, others: Sequence[Run]) -> View | None:
    """The GPU of a study's figures beside those of other runs: variants whose sources are those of today in both."""
    assert ev.gpu_run is not None
    history = History([*others, ev.gpu_run], ev.config.tolerance, [ev.network.name])
    ours = GpuModel("gpu", ev.gpu_run.device_name("gpu"))
    mine = history.newest(ev.network.name, ours)
    if mine is None:
        return None
    current = {variant.name: variant.source_sha256 for variant in ev.compared_variants("gpu")}
    always = {one.name for one in ev.ranking.headliners}
    found = [history.newest(ev.network.name, model) for model in history.models if model != ours]
    lines = [line for line in found if line and line.model.device == "gpu" and line.size == mine.size]
    tables = [
        _network_table(history, [mine, line], f"devices-{number}", current.get, always)
        for number, line in enumerate(lines, 1)
    ]
    pairs = [table for table in tables if table.rows]
    if not pairs:
        return None
    models = [ours, *(line.model for line in lines)]
    names = tuple(model.name for model in models[1:])
    return View(ours=ours.name, others=names, limits=_limits(history, models), pairs=tuple(pairs))


def comparison_tables(history: History) -> tuple[HtmlTable, ...]:
    """GPU models of archived runs and, by network, those measured at the same sizes; empty for one."""
    gpus = [model for model in history.models if model.device == "gpu"]
    if len(gpus) < 2:
        return ()
    tables = [_limits(history, gpus)]
    for name in history.networks:
        newest = [line for model in gpus if (line := history.newest(name, model))]
        lines = [line for line in newest if _shapes(line) == _shapes(newest[0])]
        if len(lines) > 1:
            tables.append(_network_table(history, lines, f"on-{len(tables)}"))
    return tuple(tables)


def _shapes(line: Headline) -> tuple[str, int]:
    """What figures of two runs must share to stand beside each other."""
    return line.run.record["networks"][line.network]["shapes_sha256"], line.size


def _limits(history: History, gpus: Sequence[GpuModel]) -> HtmlTable:
    """What each model's newest run says of it."""
    head = (*words("GPU", "Architecture"), *numbers("FP32 peak", "Copies", "L2 cache", "Runs"))
    rows = []
    for model in gpus:
        its = [run for run in history.runs if run.gpu and run.gpu["name"] == model.name]
        gpu = its[-1].gpu or {}
        peak = gpu["peak_gflop_per_s"].get("fp32")
        rows.append(
            (
                model.name,
                gpu["arch"],
                f"{peak / 1e3:.1f}\u202fTFLOP/s" if peak else MISSING,
                f"{gpu['copy_gb_per_s'] / 1e3:.2f}\u202fTB/s",
                f"{gpu['l2_bytes'] / 2**20:.0f}\u202fMiB",
                str(len(its)),
            )
        )
    caption = "GPUs of the runs: peak arithmetic and measured copy bandwidth, which bound every kernel's time."
    return HtmlTable("gpus", caption, head, tuple(rows))


def _network_table(
    history: History,
    lines: Sequence[Headline],
    id: str,
    source: Callable[[str], str | None] | None = None,
    always: Collection[str] | None = None,
) -> HtmlTable:
    """The variants that every line's run has, with the verdict against what each builds on. source: the hash that a
    variant's sources must have. always: shown though the verdict is the same on all GPUs; None: all are."""
    found = [{row.name: row for row in history.variants(line)} for line in lines]
    both = [name for name in found[0] if all(name in its for its in found)]
    if source:
        both = [name for name in both if {its[name].source_sha256 for its in found} == {source(name)}]
    alike = [name for name in both if always is not None and name not in always and not _differ(name, found)]
    both = [name for name in both if name not in alike]
    head: tuple[TableColumn, ...] = words("Variant")
    for line in lines:
        head += numbers(f"{line.model.name}: op time", "over the naive one", "time over its bound")
        head += words("against what it builds on")
    caption = (
        f"{lines[0].network}, {units.count(lines[0].size)} images, on each GPU's newest run. {BOUND} Verdicts that differ "
        "between GPUs are bold. "
        + (f"Left out: {len(alike)} variants with the same verdict on each. " if alike else "")
        + APART
    )
    return HtmlTable(
        id, caption, head, tuple(_row(name, [its[name] for its in found]) for name in both), "dense by-gpu"
    )


def _differ(name: str, found: Sequence[dict[str, MeasuredVariant]]) -> bool:
    """Whether the verdict on a variant is another on another GPU."""
    return len({over.verdict for its in found if (over := its[name].over_baseline)}) > 1


def _row(name: str, measured: Sequence[MeasuredVariant]) -> tuple[Cell, ...]:
    row: list[Cell] = [Markup("_<wbr>").join(name.split("_"))]
    differ = len({one.over_baseline.verdict for one in measured if one.over_baseline}) > 1
    for one in measured:
        verdict = cell_markup.verdict_cell(one.over_baseline)
        row += [
            units.time(one.time.value),
            cell_markup.speedup_cell(one.over_naive),
            units.significant(one.bound, 3) if one.bound else MISSING,
            Markup("<strong>{}</strong>").format(verdict) if differ else verdict,
        ]
    return tuple(row)


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
            cell_markup.speedup_cell(line.over and line.over[1]),
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
    caption = f"Variants on {line.model.name}, {units.count(line.size)} images, run {line.run.run_id}. {BOUND} {APART}"
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
