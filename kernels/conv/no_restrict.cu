/*
title:     Without __restrict__
idea:      The same kernel without the promise that x, w and y do not overlap, a step back
           that shows what the qualifier brings.
expect:    Little. The only store is the last statement, so the loads can be reordered freely
           anyway. What is lost is the read-only path (LDG.CI, once the texture cache), which
           since Volta is the same L1. The effect would be larger if sums went to y in the loop.
check:     smsp__inst_executed.sum stays within a few per cent of direct
builds_on: direct
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#restrict
constants: {TILE: 16}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16, M: 1, N: 1}}
limits:    {M: 65535, N: 65535}
claims:
  - says:     Little
    quantity: op_time
    change:   stays
    by:       5 %
  - says:     stays within a few per cent of direct
    quantity: smsp__inst_executed.sum
    change:   stays
    by:       5 %
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" __global__ void conv_forward(
    const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)
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
