"""Kernel times over a variant's parameters."""

from typing import Any

from matplotlib.figure import Figure

from warpbook.common import units
from warpbook.report.figures.style import INK, WIDTH_IN
from warpbook.report.figures.svg_drawing import svg


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
    return svg(figure)
