/*
title:     One launch, the last block adds up
idea:      Each block writes its sum and then counts itself in an atomic counter. The block that finishes last
           adds up the sums of all blocks. Their order is fixed, so that the result is the same from call to call.
expect:    The second launch and its 2 to 3 us go. At 2^16 values that is a third or more of the time; at 2^28, of 0.36
           ms, less than 2 %. The error stays that of grid_stride, whose order it keeps.
builds_on: grid_stride
reference: https://github.com/NVIDIA/cuda-samples/tree/master/Samples/2_Concepts_and_Techniques/threadFenceReduction
constants: {THREADS: 256, BLOCKS: 8, VECTORS: 4}
claims:
  - says:     At 2^16 values that is a third or more of the time
    quantity: gpu_time
    change:   falls
    by:       33 %
    where:    {n: {is: 65536}}
  - says:     less than 2 %
    quantity: gpu_time
    change:   stays
    by:       2 %
    where:    {n: {is: 268435456}}
*/

#include "grid_sum.cuh"

extern "C" __global__ void clear(unsigned* __restrict__ finished_blocks) { *finished_blocks = 0; }

// x (n), sums (a sum for each block), finished_blocks (0 before and after), y (1); float32.
extern "C" __global__ void __launch_bounds__(THREADS) reduce(
    const float* __restrict__ x, float* sums, unsigned* finished_blocks, float* __restrict__ y, int n)
{
    __shared__ float sum_of_warps[THREADS / 32];
    __shared__ bool is_last;
    const float sum = sum_block(sum_stride(x, n), sum_of_warps);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        __threadfence(); // whoever sees the count sees the sum
        is_last = atomicAdd(finished_blocks, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence(); // sums are read after the count
    float total = 0.0f;
    for (int i = threadIdx.x; i < gridDim.x; i += THREADS) total += __ldcg(sums + i);
    total = sum_block(total, sum_of_warps);
    if (threadIdx.x != 0) return;
    y[0] = total;
    *finished_blocks = 0; // for the next call
}
