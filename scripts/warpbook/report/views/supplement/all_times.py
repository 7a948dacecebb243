"""Supplement: every series of samples."""

import itertools
import math

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence
from warpbook.report.views.components import Cell, HtmlTable, View, numbers, words
from warpbook.runs import tables

FEWEST = 6
"""The interval of fewer samples holds the median less often than 95 times in 100, and contradicts nothing."""

SERIES = (("gpu", "cold"), ("op", "cold"), ("gpu", "hot"), ("op", "hot"), ("op", "steady"), ("layer", "cold"))


def all_times_view(ev: Evidence) -> View:
    """Of every variant, layer and size with an op time."""
    return View(
        relative_noise=units.percent(ev.config.measuring.target_rel_ci, 0),
        throttled=int(ev.selection.at_sizes(tables.OP_TIMES).throttled_count.sum()),
        refused=ev.times.refused_samples,
        table=HtmlTable(
            "a-times",
            "Every series of samples: medians in ms. Those that the report quotes have half the width of their 95 % interval and "
            "the number of samples.",
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


def kind_order(ev: Evidence) -> str:
    """Whether gpu <= op <= layer <= program holds everywhere at the largest size, as a sentence."""
    if not ev.ranking.measured_variants("gpu"):
        return ""
    broken = []
    for variant in ev.ranking.measured_variants("gpu"):
        runs = ev.programs.runs(variant.name, ev.largest)
        program_ms = float(runs.elapsed_s.median()) * 1e3 if len(runs) else math.inf
        for layer in ev.layer_names:
            times = [ev.times.op(variant.name, layer, ev.largest, kind=kind) for kind in ("gpu", "op", "layer")]
            spans = [(one.low, one.high) if one.n >= FEWEST else (-math.inf, math.inf) for one in times if one]
            spans.append((program_ms, program_ms))
            # Two series of their own: only intervals that do not overlap contradict the order.
            if any(before[0] > after[1] for before, after in itertools.pairwise(spans)):
                broken.append(f"{variant.name} on {layer}")
    if broken:
        return f"The order gpu ≤ op ≤ layer ≤ program is broken for {', '.join(broken)}: do not trust these times."
    return "The order gpu ≤ op ≤ layer ≤ program holds for every one, as far as their intervals tell them apart."
