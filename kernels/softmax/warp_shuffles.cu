/*
title:     Reduced by shuffles within warps
idea:      The lanes of a warp exchange their maxima and sums through registers. Shared memory holds one value of each
           warp, which every warp then joins for itself.
expect:    2 barriers a row are left of 20, and accesses to shared memory fall to a tenth. Faster by a quarter or more
           where rows are short, since the barriers were most of a row's time; by less than a tenth at 32768 columns.
builds_on: shared_reduction
reference: https://developer.nvidia.com/blog/faster-parallel-reductions-kepler/
constants: {THREADS: 256}
threads:   [THREADS]
grid:      [rows]
claims:
  - says:     Faster by a quarter or more where rows are short
    quantity: gpu_time
    change:   falls
    by:       20 %
    where:    {columns: {at_most: 1024}, rows: {at_least: 16384}}
  - says:     by less than a tenth at 32768 columns
    quantity: gpu_time
    change:   stays
    by:       10 %
    where:    {columns: {at_least: 32768}, rows: {at_least: 1024}}
  - says:     accesses to shared memory fall to a tenth
    quantity: l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
    change:   falls
    by:       85 %
*/

#include "warp_reduce.cuh"

// x (rows, columns), y (rows, columns); float32, row-major.
extern "C" __global__ void __launch_bounds__(THREADS) softmax(
    const float* __restrict__ x, float* __restrict__ y, int rows, int columns)
{
    __shared__ float max_of_warps[THREADS / 32], sum_of_warps[THREADS / 32];
    const int thread = threadIdx.x;
    const float* values = x + (size_t)blockIdx.x * columns;
    float* results = y + (size_t)blockIdx.x * columns;

    const float first = values[0];
    float max = first;
    for (int i = thread; i < columns; i += THREADS) max = fmaxf(max, values[i]);
    max = block_reduce(max, max_of_warps, first, [](float a, float b) { return fmaxf(a, b); });

    float sum = 0.0f;
    for (int i = thread; i < columns; i += THREADS) sum += expf(values[i] - max);
    sum = block_reduce(sum, sum_of_warps, 0.0f, [](float a, float b) { return a + b; });

    for (int i = thread; i < columns; i += THREADS) results[i] = expf(values[i] - max) / sum;
}
