"""What two runs compared say: for a Markdown page, and in a few lines for the reviewer of a change."""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from warpbook.common import statistics, units
from warpbook.common.files import COMMAND, IN_CLONE
from warpbook.common.statistics import Estimate
from warpbook.report import comparison
from warpbook.report.comparison import (
    NOT_COMPARABLE,
    ComparedChange,
    ComparedPlace,
    Comparison,
    ComparisonDrift,
    is_doubtful,
)
from warpbook.report.escaping import code, escape
from warpbook.report.figures import ratio_plots
from warpbook.report.views.components import Figure, TableColumn, View, numbers, words
from warpbook.runs import catalog

VERDICTS = ("slower", "ambiguous", "same", "faster")
MOST_STRAYS = 8


@dataclass(frozen=True)
class MarkdownTable:
    """A table of Markdown; numbers are set flush right. Cells are escaped unless they are Markup."""

    head: tuple[TableColumn, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def text(self) -> Markup:
        """Its lines, each ended."""
        labels = [column.label for column in self.head]
        rules = ["---:" if column.kind == "number" else "---" for column in self.head]
        lines = [labels, rules, *([escape(cell) for cell in row] for row in self.rows)]
        return Markup("".join("|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|\n" for line in lines))


def runs_compared_view(compared: Comparison) -> View:
    """Two runs compared, in words and tables."""
    moved = {row.place.variant for row in compared.movements}
    return View(
        outcome=comparison.OUTCOMES[compared.outcome],
        base=compared.base.run_id,
        head=compared.head.run_id,
        same_run=compared.base.run_id == compared.head.run_id,
        same_gpu=compared.same_gpu,
        devices=tuple(_device(compared, device) for device in compared.devices),
        obstacles=tuple((device.upper(), why) for device, why in compared.obstacles.items()),
        losses=_losses(compared) if compared.losses else None,
        changes=tuple((variant, why) for variant, why in compared.changes.items() if variant in moved),
        movements=_movements(compared.movements) if compared.movements else None,
        resources=_resources(compared) if compared.resources else None,
        drifts=_drifts(compared) if compared.drifts else None,
        tolerance=units.percent(compared.tolerance, 0),
        false_alarms=units.percent(comparison.FALSE_ALARMS, 0),
        strays=len(compared.strays),
        furthest=Markup("; ").join(_stray(place, ratio) for place, ratio in compared.strays[:MOST_STRAYS]),
        differences=_differences(compared),
        omissions="; ".join(compared.omissions),
    )


def figure(compared: Comparison) -> Figure | None:
    """How far each variant moved, drawn; None where there are no times to compare."""
    if not compared.places:
        return None
    kinds, shades = "none of them changed", "same."
    if compared.movements:
        kinds, shades = "grey what did not change, in colour what did, with its interval", "same; lighter: ambiguous."
    times = "Base's op time over head's of each variant on each network, corrected by the drift"
    caption = f"{times}; {kinds}. Shaded: the {shades}"
    return Figure("moved", ratio_plots.changed_times(compared), caption, caption)


def _device(compared: Comparison, device: str) -> View:
    rows = [row for row in compared.movements if row.place.device == device]
    given = [row.verdict for row in rows]
    variants = len({row.place.variant for row in rows})
    verdicts = tuple((verdict, given.count(verdict)) for verdict in VERDICTS)
    return View(name=compared.head.device_name(device), variants=variants, places=len(rows), verdicts=verdicts)


def _losses(compared: Comparison) -> MarkdownTable:
    rows = ((code(variant), network, device.upper(), why) for variant, network, device, why in compared.losses)
    return MarkdownTable(words("Variant", "Network", "Device", "Why"), tuple(rows))


def _movements(moved: list[ComparedChange]) -> MarkdownTable:
    head = (*words("Variant", "Network"), *numbers("Images", "Base", "Head", "Speedup"), *words("Interval", "Verdict"))
    rows = (
        (
            code(row.place.variant),
            row.place.network,
            units.count(row.place.size),
            units.time(row.base.value),
            units.time(row.head.value),
            units.ratio_beside_interval(row.speedup),
            Markup(units.ratio_interval(row.speedup)),
            Markup("**slower**") if row.verdict == "slower" else row.verdict,
        )
        for row in moved
    )
    return MarkdownTable(head, tuple(rows))


def _resources(compared: Comparison) -> MarkdownTable:
    head = (*words("Variant", "Kernel", "Architecture", "Resource"), *numbers("Base", "Head"))
    rows = (
        (code(variant), code(kernel), arch, resource.replace("_", " "), str(base), str(head))
        for variant, kernel, resource, base, head, arch in compared.resources
    )
    return MarkdownTable(head, tuple(rows))


def _drifts(compared: Comparison) -> MarkdownTable:
    """Drift by device and size; where something changed, what counts as the same and as a change."""
    judged = bool(compared.movements)
    head = (*words("Device"), *numbers("Images", "Compared", "Drift"), *words("Interval"))
    if judged:
        head += numbers("Same within", "Changed beyond")
    rows = (_drift(device, size, drift, judged) for (device, size), drift in compared.drifts.items())
    return MarkdownTable(head, tuple(rows))


def _drift(device: str, size: int, drift: ComparisonDrift, judged: bool) -> tuple[str, ...]:
    ratio, interval = "none", units.MISSING
    if drift.ratios:
        ratio, interval = f"{units.significant(drift.ratio.value, 4)}×", Markup(units.ratio_interval(drift.ratio))
    limits = (units.percent(drift.near), units.percent(drift.far)) if judged else ()
    return (device.upper(), units.count(size), str(len(drift.ratios)), ratio, interval, *limits)


def _stray(place: ComparedPlace, ratio: float) -> Markup:
    where = f"{code(place.variant)} on {escape(place.network)}"
    return Markup(f"{where} at {units.count(place.size)} images {units.ratio(ratio)}")


def _differences(compared: Comparison) -> MarkdownTable:
    rows = (
        ("run", code(compared.base.run_id), code(compared.head.run_id)),
        ("measured", str(compared.base.record["started"]), str(compared.head.record["started"])),
        *((what, str(base), str(head)) for what, base, head in compared.differences),
    )
    return MarkdownTable(words("", "Base", "Head"), rows)


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
