// FP32 values as pairs of FP16 values: after scaling by a power of two, value = hi + lo, which keeps 22 bits. The
// product of two split values takes three FP16 products, hi * hi + hi * lo + lo * hi; lo * lo is below FP32's
// precision.

#pragma once
#include <cuda_fp16.h>

// Values are scaled below 2^(SCALE_EXPONENT + 1), so that no hi part overflows. A lo part is then exact to 2^-25, which
// is FP32's own precision down to 2^MIN_EXPONENT of the largest value. Smaller values lose digits.
constexpr int SCALE_EXPONENT = 14;
#ifndef MIN_EXPONENT
#define MIN_EXPONENT (-17)
#endif

constexpr unsigned INFINITY_BITS = 0x7f800000u;  // of FP32's infinity; those of NaN are larger
constexpr int OUT_OF_RANGE = 1024;  // stands for the exponent of values that no power of two brings into FP16's range

// Two scaled values: their hi parts in x, their lo parts in y.
__device__ __forceinline__ uint2 split(float first, float second)
{
    const __half2 hi = __floats2half2_rn(first, second);
    const float2 rounded = __half22float2(hi);
    const __half2 lo = __floats2half2_rn(first - rounded.x, second - rounded.y);
    return make_uint2(*(const unsigned*)&hi, *(const unsigned*)&lo);
}

// 2^e for e from -149 to 127.
__device__ __forceinline__ float power_of_two(int e)
{
    return __int_as_float(e >= -126 ? (e + 127) << 23 : 1 << (e + 149));
}

// 2^e as two factors, for an e that one float cannot hold. Nothing is lost unless the result itself is subnormal.
__device__ __forceinline__ float2 scale_factors(int e)
{
    e = max(-280, min(e, 254));
    return make_float2(power_of_two(e / 2), power_of_two(e - e / 2));
}

// The bits of a value without its sign. As unsigned numbers they are in the order of the magnitudes.
__device__ __forceinline__ unsigned magnitude_bits(float value)
{
    return __float_as_uint(value) & 0x7fffffffu;
}

// e with 2^e <= magnitude < 2^(e + 1); 0 for zero.
__device__ __forceinline__ int exponent_of(unsigned magnitude)
{
    if (magnitude == 0) return 0;
    return magnitude >> 23 ? (int)(magnitude >> 23) - 127 : -118 - __clz(magnitude);
}

// The smallest magnitude that keeps FP32's precision beside values of an exponent.
__device__ __forceinline__ float min_magnitude(int exponent)
{
    return power_of_two(max(exponent + MIN_EXPONENT, -149));
}

// Whether one float cannot hold the scale of an image, or what undoes the scales of the image and of an output
// channel's weights. Each of `threads` threads looks at its share of the M channels.
__device__ __forceinline__ bool scale_out_of_range(
    int image_exponent, const int* __restrict__ weight_exponents, int M, int thread, int threads)
{
    bool out_of_range = image_exponent < SCALE_EXPONENT - 127;
    for (int channel = thread; channel < M; channel += threads) {
        const int unscale_exponent = image_exponent + weight_exponents[channel] - 2 * SCALE_EXPONENT;
        out_of_range |= unscale_exponent < -126 || unscale_exponent > 127;
    }
    return out_of_range;
}

// The same, where all threads of a block share the channels.
__device__ __forceinline__ bool scale_out_of_range(int image_exponent, const int* __restrict__ weight_exponents, int M)
{
    return scale_out_of_range(image_exponent, weight_exponents, M, threadIdx.x, blockDim.x);
}

// The same for all lanes of a warp, which must all call it.
__device__ __forceinline__ bool scale_out_of_range_in_warp(
    int image_exponent, const int* weight_exponents, int M)
{
    return __any_sync(
        0xffffffffu, scale_out_of_range(image_exponent, weight_exponents, M, threadIdx.x % 32, 32));
}

// What brings an image's values into FP16's range, and the smallest magnitude that then keeps FP32's precision.
struct ImageScale {
    int exponent;  // of the largest
    float scale, least;
};
__device__ __forceinline__ ImageScale scale_of_image(unsigned largest)
{
    const int exponent = exponent_of(largest);
    return {exponent, power_of_two(min(SCALE_EXPONENT - exponent, 127)), min_magnitude(exponent)};
}

// The largest `mine` of a block's threads. Ends with a barrier, before which `warp_max` must not be in use.
__device__ __forceinline__ unsigned block_max(unsigned mine, unsigned* warp_max)
{
    mine = __reduce_max_sync(0xffffffffu, mine);
    if (threadIdx.x % 32 == 0) warp_max[threadIdx.x / 32] = mine;
    __syncthreads();
    for (int i = 0; i < blockDim.x / 32; ++i) mine = max(mine, warp_max[i]);
    return mine;
}

// What the `count` weights of an output channel, if there is one, are to be scaled by. A block calls it for one channel
// and also stores the exponent of the channel's largest weight.
__device__ __forceinline__ float2 weight_scale(
    const float* weights, int count, bool has_channel, int channel, int* exponents)
{
    __shared__ unsigned warp_max[32];
    unsigned largest = 0;
    if (has_channel)
        for (int i = threadIdx.x; i < count; i += blockDim.x) largest = max(largest, magnitude_bits(weights[i]));
    largest = block_max(largest, warp_max);
    const int exponent = exponent_of(largest);
    if (threadIdx.x == 0) exponents[channel] = largest < INFINITY_BITS ? exponent : OUT_OF_RANGE;
    return scale_factors(SCALE_EXPONENT - exponent);
}
