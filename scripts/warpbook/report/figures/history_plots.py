"""Headline figures over runs: a point with its interval for each run, a chart for each device."""

from collections.abc import Callable

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from warpbook.common import units
from warpbook.common.statistics import Estimate
from warpbook.report.figures.style import MUTED, OURS, VERDICTS, error_bars, format_ratio, value_axis
from warpbook.report.figures.svg_drawing import svg
from warpbook.report.run_history import GpuModel, Headline

WIDTH_IN, HEIGHT_IN = 3.7, 2.1  # narrow enough for a phone, where words keep their size
MOST_NAMED = 6
CHARACTERS = 40


def op_times(lines: list[Headline]) -> str:
    """Op time of the best variant of each run, from zero."""
    return _plot_over_runs(lines, lambda line: line.time, lambda value, _: units.time(value, 3) if value else "0")


def speedups(lines: list[Headline]) -> str:
    """How many times faster than the naive variant the best one is, in each run that has both."""
    return _plot_over_runs(lines, lambda line: line.over[1].ratio if line.over else None, format_ratio)


def _plot_over_runs(
    lines: list[Headline], figure_of: Callable[[Headline], Estimate | None], words: Callable[[float, int], str]
) -> str:
    """A chart for each device, whose values lie far apart, from zero. Runs stand in order of time and not to its scale; a
    vertical rule marks a step whose verdict is faster or slower, with the commit that it came with."""
    runs = list(dict.fromkeys(line.run.run_id for line in lines))
    models: dict[GpuModel, list[Headline]] = {}
    for line in lines:
        models.setdefault(line.model, []).append(line)
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN * len(models)), layout="constrained")
    charts = figure.subplots(len(models), sharex=True, squeeze=False)[:, 0]
    for place, ((model, its), axes) in enumerate(zip(models.items(), charts, strict=True)):
        told = [(line, value) for line in its if (value := figure_of(line))]
        at = [runs.index(line.run.run_id) for line, _ in told]
        values = [value for _, value in told]
        colour, error = OURS[place % len(OURS)], error_bars(values)
        axes.errorbar(at, [one.value for one in values], yerr=error, color=colour, marker="o", capsize=2)
        for line in its:
            if line.step and line.step.speedup and line.step.speedup.verdict in ("faster", "slower"):
                axes.axvline(runs.index(line.run.run_id), color=VERDICTS[line.step.speedup.verdict], lw=0.8, zorder=0)
        axes.set_ylim(0, 1.12 * axes.dataLim.ymax if values else 1)
        axes.yaxis.set_major_formatter(FuncFormatter(words))
        axes.set_title(model.name[:CHARACTERS], loc="left", fontsize=8)
        value_axis(axes, "y")
    every = -(-len(runs) // MOST_NAMED)
    named = {line.run.run_id: line.run.commit[:7] for line in lines}
    charts[-1].set_xticks(range(0, len(runs), every), [named[run] for run in runs[::every]])
    charts[-1].set_xlim(-0.5, len(runs) - 0.5)
    charts[-1].set_xlabel("Commit of each run, in order of time", color=MUTED)
    return svg(figure)
