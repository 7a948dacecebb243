/*
title:     __restrict__ and unrolled loops
idea:      The course's tuning by qualifiers and pragmas. Pointers are __restrict__, and with K a compile-time
           constant (5 or 7) an unroll pragma writes out all K*K multiply-adds of a channel. Any other K takes the
           same code with K read at run time.
expect:    Counters, comparisons and most address arithmetic of the two inner loops go, and the
           loads of a channel can all be under way at once. The loads themselves stay, so the
           gain ends at the rate of load instructions. Registers grow.
check:     smsp__inst_executed.sum falls against direct
builds_on: direct
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#pragma-unroll
constants: {TILE: 16}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16, M: 1, N: 1}}
limits:    {M: 65535, N: 65535}
claims:
  - says:     most address arithmetic of the two inner loops go
    quantity: smsp__inst_executed.sum
    change:   falls
    by:       25 %
  - says:     The loads themselves stay
    quantity: l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
    change:   stays
    by:       5 %
  - says:     the gain ends at the rate of load instructions
    quantity: l1tex__throughput.avg.pct_of_peak_sustained_active
    value:    {at_least: 80 %}
  - says:     Registers grow
    quantity: registers
    change:   rises
*/

// One output. SIDE is K where the compiler knows it, or 0.
template <int SIDE>
__device__ __forceinline__ float output_at(
    const float* __restrict__ input, const float* __restrict__ taps, int C, int H, int W, int K_given)
{
    const int K = SIDE ? SIDE : K_given;
    float sum = 0.0f;
    for (int c = 0; c < C; ++c) {
        #pragma unroll
        for (int p = 0; p < K; ++p)
            #pragma unroll
            for (int q = 0; q < K; ++q)
                sum += input[p * W + q] * taps[p * K + q];
        input += H * W;
        taps += K * K;
    }
    return sum;
}

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" __global__ void conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int tiles_across = (W_out + TILE - 1) / TILE;
    const int column = (blockIdx.x % tiles_across) * TILE + threadIdx.x;
    const int row = (blockIdx.x / tiles_across) * TILE + threadIdx.y;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    if (row >= H_out || column >= W_out) return;

    const float* input = x + ((size_t)image * C * H + row) * W + column;
    const float* taps = w + (size_t)map * C * K * K;
    float sum;
    if (K == 5) sum = output_at<5>(input, taps, C, H, W, K);
    else if (K == 7) sum = output_at<7>(input, taps, C, H, W, K);
    else sum = output_at<0>(input, taps, C, H, W, K);
    y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
}
