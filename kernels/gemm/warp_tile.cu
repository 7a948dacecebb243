/*
title:     A tile of C for each warp
idea:      A warp computes a tile of 64 x 32, its lanes 8 below each other and 4 side by side. A lane's 8 x 8 values
           are four squares of 4 x 4, 32 rows and 16 columns apart, so that neighbouring lanes read neighbouring
           vectors.
expect:    In vectorised a warp is 2 lanes high and 16 wide. Its lanes read B 32 bytes apart, which takes 4 accesses
           for each vector, 10 in all for a step along k. Now no two lanes meet in a bank, and 4 accesses do. Before,
           40 accesses hid behind 64 cycles of multiply-adds in four warps, so time falls by less than 15 %.
builds_on: vectorised
reference: https://developer.nvidia.com/blog/cutlass-linear-algebra-cuda/
constants: {TILE: 128, TILE_K: 8, WARP_ROWS: 64, WARP_COLUMNS: 32}
threads:   [256]
grid:      [ceil(n / TILE), ceil(m / TILE)]
limits:    {m: 8388480}
claims:
  - says:     and 4 accesses do
    quantity: l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
    change:   falls
    by:       50 %
    where:    {n: {at_least: 2048}}
  - says:     time falls by less than 15 %
    quantity: gpu_time
    change:   falls
    by:       {at_most: 15 %}
    where:    {n: {at_least: 2048}}
*/

#include "float4_edges.cuh"

// Row or column `i` of the 8 of a lane in its warp's tile: squares of 4, `lanes` times 4 apart.
__device__ __forceinline__ int place_of(int lane, int lanes, int i) { return (i / 4 * lanes + lane) * 4 + i % 4; }

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" __global__ void __launch_bounds__(256, 2) gemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    constexpr int LANE_ROWS = 8, LANE_COLUMNS = 4, SIDE = 8, WARPS_WIDE = TILE / WARP_COLUMNS;
    static_assert(WARP_ROWS == LANE_ROWS * SIDE && WARP_COLUMNS == LANE_COLUMNS * SIDE, "a lane has 8 x 8 values");
    static_assert(TILE / WARP_ROWS * WARPS_WIDE * 32 == 256 && TILE * TILE_K == 4 * 256, "256 threads, a vector each");
    __shared__ __align__(16) float a_tile[TILE_K][TILE + 4], b_tile[TILE_K][TILE];
    const bool aligned_a = k % 4 == 0, aligned_b = n % 4 == 0;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    const int warp_row = warp / WARPS_WIDE * WARP_ROWS, warp_column = warp % WARPS_WIDE * WARP_COLUMNS;
    const int lane_row = lane / LANE_COLUMNS, lane_column = lane % LANE_COLUMNS;
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
            for (int r = 0; r < SIDE; ++r) a_of_rows[r] = a_tile[i][warp_row + place_of(lane_row, LANE_ROWS, r)];
            #pragma unroll
            for (int s = 0; s < SIDE; ++s)
                b_of_columns[s] = b_tile[i][warp_column + place_of(lane_column, LANE_COLUMNS, s)];
            #pragma unroll
            for (int r = 0; r < SIDE; ++r)
                #pragma unroll
                for (int s = 0; s < SIDE; ++s) sums[r][s] += a_of_rows[r] * b_of_columns[s];
        }
        __syncthreads(); // before the next tiles overwrite these
    }
    #pragma unroll
    for (int r = 0; r < SIDE; ++r) {
        const int row = top + warp_row + place_of(lane_row, LANE_ROWS, r);
        if (row >= m) break;
        #pragma unroll
        for (int s = 0; s < SIDE; s += 4)
            store4(c + (size_t)row * n, left + warp_column + place_of(lane_column, LANE_COLUMNS, s), n, aligned_b,
                   make_float4(sums[r][s], sums[r][s + 1], sums[r][s + 2], sums[r][s + 3]));
    }
}
