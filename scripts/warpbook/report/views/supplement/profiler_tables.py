"""Supplement: the profilers, how far they agree, what watching costs, and their profiles in full."""

from typing import Any

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.machine.available_profilers import NAMES
from warpbook.report import trace_layout
from warpbook.report.evidence import Evidence
from warpbook.report.views.components import HtmlTable, View, words
from warpbook.report.views.profile_tables import nvprof_table, other_sets
from warpbook.runs import tables


def profiler_tables_view(ev: Evidence) -> View | None:
    """None where no program was profiled, and the run does not say by what it could have been."""
    tools = ev.gpu_run.record["machine"].get("profilers") if ev.gpu_run else None
    found = View(table=_tools(ev, tools) if tools else None, agreement=_agreement(ev))
    return found if found.table or found.agreement else None


def _tools(ev: Evidence, tools: dict[str, dict[str, Any]]) -> HtmlTable:
    assert ev.gpu_run is not None  # whose tools they are
    return HtmlTable(
        "a-profilers",
        f"Profilers on the machine of the run {ev.gpu_run.run_id}: what each of them profiled, or why it did not.",
        words("Profiler", "Version", "Profiled"),
        tuple(
            (NAMES[tool], state["version"] or MISSING, _watched_programs(ev, tool, state))
            for tool, state in tools.items()
        ),
        "facts",
    )


def _watched_programs(ev: Evidence, tool: str, state: dict[str, Any]) -> str:
    watched = ev.profiles.table
    if programs := int(((watched.tool == tool) & (watched.status == "ok")).sum()):
        return f"{programs} programs"
    calls = f"{len(ev.counters.counted)} calls" if tool == "ncu" and ev.counters.counted else ""
    elsewhere = ev.selection.in_other_run(tables.COUNTERS)
    if calls and not elsewhere:
        return calls
    missing: str = state["missing"] or "not asked for"
    return f"{missing}; {calls}{elsewhere}" if calls else missing


def _agreement(ev: Evidence) -> str:
    """How many layers' kernel times the tools agree on, and how short the kernels of the others are."""
    agreed = trace_layout.agreements(ev)
    if not agreed:
        return ""
    tools = list(dict.fromkeys(NAMES[tool] for one in agreed for tool in one.ms))
    far_us = [one.kernel_us for one in agreed if one.relative_difference > trace_layout.AGREE_WITHIN]
    ends = [min(far_us), max(far_us)] if len(far_us) > 1 else far_us
    short = f" The others are layers of short kernels, {' to '.join(units.significant(end, 2) for end in ends)}\u00a0µs each."
    return (
        f"{len(agreed) - len(far_us)} of {len(agreed)} kernel times of a layer agree within "
        f"{units.percent(trace_layout.AGREE_WITHIN, 0)} between {units.join_all(tools)}.{short * bool(far_us)}"
    )


def printed_profiles(ev: Evidence) -> View | None:
    """Of every program that was traced, but for those of optimizations that no chapter shows."""
    shown = [
        (variant, size, weights)
        for variant in ev.compared_variants("gpu")
        if _is_in_chapter(ev, variant)
        for size in ev.sizes
        for weights in ("", *other_sets(ev))
        if not ev.profiles.problem(variant.name, size, weights)
    ]
    if not shown:
        return None
    return View(
        tracer=NAMES[ev.profiles.tracer],
        programs=", ".join(f"{one.name} at {units.count(size)}" for one, size, weights in shown if not weights),
        profiles=tuple(
            View(
                title=f"{variant.name}, {units.count(size)} images"
                + (f", weights {ev.network.model(weights)}" * bool(weights)),
                text=nvprof_table(ev, variant.name, size, weights),
            )
            for variant, size, weights in shown
        ),
    )


def _is_in_chapter(ev: Evidence, variant: Variant) -> bool:
    header = variant.header
    return not header.builds_on or header.peer or variant == ev.ranking.best or variant.name in ev.study.show_profile_of
