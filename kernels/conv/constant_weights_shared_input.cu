/*
title:     Constant weights, shared input tile
idea:      Both at once. The weights are broadcast from constant memory. The input patch under a
           block's 16x16 outputs is copied to shared memory once for each channel.
expect:    No load of the inner loop goes to global memory any more. Against shared_input the
           broadcast of a weight replaces a global load, so every layer gains. The two barriers a
           channel may still cost more than the cached loads that they save.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum falls against shared_input
builds_on: shared_input
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#memory-optimizations
constants: {TILE: 16, K_MAX: 7, WEIGHTS_MAX: 16384}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16, M: 1, N: 1}}
limits:    {K: 7, weights: 16384, M: 65535, N: 65535}
claims:
  - says:     No load of the inner loop goes to global memory any more
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
    by:       50 %
  - says:     so every layer gains
    quantity: op_time
    change:   falls
*/

// Constant memory holds 64 KiB.
__constant__ float weights[WEIGHTS_MAX];

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
// The launcher has copied w into `weights`.
extern "C" __global__ void conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    __shared__ float patch[TILE + K_MAX - 1][TILE + K_MAX - 1];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int tiles_across = (W_out + TILE - 1) / TILE;
    const int left = (blockIdx.x % tiles_across) * TILE;
    const int top = (blockIdx.x / tiles_across) * TILE;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    const int side = TILE + K - 1;

    float sum = 0.0f;
    for (int c = 0; c < C; ++c) {
        const float* input = x + ((size_t)image * C + c) * H * W;
        for (int i = threadIdx.y; i < side; i += TILE)
            for (int j = threadIdx.x; j < side; j += TILE)
                // Outside the image no output needs the value.
                patch[i][j] = (top + i < H && left + j < W) ? input[(top + i) * W + left + j] : 0.0f;
        __syncthreads();  // the patch is complete before anyone reads it

        const float* taps = weights + (map * C + c) * K * K;
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += patch[threadIdx.y + p][threadIdx.x + q] * taps[p * K + q];
        __syncthreads();  // everyone has read it before the next channel overwrites it
    }

    const int row = top + threadIdx.y;
    const int column = left + threadIdx.x;
    if (row < H_out && column < W_out)
        y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
}
