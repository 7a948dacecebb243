"""Supplement: the profilers, how far they agree, what watching costs, and their profiles in full."""

from dataclasses import dataclass
from typing import Any

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.machine.available_profilers import NAMES
from warpbook.report import trace_layout
from warpbook.report.evidence import Evidence
from warpbook.report.trace_layout import Agreement, Overhead
from warpbook.report.views import borrowed_run
from warpbook.report.views.captured_output import other_sets
from warpbook.report.views.components import HtmlTable, numbers, words
from warpbook.report.views.profile_tables import nvprof_table
from warpbook.runs import tables


@dataclass(frozen=True)
class Agreements:
    """Kernel times by several tools. far: time of one kernel, in µs, of those further apart; empty without any."""

    near: int
    all: int
    within: str
    tools: str
    far: str
    table: HtmlTable


@dataclass(frozen=True)
class UsualCost:
    """Op times under one profiler over those without, at the median of several programs."""

    programs: int
    tool: str
    op: str


@dataclass(frozen=True)
class Costs:
    """The naive variant's programs one by one, and all at the largest size in sum."""

    images: str
    table: HtmlTable
    usual: tuple[UsualCost, ...]


@dataclass(frozen=True)
class ProfilersView:
    """Each part None where there is nothing of it."""

    table: HtmlTable | None
    agreements: Agreements | None
    costs: Costs | None


@dataclass(frozen=True)
class PrintedProfile:
    """A program's whole profile in fixed width."""

    title: str
    text: str


@dataclass(frozen=True)
class PrintedProfiles:
    """programs: those profiled, in words."""

    tracer: str
    programs: str
    profiles: tuple[PrintedProfile, ...]


def profiler_tables_view(ev: Evidence) -> ProfilersView | None:
    """None where no program was watched, and the run does not say by what it could have been."""
    tools = ev.gpu_run.record["machine"].get("profilers") if ev.gpu_run else None
    costs, agreed = trace_layout.overheads(ev), trace_layout.agreements(ev)
    if not (tools or costs or agreed):
        return None
    return ProfilersView(
        table=_tools(ev, tools) if tools else None,
        agreements=_agreements(agreed) if agreed else None,
        costs=_costs(ev, costs) if costs else None,
    )


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
    programs = trace_layout.programs(ev, tool)
    if programs:
        return f"{programs} programs"
    calls = f"{len(ev.counters.counted)} calls" if tool == "ncu" and ev.counters.counted else ""
    elsewhere = borrowed_run.within_sentence(ev, tables.COUNTERS)
    if calls and not elsewhere:
        return calls
    missing: str = state["missing"] or "not asked for"
    return f"{missing}; {calls}{elsewhere}" if calls else missing


def _agreements(agreed: list[Agreement]) -> Agreements:
    tools = list(dict.fromkeys(tool for one in agreed for tool in one.ms))
    far_us = [one.kernel_us for one in agreed if one.relative_difference > trace_layout.AGREE_WITHIN]
    ends = [min(far_us), max(far_us)] if len(far_us) > 1 else far_us
    names = [NAMES[tool] for tool in tools]
    return Agreements(
        near=len(agreed) - len(far_us),
        all=len(agreed),
        within=units.percent(trace_layout.AGREE_WITHIN, 0),
        tools=units.join_all(names),
        far=" to ".join(units.significant(end, 2) for end in ends),
        table=HtmlTable(
            "agreement-table",
            "Kernel time of each layer by each profiler, and how far the largest is above the smallest. CUDA events: without a "
            "profiler, gaps between kernels included.",
            (*words("Variant", "Layer"), *numbers("Images", "Kernels", *names, "Apart", "CUDA events")),
            tuple(
                (
                    one.variant,
                    one.layer,
                    units.count(one.size),
                    units.count(one.launches),
                    *(units.time(one.ms.get(tool)) for tool in tools),
                    units.percent(one.relative_difference, 1),
                    units.time(one.timed_ms),
                )
                for one in agreed
            ),
            "wide",
        ),
    )


def _costs(ev: Evidence, costs: list[Overhead]) -> Costs:
    naive = ev.ranking.naive.name if ev.ranking.naive else ""
    usual = {tool: trace_layout.median_overhead(costs, tool, ev.largest) for tool in NAMES}
    return Costs(
        images=units.count(ev.largest),
        table=HtmlTable(
            "a-overhead",
            "The whole program without and with a profiler, whose own work is within, and the op times that the "
            "program printed; with a profiler over without. Most are single runs, with the host's own spread within. "
            "No op time and no speedup comes from a profiled run.",
            (
                *words("Profiler", "Variant"),
                *numbers("Images", "Program, s", "Watched, s", "Program", "Op times"),
            ),
            tuple(
                (
                    NAMES[one.tool],
                    one.variant,
                    units.count(one.size),
                    units.seconds(one.program_s),
                    units.seconds(one.profiled_s),
                    units.ratio(one.program),
                    units.ratio(one.op),
                )
                for one in costs
                if one.variant == naive
            ),
        ),
        usual=tuple(
            UsualCost(one["programs"], NAMES[tool], units.ratio(one["op"]))
            for tool, one in usual.items()
            if one["programs"] > 1 and one["op"]
        ),
    )


def printed_profiles(ev: Evidence) -> PrintedProfiles | None:
    """Of every program that was traced; of optimizations that no chapter shows the device's side alone."""
    shown = [
        (variant, size, weights)
        for variant in ev.compared_variants("gpu")
        for size in ev.sizes
        for weights in ("", *other_sets(ev))
        if not ev.profiles.problem(variant.name, size, weights)
    ]
    if not shown:
        return None
    return PrintedProfiles(
        tracer=NAMES[ev.profiles.tracer],
        programs=", ".join(f"{one.name} at {units.count(size)}" for one, size, weights in shown if not weights),
        profiles=tuple(
            PrintedProfile(
                f"{variant.name}, {units.count(size)} images"
                + (f", weights {ev.network.model(weights)}" * bool(weights)),
                nvprof_table(ev, variant.name, size, weights, api=_is_in_chapter(ev, variant)),
            )
            for variant, size, weights in shown
        ),
    )


def _is_in_chapter(ev: Evidence, variant: Variant) -> bool:
    header = variant.header
    return not header.builds_on or header.peer or variant == ev.ranking.best or variant.name in ev.study.show_profile_of
