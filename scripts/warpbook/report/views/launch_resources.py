"""What the compiler gave each kernel, and the occupancy that it allows."""

import math
from dataclasses import dataclass
from typing import Any

from warpbook.kernels import occupancy
from warpbook.report.evidence import Evidence


@dataclass(frozen=True)
class Resources:
    """Of a variant's main kernel, for the architecture of the GPU cited. occupancy: None where it is not known."""

    kernel: str
    arch: str
    registers: int
    shared_bytes: int
    spill_bytes: int
    occupancy: float | None
    limiter: str


def main_kernel_resources(ev: Evidence, variant: str) -> Resources | None:
    """Of the program's longest kernel, else the header's; None for peers and what is not built."""
    main, of_main = ev.profiles.main_kernel(variant)
    if of_main.empty:
        return None
    row = of_main.iloc[0]
    share, limiter = kernel_occupancy(ev, row) or (None, "unknown")
    return Resources(main, ev.arch, int(row.registers), int(row.shared_bytes), int(row.spill_bytes), share, limiter)


def kernel_occupancy(ev: Evidence, row: Any) -> tuple[float, str] | None:
    """Theoretical occupancy of a kernel and its limit, in a profile's block or its header's, if any."""
    if not row.ok or row.arch not in occupancy.SM_LIMITS:
        return None
    by_size = (ev.profiles.launches(row.variant, size) for size in reversed(ev.sizes))  # the largest that was traced
    traced = [launch for launch in next(filter(None, by_size), []) if launch.name == row.kernel]
    if traced:
        main = max(traced, key=lambda launch: launch.total_ns)
        threads = math.prod(int(extent) for extent in main.block.split("x"))
        return occupancy.occupancy(row.arch, threads, int(row.registers), int(main.shared_bytes))
    variant = ev.plan.variants[row.variant]
    block = variant.header.block
    if block is None or variant.header.shared_bytes or row.kernel != variant.kernel.partition("<")[0]:
        return None
    return occupancy.occupancy(row.arch, math.prod(block), int(row.registers), int(row.shared_bytes))
