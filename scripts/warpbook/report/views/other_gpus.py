"""GPU models beside each other: what they can do, and how variants fare on each."""

from collections.abc import Callable, Collection, Sequence

from markupsafe import Markup

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.evidence import Evidence
from warpbook.report.run_history import GpuModel, Headline, History, MeasuredVariant
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, HtmlTable, TableColumn, View, numbers, words
from warpbook.runs import catalog
from warpbook.runs.catalog import Run

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
        head += (*numbers(f"{line.model.name}: op time", "over the naive one", "times the bound"), *words("verdict"))
    caption = (
        f"{lines[0].network}, {units.count(lines[0].size)} images, on each GPU's newest run. Verdicts are against what "
        f"a variant builds on; those that differ between GPUs are bold. "
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
