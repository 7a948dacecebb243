/*
title:     FP32 as hi and lo FP16 parts, by wgmma
idea:      A thread computes several rows of outputs, so that a pixel that it fetched from shared memory serves every
           row of the kernel that meets it. Layers of several channels use Hopper's wgmma. It multiplies 64 columns
           of outputs by two rows of the kernel in all output channels, takes the weights from shared memory itself,
           and the pixels from registers. One warpgroup does nothing but split images, alternately into two slots.
           The others multiply one tile after another and wait only for that one, so that one stores while another
           multiplies. An image's results leave shared memory in one copy, where there is room for them. A lane's
           columns are neighbours that share pixels, where rows of outputs are whole pairs. Elsewhere, the values that
           a row of the kernel has beyond whole steps of 16 share steps with those of other rows, in place of zeros.
           A first layer of 4 output channels stays with mma.sync.
expect:    wgmma reaches a rate of the tensor cores that mma.sync cannot. At 10,000 images 12x33x33 falls from 1.65
           to 1.1 ms. Later layers of 16 output channels take 25 % to 40 % less time. The first layer, which reading
           pixels limits, takes 5 % to 20 % less. Errors stay those of FP32 sums.
check:     smsp__inst_executed.sum falls, a wgmma being many mma.sync
builds_on: fp16x3_mma
split:     {precision: fp16, products: 3}
kernel:    conv_multi_channel_12_7_24
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
constants: {MULTI_12_ROWS: 4, MULTI_12_GROUPS: 2, MULTI_12_BLOCKS: 1,
            MULTI_6_30_ROWS: 4, MULTI_6_30_GROUPS: 3, MULTI_6_30_BLOCKS: 1,
            MULTI_6_22_ROWS: 6, MULTI_6_22_GROUPS: 2, MULTI_6_22_BLOCKS: 1,
            MULTI_4_ROWS: 4, MULTI_4_GROUPS: 3, MULTI_4_BLOCKS: 1,
            SINGLE_86_ROWS: 4, SINGLE_86_THREADS: 256, SINGLE_86_BLOCKS: 2, FP32_THREADS: 512}
limits:    {layers: [12x33x33 * 24@7x7, 6x30x30 * 16@5x5, 6x22x22 * 16@5x5, 4x40x40 * 16@7x7, 1x86x86 * 4@7x7]}
least_arch: sm_90a
claims:
  - says:     12x33x33 falls from 1.65 to 1.1 ms
    quantity: op_time
    change:   falls
    by:       {at_least: 30 %}
    where:    {C: {is: 12}, N: {at_least: 10000}}
  - says:     25 % to 40 % less time
    quantity: op_time
    change:   falls
    by:       {at_least: 25 %, at_most: 40 %}
    where:    {C: {at_least: 2}, M: {is: 16}, N: {at_least: 10000}}
  - says:     5 % to 20 % less
    quantity: op_time
    change:   falls
    by:       {at_least: 5 %, at_most: 20 %}
    where:    {C: {is: 1}, N: {at_least: 10000}}
  - says:     Errors stay those of FP32 sums
    quantity: error
    value:    {at_most: 0.000002}
  - says:     smsp__inst_executed.sum falls
    quantity: smsp__inst_executed.sum
    change:   falls
*/

#include "conv_channels_wgmma.cuh"
#include "conv_single_channel.cuh"
#include "fp16_split.cuh"

// ---- Layers of several channels -----------------------------------------------------------------

using Layer12 = Layer<12, 33, 7, 24, MULTI_12_ROWS, MULTI_12_GROUPS>;
using Layer6x30 = Layer<6, 30, 5, 16, MULTI_6_30_ROWS, MULTI_6_30_GROUPS>;
using Layer6x22 = Layer<6, 22, 5, 16, MULTI_6_22_ROWS, MULTI_6_22_GROUPS>;
using Layer4 = Layer<4, 40, 7, 16, MULTI_4_ROWS, MULTI_4_GROUPS>;

extern "C" __global__ void split_multi_channel_weights(
    const float* __restrict__ w, __half* __restrict__ weight_parts, int* __restrict__ exponents,
    int* __restrict__ fallback_list, int C)
{
    if (blockIdx.x == 0 && threadIdx.x == 0) fallback_list[0] = 0;
    if (C == 12) split_channel_weights<Layer12>(w, weight_parts, exponents);
    if (C == 6) split_channel_weights<Layer6x30>(w, weight_parts, exponents);  // Layer6x22's are the same
    if (C == 4) split_channel_weights<Layer4>(w, weight_parts, exponents);
}

extern "C" __global__ void multi_channel_layout(int* __restrict__ layout, int C, int H)
{
    if (C == 12) write_channels_layout<Layer12>(layout);
    if (C == 6 && H == 30) write_channels_layout<Layer6x30>(layout);
    if (C == 6 && H == 22) write_channels_layout<Layer6x22>(layout);
    if (C == 4) write_channels_layout<Layer4>(layout);
}

extern "C" __global__ void __launch_bounds__(128 * MULTI_12_GROUPS + 128, MULTI_12_BLOCKS) conv_multi_channel_12_7_24(
    const float* __restrict__ x, const uint4* __restrict__ weight_parts, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    conv_channels<Layer12>({x, nullptr, weight_parts, weight_exponents, fallback_list, y, nullptr, N});
}

extern "C" __global__ void __launch_bounds__(128 * MULTI_6_30_GROUPS + 128, MULTI_6_30_BLOCKS)
conv_multi_channel_6_30_5_16(
    const float* __restrict__ x, const uint4* __restrict__ weight_parts, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    conv_channels<Layer6x30>({x, nullptr, weight_parts, weight_exponents, fallback_list, y, nullptr, N});
}

extern "C" __global__ void __launch_bounds__(128 * MULTI_6_22_GROUPS + 128, MULTI_6_22_BLOCKS)
conv_multi_channel_6_22_5_16(
    const float* __restrict__ x, const uint4* __restrict__ weight_parts, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    conv_channels<Layer6x22>({x, nullptr, weight_parts, weight_exponents, fallback_list, y, nullptr, N});
}

extern "C" __global__ void __launch_bounds__(128 * MULTI_4_GROUPS + 128, MULTI_4_BLOCKS) conv_multi_channel_4_7_16(
    const float* __restrict__ x, const uint4* __restrict__ weight_parts, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    conv_channels<Layer4>({x, nullptr, weight_parts, weight_exponents, fallback_list, y, nullptr, N});
}

// ---- The layer of one channel -------------------------------------------------------------------

extern "C" __global__ void split_single_channel_weights(
    const float* __restrict__ w, uint2* __restrict__ weight_fragments, int* __restrict__ exponents,
    int* __restrict__ fallback_list, int K)
{
    split_single_channel_weights_of(w, weight_fragments, exponents, fallback_list, true, K);
}

// Fetch the fragments of A for 16 runs in consecutive rows of pixels.
template <int W, int ROWS>
__device__ __forceinline__ void load_rows(uint2 (&rows)[ROWS], const unsigned* smem_pixels)
{
    #pragma unroll
    for (int row = 0; row < ROWS; ++row)
        rows[row] = make_uint2(smem_pixels[row * (W / 2)], smem_pixels[row * (W / 2) + 1]);
}

// Multiply 16 runs in ROWS rows of outputs by the weights: row r of the outputs meets row p of the kernel in row r + p
// of the pixels. hi * hi goes to `large`, the smaller products to `small`, because tensor cores cut off digits that do
// not fit beside a larger sum.
template <int ROWS, int K>
__device__ __forceinline__ void mma_rows(
    float (&large)[ROWS][4], float (&small)[ROWS][4], const uint2 (&hi)[ROWS + K - 1], const uint2 (&lo)[ROWS + K - 1],
    const uint2 (&weights)[K])
{
    #pragma unroll
    for (int p = 0; p + 1 < K; p += 2)
        #pragma unroll
        for (int product = 0; product < 3; ++product)  // hi * hi, hi * lo, lo * hi
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const uint2 (&pixels)[ROWS + K - 1] = product == 2 ? lo : hi;
                const unsigned b0 = product == 1 ? weights[p].y : weights[p].x;
                const unsigned b1 = product == 1 ? weights[p + 1].y : weights[p + 1].x;
                const uint4 a = make_uint4(pixels[r + p].x, pixels[r + p].y, pixels[r + p + 1].x, pixels[r + p + 1].y);
                mma_m16n8k16(product == 0 ? large[r] : small[r], a, b0, b1);
            }
    #pragma unroll
    for (int product = 0; product < 3; ++product)
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const uint2 a = (product == 2 ? lo : hi)[r + K - 1];
            mma_m16n8k8(product == 0 ? large[r] : small[r], a.x, a.y,
                        product == 1 ? weights[K - 1].y : weights[K - 1].x);
        }
}

// Undo the scales of a lane's outputs and store them, four neighbours in each row.
template <int W_OUT, int ROWS>
__device__ __forceinline__ void store_rows(
    float* destination, const float (&large)[ROWS][4], const float (&small)[ROWS][4], float unscale)
{
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float (&l)[4] = large[r], (&s)[4] = small[r];
        *(float4*)(destination + r * W_OUT) = make_float4((l[0] + s[0]) * unscale, (l[1] + s[1]) * unscale,
                                                          (l[2] + s[2]) * unscale, (l[3] + s[3]) * unscale);
    }
}

// 1x86x86 * 4@7x7. A block takes one image after another, and the next waits in registers. A warp multiplies 16 runs of
// 8 pixels, each of which serves two neighbouring outputs, by the 8 columns of weights, in ROWS rows of outputs at a
// time: the pixels of a row are fetched once for all rows of the kernel that meet it.
extern "C" __global__ void __launch_bounds__(SINGLE_86_THREADS, SINGLE_86_BLOCKS) conv_single_channel_86_7(
    const float* __restrict__ x, const uint2* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    constexpr int W = 86, K = 7, M = 4, ROWS = SINGLE_86_ROWS, THREADS = SINGLE_86_THREADS;
    constexpr int W_OUT = W - K + 1;
    constexpr int PAIRS = W * W / 2;  // of pixels
    constexpr int LOADS_PER_THREAD = (PAIRS + THREADS - 1) / THREADS;
    constexpr int RUNS_PER_ROW = W_OUT / 2;
    constexpr int RUNS = W_OUT / ROWS * RUNS_PER_ROW;  // of the first row of each band of ROWS
    static_assert(RUNS_PER_ROW % 2 == 0 && W_OUT % ROWS == 0 && RUNS % 16 == 0, "a lane's two runs are neighbours");

    extern __shared__ __align__(128) uint4 shared[];
    __shared__ unsigned warp_max[THREADS / 32];
    unsigned* const smem_hi = (unsigned*)shared;
    unsigned* const smem_lo = smem_hi + PAIRS;
    const int lane = threadIdx.x % 32;
    const int group_id = lane / 4;
    const int lane_in_group = lane % 4;
    const int channel = lane_in_group;
    const int channel_exponent = weight_exponents[channel];
    uint2 weights[K];
    #pragma unroll
    for (int p = 0; p < K; ++p) weights[p] = weight_fragments[p * 32 + lane];

    float2 values[LOADS_PER_THREAD];
    const auto load = [&](int image) {
        load_pairs(values, (const float2*)(x + (size_t)image * W * W), PAIRS, THREADS);
    };
    load(blockIdx.x);

    for (int image = blockIdx.x; image < N; image += gridDim.x) {
        // Its barrier also keeps the image before from being overwritten while it is read.
        const unsigned largest = block_max(max_magnitude(values), warp_max);
        const ImageScale image_scale = scale_of_image(largest);
        const int exponent = image_scale.exponent;
        const bool not_multiplied =
            largest >= INFINITY_BITS || scale_out_of_range_in_warp(exponent, weight_exponents, M);
        bool out_of_range = not_multiplied;
        split_pairs(values, smem_hi, smem_lo, PAIRS, THREADS, image_scale, out_of_range);
        if (image + gridDim.x < N) load(image + gridDim.x);
        float* const result = y + (size_t)image * (M * W_OUT * W_OUT);
        // The image is complete before anyone reads it.
        if (__syncthreads_or(out_of_range) && threadIdx.x == 0)
            append_fallback(fallback_list, image, not_multiplied ? OUT_OF_RANGE : exponent);
        if (not_multiplied) continue;

        const float unscale = power_of_two(exponent + channel_exponent - 2 * SCALE_EXPONENT);
        for (int first = threadIdx.x / 32 * 16; first < RUNS; first += THREADS / 32 * 16) {
            // Rows group_id and group_id + 8 of A are neighbouring runs, so that a lane's four outputs are one vector.
            const int run = first + 2 * group_id;
            const int top = run / RUNS_PER_ROW * ROWS;
            const int place = top * (W / 2) + run % RUNS_PER_ROW + lane_in_group;
            uint2 hi[ROWS + K - 1], lo[ROWS + K - 1];
            load_rows<W>(hi, smem_hi + place);
            load_rows<W>(lo, smem_lo + place);
            float large[ROWS][4] = {}, small[ROWS][4] = {};
            mma_rows(large, small, hi, lo, weights);
            store_rows<W_OUT>(result + (channel * W_OUT + top) * W_OUT + run % RUNS_PER_ROW * 2, large, small, unscale);
        }
    }
}
