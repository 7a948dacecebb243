"""What became of the variants' claims: each held against the figures, with those figures."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from warpbook.common.statistics import Estimate
from warpbook.kernels.claims import RATIOS, RESOURCES, TIMES, Claim
from warpbook.kernels.constraints import Limits
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.profiling import counters
from warpbook.report.evidence.scope import EvidencePart, cached_method

VERDICTS = ("held", "partly", "refuted", "undecided", "not testable")
HELD, SHORT, REFUTED, OPEN = "held", "short", "refuted", "open"
"""What one figure says of a claim; short: the direction is right, the amount is not; open: its interval holds both."""

COUNTED = 0.02  # what a count may miss its amount by, and what a counter moves by without having moved


@dataclass(frozen=True)
class ClaimValue:
    """One figure that a claim rests on. size: 0 where it does not depend on one; amount: before and after, or the
    variant's own after None; confirmed: whether the GPU's clock has the host's time move the same way; sized: whether its
    size is printed; than: the figure that it is compared with; claimed: the count that it was to move by; bound: what a time
    is a multiple of."""

    layer: str
    size: int
    before: float | None
    after: float
    change: Estimate | None = None
    paired: bool = True
    confirmed: bool = True
    says: str = OPEN
    than: "ClaimValue | None" = None
    claimed: int | None = None
    bound: str = ""
    sized: bool = False


@dataclass(frozen=True)
class JudgedClaim:
    """A claim, its verdict, why where that is not plain, and the figures."""

    variant: str
    claim: Claim
    verdict: str
    reason: str
    figures: tuple[ClaimValue, ...]


class UndecidedClaim(Exception):
    """Why a claim has no figure."""


class ClaimVerdicts(EvidencePart):
    """The claims of the variants that a study compares."""

    @cached_property
    def judged(self) -> list[JudgedClaim]:
        """Every claim of the study's variants, in their order."""
        wanted = [*self._ev.compared_variants("gpu"), *self._ev.compared_variants("cpu")]
        return [self.judge(variant, claim) for variant in wanted for claim in variant.header.claims]

    def for_variant(self, variant: str) -> list[JudgedClaim]:
        return [one for one in self.judged if one.variant == variant]

    @property
    def refuted(self) -> list[JudgedClaim]:
        return [one for one in self.judged if one.verdict == "refuted"]

    def judge(self, variant: Variant, claim: Claim) -> JudgedClaim:
        """The verdict on one claim."""
        if claim.undecidable:
            return JudgedClaim(variant.name, claim, "not testable", claim.undecidable, ())
        try:
            figures, missing = self._figures(variant, claim)
        except UndecidedClaim as why:
            return JudgedClaim(variant.name, claim, "not testable", str(why), ())
        verdict, reason = _combine_verdicts(figures)
        if missing and verdict == "held":
            verdict = "partly"
        return JudgedClaim(variant.name, claim, verdict, "; ".join([*([reason] if reason else []), *missing]), figures)

    def _figures(self, variant: Variant, claim: Claim) -> tuple[tuple[ClaimValue, ...], list[str]]:
        """The figures that a claim rests on, and what it lacks beside them. Raises Undecided where there is none."""
        baseline = claim.against or variant.header.builds_on
        if claim.change and not baseline:
            raise UndecidedClaim("the variant is compared with none")
        read = self._reader(claim.quantity)
        figures: list[ClaimValue] = []
        missing: list[str] = []
        places = list(self._places(claim, claim.where))
        for layer, size in [place for place in places if not variant.unsupported(place[0].at(place[1]))] or places:
            try:
                figure = self._judge_value(read(claim.quantity, variant, baseline, layer, size), claim, layer, size)
                named = claim.more_than or claim.where.model_fields_set & self._sized(layer)
                figures.append(replace(figure, sized=bool(named) and claim.quantity in TIMES))
            except UndecidedClaim as why:
                missing.append(str(why))
        if not figures:
            raise UndecidedClaim(missing[0])
        if claim.more_than:
            figures = self._compare_places(variant, baseline, claim, claim.more_than, figures)
        return tuple(figures), list(dict.fromkeys(missing))

    def _reader(self, quantity: str) -> Callable[[str, Variant, str, Case, int], ClaimValue]:
        """What reads a quantity of a variant and of what it is compared with, at a place."""
        readers = ((TIMES, self._time), (RESOURCES, self._resource), (RATIOS, self._ratio), (("error",), self._error))
        return next((read for known, read in readers if quantity in known), self._counter)

    def _places(self, claim: Claim, where: Limits) -> list[tuple[Case, int]]:
        """The layers and sizes that a claim is about. Raises Undecided where the study has none."""
        by_layer = claim.quantity not in {*RESOURCES, "error"}
        layers = self._ev.layers if by_layer else self._ev.layers[:1]
        places = [
            (layer, size)
            for layer in layers
            for size in (self._sizes(layer, where) if claim.quantity in TIMES else [self._ev.largest])
            if not where.violation(layer.at(size))
        ]
        if not places:
            raise UndecidedClaim(f"the study has no {self._ev.case_word} or size with {where.words}")
        return places

    def _sizes(self, layer: Case, where: Limits) -> list[int]:
        """The study's sizes where a condition names what they change, else the largest."""
        return self._ev.sizes if where.model_fields_set & self._sized(layer) else [self._ev.largest]

    @cached_method
    def _sized(self, layer: Case) -> set[str]:
        """The extents of a layer that its size changes, as the number of images does."""
        first, last = (layer.at(size).extents for size in (min(self._ev.sizes), self._ev.largest))
        return {name for name, value in last.items() if value != first[name]} | {layer.problem.facts.size or ""}

    def _compare_places(
        self,
        variant: Variant,
        baseline: str,
        claim: Claim,
        where: Limits,
        figures: list[ClaimValue],
    ) -> list[ClaimValue]:
        """Compare each value with those of the places for which less is claimed, at its own size or layer."""
        compared = []
        for figure in figures:
            for layer in self._ev.layers:
                sized, fields = self._sized(layer), where.model_fields_set
                elsewhere = layer.name != figure.layer if fields - sized else layer.name == figure.layer
                for size in self._ev.sizes if fields & sized else [figure.size]:
                    if elsewhere and not where.violation(layer.at(size)):
                        other = self._reader(claim.quantity)(claim.quantity, variant, baseline, layer, size)
                        says = _compare_values(claim.change, figure, other)
                        compared.append(replace(figure, than=replace(other, sized=figure.sized), says=says))
        if not compared:
            raise UndecidedClaim(f"the study has nothing with {where.words} to compare with")
        return compared

    def _judge_value(self, figure: ClaimValue, claim: Claim, layer: Case, size: int) -> ClaimValue:
        figure = replace(figure, layer=figure.layer or layer.name, size=figure.size or size)
        if claim.value is not None:
            low, high = claim.value.at_least, claim.value.at_most
            held = (low is None or figure.after >= low) and (high is None or figure.after <= high)
            return replace(figure, says=HELD if held else REFUTED)
        if claim.by.count is not None and figure.before is not None:
            amount = layer.at(figure.size).value(claim.by.count)
            moved = (figure.after - figure.before) * (-1 if claim.change == "falls" else 1)
            met = abs(moved - amount) <= COUNTED * amount
            return replace(figure, says=HELD if met else SHORT if moved > 0 else REFUTED, claimed=amount)
        if figure.change is None:
            raise UndecidedClaim("the baseline has no such value")
        says = verdict_reason(claim, figure.change, self._still(claim.quantity))
        if not figure.confirmed and (claim.change, says) != ("stays", HELD):
            says = OPEN
        return replace(figure, says=says)

    def _still(self, quantity: str) -> float:
        """What a quantity may change by without having moved."""
        if quantity in TIMES:
            return self._ev.config.measuring.equivalence_margin
        return 1e-6 if quantity in RESOURCES else COUNTED

    def _time(self, quantity: str, variant: Variant, over: str, layer: Case, size: int) -> ClaimValue:
        kind = "op" if quantity == "op_time" else "gpu"
        speedup = self._ev.times.speedup(variant.name, layer.name, size, over=over, kind=kind)
        after = self._ev.times.op(variant.name, layer.name, size, kind)
        if speedup is None or after is None:
            lacking = [one for one in (variant.name, over) if self._ev.times.op(one, layer.name, size, kind) is None]
            raise UndecidedClaim(self._no_value_reason(*(lacking or (variant.name, over))))
        ratio = speedup.ratio
        change = Estimate(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.n)
        by_gpu = self._ev.times.speedup(variant.name, layer.name, size, over=over, kind="gpu") if kind == "op" else None
        confirmed = by_gpu is None or _moves_alike(ratio, by_gpu.ratio, self._still(quantity))
        return ClaimValue(layer.name, size, after.value * ratio.value, after.value, change, speedup.paired, confirmed)

    def _no_value_reason(self, *names: str) -> str:
        """Why two variants, or one, have no times to compare."""
        known = self._ev.problems.table
        for name in names:
            reasons = known[known.variant == name].reason
            if len(reasons):
                return f"{name} has no such value: {reasons.iloc[0]}"
        return f"{' or '.join(dict.fromkeys(names))} has no such value in the cited runs"

    def _resource(self, quantity: str, variant: Variant, over: str, *_: Any) -> ClaimValue:
        before, after = (self._main_kernel_resource(quantity, name) for name in (over, variant.name))
        return ClaimValue("", 0, before, after, _exact(before, after))

    def _main_kernel_resource(self, quantity: str, variant: str) -> float:
        _, rows = self._ev.profiles.main_kernel(variant)
        if rows.empty:
            raise UndecidedClaim(f"{variant} was not built for {self._ev.arch}")
        return float(rows[quantity].iloc[0])

    def _ratio(self, quantity: str, variant: Variant, _: str, layer: Case, size: int) -> ClaimValue:
        if quantity == "fma_share":
            call = self._counted_call(variant.name, layer)
            share = call.instruction_share(counters.FFMA)
            if share is None:
                raise UndecidedClaim("the counters that it takes gave no reading")
            return ClaimValue(layer.name, call.images, None, share / 100)
        of_memory = quantity == "times_memory_bound"
        bound_ms = (self._ev.times.memory_bound_ms if of_memory else self._ev.times.fp32_bound_ms)(layer, size)
        time = self._ev.times.op(variant.name, layer.name, size, "gpu")
        if time is None or bound_ms is None:
            raise UndecidedClaim(self._no_value_reason(variant.name))
        if quantity == "fp32_peak_share":
            assert self._ev.gpu is not None  # whence the bound is
            peak = self._ev.gpu["peak_gflop_per_s"]["fp32"]
            return ClaimValue(layer.name, size, None, layer.at(size).flops / time.value / 1e6 / peak)
        of_what = self._ev.times.limiting_resource(layer, size)
        bound = "the time of a copy of its bytes" if of_memory else f"the bound of {of_what}"
        return ClaimValue(layer.name, size, None, time.value / bound_ms, bound=bound)

    def _error(self, _quantity: str, variant: Variant, over: str, *_: Any) -> ClaimValue:
        tests = self._ev.checks.for_variant(variant.name)
        if tests is None or not tests.tests:
            raise UndecidedClaim(self._no_value_reason(variant.name))
        before = self._ev.checks.for_variant(over) if over else None
        return ClaimValue("", 0, before.rel_l2_err if before else None, tests.rel_l2_err)

    def _counted_call(self, variant: str, layer: Case) -> counters.CountedCall:
        call = self._ev.counters.calls.get((variant, layer.name))
        if call is None:
            raise UndecidedClaim(self._why_not_counted(variant))
        return call

    def _why_not_counted(self, variant: str) -> str:
        if reason := self._ev.counters.stale(variant):
            return reason
        if self._ev.counters.table.empty:
            return "hardware counters were not read in this run"
        failed = self._ev.counters.failed_rows((variant,))
        if len(failed):
            return f"it was not read: {failed.reason.iloc[0]}"
        return f"no counters of {variant} were read on this network"

    def _counter(self, metric: str, variant: Variant, over: str, layer: Case, _: int) -> ClaimValue:
        after = self._counted_call(variant.name, layer)
        before = self._counted_call(over, layer) if over and over in self._ev.plan.variants else None
        values = [call.value(metric) if call else None for call in (before, after)]
        if values[1] is None or (before and values[0] is None):
            raise UndecidedClaim(f"the run did not read {counters.describe_metric(metric)}")
        scale = 100.0 if ".pct" in metric else 1.0
        own = values[1] / scale
        was = None if values[0] is None else values[0] / scale
        change = None if was is None else _exact(was, own)
        return ClaimValue(layer.name, after.images, was, own, change)


def _moves_alike(by_host: Estimate, by_gpu: Estimate, still: float) -> bool:
    """Whether the GPU's clock has a ratio on the side of 1 where the host's has it; of one that has not moved, always."""
    if by_host.low > 1 + still:
        return by_gpu.low > 1 + still
    return by_gpu.high < 1 - still if by_host.high < 1 - still else True


def _exact(before: float, after: float) -> Estimate:
    """A change without an interval to allow for: counts and sizes are what they are."""
    ratio = after / before if before else 1.0 if after == before else math.inf
    return Estimate(ratio, ratio, ratio, 1)


def verdict_reason(claim: Claim, change: Estimate, still: float) -> str:
    """What `after` over `before` says of a claim: HELD, SHORT, REFUTED or OPEN. Below `still` is no change."""
    least, most = claim.by.at_least, claim.by.at_most
    if claim.change == "stays":
        return _locate_interval(change, 1 - (most or 0.0), 1 + (most or 0.0), 0.0, math.inf)
    if claim.change == "falls":
        return _locate_interval(change, 1 - most if most is not None else 0.0, 1 - max(least, still), 0.0, 1 - still)
    top = 1 + most if most is not None else math.inf
    return _locate_interval(change, 1 + max(least, still), top, 1 + still, math.inf)


def _locate_interval(change: Estimate, low: float, high: float, least: float, most: float) -> str:
    """Where a change's interval lies: within the claim, within its direction alone, outside, or on an edge. Without an
    amount there is one range; `stays` has no direction."""
    if not math.isfinite(change.low) and not math.isinf(change.value):
        return OPEN
    if low <= change.low and change.high <= high:
        return HELD
    if least == 0.0 and math.isinf(most):  # stays
        return REFUTED if change.low > high or change.high < low else OPEN
    if least <= change.low and change.high <= most:
        return SHORT if change.low > high or change.high < low else OPEN
    return REFUTED if change.low > most or change.high < least else OPEN


def _compare_values(direction: str, figure: ClaimValue, other: ClaimValue) -> str:
    """Whether one place's figure falls, or rises, and more than another's."""
    mine, theirs = figure.change, other.change
    if mine is None or theirs is None or not (math.isfinite(mine.low) and math.isfinite(theirs.low)):
        return OPEN
    if direction == "rises":
        mine, theirs = (Estimate(1 / one.value, 1 / one.high, 1 / one.low, one.n) for one in (mine, theirs))
    if mine.low > 1:
        return REFUTED
    if mine.high < theirs.low:
        return HELD if mine.high < 1 else OPEN
    return REFUTED if mine.low > theirs.high else OPEN


def _combine_verdicts(figures: tuple[ClaimValue, ...]) -> tuple[str, str]:
    """(the verdict of all figures together, why where they do not agree)."""
    said = {figure.says for figure in figures}
    if said == {HELD}:
        return "held", ""
    if said == {OPEN}:
        return "undecided", _why_open(figures)
    if said <= {REFUTED, OPEN}:
        return "refuted", ""
    short = "the direction is right, the amount is not"
    if REFUTED in said:
        return "partly", f"{'held in some places' if HELD in said else f'in some places {short}'}, refuted in others"
    if SHORT in said:
        return "partly", short
    return "partly", f"in some places {_why_open(figures)}"


def _why_open(figures: tuple[ClaimValue, ...]) -> str:
    """Why figures of a claim tell neither outcome."""
    left = [figure for figure in figures if figure.says == OPEN]
    if any(figure.change is not None and not math.isfinite(figure.change.low) for figure in left):
        return "a single sample has no interval"
    if not all(figure.confirmed for figure in left):
        return "the GPU's clock does not confirm the host's"
    apart = any(not figure.paired for figure in left)
    return "the interval, widened by the drift between jobs, holds both" if apart else "the interval holds both"
