/*
title:     Several outputs a thread
idea:      Each thread computes COARSEN outputs of one row, BLOCK_X columns apart. It loads
           a weight once for all of them, and the loads of a warp stay side by side. Block shape
           and coarsening are parameters, for a tuner to choose.
expect:    Nearly half of the load instructions go with COARSEN = 4. Too much of it leaves few
           threads, and ragged right edges idle. Gains most where C*K*K is large.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum falls against direct
builds_on: direct
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#instruction-optimization
constants: {BLOCK_X: 16, BLOCK_Y: 8, COARSEN: 4}
launch:    {threads: [16, 8, 1], outputs_per_block: {W: 64, H: 8, M: 1, N: 1}}
sweep:     {BLOCK_X: [8, 16, 32], BLOCK_Y: [2, 4, 8, 16], COARSEN: [1, 2, 4]}
limits:    {M: 65535, N: 65535}
claims:
  - says:     Nearly half of the load instructions go
    quantity: smsp__inst_executed_op_global_ld.sum
    change:   falls
    by:       37 %
  - says:     Nearly half of the load instructions go
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
    by:       {count: (ceil(W_out / 16) * ceil(H_out / 2) - ceil(W_out / 64) * ceil(H_out / 2)) * N * M * C * K * K}
  - says:     Gains most where C*K*K is large
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
    more_than: {C: {is: 1}}
  - says:     Too much of it leaves few threads
    undecidable: the report compares one setting of COARSEN; the sweep has the others
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" __global__ void conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int tiles_across = (W_out + BLOCK_X * COARSEN - 1) / (BLOCK_X * COARSEN);
    const int left = (blockIdx.x % tiles_across) * BLOCK_X * COARSEN + threadIdx.x;
    const int row = (blockIdx.x / tiles_across) * BLOCK_Y + threadIdx.y;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    if (row >= H_out) return;

    float sum[COARSEN] = {};
    for (int c = 0; c < C; ++c) {
        const float* input = x + (((size_t)image * C + c) * H + row) * W + left;
        const float* taps = w + ((size_t)map * C + c) * K * K;
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q) {
                const float tap = taps[p * K + q];
#pragma unroll
                for (int i = 0; i < COARSEN; ++i)
                    if (left + i * BLOCK_X < W_out) sum[i] += input[p * W + q + i * BLOCK_X] * tap;
            }
    }
#pragma unroll
    for (int i = 0; i < COARSEN; ++i)
        if (left + i * BLOCK_X < W_out)
            y[(((size_t)image * M + map) * H_out + row) * W_out + left + i * BLOCK_X] = sum[i];
}
