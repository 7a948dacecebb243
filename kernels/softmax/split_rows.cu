/*
title:     Several blocks for each row
idea:      A row is cut into parts of 2048. One launch finds maximum and sum of every part; a second joins those of the
           row's parts and writes the results.
expect:    vectorised has a block for each row, so that 8 rows of 32768 keep 8 multiprocessors busy; here they make 128
           blocks. At least three times faster there. With many rows the second launch reads x again, from DRAM where x
           exceeds the L2 cache. It is up to half as slow again as vectorised there, whose second pass finds its row in
           the cache. Rows of 1024 gain nothing and pay for the second launch.
builds_on: vectorised
constants: {THREADS: 256, PART: 2048}
claims:
  - says:     At least three times faster there
    quantity: gpu_time
    change:   falls
    by:       67 %
    where:    {columns: {at_least: 32768}, rows: {at_most: 8}}
  - says:     up to half as slow again as vectorised
    quantity: gpu_time
    change:   rises
    by:       {at_least: 10 %, at_most: 50 %}
    where:    {columns: {at_least: 32768}, rows: {at_least: 2048}}
  - says:     Rows of 1024 gain nothing and pay for the second launch
    quantity: gpu_time
    change:   rises
    where:    {columns: {is: 1024}}
*/

#include "float4_edges.cuh"
#include "softmax.cuh"

// A block for each part, one row's parts after each other.
extern "C" __global__ void __launch_bounds__(THREADS) reduce_parts(
    const float* __restrict__ x, MaxAndSum* __restrict__ of_parts, int columns, int parts)
{
    __shared__ MaxAndSum of_warps[THREADS / 32];
    const float* values = x + (size_t)(blockIdx.x / parts) * columns;
    const int begin = blockIdx.x % parts * PART, end = min(begin + PART, columns);
    MaxAndSum part;
    for (int i = begin + threadIdx.x * 4; i < end; i += THREADS * 4)
        add(part, load4(values, i, end, columns % 4 == 0, LOWEST));
    part = merge_block(part, of_warps);
    if (threadIdx.x == 0) of_parts[blockIdx.x] = part;
}

// x (rows, columns), y (rows, columns); float32, row-major.
extern "C" __global__ void __launch_bounds__(THREADS) softmax(
    const float* __restrict__ x, const MaxAndSum* __restrict__ of_parts, float* __restrict__ y, int columns, int parts)
{
    __shared__ MaxAndSum of_warps[THREADS / 32];
    const bool aligned = columns % 4 == 0;
    const int row_index = blockIdx.x / parts;
    const float* values = x + (size_t)row_index * columns;
    float* results = y + (size_t)row_index * columns;
    MaxAndSum row;
    for (int part = threadIdx.x; part < parts; part += THREADS)
        row = merge(row, of_parts[(size_t)row_index * parts + part]);
    row = merge_block(row, of_warps);

    const float scale = 1.0f / row.sum;
    const int begin = blockIdx.x % parts * PART, end = min(begin + PART, columns);
    for (int i = begin + threadIdx.x * 4; i < end; i += THREADS * 4) {
        const float4 v = load4(values, i, end, aligned);
        store4(results, i, end, aligned,
               make_float4(expf(v.x - row.max) * scale, expf(v.y - row.max) * scale, expf(v.z - row.max) * scale,
                           expf(v.w - row.max) * scale));
    }
}
