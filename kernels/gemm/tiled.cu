/*
title:     Tiles of A and B in shared memory
idea:      A block of 32 x 32 threads computes a tile of C. It loads a 32 x 32 tile of A and one of B into shared
           memory, each value once, multiplies them, and goes on with the next tiles along k. Each value from global
           memory serves 32 threads.
expect:    Global loads fall to a thirty-second. Every product still takes two loads from shared memory, whose rate is
           the next limit, so time falls less than loads do.
builds_on: coalesced
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#shared-memory
constants: {TILE: 32}
threads:   [TILE, TILE]
grid:      [ceil(n / TILE), ceil(m / TILE)]
limits:    {m: 2097120}
claims:
  - says:     Global loads fall to a thirty-second
    quantity: smsp__inst_executed_op_global_ld.sum
    change:   falls
    by:       90 %
  - says:     time falls less than loads do
    quantity: gpu_time
    change:   falls
*/

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" __global__ void gemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;

    float sum = 0.0f;
    for (int begin = 0; begin < k; begin += TILE) {
        a_tile[y][x] = row < m && begin + x < k ? a[(size_t)row * k + begin + x] : 0.0f;
        b_tile[y][x] = begin + y < k && column < n ? b[(size_t)(begin + y) * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) sum += a_tile[y][i] * b_tile[i][x];
        __syncthreads(); // before the next tiles overwrite these
    }
    if (row < m && column < n) c[(size_t)row * n + column] = sum;
}
