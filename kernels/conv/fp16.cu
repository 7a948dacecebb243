/*
title:     Half-precision arithmetic
idea:      Inputs and weights are rounded to half precision, and one HFMA2 instruction multiplies and adds for two
           neighbouring outputs. A row of the kernel is summed in FP16, the rows are added in FP32, so that rounding
           errors do not grow with C.
expect:    Half the multiply-add instructions, but those were never the limit. The loads halve
           too, since two outputs share weights and most inputs, and that alone saves time; the
           rounding of every loaded value costs some of it. Three correct digits are left. With
           arrays kept in float32, memory traffic stays what it was.
check:     smsp__sass_thread_inst_executed_op_ffma_pred_on.sum falls to nothing against direct
builds_on: direct
reference: https://docs.nvidia.com/cuda/cuda-math-api/cuda_math_api/group__CUDA__MATH____HALF2__ARITHMETIC.html
precision: fp16
constants: {TILE: 16}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 32, H: 16, M: 1, N: 1}}
limits:    {M: 65535, N: 65535}
least_arch: sm_60
claims:
  - says:     falls to nothing against direct
    quantity: smsp__sass_thread_inst_executed_op_ffma_pred_on.sum
    change:   falls
    by:       99 %
  - says:     The loads halve too
    quantity: smsp__inst_executed_op_global_ld.sum
    change:   falls
    by:       45 %
  - says:     that alone saves time
    quantity: op_time
    change:   falls
  - says:     Three correct digits are left
    quantity: error
    value:    {at_most: 0.001}
  - says:     memory traffic stays what it was
    quantity: dram__bytes.sum
    change:   stays
    by:       10 %
*/

#include <cuda_fp16.h>

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" __global__ void conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int tiles_across = (W_out + 2 * TILE - 1) / (2 * TILE);
    const int column = ((blockIdx.x % tiles_across) * TILE + threadIdx.x) * 2;  // and the one to its right
    const int row = (blockIdx.x / tiles_across) * TILE + threadIdx.y;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    if (row >= H_out || column >= W_out) return;
    const bool has_right = column + 1 < W_out;
    const int last = has_right ? K : K - 1;  // a right output outside the image must not read there

    float left_sum = 0.0f, right_sum = 0.0f;
    for (int c = 0; c < C; ++c) {
        const float* input = x + (((size_t)image * C + c) * H + row) * W + column;
        const float* taps = w + ((size_t)map * C + c) * K * K;
        for (int p = 0; p < K; ++p) {
            __half2 row_sum = __float2half2_rn(0.0f);
            float left = input[p * W];
            for (int q = 0; q < K; ++q) {
                const float right = input[p * W + min(q + 1, last)];
                row_sum = __hfma2(__floats2half2_rn(left, right), __float2half2_rn(taps[p * K + q]), row_sum);
                left = right;
            }
            left_sum += __low2float(row_sum);
            right_sum += __high2float(row_sum);
        }
    }
    float* output = y + (((size_t)image * M + map) * H_out + row) * W_out + column;
    output[0] = left_sum;
    if (has_right) output[1] = right_sum;
}
