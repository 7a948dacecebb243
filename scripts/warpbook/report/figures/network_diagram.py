"""Times of whole networks against the number of images."""

import math

from matplotlib.figure import Figure

from warpbook.common import units
from warpbook.kernels.whole_networks import Implementation
from warpbook.report.evidence import Evidence
from warpbook.report.figures.style import MARKERS, OURS, PEERS, WIDTH_IN, line, log_axis, size_axis, value_axis
from warpbook.report.figures.svg_drawing import svg


def times_by_size(ev: Evidence, shown: list[Implementation]) -> str:
    """GPU time from images to labels, logarithmic both ways; ours in colour, frameworks in grey, darker in FP32, and
    dotted where one builds on another of its precision. Of several sizes, one alone is a larger marker and named so."""
    figure = Figure(figsize=(WIDTH_IN, 1.9), layout="constrained")
    axes = figure.subplots()
    of_kind = {True: 0, False: 0}
    for one in shown:
        place = of_kind[one.header.peer]
        of_kind[one.header.peer] += 1
        colour = PEERS[one.header.precision != "fp32"] if one.header.peer else OURS[place % len(OURS)]
        look = colour, MARKERS[(place + 4 * one.header.peer) % len(MARKERS)]
        times = {size: time for size in ev.sizes if (time := ev.networks.time(one.name, size))}
        below = next((other for other in shown if other.name == one.header.builds_on), one)
        dotted = one.header.peer and below != one and below.header.precision == one.header.precision
        if len(times) == 1 < len(ev.sizes):
            line(axes, times, look, f"{one.name}, one size", linestyle="none", markersize=7, zorder=3)
        else:
            line(axes, times, look, one.name, linestyle=":" if dotted else "-")
    size_axis(axes, ev.sizes, ev.size_label)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)))
    log_axis(axes.yaxis, lambda value, _: units.time(value, 1))
    value_axis(axes, "y")
    axes.set_ylabel("GPU time")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return svg(figure)
