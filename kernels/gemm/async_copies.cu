/*
title:     Asynchronous copies, two buffers
idea:      While a block multiplies one pair of tiles, cp.async brings the next pair from global to shared memory,
           past the registers. One barrier for each pair of tiles is left of two. Such copies cannot transpose, so
           that a lane reads vectors of A along k, each for four steps, and its rows are 8 apart.
expect:    In warp_tile a block waits for global memory once for each tile of 8 steps, about 600 cycles against 1024
           of multiply-adds in its two warps a scheduler. One other block hides that in part. Now the loads have a
           whole tile of 16 steps to arrive, 2048 cycles. Faster by 10 to 30 % on large matrices, to 70 % of the FP32
           peak. Where blocks are few nothing else hides the wait, and the gain is larger.
builds_on: warp_tile
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#asynchronous-data-copies
constants: {TILE_M: 128, TILE_N: 128, TILE_K: 16, THREAD_M: 8, THREAD_N: 8, STAGES: 2, BLOCKS: 2}
threads:   ["TILE_M * TILE_N // (THREAD_M * THREAD_N)"]
grid:      [ceil(n / TILE_N), ceil(m / TILE_M)]
shared_bytes: STAGES * 4 * (TILE_M * (TILE_K + 4) + TILE_K * TILE_N)
limits:    {m: 8388480}
least_arch: sm_80
claims:
  - says:     Faster by 10 to 30 % on large matrices
    quantity: gpu_time
    change:   falls
    by:       {at_least: 10 %, at_most: 30 %}
    where:    {n: {at_least: 4096}}
  - says:     to 70 % of the FP32 peak
    quantity: fp32_peak_share
    value:    {at_least: 65 %}
    where:    {n: {at_least: 4096}}
  - says:     Where blocks are few nothing else hides the wait, and the gain is larger
    quantity: gpu_time
    change:   falls
    where:    {m: {is: 1024}, n: {is: 1024}}
    more_than: {n: {at_least: 4096}}
*/

#include "gemm_async.cuh"

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) gemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    gemm_async(a, b, c, m, n, k);
}
