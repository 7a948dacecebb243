"""
title:     Numba, maximum and sum in one pass
idea:      The algorithm of online in Numba, from Python that LLVM compiles. A row has 128 threads. They join their
           maxima and sums in shared memory, by half as many threads in each step.
expect:    A value costs the instructions that it costs in CUDA C++, but a row ends in 8 barriers in place of 2. Blocks of 128
           threads with 32 registers fill a multiprocessor, 16 rows at a time, so that some rows load while others
           wait. Slower than online by less than 30 % at 1024 columns, and within 10 % of it at 32768.
builds_on: online
requires:  numba_cuda
reference: https://nvidia.github.io/numba-cuda/user/kernels.html
claims:
  - says:     Slower than online by less than 30 % at 1024 columns
    quantity: gpu_time
    change:   rises
    by:       {at_most: 30 %}
    where:    {columns: {is: 1024}, rows: {at_least: 16384}}
  - says:     within 10 % of it at 32768
    quantity: gpu_time
    change:   stays
    by:       10 %
    where:    {columns: {is: 32768}, rows: {at_least: 1024}}
"""

import math

from numba import cuda, float32
from numba_kernels import kernel

THREADS = 128
LOWEST = float32(-3.4028235e38)
ZERO, ONE = float32(0), float32(1)


@kernel("void(float32[:,::1], float32[:,::1])", launch_bounds=THREADS)
def softmax(x, y):
    maxima = cuda.shared.array(THREADS, float32)
    sums = cuda.shared.array(THREADS, float32)
    thread, row = cuda.threadIdx.x, cuda.blockIdx.x
    columns = x.shape[1]

    highest, total = LOWEST, ZERO
    for i in range(thread, columns, THREADS):
        value = x[row, i]
        if value > highest:
            total *= math.exp(highest - value)
            highest = value
        total += math.exp(value - highest)
    maxima[thread], sums[thread] = highest, total
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if thread < half:
            other = maxima[thread + half]
            both = max(highest, other)
            total = total * math.exp(highest - both) + sums[thread + half] * math.exp(other - both)
            highest = both
            maxima[thread], sums[thread] = highest, total
        cuda.syncthreads()
        half //= 2
    highest, scale = maxima[0], ONE / sums[0]

    for i in range(thread, columns, THREADS):
        y[row, i] = math.exp(x[row, i] - highest) * scale


def prepare(case, size):
    return softmax.load((case.rows,), THREADS)


def compiled(arch):
    return {"softmax": softmax.tell(arch)}
