/*
title:     Sums accumulated in global memory
idea:      One block for each image. Its threads go over the output channels and over their outputs, and add every
           product to y where it lies, in global memory.
expect:    Far slower than one thread for each output. For all that the compiler knows, y might overlap x or w. So
           every product costs a store, and the next product's loads wait for it. A single block for an image also
           leaves the GPU empty at small batches.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum rises up to C*K*K times against direct
builds_on: direct
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#restrict
constants: {TILE: 16}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {N: 65535}
claims:
  - says:     Far slower than one thread for each output
    quantity: op_time
    change:   rises
    by:       100 %
  - says:     every product costs a store
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
    change:   rises
    by:       100 %
  - says:     leaves the GPU empty at small batches
    quantity: op_time
    change:   rises
    where:    {N: {at_most: 100}}
    more_than: {N: {at_least: 10000}}
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
// No __restrict__: with it the compiler would keep the sum in a register by itself.
extern "C" __global__ void conv_forward(
    const float* x, const float* w,
    float* y, int N, int C, int H, int W, int M, int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int image = blockIdx.z;

    for (int map = 0; map < M; ++map)
        for (int row = threadIdx.y; row < H_out; row += TILE)
            for (int column = threadIdx.x; column < W_out; column += TILE) {
                float* output = y + (((size_t)image * M + map) * H_out + row) * W_out + column;
                *output = 0.0f;
                for (int c = 0; c < C; ++c) {
                    const float* input = x + (((size_t)image * C + c) * H + row) * W + column;
                    const float* taps = w + ((size_t)map * C + c) * K * K;
                    for (int p = 0; p < K; ++p)
                        for (int q = 0; q < K; ++q)
                            *output += input[p * W + q] * taps[p * K + q];
                }
            }
}
