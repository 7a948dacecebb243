"""Rates of the variants beside what the hardware allows: against size, and in the roofline."""

import itertools
from collections.abc import Collection, Iterable
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from warpbook.common.statistics import Estimate
from warpbook.kernels.headers import Header
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence
from warpbook.report.figures import style
from warpbook.report.figures.style import MUTED, note
from warpbook.report.figures.svg_drawing import svg

FREE = 1.5  # so many times farther right than the foot's words a point's number does not meet them
FEW_LINES = 4  # a low chart is high enough for so many lines
LABEL = 0.27  # the width of the words above the slope, as a share of a panel's
Point = tuple[float, float]
Box = tuple[float, float, float]  # left, right and middle height, in points


def roofline(ev: Evidence, named: Collection[str]) -> str:
    """Rate against arithmetic intensity of each counted call, a panel for each layer. `named` variants have the number
    of `ev.counters.numbers`; others are small and grey. Operations are the layer's own. Variants that do fewer, or not
    in FP32, are hollow: this roof is not theirs. Thin: the roofs of other precisions that named variants use."""
    gpu, numbers = ev.counters.gpu, ev.counters.numbers
    copy, peak = gpu["copy_gb_per_s"], gpu["peak_gflop_per_s"]["fp32"]
    measured = gpu.get("fp32_gflop_per_s")
    headers = [one.header for one, *_ in ev.counters.counted if one.name in named]
    roofs = precision_roofs(headers, gpu["peak_gflop_per_s"])
    figure, panels = style.case_panels(ev, 2.1, ev.counters.size)
    heights, numbered = [peak, *roofs.values()], list[list[tuple[float, float, str]]]()
    for axes, layer in zip(panels, ev.layers, strict=True):
        points = [
            (*place, variant)
            for variant, of, call in ev.counters.counted
            if of == layer and (place := call.roofline_point(layer.at(call.images).flops))
        ]
        ridge = peak / copy
        left = min([ridge, *(point[0] for point in points)]) / 2
        ridges = {words: roof / copy for words, roof in roofs.items()}
        right = max([ridge, *ridges.values(), *(point[0] for point in points)]) * 3
        for words, roof in roofs.items():
            axes.plot([ridge, ridges[words], right], [peak, roof, roof], color=style.MUTED, linewidth=0.7)
            style.note(axes, words, (right, roof), (0, 5), ha="right", fontsize=7, color=style.MUTED)
        axes.plot([left, ridge, right], [left * copy, peak, peak], color=style.INK, linewidth=0.9)
        style.note(axes, "FP32 peak", (right, peak), (0, 6), ha="right", fontsize=7)
        if measured:
            axes.plot([measured / copy, right], [measured, measured], **style.LIMIT)
        # Above the slope: at its foot, or below the ridge where points are at the foot and there is room.
        at_foot = left * (right / left) ** LABEL
        if ridge / FREE > at_foot and any(x < at_foot * FREE for x, *_ in points):
            style.note(
                axes, "copy bandwidth", (ridge / FREE, peak / FREE), (-3, 3), fontsize=7, ha="right", va="bottom"
            )
        else:
            style.note(axes, "copy bandwidth", (left, min(peak, at_foot * copy)), (3, 2), fontsize=7, va="bottom")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(left, right)
        heights += [left * copy, *(point[1] for point in points)]
        axes.set_ylim(min(heights) / 2, max(heights) * 3)
        style.log_axis(axes.xaxis, lambda value, _: f"{value:g}")
        style.log_axis(axes.yaxis, lambda value, _: f"{value / 1e3:g}")
        style.value_axis(axes, "both")
        axes.set_xlabel("Useful FLOP for each byte of DRAM traffic")
        for x, y, variant in sorted(points, key=lambda point: point[-1].name in named):
            colour, marker = style.variant_look(ev, variant)
            look = {"color": colour} if variant.name in named else {"color": style.RULE, "markersize": 3}
            inside = look["color"] if variant.header.sums_in_fp32 else "white"
            axes.plot(x, y, marker, **look, markerfacecolor=inside)
        numbered.append([(x, y, str(numbers[one.name])) for x, y, one in points if one.name in named])
    number_points(list(zip(panels, numbered, strict=True)))
    style.label_rows(panels, "Useful TFLOP/s")
    return svg(figure)


def precision_roofs(headers: Iterable[Header], peaks: dict[str, Any]) -> dict[str, float]:
    """The peaks below FP32's precision that variants multiply at, in order, by what they are called: `FP16 peak / 3`
    where three products make one."""
    found: dict[str, float] = {}
    for precision, products in filter(None, (header.reduced for header in headers)):
        if peak := peaks.get(precision):
            found[f"{precision.upper()} peak{f' / {products}' if products > 1 else ''}"] = peak / products
    return dict(sorted(found.items(), key=lambda roof: roof[1]))


def rates_by_size(ev: Evidence, device: str, drawn: Collection[Variant]) -> str:
    """TFLOP/s of variants on a device, or GB/s of a problem without operations, against size: a panel for each case,
    logarithmic both ways."""
    tall = 2.7 if len(drawn) > FEW_LINES else 2.0
    figure, panels = style.case_panels(ev, tall if len(ev.layers) <= style.MOST_BESIDE else 1.3)
    handles: dict[str, Artist] = {}
    for axes, case in zip(panels, ev.layers, strict=True):
        work = {size: case.at(size).flops / 1e9 or case.at(size).bytes / 1e6 for size in ev.sizes}
        for variant in drawn:
            times = {size: ev.times.op(variant.name, case.name, size) for size in ev.sizes}
            rates = {
                size: Estimate(work[size] / time.value, work[size] / time.high, work[size] / time.low, time.n)
                for size, time in times.items()
                if time
            }
            if rates:
                style.line(axes, rates, style.variant_look(ev, variant), variant.stem)
        bounds = {size: bound for size in ev.sizes if (bound := ev.times.fp32_bound_ms(case, size))}
        if device == "gpu" and bounds:
            rates_allowed = [work[size] / bound for size, bound in bounds.items()]
            axes.plot(list(bounds), rates_allowed, **style.LIMIT, label="bound of FP32")
        style.size_axis(axes, ev.sizes, ev.size_label)
        axes.set_yscale("log")
        style.log_axis(axes.yaxis, lambda value, _: f"{value:g}")
        style.value_axis(axes, "y")
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    style.label_rows(panels, "TFLOP/s" if any(case.at(ev.largest).flops for case in ev.layers) else "GB/s")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=min(5, len(handles)))
    return svg(figure)


def number_points(panels: list[tuple[Axes, list[tuple[float, float, str]]]]) -> None:
    """Write each point's number beside it, in every panel of a figure. Those of a crowd stand in columns on both its
    sides, in order of the points' height, and a line leads to each."""
    figure = panels[0][0].get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # settles where the data lie on the page
    for axes, points in panels:
        _number_points(axes, points)


def _number_points(axes: Axes, points: list[tuple[float, float, str]]) -> None:
    scale = axes.figure.dpi / 72
    places = {text: tuple(axes.transData.transform((x, y)) / scale) for x, y, text in points}
    crowds: list[tuple[str, ...]] = [(text,) for text in places]
    taken = {crowd: _boxes(crowd, places) for crowd in crowds}
    # What would be written over something else joins its crowd.
    while over := next(
        (pair for pair in itertools.combinations(crowds, 2) if _overlap(*(taken[crowd] for crowd in pair))), None
    ):
        joined = (*over[0], *over[1])
        crowds = [crowd for crowd in crowds if crowd not in over] + [joined]
        taken[joined] = _boxes(joined, places)
    at = {text: (x, y) for x, y, text in points}
    for crowd in crowds:
        for text, (across, up), align in _numbers(crowd, places):
            # Without a patch and a shrinking, for which matplotlib would cut a curve in pieces.
            lead = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.3, "shrinkA": 0, "shrinkB": 0, "patchA": None}
            lead["relpos"] = (float(align == "right"), 0.5)
            offset = (across - places[text][0], up - places[text][1])
            look = {"ha": align, "fontsize": 6.5, "bbox": style.OVER_LINES}
            note(axes, text, at[text], offset, **look, arrowprops=lead if len(crowd) > 1 else None)


def _numbers(crowd: tuple[str, ...], places: dict[str, Point]) -> list[tuple[str, Point, str]]:
    """(number, where it is written, which end of it stands there) of points close to each other."""
    order = sorted(crowd, key=lambda text: places[text][1])
    left, right = min(places[text][0] for text in crowd), max(places[text][0] for text in crowd)
    # The left half goes to the left; of points that stand above each other, every second.
    across_first = sorted(order, key=lambda text: (round(places[text][0] / 8), order.index(text) % 2))
    lefts = set(across_first[: len(order) // 2])
    columns = [(left - 16, "right", [text for text in order if text in lefts])] if len(crowd) > 1 else []
    columns.append((right + (16 if columns else 6), "left", [text for text in order if text not in lefts]))
    written = []
    for across, align, column in columns:
        middle = sum(places[text][1] for text in column) / len(column)
        heights = [middle + 7.5 * (number - (len(column) - 1) / 2) for number in range(len(column))]
        written += [(text, (across, up), align) for text, up in zip(column, heights, strict=True)]
    return written


def _boxes(crowd: tuple[str, ...], places: dict[str, Point]) -> list[Box]:
    """What the points of a crowd and their numbers cover."""
    written = [(x, x + 9, y) if align == "left" else (x - 9, x, y) for _, (x, y), align in _numbers(crowd, places)]
    return [(x - 3, x + 3, y) for x, y in (places[text] for text in crowd)] + written


def _overlap(one: list[Box], other: list[Box]) -> bool:
    return any(a[0] < b[1] and b[0] < a[1] and abs(a[2] - b[2]) < 7 for a, b in itertools.product(one, other))
