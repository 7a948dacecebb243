"""Regressions between two runs as notes that GitHub shows on a change: workflow commands, which need no right to write.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
"""

from collections.abc import Iterator

from warpbook import units
from warpbook.report.comparison import Comparison

MOST = 3


def notes(compared: Comparison) -> list[str]:
    """What went wrong first, then what lost most, one note for a variant on a network; none where nothing is worse
    beyond what runs of the same code differ by."""
    found: dict[tuple[str, ...], str] = {}
    for place, said in _regressions(compared):
        found.setdefault(place, said)
    shown = list(found.values())[:MOST]
    if len(found) > MOST:
        shown[-1] += f" (and {len(found) - MOST} more: compare the runs)"
    return [f"::warning title=Regression::{_escaped(said)}" for said in shown]


def _regressions(compared: Comparison) -> Iterator[tuple[tuple[str, ...], str]]:
    for variant, network, device, why in compared.lost:
        yield (variant, network, device), f"{variant} on {network} ({device}) is no longer right or measured: {why}"
    for row in compared.moved:
        if row.verdict == "slower":
            place, ratio = row.place, f"{units.ratio_within(row.speedup)} {units.ratio_interval(row.speedup)}"
            where = f"{place.variant} on {place.network} ({place.device}), {units.count(place.size)} images"
            times = f"{units.time(row.base.value)} before and {units.time(row.head.value)} now"
            yield (place.variant, place.network, place.device), f"{where}: {ratio} of its former speed, {times}"
    for (device, size), drift in compared.drifts.items():
        if compared.verdict_on(device, size) == "slower":
            ratio = f"{units.ratio_within(drift.ratio)} {units.ratio_interval(drift.ratio)}"
            told = f"all unchanged variants on the {device}, {units.count(size)} images, moved together: {ratio}"
            yield (device,), told


def _escaped(message: str) -> str:
    """A message of one line, of which a stranger's words make no command of their own."""
    return message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
