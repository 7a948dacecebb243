"""What became of the variants' claims: verdicts in each section, and a chapter of those that did not hold."""

import math
from collections import Counter
from dataclasses import dataclass

from warpbook import units
from warpbook.claims import QUANTITIES, RATIOS, RESOURCES, TIMES, Claim
from warpbook.profiling import counters
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.claims import VERDICTS, Figure, Judged
from warpbook.report.views import cells
from warpbook.report.views.parts import Cell, Table, words

SHARES = {"fma_share", "fp32_peak_share"}


@dataclass(frozen=True)
class Tally:
    """How many claims there are, how many of each verdict in words, and the variants of which one was refuted."""

    claims: int
    verdicts: str
    refuted: tuple[str, ...]


@dataclass(frozen=True)
class Untestable:
    """A reason for which claims have no verdict, and their variants."""

    reason: str
    variants: str


@dataclass(frozen=True)
class Claims:
    """The chapter. failed: claims refuted or held in part; without_section: those of variants that no section is of."""

    tally: Tally
    failed: Table | None
    without_section: Table | None
    untestable: tuple[Untestable, ...]


def view(ev: Evidence) -> Claims | None:
    """None where no variant claims anything."""
    total = tally(ev)
    if total is None:
        return None
    failed = [one for one in ev.claims.judged if one.verdict in ("refuted", "partly")]
    failed.sort(key=lambda one: -VERDICTS.index(one.verdict))
    told = {one.name for one in ev.wanted("gpu") if one.header.builds_on and not one.header.peer}
    others = [one for one in ev.claims.judged if one.variant not in told and one not in failed]
    reasons: dict[str, list[str]] = {}
    for one in ev.claims.judged:
        if one.verdict == "not testable":
            reasons.setdefault(one.reason, []).append(one.variant)
    return Claims(
        total,
        _listed("claims-failed", "Claims that were refuted, and those that held in part.", failed) if failed else None,
        _listed("claims-others", "Claims of the starting points, libraries and CPU variants.", others)
        if others
        else None,
        tuple(Untestable(reason, ", ".join(dict.fromkeys(names))) for reason, names in reasons.items()),
    )


def tally(ev: Evidence) -> Tally | None:
    """The claims of a study in sum; None where there are none."""
    judged = ev.claims.judged
    if not judged:
        return None
    counted = Counter(one.verdict for one in judged)
    said = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if counted[verdict])
    return Tally(len(judged), said, tuple(dict.fromkeys(one.variant for one in ev.claims.refuted)))


def of(ev: Evidence, variant: str) -> Table | None:
    """A variant's claims with their verdicts; None where it makes none."""
    judged = ev.claims.of(variant)
    if not judged:
        return None
    return Table(
        f"claims-{variant}",
        "What of the expectation figures can decide: its words, the test made of them, the verdict, and the figures.",
        words("Expected", "Tested", "Verdict", "Figures"),
        tuple((_expected(one), tested(one.claim), _verdict(one), figures(one)) for one in judged),
        "claims",
    )


def _listed(id: str, caption: str, judged: list[Judged]) -> Table:
    return Table(
        id,
        caption,
        words("Variant", "Expected", "Tested", "Verdict", "Figures"),
        tuple((one.variant, _expected(one), tested(one.claim), _verdict(one), figures(one)) for one in judged),
        "claims",
    )


def _expected(judged: Judged) -> str:
    return f"“{judged.claim.says}”" if judged.claim.says else ""


def _verdict(judged: Judged) -> Cell:
    return cells.claim_verdict(judged.verdict)


def tested(claim: Claim) -> str:
    """A claim in words: op time falls by at least 10 %, where C ≥ 2, more than where C = 1."""
    if claim.undecidable:
        return ""
    quantity = QUANTITIES.get(claim.quantity) or counters.named(claim.quantity)
    parts = [f"{quantity} {claim.change}{_by(claim)}" if claim.change else f"{quantity}: {_value(claim)}"]
    if claim.where.words:
        parts.append(f"where {claim.where.words}")
    if claim.more_than:
        parts.append(f"more than where {claim.more_than.words}")
    if claim.against:
        parts.append(f"against {claim.against}")
    return (
        ", ".join(parts).replace(" = ", "\u00a0=\u00a0").replace(" ≥ ", "\u00a0≥\u00a0").replace(" ≤ ", "\u00a0≤\u00a0")
    )


def _by(claim: Claim) -> str:
    amount = claim.by
    if amount.count is not None:
        return f" by {amount.count}".replace(" * ", "·")
    least, most = (None if share is None else units.percent(share, 0) for share in (amount.at_least, amount.at_most))
    if claim.change == "stays":
        return f" within {most}"
    if amount.at_most is not None:
        return f" by {least} to {most}" if amount.at_least else f" by at most {most}"
    return f" by at least {least}" if amount.at_least else ""


def _value(claim: Claim) -> str:
    assert claim.value is not None
    bounds = ((claim.value.at_least, "at least"), (claim.value.at_most, "at most"))
    return " and ".join(f"{word} {_amount(claim, bound)}" for bound, word in bounds if bound is not None)


def _amount(claim: Claim, value: float) -> str:
    """A figure in the unit of its quantity."""
    if claim.quantity in TIMES:
        return units.time(value)
    if claim.quantity in SHARES or ".pct" in claim.quantity:
        return units.percent(value, 0)
    if claim.quantity == "error":
        return units.scientific(value)
    if claim.quantity in RESOURCES:
        return units.count(int(value))
    return units.ratio(value) if claim.quantity in RATIOS else counters.amount(value, "")


def figures(judged: Judged) -> str:
    """The figures that a verdict rests on, or why there are none."""
    said = [_figure(judged.claim, figure) for figure in judged.figures]
    return "; ".join([*dict.fromkeys(said), *([judged.reason] if judged.reason else [])])


def _figure(claim: Claim, figure: Figure) -> str:
    than = f", on {_place(claim, figure.than)} {_change(figure.than)}" if figure.than else ""
    if claim.value is not None or figure.change is None:
        return f"{_place(claim, figure)} {_amount(claim, figure.after)}".strip()
    if claim.quantity in TIMES or figure.before is None:
        return f"{_place(claim, figure)} {_change(figure)}{than}".strip()
    pair = f"{_amount(claim, figure.before)} → {_amount(claim, figure.after)}"
    if figure.claimed is not None:
        moved, claimed = (counters.amount(count, "") for count in (abs(figure.after - figure.before), figure.claimed))
        return f"{_place(claim, figure)} {pair}, by {moved} where {claimed} are claimed"
    moves = figure.before and figure.after != figure.before
    return f"{_place(claim, figure)} {pair}{f' ({_change(figure)})' if moves else ''}{than}".strip()


def _place(claim: Claim, figure: Figure) -> str:
    if claim.quantity in RESOURCES or claim.quantity == "error":
        return ""
    sized = claim.quantity in TIMES and ("N" in claim.where.model_fields_set or claim.more_than)
    return f"{figure.layer} at {units.count(figure.size)}" if sized else figure.layer


def _change(figure: Figure) -> str:
    """How far a figure moved: −12.1 % [−12.4, −11.9] n = 16, or 2.45× its baseline's."""
    change = figure.change
    assert change is not None
    factor = change.value >= 2 and math.isfinite(change.value)
    value = f"{units.significant(change.value, 3)}×" if factor else f"{_signed(change.value)}\u202f%"
    if change.low == change.high:
        return value
    if not math.isfinite(change.low):
        return f"{value} (one sample)"
    ends = [units.significant(end, 3) if factor else _signed(end) for end in (change.low, change.high)]
    return f"{value} [{ends[0]}, {ends[1]}] {cells.of(change)}{'' if figure.paired else '†'}"


def _signed(ratio: float) -> str:
    percent = 100 * (ratio - 1)
    text = f"{percent:+.1f}" if abs(percent) < 99.95 else f"{percent:+.0f}"
    return text.replace("-", "−")
