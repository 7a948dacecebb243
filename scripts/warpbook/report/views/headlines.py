"""Which speedups deserve a figure on a headline card: those whose interval is narrow enough for one."""

from warpbook import units
from warpbook.report.evidence import Speedup
from warpbook.report.views.parts import Fact
from warpbook.units import MISSING

WIDEST = 1.5
"""The most that an interval's upper end may be of its lower one beside a headline figure."""
FEWEST = 3
"""The fewest samples that a headline figure rests on."""

UNSETTLED = "not settled"


def deserves_figure(speedup: Speedup) -> bool:
    """Whether a speedup's interval, any drift between jobs within it, is narrow enough and of enough samples."""
    ratio = speedup.ratio
    return ratio.n >= FEWEST and ratio.high <= WIDEST * ratio.low  # of no interval, neither compares


def fact(label: str, speedup: Speedup | None, missing: str, where: str = "") -> Fact:
    """A card: the speedup with its interval, words where the interval is too wide for a figure, else why it is
    missing. where: to follow the interval."""
    if speedup is None:
        return Fact(label, MISSING, missing)
    how = "timed in turn" if speedup.paired else "not timed in turn"
    behind = f"{units.ratio_interval(speedup.ratio)} {units.sample_size([speedup.ratio])}, {how}{where}"
    if deserves_figure(speedup):
        # No more digits than the interval supports, and few enough for a card.
        return Fact(label, min(units.ratio(speedup.ratio.value), units.ratio_within(speedup.ratio), key=len), behind)
    return Fact(label, UNSETTLED, f"{behind}: too uncertain for one number", "name")
