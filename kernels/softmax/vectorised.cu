/*
title:     Vectors of four values
idea:      A thread loads and stores four neighbours by one instruction, where rows are a multiple of four long, and
           scales its sum once for four values. The quotient becomes a product with the sum's inverse.
expect:    Load and store instructions fall to a quarter, exponentials from three a value to 2.25. A thread of a row of
           1024 has one vector, so that all its loads are under way at once. Within 25 % of the copy rate on both
           cases.
builds_on: online
reference: https://developer.nvidia.com/blog/cuda-pro-tip-increase-performance-with-vectorized-memory-access/
constants: {THREADS: 256}
threads:   [THREADS]
grid:      [rows]
claims:
  - says:     Load and store instructions fall to a quarter
    quantity: smsp__inst_executed_op_global_ld.sum
    change:   falls
    by:       70 %
  - says:     Within 25 % of the copy rate on both cases
    quantity: times_memory_bound
    value:    {at_most: 1.4}
    where:    {rows: {at_least: 2048}}
*/

#include "float4_edges.cuh"
#include "softmax.cuh"

// x (rows, columns), y (rows, columns); float32, row-major.
extern "C" __global__ void __launch_bounds__(THREADS) softmax(
    const float* __restrict__ x, float* __restrict__ y, int rows, int columns)
{
    __shared__ MaxAndSum of_warps[THREADS / 32];
    const bool aligned = columns % 4 == 0;
    const float* values = x + (size_t)blockIdx.x * columns;
    float* results = y + (size_t)blockIdx.x * columns;

    MaxAndSum row;
    for (int i = threadIdx.x * 4; i < columns; i += THREADS * 4) add(row, load4(values, i, columns, aligned, LOWEST));
    row = merge_block(row, of_warps);

    const float scale = 1.0f / row.sum;
    for (int i = threadIdx.x * 4; i < columns; i += THREADS * 4) {
        const float4 v = load4(values, i, columns, aligned);
        store4(results, i, columns, aligned,
               make_float4(expf(v.x - row.max) * scale, expf(v.y - row.max) * scale, expf(v.z - row.max) * scale,
                           expf(v.w - row.max) * scale));
    }
}
