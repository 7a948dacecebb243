"""All archived runs together: the headline figures of each network and device over time, and what moved them. Nothing
is stale here: figures are told as they were taken, beside their commit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from warpbook.common import statistics
from warpbook.common.statistics import Estimate
from warpbook.report import comparison
from warpbook.report.comparison import ComparedPlace, Comparison
from warpbook.report.evidence import Speedup
from warpbook.runs import tables
from warpbook.runs.catalog import Run

Series = list[np.ndarray]


class GpuModel(NamedTuple):
    """A kind of hardware: `gpu` or `cpu`, and its name."""

    device: str
    name: str


@dataclass(frozen=True)
class HistoryStep:
    """What came between two runs of one model: how many times faster the best variant of the later one is, corrected by
    how far unchanged variants differ; or why that cannot be told."""

    speedup: Speedup | None
    why: str = ""


@dataclass(frozen=True)
class Headline:
    """The best variant of one run on a model and a network, all layers at the largest size. over, peer: the naive
    variant and the fastest FP32 library, with the speedup over each, None where there is none. step: None for a model's
    first run."""

    run: Run
    model: GpuModel
    network: str
    size: int
    best: str
    time: Estimate
    over: tuple[str, Speedup] | None
    peer: tuple[str, Speedup] | None
    step: HistoryStep | None


@dataclass(frozen=True)
class MeasuredVariant:
    """A variant in one run. bound: its time over the GPU's least for the direct method in FP32, if known."""

    name: str
    peer: bool
    precision: str
    builds_on: str
    source_sha256: str
    time: Estimate
    over_naive: Speedup | None
    over_baseline: Speedup | None
    registers: int | None
    bound: float | None


class History:
    """Archived runs, oldest first, a change counting beyond `tolerance`; of some networks where they are named."""

    def __init__(self, archived: Iterable[Run], tolerance: float, networks: Sequence[str] | None = None):
        self._named = networks
        self.runs = sorted(archived, key=lambda run: (str(run.record["ended"]), run.run_id))
        self.tolerance = tolerance
        self._held: dict[int, dict[ComparedPlace, Series]] = {}

    @cached_property
    def networks(self) -> list[str]:
        """Networks with a headline, in the order of the newest run that has them."""
        lines = sorted(self.headlines, key=lambda line: -self.runs.index(line.run))
        return list(dict.fromkeys(line.network for line in lines))

    @cached_property
    def models(self) -> list[GpuModel]:
        """Hardware with a headline, GPUs first, that of the newest run before others."""
        found = dict.fromkeys(line.model for line in reversed(self.headlines))
        return sorted(found, key=lambda model: model.device != "gpu")

    @cached_property
    def headlines(self) -> list[Headline]:
        """By run, oldest first."""
        made: list[Headline] = []
        latest: dict[tuple[str, GpuModel], Headline] = {}
        for run in self.runs:
            for network, model, size in self._measured_sizes(run):
                headline = self._headline(run, network, model, size, latest.get((network, model)))
                if headline:
                    latest[network, model] = headline
                    made.append(headline)
        return made

    def for_network(self, network: str, model: GpuModel | None = None) -> list[Headline]:
        """The headlines of a network, oldest first; on one model where told."""
        return [line for line in self.headlines if line.network == network and model in (None, line.model)]

    def newest(self, network: str, model: GpuModel) -> Headline | None:
        """The headline of the newest run of a model that holds a network."""
        return next(reversed(self.for_network(network, model)), None)

    def variants(self, headline: Headline) -> list[MeasuredVariant]:
        """Every variant of a headline's run on its network and model at its size, fastest first."""
        run, record = headline.run, headline.run.record["variants"]
        found = self._series(run, headline.network, headline.model.device, headline.size)
        naive = self._naive(run, found)
        builds, bound_ms = self._registers(run), self._bound_ms(headline)
        rows = []
        for name, series in found.items():
            baseline = _word(record[name].get("builds_on"))
            time = statistics.sum_of_medians(series)
            rows.append(
                MeasuredVariant(
                    name=name,
                    peer=record[name]["peer"],
                    precision=_precision(record[name]),
                    builds_on=baseline,
                    source_sha256=record[name]["source_sha256"],
                    time=time,
                    over_naive=self._speedup_over(run, found, naive, name),
                    over_baseline=self._speedup_over(run, found, baseline, name),
                    registers=builds.get(name),
                    bound=time.value / bound_ms if bound_ms else None,
                )
            )
        return sorted(rows, key=lambda row: row.time.value)

    def _measured_sizes(self, run: Run) -> Iterator[tuple[str, GpuModel, int]]:
        """Networks, models and the largest size of each at which a run has op times."""
        sizes: dict[tuple[str, str], list[int]] = {}
        for place in self._places(run):
            sizes.setdefault((place.network, place.device), []).append(place.size)
        for (network, device), held in sizes.items():
            yield network, GpuModel(device, run.device_name(device)), max(held)

    def _places(self, run: Run) -> dict[ComparedPlace, Series]:
        if id(run) not in self._held:
            named = [name for name in run.record["networks"] if self._named is None or name in self._named]
            held = comparison.series_by_place(run, named)
            self._held[id(run)] = {place: list(series.values()) for place, series in held.items()}
        return self._held[id(run)]

    def _series(self, run: Run, network: str, device: str, size: int) -> dict[str, Series]:
        """Op times of each variant that is on every layer, a series for each, in the record's order."""
        here = {
            place.variant: series
            for place, series in self._places(run).items()
            if (place.network, place.device, place.size) == (network, device, size)
        }
        layers = max(map(len, here.values()), default=0)
        return {name: here[name] for name in run.record["variants"] if len(here.get(name, ())) == layers > 0}

    def _naive(self, run: Run, found: dict[str, Series]) -> str:
        """The variant that optimizations start from; empty where none was measured."""
        record = run.record["variants"]
        starts = (name for name in found if not record[name]["peer"] and not _word(record[name].get("builds_on")))
        return next(starts, "")

    def _headline(self, run: Run, network: str, model: GpuModel, size: int, before: Headline | None) -> Headline | None:
        record, found = run.record["variants"], self._series(run, network, model.device, size)
        exact = [name for name in found if _precision(record[name]) == "fp32"]
        best = _fastest(found, [name for name in exact if model.device == "cpu" or not record[name]["peer"]])
        if not best:
            return None
        naive, peer = self._naive(run, found), _fastest(found, [name for name in exact if record[name]["peer"]])
        over, above = self._speedup_over(run, found, naive, best), self._speedup_over(run, found, peer, best)
        return Headline(
            run=run,
            model=model,
            network=network,
            size=size,
            best=best,
            time=statistics.sum_of_medians(found[best]),
            over=(naive, over) if over else None,
            peer=(peer, above) if above else None,
            step=self._step(before, run, found[best], size) if before else None,
        )

    def _speedup_over(self, run: Run, found: dict[str, Series], base: str, variant: str) -> Speedup | None:
        """How many times faster a variant is than another of its run, from series that each took for itself."""
        if base not in found or base == variant:
            return None
        ratio = statistics.ratio_of_sums(found[base], found[variant], paired=False)
        return Speedup(ratio, False, statistics.verdict(ratio, run.record["measuring"]["equivalence_margin"]))

    def _step(self, before: Headline, run: Run, series: Series, size: int) -> HistoryStep:
        device, network = before.model.device, before.network
        compared = Comparison(before.run, run, self.tolerance)
        if device in compared.obstacles:
            return HistoryStep(None, compared.obstacles[device])
        if network not in compared.networks or size != before.size:
            return HistoryStep(None, "the network's shapes or sizes are others")
        drift = compared.drifts.get((device, size))
        if drift is None:
            return HistoryStep(None, "no variant was measured in both runs at this size")
        earlier = self._series(before.run, network, device, size)[before.best]
        moved, verdict = comparison.corrected_speedup(earlier, series, drift)
        return HistoryStep(Speedup(moved, False, verdict))

    def _registers(self, run: Run) -> dict[str, int]:
        """The most registers that a thread of each variant's kernels has, built for the run's GPU."""
        builds = run.table(tables.BUILDS)
        builds = builds[(builds.arch == run.gpu["arch"]) & builds.registers.notna()] if run.gpu else builds.head(0)
        return {str(name): int(most) for name, most in builds.groupby("variant").registers.max().items()}

    def _bound_ms(self, headline: Headline) -> float | None:
        """The least time of the direct method in FP32, as the run tells it."""
        if headline.model.device != "gpu":
            return None
        times = headline.run.table(tables.OP_TIMES)
        here = (times.network == headline.network) & (times["size"] == headline.size) & times.fp32_bound_ms.notna()
        bounds = times[here & (times.device == "gpu")].groupby("layer").fp32_bound_ms.first()
        return float(bounds.sum()) if len(bounds) else None


def _fastest(found: dict[str, Series], names: list[str]) -> str:
    """The fastest of some variants; empty where there is none."""
    return min(names, key=lambda name: sum(float(np.median(layer)) for layer in found[name]), default="")


def _word(value: Any) -> str:
    """A word of a stranger's record, which may be anything."""
    return value if isinstance(value, str) else ""


def _precision(variant: dict[str, Any]) -> str:
    return _word(variant.get("precision")) or "fp32"
