/*
title:     The row stays in registers
idea:      A thread keeps up to 32 values of its row from the first pass to the last, so that x is read once and no
           exponential is computed twice. A row of 1024 is a warp's work, a longer one that of as many warps as it
           takes.
expect:    Loads fall by half, exponentials to one a value. A warp has 8 vectors under way at once. 92 % of the copy
           rate or more at 1024 columns. A row of 32768 fills a multiprocessor with one block of 1024 threads, which
           loads, computes and stores one after the other, so that long rows lose to vectorised.
builds_on: vectorised
reference: https://github.com/Oneflow-Inc/oneflow/blob/master/oneflow/core/cuda/softmax.cuh
constants: {VECTORS: 8, THREADS_MAX: 1024}
threads:   ["32 * ceil(columns / (128 * VECTORS))"]
grid:      [rows]
limits:    {columns: 32768}
claims:
  - says:     92 % of the copy rate or more at 1024 columns
    quantity: times_memory_bound
    value:    {at_most: 1.09}
    where:    {columns: {is: 1024}, rows: {at_least: 65536}}
  - says:     Loads fall by half
    quantity: smsp__inst_executed_op_global_ld.sum
    change:   falls
    by:       45 %
  - says:     long rows lose to vectorised
    quantity: gpu_time
    change:   rises
    where:    {columns: {is: 32768}, rows: {at_least: 1024}}
*/

#include "float4_edges.cuh"
#include "softmax.cuh"

// x (rows, columns), y (rows, columns); float32, row-major.
extern "C" __global__ void __launch_bounds__(THREADS_MAX) softmax(
    const float* __restrict__ x, float* __restrict__ y, int rows, int columns)
{
    __shared__ float max_of_warps[THREADS_MAX / 32], sum_of_warps[THREADS_MAX / 32];
    const bool aligned = columns % 4 == 0;
    const float* source = x + (size_t)blockIdx.x * columns;
    float* results = y + (size_t)blockIdx.x * columns;

    float4 values[VECTORS];
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v)
        values[v] = load4(source, (v * blockDim.x + threadIdx.x) * 4, columns, aligned, LOWEST);
    float max = LOWEST;
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v)
        max = fmaxf(fmaxf(max, fmaxf(values[v].x, values[v].y)), fmaxf(values[v].z, values[v].w));
    max = block_reduce(max, max_of_warps, LOWEST, [](float a, float b) { return fmaxf(a, b); });

    float sum = 0.0f;
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        values[v] = make_float4(expf(values[v].x - max), expf(values[v].y - max), expf(values[v].z - max),
                                expf(values[v].w - max));
        sum += values[v].x + values[v].y + values[v].z + values[v].w;
    }
    sum = block_reduce(sum, sum_of_warps, 0.0f, [](float a, float b) { return a + b; });

    const float scale = 1.0f / sum;
    #pragma unroll
    for (int v = 0; v < VECTORS; ++v)
        store4(results, (v * blockDim.x + threadIdx.x) * 4, columns, aligned,
               make_float4(values[v].x * scale, values[v].y * scale, values[v].z * scale, values[v].w * scale));
}
