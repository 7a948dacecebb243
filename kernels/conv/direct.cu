/*
title:     One thread for each output
idea:      Every thread computes one output, reading its C*K*K inputs and weights straight
           from global memory. Nothing is staged, nothing is reused on purpose.
expect:    The starting point that every optimization is held against. Caches serve most
           of the repeated reads, so the limit is the rate of load instructions, not DRAM.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum is the figure that others lower
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#kernels
constants: {TILE: 16}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16, M: 1, N: 1}}
limits:    {M: 65535, N: 65535}
general:
  kernel: conv_general
  arguments: [x, w, bias, y, N, C, H, W, M, K, KW, S, SW, P, PW, P_end, PW_end, D, DW, G]
claims:
  - says:     the limit is the rate of load instructions
    quantity: l1tex__throughput.avg.pct_of_peak_sustained_active
    value:    {at_least: 80 %}
  - says:     not DRAM
    quantity: gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed
    value:    {at_most: 60 %}
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
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
        const float* taps = w + ((size_t)map * C + c) * K * K;
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += input[p * W + q] * taps[p * K + q];
    }
    y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
}

// The same with strides, padding, dilation, G groups, and bias (M) where it is not null. w (M, C/G, K, KW).
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
        const float* weights = w + ((size_t)map * channels + c) * K * KW;
        for (int p = 0; p < K; ++p) {
            const int input_row = top + p * D;
            if (input_row < 0 || input_row >= H) continue;
            for (int q = 0; q < KW; ++q) {
                const int input_column = left + q * DW;
                if (input_column >= 0 && input_column < W)
                    sum += input[(size_t)input_row * W + input_column] * weights[p * KW + q];
            }
        }
    }
    if (bias) sum += bias[map];
    y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
}
