"""What the hardware allows: the roofline, multiples of the lower bound, throughput in percent of its peak."""

from matplotlib.figure import Figure

from warpbook import units
from warpbook.report.evidence import Evidence
from warpbook.report.figures.labels import number_points
from warpbook.report.figures.style import (
    DASHED,
    INK,
    MARKERS,
    MUTED,
    OURS,
    RULE,
    WIDTH_IN,
    as_ratio,
    log_axis,
    look_of,
    name_rows,
    note,
    value_axis,
)
from warpbook.report.figures.vector import svg
from warpbook.variants import Variant


def times_bound(ev: Evidence) -> str:
    """How many times its lower bound each GPU variant takes on each layer at the largest size."""
    shown, size = ev.ranking.fastest_first, ev.largest
    figure = Figure(figsize=(WIDTH_IN, 0.7 + 0.14 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for place, variant in enumerate(shown):
        colour, _ = look_of(ev, variant)
        points = []
        for layer, marker in zip(ev.layers, MARKERS, strict=False):
            kernels, bound = (
                ev.times.op(variant.name, layer.name, size, kind="gpu"),
                ev.times.fp32_bound_ms(layer, size),
            )
            if kernels and bound:
                points.append((kernels.value / bound, marker))
        for number, (times, marker) in enumerate(sorted(points)):
            axes.plot(times, place, marker, color=colour)
            # Outwards, where they are clear of the other point and of the rows above and below.
            side, align = (-6, "right") if number == 0 and len(points) > 1 else (6, "left")
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            note(axes, units.ratio(times), (times, place), (side, 0), ha=align, fontsize=6, color=MUTED, bbox=box)
    for layer, marker in zip(ev.layers, MARKERS, strict=False):
        axes.plot([], [], marker, color=MUTED, label=f"{layer.name} (bound: {ev.times.bound_by(layer, size)})")
    axes.axvline(1, color=INK, linewidth=0.9, linestyle=DASHED)
    axes.set_xscale("log")
    left, right = axes.get_xlim()
    axes.set_xlim(left / 1.5, right * 1.3)
    log_axis(axes.xaxis, as_ratio)
    figure.legend(loc="outside lower center", ncols=3)
    axes.set_xlabel("Kernel time over the hardware's lower bound")
    value_axis(axes, "x")
    name_rows(axes, [variant.name for variant in shown], top=0.8)
    return svg(figure)


def roofline(ev: Evidence) -> str:
    """Rate against arithmetic intensity of each counted call, a panel for each layer.

    A point's number is its variant's in `ev.counters.counted`, counted from 1. Operations are the layer's own, whatever
    a call does for them: padding is no use, and a tensor core's product is. Points of variants that do fewer, or not
    in FP32, are hollow: this roof is not theirs.
    """
    numbers = {
        name: number for number, name in enumerate(dict.fromkeys(one.name for one, *_ in ev.counters.counted), 1)
    }
    assert ev.gpu_run is not None and ev.gpu_run.gpu is not None  # which the counters are of
    gpu = ev.gpu_run.gpu
    copy, peak = gpu["copy_gb_per_s"], gpu["peak_gflop_per_s"]["fp32"]
    measured = gpu.get("fp32_gflop_per_s")
    figure = Figure(figsize=(WIDTH_IN, 0.3 + 1.6 * len(ev.layers)), layout="constrained")
    panels = figure.subplots(len(ev.layers), 1, squeeze=False)[:, 0]
    for axes, layer in zip(panels, ev.layers, strict=True):
        points = [
            (*place, direct_in_fp32(variant), numbers[variant.name], look_of(ev, variant))
            for variant, of, call in ev.counters.counted
            if of == layer and (place := call.on_roofline(layer.flops(call.images)))
        ]
        ridge = peak / copy
        left = min([ridge, *(point[0] for point in points)]) / 2
        right = max([ridge, *(point[0] for point in points)]) * 3
        axes.plot([left, ridge, right], [left * copy, peak, peak], color=INK, linewidth=0.9)
        words = f"FP32 peak by specification, {peak / 1e3:.3g} TFLOP/s"
        note(axes, words, (right, peak), (0, 15 if measured else 6), ha="right", fontsize=7)
        if measured:
            axes.plot([measured / copy, right], [measured, measured], color=INK, linewidth=0.9, linestyle=DASHED)
            words = f"dashed: multiply-adds as measured, {measured / 1e3:.3g} TFLOP/s"
            note(axes, words, (right, peak), (0, 6), ha="right", fontsize=7)
        note(axes, f"slope: copy bandwidth as measured, {copy / 1e3:.3g} TB/s", (left, peak), (4, 6), fontsize=7)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(left, right)
        axes.set_ylim(min([left * copy, *(point[1] for point in points)]) / 2, max([peak, *(p[1] for p in points)]) * 3)
        log_axis(axes.xaxis, lambda value, _: f"{value:g}")
        log_axis(axes.yaxis, lambda value, _: f"{value / 1e3:g}")
        value_axis(axes, "both")
        axes.set_title(f"{layer.name}: {layer}")
        axes.set_ylabel("Useful TFLOP/s")
        for x, y, filled, _, (colour, marker) in points:
            axes.plot(x, y, marker, color=colour, markerfacecolor=colour if filled else "white")
        number_points(axes, [(x, y, str(number)) for x, y, _, number, _ in points])
    panels[-1].set_xlabel("Useful operations for each byte that DRAM moves")
    return svg(figure)


def direct_in_fp32(variant: Variant) -> bool:
    """Whether a variant does every product in FP32, so that the FP32 roof is its own."""
    return variant.header.precision == "fp32" and variant.header.method == "direct" and not variant.header.split


def speed_of_light(sm: float, memory: float) -> str:
    """Throughput of the multiprocessors above that of the memory system, in percent of their peaks, as two bars."""
    width = 60.0
    bars = "".join(
        f'<rect x="0" y="{top}" width="{width}" height="4" fill="{RULE}"/>'
        f'<rect x="0" y="{top}" width="{min(100.0, share) * width / 100:.1f}" height="4" fill="{colour}"/>'
        for top, share, colour in ((0.5, sm, OURS[0]), (5.5, memory, OURS[3]))
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 60 10" width="60" height="10">{bars}</svg>'
