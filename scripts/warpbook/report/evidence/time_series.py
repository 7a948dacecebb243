"""Times and speedups from the samples of the runs cited."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from warpbook.common import statistics, units
from warpbook.common.statistics import Estimate
from warpbook.kernels import lower_bounds
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.report.evidence.scope import EvidencePart, Scope, cached_method
from warpbook.runs import summaries, tables

Key = tuple[str, str, str, int, str, str]  # job, variant, layer, size, state, kind


@dataclass(frozen=True)
class JobDifference:
    """A variant's op time in another's job over that in its own, less 1."""

    variant: str
    job: str
    layer: str
    size: int
    device: str
    change: float


class JobDrift:
    """Differences of the variants that were timed in several jobs, baselines all of them."""

    def __init__(self, scope: Scope, series: dict[Key, np.ndarray], states: dict[str, str], several_gpus: bool):
        self._scope, self._series, self._states = scope, series, states
        # Jobs of two GPUs differ as those do: A/A tests on each show how far.
        self._several_gpus = several_gpus

    @cached_property
    def differences(self) -> list[JobDifference]:
        """One for each layer and size at which a variant was timed in its own job and in another's."""
        found = []
        for (job, variant, layer, size, state, kind), times in self._series.items():
            known = self._scope.plan.variants.get(variant)
            other = job in self._scope.plan.variants or (self._several_gpus and job.startswith("aa:"))
            if job == variant or known is None or not other or kind != "op":
                continue
            own = self._series.get((variant, variant, layer, size, state, kind))
            if own is not None and state == self._states[known.device]:
                change = float(np.nanmedian(times) / np.nanmedian(own)) - 1
                found.append(JobDifference(variant, job, layer, size, known.device, change))
        return found

    def between_jobs(self, device: str, size: int | None = None, layer: str = "") -> list[float]:
        """How far op times of a device's variants differ between jobs, without sign and without libraries."""
        return [
            abs(one.change)
            for one in self.differences
            if one.device == device
            and size in (None, one.size)
            and layer in ("", one.layer)
            and not self._scope.plan.variants[one.variant].header.peer
        ]

    @cached_method
    def limit(self, variant: str, size: int, layer: str) -> float:
        """The drift that a comparison of a variant in a job of its own has to allow for: the largest seen of any on
        that layer at that size, or of that variant there or, where it was not seen there, anywhere."""
        device = self._scope.plan.variants[variant].device
        own = [one for one in self.differences if one.variant == variant]
        there = [one for one in own if (one.size, one.layer) == (size, layer)] or own
        return max([*self.between_jobs(device, size, layer), *(abs(one.change) for one in there)], default=0.0)


STATE = {"gpu": "cold", "cpu": "hot"}
"""The state that figures are quoted in: a GPU call finds its data in memory, not in the cache; a CPU call repeats."""

Series = np.ndarray
Parts = tuple[tuple[str, str], ...]
"""Layers, each with the name of the variant that computes it."""


WIDEST = 1.5  # the most that an interval's upper end may be of its lower one where a ratio is settled
FEWEST = 3  # the fewest samples that a settled ratio rests on
FAR = 3.0  # a ratio that fewer samples tell from 1 too, though not to its digits
ABOUT = "≈"
INCONCLUSIVE = "inconclusive"
NO_RATIO = "no ratio"


@dataclass(frozen=True)
class Speedup:
    """Time of one variant over another's. Where they were measured separately, the interval holds the drift."""

    ratio: Estimate
    paired: bool
    verdict: str

    @property
    def doubt(self) -> str:
        """Why no number is quoted: too few samples, or too wide an interval; empty where one is."""
        if self.ratio.n < FEWEST:
            return "one sample" if self.ratio.n == 1 else f"{units.number_word(self.ratio.n)} samples"
        if self.ratio.high <= WIDEST * self.ratio.low:  # of no interval, neither compares
            return ""
        return f"interval {units.ratio_interval(self.ratio)}"

    @property
    def rough(self) -> bool:
        """Whether it rests on fewer samples than a settled ratio and yet is FAR from 1, as is the interval if there is one."""
        return _is_rough(self.ratio)

    @property
    def short_substitute(self) -> str:
        """What stands in the place of a number that is not quoted: about how much a `rough` one is, ≈150×. Where the verdict
        knows the direction, how far the speedup reaches, 16× to 30×, or that few samples give no ratio; else inconclusive.
        Empty where one is quoted."""
        if not self.doubt:
            return ""
        if self.rough:
            return f"{ABOUT}{units.significant(float(f'{self.ratio.value:.2g}'), 2)}×"
        if self.verdict not in ("faster", "slower"):
            return INCONCLUSIVE
        return NO_RATIO if self.ratio.n < FEWEST else units.ratio_ends(self.ratio)

    @property
    def substitute(self) -> str:
        """For a sentence: 16× to 30×† n 6, ≈150×† (one sample), no ratio from two samples, inconclusive (interval [0.72,
        1.41])."""
        short = self.short_substitute
        if short == INCONCLUSIVE:
            return f"{short} ({self.doubt})"
        if short == NO_RATIO:
            return f"{short} from {self.doubt}"
        if self.rough:
            return f"{short}{self.dagger} ({self.doubt})"
        return f"{short}{self.dagger} {self.sample_size}" if short else ""

    @property
    def quotable(self) -> bool:
        """Whether there is a ratio to quote, or both ends of one."""
        return self.short_substitute not in (INCONCLUSIVE, NO_RATIO)

    @property
    def dagger(self) -> str:
        """The mark of two that were measured separately."""
        return "" if self.paired else "†"

    @property
    def compared(self) -> str:
        """Its verdict before the name of what it is over: faster than, same as, ambiguous against."""
        return f"{self.word} {({'faster': 'than', 'slower': 'than', 'same': 'as'}).get(self.verdict, 'against')}"

    @property
    def word(self) -> str:
        """Its verdict; of too few samples to be ambiguous, that it is inconclusive."""
        return INCONCLUSIVE if self.verdict == "ambiguous" and self.ratio.n < FEWEST else self.verdict

    @property
    def sample_size(self) -> str:
        return units.sample_size([self.ratio])

    @property
    def short_text(self) -> str:
        """Without an interval: 21.2×†, or what stands in its place."""
        return f"{self.short_substitute or units.ratio(self.ratio.value)}{self.dagger if self.quotable else ''}"

    @property
    def plain_text(self) -> str:
        """It in plain text: 21.2×† [19.8, 23.0] n 4, or what stands in its place."""
        return self.substitute or f"{units.ratio_and_interval(self.ratio, self.dagger)} {self.sample_size}"


def _is_rough(ratio: Estimate) -> bool:
    return ratio.n < FEWEST and max(ratio.value, 1 / ratio.value) >= FAR and not ratio.low <= 1 <= ratio.high


class Times(EvidencePart):
    """Medians, sums, ratios and the hardware's bounds, of the study's layers at its sizes."""

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Those of variants that the harness calls; a file of the course calls its kernels itself: see `CourseTimes`."""
        samples = self._ev.selection.at_sizes(tables.SAMPLES)
        files = [name for name, one in self._ev.plan.variants.items() if one.course]
        return samples[~samples.variant.isin(files)]

    @cached_property
    def _by_series(self) -> dict[Key, Series]:
        """Times by (job, variant, layer, size, state, kind), NaN where no figure, so that pairs stay in step."""
        return summaries.group_by_series(self.samples, ["job", "variant", "layer", "size", "state", "kind"])

    @cached_property
    def drift(self) -> JobDrift:
        """How far baselines differ between jobs."""
        return JobDrift(self._ev, self._by_series, STATE, several_gpus=self.gpus > 1)

    @cached_property
    def gpus(self) -> int:
        """How many GPUs the GPU's times were taken on, all of one model; 0 or 1 where nobody noted which."""
        samples = self.samples
        own = samples[(samples.device == "gpu") & (samples.job == samples.variant)]
        return int(own.measured_on.nunique())

    @cached_property
    def _energy_j(self) -> dict[tuple[str, str, int], float]:
        held = self.samples[self.samples.energy_j.notna() & (self.samples.job == self.samples.variant)]
        places = zip(held.variant, held.layer, held["size"], strict=True)
        return dict(zip(places, held.energy_j, strict=True))

    def energy_of_sum(self, parts: dict[str, Variant], size: int) -> float | None:
        """Joules that calls take together, one of each layer's variant; None where one of them is not known."""
        known = [self._energy_j.get((one.name, layer, size)) for layer, one in parts.items()]
        return None if None in known else sum(filter(None, known))

    @cached_property
    def refused_samples(self) -> int:
        """Samples that were sound in the run and are no figure here: kernel times of more than twice the call's own."""
        return summaries.refused_count(self.samples)

    def _quoted_state(self, variant: str) -> str:
        """The state that a variant's figures are quoted in: cold or hot."""
        return STATE[self._ev.plan.variants[variant].device]

    def _series(self, variant: str, layer: str, size: int, kind: str, state: str, job: str = "") -> Series:
        return self._by_series.get((job or variant, variant, layer, size, state, kind), np.empty(0))

    def _sound_times(self, variant: str, layer: str, size: int, kind: str) -> Series:
        """Times in the state that figures are quoted in, throttled ones left out."""
        return summaries.drop_nan(self._series(variant, layer, size, kind, self._quoted_state(variant)))

    @cached_method
    def op(self, variant: str, layer: str, size: int, kind: str = "op", state: str | None = None) -> Estimate | None:
        """Median time in ms of one layer, with its interval; None where there is no sound figure."""
        return summaries.series_median(self._series(variant, layer, size, kind, state or self._quoted_state(variant)))

    def total(self, variant: str, size: int, kind: str = "op") -> Estimate | None:
        """The time of all layers by one variant, as `sum_over` has it."""
        return self._sum(self._everywhere(variant), size, kind)

    def sum_over(self, parts: dict[str, Variant], size: int, kind: str = "op") -> Estimate | None:
        """Sum of the medians in ms of the layers in `parts`, each by its own variant, with a bootstrap interval; None where
        one has no sound figure."""
        return self._sum(_by_name(parts), size, kind)

    @cached_method
    def _sum(self, parts: Parts, size: int, kind: str) -> Estimate | None:
        series = [self._sound_times(name, layer, size, kind) for layer, name in parts]
        if not all(map(len, series)):
            return None
        return statistics.median(series[0]) if len(series) == 1 else statistics.sum_of_medians(series)

    def _everywhere(self, variant: str) -> Parts:
        return tuple((layer, variant) for layer in self._ev.layer_names)

    def _pairs(self, variant: str, over: str, layer: str, size: int, kind: str) -> tuple[Series, Series] | None:
        """(`over`'s times, variant's times) of the same rounds of one's job; None where there are none."""
        state = self._quoted_state(variant)
        for job in (variant, over):
            mine, theirs = (self._series(name, layer, size, kind, state, job=job) for name in (variant, over))
            sound = ~np.isnan(mine) & ~np.isnan(theirs) if len(mine) == len(theirs) else np.empty(0)
            if sound.any():
                return theirs[sound], mine[sound]
        return None

    def _baseline(self, variant: str) -> str:
        return self._ev.plan.variants[variant].header.builds_on

    def baseline_time(self, variant: str, layer: str, size: int) -> Estimate | None:
        """Op time of what a variant builds on, from the samples interleaved with it; its own where there are none."""
        over = self._baseline(variant)
        pairs = self._pairs(variant, over, layer, size, "op")
        return summaries.series_median(pairs[0]) if pairs else self.op(over, layer, size)

    def speedup(self, variant: str, layer: str, size: int, over: str | None = None, kind: str = "op") -> Speedup | None:
        """How many times faster a variant is on one layer than `over` (by default what it builds on): paired where both
        were interleaved, else the ratio of two series of their own."""
        return self._ratio(((layer, variant),), over or self._baseline(variant), size, kind)

    def total_speedup(self, variant: str, size: int, over: str | None = None, kind: str = "op") -> Speedup | None:
        """The same for the sum over all layers."""
        return self._ratio(self._everywhere(variant), over or self._baseline(variant), size, kind)

    def speedup_of_sum(self, parts: dict[str, Variant], over: str, size: int) -> Speedup | None:
        """The same of the layers in `parts`, each by its own variant, over one other."""
        return self._ratio(_by_name(parts), over, size, "op")

    @cached_method
    def _ratio(self, parts: Parts, over: str, size: int, kind: str) -> Speedup | None:
        if not over:
            return None
        pairs = [pair for layer, name in parts if (pair := self._pairs(name, over, layer, size, kind))]
        if len(pairs) < len(parts):
            return self._separate_ratio(parts, over, size, kind)
        base, mine = ([pair[side] for pair in pairs] for side in (0, 1))
        several = len(parts) > 1
        ratio = statistics.ratio_of_sums(base, mine, paired=True) if several else statistics.paired_ratio(*pairs[0])
        second = self._ratio(parts, over, size, "gpu") if kind == "op" else None
        return Speedup(ratio, True, self._verdict(ratio, second))

    @cached_method
    def _separate_ratio(self, parts: Parts, over: str, size: int, kind: str) -> Speedup | None:
        """By each one's own job: nothing is concluded that the drift between jobs could make."""
        others = tuple((layer, over) for layer, _ in parts)
        base, mine = ([self._sound_times(name, layer, size, kind) for layer, name in side] for side in (others, parts))
        if not all(map(len, [*base, *mine])):
            return None
        if len(parts) > 1:
            ratio = statistics.ratio_of_sums(base, mine, paired=False)
        else:
            ratio = statistics.unpaired_ratio(base[0], mine[0])
        within = ratio.widen(max(self._drift_of_sum(side, size, kind) for side in (others, parts)))
        second = self._separate_ratio(parts, over, size, "gpu") if kind == "op" else None
        return Speedup(within, False, self._verdict(within, second))

    def separate_total(self, variant: str, size: int, kind: str = "op") -> Speedup | None:
        """Its speedup over its baseline by each one's own job where that tells something else than the paired one."""
        paired = self.total_speedup(variant, size, kind=kind)
        if not paired or not paired.paired:
            return None
        apart = self._separate_ratio(self._everywhere(variant), self._baseline(variant), size, kind)
        return apart if apart and not statistics.agree(paired.ratio, apart.ratio) else None

    def _verdict(self, ratio: Estimate, second: Speedup | None) -> str:
        """second: the same speedup by the GPU's clock, where there is one."""
        margin = self._ev.config.measuring.equivalence_margin
        told = statistics.agreed_verdict(ratio, second.ratio if second else None, margin)
        both = [ratio, *([second.ratio] if second else [])]
        if told == "ambiguous" and all(map(_is_rough, both)) and len({one.value > 1 for one in both}) == 1:
            return "faster" if ratio.value > 1 else "slower"
        return told

    def _drift_of_sum(self, parts: Parts, size: int, kind: str) -> float:
        """The drift of a time of several layers: each layer's counts by its share of that time."""
        times = {part: time.value for part in parts if (time := self.op(part[1], part[0], size, kind))}
        drifts = (self.drift.limit(name, size, layer) * ms for (layer, name), ms in times.items())
        return sum(drifts) / sum(times.values())

    def fp32_bound_ms(self, layer: Case, size: int) -> float | None:
        """The least time that the GPU of the GPU's run allows the direct method in FP32; None where there is none."""
        return lower_bounds.fp32_bound_ms(layer.at(size), self._ev.gpu) if self._ev.gpu else None

    def method_bound_ms(self, variant: str, layer: Case, size: int) -> float | None:
        """The least time that the GPU allows a variant's own method and precision; None where there is none. A
        library's method is taken to be direct unless it is faster than that allows."""
        gpu, one = self._ev.gpu, self._ev.plan.variants[variant]
        header, case = one.header, layer.at(size).with_problem(one.problem)
        if gpu is None:
            return None
        known = lower_bounds.method_bound_ms(case, header, gpu)
        if not header.peer or header.method == "direct":
            return known
        direct = lower_bounds.method_bound_ms(case, header.model_copy(update={"method": "direct"}), gpu)
        time = self.op(variant, layer.name, size)
        return direct if time and time.value >= direct else known

    def total_method_bound_ms(self, variant: str, size: int) -> float | None:
        """The same of all layers together."""
        bounds = [self.method_bound_ms(variant, layer, size) for layer in self._ev.layers]
        return None if None in bounds else sum(filter(None, bounds))

    def memory_bound_ms(self, layer: Case, size: int) -> float | None:
        """The time that a layer's bytes take at that GPU's rate of a copy; None where there is none."""
        return lower_bounds.memory_bound_ms(layer.at(size), self._ev.gpu) if self._ev.gpu else None

    def limiting_resource(self, layer: Case, size: int) -> str:
        """Which of the two makes the FP32 bound: `memory bandwidth` or `FP32 arithmetic`."""
        assert self._ev.gpu is not None
        return lower_bounds.bounding_resource(layer.at(size), self._ev.gpu)


def _by_name(parts: dict[str, Variant]) -> Parts:
    return tuple((layer, one.name) for layer, one in parts.items())
