/*
title:     Blocks of 32x32 threads
idea:      The block has 32x32 threads, the fewest in a square of powers of two that cover an output image of 28x28
           or less in one tile. Nothing else changes.
expect:    Fewer tiles, so fewer barriers and a smaller share of halo. Where the outputs are few,
           many threads idle, as 24x24 outputs leave 8 lanes of 24 warps and 8 whole warps without
           work. A layer of 66x66 pays most, as its last tiles are 2 outputs wide.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum falls against shared_input_weights
builds_on: shared_input_weights
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#thread-and-block-heuristics
constants: {TILE: 32, K_MAX: 7, PITCH: 38}  # a warp reads one row
launch:    {threads: [32, 32, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {K: 7, N: 65535}
claims:
  - says:     so fewer barriers
    undecidable: no counter that is read counts barriers
  - says:     many threads idle
    quantity: smsp__thread_inst_executed_per_inst_executed.ratio
    value:    {at_most: 28}
    where:    {W_out: {at_most: 28}}
  - says:     A layer of 66x66 pays most
    quantity: op_time
    change:   rises
    where:    {W_out: {is: 66}}
    more_than: {W_out: {at_most: 60}}
  - says:     falls against shared_input_weights
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
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
