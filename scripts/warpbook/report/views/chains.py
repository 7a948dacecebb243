"""Optimizations on top of each other: the cumulative chains, step by step."""

import itertools
from collections.abc import Iterator

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence
from warpbook.report.figures import speedup_plots
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Figure


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
        f"Op times of all {ev.case_word}s together at {ev.at_size(ev.largest)}; each step builds on the one before. The bar is its "
        "time; behind it, hatched: time that the step saves, or solid: time that it adds. Beside a bar: its time, its speedup over the step before, and over the first. †: the two times come from separate jobs."
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
