"""Ratios with their intervals, of a variant over its copy and of one run over another; errors over sums' lengths."""

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from warpbook.common import units
from warpbook.harness.precision import CLASS_RATIO
from warpbook.report.comparison import Comparison
from warpbook.report.evidence import Evidence
from warpbook.report.figures import style
from warpbook.report.figures.svg_drawing import svg


def aa_tests(ev: Evidence) -> str:
    """A variant against its own copy: every ratio with its interval, in ascending order."""
    ratios = ev.trust.aa_tests.sort_values("value", ignore_index=True)
    figure = Figure(figsize=(style.WIDTH_IN, 2.3), layout="constrained")
    axes = figure.subplots()
    same = ev.config.measuring.equivalence_margin
    axes.axhspan(1 - same, 1 + same, color=style.RULE, alpha=0.6, linewidth=0)
    axes.axhline(1, color=style.INK, linewidth=0.9)
    for verdict, colour in style.VERDICTS.items():
        judged = ratios[ratios.verdict == verdict]
        if len(judged):
            # One path of all intervals and one of all ratios: an element for each would be most of the report's charts.
            gaps = np.full(len(judged), np.nan)
            axes.plot(
                np.repeat(judged.index, 3),
                np.column_stack([judged.low, judged.high, gaps]).ravel(),
                color=colour,
                linewidth=0.8,
            )
            ticks = np.column_stack([judged.index - 0.7, judged.index + 0.7, gaps]).ravel()
            axes.plot(ticks, np.repeat(judged.value, 3), color=colour, linewidth=2, label=verdict)
    axes.set_ylabel("Speedup over its copy")
    axes.set_xlabel("Comparisons, in ascending order")
    axes.set_xticks([])
    widest = max(abs(ratios.value - 1).max() * 1.6, 3 * same)
    axes.set_ylim(1 - widest, 1 + widest)
    style.value_axis(axes, "y")
    figure.legend(loc="outside lower center", ncols=4)
    return svg(figure)


def changed_times(comparison: Comparison) -> str:
    """Base's op time over head's, without the drift, by size and device; shaded: the same; lighter: ambiguous."""
    rows = list(comparison.drifts.items())[::-1]
    figure = Figure(figsize=(style.WIDTH_IN, 0.6 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(row.place.variant for row in comparison.movements))
    for place, ((device, size), drift) in enumerate(rows):
        for reach, colour in ((drift.far, "#eceff2"), (drift.near, style.RULE)):
            axes.fill_betweenx([place - 0.42, place + 0.42], 1 - reach, 1 + reach, color=colour, linewidth=0)
        # Side by side in order of their ratios, so that none hides another.
        ratios = sorted(ratio / drift.ratio.value for ratio in drift.ratios.values())
        heights = [place - 0.3 + 0.6 * (number * 0.618 % 1) for number in range(len(ratios))]
        axes.plot(ratios, heights, ".", color=style.MUTED, markersize=2.5)
        changes = [row for row in comparison.movements if (row.place.device, row.place.size) == (device, size)]
        for number, row in enumerate(changes):
            height = place + 0.3 * (2 * number - len(changes) + 1) / max(1, len(changes) - 1)
            colour = style.series_colour(row.place.variant, names)
            axes.errorbar(
                row.speedup.value, height, xerr=style.error_bars([row.speedup]), fmt="o", color=colour, markersize=4
            )
    for name in names:
        axes.plot([], [], "o", color=style.series_colour(name, names), markersize=4, label=name)
    axes.axvline(1, color=style.INK, linewidth=0.9)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(style.format_ratio))
    axes.set_xlabel("Speedup of head over base, corrected by the drift")
    style.value_axis(axes, "x")
    style.name_rows(axes, [f"{device.upper()}, {units.count(size)} images" for (device, size), _ in rows])
    if names:
        figure.legend(loc="outside lower center", ncols=4)
    return svg(figure)


def error_by_length(ev: Evidence) -> str:
    """Relative L2 error on random reals against the products of a sum: a line for each variant, the largest error of
    layers with equal sums, and the limit of FP32's class. Hollow: another class. Dotted: libraries."""
    rows = ev.checks.errors
    rows = rows[(rows.status == "ok") & (rows.inputs == "reals")]
    longest = {str(name): group.groupby("products").rel_l2_err.max() for name, group in rows.groupby("variant")}
    limit = rows.groupby("products").direct_rel_l2_err.max() * CLASS_RATIO
    return _errors_by_terms(ev, longest, {f"{CLASS_RATIO} × {ev.problem.facts.baseline}": limit}, "Relative L2 error")


def error_and_tolerance(ev: Evidence, names: list[str]) -> str:
    """The largest error of an output over the magnitude behind it, against the terms of its sum: a line for each named
    variant, and the tolerance of each of their precisions. Hollow: another than FP32. Dotted: libraries."""
    found = {name: ev.checks.unit_errors[name] for name in names}
    direct_last = sorted(names, key=lambda name: ev.plan.variants[name].header.method == "direct")
    limits = {
        f"tolerance of {ev.plan.variants[name].header.precision.upper()}": found[name].limit for name in direct_last
    }
    return _errors_by_terms(ev, {name: one.error for name, one in found.items()}, limits, "Error over magnitude")


def _count_label(value: float) -> str:
    """A power of ten on an axis of counts, short where many stand side by side."""
    return "" if value < 1 else units.count(round(value)) if value < 1e5 else f"1e{round(math.log10(value))}"


def _errors_by_terms(ev: Evidence, errors: dict[str, pd.Series], limits: dict[str, pd.Series], words: str) -> str:
    """A line for each variant's errors by the terms of a sum, and a dashed one for each limit."""
    figure = Figure(figsize=(style.WIDTH_IN, 2.4))
    axes = figure.add_axes((0.1, 0.16, 0.72, 0.81))
    ends = []
    for name, drawn in errors.items():
        variant = ev.plan.variants[name]
        colour, marker = style.variant_look(ev, variant)
        inside = colour if variant.header.precision == "fp32" else "white"
        drawn = drawn[drawn > 0]
        # A library's grey is too light for words.
        look, ink = (":", style.INK) if variant.header.peer else ("-", colour)
        axes.plot(drawn.index, drawn, look, color=colour, marker=marker, markerfacecolor=inside)
        ends += [(error, variant.stem, ink) for error in drawn.iloc[-1:]]
    axes.set_xscale("log")
    axes.set_yscale("log")
    for label, limit in limits.items():
        axes.plot(limit.index, limit, **style.LIMIT)
        style.note(
            axes, label, (limit.index[-1], limit.iloc[-1]), (0, 7), ha="right", fontsize=7, bbox=style.OVER_LINES
        )
    style.log_axis(axes.xaxis, lambda value, _: _count_label(value))
    style.log_axis(axes.yaxis, lambda value, _: units.scientific(value).replace("1.0e", "1e"))
    style.value_axis(axes, "both")
    axes.set_xlabel("Terms of the longest sum")
    axes.set_ylabel(words)
    style.name_ends(axes, ends)
    return svg(figure)
