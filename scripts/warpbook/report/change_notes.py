"""What a reviewer of a change has to know of two runs: a few lines of Markdown, on a pull request or a job's page."""

import shlex
from collections.abc import Iterable, Iterator

from warpbook.common import statistics, units
from warpbook.common.files import COMMAND, IN_CLONE
from warpbook.common.statistics import Estimate
from warpbook.report.comparison import NOT_COMPARABLE, ComparedChange, Comparison, is_doubtful
from warpbook.report.escaping import code
from warpbook.runs import catalog

MOST = 3


def notes(compared: Comparison) -> str:
    """Regressions, then what may be slower and what would decide it; or why runs are not comparable; else empty."""
    if compared.outcome == NOT_COMPARABLE:
        reasons = "".join(f"- {device.upper()} times: {why}\n" for device, why in compared.obstacles.items())
        return f"**Not comparable**\n\n{reasons}\n{_heading(compared)}"
    regressions, doubts = _first_by_place(_regressions(compared)), _first_by_place(_doubts(compared))
    doubts = {place: said for place, said in doubts.items() if place not in regressions}
    parts = [_part("Regressions", regressions), _part("Not decided", doubts)]
    if not any(parts):
        return ""
    return "\n".join([*filter(None, parts), _heading(compared)])


def _heading(compared: Comparison) -> str:
    """Which runs these are, and the command that shows all of it."""
    names = [catalog.command_name(run) for run in (compared.base, compared.head)]
    base, head = map(shlex.quote, names)
    command = f"{COMMAND} compare --config base={base} head={head}" if IN_CLONE else f"{COMMAND} compare {base} {head}"
    return f"{code(compared.head.run_id)} held against {code(compared.base.run_id)}. All of it: {code(command)}\n"


def _part(title: str, found: dict[tuple[str, ...], str]) -> str:
    shown = [f"- {said}\n" for said in found.values()][:MOST]
    if len(found) > MOST:
        shown.append(f"- and {len(found) - MOST} more\n")
    return "".join([f"**{title}**\n\n", *shown]) if shown else ""


def _first_by_place(told: Iterable[tuple[tuple[str, ...], str]]) -> dict[tuple[str, ...], str]:
    """The first sentence about each place."""
    found: dict[tuple[str, ...], str] = {}
    for place, said in told:
        found.setdefault(place, said)
    return found


def _regressions(compared: Comparison) -> Iterator[tuple[tuple[str, ...], str]]:
    for variant, network, device, why in compared.losses:
        said = f"{code(variant)} on {code(network)} ({device}) is no longer right or measured: {code(why)}"
        yield (variant, network, device), said
    for row in compared.movements:
        if row.verdict == "slower":
            yield _place(row), _change_words(row)
    for (device, size), drift in compared.drifts.items():
        if compared.verdict_on(device, size) == "slower":
            yield (device,), _joint_change(device, size, drift.ratio)


def _doubts(compared: Comparison) -> Iterator[tuple[tuple[str, ...], str]]:
    for row in compared.movements:
        if is_doubtful(row.verdict, row.speedup):
            drift = compared.drifts[row.place.device, row.place.size]
            yield _place(row), f"{_change_words(row)}; {_samples_words(row.speedup, drift.near, drift.far)}"
    for (device, size), drift in compared.drifts.items():
        if is_doubtful(compared.verdict_on(device, size), drift.ratio):
            yield (device,), f"{_joint_change(device, size, drift.ratio)}; measure head again, on the GPU of base"


def _place(row: ComparedChange) -> tuple[str, ...]:
    return row.place.variant, row.place.network, row.place.device


def _change_words(row: ComparedChange) -> str:
    place, ratio = row.place, units.ratio_and_interval(row.speedup)
    where = f"{code(place.variant)} on {code(place.network)} ({place.device}), {units.count(place.size)} images"
    times = f"{units.time(row.base.value)} before and {units.time(row.head.value)} now"
    return f"{where}: {ratio} of its former speed, {times}"


def _joint_change(device: str, size: int, ratio: Estimate) -> str:
    where = f"all unchanged variants on the {device}, {units.count(size)} images"
    return f"{where}, moved together: {units.ratio_and_interval(ratio)}"


def _samples_words(speedup: Estimate, near: float, far: float) -> str:
    samples = statistics.samples_to_decide(speedup, near, far)
    if samples is None or samples > statistics.SAMPLES_MOST:
        return (
            f"at the limit of what runs of the same code differ by ({units.percent(far)}) more samples decide little. To have both "
            f"interleaved, keep the old file under another name, and say {code('builds_on: <that name>')} in the new one's header"
        )
    return (
        f"about {units.count(samples)} samples of each layer instead of {speedup.n} would decide it: a lower "
        f"{code('target_rel_ci')}, a higher {code('max_samples')} and {code('max_time_s')} for both runs"
    )
