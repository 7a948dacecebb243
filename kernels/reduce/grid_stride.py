"""As many blocks as the device runs at once, or as there is work for, then one that adds their sums."""

import numpy as np


def prepare(kernels, case, size, launch):
    import cupy

    BLOCKS, VECTORS, THREADS = (kernels.constants[name] for name in ("BLOCKS", "VECTORS", "THREADS"))
    resident = BLOCKS * cupy.cuda.Device().attributes["MultiProcessorCount"]
    blocks = min(resident, -(-case.n // (4 * VECTORS * THREADS)))
    reduce, reduce_blocks = kernels.function("reduce"), kernels.function("reduce_blocks")
    sums = kernels.empty((blocks,))

    def call(x, y):
        reduce((blocks,), (THREADS,), (x, sums, np.int32(case.n)))
        reduce_blocks((1,), (THREADS,), (sums, y, np.int32(blocks)))

    return call
