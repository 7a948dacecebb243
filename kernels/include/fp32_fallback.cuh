// Images with values that FP16 parts cannot hold: a list of them, and a kernel that computes their outputs in FP32.
// fallback_list holds the number of its images, then from its third int on an image and its exponent for each. An image
// whose exponent is OUT_OF_RANGE was not multiplied at all.

#pragma once
#include "fp16_split.cuh"

__device__ __forceinline__ void append_fallback(int* __restrict__ fallback_list, int image, int exponent)
{
    ((int2*)fallback_list)[1 + atomicAdd(fallback_list, 1)] = make_int2(image, exponent);
}

// Output i of an image, computed in FP32.
template <int K>
__device__ __forceinline__ float conv_output_fp32(
    const float* __restrict__ x, const float* __restrict__ w, int C, int H, int W, int i)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const float* input = x + i / W_out % H_out * W + i % W_out;
    const float* weights = w + (size_t)(i / (H_out * W_out)) * C * K * K;
    float sum = 0.0f;
    #pragma unroll 1
    for (int c = 0; c < C; ++c, input += H * W, weights += K * K)
        #pragma unroll
        for (int p = 0; p < K; ++p)
            #pragma unroll
            for (int q = 0; q < K; ++q) sum += input[p * W + q] * weights[p * K + q];
    return sum;
}
__device__ __forceinline__ float conv_output_fp32(
    const float* __restrict__ x, const float* __restrict__ w, int C, int H, int W, int K, int i)
{
    return K == 5 ? conv_output_fp32<5>(x, w, C, H, W, i) : conv_output_fp32<7>(x, w, C, H, W, i);
}

// Computes in FP32 those outputs of a listed image that a value too small for FP16 parts contributes to, or all of
// them. A block takes one listed image after another.
extern "C" __global__ void __launch_bounds__(FP32_THREADS) fp32_fallback_kernel(
    const float* __restrict__ x, const float* __restrict__ w, const int* __restrict__ fallback_list,
    float* __restrict__ y, int C, int H, int W, int M, int K)
{
    extern __shared__ int affected_outputs[];  // of one output channel; the same for all of them
    __shared__ int affected_count;
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    bool* const small_pixel = (bool*)(affected_outputs + H_out * W_out);
    for (int i = blockIdx.x; i < fallback_list[0]; i += gridDim.x) {
        const int2 entry = ((const int2*)fallback_list)[1 + i];
        const bool all = entry.y == OUT_OF_RANGE;
        const float* const input = x + (size_t)entry.x * C * H * W;
        const unsigned least = all ? 0 : __float_as_uint(min_magnitude(entry.y));
        if (threadIdx.x == 0) affected_count = 0;
        for (int pixel = threadIdx.x; pixel < H * W; pixel += blockDim.x) {
            bool any = all;
            for (int c = 0; c < C; ++c) {
                const unsigned magnitude = magnitude_bits(input[c * H * W + pixel]);
                any |= magnitude != 0 && magnitude < least;
            }
            small_pixel[pixel] = any;
        }
        __syncthreads();
        for (int output = threadIdx.x; output < H_out * W_out; output += blockDim.x) {
            const bool* const corner = small_pixel + output / W_out * W + output % W_out;
            bool any = false;
            for (int p = 0; p < K; ++p)
                for (int q = 0; q < K; ++q) any |= corner[p * W + q];
            if (any) affected_outputs[atomicAdd(&affected_count, 1)] = output;
        }
        __syncthreads();
        for (int j = threadIdx.x; j < affected_count * M; j += blockDim.x) {
            const int output = j / affected_count * H_out * W_out + affected_outputs[j % affected_count];
            y[(size_t)entry.x * M * H_out * W_out + output] = conv_output_fp32(input, w, C, H, W, K, output);
        }
        __syncthreads();
    }
}
