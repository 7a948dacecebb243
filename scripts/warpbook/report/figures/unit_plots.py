"""How busy each unit of the GPU is under a kernel: its speed of light, in percent of the unit's own peak."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from warpbook.common.units import MISSING
from warpbook.kernels.headers import Header
from warpbook.problems.problem import Case
from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall
from warpbook.report.evidence import Evidence
from warpbook.report.figures.style import INK, OURS, WIDTH_IN, case_title, name_rows, note
from warpbook.report.figures.svg_drawing import svg

READ = {
    "Issue": counters.ISSUE, "Pipes": counters.SM, "L1, shared": counters.L1, "L2": counters.L2, "DRAM": counters.DRAM,
}  # fmt: skip
"""Columns that are counters themselves."""
FP32, TENSOR = "FP32", "Tensor cores"
COLUMNS = ("Issue", "Pipes", FP32, TENSOR, "L1, shared", "L2", "DRAM")
BAR, TRACK, BOUND = "#9fb0c3", "#eef1f4", OURS[0]
INSTRUCTIONS = ("Instructions", "FMAs", "Tensor")
"""Columns of words: of a whole call its instructions, counted once a warp, and what share of them two pipes take."""
GAP, MARGIN = 0.14, 0.03  # between columns, and beside a number, in widths of a column
NARROW = 0.55  # a column of words
LONG = 0.68  # of a column: a bar that holds its number
ROW_IN = 0.15


@dataclass(frozen=True)
class UnitRow:
    """A kernel's bars: percent of the unit's peak by column; bound: the column that bounds it; words: INSTRUCTIONS."""

    name: str
    shares: dict[str, float]
    bound: str
    words: tuple[str, ...]


def unit_row(name: str, header: Header, flop: int, call: CountedCall, peaks: dict[str, Any]) -> UnitRow:
    """The bars of a call that does `flop` useful operations on a GPU of such peaks, in GFLOP/s: counters and FP32
    operations of its longest kernel, and the tensor-core operations that the whole call needs."""
    launch = call.longest
    shares = {column: launch.values[metric] for column, metric in READ.items() if metric in launch.values}
    if launch.fp32_flop is not None and (ns := launch.values.get(counters.DURATION)):
        shares[FP32] = 100 * launch.fp32_flop / ns / peaks["fp32"]
    precision, products = header.reduced or ("", 0)
    ns, peak = call.value(counters.DURATION), peaks.get(precision)
    if ns and peak and flop:
        shares[TENSOR] = 100 * products * flop / ns / peak
    unit = counters.nearest_peak(launch)
    bounds = [column for column, metric in READ.items() if metric == unit and launch.values[unit] >= counters.LOW]
    made = call.value(counters.INSTRUCTIONS)
    words = (
        counters.amount(made, "") if made else MISSING,
        counters.percent(call.instruction_share(counters.FFMA)),
        counters.percent(call.matrix_share),
    )
    return UnitRow(name, shares, "".join(bounds), words)


def unit_rows(ev: Evidence, case: Case, names: Sequence[str]) -> list[UnitRow]:
    """The bars of the named variants counted on a case, in that order, each with its number in the roofline."""
    numbers, peaks = ev.counters.numbers, ev.counters.gpu["peak_gflop_per_s"]
    found = {
        one.name: unit_row(f"{numbers[one.name]}\u00a0{one.stem}", one.header, case.at(call.images).flops, call, peaks)
        for one, of, call in ev.counters.counted
        if of == case and one.name in names
    }
    return [found[name] for name in names if name in found]


def speed_of_light(ev: Evidence, names: Sequence[str], cases: Sequence[Case]) -> str:
    """Bars of every unit under the named variants, a panel for each case."""
    panels = {case_title(case, ev.counters.size): rows for case in cases if (rows := unit_rows(ev, case, names))}
    return draw_bars(panels)


def draw_bars(panels: dict[str, list[UnitRow]]) -> str:
    """Bars by panel, whose titles are the keys; dark: the unit that bounds a kernel."""
    heights = [len(rows) for rows in panels.values()]
    figure = Figure(figsize=(WIDTH_IN, 0.36 * len(panels) + ROW_IN * sum(heights)), layout="constrained")
    places = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, rows) in zip(places, panels.items(), strict=True):
        axes.set_title(title, pad=12)
        _panel(axes, rows)
    return svg(figure)


def _panel(axes: Axes, rows: list[UnitRow]) -> None:
    lefts = {column: place * (1 + GAP) for place, column in enumerate(COLUMNS)}
    end = len(COLUMNS) * (1 + GAP)
    read = [place for place in range(len(INSTRUCTIONS)) if any(row.words[place] != MISSING for row in rows)]
    rights = {place: end + NARROW * number for number, place in enumerate(read, 1)}
    for place, right in rights.items():
        _head(axes, INSTRUCTIONS[place], right, "right")
        for height, row in enumerate(reversed(rows)):
            axes.text(right, height, row.words[place], va="center_baseline", ha="right", fontsize=6.5)
    for column, left in lefts.items():
        _head(axes, column, left, "left")
        for height, row in enumerate(reversed(rows)):
            axes.barh(height, 1, left=left, height=0.72, color=TRACK, linewidth=0)
            share, dark = row.shares.get(column), row.bound == column
            _bar(axes, left, height, share, dark)
    axes.set_xlim(0, max(rights.values(), default=end))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    name_rows(axes, [row.name for row in reversed(rows)], top=0.5)


def _head(axes: Axes, column: str, place: float, align: str) -> None:
    at = ("data", "axes fraction")
    note(axes, column, (place, 1), (0, 2), xycoords=at, va="baseline", ha=align, fontsize=6.5)


def _bar(axes: Axes, left: float, height: float, share: float | None, dark: bool) -> None:
    """One bar with its number, within it where it is long; a dash where nothing was read."""
    length = min(share or 0.0, 100.0) / 100
    within = length > LONG
    end = left + length + (-MARGIN if within else MARGIN)
    colour = "white" if dark and within else INK
    words = counters.percent(share)
    axes.barh(height, length, left=left, height=0.72, color=BOUND if dark else BAR, linewidth=0)
    axes.text(end, height, words, va="center_baseline", ha="right" if within else "left", fontsize=6.5, color=colour)
