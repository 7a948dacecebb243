// One value of a warp's lanes, or of a block's threads: all of them get it.

#pragma once

__device__ __forceinline__ float exchange(float value, int bits) { return __shfl_xor_sync(0xffffffffu, value, bits); }

// `combine` joins two values. All lanes of the warp must call it.
template <class Value, class Combine>
__device__ __forceinline__ Value warp_reduce(Value value, Combine combine)
{
    #pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) value = combine(value, exchange(value, bits));
    return value;
}

// Of whole warps. `of_warps` has room for the value of each warp and is free again after the block's next barrier.
// `nothing` is what changes no value that it is combined with.
template <class Value, class Combine>
__device__ __forceinline__ Value block_reduce(Value value, Value* of_warps, Value nothing, Combine combine)
{
    value = warp_reduce(value, combine);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : nothing;
    return warp_reduce(value, combine);
}
