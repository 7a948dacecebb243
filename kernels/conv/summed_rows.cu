/*
title:     The products of a kernel row summed in one expression
idea:      Where unrolled_kernel_loops adds each product to the sum by a statement of its own, one expression here adds
           those of a kernel row, and then that part to the sum.
expect:    Not faster, since the sum was in a register before, so no access to memory is saved. One more addition for each
           row, 6 instructions instead of 5 for K = 5, against a shorter chain of additions that wait for each other.
check:     smsp__inst_executed.sum rises against unrolled_kernel_loops
builds_on: unrolled_kernel_loops
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#registers
constants: {THREADS: 1024, PATCH: 11700, CHANNELS: 12, K_MAX: 7}  # 48 KiB of shared memory
launch:    {threads: [1024, 1, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {W: 1024, K: 7, N: 65535}  # a row of outputs fits the threads, its input PATCH
claims:
  - says:     Not faster
    quantity: op_time
    change:   stays
    by:       5 %
    where:    {N: {at_least: 10}}
  - says:     no access to memory is saved
    quantity: l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
    change:   stays
    by:       5 %
  - says:     One more addition for each row
    quantity: smsp__inst_executed.sum
    change:   rises
*/

// Five products, of one row of taps.
__device__ __forceinline__ float row_of_5(const float* input, const float* taps, float sum)
{
    sum += input[0] * taps[0] + input[1] * taps[1] + input[2] * taps[2] + input[3] * taps[3] + input[4] * taps[4];
    return sum;
}

// Seven products, of one row of taps.
__device__ __forceinline__ float row_of_7(const float* input, const float* taps, float sum)
{
    sum += input[0] * taps[0] + input[1] * taps[1] + input[2] * taps[2] + input[3] * taps[3]
         + input[4] * taps[4] + input[5] * taps[5] + input[6] * taps[6];
    return sum;
}

// The products of one channel, added to `sum`.
__device__ __forceinline__ float products(const float* input, int pitch, const float* taps, int K, float sum)
{
    if (K == 5) {
        sum = row_of_5(input, taps, sum);
        sum = row_of_5(input + pitch, taps + 5, sum);
        sum = row_of_5(input + 2 * pitch, taps + 10, sum);
        sum = row_of_5(input + 3 * pitch, taps + 15, sum);
        sum = row_of_5(input + 4 * pitch, taps + 20, sum);
    } else if (K == 7) {
        sum = row_of_7(input, taps, sum);
        sum = row_of_7(input + pitch, taps + 7, sum);
        sum = row_of_7(input + 2 * pitch, taps + 14, sum);
        sum = row_of_7(input + 3 * pitch, taps + 21, sum);
        sum = row_of_7(input + 4 * pitch, taps + 28, sum);
        sum = row_of_7(input + 5 * pitch, taps + 35, sum);
        sum = row_of_7(input + 6 * pitch, taps + 42, sum);
    } else {
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += input[p * pitch + q] * taps[p * K + q];
    }
    return sum;
}

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
                        sum = products(input, pitch, taps + c * K * K, K, sum);
                    }
                    *output = sum;
                }
                __syncthreads();  // everyone has read them before they are overwritten
            }
        }
    }
}
