"""How far the harness itself is to be trusted: A/A tests, and what a run holds only where it was asked to."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from warpbook.common import statistics
from warpbook.report.evidence.run_selection import Selection
from warpbook.report.evidence.scope import Scope
from warpbook.runs import summaries, tables

AaPlace = tuple[str, str, str, int]
"""variant, network, layer, size"""


@dataclass(frozen=True)
class RatioSpan:
    """The middle of `n` ratios, and what 95 % of them lie between."""

    middle: float
    low: float
    high: float
    n: int


class MeasurementValidity:
    """Measurements of the harness, over all networks of the run that GPU figures come from."""

    def __init__(self, scope: Scope, selection: Selection):
        self._scope, self._selection = scope, selection

    @cached_property
    def aa_tests(self) -> pd.DataFrame:
        """A variant against its own copy: variant, network, layer, size, state, kind, value, low, high, verdict,
        measured_on. Whatever is called faster or slower is an error."""
        columns = ["variant", "network", "layer", "size", "state", "kind", "value", "low", "high", "verdict"]
        samples, series = self._aa_samples, ["job", *columns[1:6]]
        copies, own = samples.variant.str.endswith(":aa"), samples.variant == samples.job.str.split(":").str[1]
        beside = samples.loc[own, [*series, "sample", "sound_ms"]]
        pairs = samples[copies].merge(beside, on=[*series, "sample"], suffixes=("_aa", ""))
        pairs = pairs[pairs.sound_ms.notna() & pairs.sound_ms_aa.notna()]
        rows = []
        for key, group in pairs.groupby(series, sort=False):
            ratio = statistics.paired_ratio(group.sound_ms_aa.to_numpy(), group.sound_ms.to_numpy())
            verdict = statistics.verdict(ratio, self._scope.config.measuring.equivalence_margin)
            place = [str(key[0]).split(":")[1], *key[1:]]
            rows.append([*place, ratio.value, ratio.low, ratio.high, verdict, group.measured_on.iloc[0]])
        return pd.DataFrame(rows, columns=[*columns, "measured_on"])

    @cached_property
    def _aa_samples(self) -> pd.DataFrame:
        run = self._scope.gpu_run
        samples = run.table(tables.SAMPLES) if run else tables.with_places(tables.SAMPLES.empty())
        samples = samples[samples.job.str.startswith("aa:")]
        return samples.assign(sound_ms=summaries.sound_ms(samples))

    @cached_property
    def aa_by_gpu(self) -> dict[AaPlace, dict[str, np.ndarray]]:
        """Op times in ms, cold, of each variant in its A/A tests by the GPU, of places that two GPUs or more had."""
        samples = self._aa_samples
        samples = samples[(samples.kind == "op") & (samples.state == "cold") & ~samples.variant.str.endswith(":aa")]
        samples = samples[samples.sound_ms.notna()]
        found: dict[AaPlace, dict[str, np.ndarray]] = {}
        for key, group in samples.groupby(["variant", "network", "layer", "size", "measured_on"], sort=False):
            variant, network, layer, size, gpu = map(str, key)
            found.setdefault((variant, network, layer, int(size)), {})[gpu] = group.sound_ms.to_numpy()
        return {place: dict(sorted(by_gpu.items())) for place, by_gpu in found.items() if len(by_gpu) > 1}

    @cached_property
    def gpu_ratios(self) -> dict[str, RatioSpan]:
        """How each GPU's median times of `aa_by_gpu` compare with the middle one of all GPUs' for the same place."""
        ratios: dict[str, list[float]] = {}
        for by_gpu in self.aa_by_gpu.values():
            medians = {gpu: float(np.median(times)) for gpu, times in by_gpu.items()}
            middle = float(np.median(list(medians.values())))
            for gpu, median_ms in medians.items():
                ratios.setdefault(gpu, []).append(median_ms / middle)
        spans = {}
        for gpu in sorted(ratios):
            middle, low, high = map(float, np.quantile(ratios[gpu], [0.5, 0.025, 0.975]))
            spans[gpu] = RatioSpan(middle, low, high, len(ratios[gpu]))
        return spans

    @cached_property
    def gpu_shares(self) -> pd.DataFrame:
        """How long each GPU of the run was busy: see `summaries.gpu_shares`."""
        run = self._scope.gpu_run
        return summaries.gpu_shares(run.table(tables.JOBS) if run else tables.JOBS.empty())

    @cached_property
    def attacks(self) -> pd.DataFrame:
        """Kernels that cheat, and what caught each."""
        return self._selection.optional_rows(tables.ATTACKS)

    @cached_property
    def sanitizer(self) -> pd.DataFrame:
        """Errors that compute-sanitizer counted."""
        return self._selection.optional_rows(tables.SANITIZER)

    @cached_property
    def sweep(self) -> pd.DataFrame:
        """Configurations of a variant's parameters that ran."""
        frame = self._selection.optional_rows(tables.SWEEP)
        return frame[frame.status == "ok"]
