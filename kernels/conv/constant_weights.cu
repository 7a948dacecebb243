/*
title:     Weights in constant memory
idea:      All threads of a warp read the same weight at the same time. The weights are
           copied into constant memory before the launch; its cache broadcasts one word to
           a whole warp and leaves the global load path to the inputs.
expect:    Up to half of the global load instructions go. Time falls most where C*K*K is
           large; small batches may lose by the copy, which is part of the call.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum falls against direct
builds_on: direct
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#constant
constants: {TILE: 16, WEIGHTS_MAX: 16384}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16, M: 1, N: 1}}
limits:    {weights: 16384, M: 65535, N: 65535}
general:
  kernel: conv_general
  arguments: [x, w, bias, y, N, C, H, W, M, K, KW, S, SW, P, PW, P_end, PW_end, D, DW, G]
claims:
  - says:     Up to half of the global load instructions go
    quantity: smsp__inst_executed_op_global_ld.sum
    change:   falls
    by:       {at_least: 45 %, at_most: 55 %}
  - says:     Up to half of the global load instructions go
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
    by:       {count: ceil(W_out / 16) * ceil(H_out / 2) * N * M * (C / G) * K * K}
  - says:     Time falls most where C*K*K is large
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
    more_than: {C: {is: 1}}
  - says:     small batches may lose by the copy
    quantity: op_time
    change:   rises
    where:    {N: {at_most: 10}}
*/

// Constant memory holds 64 KiB.
__constant__ float weights[WEIGHTS_MAX];

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
// The launcher has copied w into `weights`.
extern "C" __global__ void conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int tiles_across = (W_out + TILE - 1) / TILE;
    const int column = (blockIdx.x % tiles_across) * TILE + threadIdx.x;
    const int row = (blockIdx.x / tiles_across) * TILE + threadIdx.y;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    if (row >= H_out || column >= W_out) return;

    float sum = 0.0f;
    for (int c = 0; c < C; ++c) {
        const float* input = x + (((size_t)image * C + c) * H + row) * W + column;
        const float* taps = weights + (map * C + c) * K * K;
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += input[p * W + q] * taps[p * K + q];
    }
    y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
}

// The same with strides, padding, dilation, G groups, and bias (M) where it is not null. w (M, C/G, K, KW),
// which the launcher has copied into `weights`.
extern "C" __global__ void conv_general(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K, int KW,
    int S, int SW, int P, int PW, int P_end, int PW_end, int D, int DW, int G)
{
    const int H_out = (H + P + P_end - D * (K - 1) - 1) / S + 1;
    const int W_out = (W + PW + PW_end - DW * (KW - 1) - 1) / SW + 1;
    const int tiles_across = (W_out + TILE - 1) / TILE;
    const int column = (blockIdx.x % tiles_across) * TILE + threadIdx.x;
    const int row = (blockIdx.x / tiles_across) * TILE + threadIdx.y;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    if (row >= H_out || column >= W_out) return;

    const int channels = C / G;  // of the map's group
    const int first_channel = map / (M / G) * channels;
    const int top = row * S - P;  // outside the image where it is negative
    const int left = column * SW - PW;

    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) {
        const float* input = x + ((size_t)image * C + first_channel + c) * H * W;
        const float* taps = weights + (map * channels + c) * K * KW;
        for (int p = 0; p < K; ++p) {
            const int input_row = top + p * D;
            if (input_row < 0 || input_row >= H) continue;
            for (int q = 0; q < KW; ++q) {
                const int input_column = left + q * DW;
                if (input_column >= 0 && input_column < W)
                    sum += input[(size_t)input_row * W + input_column] * taps[p * KW + q];
            }
        }
    }
    if (bias) sum += bias[map];
    y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
}
