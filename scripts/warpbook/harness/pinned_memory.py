"""Page-locked memory, which a device copies from and to while the host does something else."""

import contextlib
import mmap
import os
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import cupy
import numpy as np
from cupy.cuda.runtime import hostRegister, hostUnregister

from warpbook.harness import tamper_check

HUGE_PAGE = 2 << 20
THREADS = min(8, len(os.sched_getaffinity(0)))


def pinned_zeros(shape: Sequence[int], dtype: type[np.generic] = np.uint8) -> np.ndarray:
    """Zeros in page-locked memory: several threads make huge pages, and CUDA locks these, many times faster than its
    own allocation. Raises cupy.cuda.runtime.CUDARuntimeError where it refuses."""
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, -(-max(1, count) // HUGE_PAGE) * HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages takes longer
        memory.madvise(mmap.MADV_HUGEPAGE)
    held = np.frombuffer(memory, np.uint8)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda part: part[:: mmap.PAGESIZE].fill(0), np.array_split(held, THREADS)))
    hostRegister(held.ctypes.data, held.nbytes, 0)
    # Unlocked before it is unmapped, which is when the last array that shows it is let go: each has `held` as its base.
    weakref.finalize(held, _unlock, held.ctypes.data, memory).atexit = False
    array: np.ndarray = held[:count].view(dtype).reshape(shape)
    return array


def _unlock(address: int, memory: mmap.mmap) -> None:
    """`memory` is here to be held until then."""
    with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):  # a device that failed has let go of it
        hostUnregister(address)


tamper_check.remember(sys.modules[__name__])
