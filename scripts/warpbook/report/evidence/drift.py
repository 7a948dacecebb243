"""How far a variant's time differs between jobs of one run: what a comparison of separate jobs cannot tell."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from warpbook.report.evidence.cache import cached_method
from warpbook.report.evidence.scope import Scope

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
