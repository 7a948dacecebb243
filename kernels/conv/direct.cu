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
