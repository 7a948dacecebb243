"""Headline figures over runs: a point with its interval for each run, a line for each device."""

from collections.abc import Callable

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from warpbook.common import units
from warpbook.common.statistics import Estimate
from warpbook.report.figures.style import MUTED, OURS, VERDICTS, error_bars, format_ratio, value_axis
from warpbook.report.figures.svg_drawing import svg
from warpbook.report.run_history import GpuModel, Headline

WIDTH_IN, HEIGHT_IN = 3.7, 2.1
"""Narrow enough for a phone, where words keep their size."""
MOST_NAMED = 6
CHARACTERS = 26


def op_times(lines: list[Headline]) -> str:
    """Op time of the best variant of each run, from zero."""
    return _plot_over_runs(lines, lambda line: line.time, lambda value, _: units.time(value, 3) if value else "0")


def speedups(lines: list[Headline]) -> str:
    """How many times faster than the naive variant the best one is, in each run that has both."""
    return _plot_over_runs(lines, lambda line: line.over[1].ratio if line.over else None, format_ratio)


def _plot_over_runs(
    lines: list[Headline], figure_of: Callable[[Headline], Estimate | None], words: Callable[[float, int], str]
) -> str:
    """Runs in order of time and not to its scale; a vertical rule marks a step whose verdict is faster or slower, with
    the commit that it came with."""
    runs = list(dict.fromkeys(line.run.run_id for line in lines))
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
    axes = figure.subplots()
    models: dict[GpuModel, list[Headline]] = {}
    for line in lines:
        models.setdefault(line.model, []).append(line)
    for place, (model, its) in enumerate(models.items()):
        told = [(line, value) for line in its if (value := figure_of(line))]
        at = [runs.index(line.run.run_id) for line, _ in told]
        values = [value for _, value in told]
        colour = OURS[place % len(OURS)]
        name, error = model.name[:CHARACTERS], error_bars(values)
        axes.errorbar(at, [one.value for one in values], yerr=error, color=colour, marker="o", capsize=2, label=name)
    for line in lines:
        if line.step and line.step.speedup and line.step.speedup.verdict in ("faster", "slower"):
            axes.axvline(runs.index(line.run.run_id), color=VERDICTS[line.step.speedup.verdict], lw=0.8, zorder=0)
    every = -(-len(runs) // MOST_NAMED)
    named = {line.run.run_id: line.run.commit[:7] for line in lines}
    axes.set_xticks(range(0, len(runs), every), [named[run] for run in runs[::every]])
    axes.set_xlim(-0.5, len(runs) - 0.5)
    axes.set_ylim(0, 1.12 * axes.dataLim.ymax)
    axes.yaxis.set_major_formatter(FuncFormatter(words))
    axes.set_xlabel("Commit of each run, in order of time", color=MUTED)
    value_axis(axes, "y")
    if len(models) > 1:
        figure.legend(loc="outside upper left", ncols=2)
    return svg(figure)
