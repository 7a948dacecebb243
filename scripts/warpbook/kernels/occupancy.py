"""What CUDA allows a launch, and the theoretical occupancy that a multiprocessor of an architecture gives it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SmLimits:
    """What a multiprocessor holds and does in a cycle (CUDA C++ Programming Guide); tensor rates are dense."""

    warps: int
    blocks: int
    shared_bytes: int
    reserved_shared_bytes: int
    fp32_flop_per_cycle: int
    tf32_flop_per_cycle: int | None = None
    fp16_flop_per_cycle: int | None = None
    partitions: int = 4


SM_LIMITS = {
    "sm_50": SmLimits(64, 32, 64 << 10, 0, 256),
    "sm_52": SmLimits(64, 32, 96 << 10, 0, 256),
    "sm_60": SmLimits(64, 32, 64 << 10, 0, 128, partitions=2),
    "sm_61": SmLimits(64, 32, 96 << 10, 0, 256),
    "sm_70": SmLimits(64, 32, 96 << 10, 0, 128, None, 1024),
    "sm_75": SmLimits(32, 16, 64 << 10, 0, 128, None, 1024),
    "sm_80": SmLimits(64, 32, 164 << 10, 1024, 128, 1024, 2048),
    "sm_86": SmLimits(48, 16, 100 << 10, 1024, 256, 512, 1024),
    "sm_87": SmLimits(48, 16, 164 << 10, 1024, 256, 512, 1024),
    "sm_89": SmLimits(48, 24, 100 << 10, 1024, 256, 512, 1024),
    "sm_90": SmLimits(64, 32, 228 << 10, 1024, 256, 2048, 4096),
    "sm_100": SmLimits(64, 32, 228 << 10, 1024, 256),
    "sm_120": SmLimits(48, 24, 100 << 10, 1024, 256),
}


# Limits of one launch, the same on every architecture above.
THREADS_MAX = 1024
BLOCK_MAX = (1024, 1024, 64)
GRID_MAX = (2**31 - 1, 65_535, 65_535)
REGISTERS = 65_536
SHARED_DEFAULT = 48 << 10  # of a block
SHARED_MAX = 227 << 10  # of a block, where it is asked for; older architectures allow less


def block_limit_reason(threads: Sequence[int]) -> str:
    """Why CUDA refuses a block of so many threads along x, y and z: value, limit and remedy. Empty when it does not."""
    if reason := _violation("threads", threads, BLOCK_MAX):
        return reason
    total = math.prod(threads)
    if total > THREADS_MAX:
        shown = " x ".join(map(str, threads))
        return f"threads: {shown} is {total} a block, and CUDA allows {THREADS_MAX}; take smaller blocks, more of them"
    return ""


def launch_limit_reason(grid: Sequence[int], threads: Sequence[int], shared_bytes: int = 0) -> str:
    """Why CUDA refuses such a launch: value, limit and remedy. Empty when it does not."""
    if reason := block_limit_reason(threads) or _violation("grid", grid, GRID_MAX):
        return reason
    if 0 <= shared_bytes <= SHARED_MAX:
        return ""
    return f"shared_bytes = {shared_bytes} is outside 0 to {SHARED_MAX}, which CUDA allows a block; take smaller tiles"


def _violation(name: str, extents: Sequence[int], limits: Sequence[int]) -> str:
    if len(extents) > 3:
        return f"{name}: {len(extents)} extents, and CUDA has three, x, y and z"
    for axis, extent, limit in zip("xyz", extents, limits, strict=False):
        if not 1 <= extent <= limit:
            smaller = "let a block do more" if name == "grid" else "take smaller blocks, more of them"
            remedy = smaller if extent > limit else "say in `limits` which extents it is for"
            return f"{name}: {axis} = {extent} is outside 1 to {limit}, which CUDA allows; {remedy}"
    return ""


def register_limit_reason(arch: str, threads: int, registers: int, shared_bytes: int) -> str:
    """Why a block of a kernel does not fit on a multiprocessor of an architecture: value, limit and remedy."""
    if arch not in SM_LIMITS or occupancy(arch, threads, registers, shared_bytes)[0]:
        return ""
    return (
        f"a block of {threads} threads with {registers} registers each and {shared_bytes} bytes of shared memory does "
        f"not fit on {arch}, which has {REGISTERS} registers and {SM_LIMITS[arch].shared_bytes} bytes; take smaller "
        f"blocks, or bound the registers: __launch_bounds__({threads})"
    )


def occupancy(arch: str, threads: int, registers: int, shared_bytes: int) -> tuple[float, str]:
    """Theoretical occupancy (0 to 1) of a block of `threads`, and what limits it: warps, blocks, registers or shared
    memory. As CUDA's own calculator (cuda_occupancy.h) has it: registers are given out by 256 a warp within the
    partitions of a multiprocessor, shared memory by 128 bytes (256 before sm_80)."""
    limits = SM_LIMITS[arch]
    major = int(arch.removeprefix("sm_")) // 10
    warps = -(-threads // 32)
    by_limit = {"warps": limits.warps // warps, "blocks": limits.blocks}
    if registers:
        per_warp = -(-registers * 32 // 256) * 256
        by_limit["registers"] = REGISTERS // limits.partitions // per_warp * limits.partitions // warps
    grain = 128 if major >= 8 else 256
    shared = -(-(shared_bytes + limits.reserved_shared_bytes) // grain) * grain
    if shared:
        by_limit["shared memory"] = limits.shared_bytes // shared
    limiter = min(by_limit, key=lambda name: by_limit[name])
    return by_limit[limiter] * warps / limits.warps, limiter
