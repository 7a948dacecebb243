// The sum of n values by all threads of a grid, vectors of four at a time.

#pragma once
#include "warp_reduce.cuh"

// A thread's share: every so many-th vector, VECTORS of them under way at once, and what is left behind the last
// vector.
__device__ __forceinline__ float sum_stride(const float* __restrict__ x, int n)
{
    const float4* vectors = (const float4*)x;
    const int count = n / 4, threads = gridDim.x * THREADS, thread = blockIdx.x * THREADS + threadIdx.x;
    float4 sums = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const auto add = [&](float4 v) {
        sums.x += v.x;
        sums.y += v.y;
        sums.z += v.z;
        sums.w += v.w;
    };
    int i = thread;
    for (; i + (VECTORS - 1) * threads < count; i += VECTORS * threads) {
        float4 loaded[VECTORS];
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) loaded[v] = vectors[i + v * threads];
        #pragma unroll
        for (int v = 0; v < VECTORS; ++v) add(loaded[v]);
    }
    for (; i < count; i += threads) add(vectors[i]);
    if (thread < n % 4) sums.x += x[count * 4 + thread];
    return (sums.x + sums.y) + (sums.z + sums.w);
}

// `sum_of_warps` has room for the sum of each warp. A second call may follow the first at once.
__device__ __forceinline__ float sum_block(float sum, float* sum_of_warps)
{
    __syncthreads(); // nobody reads sums of a call before any more
    return block_reduce(sum, sum_of_warps, 0.0f, [](float a, float b) { return a + b; });
}
