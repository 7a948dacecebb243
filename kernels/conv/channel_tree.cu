/*
title:     Channels summed by a tree
idea:      Four threads share one output. Each sums every fourth input channel, and a tree in
           shared memory adds the four partial sums. A block holds 16x16 outputs times 4 groups
           of channels.
expect:    Four times the threads and a quarter of the loop, so shorter calls where a few images
           leave the GPU idle. The loads do not get fewer, and with many images there is work
           enough without the split, so barriers and partial sums are pure cost. With C = 1
           three of four threads have nothing to add, and it is slower than direct.
check:     smsp__inst_executed.sum rises against direct
builds_on: direct
reference: https://developer.download.nvidia.com/assets/cuda/files/reduction.pdf
constants: {TILE: 16, GROUPS: 4}         # GROUPS is a power of two
launch:    {threads: [16, 16, 4], outputs_per_block: {W: 16, H: 16, M: 1, N: 1}}
limits:    {M: 65535, N: 65535}
claims:
  - says:     shorter calls where a few images leave the GPU idle
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}, N: {at_most: 100}}
  - says:     The loads do not get fewer
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   stays
    by:       5 %
  - says:     barriers and partial sums are pure cost
    quantity: op_time
    change:   rises
    where:    {C: {at_least: 2}, N: {at_least: 1000}}
  - says:     it is slower than direct
    quantity: op_time
    change:   rises
    where:    {C: {is: 1}, N: {at_least: 1}}
  - says:     smsp__inst_executed.sum rises against direct
    quantity: smsp__inst_executed.sum
    change:   rises
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" __global__ void __launch_bounds__(TILE * TILE * GROUPS) conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    __shared__ float partial[GROUPS][TILE][TILE];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int tiles_across = (W_out + TILE - 1) / TILE;
    const int column = (blockIdx.x % tiles_across) * TILE + threadIdx.x;
    const int row = (blockIdx.x / tiles_across) * TILE + threadIdx.y;
    const int group = threadIdx.z;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    const bool inside = row < H_out && column < W_out;

    float sum = 0.0f;
    for (int c = group; c < C && inside; c += GROUPS) {
        const float* input = x + (((size_t)image * C + c) * H + row) * W + column;
        const float* taps = w + ((size_t)map * C + c) * K * K;
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += input[p * W + q] * taps[p * K + q];
    }
    partial[group][threadIdx.y][threadIdx.x] = sum;
    for (int half = GROUPS / 2; half > 0; half /= 2) {
        __syncthreads();  // the level below is complete
        if (group < half)
            partial[group][threadIdx.y][threadIdx.x] += partial[group + half][threadIdx.y][threadIdx.x];
    }
    // The first group's threads wrote the totals themselves.
    if (group == 0 && inside)
        y[(((size_t)image * M + map) * H_out + row) * W_out + column] = partial[0][threadIdx.y][threadIdx.x];
}
