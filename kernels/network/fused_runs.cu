/*
title:     First layers of few channels by wgmma
idea:      'Instructions limit fused_mma''s first layer: products by mma.sync, and copies that bring pixels into their
           order. Hopper''s wgmma multiplies 64 runs of 8 neighbouring pixels in two rows at a time. Its columns are the
           weights of each channel at the four places of a pooling window. So a lane has all four outputs of a window.
           The results are split for cuBLAS (fused_cublas), or go to a second convolution by wgmma (conv''s
           fp16x3_wgmma), which pools in shared memory. Up to 300 images take another path, a CUDA graph. There several
           blocks share an image, and many share the inputs of the dense layer.'
expect:    The first layer executes two thirds of the instructions and takes two thirds of the time. At 10,000 images on
           an H200, fa18 falls from 0.43 to 0.34 ms, and ece408 from 1.21 to 0.73 ms. The second layer of fa19 is
           cuBLAS's too now, and that network falls from 1.07 to 0.75 ms. Errors stay those of FP32 sums.
builds_on: fused_mma
split:     {precision: fp16, products: 3}
constants: {RUNS_BLOCKS: 4, RUNS_86_BLOCKS: 5, WGMMA_4_GROUPS: 3, WGMMA_4_BLOCKS: 1}
method:    any
least_arch: sm_90a
requires:  torch
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
*/

#include "fused_wgmma.cu"

#include "conv_channels_wgmma.cuh"
#include "conv_pool_wgmma.cuh"

// ---- First layers ------------------------------------------------------------------------------------
// Split for a matrix product, an image's channels in planes of whole 32 bytes; or as float32.

using SplitRuns48 = PooledRuns<5, 48, 6, 2, TANH, 496>;
using FewRuns48 = PooledRuns<5, 48, 6, 1, TANH, 484>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_split_runs_48_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N)
{
    conv_pool_runs<SplitRuns48>(x, w, weight_parts, weight_exponents, StoreSplit{y}, N);
}

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_few_runs_48_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int N)
{
    conv_pool_runs<FewRuns48>(x, w, weight_parts, weight_exponents, StoreFloat{y}, N);
}

using SplitRuns64 = PooledRuns<5, 64, 6, 2, TANH, 912>;
using FewRuns64 = PooledRuns<5, 64, 6, 1, TANH, 900>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_split_runs_64_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N)
{
    conv_pool_runs<SplitRuns64>(x, w, weight_parts, weight_exponents, StoreSplit{y}, N);
}

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_few_runs_64_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int N)
{
    conv_pool_runs<FewRuns64>(x, w, weight_parts, weight_exponents, StoreFloat{y}, N);
}

using SplitRuns72 = PooledRuns<7, 72, 12, 1, TANH, 1104>;
using FewRuns72 = PooledRuns<7, 72, 12, 1, TANH, 1089>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_split_runs_72_7(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N)
{
    conv_pool_runs<SplitRuns72>(x, w, weight_parts, weight_exponents, StoreSplit{y}, N);
}

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_few_runs_72_7(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int N)
{
    conv_pool_runs<FewRuns72>(x, w, weight_parts, weight_exponents, StoreFloat{y}, N);
}

using PooledRuns86 = PooledRuns<7, 86, 4, 1, RELU, 1600, true>;

extern "C" __global__ void __launch_bounds__(128, RUNS_86_BLOCKS) conv_pool_runs_86_7(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int N)
{
    conv_pool_runs<PooledRuns86>(x, w, weight_parts, weight_exponents, StoreFloat{y}, N);
}

extern "C" __global__ void runs_layout(int* __restrict__ layout, int W)
{
    if (W == 48) write_runs_layout<SplitRuns48>(layout);
    if (W == 64) write_runs_layout<SplitRuns64>(layout);
    if (W == 72) write_runs_layout<SplitRuns72>(layout);
    if (W == 86) write_runs_layout<PooledRuns86>(layout);
}

extern "C" __global__ void split_runs(
    const float* __restrict__ w, __half* __restrict__ weight_parts, int* __restrict__ exponents, int W)
{
    if (W == 48 || W == 64) split_run_weights<SplitRuns64>(w, weight_parts, exponents);  // the same for both
    if (W == 72) split_run_weights<SplitRuns72>(w, weight_parts, exponents);
    if (W == 86) split_run_weights<PooledRuns86>(w, weight_parts, exponents);
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
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int* __restrict__ y_exponents, int N)
{
    conv_channels<PooledLayer4>({x, w, weight_parts, weight_exponents, nullptr, y, y_exponents, N});
}
