"""The report's charts: evidence in, one SVG out; a module for each kind of chart, named here. A variant keeps its
colour and marker."""

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
