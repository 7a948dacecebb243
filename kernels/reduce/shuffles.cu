/*
title:     Reduced by shuffles within warps
idea:      The lanes of each warp add their values through registers, and shared memory holds one sum for each warp.
expect:    One barrier is left of three, and accesses to shared memory fall to a tenth. A block's time is mostly the
           wait for its two loads by now, so time falls by less than 20 %.
builds_on: unrolled_warp
reference: https://developer.nvidia.com/blog/faster-parallel-reductions-kepler/
constants: {THREADS: 256, VALUES: 512}     # VALUES: that a block adds up
claims:
  - says:     accesses to shared memory fall to a tenth
    quantity: l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
    change:   falls
    by:       85 %
  - says:     time falls by less than 20 %
    quantity: gpu_time
    change:   falls
    by:       {at_most: 20 %}
    where:    {n: {at_least: 16777216}}
*/

#include "warp_reduce.cuh"

// x (n), y (a sum for each block of VALUES); float32.
extern "C" __global__ void __launch_bounds__(THREADS) reduce(const float* __restrict__ x, float* __restrict__ y, int n)
{
    static_assert(VALUES == 2 * THREADS, "two values for each thread");
    __shared__ float sum_of_warps[THREADS / 32];
    const int thread = threadIdx.x;
    const size_t place = (size_t)blockIdx.x * VALUES + thread;
    const float first = place < n ? x[place] : 0.0f;
    const float second = place + THREADS < n ? x[place + THREADS] : 0.0f;
    const float sum = block_reduce(first + second, sum_of_warps, 0.0f, [](float a, float b) { return a + b; });
    if (thread == 0) y[blockIdx.x] = sum;
}
