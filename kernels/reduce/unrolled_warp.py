"""Adds up blocks of values, then the blocks' sums, until one is left."""

import numpy as np


def prepare(kernels, case, size, launch):
    THREADS, VALUES = kernels.constants["THREADS"], kernels.constants["VALUES"]
    reduce = kernels.function("reduce")
    counts = [case.n]  # of values before each launch, and 1 at the end
    while len(counts) == 1 or counts[-1] > 1:
        counts.append(-(-counts[-1] // VALUES))
    sums = [kernels.empty((count,)) for count in counts[1:-1]]

    def call(x, y):
        arrays = [x, *sums, y]
        for source, destination, count, blocks in zip(arrays, arrays[1:], counts, counts[1:], strict=False):
            reduce((blocks,), (THREADS,), (source, destination, np.int32(count)))

    return call
