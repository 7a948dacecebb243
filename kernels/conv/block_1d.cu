/*
title:     Blocks of 1024 threads in a row
idea:      The 1024 threads lie in one row and take the outputs of a band of whole rows in their
           order in memory, wherever its rows end. At most the last warp of a band is partly
           idle.
expect:    Against 32x32 threads, 24x24 outputs keep 18 warps full instead of 24 warps at three
           quarters. The gain follows the share of idle threads, so it is small for 60x60
           outputs and large for 44x44 and 66x66.
check:     smsp__thread_inst_executed_per_inst_executed.ratio rises against block_2d
builds_on: block_2d
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#simt-architecture
constants: {THREADS: 1024, PATCH: 7350, K_MAX: 7}
launch:    {threads: [1024, 1, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {W: 1024, K: 7, N: 65535}  # a row of outputs fits the threads, its input PATCH
claims:
  - says:     small for 60x60 outputs
    quantity: op_time
    change:   falls
    by:       {at_most: 15 %}
    where:    {W_out: {is: 60}}
  - says:     large for 44x44 and 66x66
    quantity: op_time
    change:   falls
    by:       25 %
    where:    {W_out: {at_least: 44, at_most: 66, multiple_of: 22}}
  - says:     24x24 outputs keep 18 warps full instead of 24 warps at three quarters
    quantity: op_time
    change:   falls
    by:       15 %
    where:    {W_out: {is: 24}}
  - says:     rises against block_2d
    quantity: smsp__thread_inst_executed_per_inst_executed.ratio
    change:   rises
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
// Two blocks fill a multiprocessor of 2048 threads: registers are kept to 32 for that.
extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    __shared__ float patch[PATCH];
    __shared__ float taps[K_MAX * K_MAX];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const size_t image = blockIdx.z;
    x += image * C * H * W;
    y += image * M * H_out * W_out;
    // With this pitch the 32 outputs of a warp read 32 banks, also where a row of outputs ends among them.
    const int pitch = W_out + 32;
    const int band = min(min(H_out, THREADS / W_out), PATCH / pitch - K + 1);  // rows of outputs
    const int row = threadIdx.x / W_out;  // in the band
    const int column = threadIdx.x % W_out;

    for (int map = 0; map < M; ++map)
        for (int top = 0; top < H_out; top += band) {
            const int rows = min(band, H_out - top);
            const bool inside = row < rows;

            float sum = 0.0f;
            for (int c = 0; c < C; ++c) {
                const float* input = x + (c * H + top) * W;
                for (int i = threadIdx.x / 32; i < rows + K - 1; i += THREADS / 32)  // a warp copies a row
                    for (int j = threadIdx.x % 32; j < W; j += 32)
                        patch[i * pitch + j] = input[i * W + j];
                if (threadIdx.x < K * K)
                    taps[threadIdx.x] = w[(map * C + c) * K * K + threadIdx.x];
                __syncthreads();  // patch and taps are complete before anyone reads them

                if (inside)
                    for (int p = 0; p < K; ++p)
                        for (int q = 0; q < K; ++q)
                            sum += patch[(row + p) * pitch + column + q] * taps[p * K + q];
                __syncthreads();  // everyone has read them before they are overwritten
            }
            if (inside)
                y[(map * H_out + top + row) * W_out + column] = sum;
        }
}
