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
from warpbook.report.evidence.cache import cached_method
from warpbook.report.evidence.drift import JobDrift, Key
from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import summaries, tables

STATE = {"gpu": "cold", "cpu": "hot"}
"""The state that figures are quoted in: a GPU call finds its data in memory, not in the cache; a CPU call repeats."""

Series = np.ndarray


WIDEST = 1.5  # the most that an interval's upper end may be of its lower one where a ratio is settled
FEWEST = 3  # the fewest samples that a settled ratio rests on
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
    def short_substitute(self) -> str:
        """What stands in the place of a number that is not quoted: where the verdict knows the direction, how far the
        speedup reaches, 16× to 30×, or that few samples give no ratio; else inconclusive. Empty where one is quoted."""
        if not self.doubt:
            return ""
        if self.verdict not in ("faster", "slower"):
            return INCONCLUSIVE
        return NO_RATIO if self.ratio.n < FEWEST else units.ratio_ends(self.ratio)

    @property
    def substitute(self) -> str:
        """For a sentence: 16× to 30×† n 6, no ratio from two samples, inconclusive (interval [0.72, 1.41])."""
        short = self.short_substitute
        if short == INCONCLUSIVE:
            return f"{short} ({self.doubt})"
        if short == NO_RATIO:
            return f"{short} from {self.doubt}"
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

    def _sound_layers(self, variant: str, size: int, kind: str) -> list[Series] | None:
        """A series for each layer; None where one has no sound figure."""
        series = [self._sound_times(variant, layer, size, kind) for layer in self._ev.layer_names]
        return series if all(map(len, series)) else None

    @cached_method
    def op(self, variant: str, layer: str, size: int, kind: str = "op", state: str | None = None) -> Estimate | None:
        """Median time in ms of one layer, with its interval; None where there is no sound figure."""
        return summaries.series_median(self._series(variant, layer, size, kind, state or self._quoted_state(variant)))

    @cached_method
    def total(self, variant: str, size: int, kind: str = "op") -> Estimate | None:
        """Sum over the layers of their medians in ms, with a bootstrap interval; None where a layer has no figure."""
        if len(self._ev.layers) == 1:
            return self.op(variant, self._ev.layers[0].name, size, kind)
        series = self._sound_layers(variant, size, kind)
        return statistics.sum_of_medians(series) if series else None

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

    @cached_method
    def speedup(self, variant: str, layer: str, size: int, over: str | None = None, kind: str = "op") -> Speedup | None:
        """How many times faster a variant is on one layer than `over` (by default what it builds on): paired where both
        were interleaved, else the ratio of two series of their own."""
        over = over or self._baseline(variant)
        if not over:
            return None
        second = self.speedup(variant, layer, size, over, "gpu") if kind == "op" else None
        pairs = self._pairs(variant, over, layer, size, kind)
        if pairs:
            return self._paired_speedup(statistics.paired_ratio(*pairs), second)
        base, mine = (self._sound_times(name, layer, size, kind) for name in (over, variant))
        if not len(base) or not len(mine):
            return None
        return self._separate_speedup(statistics.unpaired_ratio(base, mine), variant, over, size, [layer], second)

    @cached_method
    def total_speedup(self, variant: str, size: int, over: str | None = None, kind: str = "op") -> Speedup | None:
        """The same for the sum over all layers."""
        over = over or self._baseline(variant)
        if not over:
            return None
        layers = self._ev.layer_names
        if len(layers) == 1:
            return self.speedup(variant, layers[0], size, over, kind)
        second = self.total_speedup(variant, size, over, "gpu") if kind == "op" else None
        pairs = [pair for layer in layers if (pair := self._pairs(variant, over, layer, size, kind))]
        if len(pairs) == len(layers):
            base, mine = ([pair[side] for pair in pairs] for side in (0, 1))
            return self._paired_speedup(statistics.ratio_of_sums(base, mine, paired=True), second)
        base_series, series = (self._sound_layers(name, size, kind) for name in (over, variant))
        if not base_series or not series:
            return None
        ratio = statistics.ratio_of_sums(base_series, series, paired=False)
        return self._separate_speedup(ratio, variant, over, size, layers, second)

    def sum_over(self, parts: dict[str, Variant], size: int) -> Estimate | None:
        """The time of the study's layers in `parts`, each by its own variant; None where one has no sound figure."""
        variants = {one.name for one in parts.values()}
        if len(variants) == 1 and [*parts] == self._ev.layer_names:
            return self.total(variants.pop(), size)
        if len(parts) == 1:
            ((layer, one),) = parts.items()
            return self.op(one.name, layer, size)
        series = [self._sound_times(one.name, layer, size, "op") for layer, one in parts.items()]
        return statistics.sum_of_medians(series) if all(map(len, series)) else None

    def speedup_of_sum(self, parts: dict[str, Variant], over: str, size: int, kind: str = "op") -> Speedup | None:
        """How many times faster the layers in `parts` are, each by its own variant, than by one other."""
        variants, layers = {one.name for one in parts.values()}, [*parts]
        if len(variants) == 1 and layers == self._ev.layer_names:
            return self.total_speedup(variants.pop(), size, over, kind)
        if len(parts) == 1:
            return self.speedup(variants.pop(), layers[0], size, over, kind)
        second = self.speedup_of_sum(parts, over, size, "gpu") if kind == "op" else None
        base = [self._sound_times(over, layer, size, kind) for layer in layers]
        series = [self._sound_times(one.name, layer, size, kind) for layer, one in parts.items()]
        if not all(map(len, [*base, *series])):
            return None
        ratio = statistics.ratio_of_sums(base, series, paired=False)
        drift = max(self.drift.limit(one.name, size, layer) for layer, one in parts.items())
        within = ratio.widen(max(drift, self._drift_of_sum(over, size, layers)))
        return Speedup(within, False, self._verdict(within, second))

    def separate_total(self, variant: str, size: int, kind: str = "op") -> Speedup | None:
        """Its speedup over its baseline by each one's own job where that tells something else than the paired one."""
        over, paired = self._baseline(variant), self.total_speedup(variant, size, kind=kind)
        second = self.separate_total(variant, size, "gpu") if kind == "op" else None
        base, mine = (self._sound_layers(name, size, kind) for name in (over, variant)) if over else (None, None)
        if not paired or not paired.paired or not base or not mine:
            return None
        ratio = statistics.ratio_of_sums(base, mine, paired=False)
        layers = self._ev.layer_names
        return (
            None
            if statistics.agree(paired.ratio, ratio)
            else self._separate_speedup(ratio, variant, over, size, layers, second)
        )

    def _verdict(self, ratio: Estimate, second: Speedup | None) -> str:
        """second: the same speedup by the GPU's clock, where there is one."""
        margin = self._ev.config.measuring.equivalence_margin
        return statistics.agreed_verdict(ratio, second.ratio if second else None, margin)

    def _paired_speedup(self, ratio: Estimate, second: Speedup | None) -> Speedup:
        return Speedup(ratio, True, self._verdict(ratio, second))

    def _separate_speedup(
        self, ratio: Estimate, variant: str, over: str, size: int, layers: list[str], second: Speedup | None
    ) -> Speedup:
        """A speedup of two that were timed in jobs of their own: nothing is concluded that their drift could make."""
        within = ratio.widen(max(self._drift_of_sum(name, size, layers) for name in (variant, over)))
        return Speedup(within, False, self._verdict(within, second))

    def _drift_of_sum(self, variant: str, size: int, layers: list[str]) -> float:
        """The drift of a variant's time on layers together: each layer's counts by its share of that time."""
        times = {layer: time.value for layer in layers if (time := self.op(variant, layer, size))}
        return sum(self.drift.limit(variant, size, layer) * ms for layer, ms in times.items()) / sum(times.values())

    def fp32_bound_ms(self, layer: Case, size: int) -> float | None:
        """The least time that the GPU of the GPU's run allows the direct method in FP32; None where there is none."""
        gpu = self._ev.gpu_run.gpu if self._ev.gpu_run else None
        return lower_bounds.fp32_bound_ms(layer.at(size), gpu) if gpu else None

    def method_bound_ms(self, variant: str, layer: Case, size: int) -> float | None:
        """The least time that the GPU allows a variant's own method and precision; None where there is none. A
        library's method is taken to be direct unless it is faster than that allows."""
        gpu = self._ev.gpu_run.gpu if self._ev.gpu_run else None
        one = self._ev.plan.variants[variant]
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
        """The least time that a layer's bytes take on that GPU; None where there is none."""
        gpu = self._ev.gpu_run.gpu if self._ev.gpu_run else None
        return lower_bounds.memory_bound_ms(layer.at(size), gpu) if gpu else None

    def limiting_resource(self, layer: Case, size: int) -> str:
        """Which of the two makes the FP32 bound: `memory bandwidth` or `FP32 arithmetic`."""
        assert self._ev.gpu_run is not None and self._ev.gpu_run.gpu is not None
        return lower_bounds.bounding_resource(layer.at(size), self._ev.gpu_run.gpu)
