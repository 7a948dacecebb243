"""Supplement: the four kinds of time of every GPU variant, and whether they keep their order."""

import itertools
import math

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.evidence import Evidence
from warpbook.report.views import cell_markup
from warpbook.report.views.components import HtmlTable, numbers, words

FEWEST = 6
"""The interval of fewer samples holds the median less often than 95 times in 100, and contradicts nothing."""


def time_kinds_view(ev: Evidence) -> HtmlTable | None:
    """None where no GPU variant has a figure."""
    if not ev.ranking.measured_variants("gpu"):
        return None
    rows = []
    for variant in sorted(ev.ranking.measured_variants("gpu"), key=lambda one: one.name):
        times = (
            ev.times.op(variant.name, layer, ev.largest, kind=kind)
            for layer in ev.layer_names
            for kind in ("gpu", "op", "layer")
        )
        runs = ev.programs.runs(variant.name, ev.largest)
        program = MISSING if runs.empty else cell_markup.elapsed_cell(runs.elapsed_s)
        rows.append((variant.name, *(units.time(one.value) if one else MISSING for one in times), program))
    return HtmlTable(
        "m4-kinds",
        f"The four times of every GPU variant at {ev.at_size(ev.largest)}, medians. Gpu: the device, with the gaps between a call's "
        "kernels. Op: the call, synchronised. Layer: with copies between host and device. Program: the whole process. "
        f"{kind_order(ev)}",
        (
            *words("Variant"),
            *numbers(*(f"{layer} {kind}" for layer in ev.layer_names for kind in ("gpu", "op", "layer"))),
            *numbers("Program, s"),
        ),
        tuple(rows),
    )


def kind_order(ev: Evidence) -> str:
    """Whether gpu <= op <= layer <= program holds for every variant at the largest size, as a sentence."""
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
