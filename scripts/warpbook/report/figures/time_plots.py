"""Op times and speedups of the variants, and how far from the hardware's bound they are."""

import math
from collections.abc import Callable

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from warpbook.common import units
from warpbook.kernels.variants import Variant
from warpbook.kernels.whole_networks import Implementation
from warpbook.report.evidence import Evidence
from warpbook.report.figures import style
from warpbook.report.figures.svg_drawing import svg
from warpbook.runs.schema import Row

BELOW_FINDINGS_IN = 6.4  # what the findings leave of their page
FAR = 3.0
"""Times as slow as the next one: bars that would leave no room to tell the others apart end at the chart's edge."""


def op_times(ev: Evidence) -> str:
    """Op times of the foremost variants on each layer at the largest size, the bound, and a mark at each one's own."""
    shown, size = ev.ranking.foremost("gpu"), ev.largest
    figure, panels = style.case_panels(ev, 0.62 + 0.155 * len(shown), most_in=BELOW_FINDINGS_IN)
    for axes, layer in zip(panels, ev.layers, strict=True):
        times = [ev.times.op(variant.name, layer.name, size) for variant in shown]
        end = axis_end([estimate.value for estimate in times if estimate])
        for place, (variant, estimate) in enumerate(zip(shown, times, strict=True)):
            if estimate is None:
                continue
            colour, marker = style.variant_look(ev, variant)
            reach = min(estimate.value, end)
            if own := ev.times.method_bound_ms(variant.name, layer, size):
                axes.plot(own, place, "|", color=style.INK, markersize=7, markeredgewidth=1.2, zorder=3)
            axes.plot([0, reach], [place, place], color=colour, linewidth=5, alpha=0.25, solid_capstyle="butt")
            if estimate.value > end:
                style.note(
                    axes, f"{units.time(estimate.value)} →", (end, place), (0, 0), ha="right", bbox=style.OVER_LINES
                )
                continue
            error = style.error_bars([estimate])
            axes.errorbar(estimate.value, place, xerr=error, fmt=marker, color=colour, capsize=2.2)
            right = max(estimate.value, 0 if math.isnan(estimate.high) else estimate.high)
            style.note(axes, units.time(estimate.value), (right, place), (7, 0), bbox=style.OVER_LINES)
        bound = ev.times.fp32_bound_ms(layer, size)
        assert bound is not None  # of what was measured on a GPU
        axes.axvline(bound, **style.LIMIT)
        what = "FP32" if ev.times.limiting_resource(layer, size) == "FP32 arithmetic" else "traffic"
        style.note(axes, f"{what} bound {units.time(bound, 3)}", (bound, len(shown) - 0.15), (3, 0), fontsize=7)
        axes.set_xlim(0, end)
        axes.set_xlabel("Op time, ms")
        style.value_axis(axes, "x")
        style.name_rows(axes, [variant.stem for variant in shown], top=1.2)
    return svg(figure)


def axis_end(times: list[float]) -> float:
    """Where an axis of times ends: behind the slowest and its number, or behind the last before one that is FAR behind, if
    half of them are before it."""
    ordered = sorted(times)
    before_gaps = (place for place in range(1, len(ordered) - 1) if ordered[place + 1] > FAR * ordered[place])
    last = next((place for place in before_gaps if 2 * (place + 1) >= len(ordered)), -1)
    return 1.22 * ordered[last]


def times_by_size(ev: Evidence, variants: list[Variant], bound: bool) -> str:
    """Op time against dataset size, a panel for each layer, logarithmic both ways."""
    figure, panels = style.case_panels(ev, 2.25)
    for axes, layer in zip(panels, ev.layers, strict=True):
        for variant in variants:
            times = {size: ev.times.op(variant.name, layer.name, size) for size in ev.sizes}
            sound = {size: estimate for size, estimate in times.items() if estimate}
            style.line(axes, sound, style.variant_look(ev, variant), variant.name)
        if bound and ev.times.fp32_bound_ms(layer, ev.largest):
            bounds = {size: least for size in ev.sizes if (least := ev.times.fp32_bound_ms(layer, size))}
            axes.plot(list(bounds), list(bounds.values()), **style.LIMIT, label="bound of FP32 (GPU)")
        style.size_axis(axes, ev.sizes, ev.size_label)
        axes.set_yscale("log")
        style.log_axis(axes.yaxis, lambda value, _: units.time(value, 1))
        style.value_axis(axes, "y")
    style.label_rows(panels, "Op time")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
    return svg(figure)


def streams(ev: Evidence, over: Callable[[Row], str]) -> str:
    """Time against images streamed, logarithmic, for each variant and what it ran `over`: whole, and past its start."""
    figure = Figure(figsize=(style.WIDTH_IN, 2.6), layout="constrained")
    axes = figure.subplots()
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in ev.streams.rows:
        lines.setdefault((row["variant"], over(row)), []).append(row)
    for number, ((variant, where), rows) in enumerate(lines.items()):
        colour, marker = style.OURS[number % len(style.OURS)], style.MARKERS[number % len(style.MARKERS)]
        images = [row["images"] for row in rows]
        whole, past_start = ([row[time] for row in rows] for time in ("wall_s", "streaming_s"))
        axes.plot(images, whole, color=colour, marker=marker, label=f"{variant}, {where}")
        (hollow,) = axes.plot(images, past_start, color=colour, marker=marker, linewidth=0.7)
        hollow.set_markerfacecolor("white")
    single = [row for row in ev.streams.rows if row["devices"] == 1]
    images = sorted({row["images"] for row in ev.streams.rows})
    for variant in dict.fromkeys(row["variant"] for row in single):
        longest = max((row for row in single if row["variant"] == variant), key=lambda row: int(row["images"]))
        in_proportion = [longest["streaming_s"] * count / longest["images"] for count in images]
        axes.plot(images, in_proportion, **style.LIMIT)
    style.size_axis(axes, images, "Images streamed")
    axes.set_yscale("log")
    style.log_axis(axes.yaxis, lambda value, _: f"{value:g} s")
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    style.value_axis(axes, "y")
    axes.set_ylabel("Time")
    figure.legend(loc="outside right upper")
    return svg(figure)


def networks_by_size(ev: Evidence, shown: list[Implementation]) -> str:
    """GPU time from images to labels, logarithmic both ways; ours in colour, frameworks in grey, darker in FP32, and
    dotted where one builds on another of its precision. Of several sizes, one alone is a larger marker and named so."""
    figure = Figure(figsize=(style.WIDTH_IN, 1.9), layout="constrained")
    axes = figure.subplots()
    of_kind = {True: 0, False: 0}
    for one in shown:
        place = of_kind[one.header.peer]
        of_kind[one.header.peer] += 1
        colour = style.PEERS[one.header.precision != "fp32"] if one.header.peer else style.OURS[place % len(style.OURS)]
        look = colour, style.MARKERS[(place + 4 * one.header.peer) % len(style.MARKERS)]
        times = {size: time for size in ev.sizes if (time := ev.networks.time(one.name, size))}
        below = next((other for other in shown if other.name == one.header.builds_on), one)
        dotted = one.header.peer and below != one and below.header.precision == one.header.precision
        if len(times) == 1 < len(ev.sizes):
            style.line(axes, times, look, f"{one.name}, one size", linestyle="none", markersize=7, zorder=3)
        else:
            style.line(axes, times, look, one.name, linestyle=":" if dotted else "-")
    style.size_axis(axes, ev.sizes, ev.size_label)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)))
    style.log_axis(axes.yaxis, lambda value, _: units.time(value, 1))
    style.value_axis(axes, "y")
    axes.set_ylabel("GPU time")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return svg(figure)
