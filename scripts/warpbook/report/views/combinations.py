"""Optimizations on top of each other: chains of them, and what joined ideas lose or gain by each other."""

import itertools

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.report import figures
from warpbook.report.evidence import Evidence
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, Figure, HtmlTable, numbers, words

MOST_STEPS = 15  # of the chains in one figure


def chains(ev: Evidence) -> tuple[Figure, ...]:
    """The waterfalls of the cumulative chains, in figures that leave no page half empty."""
    parts: list[list[list[Variant]]] = []
    for steps in ev.ranking.chains:
        if parts and sum(map(len, [*parts[-1], steps])) <= MOST_STEPS:
            parts[-1].append(steps)
        else:
            parts.append([steps])
    return tuple(_waterfalls(ev, part, place) for place, part in enumerate(parts, 1))


def _waterfalls(ev: Evidence, chains: list[list[Variant]], place: int) -> Figure:
    told = " ".join(_chain_words(ev, steps) for steps in chains)
    back = [
        f" {upper.name} builds on {lower.name}: that step is taken back first, for the study starts there."
        for steps in chains
        for upper, lower in itertools.pairwise(steps)
        if upper.header.builds_on == lower.name
    ]
    return Figure(
        f"m4-chains-{place}",
        figures.speedup_plots.waterfalls(ev, chains),
        f"Op times step by step. {told}",
        "Op times, step by step. Hatched is what a step saves, solid beyond the bar what it loses; beside it time, "
        "speedup over the step before with its interval, and over the chain's first. Over the step before it is of "
        "pairs timed in turn, but for those marked †, and need not be the ratio of the two times; not settled: too "
        f"uncertain for one number.{''.join(back)}",
    )


def _chain_words(ev: Evidence, steps: list[Variant]) -> str:
    """A chain in words."""
    times = ((step.name, ev.times.total(step.name, ev.largest)) for step in steps)
    told = ", ".join(f"{name} {units.time(time.value)}" for name, time in times if time)
    whole = ev.times.total_speedup(steps[-1].name, ev.largest, over=steps[0].name)
    return f"{told}: {units.ratio(whole.ratio.value) if whole else MISSING} in all."


def pairs(ev: Evidence) -> HtmlTable | None:
    """Which ideas help each other, of those tried alone on one baseline and together; None where none were."""
    found: dict[tuple[str, str], Cell] = {}
    alone: dict[str, Cell] = {}
    for joined, parts in ev.ranking.combinations:
        bases = {part.header.builds_on for part in parts}
        gains = [ev.times.total_speedup(part.name, ev.largest) for part in parts]
        together = ev.times.total_speedup(joined.name, ev.largest, over=bases.pop()) if len(bases) == 1 else None
        if len(parts) != 2 or together is None or None in gains:
            continue
        first, second = (gain.ratio for gain in gains if gain)
        alone |= {part.name: cell_markup.speedup_cell(gain) for part, gain in zip(parts, gains, strict=True)}
        ratio, product = together.ratio, first.value * second.value
        low, high = ratio.low / (first.high * second.high), ratio.high / (first.low * second.low)
        judged = "they help each other" if low > 1 else "they hinder each other" if high < 1 else "neither is shown"
        cell = f"{units.ratio(ratio.value)} together, {units.ratio(product)} if independent: {judged}"
        found |= {(one.name, other.name): cell for one, other in itertools.permutations(parts)}
    if not found:
        return None
    names = list(alone)
    return HtmlTable(
        "m4-pairs",
        f"Pairs of ideas at {ev.at_size(ev.largest)}, all layers together, over the baseline of both: on the "
        "diagonal each idea alone, beside it both together against the product of the two. They help or hinder each "
        "other where the intervals do not meet.",
        words("Idea", *names),
        tuple(
            (row, *(alone[row] if row == column else found.get((row, column), MISSING) for column in names))
            for row in names
        ),
    )


def ablation(ev: Evidence) -> HtmlTable:
    """What a variant that joins ideas loses with each of them."""
    rows = []
    for joined, parts in ev.ranking.combinations:
        for part in parts:
            speedup = ev.times.total_speedup(joined.name, ev.largest, over=part.name)
            totals = (cell_markup.time_cell(ev.times.total(one.name, ev.largest)) for one in (joined, part))
            rows.append(
                (joined.name, part.name, *totals, cell_markup.speedup_cell(speedup), cell_markup.verdict_cell(speedup))
            )
    return HtmlTable(
        "m4-left-out-table",
        "Variants that join ideas, against each with the other idea left out; all layers together at "
        f"{ev.at_size(ev.largest)}.",
        (
            *words("Variant", "Without one idea"),
            *numbers("All ideas", "One left out", "Speedup"),
            *words("Verdict"),
        ),
        tuple(rows),
    )
