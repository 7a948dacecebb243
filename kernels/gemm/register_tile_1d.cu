/*
title:     A column of C in a thread's registers
idea:      A thread computes ROWS values of C below each other instead of one. A value of B that it reads from shared
           memory then serves ROWS multiply-adds. A block of 512 threads computes a tile of 64 x 64, so that each value
           from global memory serves 64 threads.
expect:    Shared memory serves one load of a warp in a cycle, and tiled reads 40 times for 32 multiply-adds (the
           compiler reads four neighbours of A at once). Here it reads 12 times for 32, so this limit rises from 20 %
           to 67 % of the FP32 peak. At least twice as fast, and global loads fall to about half.
builds_on: tiled
reference: https://siboehm.com/articles/22/CUDA-MMM
constants: {TILE: 64, TILE_K: 16, ROWS: 8}
threads:   [TILE, TILE / ROWS]
grid:      [ceil(n / TILE), ceil(m / TILE)]
limits:    {m: 4194240}
claims:
  - says:     At least twice as fast
    quantity: gpu_time
    change:   falls
    by:       50 %
    where:    {n: {at_least: 2048}}
  - says:     it reads 12 times for 32
    quantity: smsp__inst_executed_op_shared_ld.sum
    change:   falls
    by:       60 %
  - says:     global loads fall to about half
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
    by:       40 %
    where:    {n: {at_least: 2048}}
*/

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" __global__ void __launch_bounds__(TILE * TILE / ROWS) gemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    constexpr int THREADS = TILE * TILE / ROWS, LOADS = TILE * TILE_K / THREADS;
    static_assert(TILE * TILE_K % THREADS == 0, "every thread loads as much");
    __shared__ float a_tile[TILE][TILE_K], b_tile[TILE_K][TILE];
    const int thread = threadIdx.y * TILE + threadIdx.x;
    const int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    const int first_row = threadIdx.y * ROWS;

    float sums[ROWS] = {};
    for (int begin = 0; begin < k; begin += TILE_K) {
        #pragma unroll
        for (int load = 0; load < LOADS; ++load) {
            const int i = load * THREADS + thread;
            const int row = top + i / TILE_K, in_sum = begin + i % TILE_K;
            a_tile[i / TILE_K][i % TILE_K] = row < m && in_sum < k ? a[(size_t)row * k + in_sum] : 0.0f;
        }
        #pragma unroll
        for (int load = 0; load < LOADS; ++load) {
            const int i = load * THREADS + thread;
            const int in_sum = begin + i / TILE, column = left + i % TILE;
            b_tile[i / TILE][i % TILE] = in_sum < k && column < n ? b[(size_t)in_sum * n + column] : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < TILE_K; ++i) {
            const float value = b_tile[i][threadIdx.x];
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) sums[r] += a_tile[first_row + r][i] * value;
        }
        __syncthreads(); // before the next tiles overwrite these
    }
    const int column = left + threadIdx.x;
    if (column >= n) return;
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = top + first_row + r;
        if (row < m) c[(size_t)row * n + column] = sums[r];
    }
}
