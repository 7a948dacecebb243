/*
title:     All extents known to the compiler
idea:      C, H, W, M and K are all constants. Each of the course's seven layers has a kernel
           of its own, compiled from one body. The launcher picks it by the layer's shape;
           other shapes go to the general kernel.
expect:    Index arithmetic folds into constants, and the shared-memory offsets of a whole patch into the
           instructions. The multiply-adds are as before, so only a little faster than with K alone.
check:     smsp__inst_executed.sum falls against constant_kernel_size
builds_on: constant_kernel_size
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#instruction-optimization
constants: {THREADS: 1024, PATCH: 11700, CHANNELS: 12, K_MAX: 7}  # 48 KiB of shared memory
launch:    {threads: [1024, 1, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {W: 1024, K: 7, N: 65535}  # a row of outputs fits the threads, its input PATCH
claims:
  - says:     only a little faster than with K alone
    quantity: op_time
    change:   falls
    by:       {at_most: 15 %}
  - says:     The multiply-adds are as before
    quantity: smsp__sass_thread_inst_executed_op_ffma_pred_on.sum
    change:   stays
    by:       5 %
  - says:     falls against constant_kernel_size
    quantity: smsp__inst_executed.sum
    change:   falls
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
#define POINTERS const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y

// The body of every kernel below. Inlined, its extents are the constants that it is called with.
__device__ __forceinline__ void convolve(POINTERS, int C, int H, int W, int M, int K)
{
    __shared__ float patch[PATCH];
    __shared__ float taps[CHANNELS * K_MAX * K_MAX];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const size_t image = blockIdx.z;
    x += image * C * H * W;
    y += image * M * H_out * W_out;
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

        for (int first = 0; first < C; first += channels) {
            const int staged = min(channels, C - first);
            for (int i = threadIdx.x / 32; i < staged * rows_staged; i += THREADS / 32) {  // a warp copies a row
                const int c = first + i / rows_staged;
                const float* input = x + (c * H + top + i % rows_staged) * W;
                for (int j = threadIdx.x % 32; j < W; j += 32)
                    patch[i * pitch + j] = input[j];
            }
            for (int map = 0; map < M; ++map) {
                for (int i = threadIdx.x; i < staged * K * K; i += THREADS)
                    taps[i] = w[(map * C + first) * K * K + i];
                __syncthreads();  // patch and taps are complete before anyone reads them

                if (inside) {
                    // Where the channels do not all fit together, y carries the sums from part to part.
                    float* output = y + (map * H_out + top + row) * W_out + column;
                    float sum = first == 0 ? 0.0f : *output;
                    for (int c = 0; c < staged; ++c) {
                        const float* input = patch + (c * rows_staged + row) * pitch + column;
                        #pragma unroll
                        for (int p = 0; p < K; ++p)
                            #pragma unroll
                            for (int q = 0; q < K; ++q)
                                sum += input[p * pitch + q] * taps[(c * K + p) * K + q];
                    }
                    *output = sum;
                }
                __syncthreads();  // everyone has read them before they are overwritten
            }
        }
    }
}

// Named after C, H, W, M and K. Two blocks fill a multiprocessor of 2048 threads.
extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_1_28_28_50_5(POINTERS)
{
    convolve(x, w, y, 1, 28, 28, 50, 5);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_1_64_64_6_5(POINTERS)
{
    convolve(x, w, y, 1, 64, 64, 6, 5);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_6_30_30_16_5(POINTERS)
{
    convolve(x, w, y, 6, 30, 30, 16, 5);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_1_48_48_6_5(POINTERS)
{
    convolve(x, w, y, 1, 48, 48, 6, 5);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_6_22_22_16_5(POINTERS)
{
    convolve(x, w, y, 6, 22, 22, 16, 5);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_1_72_72_12_7(POINTERS)
{
    convolve(x, w, y, 1, 72, 72, 12, 7);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_12_33_33_24_7(POINTERS)
{
    convolve(x, w, y, 12, 33, 33, 24, 7);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) conv_forward(
    POINTERS, int N, int C, int H, int W, int M, int K)
{
    convolve(x, w, y, C, H, W, M, K);
}
