"""What a report may claim: the figures of a study from the runs that it cites, those that no longer hold set aside.

CPU figures come from this machine's run, GPU figures from this machine or from an archived run. A recorded figure is
used only while it is still about the same thing: the variant's sources, the compile options, the study's shapes and
the measuring policy. Everything else is listed with its reason, and is in no table, chart or headline.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from warpbook import building, counters, estimates, networks, profilers, runs, tables, timing
from warpbook.config import Config, Study
from warpbook.counters import Call, Moved
from warpbook.estimates import Estimate
from warpbook.networks import ConvLayer
from warpbook.plan import GpuSource, Plan
from warpbook.runs import Run
from warpbook.variants import Variant

# The state that figures are quoted in: a GPU call finds its data in memory, not in the cache; a CPU call repeats.
STATE = {"gpu": "cold", "cpu": "hot"}
PUBLISHED = Path(__file__).parents[2] / "reports" / "published"
GPU_KINDS = ("kernel", "memcpy_htod", "memcpy_dtoh", "memcpy_dtod", "memcpy_other", "memset")
API_KINDS = ("api_runtime", "api_driver")


@dataclass(frozen=True)
class Speedup:
    """Time of one variant over another's, how it was had, and what it allows to say."""

    ratio: Estimate
    paired: bool
    verdict: str


@dataclass(frozen=True)
class ProfileRow:
    """One line of a profile, as nvprof has it: times in ns."""

    name: str
    share: float
    total_ns: int
    calls: int
    avg_ns: float
    min_ns: int
    max_ns: int


class Evidence:
    """The figures of one study."""

    def __init__(self, plan: Plan, study: str, local: Run):
        self.plan = plan
        self.config: Config = plan.config
        self.name = study
        self.study: Study = plan.config.studies[study]
        self.network = networks.find(self.study.network)
        self.source: GpuSource = plan.gpu_sources[study]
        self.local = local
        self.gpu_run: Run | None = local if self.source.device else self.source.archived

    # What was measured where

    @property
    def layers(self) -> tuple[ConvLayer, ...]:
        return self.network.convs

    @property
    def sizes(self) -> list[int]:
        return self.study.sizes

    @property
    def largest(self) -> int:
        return self.sizes[-1]

    @property
    def cited(self) -> list[Run]:
        """The runs that the report draws on, this machine's first."""
        return [self.local, *([self.gpu_run] if self.gpu_run and self.gpu_run is not self.local else [])]

    def run_of(self, device: str) -> Run | None:
        """The run that a device's figures come from."""
        return self.local if device == "cpu" else self.gpu_run

    def device_name(self, device: str) -> str:
        """The name of the hardware that a device's figures were measured on."""
        run = self.run_of(device)
        return run.device_name(device) if run else "no GPU"

    def wanted(self, device: str) -> list[Variant]:
        """Variants of a device that the study compares, baselines first."""
        names = self.plan.with_baselines(self.study.variants or self.plan.variants)
        found = [self.plan.variants[name] for name in names]
        return [variant for variant in found if variant.device == device]

    def stale(self, variant: Variant) -> str:
        """Why a variant's recorded figures are no longer about what stands here; empty when they are, or there are
        none."""
        run = self.run_of(variant.device)
        if run is None or variant.name not in run.record["variants"] or self.network.name not in run.record["networks"]:
            return ""
        record, policy = run.record, run.record["measuring"]
        if record["variants"][variant.name]["source_sha256"] != variant.source_sha256:
            return "its sources changed after it was measured"
        if record["networks"][self.network.name]["shapes_sha256"] != self.network.shapes_sha256:
            return "the network's shapes changed after it was measured"
        now = self.config.measuring.model_dump(mode="json")
        for key in ("relative_noise", variant.device):
            if policy[key] != now[key]:
                return f"the measuring policy differs: `{key}` was {policy[key]}, is {now[key]}"
        if record["protocol"] != timing.PROTOCOL:
            return f"it was measured under timing protocol {record['protocol']}, this is {timing.PROTOCOL}"
        builds = run.table(tables.BUILDS)
        own = builds[builds.variant == variant.name]
        for arch, told in zip(own.arch, own.options, strict=True):
            if told != " ".join(building.options(arch, variant.defines)):
                return f"the compile options differ: it was built with `{told}`"
        return ""

    def _frame(self, table: tables.Table) -> pd.DataFrame:
        """Rows of the study's network and variants from the runs cited, each from its device's run, stale ones left
        out."""
        frames = []
        for device in ("cpu", "gpu"):
            run = self.run_of(device)
            if run is None:
                continue
            frame = run.table(table)
            frame = frame[frame.network == self.network.name]
            if "device" in frame:
                frame = frame[frame.device == device]
            elif device == "cpu":
                continue  # only GPU programs are profiled
            usable = [variant.name for variant in self.wanted(device) if not self.stale(variant)]
            frames.append(frame[frame.variant.isin(usable)].assign(run_id=run.run_id))
        return pd.concat(frames, ignore_index=True) if frames else table.empty().assign(run_id="")

    def _at_sizes(self, table: tables.Table) -> pd.DataFrame:
        """The same at the study's sizes."""
        frame = self._frame(table)
        return frame[frame["size"].isin(self.sizes)]

    @cached_property
    def samples(self) -> pd.DataFrame:
        return self._at_sizes(tables.SAMPLES)

    @cached_property
    def op_times(self) -> pd.DataFrame:
        return self._at_sizes(tables.OP_TIMES)

    @cached_property
    def correctness(self) -> pd.DataFrame:
        frame = self._frame(tables.CORRECTNESS)
        # CPU variants are tested chunk by chunk, at sizes that a study need not name.
        return frame[frame["size"].isin(self.sizes) | (frame.device == "cpu") | ~frame.layer.isin(self._places)]

    @property
    def _places(self) -> list[str]:
        return ["", *(layer.name for layer in self.layers)]

    @cached_property
    def programs(self) -> pd.DataFrame:
        return self._at_sizes(tables.PROGRAMS)

    @cached_property
    def profiles(self) -> pd.DataFrame:
        """Programs that profilers watched, or should have."""
        return self._at_sizes(tables.PROFILES)

    @cached_property
    def traced(self) -> dict[tuple[str, str, int], pd.DataFrame]:
        """What each profiler saw of each program, by (tool, variant, size), in order of start."""
        frame = self._at_sizes(tables.ACTIVITIES)
        return dict(iter(frame.groupby(["tool", "variant", "size"], sort=False)))

    @cached_property
    def _untraced(self) -> pd.DataFrame:
        return tables.ACTIVITIES.empty()

    @cached_property
    def tracer(self) -> str:
        """The profiler whose traces the tables and timelines show; empty where there is none."""
        tools = {tool for tool, _, _ in self.traced}
        return next((tool for tool in profilers.TRACERS if tool in tools), "")

    def trace(self, variant: str, size: int, tool: str | None = None) -> pd.DataFrame:
        """Events of one program, as `tracer` saw them unless another is named; none where it did not."""
        return self.traced.get((tool or self.tracer, variant, size), self._untraced)

    @cached_property
    def counters(self) -> pd.DataFrame:
        """Hardware counters of the GPU's run, and a row for each layer that could not be counted."""
        return self._frame(tables.COUNTERS)

    @cached_property
    def calls(self) -> dict[tuple[str, str], Call]:
        """Calls whose hardware counters were read, by (variant, layer)."""
        return counters.calls(self.counters)

    @cached_property
    def builds(self) -> pd.DataFrame:
        """Builds made here, which need no GPU, of the variants that the study compares."""
        frame = self.local.table(tables.BUILDS)
        return frame[frame.variant.isin([variant.name for variant in self.wanted("gpu")])]

    # Which variants can be shown

    @cached_property
    def set_aside(self) -> pd.DataFrame:
        """Variants without a figure, or with layers without one: variant, device, layer, size, status, reason."""
        rows = [
            {"variant": variant.name, "device": device, **problem}
            for device in ("gpu", "cpu")
            for variant in self.wanted(device)
            for problem in self._problems(variant)
        ]
        return pd.DataFrame(rows, columns=["variant", "device", "layer", "size", "status", "reason"])

    def _problems(self, variant: Variant) -> list[dict[str, Any]]:
        """What keeps a variant, or some of its layers, out of the figures."""

        def whole(status: str, reason: str) -> list[dict[str, Any]]:
            return [{"layer": "", "size": None, "status": status, "reason": reason}]

        if variant.problem:
            return whole("compile_failed", variant.problem)
        broken = self.builds[(self.builds.variant == variant.name) & ~self.builds.ok]
        if len(broken):
            words = broken.log.iloc[0].splitlines() or ["the compiler said nothing"]
            return whole("compile_failed", f"for {', '.join(broken.arch)}: {words[0]}")
        emulated = self.emulated(variant.name)
        if emulated and emulated["failure"]:
            return whole(emulated["failure"]["status"], f"on the CPU emulator: {emulated['failure']['reason']}")
        run = self.run_of(variant.device)
        if run is None:
            return whole("not_measured", self.source.why)
        if reason := self.stale(variant):
            return whole("stale", f"recorded in {run.run_id}, but {reason}")
        own = self.op_times[self.op_times.variant == variant.name]
        if own.empty:
            return whole("not_measured", f"the run {run.run_id} holds no figure of it")
        failed = own[own.status != "ok"].drop_duplicates("reason")
        return failed[["layer", "size", "status", "reason"]].to_dict("records")

    def measured(self, device: str, peers: bool | None = None) -> list[Variant]:
        """Variants of a device with a sound op time for every layer at the largest size; peers only, or none, when
        told."""
        found = []
        for variant in self.wanted(device):
            if peers is not None and variant.header.peer != peers:
                continue
            if all(self.op(variant.name, layer.name, self.largest) for layer in self.layers):
                found.append(variant)
        return found

    @cached_property
    def naive(self) -> Variant | None:
        """The GPU variant that optimizations start from: the first that builds on nothing."""
        return next((variant for variant in self.measured("gpu", peers=False) if not variant.header.builds_on), None)

    @cached_property
    def naive_cpu(self) -> Variant | None:
        return next((variant for variant in self.measured("cpu", peers=False) if not variant.header.builds_on), None)

    @cached_property
    def best(self) -> Variant | None:
        """The FP32 GPU variant of ours whose op times, all layers at the largest size, add up to the least."""
        return self._least(
            [variant for variant in self.measured("gpu", peers=False) if variant.header.precision == "fp32"]
        )

    @cached_property
    def best_rounded(self) -> Variant | None:
        """The same of those that round their operands first, where it is faster than the best in FP32."""
        rounded = [variant for variant in self.measured("gpu", peers=False) if variant.header.precision != "fp32"]
        found = self._least([*rounded, *([self.best] if self.best else [])])
        return found if found != self.best else None

    @cached_property
    def best_cpu(self) -> Variant | None:
        """The fastest CPU code, libraries among it."""
        return self._least(self.measured("cpu"))

    @cached_property
    def best_peer(self) -> Variant | None:
        """The fastest FP32 library on the GPU: what our FP32 variants compete with."""
        return self._least(
            [variant for variant in self.measured("gpu", peers=True) if variant.header.precision == "fp32"]
        )

    def framework(self, device: str) -> Variant | None:
        """The peer that runs whole networks on a device: milestone 1's framework."""
        return next(
            (
                variant
                for variant in self.wanted(device)
                if variant.header.peer and not self.program(variant.name, self.largest).empty
            ),
            None,
        )

    def _least(self, candidates: list[Variant]) -> Variant | None:
        return min(candidates, key=lambda variant: self.total(variant.name, self.largest).value, default=None)

    def chain(self, variant: Variant) -> list[Variant]:
        """What a variant stands on, from its starting point to itself."""
        steps = [variant]
        while (below := steps[0].header.builds_on) in self.plan.variants and len(steps) < len(self.plan.variants):
            steps.insert(0, self.plan.variants[below])
        return steps

    @property
    def chains(self) -> list[list[Variant]]:
        """The cumulative chains of three steps or more, each as long as its optimizations go; longest first."""
        measured = self.measured("gpu", peers=False)
        chains = [[step for step in self.chain(variant) if step in measured] for variant in measured]
        passed = {step.name for chain in chains for step in chain[:-1]}
        ends = [chain for chain in chains if chain[-1].name not in passed and len(chain) >= 3]
        shown: list[list[Variant]] = []
        for chain in sorted(ends, key=len, reverse=True):
            # One that leaves a longer chain by its last step alone says nothing that its last step's section does not.
            if not any(chain[:-1] == longer[: len(chain) - 1] for longer in shown):
                shown.append(chain)
        return shown

    @property
    def combinations(self) -> list[tuple[Variant, list[Variant]]]:
        """Variants that join the ideas of others, with those others: what leaving one idea out costs."""
        measured = {variant.name: variant for variant in self.measured("gpu", peers=False)}
        found = [
            (variant, [measured[part] for part in variant.header.combines if part in measured])
            for variant in measured.values()
        ]
        return [(variant, parts) for variant, parts in found if parts]

    @cached_property
    def published(self) -> pd.DataFrame:
        """What the report that this study follows stated; empty where there is none."""
        path = PUBLISHED / f"{self.name}.csv"
        if not path.exists():
            return pd.DataFrame()
        texts = pd.read_csv(path, dtype=str, keep_default_na=False)
        return texts.assign(value=texts.value.astype(float))

    def beside(self, row: Any) -> float | None:
        """Our figure for a published one: the same variant and layer, at its size or the largest."""
        name = row.variant
        if name in ("framework_cpu", "framework_gpu"):
            framework = self.framework(name.removeprefix("framework_"))
            name = framework.name if framework else ""
        if name not in self.plan.variants:
            return None
        size = int(row.size) if row.size.isdigit() and int(row.size) in self.sizes else self.largest
        device = self.plan.variants[name].device
        if row.quantity in ("op_ms", "kernel_ms"):
            kind = "op" if row.quantity == "op_ms" or device == "cpu" else "gpu"
            single = row.layer in [layer.name for layer in self.layers]
            if not single and row.layer != "both" and len(self.layers) > 1:
                return None  # one layer's, not said which
            figure = self.op(name, row.layer, size, kind) if single else self.total(name, size, kind)
            return figure.value if figure else None
        low = "low" if "weights: low" in row.note and "low" in self.network.weight_sets else None
        runs = self.program(name, size, low)
        if runs.empty or row.quantity not in runs:
            return None
        return float(runs[row.quantity].median())

    def launches(self, variant: str, size: int) -> list[dict[str, Any]]:
        """The kernels of a profiled program, one row for each kernel and launch shape, in order of first launch.

        Static shared memory is the compiler's figure and known for our kernels alone; the rest was asked for at launch.
        """
        frame = self.trace(variant, size)
        events = frame[frame.kind == "kernel"]
        arch = self.gpu_run.gpu["arch"] if self.gpu_run and self.gpu_run.gpu else ""
        builds = self.gpu_run.table(tables.BUILDS) if self.gpu_run else tables.BUILDS.empty()
        static = builds[(builds.variant == variant) & (builds.arch == arch)].set_index("kernel").shared_bytes
        rows = []
        for (name, grid, block), group in events.groupby(["name", "grid", "block"], sort=False):
            total = group.shared_bytes.iloc[0]
            own = int(static[name]) if name in static else None
            rows.append(
                {
                    "name": name,
                    "grid": grid,
                    "block": block,
                    "calls": len(group),
                    "total_ns": int((group.end_ns - group.start_ns).sum()),
                    "registers": group.registers.iloc[0],
                    "static_bytes": own,
                    "dynamic_bytes": int(total) - own if own is not None and pd.notna(total) else None,
                    "shared_bytes": total,
                }
            )
        return rows

    # Hardware counters

    @property
    def counted(self) -> list[tuple[Variant, ConvLayer, Call]]:
        """The counted calls of variants with sound figures, variant by variant."""
        return [
            (variant, layer, self.calls[variant.name, layer.name])
            for variant in self.measured("gpu")
            for layer in self.layers
            if (variant.name, layer.name) in self.calls
        ]

    @property
    def uncounted(self) -> dict[str, list[str]]:
        """What kept counters from being read: {reason: the calls that it kept from it}."""
        failed = self.counters[self.counters.status != "ok"]
        places = failed.variant + " on " + failed.layer
        return {str(reason): sorted(group) for reason, group in places.groupby(failed.reason)}

    @property
    def unread(self) -> list[str]:
        """Counters that were asked for, and of which the profiler gave no reading at all."""
        asked = self.counters[self.counters.status == "ok"]
        return sorted(metric for metric, values in asked.groupby("metric").value if values.isna().all())

    def watched(self, variant: Variant) -> list[Moved]:
        """The counter that a variant's header names, on each layer before and after; none where it was not read."""
        metric, found = counters.metric_of(variant.header.check), []
        for layer in self.layers:
            pair = [self.calls.get((name, layer.name)) for name in (variant.header.builds_on, variant.name)]
            if metric and all(pair) and pair[0].images == pair[1].images:
                before, after = (call.value(metric) for call in pair)
                if before is not None and after is not None:
                    found.append(counters.moved(variant.header.check, layer.name, before, after))
        return found

    # How far the harness itself is to be trusted

    @cached_property
    def again(self) -> pd.DataFrame:
        """A variant against its own copy, over all networks of the run that GPU figures come from: variant, network,
        layer, size, state, kind, value, low, high, verdict. Whatever is called faster or slower is an error."""
        columns = ["variant", "network", "layer", "size", "state", "kind", "value", "low", "high", "verdict"]
        rows = []
        samples = self.gpu_run.table(tables.SAMPLES) if self.gpu_run else tables.SAMPLES.empty()
        samples = samples[samples.job.str.startswith("again:") & (samples.status == "ok") & ~samples.throttled]
        for key, group in samples.groupby(["job", *columns[1:6]], sort=False):
            name = key[0].split(":")[1]
            sides = group.pivot(index="sample", columns="variant", values="time_ms").dropna()
            if sides.shape[1] == 2:
                ratio = estimates.paired_ratio(sides[f"{name}:again"].to_numpy(), sides[name].to_numpy())
                verdict = estimates.verdict(ratio, self.config.measuring.same_within)
                rows.append([name, *key[1:], ratio.value, ratio.low, ratio.high, verdict])
        return pd.DataFrame(rows, columns=columns)

    def besides(self, table: tables.Table) -> pd.DataFrame:
        """A table that a run holds where it was asked to, of variants whose figures are not stale."""
        frame = self.gpu_run.table(table) if self.gpu_run else table.empty()
        if "variant" not in frame:
            return frame
        usable = [variant.name for variant in self.wanted("gpu") if not self.stale(variant)]
        return frame[frame.variant.isin(usable)]

    # Figures

    def _series(self, variant: str, layer: str, size: int, kind: str, state: str, job: str | None = None) -> np.ndarray:
        return self._by_series.get((job or variant, variant, layer, size, state, kind), np.empty(0))

    @cached_property
    def _by_series(self) -> dict[tuple[str, str, str, int, str, str], np.ndarray]:
        """Times by (job, variant, layer, size, state, kind), NaN where throttled, so that pairs stay in step."""
        sound = self.samples[self.samples.status == "ok"]
        times = sound.time_ms.where(~sound.throttled)
        keys = ["job", "variant", "layer", "size", "state", "kind"]
        found = {key: group.to_numpy(copy=True) for key, group in times.groupby([sound[key] for key in keys])}
        for key, kernels in found.items():
            # Kernels cannot take longer than the call that launches them: such a sample holds something else.
            calls = found.get((*key[:5], "op"))
            if key[5] == "gpu" and calls is not None:
                kernels[kernels > 2 * np.nanmedian(calls)] = np.nan
        return {key: kept for key, kept in found.items() if not np.isnan(kept).all()}

    @cached_property
    def refused_samples(self) -> int:
        """Samples that were sound in the run and are no figure here: kernel times of more than twice the call's own."""
        sound = int((self.samples.time_ms.notna() & (self.samples.status == "ok") & ~self.samples.throttled).sum())
        return sound - sum(int((~np.isnan(times)).sum()) for times in self._by_series.values())

    def state_of(self, variant: str) -> str:
        return STATE[self.plan.variants[variant].device]

    def op(self, variant: str, layer: str, size: int, kind: str = "op", state: str | None = None) -> Estimate | None:
        """Median time in ms of one layer, with its interval; None where there is no sound figure."""
        times = self._series(variant, layer, size, kind, state or self.state_of(variant))
        times = times[~np.isnan(times)]
        return estimates.median(times) if len(times) else None

    def total(self, variant: str, size: int, kind: str = "op") -> Estimate | None:
        """Sum over the layers of their medians in ms, with a bootstrap interval; None where a layer has no figure."""
        if len(self.layers) == 1:
            return self.op(variant, self.layers[0].name, size, kind)
        series = [self._series(variant, layer.name, size, kind, self.state_of(variant)) for layer in self.layers]
        series = [times[~np.isnan(times)] for times in series]
        return estimates.sum_of_medians(series) if all(map(len, series)) else None

    def _pairs(self, variant: str, over: str, layer: str, size: int, kind: str) -> tuple[np.ndarray, np.ndarray] | None:
        """(baseline's times, variant's times) of the same rounds of the variant's job; None where there are none."""
        state = self.state_of(variant)
        mine = self._series(variant, layer, size, kind, state)
        theirs = self._series(over, layer, size, kind, state, job=variant)
        if not len(theirs) or len(mine) != len(theirs):
            return None
        sound = ~np.isnan(mine) & ~np.isnan(theirs)
        return (theirs[sound], mine[sound]) if sound.any() else None

    def before(self, variant: str, layer: str, size: int) -> Estimate | None:
        """Op time of what a variant builds on, from the samples taken in turn with it; its own where there are none."""
        over = self.plan.variants[variant].header.builds_on
        pairs = self._pairs(variant, over, layer, size, "op")
        return estimates.median(pairs[0]) if pairs else self.op(over, layer, size)

    def speedup(self, variant: str, layer: str, size: int, over: str | None = None, kind: str = "op") -> Speedup | None:
        """How many times faster a variant is on one layer than `over` (by default what it builds on).

        Paired where both were timed in turn, else the ratio of two series of their own, of one device or two.
        """
        over = over or self.plan.variants[variant].header.builds_on
        if not over:
            return None
        pairs = self._pairs(variant, over, layer, size, kind)
        if pairs:
            ratio = estimates.paired_ratio(*pairs)
        else:
            sides = [self._series(name, layer, size, kind, self.state_of(name)) for name in (over, variant)]
            sides = [times[~np.isnan(times)] for times in sides]
            if not all(map(len, sides)):
                return None
            ratio = estimates.unpaired_ratio(*sides)
        return Speedup(ratio, pairs is not None, estimates.verdict(ratio, self.config.measuring.same_within))

    def total_speedup(self, variant: str, size: int, over: str | None = None, kind: str = "op") -> Speedup | None:
        """The same for the sum over all layers."""
        over = over or self.plan.variants[variant].header.builds_on
        if not over:
            return None
        if len(self.layers) == 1:
            return self.speedup(variant, self.layers[0].name, size, over, kind)
        pairs = [self._pairs(variant, over, layer.name, size, kind) for layer in self.layers]
        if all(pairs):
            ratio = estimates.ratio_of_sums([pair[0] for pair in pairs], [pair[1] for pair in pairs], paired=True)
        else:
            sides = [
                [self._series(name, layer.name, size, kind, self.state_of(name)) for layer in self.layers]
                for name in (over, variant)
            ]
            sides = [[times[~np.isnan(times)] for times in side] for side in sides]
            if not all(len(times) for side in sides for times in side):
                return None
            ratio = estimates.ratio_of_sums(*sides, paired=False)
        return Speedup(ratio, all(pairs), estimates.verdict(ratio, self.config.measuring.same_within))

    def bound_ms(self, layer: ConvLayer, size: int) -> float | None:
        """The hardware's lower bound for FP32 on the GPU of the GPU's run: bytes at its copy rate, operations at its
        peak."""
        if self.gpu_run is None or self.gpu_run.gpu is None:
            return None
        gpu = self.gpu_run.gpu
        return timing.lower_bound_ms(layer, size, gpu["copy_gb_per_s"], gpu["peak_gflop_per_s"]["fp32"])

    def total_bound_ms(self, size: int) -> float | None:
        bounds = [self.bound_ms(layer, size) for layer in self.layers]
        return None if None in bounds else sum(bounds)

    def bound_by(self, layer: ConvLayer, size: int) -> str:
        """Which of the two makes the lower bound: `memory bandwidth` or `FP32 arithmetic`."""
        assert self.gpu_run is not None and self.gpu_run.gpu is not None
        moved = timing.lower_bound_ms(layer, size, self.gpu_run.gpu["copy_gb_per_s"], None)
        return "memory bandwidth" if moved == self.bound_ms(layer, size) else "FP32 arithmetic"

    def program(self, variant: str, size: int, weight_set: str | None = None) -> pd.DataFrame:
        """The runs of the whole program with one variant at one size."""
        frame = self.programs
        chosen = weight_set or self.network.weight_sets[0]
        return frame[
            (frame.variant == variant) & (frame["size"] == size) & (frame.weights == chosen) & (frame.status == "ok")
        ]

    def correct(self, variant: str) -> dict[str, Any] | None:
        """A variant's tests in sum: how many, worst error over its tolerance, labels that differ; None where there
        are none."""
        return _summed(self.correctness[self.correctness.variant == variant])

    @property
    def also_checked(self) -> list[tuple[Variant, dict[str, Any]]]:
        """GPU variants that the study does not compare but the run checked on its network, with their tests in sum."""
        if self.gpu_run is None:
            return []
        tests = self.gpu_run.table(tables.CORRECTNESS)
        tests = tests[(tests.network == self.network.name) & (tests.device == "gpu")]
        wanted = [variant.name for variant in self.wanted("gpu")]
        found = []
        for name in dict.fromkeys(tests.variant):
            variant = self.plan.variants.get(name)
            summed = _summed(tests[tests.variant == name])
            if name not in wanted and variant and not self.stale(variant) and summed:
                found.append((variant, summed))
        return found

    def emulated(self, variant: str) -> dict[str, Any] | None:
        """The same of a GPU variant's own source, run on the CPU of this machine; None where it was not."""
        tests = self.local.table(tables.CORRECTNESS)
        own = (tests.variant == variant) & (tests.network == self.network.name) & (tests.device == "emulator")
        return _summed(tests[own])

    def tests(self, test: str, variant: str | None = None, size: int | None = None) -> pd.DataFrame:
        """Tests of one kind on the network itself (ragged shapes left out), of one variant and size where named."""
        frame = self.correctness[(self.correctness.test == test) & self.correctness.layer.isin(self._places)]
        if variant is not None:
            frame = frame[frame.variant == variant]
        return frame if size is None else frame[frame["size"] == size]

    def profile(self, variant: str, size: int, kinds: tuple[str, ...]) -> list[ProfileRow]:
        """A profile's rows by name, longest first: GPU_KINDS or API_KINDS."""
        frame = self.trace(variant, size)
        events = frame[frame.kind.isin(kinds)]
        if events.empty:
            return []
        spans = (events.end_ns - events.start_ns).groupby(events.name)
        table = spans.agg(["sum", "count", "mean", "min", "max"]).sort_values("sum", ascending=False)
        whole = table["sum"].sum()
        return [
            ProfileRow(
                str(name),
                row["sum"] / whole,
                int(row["sum"]),
                int(row["count"]),
                row["mean"],
                int(row["min"]),
                int(row["max"]),
            )
            for name, row in table.iterrows()
        ]

    def profile_problem(self, variant: str, size: int) -> str:
        """Why there is no profile of a program; empty when there is one."""
        if not self.trace(variant, size).empty:
            return ""
        asked = self.profiles[(self.profiles.variant == variant) & (self.profiles["size"] == size)]
        if asked.empty:
            return "it was not profiled in the run that the figures come from"
        return str(asked.reason.iloc[0])


def _summed(tests: pd.DataFrame) -> dict[str, Any] | None:
    if tests.empty:
        return None
    supported = tests[tests.status != "unsupported"]
    labels = supported[supported.test == "labels"].mismatched_labels
    return {
        "tests": len(supported),
        "passed": int(supported.ok.sum()),
        "worst_ratio": supported.worst_ratio.max(),
        "rel_l2_err": supported.rel_l2_err.max(),
        "labels": int(labels.max()) if labels.notna().any() else None,
        "failure": tables.failure(tests.to_dict("records")),
        "unsupported": tests[tests.status == "unsupported"].reason.iloc[0] if supported.empty else "",
    }


def most_of(rows: list[ProfileRow], share: float = 0.9) -> list[ProfileRow]:
    """The first rows that together exceed a share of the whole."""
    taken, covered = [], 0.0
    for row in rows:
        taken.append(row)
        covered += row.share
        if covered > share:
            break
    return taken


def load(plan: Plan, study: str, local: Run) -> Evidence:
    """The evidence of a study; UserError where the local run is damaged."""
    if local.problem:
        raise runs.UserError(local.problem)
    return Evidence(plan, study, local)
