"""What became of the variants' claims: verdicts in each section, a chapter of those that did not hold, and all."""

import math
import re
from collections import Counter

from warpbook.common import units
from warpbook.kernels.claims import QUANTITIES, RATIOS, RESOURCES, TIMES, Claim
from warpbook.profiling import counters
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.claim_verdicts import VERDICTS, ClaimValue, JudgedClaim
from warpbook.report.evidence.time_series import FEWEST
from warpbook.report.views import cell_markup
from warpbook.report.views.components import HtmlTable, View, words
from warpbook.runs import tables

SHARES = {"fma_share", "fp32_peak_share"}


def claim_table_view(ev: Evidence) -> View | None:
    """None where no variant claims anything."""
    total = tally_claims(ev)
    if total is None:
        return None
    failed = [one for one in ev.claims.judged if one.verdict in ("refuted", "partly")]
    failed.sort(key=lambda one: -VERDICTS.index(one.verdict))
    caption = "Claims that were refuted, and those that held in part."
    still = units.percent(ev.config.measuring.equivalence_margin, 0)
    return View(
        tally=total,
        still=still,
        failed=_claims_table(ev, "claims-failed", caption, failed, tested=False) if failed else None,
    )


def full_claim_table(ev: Evidence) -> HtmlTable | None:
    """Every claim, for the supplement; None where there is none."""
    caption = "Every claim: its words, the test made of them, the verdict, and the values or why there are none."
    return _claims_table(ev, "claims-all", caption, ev.claims.judged) if ev.claims.judged else None


def tally_claims(ev: Evidence) -> View | None:
    """The claims of a study in sum; None where there are none."""
    judged = ev.claims.judged
    if not judged:
        return None
    counted = Counter(one.verdict for one in judged)
    said = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if counted[verdict])
    return View(claims=len(judged), verdicts=said, example=_example(ev))


def _example(ev: Evidence) -> str:
    refuted = [one for one in ev.claims.refuted if one.claim.says and one.figures]
    chain = [step.name for step in ev.ranking.chain(ev.ranking.best)] if ev.ranking.best else []
    refuted.sort(key=lambda one: one.variant not in chain)
    if not refuted:
        return ""
    one, claim = refuted[0], refuted[0].claim
    run = ev.selection.in_other_run(tables.COUNTERS) if claim.counter or claim.quantity == "fma_share" else ""
    return f"{one.variant}, {_claim_words(one)}: expected {claim_words(claim)}{run}; measured {verdict_values(one)}"


def claims_by_verdict(ev: Evidence, variant: str) -> tuple[View, ...]:
    """A variant's claims by verdict, those that failed first; none where it makes none."""
    judged = ev.claims.for_variant(variant)
    said = Counter(one.claim.says for one in judged)

    def claim_text(one: JudgedClaim) -> str:
        """What was expected, and how it was tested if more than one test was made."""
        if one.claim.says and said[one.claim.says] == 1:
            return _claim_words(one)
        return f"{_claim_words(one)}: {claim_words(one.claim)}".removeprefix(": ")

    by_verdict = {
        verdict: tuple(claim_text(one) for one in judged if one.verdict == verdict)
        for verdict in ("refuted", "partly", "held", "undecided", "not testable")
    }
    found = ((cell_markup.claim_verdict_cell(verdict), claims) for verdict, claims in by_verdict.items() if claims)
    return tuple(View(verdict=cell, words=claims) for cell, claims in found)


def _claims_table(ev: Evidence, id: str, caption: str, judged: list[JudgedClaim], tested: bool = True) -> HtmlTable:
    """tested: with a column of the test that was made of a claim, which otherwise stands for words that are lacking; where
    they do not name the figure that was needed, it stands before the values."""
    older = ev.selection.from_other_run.get(tables.COUNTERS)
    counter_run = f" Counters are of the older run {older.run_id}." if older else ""

    def row(one: JudgedClaim) -> tuple[str, ...]:
        verdict, values = cell_markup.claim_verdict_cell(one.verdict), verdict_values(one)
        if tested:
            return _compared_with(ev, one), _claim_words(one), claim_words(one.claim), verdict, values
        expected = _claim_words(one) or claim_words(one.claim)
        clock = " (GPU time)" if one.claim.quantity == "gpu_time" else ""
        return _compared_with(ev, one), expected, verdict, f"{_needed(one.claim)}{values}{clock}"

    return HtmlTable(
        id,
        f"{caption} Column 1: the variant, and what a change is measured against. Values are at {ev.at_size(ev.largest)} unless "
        f"they name another size. A change of time above 0 is slower{'' if tested else ', and of op time where GPU time is not named'}. "
        f"Multiples of a bound compare it with the GPU time.{counter_run}",
        words("Variant", "Expected", *["Tested"] * tested, "Verdict", "Values"),
        tuple(map(row, judged)),
        "claims",
    )


def _compared_with(ev: Evidence, judged: JudgedClaim) -> str:
    """The variant that makes a claim, and what a change is over where the test does not say."""
    changes = judged.claim.change and not judged.claim.against
    baseline = ev.plan.variants[judged.variant].header.builds_on if changes else ""
    return f"{judged.variant} over {baseline}" if baseline else judged.variant


def _claim_words(judged: JudgedClaim) -> str:
    """A claim's words; those of a header's `check` behind what its counter counts, which they follow there."""
    claim = judged.claim
    verdict = claim.says.removeprefix(claim.quantity).strip()
    if claim.counter and verdict.startswith(claim.change or "?"):
        return f"{counters.describe_metric(claim.quantity)}: “{verdict}”"
    return f"“{claim.says}”" if claim.says else ""


_PLURAL = {"falls": "fall", "rises": "rise", "stays": "stay"}


def claim_words(claim: Claim) -> str:
    """A claim in words: op time falls by at least 10 %, where C ≥ 2, more than where C = 1."""
    if claim.undecidable:
        return ""
    quantity = QUANTITIES.get(claim.quantity) or counters.describe_metric(claim.quantity)
    several = claim.quantity in counters.NAMES and not quantity.startswith("throughput")
    verb = _PLURAL[claim.change] if several and claim.change else claim.change
    parts = [f"{quantity} {verb}{_change_amount(claim)}" if claim.change else f"{quantity}: {_value(claim)}"]
    if claim.where.words:
        parts.append(f"where {claim.where.words}")
    if claim.more_than:
        parts.append(f"more than where {claim.more_than.words}")
    if claim.against:
        parts.append(f"against {claim.against}")
    return (
        ", ".join(parts).replace(" = ", "\u00a0=\u00a0").replace(" ≥ ", "\u00a0≥\u00a0").replace(" ≤ ", "\u00a0≤\u00a0")
    )


def _needed(claim: Claim) -> str:
    """The figure that a claim's test needs, where its own words do not name it."""
    if not claim.says:
        return ""
    needed = _value(claim) if claim.value else f"{claim.change}{_change_amount(claim)}"
    named, wanted = ({*re.findall(r"\d+(?:\.\d+)?", text)} for text in (claim.says, needed))
    return f"{needed} needed: " if wanted - named else ""


def _change_amount(claim: Claim) -> str:
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


def verdict_values(judged: JudgedClaim) -> str:
    """The figures that a verdict rests on, or why there are none."""
    compared = dict[str, list[str]]()
    for figure in judged.figures:
        others = compared.setdefault(_figure(judged.claim, figure), [])
        if figure.than:
            others.append(f"on {_place(judged.claim, figure.than)} {_change(figure.than)}")
    said = [", ".join(filter(None, [own, " and ".join(others)])) for own, others in compared.items()]
    return "; ".join([*said, *([judged.reason] if judged.reason else [])])


def _figure(claim: Claim, figure: ClaimValue) -> str:
    if claim.value is not None or figure.change is None:
        over = f" {figure.bound}" if figure.bound else ""
        return f"{_place(claim, figure)} {_amount(claim, figure.after)}{over}".strip()
    if claim.quantity in TIMES or figure.before is None:
        return f"{_place(claim, figure)} {_change(figure)}".strip()
    pair = f"{_amount(claim, figure.before)} → {_amount(claim, figure.after)}"
    if figure.claimed is not None:
        moved, claimed = (counters.amount(count, "") for count in (abs(figure.after - figure.before), figure.claimed))
        return f"{_place(claim, figure)} {pair}, by {moved} where {claimed} are claimed"
    moves = figure.before and figure.after != figure.before
    return f"{_place(claim, figure)} {pair}{f' ({_change(figure)})' if moves else ''}".strip()


def _place(claim: Claim, figure: ClaimValue) -> str:
    if claim.quantity in RESOURCES or claim.quantity == "error":
        return ""
    return f"{figure.layer} at {units.count(figure.size)}" if figure.sized else figure.layer


def _change(figure: ClaimValue) -> str:
    """How far a figure moved: −12.1 % [−12.4, −11.9] n = 16, or 2.45× its baseline's."""
    change = figure.change
    assert change is not None
    factor = change.value >= 2 and math.isfinite(change.value)
    value = f"{units.significant(change.value, 3)}×" if factor else f"{_signed_percent(change.value)}\u202f%"
    if change.low == change.high:
        return value
    if change.n < FEWEST:
        return f"{value} ({'one sample' if change.n == 1 else f'{units.number_word(change.n)} samples'})"
    ends = [units.significant(end, 3) if factor else _signed_percent(end) for end in (change.low, change.high)]
    return f"{value} [{ends[0]}, {ends[1]}] {units.sample_size([change])}{'' if figure.paired else '†'}"


def _signed_percent(ratio: float) -> str:
    percent = 100 * (ratio - 1)
    text = f"{percent:+.1f}" if abs(percent) < 99.95 else f"{percent:+.0f}"
    return text.replace("-", "−")
