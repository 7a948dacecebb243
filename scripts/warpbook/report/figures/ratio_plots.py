"""Ratios with their intervals: of one variant, of a variant over its own copy, of one run over another."""

import math

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from warpbook.common import units
from warpbook.report.comparison import Comparison
from warpbook.report.evidence import Evidence, Speedup
from warpbook.report.figures.style import (
    INK,
    MUTED,
    RULE,
    VERDICTS,
    WIDTH_IN,
    error_bars,
    format_ratio,
    name_rows,
    series_colour,
    value_axis,
)
from warpbook.report.figures.svg_drawing import svg


def interval_span(speedups: list[Speedup]) -> tuple[float, float]:
    """The ends of an axis that holds the intervals of all these speedups, and 1."""
    ends = [end for one in speedups for end in (one.ratio.value, one.ratio.low, one.ratio.high) if math.isfinite(end)]
    low, high = min([0.97, *ends]), max([1.03, *ends])
    margin = (high / low) ** 0.06
    return low / margin, high * margin


def interval(speedup: Speedup, span: tuple[float, float], equivalence_margin: float) -> str:
    """One speedup with its interval on a logarithmic axis from `span`, small enough for a cell of a table.

    Grey: within `equivalence_margin` of 1. A hollow marker: not paired.
    """
    width, height = 120.0, 10.0

    def at(value: float) -> float:
        low, high = (math.log(end) for end in span)
        return round((math.log(value) - low) / (high - low) * width, 2)

    ratio, colour = speedup.ratio, VERDICTS[speedup.verdict]
    left, right = at(1 - equivalence_margin), at(1 + equivalence_margin)
    parts = [
        f'<rect x="{left}" y="0" width="{max(0.4, right - left):.2f}" height="{height}" fill="{RULE}"/>',
        f'<path d="M{at(1)} 0V{height}" stroke="{INK}" stroke-width="0.7"/>',
    ]
    if math.isfinite(ratio.low):
        ends = f"M{at(ratio.low)} 5H{at(ratio.high)}M{at(ratio.low)} 2.6V7.4M{at(ratio.high)} 2.6V7.4"
        parts.append(f'<path d="{ends}" stroke="{colour}" stroke-width="1" fill="none"/>')
    inside = colour if speedup.paired else "white"
    parts.append(f'<circle cx="{at(ratio.value)}" cy="5" r="2.2" fill="{inside}" stroke="{colour}" stroke-width="1"/>')
    view = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {view}>{"".join(parts)}</svg>'


def aa_tests(ev: Evidence) -> str:
    """A variant against its own copy: every ratio with its interval, in ascending order."""
    ratios = ev.trust.aa_tests.sort_values("value", ignore_index=True)
    figure = Figure(figsize=(WIDTH_IN, 2.3), layout="constrained")
    axes = figure.subplots()
    same = ev.config.measuring.equivalence_margin
    axes.axhspan(1 - same, 1 + same, color=RULE, alpha=0.6, linewidth=0)
    axes.axhline(1, color=INK, linewidth=0.9)
    for verdict, colour in VERDICTS.items():
        judged = ratios[ratios.verdict == verdict]
        if len(judged):
            places = judged.index.to_numpy()
            axes.vlines(places, judged.low.to_numpy(), judged.high.to_numpy(), color=colour, linewidth=0.8)
            axes.plot(places, judged.value.to_numpy(), ".", color=colour, label=verdict)
    axes.set_ylabel("Speedup over its copy")
    axes.set_xlabel("Comparisons, in ascending order")
    axes.set_xticks([])
    widest = max(abs(ratios.value - 1).max() * 1.6, 3 * same)
    axes.set_ylim(1 - widest, 1 + widest)
    value_axis(axes, "y")
    figure.legend(loc="outside lower center", ncols=4)
    return svg(figure)


def changed_times(comparison: Comparison) -> str:
    """Base's op time over head's, corrected by the drift: a row for each size on each device; shaded what is called the
    same, and lighter what is ambiguous."""
    rows = list(comparison.drifts.items())[::-1]
    figure = Figure(figsize=(WIDTH_IN, 0.6 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(row.place.variant for row in comparison.movements))
    for place, ((device, size), drift) in enumerate(rows):
        for reach, colour in ((drift.far, "#eceff2"), (drift.near, RULE)):
            axes.fill_betweenx([place - 0.42, place + 0.42], 1 - reach, 1 + reach, color=colour, linewidth=0)
        # Side by side in order of their ratios, so that none hides another.
        ratios = sorted(ratio / drift.ratio.value for ratio in drift.ratios.values())
        heights = [place - 0.3 + 0.6 * (number * 0.618 % 1) for number in range(len(ratios))]
        axes.plot(ratios, heights, ".", color=MUTED, markersize=2.5)
        changes = [row for row in comparison.movements if (row.place.device, row.place.size) == (device, size)]
        for number, row in enumerate(changes):
            height = place + 0.3 * (2 * number - len(changes) + 1) / max(1, len(changes) - 1)
            colour = series_colour(row.place.variant, names)
            axes.errorbar(
                row.speedup.value, height, xerr=error_bars([row.speedup]), fmt="o", color=colour, markersize=4
            )
    for name in names:
        axes.plot([], [], "o", color=series_colour(name, names), markersize=4, label=name)
    axes.axvline(1, color=INK, linewidth=0.9)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(format_ratio))
    axes.set_xlabel("Speedup of head over base, corrected by the drift")
    value_axis(axes, "x")
    name_rows(axes, [f"{device.upper()}, {units.count(size)} images" for (device, size), _ in rows])
    if names:
        figure.legend(loc="outside lower center", ncols=4)
    return svg(figure)
