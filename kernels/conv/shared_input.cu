/*
title:     Input tile in shared memory
idea:      A block copies the input patch under its 16x16 outputs, halo included, to shared
           memory once for each channel; its threads then read only that patch.
expect:    Up to K*K fewer global loads of x for each output; the limit moves to
           shared-memory bandwidth. Two barriers a channel cost most where C is large.
           Nothing to gain when K = 1.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum falls against direct
builds_on: direct
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#shared-memory
constants: {TILE: 16, K_MAX: 7}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16, M: 1, N: 1}}
limits:    {K: 7, M: 65535, N: 65535}
claims:
  - says:     Up to K*K fewer global loads of x for each output
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
    by:       50 %
  - says:     the limit moves to shared-memory bandwidth
    quantity: l1tex__throughput.avg.pct_of_peak_sustained_active
    value:    {at_least: 80 %}
  - says:     Two barriers a channel cost most where C is large
    quantity: op_time
    change:   rises
    where:    {C: {at_least: 2}}
    more_than: {C: {is: 1}}
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
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

        const float* taps = w + ((size_t)map * C + c) * K * K;
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
