"""Times of files of the course, which run with their own host code."""

from functools import cached_property

import numpy as np
import pandas as pd

from warpbook.common import statistics
from warpbook.common.statistics import Estimate
from warpbook.kernels import lower_bounds
from warpbook.kernels.variants import Variant
from warpbook.report.evidence.scope import EvidencePart
from warpbook.runs import summaries, tables

OP, LAYER, COLD, HOT = ("op", ""), ("layer", ""), ("gpu", "cold"), ("gpu", "hot")
"""(kind, state) of the times of a file, as SAMPLES has them."""


class CourseTimes(EvidencePart):
    """Op Times, Layer Times and device times of every file of the course on the study's layers at its sizes."""

    @cached_property
    def files(self) -> list[Variant]:
        """Files of the course that compute the network's layers, as their authors wrote them."""
        plan = self._ev.plan
        return [plan.variants[name] for name in plan.course_files(self._ev.network.name)]

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Rows of SAMPLES of these files in the GPU's run, failed ones too, stale ones left out."""
        frame = self._ev.selection.run_rows(tables.SAMPLES)
        sound = [variant.name for variant in self.files if not self._ev.selection.stale(variant)]
        ours = (frame.network == self._ev.network.name) & frame["size"].isin(self._ev.sizes)
        return frame[ours & frame.variant.isin(sound)]

    def time(self, variant: str, layer: str, size: int, which: tuple[str, str]) -> Estimate | None:
        """Median in ms of one layer, with its interval; None where there is no sound figure."""
        return summaries.series_median(self._sound(variant, layer, size, which))

    def total(self, variant: str, size: int, which: tuple[str, str]) -> Estimate | None:
        """Sum over the layers of their medians in ms, with a bootstrap interval; None where a layer has no figure."""
        series = [self._sound(variant, layer, size, which) for layer in self._ev.layer_names]
        return statistics.sum_of_medians(series) if all(map(len, series)) else None

    def ratio(self, variant: str, over: str, size: int, which: tuple[str, str]) -> Estimate | None:
        """How many times longer `over` takes, all layers added, with a bootstrap interval; the two were timed one after
        the other, not interleaved. None where a layer of either has no figure."""
        base, mine = (
            [self._sound(name, layer, size, which) for layer in self._ev.layer_names] for name in (over, variant)
        )
        return statistics.ratio_of_sums(base, mine, paired=False) if all(map(len, base + mine)) else None

    def problems(self, variant: Variant) -> list[str]:
        """Why a file, or some of its times, has no figure; each reason once."""
        run, emulated = self._ev.gpu_run, self._ev.checks.emulator_tally(variant.name)
        if variant.read_error:
            return [variant.read_error]
        if emulated and emulated.failure:
            return [f"on the CPU emulator: {emulated.failure['reason']}"]
        if run is None:
            return [self._ev.source.why]
        if reason := self._ev.selection.stale(variant):
            return [f"recorded in {run.run_id}, but {reason}"]
        rows = self.samples[self.samples.variant == variant.name]
        if rows.empty:
            return [f"the run {run.run_id} has no time of it"]
        told = list(rows[rows.status != "ok"].reason.unique())
        return [*told, *self._below_bound(variant)]

    def _series(self, variant: str, layer: str, size: int, which: tuple[str, str]) -> np.ndarray:
        frame = self.samples
        kind, state = which
        chosen = (frame.variant == variant) & (frame.layer == layer) & (frame["size"] == size)
        chosen &= (frame.kind == kind) & (frame.state == state) & (frame.status == "ok") & ~frame.throttled
        return frame[chosen].time_ms.to_numpy(dtype=float)

    def _sound(self, variant: str, layer: str, size: int, which: tuple[str, str]) -> np.ndarray:
        """A series; empty where one of it is below what the hardware allows."""
        times = self._series(variant, layer, size, which)
        return times[:0] if len(times) and times.min() < self._bound_ms(variant, layer, size) else times

    def _bound_ms(self, variant: str, name: str, size: int) -> float:
        """The least time that a layer's bytes need; those that the L2 cache may hold left out."""
        assert self._ev.gpu is not None
        gpu, header = self._ev.gpu, self._ev.plan.variants[variant].header
        layer = next(one for one in self._ev.layers if one.name == name)
        return lower_bounds.method_bound_ms(layer.at(size), header, gpu, kept_bytes=gpu["l2_bytes"])

    def _below_bound(self, variant: Variant) -> list[str]:
        below = [
            f"{layer}, {size} images"
            for layer in self._ev.layer_names
            for size in self._ev.sizes
            if any(
                len(self._series(variant.name, layer, size, which))
                and not len(self._sound(variant.name, layer, size, which))
                for which in (OP, LAYER, COLD, HOT)
            )
        ]
        words = "a sample is below the hardware's lower bound; the work cannot all have been done in it"
        return [f"{'; '.join(below)}: {words}"] if below else []
