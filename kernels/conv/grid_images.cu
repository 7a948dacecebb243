/*
title:     Grid of images, input staged once for all output channels
idea:      A block owns an image, so the input that it has staged can serve every output channel. All channels of a
           band of rows are staged together, and the loop over the output channels goes inside. From one output
           channel to the next only the weights change.
expect:    M times fewer global loads of x, and two barriers for each output channel instead of two for each pair of
           an input and an output channel. Little is gained where staging was a small share of the work already, and
           small batches still leave most of the GPU empty.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum falls against block_1d
builds_on: block_1d
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#thread-hierarchy
constants: {THREADS: 1024, PATCH: 11700, CHANNELS: 12, K_MAX: 7}  # 48 KiB of shared memory
launch:    {threads: [1024, 1, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {W: 1024, K: 7, N: 65535}  # a row of outputs fits the threads, its input PATCH
claims:
  - says:     M times fewer global loads of x
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   falls
    by:       75 %
  - says:     two barriers for each output channel instead of two for each pair of an input and an output channel
    undecidable: no counter that is read counts barriers
  - says:     Little is gained where staging was a small share of the work already
    undecidable: no value says what share of the work staging was
  - says:     small batches still leave most of the GPU empty
    undecidable: counters are read at the largest size alone
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
                        for (int p = 0; p < K; ++p)
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
