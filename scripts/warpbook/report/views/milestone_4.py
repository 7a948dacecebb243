"""The chapter on optimizations: each with its idea, expectation and measured effect, and all against the hardware."""

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.report import trace_layout
from warpbook.report.evidence import INCONCLUSIVE, Evidence, Speedup
from warpbook.report.evidence.missing_data import PROGRAM
from warpbook.report.excerpts import excerpt
from warpbook.report.figures import speedup_plots
from warpbook.report.views import cell_markup, claim_table, ladder, profile_tables
from warpbook.report.views.components import Cell, Figure, HtmlTable, View
from warpbook.runs import catalog

MOST_DESCRIBED = 10  # optimizations, if those that lead to the fastest leave room: about five pages
ELSEWHERE = {"faster": "slower", "slower": "faster", "same": "faster", "ambiguous": "faster"}
"""The verdict at another size that is worth a word beside the one at the largest."""


def milestone_4_view(ev: Evidence) -> View:
    """The chapter of a study."""
    tried, foremost = _measured_optimizations(ev), _chapter_variants(ev)
    told = [one for one in tried if one.name in foremost]
    return View(
        title="Milestone 4: optimizations"
        if ev.is_network and ev.study.section_label == "Milestone"
        else "Optimizations, one by one",
        equivalence_margin=units.percent(ev.config.measuring.equivalence_margin, 0),
        ladder=_ladder(ev, told) if ev.ranking.measured_variants("gpu") and "ladder" not in ev.study.sections else None,
        optimizations=tuple(_optimization(ev, variant) for variant in told),
        others=len(tried) - len(told),
        chains=chain_figure(ev),
        by_weights=profile_tables.op_times_by_weights(ev),
    )


def remaining_optimizations(ev: Evidence) -> tuple[View, ...]:
    """The optimizations that the chapter leaves to the supplement; none without the chapter."""
    if "milestone_4" not in ev.study.sections:
        return ()
    foremost = _chapter_variants(ev)
    return tuple(_optimization(ev, variant) for variant in _measured_optimizations(ev) if variant.name not in foremost)


def _measured_optimizations(ev: Evidence) -> list[Variant]:
    return [one for one in ev.compared_variants("gpu") if one.header.builds_on and not one.header.peer]


def _chapter_variants(ev: Evidence) -> set[str]:
    """Those described in full: asked for or leading to the fastest; of those without a figure, and then of new ones where
    they were measured here, the fastest first, as many as there is room for."""
    asked = {place.removeprefix("m4-") for place in ev.study.deliverables.values()} | {*ev.study.show_profile_of}
    fastest = filter(None, (ev.ranking.best, ev.ranking.best_rounded))
    leading = {step.name for one in fastest for step in ev.ranking.chain(one)}
    before = catalog.run_before(ev.local, ev.network.name) if ev.gpu_run is ev.local else None
    lacking = {*ev.problems.table.variant} if ev.gpu_run else set[str]()
    tried = [one.name for one in _measured_optimizations(ev)]
    told = {name for name in tried if name in asked | leading}
    known = {*before.record["variants"]} if before else {*tried}
    others = [name for name in tried if name not in told and (name in lacking or name not in known)]
    order = [one.name for one in ev.ranking.fastest_first]  # without those that have no time of some layer
    others.sort(key=lambda name: order.index(name) if name in order else -1)
    return told | {*others[: max(MOST_DESCRIBED - len(told), 1)]}


def _ladder(ev: Evidence, told: list[Variant]) -> HtmlTable:
    """Every GPU variant at the largest size, each optimization with a link to its section."""
    in_chapter = {one.name for one in told}
    tried = {one.name for one in _measured_optimizations(ev)}

    def name(one: Variant) -> Cell:
        if one.name not in tried:
            return one.stem
        link = cell_markup.link if one.name in in_chapter else cell_markup.companion_link
        return link(f"m4-{one.name}", one.stem)

    return ladder.ladder_table(ev, "gpu", ev.layers, ev.largest, name)


def _optimization(ev: Evidence, variant: Variant) -> View:
    """problems: why it, or a layer of it, has no figure; alone: what it then did on the other layers."""
    at_largest = ev.times.total_speedup(variant.name, ev.largest)
    speedups = {
        (layer, size): ev.times.speedup(variant.name, layer, size) for layer in ev.layer_names for size in ev.sizes
    }
    lacking = ev.problems.for_variant(variant.name).to_dict("records")
    problems = tuple(_problem(row) for row in lacking if row["kinds"] != (PROGRAM,))
    sound = {layer: one for layer in ev.layer_names if (one := speedups[layer, ev.largest])}
    return View(
        name=variant.name,
        baseline=variant.header.builds_on,
        title=variant.title,
        idea=variant.header.idea,
        expect=variant.header.expect,
        notes=variant.notes(ev.layers),
        problems=problems,
        alone=tuple(
            View(
                where=f"{layer} alone, at {ev.at_size(ev.largest)}",
                speedup=cell_markup.speedup_cell(one),
                verdict=cell_markup.verdict_cell(one),
            )
            for layer, one in (sound.items() if problems else ())
        ),
        outcome=_outcome(ev, variant, at_largest, speedups) if at_largest and not problems else None,
        pace=trace_layout.overhead_sentence(ev, variant),
        figure=_gains(ev, variant) if sound else None,
        change=excerpt(
            variant, ev.plan.variants[variant.header.builds_on], cases=ev.layers, launched=ev.counters.kernels_launched
        ),
        claims=claim_table.claims_by_verdict(ev, variant.name),
        streams=_streams(ev, variant),
        built=_build_comparison(ev, variant),
    )


def _problem(row: dict[Hashable, Any]) -> str:
    layers = f", {units.join_all(row['layers'])}" if row["layers"] else ""
    return f"{row['status'].replace('_', ' ')}{layers}: {row['reason']}"


Speedups = dict[tuple[str, int], Speedup | None]


def _outcome(ev: Evidence, variant: Variant, at_largest: Speedup, speedups: Speedups) -> View:
    """on_gpu: the speedup of the GPU time. apart, on_gpu_apart: by each one's own job, where that is something else.
    elsewhere: sizes at which the verdict is `elsewhere_verdict`, unlike at the largest."""
    verdicts = Counter(speedup.word for speedup in speedups.values() if speedup)
    against = ELSEWHERE[at_largest.verdict]
    others = {size: ev.times.total_speedup(variant.name, size) for size in ev.sizes if size != ev.largest}
    several = f"{'both' if len(ev.layers) == 2 else 'all'} {ev.case_word}s together"
    together = several if len(ev.layers) > 1 else f"on the {ev.case_word}"
    return View(
        speedup=cell_markup.speedup_cell(at_largest),
        where=f"at {ev.at_size(ev.largest)}, {together}",
        apart=_separate_cell(ev, variant, "op"),
        on_gpu=cell_markup.speedup_cell(ev.times.total_speedup(variant.name, ev.largest, kind="gpu")),
        on_gpu_apart=_separate_cell(ev, variant, "gpu"),
        verdict="" if at_largest.doubt and at_largest.verdict == "ambiguous" else cell_markup.verdict_cell(at_largest),
        judged=verdicts.total(),
        judged_over=f"pairs of {ev.case_word} and size" if len(ev.layers) > 1 else "sizes",
        tally=", ".join(
            f"{verdicts[word]} {word}"
            for word in ("faster", "same", "ambiguous", INCONCLUSIVE, "slower")
            if verdicts[word]
        ),
        elsewhere_verdict=against,
        elsewhere=tuple(units.count(size) for size, other in others.items() if other and other.verdict == against),
    )


def _separate_cell(ev: Evidence, variant: Variant, kind: str) -> Cell:
    apart = ev.times.separate_total(variant.name, ev.largest, kind)
    return cell_markup.speedup_cell(apart) if apart else ""


def _gains(ev: Evidence, variant: Variant) -> Figure:
    baseline, drawn = variant.header.builds_on, speedup_plots.speedups_by_size(ev, variant)
    told = [
        f"{layer} {', '.join(f'{units.ratio(one.ratio.value)} at {units.count(size)}' for size, one in found.items())}"
        for layer, found in drawn.items()
    ]
    behind = units.sample_size(one.ratio for found in drawn.values() for one in found.values())
    return Figure(
        f"m4-gain-{variant.name}",
        speedup_plots.speedup_by_layer(ev, variant),
        f"Speedup of {variant.name} over {baseline}: {'; '.join(told)}{' images' * ev.is_network}.",
        f"Speedup by {ev.case_word}, {behind}.",
    )


def _streams(ev: Evidence, variant: Variant) -> View | None:
    """What runs at once in the program, and in that of what it builds on, at the largest size traced of both; None where
    its kernels share one stream."""
    for size in reversed(ev.sizes):
        before, after = (ev.profiles.events(name, size) for name in (variant.header.builds_on, variant.name))
        if len(before) and len(after):
            lanes = trace_layout.kernels_in_layer(ev, variant.name, ev.layer_names[0], size).stream.nunique()
            if lanes < 2:
                return None
            overlaps = [trace_layout.copy_overlap(events) for events in (before, after)]
            return View(
                images=units.count(size),
                lanes=int(lanes),
                at_once_before=units.significant(overlaps[0].kernels_at_once, 3),
                at_once=units.significant(overlaps[1].kernels_at_once, 3),
                copies=units.time(overlaps[1].copies_ns / 1e6),
                hidden=units.percent(overlaps[1].share, 1),
            )
    return None


def _build_comparison(ev: Evidence, variant: Variant) -> View | None:
    """None where either has no kernel of ours."""
    before = ev.builds.main_kernel_resources(variant.header.builds_on)
    after = ev.builds.main_kernel_resources(variant.name)
    if before is None or after is None:
        return None
    limits = [f", {'limited by ' * (one is after)}{one.limiter}" if one.limiter else "" for one in (after, before)]
    known = ["unknown" if one.occupancy is None else units.percent(one.occupancy, 0) for one in (after, before)]
    return View(
        kernel="" if after.kernel == variant.kernel else after.kernel,
        after=after,
        before=before,
        occupancy=known[0] + limits[0],
        occupancy_before=known[1] + limits[1],
    )


def chain_figure(ev: Evidence) -> Figure | None:
    """The waterfalls of the cumulative chains; None where there are none."""
    chains = ev.ranking.chains
    if not chains:
        return None
    told = " ".join(_chain_words(ev, steps) for steps in chains)
    back = [
        f" The study starts at {upper.name}; its first step goes back to {lower.name}."
        for steps in chains
        for upper, lower in itertools.pairwise(steps)
        if upper.header.builds_on == lower.name
    ]
    return Figure(
        "m4-chain-figure",
        speedup_plots.waterfalls(ev, chains),
        f"Op times step by step. {told}",
        f"Op times of all {ev.case_word}s together at {ev.at_size(ev.largest)}; each step builds on the one before. Blue and "
        "red together are its time. Red: time that the step adds; hatched: time that it saves. Beside a bar: its time, its speedup over the step before, and over the first of the chart. †: the two times come from separate jobs."
        f"{cell_markup.doubt_note(over for steps in chains for over in _speedup_cells(ev, steps))}{''.join(back)}",
    )


def _chain_words(ev: Evidence, steps: list[Variant]) -> str:
    """A chain in words."""
    times = ((step.name, ev.times.total(step.name, ev.largest)) for step in steps)
    told = ", ".join(f"{name} {units.time(time.value)}" for name, time in times if time)
    whole = ev.times.total_speedup(steps[-1].name, ev.largest, over=steps[0].name)
    return f"{told}: {whole.short_text if whole else MISSING} in all."


def _speedup_cells(ev: Evidence, steps: list[Variant]) -> Iterator[str]:
    """The speedups of a chain's steps, each over the one before and over the first."""
    for before, step in itertools.pairwise(steps):
        for over in (before, steps[0]):
            yield cell_markup.ratio_cell(ev.times.total_speedup(step.name, ev.largest, over=over.name))
