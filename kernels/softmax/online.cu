/*
title:     Maximum and sum in one pass
idea:      A thread keeps the maximum so far and the sum of exponentials relative to it. A larger value scales the sum
           down. Pairs of maximum and sum are joined the same way.
expect:    x is read twice in place of three times, and one barrier of two goes. A value costs three exponentials in
           place of two, which hide behind memory. Loads fall by a third. Where rows are short, faster by 5 to 25 %;
           where the caches serve the second pass, DRAM traffic and so time at 32768 columns stay within a tenth.
builds_on: warp_shuffles
reference: https://arxiv.org/abs/1805.02867
constants: {THREADS: 256}
threads:   [THREADS]
grid:      [rows]
claims:
  - says:     Loads fall by a third
    quantity: smsp__inst_executed_op_global_ld.sum
    change:   falls
    by:       25 %
  - says:     Where rows are short, faster by 5 to 25 %
    quantity: gpu_time
    change:   falls
    by:       {at_least: 5 %, at_most: 25 %}
    where:    {columns: {at_most: 1024}, rows: {at_least: 16384}}
  - says:     time at 32768 columns stay within a tenth
    quantity: gpu_time
    change:   stays
    by:       10 %
    where:    {columns: {at_least: 32768}, rows: {at_least: 1024}}
*/

#include "softmax.cuh"

// x (rows, columns), y (rows, columns); float32, row-major.
extern "C" __global__ void __launch_bounds__(THREADS) softmax(
    const float* __restrict__ x, float* __restrict__ y, int rows, int columns)
{
    __shared__ MaxAndSum of_warps[THREADS / 32];
    const float* values = x + (size_t)blockIdx.x * columns;
    float* results = y + (size_t)blockIdx.x * columns;

    MaxAndSum row;
    for (int i = threadIdx.x; i < columns; i += THREADS) add(row, values[i]);
    row = merge_block(row, of_warps);

    for (int i = threadIdx.x; i < columns; i += THREADS) results[i] = expf(values[i] - row.max) / row.sum;
}
