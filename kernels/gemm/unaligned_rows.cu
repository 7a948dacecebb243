/*
title:     Rows that are no whole vectors, copied value by value
idea:      Where rows are not a multiple of four long, a vector's address is not a multiple of 16 bytes, and cp.async
           does not take it. Until here such tiles came through registers, and the block waited for them. Now they are
           copied by cp.async as well, 4 bytes at a time, by a second version of the whole loop.
expect:    A thread starts 48 copies of values for each pair of tiles in place of 12 of vectors, and 4096 multiply-adds
           hide them. With rows of 2047 values 20 to 40 % less time, with rows of 4095 values 30 to 45 % less time. On
           whole vectors the same to 2 %, since that loop is as it was.
builds_on: wide_block_tile
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async
constants: {TILE_M: 128, TILE_N: 256, TILE_K: 32, THREAD_M: 16, THREAD_N: 8, STAGES: 2, BLOCKS: 1}
threads:   ["TILE_M * TILE_N // (THREAD_M * THREAD_N)"]
grid:      [ceil(n / TILE_N), ceil(m / TILE_M)]
shared_bytes: STAGES * 4 * (TILE_M * (TILE_K + 4) + TILE_K * TILE_N)
limits:    {m: 8388480}
least_arch: sm_80
claims:
  - says:     With rows of 2047 values 20 to 40 % less time
    quantity: gpu_time
    change:   falls
    by:       {at_least: 20 %, at_most: 40 %}
    where:    {n: {is: 2047}}
  - says:     with rows of 4095 values 30 to 45 % less time
    quantity: gpu_time
    change:   falls
    by:       {at_least: 30 %, at_most: 45 %}
    where:    {n: {is: 4095}}
  - says:     On whole vectors the same to 2 %
    quantity: gpu_time
    change:   stays
    by:       2 %
    where:    {n: {multiple_of: 1024}}
*/

#include "gemm_async.cuh"

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) gemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    if (k % 4 == 0 && n % 4 == 0)
        gemm_async<4>(a, b, c, m, n, k);
    else
        gemm_async<1>(a, b, c, m, n, k);
}
