"""What profilers saw: where a program's time goes, its timeline, and the kernels of a layer."""

import itertools
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from warpbook.common import units
from warpbook.common.intervals import merge
from warpbook.report.evidence import API_KINDS, GPU_KINDS, Evidence
from warpbook.report.figures import style
from warpbook.report.figures.svg_drawing import svg
from warpbook.report.trace_layout import event_spans

Row = tuple[str, Any]  # of a timeline: its name and its events
NAME_CHARACTERS = 40  # of a kernel's name in a legend


def program_timeline(frame: Any, known: Mapping[str, str] | None = None) -> str:
    """A profiled program, events among which are kernels, on its time axis: the whole of it, and below the part from
    the images' copy to the labels. A row each for ranges, API calls, copies each way, and kernels of each stream.
    known: the colours of some kernels."""
    copies = frame[frame.kind == "memcpy_htod"].sort_values("bytes", na_position="first")
    start = (
        copies if len(copies) else frame[frame.kind == "kernel"].sort_values("start_ns", ascending=False)
    ).start_ns.iloc[-1]
    end = frame[~frame.kind.isin(API_KINDS)].end_ns.max()
    ranges, kernels = frame[frame.kind == "range"], frame[frame.kind == "kernel"]
    kernels = kernels.assign(stream=kernels.stream.fillna(0))
    whole: list[Row] = [
        ("NVTX ranges", ranges),
        ("API calls", frame[frame.kind.isin(API_KINDS)]),
        ("The device", frame[frame.kind.isin(GPU_KINDS)]),
    ]
    part: list[Row] = [
        ("NVTX ranges", ranges),
        ("Runtime API", frame[frame.kind == "api_runtime"]),
        ("Driver API", frame[frame.kind == "api_driver"]),
        ("Copies to the device", frame[frame.kind == "memcpy_htod"]),
        ("Copies to the host", frame[frame.kind == "memcpy_dtoh"]),
        *((f"Kernels, stream {stream}", kernels[kernels.stream == stream]) for stream in sorted(set(kernels.stream))),
    ]
    names = list(dict.fromkeys(kernels.name))
    colours = dict(zip(names, itertools.cycle(style.OURS), strict=False)) | dict(known or {})
    heights = [len(whole) + 0.3, len(part) + 0.3]
    figure = Figure(figsize=(style.WIDTH_IN, 0.95 + 0.155 * sum(heights)), layout="constrained")
    panels = figure.subplots(2, 1, height_ratios=heights)
    margin = (end - start) * 0.02
    views = (
        (whole, 0.0, float(frame.end_ns.max()), "The whole program"),
        (part, start - margin, end + margin, "From the copy of the images to the labels"),
    )
    for axes, (rows, left, right, title) in zip(panels, views, strict=True):
        for place, (_, events) in enumerate(reversed(rows)):
            shown = events[(events.end_ns >= left) & (events.start_ns <= right)].sort_values("start_ns")
            if events is ranges:
                _range_bars(axes, shown, place, left, right)
            else:
                of_kernels = shown.kind == "kernel"
                _bars(axes, shown[~of_kernels], place, left, right, style.MUTED)
                for name in colours:
                    _bars(axes, shown[of_kernels & (shown.name == name)], place, left, right, colours[name])
        axes.set_xlim(0, (right - left) / 1e6)
        style.name_rows(axes, [name for name, _ in reversed(rows)])
        axes.set_title(title)
        style.value_axis(axes, "x")
    panels[-1].set_xlabel("ms")
    times = {name: kernels[kernels.name == name] for name in names}
    labels = [
        f"{name[:NAME_CHARACTERS]}, {units.time((runs.end_ns - runs.start_ns).sum() / 1e6)}"
        for name, runs in times.items()
    ]
    figure.legend([Patch(color=colours[name]) for name in names], labels, loc="outside lower center", ncols=4)
    return svg(figure)


def _bars(axes: Axes, events: Any, place: int, left: float, right: float, colour: str) -> None:
    """Events as bars, those closer than the page can show as one."""
    pixel = (right - left) / 1500
    bars = [((a - left) / 1e6, max(b - a, pixel) / 1e6) for a, b in merge(event_spans(events), pixel)]
    if bars:
        axes.broken_barh(bars, (place - 0.34, 0.68), color=colour, linewidth=0)


def _range_bars(axes: Axes, ranges: Any, place: int, left: float, right: float) -> None:
    """Ranges that hold no other range as outlined bars, named where the name fits in."""
    rows = list(ranges.itertuples())
    inner = [
        row
        for row in rows
        if not any(row.start_ns <= one.start_ns and one.end_ns <= row.end_ns and one is not row for one in rows)
    ]
    for row in inner:
        start, end = max(row.start_ns, left), min(row.end_ns, right)
        bar: dict[str, Any] = {"height": 0.68, "color": "white", "edgecolor": style.MUTED, "linewidth": 0.5}
        axes.barh(place, (end - start) / 1e6, left=(start - left) / 1e6, **bar)
    _name_bars(axes, inner, place, left, right, "black")


def _name_bars(axes: Axes, rows: list[Any], place: int, left: float, right: float, colour: str) -> None:
    """Write the names of events into their bars, where they fit in."""
    room = style.WIDTH_IN * 72 * 0.8 / (right - left)  # points of the page for each ns
    for row in rows:
        start, end = max(row.start_ns, left), min(row.end_ns, right)
        if (end - start) * room > 3.6 * len(row.name):
            middle = ((start + end) / 2 - left) / 1e6
            axes.text(middle, place, row.name, ha="center", va="center", fontsize=6.5, color=colour)


def layer_before_and_after(ev: Evidence, spans: dict[str, Any], layer: str) -> str:
    """A layer's calls, copies and kernels under two variants, each a panel, on one axis from the start of its call.
    spans: by variant, as `within_layer` gives them."""
    kinds = (("API calls", API_KINDS), ("Copies", GPU_KINDS[1:]), ("Kernels", GPU_KINDS[:1]))
    figure = Figure(figsize=(style.WIDTH_IN, 1.9), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    right = max(float((events.end_ns - events.start_ns.min()).max()) for events in spans.values())
    for axes, (variant, events) in zip(panels, spans.items(), strict=True):
        left, (colour, _) = events.start_ns.min(), style.variant_look(ev, ev.plan.variants[variant])
        for place, (_, of_row) in enumerate(reversed(kinds)):
            shown, of_kernels = events[events.kind.isin(of_row)], of_row == GPU_KINDS[:1]
            _bars(axes, shown, place, left, left + right, colour if of_kernels else style.MUTED)
            if not of_kernels:
                _name_bars(axes, [*shown.itertuples()], place, left, left + right, "white")
        axes.set_xlim(0, right / 1e6)
        axes.set_ylim(-0.6, len(kinds) - 0.4)
        style.name_rows(axes, [name for name, _ in reversed(kinds)])
        axes.set_title(f"{layer}, {variant}")
        style.value_axis(axes, "x")
    panels[-1].set_xlabel("ms")
    return svg(figure)
