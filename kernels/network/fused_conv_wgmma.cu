/*
title:     Second convolution by wgmma, pooled in shared memory
idea:      The second convolution multiplies by Hopper's wgmma, as conv's fp16x3_wgmma. A tile is 4 rows of outputs, as
           high as a pooling window. A lane keeps the largest of its 4 rows and, with a neighbour, of two columns. It
           raises the window's result in shared memory. The warpgroup that splits images also stores the pooled results.
           Else as fused_mma.
expect:    mma.sync and its pooling take 0.82 of the network's 1.23 ms at 10,000 images on an H100. By wgmma, the same
           layer alone takes 0.49 ms, 15 % of its reads and writes of shared memory for results that are now a
           fourteenth. So the network takes 0.85 ms. Errors stay those of FP32 sums.
builds_on: fused_mma
split:     {precision: fp16, products: 3}
constants: {WGMMA_4_GROUPS: 3, WGMMA_4_BLOCKS: 1}
limits:    {layers: [1x86x86 * 4@7x7, 4x40x40 * 16@7x7]}
method:    any
least_arch: sm_90a
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
*/

#include "fused_mma.cu"

#include "conv_channels_wgmma.cuh"

using PooledLayer4 = Layer<4, 40, 7, 16, 4, WGMMA_4_GROUPS, 4>;

extern "C" __global__ void split_wgmma_weights(
    const float* __restrict__ w, __half* __restrict__ weight_parts, int* __restrict__ exponents, int C, int M, int K)
{
    split_channel_weights(w, weight_parts, exponents, C, M, K);
}

extern "C" __global__ void wgmma_layout(int* __restrict__ layout) { write_channels_layout<PooledLayer4>(layout); }

// 4x40x40 * 16@7x7, ReLU, and the largest of each 4 x 4 outputs, windows cut at the end.
extern "C" __global__ void __launch_bounds__(128 * WGMMA_4_GROUPS + 128, WGMMA_4_BLOCKS) conv_pool_wgmma_4_7_16(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int* __restrict__ y_exponents, int N)
{
    conv_channels<PooledLayer4>({x, w, weight_parts, weight_exponents, nullptr, y, y_exponents, N});
}
