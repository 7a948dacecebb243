"""
title:     Numba, a square of C in a thread's registers
idea:      The square of 8 x 8 values of register_tile_2d in Numba, from Python that LLVM compiles. A thread's columns
           are 16 apart, so that neighbouring lanes read neighbouring values. A block has 256 threads and computes 128 x
           128 values.
expect:    Numba gives shared memory no alignment for vectors, so 16 loads of single values serve 64 multiply-adds,
           which keeps the load units as busy as the FP32 pipes. Its arrays index in 64 bits, and that would
           take 162 registers a thread. Held to 128, two blocks have room on a multiprocessor. So it is up to 40 %
           slower than register_tile_2d, and still three times as fast as tiled.
builds_on: register_tile_2d
requires:  numba_cuda
limits:    {m: 4194240}
reference: https://nvidia.github.io/numba-cuda/user/examples.html#matrix-multiplication
claims:
  - says:     up to 40 % slower than register_tile_2d
    quantity: gpu_time
    change:   rises
    by:       {at_most: 40 %}
    where:    {n: {at_least: 4096}}
  - says:     still three times as fast as tiled
    quantity: gpu_time
    change:   falls
    by:       66 %
    against:  tiled
    where:    {n: {at_least: 4096}}
"""

from numba import cuda, float32
from numba_kernels import kernel

SIDE, THREADS_WIDE, THREADS_HIGH, TILE_K = 8, 16, 16, 8
THREADS = THREADS_WIDE * THREADS_HIGH
TILE_M, TILE_N = SIDE * THREADS_HIGH, SIDE * THREADS_WIDE
A_SHAPE = (TILE_K, TILE_M + 1)  # transposed; one more keeps the stores of its columns off each other's banks
B_SHAPE, SUMS_SHAPE = (TILE_K, TILE_N), (SIDE, SIDE)
ZERO = float32(0)


@kernel("void(float32[:,::1], float32[:,::1], float32[:,::1])", launch_bounds=(THREADS, 2))
def gemm(a, b, c):
    a_tile = cuda.shared.array(A_SHAPE, float32)
    b_tile = cuda.shared.array(B_SHAPE, float32)
    sums = cuda.local.array(SUMS_SHAPE, float32)
    m, k = a.shape
    n = b.shape[1]
    thread = cuda.threadIdx.x
    top, left = cuda.blockIdx.y * TILE_M, cuda.blockIdx.x * TILE_N
    first_row, first_column = thread // THREADS_WIDE * SIDE, thread % THREADS_WIDE

    for r in range(SIDE):
        for s in range(SIDE):
            sums[r, s] = ZERO
    for begin in range(0, k, TILE_K):
        for load in range(TILE_M * TILE_K // THREADS):
            i = load * THREADS + thread
            row, in_sum = top + i // TILE_K, begin + i % TILE_K
            a_tile[i % TILE_K, i // TILE_K] = a[row, in_sum] if row < m and in_sum < k else ZERO
        for load in range(TILE_N * TILE_K // THREADS):
            i = load * THREADS + thread
            in_sum, column = begin + i // TILE_N, left + i % TILE_N
            b_tile[i // TILE_N, i % TILE_N] = b[in_sum, column] if in_sum < k and column < n else ZERO
        cuda.syncthreads()
        for i in range(TILE_K):
            for r in range(SIDE):
                a_value = a_tile[i, first_row + r]
                for s in range(SIDE):
                    sums[r, s] += a_value * b_tile[i, first_column + s * THREADS_WIDE]
        cuda.syncthreads()  # before the next tiles overwrite these
    for r in range(SIDE):
        for s in range(SIDE):
            row, column = top + first_row + r, left + first_column + s * THREADS_WIDE
            if row < m and column < n:
                c[row, column] = sums[r, s]


def prepare(case, size):
    return gemm.load((-(-case.n // TILE_N), -(-case.m // TILE_M)), THREADS)


def compiled(arch):
    return {"gemm": gemm.tell(arch)}
