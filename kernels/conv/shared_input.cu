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
general:
  kernel: conv_general
  arguments: [x, w, bias, y, N, C, H, W, M, K, KW, S, SW, P, PW, P_end, PW_end, D, DW, G]
  shared_bytes: 4 * ((TILE - 1) * S + D * (K - 1) + 1) * ((TILE - 1) * SW + DW * (KW - 1) + 1)
  limits: {M: 65535, N: 65535}
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

// The same with strides, padding, dilation, G groups, and bias (M) where it is not null. w (M, C/G, K, KW). The patch
// under a tile grows with stride and dilation; it holds zeros where it reaches over the image's edge.
extern "C" __global__ void conv_general(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K, int KW,
    int S, int SW, int P, int PW, int P_end, int PW_end, int D, int DW, int G)
{
    const int H_out = (H + P + P_end - D * (K - 1) - 1) / S + 1;
    const int W_out = (W + PW + PW_end - DW * (KW - 1) - 1) / SW + 1;
    extern __shared__ float general_patch[];  // (patch_rows, patch_columns)
    const int patch_rows = (TILE - 1) * S + D * (K - 1) + 1;
    const int patch_columns = (TILE - 1) * SW + DW * (KW - 1) + 1;

    const int tiles_across = (W_out + TILE - 1) / TILE;
    const int first_column = (blockIdx.x % tiles_across) * TILE;
    const int first_row = (blockIdx.x / tiles_across) * TILE;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    const int channels = C / G;  // of the map's group
    const int first_channel = map / (M / G) * channels;
    const int top = first_row * S - P;  // outside the image where it is negative
    const int left = first_column * SW - PW;
    const float* pixels = general_patch + threadIdx.y * S * patch_columns + threadIdx.x * SW;  // of this thread's output

    float sum = 0.0f;
    for (int c = 0; c < channels; ++c) {
        const float* input = x + ((size_t)image * C + first_channel + c) * H * W;
        for (int i = threadIdx.y; i < patch_rows; i += TILE)
            for (int j = threadIdx.x; j < patch_columns; j += TILE) {
                const int row = top + i;
                const int column = left + j;
                const bool inside = row >= 0 && row < H && column >= 0 && column < W;
                general_patch[i * patch_columns + j] = inside ? input[(size_t)row * W + column] : 0.0f;
            }
        __syncthreads();  // the patch is complete before anyone reads it

        const float* weights = w + ((size_t)map * channels + c) * K * KW;
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < KW; ++q)
                sum += pixels[p * D * patch_columns + q * DW] * weights[p * KW + q];
        __syncthreads();  // everyone has read it before the next channel overwrites it
    }

    const int row = first_row + threadIdx.y;
    const int column = first_column + threadIdx.x;
    if (row >= H_out || column >= W_out) return;
    if (bias) sum += bias[map];
    y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
}
