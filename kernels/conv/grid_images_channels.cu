/*
title:     Grid of images and output channels
idea:      A block for each output channel of each image. The loop over the output channels becomes a dimension of
           the grid, and every block stages the input for its one output channel.
expect:    Faster at small batches, where a block for each image leaves most of the GPU empty.
           At large ones the GPU is full either way, and the input is staged M times instead
           of once. Slower then, most where C*K*K is small, so that staging weighs most.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum rises against grid_images
builds_on: grid_images
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#thread-hierarchy
constants: {THREADS: 1024, PATCH: 11700, CHANNELS: 12, K_MAX: 7}  # 48 KiB of shared memory
launch:    {threads: [1024, 1, 1], outputs_per_block: {W: 65536, H: 65536, M: 1, N: 1}}  # a whole map
limits:    {W: 1024, K: 7, M: 65535, N: 65535}  # a row of outputs fits the threads, its input PATCH
claims:
  - says:     Faster at small batches
    quantity: op_time
    change:   falls
    where:    {N: {at_most: 100}}
  - says:     Slower then
    quantity: op_time
    change:   rises
    where:    {N: {at_least: 10000}}
  - says:     Slower then, most where C*K*K is small
    quantity: op_time
    change:   rises
    where:    {C: {is: 1}}
    more_than: {C: {at_least: 2}}
  - says:     rises against grid_images
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   rises
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
// Two blocks fill a multiprocessor of 2048 threads: registers are kept to 32 for that.
extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    __shared__ float patch[PATCH];
    __shared__ float taps[CHANNELS * K_MAX * K_MAX];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const size_t image = blockIdx.z;
    const int map = blockIdx.y;
    x += image * C * H * W;
    w += map * C * K * K;
    y += (image * M + map) * H_out * W_out;
    // With this pitch the 32 outputs of a warp read 32 banks, also where a row of outputs ends among them.
    const int pitch = W_out + 32;
    const int band = min(min(H_out, THREADS / W_out), PATCH / pitch - K + 1);  // rows of outputs
    const int channels = min(min(C, CHANNELS), PATCH / (pitch * (band + K - 1)));  // staged together
    const int row = threadIdx.x / W_out;  // in the band
    const int column = threadIdx.x % W_out;

    for (int top = 0; top < H_out; top += band) {
        const int rows = min(band, H_out - top);
        const int rows_staged = rows + K - 1;
        const bool inside = row < rows;

        float sum = 0.0f;
        for (int first = 0; first < C; first += channels) {
            const int staged = min(channels, C - first);
            for (int i = threadIdx.x / 32; i < staged * rows_staged; i += THREADS / 32) {  // a warp copies a row
                const int c = first + i / rows_staged;
                const float* input = x + (c * H + top + i % rows_staged) * W;
                for (int j = threadIdx.x % 32; j < W; j += 32)
                    patch[i * pitch + j] = input[j];
            }
            for (int i = threadIdx.x; i < staged * K * K; i += THREADS)
                taps[i] = w[first * K * K + i];
            __syncthreads();  // patch and taps are complete before anyone reads them

            if (inside)
                for (int c = 0; c < staged; ++c) {
                    const float* input = patch + (c * rows_staged + row) * pitch + column;
                    for (int p = 0; p < K; ++p)
                        for (int q = 0; q < K; ++q)
                            sum += input[p * pitch + q] * taps[(c * K + p) * K + q];
                }
            __syncthreads();  // everyone has read them before they are overwritten
        }
        if (inside)
            y[(top + row) * W_out + column] = sum;
    }
}
