"""Runs of the inference program, streams of more images than the data set has, and what profilers saw."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from warpbook.kernels.variants import Variant
from warpbook.machine import available_profilers
from warpbook.profiling import counters
from warpbook.report.evidence.scope import EvidencePart, cached_method
from warpbook.runs import tables
from warpbook.runs.schema import Row
from warpbook.workflow import streams


class ProgramTimes(EvidencePart):
    """Whole programs, timed as GNU time does."""

    @cached_property
    def table(self) -> pd.DataFrame:
        return self._ev.selection.at_sizes(tables.PROGRAMS)

    def runs(self, variant: str, size: int, weight_set: str | None = None) -> pd.DataFrame:
        """The sound runs of the program with one variant at one size, with the network's first weights by default."""
        frame = self.table
        weights = weight_set or next(iter(self._ev.network.weight_sets), "")
        chosen = (frame.variant == variant) & (frame["size"] == size) & (frame.weights == weights)
        return frame[chosen & (frame.status == "ok")]

    def framework(self, device: str) -> Variant | None:
        """The peer that runs whole networks on a device: milestone 1's framework."""
        peers = [variant for variant in self._ev.compared_variants(device) if variant.header.peer]
        return next((peer for peer in peers if not self.runs(peer.name, self._ev.largest).empty), None)


class StreamTimes(EvidencePart):
    """Streams of the runs cited, stale ones left out."""

    @cached_property
    def rows(self) -> list[Row]:
        """Rows of STREAMS, a variant's together, fewer images and devices first."""
        shards = self._ev.selection.rows(tables.STREAM_SHARDS)
        return sorted(
            streams.summarize_streams(shards),
            key=lambda row: (row["variant"], row["images"], row["devices"], row["shards"]),
        )


GPU_KINDS = ("kernel", "memcpy_htod", "memcpy_dtoh", "memcpy_dtod", "memcpy_other", "memset")
API_KINDS = ("api_runtime", "api_driver")


def layer_events(events: pd.DataFrame, layer: str, variant: str) -> pd.DataFrame:
    """A layer's range in a traced program, the calls in it and the device's work that they started, by start."""
    ranges = events[(events.kind == "range") & (events.name == f"{layer} {variant}")].head(1)
    if ranges.empty:
        return events.head(0)
    began, ended = ranges.start_ns.iloc[0], ranges.end_ns.iloc[0]
    calls = events[events.kind.isin(API_KINDS) & events.start_ns.between(began, ended)]
    work = events[events.kind.isin(GPU_KINDS) & events.correlation.isin(calls.correlation)]
    return pd.concat([ranges, calls, work]).sort_values("start_ns")


@dataclass(frozen=True)
class ProfileRow:
    """One line of a profile, as nvprof has it: times in ns; what an imported profile has lost is None."""

    name: str
    share: float
    total_ns: int
    calls: int | None
    avg_ns: float | None
    min_ns: float | None
    max_ns: float | None


@dataclass(frozen=True)
class KernelLaunches:
    """Launches of one kernel of a profiled program in one shape; None: not known."""

    name: str
    grid: str
    block: str
    calls: int
    total_ns: int
    registers: Any  # pandas.NA where the profiler does not say
    static_bytes: int | None
    dynamic_bytes: int | None
    shared_bytes: int | None


class ProfileValues(EvidencePart):
    """Traces of programs: events, and their sums."""

    @cached_property
    def _watched(self) -> pd.DataFrame:
        return self._ev.selection.at_sizes(tables.PROFILES)

    @property
    def table(self) -> pd.DataFrame:
        """Programs that profilers watched, or should have, with the network's first weights."""
        return self._watched[self._watched.weights == ""]

    @cached_property
    def by_weights(self) -> dict[str, dict[tuple[str, str, int], pd.DataFrame]]:
        """Events by (tool, variant, size) by weight set."""
        held: dict[str, dict[tuple[str, str, int], pd.DataFrame]] = {"": {}}
        programs: Iterable[Any] = self._ev.selection.at_sizes(tables.ACTIVITIES).groupby(
            ["weights", "tool", "variant", "size"], sort=False
        )
        for (weights, tool, variant, size), events in programs:
            held.setdefault(weights, {})[tool, variant, size] = events
        return held

    @cached_property
    def traced(self) -> dict[tuple[str, str, int], pd.DataFrame]:
        """Each profiler's view of each program with the first weights, by (tool, variant, size), by start."""
        return self.by_weights[""]

    @cached_property
    def tracer(self) -> str:
        """The profiler whose traces the tables and timelines show; empty where there is none."""
        tools = {tool for tool, _, _ in self.traced}
        return next((tool for tool in available_profilers.TRACERS if tool in tools), "")

    def events(self, variant: str, size: int, tool: str | None = None, weights: str = "") -> pd.DataFrame:
        """Events of one program, as `tracer` or another tool saw them. weights: a set besides the first."""
        held = self.by_weights.get(weights, {}).get((tool or self.tracer, variant, size))
        return tables.ACTIVITIES.empty() if held is None else held

    @cached_method
    def within_layer(self, variant: str, layer: str, size: int, tool: str | None = None) -> pd.DataFrame:
        """`layer_events` of one program."""
        return layer_events(self.events(variant, size, tool), layer, variant)

    @cached_method
    def rows(self, variant: str, size: int, kinds: tuple[str, ...], weights: str = "") -> list[ProfileRow]:
        """A profile's rows by name, longest first: GPU_KINDS or API_KINDS."""
        sums = self._sums(variant, size, weights)
        if sums.empty:
            return self.sum_by_name(self.events(variant, size, weights=weights), kinds)
        of_kinds = sums[sums.kind.isin(kinds)].sort_values("total_ns", ascending=False)
        columns: Any = of_kinds[["name", "total_ns", "calls", "avg_ns", "min_ns", "max_ns"]]
        whole = of_kinds.total_ns.sum()
        return [ProfileRow(name, total / whole, total, *rest) for name, total, *rest in columns.itertuples(index=False)]

    def _sums(self, variant: str, size: int, weights: str) -> pd.DataFrame:
        """Rows of SUMMARIES of a program that had more events than a run keeps; none where it has its events."""
        every = self._ev.selection.at_sizes(tables.SUMMARIES)
        of_it = (every.tool == self.tracer) & (every.variant == variant) & (every["size"] == size)
        return every[of_it & (every.weights == weights)]

    @staticmethod
    def sum_by_name(frame: pd.DataFrame, kinds: tuple[str, ...]) -> list[ProfileRow]:
        """Time and calls of events of some kinds, summed by name, largest sum first."""
        events = frame[frame.kind.isin(kinds)]
        if events.empty:
            return []
        spans = (events.end_ns - events.start_ns).groupby(events.name)
        table = spans.agg(["sum", "count", "mean", "min", "max"]).sort_values("sum", ascending=False)
        whole = table["sum"].sum()
        return [
            ProfileRow(str(name), total / whole, int(total), int(calls), mean, int(least), int(most))
            for name, total, calls, mean, least, most in table.itertuples(name=None)
        ]

    @cached_property
    def kernel_names(self) -> list[str]:
        """The kernels of all our programs, in the order of the variants and of first launch."""
        ours = [variant.name for variant in self._ev.compared_variants("gpu") if not variant.header.peer]
        frames = (self.events(variant, size) for variant in ours for size in self._ev.sizes)
        return list(dict.fromkeys(name for frame in frames for name in frame[frame.kind == "kernel"].name.unique()))

    def problem(self, variant: str, size: int, weights: str = "") -> str:
        """Why there is no profile of a program; empty when there is one, of single events or of sums."""
        return "" if not self._sums(variant, size, weights).empty else self.events_problem(variant, size, weights)

    def events_problem(self, variant: str, size: int, weights: str = "") -> str:
        """Why a run holds no single events of a program; empty when it does."""
        if not self.events(variant, size, weights=weights).empty:
            return ""
        asked = self._watched[(self._watched.variant == variant) & (self._watched["size"] == size)]
        asked = asked[asked.weights == weights]
        if asked.empty:
            with_them = f" with the weights {weights}" if weights else ""
            return f"it was not profiled{with_them} in the cited run"
        return str(asked.reason.iloc[0])

    @cached_method
    def launches(self, variant: str, size: int) -> list[KernelLaunches]:
        """The kernels of a profiled program, one for each kernel and launch shape, in order of first launch."""
        return self.group_launches(self.events(variant, size), self._static_bytes(variant))

    @staticmethod
    def group_launches(frame: pd.DataFrame, static: "pd.Series[Any] | dict[str, int]") -> list[KernelLaunches]:
        """Kernel launches of some events, grouped by kernel, grid and block. static: the kernels' static shared memory, where
        the events do not say it."""
        events = frame[frame.kind == "kernel"]
        rows = []
        shapes: Iterable[Any] = events.groupby(["name", "grid", "block"], sort=False)
        for (name, grid, block), group in shapes:
            total, part = (
                None if pd.isna(column.iloc[0]) else int(column.iloc[0])
                for column in (group.shared_bytes, group.static_shared_bytes)
            )
            if part is None:
                part = 0 if total == 0 else int(static[name]) if name in static else None
            rows.append(
                KernelLaunches(
                    name=name,
                    grid=grid,
                    block=block,
                    calls=len(group),
                    total_ns=int((group.end_ns - group.start_ns).sum()),
                    registers=group.registers.iloc[0],
                    static_bytes=part,
                    dynamic_bytes=None if total is None or part is None else total - part,
                    shared_bytes=total,
                )
            )
        return rows

    def main_kernel(self, variant: str) -> tuple[str, pd.DataFrame]:
        """The kernel that took most of a variant's program, or of its calls, as `_longest_kernel` has it, else its header's;
        and its row of the builds for the GPU cited, no row where it was not built."""
        built = self._ev.builds.kernels(variant)
        name = self._longest_kernel(variant, set(built.kernel)) or self._ev.plan.variants[variant].kernel
        return name, built[built.kernel == name.partition("<")[0]]

    def _longest_kernel(self, variant: str, among: set[str]) -> str:
        """Which of some kernels took most of the program at the largest size that was traced, or without a program was the
        longest that was counted; empty where none was."""
        for size in reversed(self._ev.sizes):
            launches = self.launches(variant, size)
            if launches:
                traced = [launch for launch in launches if launch.name in among]
                return max(traced, key=lambda launch: launch.total_ns).name if traced else ""
        counted = [launch for launch in self._ev.counters.launches(variant) if launch.kernel in among]
        longest = max(counted, key=lambda launch: launch.values.get(counters.DURATION, 0.0), default=None)
        return longest.kernel if longest else ""

    @cached_method
    def _static_bytes(self, variant: str) -> "pd.Series[Any]":
        """Static shared memory by kernel, as built for the GPU's run."""
        run = self._ev.gpu_run
        builds = run.table(tables.BUILDS) if run else tables.BUILDS.empty()
        arch = run.gpu["arch"] if run and run.gpu else ""
        return builds[(builds.variant == variant) & (builds.arch == arch)].set_index("kernel").shared_bytes.dropna()


def first_rows_covering(rows: list[ProfileRow], share: float = 0.9) -> list[ProfileRow]:
    """The first rows that together exceed a share of the whole."""
    taken, covered = [], 0.0
    for row in rows:
        taken.append(row)
        covered += row.share
        if covered > share:
            break
    return taken
