"""The least time that a GPU allows a case: its bytes at a measured rate, or its operations at the peak rate.
There are two bounds, whose bytes count at the fastest rate measured. `method_bound_ms` holds for one variant's method and
precision: none of its times may lie below. `fp32_bound_ms` holds for the direct method in FP32: the report draws every
variant against it."""

from typing import Any

from warpbook.kernels.headers import Header
from warpbook.problems.problem import Case


def lower_bound_ms(case: Case, gb_per_s: float, peak_gflop_per_s: float | None, kept_bytes: int = 0) -> float:
    """Least time for one case: its bytes, but for `kept_bytes` in L2, at a rate, or its operations at the peak, None
    where unknown or where the method may do fewer."""
    moved = max(0, case.bytes - kept_bytes) / (gb_per_s * 1e9) * 1e3
    computed = case.flops / (peak_gflop_per_s * 1e9) * 1e3 if peak_gflop_per_s else 0.0
    return max(moved, computed)


def method_bound_ms(case: Case, header: Header, gpu: dict[str, Any], kept_bytes: int = 0) -> float:
    """The bound of a variant's own method and precision on a run's GPU. A method that is not direct is bound by its
    bytes alone; split products have their precision's peak over their number."""
    peaks, peak = gpu["peak_gflop_per_s"], None
    if header.method == "direct" and header.split:
        split_peak = peaks[header.split.precision]
        peak = split_peak / header.split.products if split_peak else None
    elif header.method == "direct":
        peak = peaks.get(header.precision, peaks["fp32"])  # FP64 and whole numbers are no faster than FP32
    return lower_bound_ms(case, fastest_gb_per_s(gpu), peak, kept_bytes)


def fastest_gb_per_s(gpu: dict[str, Any]) -> float:
    """A GPU may write faster than it copies: DRAM takes time to turn from reading to writing. A run of an older version has
    measured copies alone."""
    return max(float(gpu["copy_gb_per_s"]), float(gpu.get("write_gb_per_s") or 0.0))


def fp32_bound_ms(case: Case, gpu: dict[str, Any]) -> float:
    """The bound of the direct method in FP32 on a run's GPU."""
    return lower_bound_ms(case, fastest_gb_per_s(gpu), gpu["peak_gflop_per_s"]["fp32"])


def memory_bound_ms(case: Case, gpu: dict[str, Any]) -> float:
    """The time that a case's bytes take at the rate of a copy, whatever is computed of them."""
    return lower_bound_ms(case, gpu["copy_gb_per_s"], None)


def bounding_resource(case: Case, gpu: dict[str, Any]) -> str:
    """Which of the two makes the FP32 bound: `memory bandwidth` or `FP32 arithmetic`."""
    moved = lower_bound_ms(case, fastest_gb_per_s(gpu), None)
    return "memory bandwidth" if moved == fp32_bound_ms(case, gpu) else "FP32 arithmetic"
