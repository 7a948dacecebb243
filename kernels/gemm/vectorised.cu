/*
title:     Vectors of four values from and to global memory
idea:      The same squares in registers. A thread loads four neighbours of A and four of B by one instruction each
           and stores C in fours, wherever rows are a multiple of four long. Other extents take single loads.
expect:    Load and store instructions to global memory fall to a quarter, and with them the arithmetic of their
           addresses. Multiply-adds are 512 a thread and tile against 8 loads before and 2 now, so time falls by 2 to
           10 % only. Sectors stay as many.
builds_on: register_tile_2d
reference: https://developer.nvidia.com/blog/cuda-pro-tip-increase-performance-with-vectorized-memory-access/
constants: {TILE: 128, TILE_K: 8, SIDE: 8}
threads:   [TILE / SIDE, TILE / SIDE]
grid:      [ceil(n / TILE), ceil(m / TILE)]
limits:    {m: 8388480}
claims:
  - says:     Load and store instructions to global memory fall to a quarter
    quantity: smsp__inst_executed_op_global_ld.sum
    change:   falls
    by:       70 %
    where:    {n: {at_least: 2048}}
  - says:     time falls by 2 to 10 % only
    quantity: gpu_time
    change:   falls
    by:       {at_least: 2 %, at_most: 10 %}
    where:    {n: {at_least: 2048}}
  - says:     Sectors stay as many
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   stays
    by:       2 %
    where:    {n: {at_least: 2048}}
*/

#include "float4_edges.cuh"

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" __global__ void __launch_bounds__(TILE / SIDE * TILE / SIDE, 2) gemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    static_assert(TILE * TILE_K == 4 * (TILE / SIDE) * (TILE / SIDE), "a thread loads one vector of each tile");
    // A is transposed, so that a thread's rows are neighbours; 4 values between columns keep its stores off each
    // other's banks.
    __shared__ __align__(16) float a_tile[TILE_K][TILE + 4], b_tile[TILE_K][TILE];
    const bool aligned_a = k % 4 == 0, aligned_b = n % 4 == 0;
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    const int first_row = threadIdx.y * SIDE, first_column = threadIdx.x * SIDE;
    const int a_row = thread / (TILE_K / 4), a_step = thread % (TILE_K / 4) * 4;
    const int b_step = thread / (TILE / 4), b_column = thread % (TILE / 4) * 4;
    const float* a_source = a + (size_t)min(top + a_row, m - 1) * k;

    float sums[SIDE][SIDE] = {};
    for (int begin = 0; begin < k; begin += TILE_K) {
        const float4 a_values = load4(a_source, begin + a_step, k, aligned_a);
        a_tile[a_step][a_row] = a_values.x;
        a_tile[a_step + 1][a_row] = a_values.y;
        a_tile[a_step + 2][a_row] = a_values.z;
        a_tile[a_step + 3][a_row] = a_values.w;
        const int end = begin + b_step < k ? n : 0;
        *(float4*)&b_tile[b_step][b_column] = load4(b + (size_t)(begin + b_step) * n, left + b_column, end, aligned_b);
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < TILE_K; ++i) {
            float a_of_rows[SIDE], b_of_columns[SIDE];
            #pragma unroll
            for (int r = 0; r < SIDE; ++r) a_of_rows[r] = a_tile[i][first_row + r];
            #pragma unroll
            for (int s = 0; s < SIDE; ++s) b_of_columns[s] = b_tile[i][first_column + s];
            #pragma unroll
            for (int r = 0; r < SIDE; ++r)
                #pragma unroll
                for (int s = 0; s < SIDE; ++s) sums[r][s] += a_of_rows[r] * b_of_columns[s];
        }
        __syncthreads(); // before the next tiles overwrite these
    }
    #pragma unroll
    for (int r = 0; r < SIDE; ++r) {
        const int row = top + first_row + r;
        if (row >= m) break;
        #pragma unroll
        for (int s = 0; s < SIDE; s += 4)
            store4(c + (size_t)row * n, left + first_column + s, n, aligned_b,
                   make_float4(sums[r][s], sums[r][s + 1], sums[r][s + 2], sums[r][s + 3]));
    }
}
