/*
title:     One thread for each value of C
idea:      Every thread computes one value, reading its row of A and its column of B straight from global memory.
           Threads next to each other along x take values next to each other along m, as a beginner may write it. So a
           warp reads 32 rows of A at a time and writes 32 rows of C.
expect:    The starting point that every step of the ladder is held against. A warp's loads of A and its stores fall
           into 32 different sectors each, so memory transactions are the limit, far from the FP32 peak.
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#shared-memory
threads:   [16, 16]
grid:      [ceil(m / 16), ceil(n / 16)]
limits:    {n: 1048560}
claims:
  - says:     far from the FP32 peak
    quantity: fp32_peak_share
    value:    {at_most: 10 %}
*/

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" __global__ void gemm(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    const int column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[(size_t)row * k + i] * b[(size_t)i * n + column];
    c[(size_t)row * n + column] = sum;
}
