"""The report's charts: evidence in, one SVG out; a module for each kind of chart.

A variant keeps its colour and marker; axes carry name and unit; spread is drawn. A new chart is a function in the
module of its kind, or in a module of its own, named here.
"""

from warpbook.report.figures import (
    errors,
    gains,
    history,
    intervals,
    labels,
    limits,
    networks,
    parameters,
    style,
    times,
    traces,
)

__all__ = [
    "errors",
    "gains",
    "history",
    "intervals",
    "labels",
    "limits",
    "networks",
    "parameters",
    "style",
    "times",
    "traces",
]
