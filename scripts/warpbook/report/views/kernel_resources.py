"""The kernels of each layer under what a variant builds on and under the variant, drawn on one time axis."""

from warpbook.common import units
from warpbook.kernels.variants import Variant
from warpbook.report import trace_layout
from warpbook.report.evidence import Evidence
from warpbook.report.figures import style, timelines
from warpbook.report.trace_layout import Side
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, HtmlTable, TableColumn, View, numbers, words
from warpbook.report.views.profile_tables import short_name


def before_and_after(ev: Evidence, variant: Variant) -> View | None:
    """None where the two programs were not traced at a common size, or each layer would be drawn as a single bar."""
    pairs = trace_layout.comparison_sides(ev, variant)
    longest = max((side.span_ns for pair in pairs for side in pair), default=0)
    if all(side.one_bar(longest) for pair in pairs for side in pair):
        return None
    names, size = trace_layout.kernel_names(pairs), pairs[0][0].size
    lanes, colours = int(pairs[0][1].kernels.stream.nunique()), style.kernel_colours(ev)
    return View(
        table=_table(variant, pairs, colours, lanes),
        images=units.count(size),
        baseline=variant.header.builds_on,
        key=tuple(View(colour=colours[name], name=short_name(name)) for name in names) if len(names) > 1 else (),
        streams=_streams(ev, variant, size, lanes) if lanes > 1 else None,
    )


def _table(variant: Variant, pairs: list[tuple[Side, Side]], colours: dict[str, str], lanes: int) -> HtmlTable:
    longest = max(side.span_ns for pair in pairs for side in pair)
    of_lanes = ", a lane for each stream" if lanes > 1 else ""
    many = any(len(side.kernels) > timelines.MOST_DRAWN for pair in pairs for side in pair)
    of_shares = ". Bars too dense to draw are stacked by share of time" if many else ""
    return HtmlTable(
        f"kernels-{variant.name}",
        "Kernels of each layer before and after, on one time axis, in the profiled programs at "
        f"{units.count(pairs[0][0].size)} images{of_lanes}{of_shares}. Busy: the time in which any kernel runs. A profiler "
        "slows launches.",
        (
            *words("Layer", "Variant"),
            TableColumn(f"0 to {units.time(longest / 1e6)}", "kernels"),
            *numbers("Kernels", "Busy", "Span"),
        ),
        tuple(
            (
                side.layer,
                side.variant,
                _bars(side, longest, colours),
                units.count(len(side.kernels)),
                units.time(side.busy_ns / 1e6),
                units.time(side.span_ns / 1e6),
            )
            for pair in pairs
            for side in pair
        ),
    )


def _bars(side: Side, longest_ns: int, colours: dict[str, str]) -> Cell:
    alt = f"{len(side.kernels)} kernels of {side.variant} within {units.time(side.span_ns / 1e6)}"
    return cell_markup.picture("kernels", timelines.layer_kernels(side, longest_ns, colours), alt)


def _streams(ev: Evidence, variant: Variant, size: int, lanes: int) -> View:
    after = trace_layout.copy_overlap(ev.profiles.events(variant.name, size))
    before = trace_layout.copy_overlap(ev.profiles.events(variant.header.builds_on, size))
    return View(
        lanes=lanes,
        at_once=units.significant(after.kernels_at_once, 3),
        at_once_before=units.significant(before.kernels_at_once, 3),
        copies=units.time(after.copies_ns / 1e6),
        hidden=units.percent(after.share, 1),
    )
