/*
title:     Both layers by wgmma
idea:      'Hopper''s wgmma multiplies in every layer. In a first layer, a row of A is a run of 8 pixels in two rows, which
           serves several outputs. With many input channels, it is the pixels under one output. A lane has all four
           outputs of a pooling window. The TMA brings the fully connected layer its inputs as the first layer wrote
           them. That layer adds short sums by themselves, because tensor cores lose digits in long ones, and blocks
           share the inputs of all tiles evenly (stream-K). For few images there are other kernels, in which many blocks
           share an image. One CUDA graph launches all, and each kernel starts before the one ahead has ended
           (programmatic dependent launch).'
expect:    'The fully connected layer takes 15 to 40 % less time than cuBLAS, whose GEMMs, one for each share of the inputs,
           read and write all sums. First layers take a half to two thirds of the time that mma.sync takes. Errors fall
           to a quarter or less.'
builds_on: fused_cublas
split:     {precision: fp16, products: 3}
constants: {WINDOWS_BLOCKS: 4, RUNS_BLOCKS: 4, RUNS_86_BLOCKS: 4, WGMMA_4_GROUPS: 3, WGMMA_4_BLOCKS: 1}
method:    any
least_arch: sm_90a
reference: https://arxiv.org/abs/2301.03598
*/

#include "fused_mma.cu"

#include "conv_channels_wgmma.cuh"
#include "conv_pool_wgmma.cuh"
#include "conv_pool_windows.cuh"
#include "dense_few.cuh"
#include "dense_wgmma.cuh"
#include "dependent_launch.cuh"
#include "tanh.cuh"

constexpr int MOST_HIDDEN = 1024;  // values of the hidden layer

// ---- First layers of few channels --------------------------------------------------------------------

using Many48 = PooledRuns<5, 48, 6, 2, TANH, true>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_runs_48_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N)
{
    conv_pool_runs<Many48>(x, w, weight_parts, weight_exponents, StoreTiles<Many48>(y), N);
}

using Few48 = PooledRuns<5, 48, 6, 1, TANH, false>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_few_runs_48_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int N)
{
    conv_pool_runs<Few48>(x, w, weight_parts, weight_exponents, StoreFloats<Few48>(y), N);
}

using Many64 = PooledRuns<5, 64, 6, 2, TANH, true>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_runs_64_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N)
{
    conv_pool_runs<Many64>(x, w, weight_parts, weight_exponents, StoreTiles<Many64>(y), N);
}

using Few64 = PooledRuns<5, 64, 6, 1, TANH, false>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_few_runs_64_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int N)
{
    conv_pool_runs<Few64>(x, w, weight_parts, weight_exponents, StoreFloats<Few64>(y), N);
}

using Many72 = PooledRuns<7, 72, 12, 1, TANH, true>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_runs_72_7(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N)
{
    conv_pool_runs<Many72>(x, w, weight_parts, weight_exponents, StoreTiles<Many72>(y), N);
}

using Few72 = PooledRuns<7, 72, 12, 1, TANH, false>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_few_runs_72_7(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int N)
{
    conv_pool_runs<Few72>(x, w, weight_parts, weight_exponents, StoreFloats<Few72>(y), N);
}

using Pooled86 = PooledRuns<7, 86, 4, 1, RELU, false, 2>;

extern "C" __global__ void __launch_bounds__(128, RUNS_86_BLOCKS) conv_pool_runs_86_7(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int N)
{
    conv_pool_runs<Pooled86>(x, w, weight_parts, weight_exponents, StoreFloats<Pooled86>(y), N);
}

extern "C" __global__ void runs_layout(int* __restrict__ layout, int W)
{
    if (W == 48) write_runs_layout<Many48>(layout);
    if (W == 64) write_runs_layout<Many64>(layout);
    if (W == 72) write_runs_layout<Many72>(layout);
    if (W == 86) write_runs_layout<Pooled86>(layout);
}

extern "C" __global__ void split_runs(
    const float* __restrict__ w, __half* __restrict__ weight_parts, int* __restrict__ exponents, int W)
{
    if (W == 48 || W == 64) split_run_weights<Many64>(w, weight_parts, exponents);  // the same for both
    if (W == 72) split_run_weights<Many72>(w, weight_parts, exponents);
    if (W == 86) split_run_weights<Pooled86>(w, weight_parts, exponents);
}

// ---- The second layer, where pooling follows it -------------------------------------------------------

using PooledLayer4 = Layer<4, 40, 7, 16, 4, WGMMA_4_GROUPS, 4>;

extern "C" __global__ void split_wgmma_weights(
    const float* __restrict__ w, __half* __restrict__ weight_parts, int* __restrict__ exponents)
{
    split_channel_weights<PooledLayer4>(w, weight_parts, exponents);
}

extern "C" __global__ void wgmma_layout(int* __restrict__ layout) { write_channels_layout<PooledLayer4>(layout); }

// 4x40x40 * 16@7x7, ReLU, and the largest of each 4 x 4 outputs, windows cut at the end.
extern "C" __global__ void __launch_bounds__(128 * WGMMA_4_GROUPS + 128, WGMMA_4_BLOCKS) conv_pool_wgmma_4_7_16(
    const float* x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* y, int* y_exponents, int N)
{
    let_next_kernel_start();
    wait_for_kernel_before();
    conv_channels<PooledLayer4>({x, w, weight_parts, weight_exponents, nullptr, y, y_exponents, N});
}

// ---- The last layer ----------------------------------------------------------------------------------

// Adds up values of each lane over a warp, twice HALF of them and twice OFFSET lanes. A lane gets the sums of two, those
// from twice its number on.
template <int HALF = 32, int OFFSET = 16> __device__ __forceinline__ float2 warp_sums(float (&values)[2 * HALF])
{
    const bool upper = threadIdx.x & OFFSET;
    float kept[HALF];
    #pragma unroll
    for (int i = 0; i < HALF; ++i) {
        const float given = upper ? values[i] : values[i + HALF];
        kept[i] = (upper ? values[i + HALF] : values[i]) + __shfl_xor_sync(0xffffffffu, given, OFFSET);
    }
    if constexpr (OFFSET > 1)
        return warp_sums<HALF / 2, OFFSET / 2>(kept);
    else
        return make_float2(kept[0], kept[1]);
}

// What classify does, for shares of dense_wgmma, inputs that are at most 1, and up to 10 classes. A warp has five images
// of a tile, for which it reads the weights of the last layer once. `blocks` of a column share `stages`, `steps` a tile.
extern "C" __global__ void __launch_bounds__(256, 2) classify_shares(
    const float* partial, const int* __restrict__ weight_exponents, const float* __restrict__ b,
    const float* __restrict__ w_last, const float* __restrict__ b_last, float* __restrict__ scores,
    int* __restrict__ labels, int N, int padded, int hidden, int classes, int stages, int steps, int blocks)
{
    constexpr int IMAGES = 5, CLASSES = 10, GROUPS = (DENSE_ROWS + IMAGES - 1) / IMAGES;  // of a tile
    constexpr int ILP = 4;  // hidden values that a lane adds up side by side
    extern __shared__ __align__(128) unsigned smem_hi[];
    __shared__ float2 totals[8][32];
    float* const weights = (float*)smem_hi;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = blockIdx.x * 8 + warp, tile = group / GROUPS;
    const int first = tile * DENSE_ROWS + group % GROUPS * IMAGES;
    const int count = min(IMAGES, min((tile + 1) * DENSE_ROWS, N) - first);
    const int shares = count > 0 ? block_of_stage(tile * steps + steps - 1, stages, blocks)
                                       - block_of_stage(tile * steps, stages, blocks) + 1 : 0;
    float sums[ILP][IMAGES];
    const auto load = [&](int start) {
        #pragma unroll
        for (int j = 0; j < ILP; ++j)
            #pragma unroll
            for (int i = 0; i < IMAGES; ++i) sums[j][i] = 0.0f;
        for (int share = 0; share < shares; ++share)
            #pragma unroll
            for (int j = 0; j < ILP; ++j)
                #pragma unroll
                for (int i = 0; i < IMAGES; ++i)
                    sums[j][i] += partial[((size_t)share * N + first + min(i, count - 1)) * padded
                                          + min(start + j * 32, padded - 1)];
    };
    #pragma unroll 8
    for (int i = threadIdx.x; i < CLASSES * hidden; i += 256) weights[i] = i < classes * hidden ? w_last[i] : 0.0f;
    __syncthreads();
    wait_for_kernel_before();
    load(lane);

    float results[64] = {};  // of each image's classes
    for (int start = lane;;) {
        #pragma unroll
        for (int j = 0; j < ILP; ++j) {
            const int unit = start + j * 32;
            if (unit >= hidden) break;
            const float2 unscale = scale_factors(weight_exponents[unit] - 2 * SCALE_EXPONENT);
            const float bias = b[unit];
            #pragma unroll
            for (int i = 0; i < IMAGES; ++i) {
                const float value = tanh_of(sums[j][i] * unscale.x * unscale.y + bias);
                #pragma unroll
                for (int c = 0; c < CLASSES; ++c) results[i * CLASSES + c] += value * weights[c * hidden + unit];
            }
        }
        start += ILP * 32;
        if (start - lane >= hidden) break;
        load(start);
    }
    totals[warp][lane] = warp_sums(results);
    __syncwarp();
    const float* const found = (const float*)totals[warp];
    for (int i = lane; i < count * classes; i += 32)
        scores[(size_t)first * classes + i] = found[i / classes * CLASSES + i % classes] + b_last[i % classes];
    if (lane >= count) return;
    int label = 0;
    float largest = found[lane * CLASSES] + b_last[0];
    for (int c = 1; c < classes; ++c) {
        const float score = found[lane * CLASSES + c] + b_last[c];
        if (score > largest) {
            largest = score;
            label = c;
        }
    }
    labels[first + lane] = label;
}

// What classify does, for few images, a block each. Groups of threads, one of each hidden
// value, fetch some of the shares each, all at once. Then a warp has a class.
extern "C" __global__ void __launch_bounds__(MOST_HIDDEN) classify_few(
    const float* partial, const int* exponents, const int* __restrict__ weight_exponents, const float* __restrict__ b,
    const float* __restrict__ w_last, const float* __restrict__ b_last,
    float* __restrict__ scores, int* __restrict__ labels, int N, int shares, int padded, int hidden, int classes,
    int activation)
{
    __shared__ float sums[MOST_HIDDEN];
    __shared__ float smem_scores[16];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int groups = blockDim.x / hidden, group = threadIdx.x / hidden, unit = threadIdx.x % hidden;
    prefetch_l2(w_last, classes * hidden, threadIdx.x, MOST_HIDDEN);
    prefetch_l2(b, hidden, threadIdx.x, MOST_HIDDEN);
    prefetch_l2((const float*)weight_exponents, hidden, threadIdx.x, MOST_HIDDEN);
    wait_for_kernel_before();
    const float bias = b[unit];
    const int exponent = max(exponents[blockIdx.x] - SCALE_EXPONENT, -127);
    const float2 unscale = scale_factors(exponent + weight_exponents[unit] - SCALE_EXPONENT);
    float sum = 0.0f;
    #pragma unroll 16
    for (int share = group; share < shares; share += groups)
        sum += partial[((size_t)share * N + blockIdx.x) * padded + unit];
    if (group < groups) sums[threadIdx.x] = sum;
    __syncthreads();
    if (group == 0) {
        for (int other = 1; other < groups; ++other) sum += sums[other * hidden + unit];
        const float value = sum * unscale.x * unscale.y + bias;
        sums[unit] = activation == TANH ? tanh_of(value) : activated(value, activation);
    }
    __syncthreads();
    if (warp < classes) {
        float score = 0.0f;
        for (int i = lane; i < hidden; i += 32) score += sums[i] * w_last[warp * hidden + i];
        #pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) score += __shfl_xor_sync(0xffffffffu, score, offset);
        if (lane == 0) smem_scores[warp] = score + b_last[warp];
    }
    __syncthreads();
    if (warp > 0) return;
    const float score = lane < classes ? smem_scores[lane] : __int_as_float(0xff800000);
    if (lane < classes) scores[(size_t)blockIdx.x * classes + lane] = score;
    const int label = label_of(score, lane);
    if (lane == 0) labels[blockIdx.x] = label;
}
