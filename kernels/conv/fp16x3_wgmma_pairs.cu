/*
title:     Neighbouring columns share pixels
idea:      A lane of fp16x3_wgmma fetches the pixels of two columns of outputs, two apart. Where rows of outputs are
           whole pairs of neighbours, its columns are now such a pair. Half of their pixels or more are the same, so
           that it fetches a quarter to a third less. It stores two results at once, without an exchange with its
           neighbour. Elsewhere, the values that a row of the kernel has beyond whole steps of 16 share steps with
           those of other rows, in place of zeros.
expect:    Shared memory limits the layers of 16 output channels. So they fall by 4 % to 8 %. At 12x33x33 wgmma are an
           eighth fewer, and the time falls by 3 % to 10 %. Errors stay those of FP32 sums.
check:     sm__inst_executed_pipe_tensor_op_hmma.sum falls at 12x33x33
builds_on: fp16x3_wgmma
split:     {precision: fp16, products: 3}
kernel:    conv_multi_channel_12_7_24
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
constants: {MULTI_12_ROWS: 4, MULTI_12_GROUPS: 2, MULTI_12_BLOCKS: 1,
            MULTI_6_30_ROWS: 4, MULTI_6_30_GROUPS: 3, MULTI_6_30_BLOCKS: 1,
            MULTI_6_22_ROWS: 6, MULTI_6_22_GROUPS: 2, MULTI_6_22_BLOCKS: 1,
            MULTI_4_ROWS: 4, MULTI_4_GROUPS: 3, MULTI_4_BLOCKS: 1, FP32_THREADS: 512}
limits:    {layers: [12x33x33 * 24@7x7, 6x30x30 * 16@5x5, 6x22x22 * 16@5x5, 4x40x40 * 16@7x7]}
least_arch: sm_90a
claims:
  - says:     they fall by 4 % to 8 %
    quantity: op_time
    change:   falls
    by:       {at_least: 4 %, at_most: 8 %}
    where:    {M: {is: 16}, N: {at_least: 10000}}
  - says:     the time falls by 3 % to 10 %
    quantity: op_time
    change:   falls
    by:       {at_least: 3 %, at_most: 10 %}
    where:    {C: {is: 12}, N: {at_least: 10000}}
  - says:     Errors stay those of FP32 sums
    quantity: error
    value:    {at_most: 0.000002}
  - says:     sm__inst_executed_pipe_tensor_op_hmma.sum falls
    quantity: sm__inst_executed_pipe_tensor_op_hmma.sum
    change:   falls
    where:    {C: {is: 12}}
*/

#include "conv_channels_pairs.cuh"
#include "fp16_split.cuh"

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
