"""Supplement: every series of samples."""

from dataclasses import dataclass

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.report import figures
from warpbook.report.evidence import Evidence
from warpbook.report.views.components import Cell, Figure, HtmlTable, numbers, words

SERIES = (("gpu", "cold"), ("op", "cold"), ("gpu", "hot"), ("op", "hot"), ("layer", "cold"))


@dataclass(frozen=True)
class AllTimes:
    """throttled: samples left out as taken under a slowdown; refused: kernel times that are no figure. over_cpu: the
    first GPU kernel over each CPU variant, None where either has no figure. bounds: None where they are not known."""

    relative_noise: str
    throttled: int
    refused: int
    table: HtmlTable
    bounds: HtmlTable | None
    over_cpu: Figure | None


def all_times_view(ev: Evidence) -> AllTimes:
    """Of every variant, layer and size with an op time."""
    return AllTimes(
        relative_noise=units.percent(ev.config.measuring.target_rel_ci, 0),
        throttled=int(ev.selection.summaries.throttled_count.sum()),
        refused=ev.times.refused_samples,
        table=HtmlTable(
            "a-times",
            "Every series of samples: medians in ms. Those that the report quotes have half the width of their 95 % interval and "
            "the number of samples. The last column is the direct method's bound in FP32.",
            (
                *words("Variant", ev.case_word.capitalize()),
                *numbers(ev.size_word, *(f"{kind}, {state}" for kind, state in SERIES[:-1]), "layer"),
            ),
            tuple(
                row
                for device in ("gpu", "cpu")
                for variant in ev.compared_variants(device)
                for place in range(len(ev.layers))
                for size in ev.sizes
                if (row := _row(ev, variant, place, size))
            ),
            "wide",
        ),
        bounds=_bounds(ev),
        over_cpu=_over_cpu(ev, ev.ranking.naive) if ev.ranking.naive and ev.ranking.measured_variants("cpu") else None,
    )


def _over_cpu(ev: Evidence, naive: Variant) -> Figure:
    cpu = ev.ranking.measured_variants("cpu")
    gains = (ev.times.total_speedup(naive.name, size, over=other.name) for other in cpu for size in ev.sizes)
    return Figure(
        "m3-speedup",
        figures.time_plots.speedup_by_size(ev, naive, cpu),
        "Speedup of the first GPU kernel over each CPU variant against dataset size.",
        "Speedup of the first GPU kernel over each CPU variant, op times of all layers added, with 95\u202f% "
        f"intervals, {units.sample_size(gain.ratio for gain in gains if gain)}. Samples of two devices cannot be "
        "interleaved: these are ratios of separate jobs.",
    )


def _row(ev: Evidence, variant: Variant, place: int, size: int) -> tuple[Cell, ...] | None:
    layer = ev.layers[place]
    if not ev.times.op(variant.name, layer.name, size):
        return None
    return (
        variant.name,
        layer.name,
        units.count(size),
        *(_median(ev, variant, layer.name, size, kind, state) for kind, state in SERIES),
    )


def _bounds(ev: Evidence) -> HtmlTable | None:
    """The least times of the direct method in FP32; None where the GPU's limits are not known."""
    if not all(ev.times.fp32_bound_ms(layer, ev.largest) for layer in ev.layers):
        return None
    return HtmlTable(
        "a-bounds",
        f"The least time that {ev.device_name('gpu')} allows the direct method in FP32, in ms.",
        (*words(ev.case_word.capitalize()), *numbers(*map(ev.at_size, ev.sizes))),
        tuple(
            (layer.name, *(units.milliseconds(ev.times.fp32_bound_ms(layer, size), 3) for size in ev.sizes))
            for layer in ev.layers
        ),
        "dense",
    )


def _median(ev: Evidence, variant: Variant, layer: str, size: int, kind: str, state: str) -> Cell:
    """With its interval for what figures are quoted from."""
    estimate = ev.times.op(variant.name, layer, size, kind=kind, state=state)
    if estimate is None:
        return MISSING
    quoted = variant.device == "cpu" or (state == "cold" and kind != "layer")
    spread = units.spread(estimate) if quoted else ""
    return units.milliseconds(estimate.value) + (f" {spread} {units.sample_size([estimate])}" if spread else "")
