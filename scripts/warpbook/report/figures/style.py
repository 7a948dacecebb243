"""What every chart shares: fonts, colours and markers, axes, intervals, words beside points."""

import itertools
import math
from collections.abc import Callable
from typing import Any, Literal

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from warpbook.common import units
from warpbook.common.files import LIBRARY
from warpbook.common.statistics import Estimate
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.report.evidence import Evidence
from warpbook.report.figures import svg_drawing

FONTS = LIBRARY / "reports" / "fonts"
WIDTH_IN = 6.69  # the text's width on A4
PAGE_IN = 8.6  # its height, less a figure's caption
DIGIT_POINTS = 4.5  # the width of a digit below an axis
MOST_BESIDE, ROW_OF_MANY = 4, 3  # so many panels stand side by side; of more, so many in a row
INK, MUTED, RULE = "#1b1f24", "#5b6470", "#d5d9de"
OURS = ("#0b5cad", "#c8453b", "#2a8a57", "#d98a00", "#7a4ea3", "#149aa5", "#a45a2a", "#b0478f", "#5c7d1d", "#3f5ba9")
CPU = ("#8a6d3b", "#b58a2e", "#6f7f3f", "#a6603c", "#94805d")
PEERS = ("#3d444d", "#8b949e", "#b3bac2")
MARKERS = "osD^vPX<>h"
LIMIT: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (3, 2))}
"""A line that measured values are held against."""
VERDICTS = {"faster": "#1f7a4d", "slower": "#b3261e", "same": MUTED, "ambiguous": "#8a6200"}
OVER_LINES = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
"""Behind words that a line would cross."""


def _style() -> None:
    for path in FONTS.glob("*.ttf"):
        font_manager.fontManager.addfont(path)
    mpl.rc_file(LIBRARY / "reports" / "style" / "charts.mplstyle", use_default_template=False)
    mpl.rcParams["figure.dpi"] = svg_drawing.POINTS


def variant_look(ev: Evidence, variant: Variant) -> tuple[str, str]:
    """(colour, marker) of a variant: the same in every chart of every study."""
    alike = [
        other
        for other in ev.plan.variants.values()
        if (other.device, other.header.peer) == (variant.device, variant.header.peer)
    ]
    place = alike.index(variant)
    colours = PEERS if variant.header.peer else OURS if variant.device == "gpu" else CPU
    # Of two that share a colour the markers differ.
    return colours[place % len(colours)], MARKERS[(place + place // len(colours)) % len(MARKERS)]


def kernel_colours(ev: Evidence) -> dict[str, str]:
    """The colours of all kernels of our programs: one each, in every chart of a report."""
    first, *others = ev.profiles.kernel_names or [""]
    return {first: OURS[0], **dict(zip(others, itertools.cycle(OURS[1:]), strict=False))}


def series_colour(name: str, names: list[str]) -> str:
    """The colour of one of several kernels or variants that share a chart."""
    return OURS[names.index(name) % len(OURS)]


def error_bars(estimates: list[Estimate]) -> list[list[float]]:
    """Distances to the interval's ends, for errorbar; none where there is no interval."""
    low = [0.0 if estimate.low != estimate.low else estimate.value - estimate.low for estimate in estimates]
    high = [0.0 if estimate.high != estimate.high else estimate.high - estimate.value for estimate in estimates]
    return [low, high]


def note(axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float] = (6, 0), **style: Any) -> None:
    """Words beside a point of the data, `offset` points away."""
    style = {"va": "center", "fontsize": 7.5, **style}
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **style)


def log_axis(axis: Axis, formatter: Callable[[float, int], str]) -> None:
    axis.set_major_locator(LogLocator(10, numticks=12))
    axis.set_major_formatter(FuncFormatter(formatter))
    axis.set_minor_formatter(NullFormatter())


def format_ratio(value: float, _: int) -> str:
    return f"{value:g}×"


def case_title(case: Case, size: int) -> str:
    """A case's name, and what it is at a size where the name does not say it."""
    what = str(case.at(size))
    return case.name if case.name.replace(" ", "") == what.replace(" ", "") else f"{case.name}: {what}"


def case_panels(ev: Evidence, row_in: float, size: int = 0, most_in: float = PAGE_IN) -> tuple[Figure, list[Axes]]:
    """A figure and a panel for each case of a report, in rows of so many inches or, in all, `most_in`. Titles say what a case is
    at a size, else at the largest."""
    count = len(ev.layers)
    columns = count if count <= MOST_BESIDE else ROW_OF_MANY
    rows = -(-count // columns)
    figure = Figure(figsize=(WIDTH_IN, min(row_in * rows, most_in)), layout="constrained")
    places = figure.subplots(rows, columns, sharey=True, squeeze=False).flat
    panels = [next(places) for _ in range(count)]
    for empty in places:
        empty.set_visible(False)
    for axes, case in zip(panels, ev.layers, strict=True):
        axes.set_title(
            case_title(case, size or ev.largest) if rows == 1 else case.name
        )  # the tables say what the cases are
    return figure, panels


def label_rows(panels: list[Axes], words: str) -> None:
    """Say what the vertical axis is, at the first panel of each row."""
    for axes in panels:
        place = axes.get_subplotspec()
        if place and place.is_first_col():
            axes.set_ylabel(words)


def size_axis(axes: Axes, sizes: list[int], label: str) -> None:
    axes.set_xscale("log")
    axes.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    axes.set_xticks(sizes, _size_words(axes, sizes))
    axes.minorticks_off()
    axes.set_xlabel(label)


def _size_words(axes: Axes, sizes: list[int]) -> list[str]:
    """The label of each size on a logarithmic axis; empty where it would touch the label before it or the last one."""
    words, last = [units.count(size) for size in sizes], len(sizes) - 1
    left, right = axes.get_xlim()
    points = axes.get_window_extent().width * 72 / axes.figure.dpi / math.log(right / left)

    def has_room_between(one: int, other: int) -> bool:
        room = abs(math.log(sizes[one] / sizes[other])) * points
        return room > DIGIT_POINTS * (len(words[one]) + len(words[other])) / 2 + DIGIT_POINTS

    kept = [0]
    for place in range(1, len(sizes)):
        if place == last or (has_room_between(kept[-1], place) and has_room_between(place, last)):
            kept.append(place)
    return [text if place in kept else "" for place, text in enumerate(words)]


def value_axis(axes: Axes, which: Literal["both", "x", "y"]) -> None:
    """Grid lines for the axis that carries values, behind the data."""
    axes.grid(axis=which)
    axes.set_axisbelow(True)


def name_rows(axes: Axes, names: list[str], top: float = 0.6) -> None:
    """One row a name, from the bottom up, on an axis without a line."""
    axes.set_yticks(range(len(names)), names, color=INK)
    axes.set_ylim(-0.6, len(names) - 1 + top)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def name_ends(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Name lines (value, name, colour) to the right of the axes, each beside its end, or moved as little as keeps it from
    covering another."""
    axes.autoscale_view()  # without it the scale is that of the lines drawn before the last
    bottom, top = (axes.transAxes.transform((0, end))[1] for end in (0, 1))
    apart = 9 * axes.figure.dpi / 72
    ends = sorted(ends)
    # Names that would touch become one group, whose middle is that of its lines' ends.
    groups: list[list[float]] = []
    for value, _, _ in ends:
        groups.append([axes.transData.transform((1, value))[1]])
        while len(groups) > 1 and _lowest(groups[-1], apart) < _lowest(groups[-2], apart) + len(groups[-2]) * apart:
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [_lowest(group, apart) + place * apart for group in groups for place in range(len(group))]
    for place, (y, (_, name, colour)) in enumerate(zip(places, ends, strict=True)):
        highest = top - (len(ends) - 1 - place) * apart  # those above it need room below the edge of the chart
        height = (max(min(y, highest), bottom + place * apart) - bottom) / (top - bottom)
        axes.text(1.03, height, name, color=colour, transform=axes.transAxes, va="center", fontsize=7.5)


def _lowest(group: list[float], apart: float) -> float:
    """Where the lowest of a group of names is."""
    return sum(group) / len(group) - (len(group) - 1) * apart / 2


def line(
    axes: Axes,
    by_size: dict[int, Estimate],
    look: tuple[str, str],
    label: str | None = None,
    capsize: float = 2,
    linestyle: Literal["-", ":", "none"] = "-",
    **style: Any,
) -> None:
    """A line over dataset sizes with its intervals, or its markers alone."""
    colour, marker = look
    estimates = list(by_size.values())
    style |= {"color": colour, "marker": marker, "linestyle": linestyle, "capsize": capsize, "label": label}
    axes.errorbar(list(by_size), [estimate.value for estimate in estimates], error_bars(estimates), **style)


_style()
