"""The report's charts: evidence in, one SVG out; a module for each kind of chart.

A variant keeps its colour and marker; axes carry name and unit; spread is drawn. A new chart is a function in the
module of its kind, or in a module of its own, named here.
"""

from warpbook.report.figures import (
    bound_plots,
    error_plots,
    history_plots,
    labels,
    network_diagram,
    rate_plots,
    ratio_plots,
    speedup_plots,
    style,
    time_plots,
    timelines,
    unit_plots,
)

__all__ = [
    "bound_plots",
    "error_plots",
    "history_plots",
    "labels",
    "network_diagram",
    "rate_plots",
    "ratio_plots",
    "speedup_plots",
    "style",
    "time_plots",
    "timelines",
    "unit_plots",
]
