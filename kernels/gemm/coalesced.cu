/*
title:     Coalesced loads and stores
idea:      The same sums, but threads next to each other along x take values next to each other along n. A warp then
           reads a row of B and writes a row of C in four sectors of 32 bytes for eight values each. All its threads
           read the same value of A, a broadcast.
expect:    Several times faster than naive, since each warp needs a fraction of its memory transactions. Every product
           still takes two loads, so the rate of load instructions is the next limit.
builds_on: naive
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#coalesced-access-to-global-memory
threads:   [32, 8]
grid:      [ceil(n / 32), ceil(m / 8)]
limits:    {m: 524280}
claims:
  - says:     Several times faster than naive
    quantity: gpu_time
    change:   falls
    by:       50 %
  - says:     each warp needs a fraction of its memory transactions
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
*/

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" __global__ void gemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[(size_t)row * k + i] * b[(size_t)i * n + column];
    c[(size_t)row * n + column] = sum;
}
