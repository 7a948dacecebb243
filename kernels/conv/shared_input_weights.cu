/*
title:     Input tile and weights in shared memory
idea:      For each tile of 16x16 outputs and each channel, the block copies the input patch under the tile, halo
           included, and the output channel's K*K weights to shared memory. The multiply-adds then read shared memory
           only.
expect:    Up to K*K fewer global loads of x, one load of each weight for a block instead of one for each thread. The
           multiply-adds become shared-memory loads, two for each, and there are two barriers for each channel. So
           a GPU whose L1 cache served the repeated loads well gains little.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum falls against register_accumulate
builds_on: register_accumulate
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#shared-memory
constants: {TILE: 16, K_MAX: 7, PITCH: 48}  # a warp reads two rows: 48 floats apart they share no bank
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {K: 7, N: 65535}
claims:
  - says:     Up to K*K fewer global loads of x
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
    by:       50 %
  - says:     The multiply-adds become shared-memory loads
    quantity: l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
    change:   rises
  - says:     a GPU whose L1 cache served the repeated loads well gains little
    quantity: op_time
    change:   falls
    by:       {at_most: 20 %}
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" __global__ void __launch_bounds__(TILE * TILE) conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    __shared__ float patch[TILE + K_MAX - 1][PITCH];
    __shared__ float taps[K_MAX * K_MAX];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int image = blockIdx.z;
    const int thread = threadIdx.y * TILE + threadIdx.x;

    for (int map = 0; map < M; ++map)
        for (int top = 0; top < H_out; top += TILE)
            for (int left = 0; left < W_out; left += TILE) {
                const int row = top + threadIdx.y;
                const int column = left + threadIdx.x;
                const bool inside = row < H_out && column < W_out;
                // What lies outside the image no output needs.
                const int rows_staged = min(TILE + K - 1, H - top);
                const int columns_staged = min(TILE + K - 1, W - left);

                float sum = 0.0f;
                for (int c = 0; c < C; ++c) {
                    const float* input = x + (((size_t)image * C + c) * H + top) * W + left;
                    for (int i = threadIdx.y; i < rows_staged; i += TILE)
                        for (int j = threadIdx.x; j < columns_staged; j += TILE)
                            patch[i][j] = input[i * W + j];
                    if (thread < K * K)
                        taps[thread] = w[((size_t)map * C + c) * K * K + thread];
                    __syncthreads();  // patch and taps are complete before anyone reads them

                    if (inside)
                        for (int p = 0; p < K; ++p)
                            for (int q = 0; q < K; ++q)
                                sum += patch[threadIdx.y + p][threadIdx.x + q] * taps[p * K + q];
                    __syncthreads();  // everyone has read them before they are overwritten
                }
                if (inside)
                    y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
            }
}
