"""Errors against float64 over the length of sums."""

from matplotlib.figure import Figure

from warpbook.common import units
from warpbook.harness.precision import CLASS_RATIO
from warpbook.report.evidence import Evidence
from warpbook.report.figures.style import INK, LIMIT, WIDTH_IN, log_axis, name_ends, note, value_axis, variant_look
from warpbook.report.figures.svg_drawing import svg


def error_by_length(ev: Evidence) -> str:
    """Relative L2 error on random reals against the products of a sum: a line for each variant, the largest error of
    layers with equal sums, and the limit of FP32's class. Hollow: another class. Dotted: libraries."""
    rows = ev.checks.errors
    rows = rows[(rows.status == "ok") & (rows.inputs == "reals")]
    longest = {str(name): group.groupby("products").rel_l2_err.max() for name, group in rows.groupby("variant")}
    figure = Figure(figsize=(WIDTH_IN, 2.9))
    axes = figure.add_axes((0.1, 0.13, 0.72, 0.84))
    ends = []
    for name in longest:
        variant = ev.plan.variants[name]
        colour, marker = variant_look(ev, variant)
        inside = colour if variant.header.precision == "fp32" else "white"
        errors = longest[name][longest[name] > 0]
        style, ink = (":", INK) if variant.header.peer else ("-", colour)  # a library's grey is too light for words
        axes.plot(errors.index, errors, style, color=colour, marker=marker, markerfacecolor=inside)
        ends += [(error, name, ink) for error in errors.iloc[-1:]]
    axes.set_xscale("log")
    axes.set_yscale("log")
    limit = rows.groupby("products").direct_rel_l2_err.max() * CLASS_RATIO
    axes.plot(limit.index, limit, **LIMIT)
    note(
        axes,
        f"{CLASS_RATIO} × {ev.problem.facts.baseline}",
        (limit.index[-1], limit.iloc[-1]),
        (0, 7),
        ha="right",
        fontsize=7,
    )
    log_axis(axes.xaxis, lambda value, _: units.count(round(value)) if value >= 1 else "")
    log_axis(axes.yaxis, lambda value, _: units.scientific(value).replace("1.0e", "1e"))
    value_axis(axes, "both")
    axes.set_xlabel("Terms of the longest sum")
    axes.set_ylabel("Relative L2 error")
    name_ends(axes, ends)
    return svg(figure)
