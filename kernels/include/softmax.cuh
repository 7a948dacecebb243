// The maximum of some values and the sum of their exponentials in one pass: whenever a larger value appears, the sum so
// far is scaled down.

#pragma once
#include "warp_reduce.cuh"

constexpr float LOWEST = -3.402823466e+38f;  // finite, so that LOWEST - LOWEST is no NaN

struct MaxAndSum {
    float max = LOWEST;
    float sum = 0.0f;  // of exp(value - max)
};

__device__ __forceinline__ void add(MaxAndSum& running, float value)
{
    const float max = fmaxf(running.max, value);
    running.sum = running.sum * expf(running.max - max) + expf(value - max);
    running.max = max;
}

__device__ __forceinline__ MaxAndSum merge(MaxAndSum a, MaxAndSum b)
{
    MaxAndSum both;
    both.max = fmaxf(a.max, b.max);
    both.sum = a.sum * expf(a.max - both.max) + b.sum * expf(b.max - both.max);
    return both;
}

// Four values at a time: one rescaling for all of them.
__device__ __forceinline__ void add(MaxAndSum& running, float4 values)
{
    const float max = fmaxf(fmaxf(running.max, fmaxf(values.x, values.y)), fmaxf(values.z, values.w));
    running.sum = running.sum * expf(running.max - max) + expf(values.x - max) + expf(values.y - max)
                + expf(values.z - max) + expf(values.w - max);
    running.max = max;
}

__device__ __forceinline__ MaxAndSum exchange(MaxAndSum value, int bits)
{
    MaxAndSum other;
    other.max = exchange(value.max, bits);
    other.sum = exchange(value.sum, bits);
    return other;
}

__device__ __forceinline__ MaxAndSum merge_block(MaxAndSum mine, MaxAndSum* of_warps)
{
    return block_reduce(mine, of_warps, MaxAndSum{}, [](MaxAndSum a, MaxAndSum b) { return merge(a, b); });
}
