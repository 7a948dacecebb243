"""Hardware counters by Nsight Compute's names: which are read, what they tell of a call, what bounds its kernel."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from warpbook.common import units
from warpbook.kernels.variants import Variant

if TYPE_CHECKING:
    import pandas as pd

SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
DURATION = "gpu__time_duration.sum"
DRAM_BYTES = "dram__bytes.sum"
LOADED_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
FFMA, FADD, FMUL = (f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("ffma", "fadd", "fmul"))
HMMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"
HFMA2 = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"

STALLS = {
    "long_scoreboard": "data from global or local memory",
    "short_scoreboard": "data from shared memory or a special function",
    "barrier": "other warps at a barrier",
    "mio_throttle": "room in the queue for shared memory",
    "lg_throttle": "room in the queue for global and local memory",
    "math_pipe_throttle": "a busy arithmetic pipe",
    "wait": "the fixed latency of their last instruction",
    "dispatch_stall": "the dispatcher",
    "imc_miss": "a constant that the cache lacks",
    "no_instruction": "their next instruction to be fetched",
    "tex_throttle": "room in the texture queue",
    "membar": "a memory barrier",
    "drain": "their stores to be written before they end",
    "branch_resolving": "the target of a branch",
    "sleeping": "a sleep to end",
    "gmma": "a tensor-core product",
    "misc": "other reasons",
}
"""What a warp that cannot issue waits for, by ncu's name for it."""
READY = "not_selected"  # a warp that could issue while another one did: it waits for nothing, but its time passes
_WAITS = {name: f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio" for name in (*STALLS, READY)}

ALWAYS = (
    SM, MEMORY, DRAM, L1, L2, ISSUE, ACHIEVED, THEORETICAL, DURATION, DRAM_BYTES, "dram__bytes_read.sum",
    "dram__bytes_write.sum", INSTRUCTIONS, FFMA, FADD, FMUL, HMMA, HFMA2,
    *_WAITS.values(),
)  # fmt: skip
"""Read of every launch, besides what the variants' headers name."""

HIGH, LOW = 80.0, 60.0  # percent of a unit's peak: it bounds the kernel; below this no unit does
UNCHANGED_WITHIN = 0.02  # a counter that changes by less has not moved

_METRIC = re.compile(r"[a-z0-9]+__\w[\w.]*\w")
_SCALES = {
    "ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
    "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
}  # fmt: skip


def named_metric(check: str) -> str:
    """The counter that a header's `check` names: its first word, if that is a counter's name; else empty."""
    match = _METRIC.match(check)
    return match[0] if match else ""


def metrics_to_read(variants: Iterable[Variant]) -> list[str]:
    """The counters to read of every launch: those always read, and those that any variant's header or claim names."""
    read = list(variants)
    named = {named_metric(variant.header.check) for variant in read}
    claimed = {claim.counter for variant in read for claim in variant.header.claims}
    return [*ALWAYS, *sorted((named | claimed) - {"", *ALWAYS})]


@dataclass(frozen=True)
class CountedLaunch:
    """One counted launch of a kernel: readings by counter, times in ns and amounts of memory in bytes."""

    kernel: str
    values: dict[str, float]

    @property
    def fp32_flop(self) -> float | None:
        """FP32 operations done, a multiply-add as two; what tensor cores and half precision do is not among them."""
        if not self.values.keys() >= {FFMA, FADD, FMUL}:
            return None
        return 2 * self.values[FFMA] + self.values[FADD] + self.values[FMUL]

    @property
    def _waits(self) -> dict[str, float]:
        """Shares of a warp's time between two instructions, by what it waits for."""
        waits = {name: self.values[metric] for name, metric in _WAITS.items() if metric in self.values}
        return {name: wait / (1 + sum(waits.values())) for name, wait in waits.items()}  # it issues in one cycle

    @property
    def stall(self) -> tuple[str, float] | None:
        """(the reason that warps wait for most, its share of a warp's time between two instructions)."""
        stalls = [(name, share) for name, share in self._waits.items() if name != READY]
        return max(stalls, key=lambda stall: stall[1], default=None)

    @property
    def ready(self) -> float | None:
        """The share of a warp's time between two instructions in which it could issue and another one did, which no
        stall's share holds; None where it was not read."""
        return self._waits.get(READY)


@dataclass(frozen=True)
class CountedCall:
    """The counted launches of one call with so many images, which makes `total_launches` launches in all."""

    images: int
    launches: tuple[CountedLaunch, ...]
    total_launches: int

    @property
    def longest(self) -> CountedLaunch:
        """The launch that took longest, which stands for the call where a figure has no sum."""
        return max(self.launches, key=lambda launch: launch.values.get(DURATION, 0.0))

    @property
    def longest_share(self) -> float | None:
        """The share of the counted launches' time that the longest's kernel takes; None where times were not read."""
        times = [(launch.kernel, launch.values.get(DURATION)) for launch in self.launches]
        whole = sum(ns or 0.0 for _, ns in times)
        return sum(ns or 0.0 for name, ns in times if name == self.longest.kernel) / whole if whole else None

    @property
    def fp32_flop(self) -> float | None:
        """FP32 operations of the whole call, those on padding too."""
        return self._scale_up([launch.fp32_flop for launch in self.launches])

    def roofline_point(self, flop: float | None) -> tuple[float, float] | None:
        """(operations for each byte that DRAM moves, GFLOP/s) of a call of so many operations, if counted."""
        moved, ns = self.value(DRAM_BYTES), self.value(DURATION)
        return (flop / moved, flop / ns) if flop and moved and ns else None

    @property
    def is_truncated(self) -> bool:
        """Whether only the first launches were counted, so that sums are scaled up from them."""
        return len(self.launches) < self.total_launches

    def value(self, metric: str) -> float | None:
        """A counter of the whole call: its sum over the launches, or of the longest launch where it is no sum."""
        if not metric.endswith(".sum"):
            return self.longest.values.get(metric)
        return self._scale_up([launch.values.get(metric) for launch in self.launches])

    def instruction_share(self, metric: str) -> float | None:
        """The share of its instructions that a counter counts, in percent; None where there is no reading."""
        counted, made = self.value(metric), self.value(INSTRUCTIONS)
        return percent_of_instructions(metric, counted, made) if counted is not None and made else None

    @property
    def matrix_share(self) -> float | None:
        """The share of its instructions that are mma or wgmma, in percent; None where there is no reading."""
        whole, halves = self.instruction_share(HMMA), self.instruction_share(HFMA2)
        return whole - halves if whole is not None and halves is not None else None

    def _scale_up(self, counted: list[float | None]) -> float | None:
        """A sum over all launches from those counted; None where one gave no reading."""
        readings = [count for count in counted if count is not None]
        return sum(readings) * self.total_launches / len(readings) if len(readings) == len(counted) else None


_RATES = {f"{prefix}{unit}/s": 1e3**power for unit in ("B", "byte") for power, prefix in enumerate(("", *"KMGT"))}


def scale(unit: str) -> float:
    """What a reading in `unit` is multiplied by to be in ns, bytes or bytes/s; 1 for other units."""
    return _SCALES.get(unit, _RATES.get(unit, 1.0))


def base_unit(unit: str) -> str:
    """ns for units of time, byte and byte/s for those of data; other units themselves."""
    if unit in _RATES:
        return "byte/s"
    return unit if unit not in _SCALES else "byte" if unit.endswith("byte") else "ns"


def counted_calls(frame: "pd.DataFrame") -> dict[tuple[str, str], CountedCall]:
    """The counted calls in rows of COUNTERS, by (variant, layer); those of the most images where there are several."""
    counted_calls: dict[tuple[str, str], CountedCall] = {}
    counted = frame[(frame.status == "ok") & (frame.tool == "ncu")]
    for (variant, layer), of_layer in counted.groupby(["variant", "layer"]):
        rows = of_layer[of_layer["size"] == of_layer["size"].max()]
        launches = []
        for _, launch in rows.groupby("launch", sort=True):
            read = launch[launch.value.notna()]
            readings = zip(read.metric, read.unit, read.value, strict=True)
            values = {metric: value * _SCALES.get(unit, 1.0) for metric, unit, value in readings}
            launches.append(CountedLaunch(launch.kernel.iloc[0], values))
        made = max([len(launches), *rows.launches.dropna()])
        counted_calls[str(variant), str(layer)] = CountedCall(int(rows["size"].iloc[0]), tuple(launches), int(made))
    return counted_calls


def percent_of_instructions(metric: str, counted: float, instructions: float) -> float:
    """What a counter counted in percent of instructions, of which a warp's count as one: FP32 FMAs are a thread's."""
    return 100 * counted / (32 if metric == FFMA else 1) / instructions


UNITS = {
    DRAM: "DRAM",
    L2: "the L2 cache",
    L1: "the L1 cache and shared memory",
    SM: "the multiprocessor's pipes",
    ISSUE: "instruction issue",
}
"""What may bound a kernel, by the counter of its throughput in percent: of the schedulers' cycles, else of its peak."""


def nearest_peak(launch: CountedLaunch) -> str:
    """The counter of the unit nearest its peak, pipes as busy as issue aside; empty where one is missing. All that DRAM
    moves passes through L2, so where both are busy it is DRAM."""
    used = {metric: launch.values[metric] for metric in UNITS if metric != ISSUE and metric in launch.values}
    if len(used) < len(UNITS) - 1:
        return ""
    most = max(used, key=lambda metric: used[metric])
    if most == SM and launch.values.get(ISSUE, 0.0) >= 0.9 * used[SM]:
        return ISSUE
    return DRAM if most == L2 and used[DRAM] >= HIGH else most


def bound_sentence(launch: CountedLaunch) -> str:
    """What bounds a kernel: the unit nearest its peak (from HIGH; in part from LOW), or latency; else empty."""
    unit = nearest_peak(launch)
    if not unit:
        return ""
    name, most = UNITS[unit], launch.values[unit]
    peak = f"schedulers issue in {percent(most)} of cycles" if unit == ISSUE else f"{percent(most)} of peak"
    instructions = launch.values.get(INSTRUCTIONS)
    fmas = launch.values.get(FFMA)
    if unit in (SM, ISSUE) and instructions and fmas:
        peak += f"; {percent(percent_of_instructions(FFMA, fmas, instructions))} of instructions are FP32 FMAs"
    waits = (
        f"warps wait {percent(100 * launch.stall[1])} of their time for {STALLS[launch.stall[0]]}"
        if launch.stall
        else ""
    )
    if most >= HIGH:
        return f"Bound by {name}: {peak}."
    if most >= LOW:
        return f"Bound in part by {name}, {peak}" + (f". In part by latency: {waits}." if waits else ".")
    least = f"nearest its peak: {name}, {percent(most)}"
    return "Bound by latency: " + (f"{waits}; {least}." if waits else f"{least}.")


def percent(value: float | None) -> str:
    """A reading in percent for people, a dash where there is none."""
    return units.MISSING if value is None else units.percent(value / 100, 0)


NAMES = {
    "smsp__inst_executed_op_global_ld.sum": "global load instructions, counted once a warp",
    LOADED_SECTORS: "sectors of 32 bytes loaded from global memory",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "sectors stored to global memory",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum": "sectors of atomics on global memory",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": "sectors stored to local memory",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": "wavefronts of loads from shared memory",
    "lts__t_sectors_op_write.sum": "sectors written to L2",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "threads active an instruction",
    HMMA: "instructions of the tensor cores' pipe (HMMA, HGMMA, and HFMA2, which compilers set registers by)",
    INSTRUCTIONS: "instructions, counted once a warp",
    FFMA: "FP32 multiply-adds (FFMA), counted for each thread",
    DRAM_BYTES: "bytes moved by DRAM",
    SM: "throughput of the multiprocessors",
    DRAM: "throughput of DRAM",
    L1: "throughput of L1 and shared memory",
    L2: "throughput of L2",
}
"""Counters for what they count: sectors are no load instructions."""


def describe_metric(metric: str) -> str:
    """What a counter counts, in words; its own name where there are none."""
    return NAMES.get(metric, metric)


def amount(value: float, metric: str) -> str:
    """A counter's reading for people: 12.3 M, 4.12 G, 61.2 %."""
    if metric.endswith("pct") or ".pct" in metric:
        return f"{units.significant(value, 3)}\u202f%"
    for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{units.significant(value / scale, 3)}\u202f{prefix}"
    return units.significant(value, 3)
