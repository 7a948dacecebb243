/*
title:     Vectors, as many blocks as fit the device
idea:      Each multiprocessor gets BLOCKS blocks, whatever n is. Their threads stride over x by vectors of four, four
           of them under way at once, and keep a sum for each place in the vector. A second launch of one block adds
           the blocks' sums.
expect:    shuffles starts a block for every 2048 bytes. Here a block starts once, and a thread has 64 bytes under
           way. So a multiprocessor has 128 KiB, more than the 40 or so that latency times bandwidth asks for. 92 % of
           the copy rate or more from 2^26 values on. At 2^16 values launches alone are seen. On 132 multiprocessors
           each sum is of 248 values at 2^28, one after another. So the error grows faster than the logarithm of n, up
           to three times that of shuffles.
builds_on: shuffles
reference: https://developer.nvidia.com/blog/cuda-pro-tip-write-flexible-kernels-grid-stride-loops/
constants: {THREADS: 256, BLOCKS: 8, VECTORS: 4}
claims:
  - says:     92 % of the copy rate or more from 2^26 values on
    quantity: times_memory_bound
    value:    {at_most: 1.09}
    where:    {n: {at_least: 67108864}}
  - says:     up to three times that of shuffles
    undecidable: "one sum's error is chance, and the tests draw few; it takes the test of precision over many"
*/

#include "grid_sum.cuh"

// x (n), y (a sum for each block); float32.
extern "C" __global__ void __launch_bounds__(THREADS) reduce(const float* __restrict__ x, float* __restrict__ y, int n)
{
    __shared__ float sum_of_warps[THREADS / 32];
    const float sum = sum_block(sum_stride(x, n), sum_of_warps);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

// The sum of all blocks, by one block.
extern "C" __global__ void __launch_bounds__(THREADS) reduce_blocks(
    const float* __restrict__ sums, float* __restrict__ y, int blocks)
{
    __shared__ float sum_of_warps[THREADS / 32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < blocks; i += THREADS) sum += sums[i];
    sum = sum_block(sum, sum_of_warps);
    if (threadIdx.x == 0) y[0] = sum;
}
