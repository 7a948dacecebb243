"""As many blocks as the device runs at once, or as there is work for; the last of them adds their sums."""

import numpy as np


def prepare(kernels, case, size, launch):
    import cupy

    BLOCKS, VECTORS, THREADS = (kernels.constants[name] for name in ("BLOCKS", "VECTORS", "THREADS"))
    resident = BLOCKS * cupy.cuda.Device().attributes["MultiProcessorCount"]
    blocks = min(resident, -(-case.n // (4 * VECTORS * THREADS)))
    reduce, sums, finished_blocks = kernels.function("reduce"), kernels.empty((blocks,)), kernels.empty((1,), np.uint32)
    kernels.function("clear")((1,), (1,), (finished_blocks,))

    def call(x, y):
        reduce((blocks,), (THREADS,), (x, sums, finished_blocks, y, np.int32(case.n)))

    return call
