"""The report's charts: evidence in, one SVG out. A variant keeps its colour and marker; axes carry name and unit;
spread is drawn."""

import io
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from warpbook import units
from warpbook.comparison import Comparison
from warpbook.counters import Call
from warpbook.estimates import Estimate
from warpbook.evidence import API_KINDS, GPU_KINDS, Evidence, Speedup
from warpbook.networks import ConvLayer
from warpbook.profiled import Side, merged, spans_of
from warpbook.variants import Variant

FONTS = Path(__file__).parents[2] / "reports" / "fonts"
WIDTH_IN = 6.54  # the text's width on A4
INK, MUTED, RULE = "#1b1f24", "#5b6470", "#d5d9de"
OURS = ("#0b5cad", "#c8453b", "#2a8a57", "#d98a00", "#7a4ea3", "#149aa5", "#a45a2a", "#b0478f", "#5c7d1d", "#3f5ba9")
CPU = ("#8a6d3b", "#b58a2e", "#6f7f3f", "#a6603c", "#94805d")
PEERS = ("#3d444d", "#8b949e", "#b3bac2")
MARKERS = "osD^vPX<>h"
Point = tuple[float, float]
Box = tuple[float, float, float]  # left, right and middle height, in points
MOST_SHOWN = 12  # variants in the summary's chart
DASHED = (0, (3, 2))
VERDICTS = {"faster": "#1f7a4d", "slower": "#b3261e", "same": MUTED, "ambiguous": "#8a6200"}


def _style() -> None:
    for path in FONTS.glob("*.ttf"):
        font_manager.fontManager.addfont(path)
    mpl.rcParams.update(
        {
            "font.family": "IBM Plex Sans",
            "font.size": 8,
            "axes.titlesize": 8.5,
            "axes.titleweight": 600,
            "axes.titlelocation": "left",
            "axes.labelsize": 8,
            "axes.labelcolor": MUTED,
            "axes.edgecolor": MUTED,
            "axes.linewidth": 0.6,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelsize": 7.5,
            "ytick.labelsize": 7.5,
            "grid.color": RULE,
            "grid.linewidth": 0.5,
            "lines.linewidth": 1.3,
            "lines.markersize": 4,
            "legend.frameon": False,
            "legend.fontsize": 7.5,
            "text.color": INK,
            "svg.fonttype": "path",
            "svg.hashsalt": "warpbook",
        }
    )


def look_of(evidence: Evidence, variant: Variant) -> tuple[str, str]:
    """(colour, marker) of a variant: the same in every chart of every study."""
    alike = [
        other
        for other in evidence.plan.variants.values()
        if (other.device, other.header.peer) == (variant.device, variant.header.peer)
    ]
    place = alike.index(variant)
    colours = PEERS if variant.header.peer else OURS if variant.device == "gpu" else CPU
    return colours[place % len(colours)], MARKERS[place % len(MARKERS)]


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return text.getvalue()


def _errors(estimates: list[Estimate]) -> list[list[float]]:
    """Distances to the interval's ends, for errorbar; none where there is no interval."""
    low = [0.0 if estimate.low != estimate.low else estimate.value - estimate.low for estimate in estimates]
    high = [0.0 if estimate.high != estimate.high else estimate.high - estimate.value for estimate in estimates]
    return [low, high]


def _note(axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float] = (6, 0), **style: Any) -> None:
    """Words beside a point of the data, `offset` points away."""
    style = {"va": "center", "fontsize": 7.5, **style}
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **style)


def _log_axis(axis: mpl.axis.Axis, formatter: Callable[[float, int], str]) -> None:
    axis.set_major_locator(LogLocator(10, numticks=12))
    axis.set_major_formatter(FuncFormatter(formatter))
    axis.set_minor_formatter(NullFormatter())


def _times(value: float, _: int) -> str:
    return f"{value:g}×"


def _size_axis(axes: Axes, sizes: list[int]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    axes.set_xticks(sizes, [units.count(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("Images in the dataset")


def _value_axis(axes: Axes, which: str) -> None:
    """Grid lines for the axis that carries values, behind the data."""
    axes.grid(axis=which)
    axes.set_axisbelow(True)


def _name_rows(axes: Axes, names: list[str], top: float = 0.6) -> None:
    """One row a name, from the bottom up, on an axis without a line."""
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set_ylim(-0.6, len(names) - 1 + top)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _bar_with_error(axes: Axes, estimate: Estimate, place: float, marker: str, colour: str, **style: Any) -> None:
    """A marker with its horizontal interval."""
    error = [[end[0]] for end in _errors([estimate])]
    axes.errorbar(estimate.value, place, xerr=error, fmt=marker, color=colour, capsize=2.2, **style)


def _line(axes: Axes, found: dict[int, Estimate], look: tuple[str, str], label: str | None = None) -> None:
    """A line over dataset sizes with its intervals."""
    colour, marker = look
    estimates = list(found.values())
    values = [estimate.value for estimate in estimates]
    error = _errors(estimates)
    axes.errorbar(list(found), values, yerr=error, color=colour, marker=marker, capsize=2, label=label)


def _fastest_first(evidence: Evidence) -> list[Variant]:
    """GPU variants by the sum of their op times at the largest size."""
    return sorted(evidence.measured("gpu"), key=lambda variant: evidence.total(variant.name, evidence.largest).value)


def op_times(evidence: Evidence) -> str:
    """Op times on each layer at the largest size: the fastest variants, the naive one and the peers, and the bound."""
    ranked, size = _fastest_first(evidence), evidence.largest
    kept = [variant for variant in ranked if variant.header.peer or variant == evidence.naive]
    others = [variant for variant in ranked if variant not in kept][: MOST_SHOWN - len(kept)]
    shown = [variant for variant in ranked if variant in kept or variant in others]
    figure = Figure(figsize=(WIDTH_IN, 0.62 + 0.24 * len(shown)), layout="constrained")
    panels = figure.subplots(1, len(evidence.layers), sharey=True, squeeze=False)[0]
    for axes, layer in zip(panels, evidence.layers, strict=True):
        times = [evidence.op(variant.name, layer.name, size) for variant in shown]
        for place, (variant, estimate) in enumerate(zip(shown, times, strict=True)):
            colour, marker = look_of(evidence, variant)
            axes.plot([0, estimate.value], [place, place], color=colour, linewidth=5, alpha=0.25, solid_capstyle="butt")
            _bar_with_error(axes, estimate, place, marker, colour)
            _note(axes, units.time(estimate.value), (estimate.value, place), (7, 0))
        bound = evidence.bound_ms(layer, size)
        axes.axvline(bound, color=INK, linewidth=0.9, linestyle=DASHED)
        _note(axes, f"lower bound {units.time(bound, 3)}", (bound, len(shown) - 0.5), (3, 0), fontsize=7)
        axes.set_title(f"{layer.name}: {layer}")
        axes.set_xlim(0, 1.22 * max(estimate.value for estimate in times))
        axes.set_xlabel("Op time, ms")
        _value_axis(axes, "x")
        _name_rows(axes, [variant.name for variant in shown], top=0.9)
    return _svg(figure)


def times_by_size(evidence: Evidence, variants: list[Variant], bound: bool) -> str:
    """Op time against dataset size, a panel for each layer, logarithmic both ways."""
    figure = Figure(figsize=(WIDTH_IN, 2.55), layout="constrained")
    panels = figure.subplots(1, len(evidence.layers), sharey=True, squeeze=False)[0]
    for axes, layer in zip(panels, evidence.layers, strict=True):
        for variant in variants:
            found = {size: evidence.op(variant.name, layer.name, size) for size in evidence.sizes}
            sound = {size: estimate for size, estimate in found.items() if estimate}
            _line(axes, sound, look_of(evidence, variant), variant.name)
        if bound and evidence.bound_ms(layer, evidence.largest):
            bounds = [evidence.bound_ms(layer, size) for size in evidence.sizes]
            axes.plot(evidence.sizes, bounds, color=INK, linewidth=0.9, linestyle=DASHED, label="lower bound (GPU)")
        axes.set_title(f"{layer.name}: {layer}")
        _size_axis(axes, evidence.sizes)
        axes.set_yscale("log")
        _log_axis(axes.yaxis, lambda value, _: units.time(value, 1))
        _value_axis(axes, "y")
    panels[0].set_ylabel("Op time")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)))
    return _svg(figure)


def speedup_by_size(evidence: Evidence, variant: Variant, others: list[Variant]) -> str:
    """How many times faster one variant is than others, all layers together, against dataset size."""
    figure = Figure(figsize=(WIDTH_IN, 2.3), layout="constrained")
    axes = figure.subplots()
    ends = []
    for other in others:
        found = {size: evidence.total_speedup(variant.name, size, over=other.name) for size in evidence.sizes}
        sound = {size: speedup.ratio for size, speedup in found.items() if speedup}
        if sound:
            look = look_of(evidence, other)
            _line(axes, sound, look)
            ends.append((list(sound.values())[-1].value, other.name, look[0]))
    axes.set_yscale("log")
    _log_axis(axes.yaxis, _times)
    _size_axis(axes, evidence.sizes)
    axes.axhline(1, color=INK, linewidth=0.9)
    _value_axis(axes, "y")
    axes.set_ylabel(f"Speedup of {variant.name}")
    _end_labels(axes, evidence.sizes[-1], ends)
    return _svg(figure)


def _end_labels(axes: Axes, x: float, ends: list[tuple[float, str, str]]) -> None:
    """Name lines (value, name, colour) at their right ends, moved apart where they would cover each other."""
    axes.figure.draw_without_rendering()
    lowest_free = 0.0
    for value, name, colour in sorted(ends):
        y = max(axes.transData.transform((x, value))[1], lowest_free)
        lowest_free = y + 10 * axes.figure.dpi / 72
        at = (x, axes.transData.inverted().transform((0, y))[1])
        _note(axes, f"over {name}: {units.ratio(value)}", at, (9, 0), color=colour, annotation_clip=False)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * (right / left) ** 0.32)


def interval_span(speedups: list[Speedup]) -> tuple[float, float]:
    """The ends of an axis that holds the intervals of all these speedups, and 1."""
    ends = [end for one in speedups for end in (one.ratio.value, one.ratio.low, one.ratio.high) if math.isfinite(end)]
    low, high = min([0.97, *ends]), max([1.03, *ends])
    margin = (high / low) ** 0.06
    return low / margin, high * margin


def interval(speedup: Speedup, span: tuple[float, float], same_within: float) -> str:
    """One speedup with its interval on a logarithmic axis from `span`, small enough for a cell of a table.

    Grey: within `same_within` of 1. A hollow marker: not paired.
    """
    width, height = 120.0, 10.0

    def at(value: float) -> float:
        low, high = (math.log(end) for end in span)
        return round((math.log(value) - low) / (high - low) * width, 2)

    ratio, colour = speedup.ratio, VERDICTS[speedup.verdict]
    left, right = at(1 - same_within), at(1 + same_within)
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


def program_parts(evidence: Evidence, variant: Variant) -> str:
    """Where the device's time of the profiled program goes at each size: copies and kernels, as shares."""
    profiles = {size: evidence.profile(variant.name, size, GPU_KINDS) for size in reversed(evidence.sizes)}
    profiles = {size: rows for size, rows in profiles.items() if rows}
    figure = Figure(figsize=(WIDTH_IN, 0.75 + 0.3 * len(profiles)), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(row.name for rows in profiles.values() for row in rows))
    colours = dict(zip(names, itertools.cycle((*OURS, *CPU, *PEERS)), strict=False))
    for place, rows in enumerate(profiles.values()):
        left = 0.0
        for row in sorted(rows, key=lambda row: names.index(row.name)):
            axes.barh(place, row.share, left=left, height=0.62, color=colours[row.name])
            if row.share > 0.07:
                middle = (left + row.share / 2, place)
                _note(axes, units.percent(row.share, 0), middle, (0, 0), ha="center", color="white")
            left += row.share
        _note(axes, units.time(sum(row.total_ns for row in rows) / 1e6), (1.0, place), (5, 0))
    axes.set_xlim(0, 1.09)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes.set_xlabel("Share of the device's busy time (total at the right)")
    _name_rows(axes, [f"{units.count(size)} images" for size in profiles])
    figure.legend(
        [Patch(color=colours[name]) for name in names], names, loc="outside lower center", ncols=5, handlelength=1
    )
    return _svg(figure)


def times_bound(evidence: Evidence) -> str:
    """How many times its lower bound each GPU variant takes on each layer at the largest size."""
    shown, size = _fastest_first(evidence), evidence.largest
    figure = Figure(figsize=(WIDTH_IN, 0.7 + 0.14 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for place, variant in enumerate(shown):
        colour, _ = look_of(evidence, variant)
        points = []
        for layer, marker in zip(evidence.layers, MARKERS, strict=False):
            kernels = evidence.op(variant.name, layer.name, size, kind="gpu")
            if kernels:
                points.append((kernels.value / evidence.bound_ms(layer, size), marker))
        for number, (times, marker) in enumerate(sorted(points)):
            axes.plot(times, place, marker, color=colour)
            # Outwards, where they are clear of the other point and of the rows above and below.
            side, align = (-6, "right") if number == 0 and len(points) > 1 else (6, "left")
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            _note(axes, units.ratio(times), (times, place), (side, 0), ha=align, fontsize=6, color=MUTED, bbox=box)
    for layer, marker in zip(evidence.layers, MARKERS, strict=False):
        axes.plot([], [], marker, color=MUTED, label=f"{layer.name} (bound: {evidence.bound_by(layer, size)})")
    axes.axvline(1, color=INK, linewidth=0.9, linestyle=DASHED)
    axes.set_xscale("log")
    left, right = axes.get_xlim()
    axes.set_xlim(left / 1.5, right * 1.3)
    _log_axis(axes.xaxis, _times)
    figure.legend(loc="outside lower center", ncols=3)
    axes.set_xlabel("Kernel time over the hardware's lower bound")
    _value_axis(axes, "x")
    _name_rows(axes, [variant.name for variant in shown], top=0.8)
    return _svg(figure)


def roofline(evidence: Evidence) -> str:
    """Rate against arithmetic intensity of each counted call, a panel for each layer.

    A point's number is its variant's in `evidence.counted`, counted from 1. Operations are the FP32 ones that the call
    did; for a variant of another precision, whose points are hollow, those of the layer, as not all are counted.
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(one.name for one, *_ in evidence.counted), 1)}
    gpu = evidence.gpu_run.gpu
    copy, peak = gpu["copy_gb_per_s"], gpu["peak_gflop_per_s"]["fp32"]
    measured = gpu.get("fp32_gflop_per_s")
    figure = Figure(figsize=(WIDTH_IN, 0.3 + 2.75 * len(evidence.layers)), layout="constrained")
    panels = figure.subplots(len(evidence.layers), 1, squeeze=False)[:, 0]
    for axes, layer in zip(panels, evidence.layers, strict=True):
        points = [
            (*place, variant.header.precision == "fp32", numbers[variant.name], look_of(evidence, variant))
            for variant, of, call in evidence.counted
            if of == layer and (place := call.on_roofline(_operations(variant, layer, call)))
        ]
        ridge = peak / copy
        left = min([ridge, *(point[0] for point in points)]) / 2
        right = max([ridge, *(point[0] for point in points)]) * 3
        axes.plot([left, ridge, right], [left * copy, peak, peak], color=INK, linewidth=0.9)
        words = f"FP32 peak by specification, {peak / 1e3:.3g} TFLOP/s"
        _note(axes, words, (right, peak), (0, 15 if measured else 6), ha="right", fontsize=7)
        if measured:
            axes.plot([measured / copy, right], [measured, measured], color=INK, linewidth=0.9, linestyle=DASHED)
            words = f"dashed: multiply-adds as measured, {measured / 1e3:.3g} TFLOP/s"
            _note(axes, words, (right, peak), (0, 6), ha="right", fontsize=7)
        _note(axes, f"slope: copy bandwidth as measured, {copy / 1e3:.3g} TB/s", (left, peak), (4, 6), fontsize=7)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(left, right)
        axes.set_ylim(min([left * copy, *(point[1] for point in points)]) / 2, max([peak, *(p[1] for p in points)]) * 3)
        _log_axis(axes.xaxis, lambda value, _: f"{value:g}")
        _log_axis(axes.yaxis, lambda value, _: f"{value / 1e3:g}")
        _value_axis(axes, "both")
        axes.set_title(f"{layer.name}: {layer}")
        axes.set_ylabel("TFLOP/s")
        for x, y, own, _, (colour, marker) in points:
            axes.plot(x, y, marker, color=colour, markerfacecolor=colour if own else "white")
        _number_points(axes, [(x, y, str(number)) for x, y, _, number, _ in points])
    panels[-1].set_xlabel("Operations for each byte that DRAM moves")
    return _svg(figure)


def _operations(variant: Variant, layer: ConvLayer, call: Call) -> float | None:
    return call.fp32_flop if variant.header.precision == "fp32" else layer.flops(call.images)


def _number_points(axes: Axes, points: list[tuple[float, float, str]]) -> None:
    """Write each point's number beside it. Those of a crowd stand in columns on both its sides, in order of the points'
    height, and a line leads to each."""
    axes.figure.draw_without_rendering()
    scale = axes.figure.dpi / 72
    places = {text: tuple(axes.transData.transform((x, y)) / scale) for x, y, text in points}
    crowds = [(text,) for text in places]
    taken = {crowd: _boxes(crowd, places) for crowd in crowds}
    # What would be written over something else joins its crowd.
    while over := next((pair for pair in itertools.combinations(crowds, 2) if _overlap(*map(taken.get, pair))), None):
        joined = (*over[0], *over[1])
        crowds = [crowd for crowd in crowds if crowd not in over] + [joined]
        taken[joined] = _boxes(joined, places)
    at = {text: (x, y) for x, y, text in points}
    for crowd in crowds:
        for text, (across, up), align in _numbers(crowd, places):
            lead = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.3, "shrinkA": 1, "shrinkB": 2}
            lead["relpos"] = (float(align == "right"), 0.5)
            offset = (across - places[text][0], up - places[text][1])
            _note(axes, text, at[text], offset, ha=align, fontsize=6.5, arrowprops=lead if len(crowd) > 1 else None)


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


def timeline(evidence: Evidence, variant: Variant, size: int) -> str:
    """A profiled program on its time axis: the whole of it, and below the part from the images' copy to the labels.

    A row each for the program's own ranges, the API calls of the runtime and the driver, copies each way, and the
    kernels of each stream.
    """
    frame = evidence.trace(variant.name, size)
    images = frame[frame.kind == "memcpy_htod"].sort_values("bytes").iloc[-1]
    start, end = images.start_ns, frame[~frame.kind.isin(API_KINDS)].end_ns.max()
    ranges = frame[frame.kind == "range"]
    rows: list[tuple[str, Any]] = [
        ("NVTX ranges", ranges),
        ("Runtime API", frame[frame.kind == "api_runtime"]),
        ("Driver API", frame[frame.kind == "api_driver"]),
        ("Copies to the device", frame[frame.kind == "memcpy_htod"]),
        ("Copies to the host", frame[frame.kind == "memcpy_dtoh"]),
    ]
    kernels = frame[frame.kind == "kernel"]
    rows += [(f"Kernels, stream {stream}", kernels[kernels.stream == stream]) for stream in sorted(set(kernels.stream))]
    names = list(dict.fromkeys(kernels.name))
    colours = dict(zip(names, itertools.cycle(OURS), strict=False))
    figure = Figure(figsize=(WIDTH_IN, 1.0 + 0.36 * len(rows)), layout="constrained")
    panels = figure.subplots(2, 1)
    margin = (end - start) * 0.02
    views = (
        (0.0, float(frame.end_ns.max()), "The whole program"),
        (start - margin, end + margin, "From the copy of the images to the labels"),
    )
    for axes, (left, right, title) in zip(panels, views, strict=True):
        pixel = (right - left) / 1500
        for place, (_, events) in enumerate(reversed(rows)):
            shown = events[(events.end_ns >= left) & (events.start_ns <= right)].sort_values("start_ns")
            if events is ranges:
                _range_bars(axes, shown, place, left, right)
                continue
            for name, colour in colours.items() if len(shown) and shown.kind.iloc[0] == "kernel" else [("", MUTED)]:
                own = shown[shown.name == name] if name else shown
                spans = merged(spans_of(own), pixel)
                bars = [((a - left) / 1e6, max(b - a, pixel) / 1e6) for a, b in spans]
                axes.broken_barh(bars, (place - 0.34, 0.68), color=colour, linewidth=0)
        axes.set_xlim(0, (right - left) / 1e6)
        _name_rows(axes, [name for name, _ in reversed(rows)])
        axes.set_title(title)
        _value_axis(axes, "x")
        axes.set_xlabel("ms")
    times = {name: kernels[kernels.name == name] for name in names}
    labels = [f"{name}, {units.time((own.end_ns - own.start_ns).sum() / 1e6)}" for name, own in times.items()]
    figure.legend([Patch(color=colours[name]) for name in names], labels, loc="outside lower center", ncols=4)
    return _svg(figure)


def _range_bars(axes: Axes, ranges: Any, place: int, left: float, right: float) -> None:
    """Ranges that hold no other range as outlined bars, named where the name fits in."""
    inner = [
        row
        for row in ranges.itertuples()
        if not any(
            other.start_ns >= row.start_ns and other.end_ns <= row.end_ns and other.Index != row.Index
            for other in ranges.itertuples()
        )
    ]
    room = WIDTH_IN * 72 * 0.8 / (right - left)  # points of the page for each ns
    for row in inner:
        start, end = max(row.start_ns, left), min(row.end_ns, right)
        axes.barh(
            place,
            (end - start) / 1e6,
            left=(start - left) / 1e6,
            height=0.68,
            color="white",
            edgecolor=MUTED,
            linewidth=0.5,
        )
        if (end - start) * room > 3.6 * len(row.name):
            middle = ((start + end) / 2 - left) / 1e6
            axes.text(middle, place, row.name, ha="center", va="center", fontsize=6)


def kernel_colour(name: str, names: list[str]) -> str:
    """The colour of one of several kernels."""
    return OURS[names.index(name) % len(OURS)]


def layer_kernels(side: Side, longest_ns: int, names: list[str]) -> str:
    """One layer's kernels under one variant, a lane for each stream, on an axis from 0 to `longest_ns`; small enough
    for a cell of a table. Each of `names` has its colour."""
    width, lane = 250.0, 5.0
    kernels, first = side.kernels, side.kernels.start_ns.min()
    streams = sorted(set(kernels.stream))
    height = max(10.0, lane * len(streams) + 2)
    parts = [f'<path d="M0 {height - 0.5:g}H{width:g}" stroke="{RULE}" stroke-width="0.8"/>']
    tall = lane - 1 if len(streams) > 1 else height - 3
    durations = kernels.end_ns - kernels.start_ns
    filled: dict[int, float] = {}  # of each lane's height
    for (stream, name), own in kernels.groupby(["stream", "name"], sort=False):
        place = streams.index(stream)
        top = 1 + place * lane if len(streams) > 1 else 1
        if len(kernels) > width:
            # Kernels narrower than the page can show would hide each other.
            share = durations[own.index].sum() / durations[kernels.stream == stream].sum()
            top += filled.get(place, 0.0) * tall
            filled[place] = filled.get(place, 0.0) + share
        else:
            share = 1.0
        relative = [((a - first) / longest_ns, (b - first) / longest_ns) for a, b in spans_of(own)]
        bars = ""
        for start, end in merged(relative, 0.25 / width):
            left = f"{start * width:.2f}"
            bars += f"M{left} {top:.2f}h{max(0.3, (end - start) * width):.2f}v{share * tall:.2f}H{left}z"
        parts.append(f'<path d="{bars}" fill="{kernel_colour(name, names)}"/>')
    view = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {view}>{"".join(parts)}</svg>'


def speed_of_light(sm: float, memory: float) -> str:
    """Throughput of the multiprocessors above that of the memory system, in percent of their peaks, as two bars."""
    width = 60.0
    bars = "".join(
        f'<rect x="0" y="{top}" width="{width}" height="4" fill="{RULE}"/>'
        f'<rect x="0" y="{top}" width="{min(100.0, share) * width / 100:.1f}" height="4" fill="{colour}"/>'
        for top, share, colour in ((0.5, sm, OURS[0]), (5.5, memory, OURS[3]))
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 60 10" width="60" height="10">{bars}</svg>'


def again(evidence: Evidence) -> str:
    """A variant against its own copy: every ratio with its interval, in ascending order."""
    found = evidence.again.sort_values("value")
    figure = Figure(figsize=(WIDTH_IN, 2.3), layout="constrained")
    axes = figure.subplots()
    same = evidence.config.measuring.same_within
    axes.axhspan(1 - same, 1 + same, color=RULE, alpha=0.6, linewidth=0)
    axes.axhline(1, color=INK, linewidth=0.9)
    places = range(len(found))
    for verdict, colour in VERDICTS.items():
        chosen = [(place, row) for place, row in zip(places, found.itertuples(), strict=True) if row.verdict == verdict]
        if chosen:
            axes.vlines(
                [place for place, _ in chosen],
                [row.low for _, row in chosen],
                [row.high for _, row in chosen],
                color=colour,
                linewidth=0.8,
            )
            axes.plot(
                [place for place, _ in chosen], [row.value for _, row in chosen], ".", color=colour, label=verdict
            )
    axes.set_ylabel("Speedup over its copy")
    axes.set_xlabel("Comparisons, in ascending order")
    axes.set_xticks([])
    widest = max(abs(found.value - 1).max() * 1.6, 3 * same)
    axes.set_ylim(1 - widest, 1 + widest)
    _value_axis(axes, "y")
    figure.legend(loc="outside lower center", ncols=4)
    return _svg(figure)


def sweep(rows: Any) -> str:
    """Kernel time of every configuration of one variant: a panel for each value of the last parameter, the first two
    across and down."""
    settings = [dict(part.split("=") for part in configuration.split()) for configuration in rows.configuration]
    names = list(settings[0])
    values = {name: sorted({int(one[name]) for one in settings}) for name in names}
    times = {tuple(int(one[name]) for name in names): time for one, time in zip(settings, rows.time_ms, strict=True)}
    across, down, panel = names
    figure = Figure(figsize=(WIDTH_IN, 2.5), layout="constrained")
    panels = figure.subplots(1, len(values[panel]), squeeze=False)[0]
    least, most = min(rows.time_ms.dropna()), max(rows.time_ms.dropna())
    for axes, last in zip(panels, values[panel], strict=True):
        grid = [[times[x, y, last] for x in values[across]] for y in values[down]]
        axes.imshow(grid, cmap="cividis_r", vmin=least, vmax=most, aspect="auto")
        for row, line in enumerate(grid):
            for column, time in enumerate(line):
                dark = time > (least + most) / 2
                words = units.significant(time, 3)
                weight = 600 if time == least else 400
                axes.text(column, row, words, ha="center", va="center", color="white" if dark else INK, weight=weight)
        axes.set_xticks(range(len(values[across])), values[across])
        axes.set_yticks(range(len(values[down])), values[down])
        axes.set_xlabel(across)
        axes.set_title(f"{panel} = {last}")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    panels[0].set_ylabel(down)
    return _svg(figure)


def moved(found: Comparison) -> str:
    """Base's op time over head's, corrected by the drift: a row for each size on each device; shaded what is called the
    same, and lighter what is ambiguous."""
    rows = list(found.drifts.items())[::-1]
    figure = Figure(figsize=(WIDTH_IN, 0.6 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    names = list(dict.fromkeys(row.place.variant for row in found.moved))
    for place, ((device, size), drift) in enumerate(rows):
        for reach, colour in ((drift.far, "#eceff2"), (drift.near, RULE)):
            axes.fill_betweenx([place - 0.42, place + 0.42], 1 - reach, 1 + reach, color=colour, linewidth=0)
        # Side by side in order of their ratios, so that none hides another.
        ratios = sorted(ratio / drift.ratio.value for ratio in drift.ratios.values())
        heights = [place - 0.3 + 0.6 * (number * 0.618 % 1) for number in range(len(ratios))]
        axes.plot(ratios, heights, ".", color=MUTED, markersize=2.5)
        own = [row for row in found.moved if (row.place.device, row.place.size) == (device, size)]
        for number, row in enumerate(own):
            height = place + 0.3 * (2 * number - len(own) + 1) / max(1, len(own) - 1)
            colour = kernel_colour(row.place.variant, names)
            axes.errorbar(row.speedup.value, height, xerr=_errors([row.speedup]), fmt="o", color=colour, markersize=4)
    for name in names:
        axes.plot([], [], "o", color=kernel_colour(name, names), markersize=4, label=name)
    axes.axvline(1, color=INK, linewidth=0.9)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(_times))
    axes.set_xlabel("Speedup of head over base, corrected by the drift")
    _value_axis(axes, "x")
    _name_rows(axes, [f"{device.upper()}, {units.count(size)} images" for (device, size), _ in rows])
    if names:
        figure.legend(loc="outside lower center", ncols=4)
    return _svg(figure)


_style()
