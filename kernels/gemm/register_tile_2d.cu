/*
title:     A square of C in a thread's registers
idea:      A thread computes 8 x 8 values of C. For each step along k it reads 8 values of A and 8 of B from shared
           memory into registers, and these 16 serve 64 multiply-adds. A block computes 128 x 128 values.
expect:    A value read from shared memory serves 4 multiply-adds; a thread of register_tile_1d has 8 for 9 values. A
           global value serves 128 threads in place of 64, so that global loads halve again. The loop over k then
           issues more multiply-adds than anything else. Faster by at least a third. Small matrices lose, since 512 x
           512 makes only 16 blocks.
builds_on: register_tile_1d
reference: https://siboehm.com/articles/22/CUDA-MMM
constants: {TILE: 128, TILE_K: 8, SIDE: 8}
threads:   [TILE / SIDE, TILE / SIDE]
grid:      [ceil(n / TILE), ceil(m / TILE)]
limits:    {m: 8388480}
claims:
  - says:     Faster by at least a third
    quantity: gpu_time
    change:   falls
    by:       25 %
    where:    {n: {at_least: 4096}}
  - says:     global loads halve again
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
    by:       40 %
    where:    {n: {at_least: 2048}}
  - says:     The loop over k then issues more multiply-adds than anything else
    quantity: fma_share
    value:    {at_least: 50 %}
    where:    {n: {at_least: 2048}}
  - says:     Small matrices lose
    quantity: gpu_time
    change:   rises
    where:    {m: {at_most: 512}, n: {at_most: 512}}
*/

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" __global__ void __launch_bounds__(TILE / SIDE * TILE / SIDE, 2) gemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    constexpr int THREADS = TILE / SIDE * TILE / SIDE, LOADS = TILE * TILE_K / THREADS;
    static_assert(TILE * TILE_K % THREADS == 0, "every thread loads as much");
    // A is transposed, so that a thread's rows are neighbours; 4 values between columns keep its stores off each
    // other's banks.
    __shared__ __align__(16) float a_tile[TILE_K][TILE + 4], b_tile[TILE_K][TILE];
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
    const int first_row = threadIdx.y * SIDE, first_column = threadIdx.x * SIDE;

    float sums[SIDE][SIDE] = {};
    for (int begin = 0; begin < k; begin += TILE_K) {
        #pragma unroll
        for (int load = 0; load < LOADS; ++load) {
            const int i = load * THREADS + thread;
            const int row = top + i / TILE_K, in_sum = begin + i % TILE_K;
            a_tile[i % TILE_K][i / TILE_K] = row < m && in_sum < k ? a[(size_t)row * k + in_sum] : 0.0f;
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
            float a_values[SIDE], b_values[SIDE];
            #pragma unroll
            for (int r = 0; r < SIDE; ++r) a_values[r] = a_tile[i][first_row + r];
            #pragma unroll
            for (int s = 0; s < SIDE; ++s) b_values[s] = b_tile[i][first_column + s];
            #pragma unroll
            for (int r = 0; r < SIDE; ++r)
                #pragma unroll
                for (int s = 0; s < SIDE; ++s) sums[r][s] += a_values[r] * b_values[s];
        }
        __syncthreads(); // before the next tiles overwrite these
    }
    #pragma unroll
    for (int r = 0; r < SIDE; ++r) {
        const int row = top + first_row + r;
        #pragma unroll
        for (int s = 0; s < SIDE; ++s) {
            const int column = left + first_column + s;
            if (row < m && column < n) c[(size_t)row * n + column] = sums[r][s];
        }
    }
}
