"""Two runs held against each other: what changed between them, and which op times moved with it.

Two runs of one code differ, as clocks, drivers and CPUs do. The median ratio of the unchanged variants is the drift, by
which changed variants' times are corrected. A ratio within the nearest 95 % of theirs is the same. It is a change where
at most FALSE_ALARMS of comparisons of equal code lie so far out; between the two it is ambiguous. Where nothing
changed, the drift itself is judged.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from warpbook.common import statistics
from warpbook.common.statistics import Estimate
from warpbook.config import settings
from warpbook.report.evidence import STATE
from warpbook.runs import summaries, tables
from warpbook.runs.catalog import Run
from warpbook.runs.schema import Table

NO_REGRESSION, REGRESSION, AMBIGUOUS, NOT_COMPARABLE = 0, 3, 4, 5  # exit statuses
OUTCOMES = {
    NO_REGRESSION: "no regression",
    REGRESSION: "regression",
    AMBIGUOUS: "ambiguous",
    NOT_COMPARABLE: "not comparable",
}
FALSE_ALARMS = 0.05
RESOURCES = ("registers", "shared_bytes", "local_bytes", "spill_bytes")


@dataclass(frozen=True)
class ComparedPlace:
    """Where a time belongs: all layers of a network at one size with one variant."""

    variant: str
    network: str
    device: str
    size: int


@dataclass(frozen=True)
class ComparisonDrift:
    """What two runs of the same code differ by at one size on one device. ratio: median over the unchanged variants.
    near, far: a ratio no further from it is the same, one further is a change. ratios: without libraries, which choose
    algorithms anew in every process."""

    ratio: Estimate
    near: float
    far: float
    ratios: dict[ComparedPlace, float]


@dataclass(frozen=True)
class ComparedChange:
    """Op time of a place in both runs, ms; base's over head's, corrected by the drift; and what that allows to say."""

    place: ComparedPlace
    base: Estimate
    head: Estimate
    speedup: Estimate
    verdict: str


class Comparison:
    """`head` held against `base`; a change counts beyond `tolerance`, or beyond the unchanged variants' spread."""

    def __init__(self, base: Run, head: Run, tolerance: float):
        self.base, self.head, self.tolerance = base, head, tolerance

    @cached_property
    def obstacles(self) -> dict[str, str]:
        """Why a device's times cannot be compared, by device."""
        reasons = {device: self._obstacle(device) for device in ("gpu", "cpu")}
        return {device: why for device, why in reasons.items() if why}

    @property
    def same_gpu(self) -> bool | None:
        """Whether GPU times are of one and the same GPU; None where they are not compared."""
        if "gpu" in self.obstacles:
            return None
        return len({run.record["machine"]["gpu"]["uuid_sha256"] for run in (self.base, self.head)}) == 1

    @property
    def devices(self) -> list[str]:
        """Devices whose times are compared."""
        return [device for device in ("gpu", "cpu") if device not in self.obstacles]

    def _obstacle(self, device: str) -> str:
        base, head = self.base.record, self.head.record
        if base["protocol"] != head["protocol"]:
            return f"base was timed under protocol {base['protocol']}, head under {head['protocol']}"
        names = [run.device_name(device) for run in (self.base, self.head)]
        if names[0] != names[1]:
            return f"base was measured on {names[0]}, head on {names[1]}"
        old, new = (settings.policy_of_samples(record["measuring"], device) for record in (base, head))
        for key in old:
            if old[key] != new[key]:
                return f"the measuring policy differs: {key} is {old[key]} in base, {new[key]} in head"
        held = [{place for place in times if place.device == device} for times in self._times]
        if not held[0] & held[1]:
            return "no variant was measured in both runs on one network at one size"
        return ""

    @cached_property
    def networks(self) -> list[str]:
        """Networks that both runs hold, of the same shapes."""
        base, head = self.base.record["networks"], self.head.record["networks"]
        return [name for name in base if name in head and base[name]["shapes_sha256"] == head[name]["shapes_sha256"]]

    @cached_property
    def differences(self) -> list[tuple[str, str, str]]:
        """(what, base, head) of all that differs in the machines and their software."""
        base, head = (dict(_facts(run)) for run in (self.base, self.head))
        rows = [(name, base.get(name, "–"), head.get(name, "–")) for name in base | head]
        return [row for row in rows if row[1] != row[2]]

    @cached_property
    def changes(self) -> dict[str, str]:
        """What changed of each variant that both runs hold and that is not the same in both."""
        base, head = self.base.record["variants"], self.head.record["variants"]
        return {name: why for name in base if name in head and (why := self._change(name))}

    def _change(self, variant: str) -> str:
        base, head = (run.record["variants"][variant] for run in (self.base, self.head))
        if base["source_sha256"] != head["source_sha256"]:
            return "sources"
        library = head["requires"]
        versions = [run.record["machine"]["packages"].get(library) for run in (self.base, self.head)]
        if library and versions[0] != versions[1]:
            return f"{library} {versions[0]} → {versions[1]}"
        built = self._build_pairs(variant)
        for column in ("options", "compiler"):
            before, after = (", ".join(dict.fromkeys(frame[column])) for frame in built)
            if before != after:
                return f"{column}: {before} → {after}"
        return ""

    def _build_pairs(self, variant: str) -> list[pd.DataFrame]:
        """A variant's kernels in both runs, by kernel and architecture: the compared GPU's, else all built in both."""
        sides = []
        for run in (self.base, self.head):
            builds = run.table(tables.BUILDS)
            sides.append(builds[(builds.variant == variant) & builds.ok].set_index(["kernel", "arch"]))
        both = sides[0].index.intersection(sides[1].index)
        if self.base.gpu and "gpu" in self.devices:
            both = both[both.get_level_values("arch") == self.base.gpu["arch"]]
        return [side.loc[both] for side in sides]

    @cached_property
    def resources(self) -> list[tuple[str, str, str, int, int, str]]:
        """(variant, kernel, resource, base, head, architecture) of all that changed of the kernels' resources."""
        rows = []
        for variant in self.changes:
            base, head = self._build_pairs(variant)
            for kernel, arch in base.index:
                for name in RESOURCES:
                    amounts = [side.loc[(kernel, arch), name] for side in (base, head)]
                    if not any(map(pd.isna, amounts)):  # the host's compiler tells none
                        rows.append((variant, kernel, name, *map(int, amounts), arch))
        return [row for row in rows if row[3] != row[4]]

    @cached_property
    def _times(self) -> list[dict[ComparedPlace, dict[str, np.ndarray]]]:
        """Op times of both runs, in ms, a series for each layer; only places with a sound series on every layer."""
        return [series_by_place(run, self.networks) for run in (self.base, self.head)]

    @cached_property
    def places(self) -> list[ComparedPlace]:
        """Places that both runs measured on the same layers, on devices that can be compared, in base's order."""
        base, head = self._times
        both = [place for place in base if place.device in self.devices and place in head]
        return [place for place in both if base[place].keys() == head[place].keys()]

    @cached_property
    def drifts(self) -> dict[tuple[str, int], ComparisonDrift]:
        """By device and size."""
        drifts = {}
        sized = {(place.device, place.size) for place in self.places}
        for device, size in sorted(sized, key=lambda pair: (pair[0] != "gpu", pair[1])):
            ratios = {
                place: _total(self._times[0][place]) / _total(self._times[1][place])
                for place in self.places
                if (place.device, place.size) == (device, size) and self._is_unchanged(place.variant)
            }
            values = np.array(list(ratios.values()))
            middle = statistics.median(values) if len(values) else Estimate(1.0, 1.0, 1.0, 0)
            judgements = sum(place.device == device and place.variant in self.changes for place in self.places)
            near = far = self.tolerance
            if len(values) and judgements:
                scatter = 1 - np.exp(-np.abs(np.log(values / middle.value)))
                near = max(near, float(np.quantile(scatter, 0.95, method="higher")))
                # Half of what lies so far out is slower.
                far = max(near, float(np.quantile(scatter, 1 - 2 * FALSE_ALARMS / max(judgements, 2), method="higher")))
            drifts[device, size] = ComparisonDrift(middle, near, far, ratios)
        return drifts

    def _is_unchanged(self, variant: str) -> bool:
        held = self.head.record["variants"].get(variant)  # a stranger's samples may be of none that its record has
        return held is not None and variant not in self.changes and not held["peer"]

    @cached_property
    def movements(self) -> list[ComparedChange]:
        """Every changed variant at every place, those first that lost most."""
        rows = []
        for place in self.places:
            if place.variant in self.changes:
                base, head = ([times[place][layer] for layer in self._times[0][place]] for times in self._times)
                drift = self.drifts[place.device, place.size]
                speedup, verdict = corrected_speedup(base, head, drift)
                before, after = (statistics.sum_of_medians(series) for series in (base, head))
                rows.append(ComparedChange(place, before, after, speedup, verdict))
        return sorted(rows, key=lambda row: row.speedup.value)

    @cached_property
    def strays(self) -> list[tuple[ComparedPlace, float]]:
        """Unchanged variants whose ratio lies beyond the tolerance of the drift, furthest first."""
        rows = [
            (place, ratio / drift.ratio.value)
            for drift in self.drifts.values()
            for place, ratio in drift.ratios.items()
            if not 1 - self.tolerance <= ratio / drift.ratio.value <= 1 + self.tolerance
        ]
        return sorted(rows, key=lambda row: -abs(math.log(row[1])))

    @cached_property
    def losses(self) -> list[tuple[str, str, str, str]]:
        """(variant, network, device, why) of what was right or measured in base and is not in head."""
        rows: dict[tuple[str, str, str], str] = {}
        for table in (tables.CORRECTNESS, tables.OP_TIMES):
            sides = [table_for_networks(run, table, self.networks) for run in (self.base, self.head)]
            keys = list(table.key)
            sound = sides[0][sides[0].status == "ok"][keys]
            both = sound.merge(sides[1][sides[1].status != "ok"], on=keys)
            row: Any
            for row in both.itertuples():
                rows.setdefault((row.variant, row.network, row.device), f"{row.status}: {row.reason}")
        return [(*place, why) for place, why in rows.items()]

    @property
    def omissions(self) -> list[str]:
        """What one run holds and the other does not, in words."""
        words = []
        for run, other, side in ((self.base, self.head, "base"), (self.head, self.base, "head")):
            variants = [name for name in run.record["variants"] if name not in other.record["variants"]]
            networks = [name for name in run.record["networks"] if name not in self.networks]
            words += [f"variants of {side} alone: {', '.join(variants)}"] * bool(variants)
            words += [f"networks of {side} alone, or of other shapes: {', '.join(networks)}"] * bool(networks)
        return words

    def verdict_on(self, device: str, size: int) -> str:
        """What the drift of a device at a size says where no variant changed; empty where one did."""
        if any(row.place.device == device for row in self.movements):
            return ""
        drift = self.drifts[device, size]
        return statistics.verdict(drift.ratio, drift.near, drift.far)

    @cached_property
    def outcome(self) -> int:
        """The exit status: NO_REGRESSION, REGRESSION, AMBIGUOUS or NOT_COMPARABLE."""
        if not self.devices:
            return NOT_COMPARABLE
        judgements = [(row.verdict, row.speedup) for row in self.movements]
        for (device, size), drift in self.drifts.items():
            if verdict := self.verdict_on(device, size):
                judgements.append((verdict, drift.ratio))
        if self.losses or any(verdict == "slower" for verdict, _ in judgements):
            return REGRESSION
        return AMBIGUOUS if any(is_doubtful(verdict, speedup) for verdict, speedup in judgements) else NO_REGRESSION


def corrected_speedup(base: list[np.ndarray], head: list[np.ndarray], drift: ComparisonDrift) -> tuple[Estimate, str]:
    """How many times faster `head` is, corrected by the drift, and the verdict on it."""
    ratio = statistics.ratio_of_sums(base, head, paired=False)
    value, low, high = (end / drift.ratio.value for end in (ratio.value, ratio.low, ratio.high))
    speedup = Estimate(value, low, high, ratio.n)
    return speedup, statistics.verdict(speedup, drift.near, drift.far)


def is_doubtful(verdict: str, speedup: Estimate) -> bool:
    """Whether it may be a regression. What is ambiguous between same and faster is none either way."""
    return verdict == "ambiguous" and not speedup.low > 1


def table_for_networks(run: Run, table: Table, networks: list[str]) -> pd.DataFrame:
    """A run's table, those networks alone."""
    frame = run.table(table)
    return frame[frame.network.isin(networks)]


def _total(series: Mapping[str, np.ndarray]) -> float:
    return float(sum(map(np.median, series.values())))


def series_by_place(run: Run, networks: list[str]) -> dict[ComparedPlace, dict[str, np.ndarray]]:
    """A run's sound op times on those networks, in ms, a series for each layer, of each variant's own job."""
    samples = table_for_networks(run, tables.SAMPLES, networks)
    samples = samples[(samples.job == samples.variant) & (samples.kind == "op") & (samples.layer != "")]
    samples = samples[samples.state == samples.device.map(STATE)]
    keys = [samples[name] for name in ("variant", "network", "device", "size", "layer")]
    layers: dict[ComparedPlace, dict[str, np.ndarray]] = {}
    each_layer: Iterable[Any] = summaries.sound_ms(samples).groupby(keys, sort=False)
    for (*place, layer), times in each_layer:
        layers.setdefault(ComparedPlace(*place), {})[str(layer)] = times.dropna().to_numpy()
    return {place: series for place, series in layers.items() if all(map(len, series.values()))}


def _facts(run: Run) -> Iterator[tuple[str, Any]]:
    machine = run.record["machine"]
    yield "commit", run.commit
    yield "system", machine["system"]
    yield "CPU", run.device_name("cpu")
    yield "compiler", machine["compiler"]
    gpu = machine["gpu"] or {}
    yield "GPU", run.device_name("gpu")
    for key, name in (
        ("uuid_sha256", "GPU's UUID, hashed"), ("driver", "driver"), ("power_limit_w", "power limit, W"),
        ("sm_clock_max_mhz", "highest SM clock, MHz"), ("memory_clock_max_mhz", "highest memory clock, MHz"),
    ):  # fmt: skip
        if key in gpu:
            yield name, str(gpu[key])[:12]
    yield "Python", machine["python"]
    yield from machine["packages"].items()
