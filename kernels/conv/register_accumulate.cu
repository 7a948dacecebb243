/*
title:     Sums accumulated in registers
idea:      Each sum grows in a register and is stored to y once, when it is complete.
expect:    A store for each output instead of one for each product, and loads that need not
           wait for stores. The largest step of the ladder for the least work. The loads of x
           and w stay as many as they were.
check:     l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum falls up to C*K*K times against global_accumulate
builds_on: global_accumulate
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#registers
constants: {TILE: 16}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {N: 65535}
claims:
  - says:     A store for each output instead of one for each product
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
    change:   falls
    by:       90 %
  - says:     loads that need not wait for stores
    quantity: op_time
    change:   falls
  - says:     The largest step of the ladder
    undecidable: a claim compares with one baseline; the chains have the steps side by side
  - says:     The loads of x and w stay as many as they were
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   stays
    by:       5 %
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
// The pointers are plain as in global_accumulate, so that only the place of the sum differs.
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
                float sum = 0.0f;
                for (int c = 0; c < C; ++c) {
                    const float* input = x + (((size_t)image * C + c) * H + row) * W + column;
                    const float* taps = w + ((size_t)map * C + c) * K * K;
                    for (int p = 0; p < K; ++p)
                        for (int q = 0; q < K; ++q)
                            sum += input[p * W + q] * taps[p * K + q];
                }
                y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
            }
}
