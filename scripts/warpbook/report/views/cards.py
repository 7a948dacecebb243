"""Headline cards: a speedup has a figure there where it is settled."""

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.evidence import INCONCLUSIVE, Speedup
from warpbook.report.views.components import Fact


def summary_card(label: str, speedup: Speedup | None, missing: str, where: str = "") -> Fact:
    """A card: the speedup with its interval, words where the interval is too wide for a figure, else why it is
    missing. where: to follow the interval."""
    if speedup is None:
        return Fact(label, MISSING, missing)
    how = "timed in turn" if speedup.paired else "not timed in turn"
    behind = f"{units.ratio_interval(speedup.ratio)} {units.sample_size([speedup.ratio])}, {how}{where}"
    if speedup.is_conclusive:
        # No more digits than the interval supports, and few enough for a card.
        return Fact(
            label, min(units.ratio(speedup.ratio.value), units.ratio_beside_interval(speedup.ratio), key=len), behind
        )
    return Fact(label, INCONCLUSIVE, f"{behind}: too uncertain for one number", "name")
