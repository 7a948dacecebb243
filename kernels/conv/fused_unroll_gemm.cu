/*
title:     Unrolling fused into the product
idea:      The unrolled matrix is never stored. Where the tiled product reads its tile of that
           matrix, each thread works out which input stands there and copies it from x into
           shared memory. So all images go in one launch.
expect:    Many times faster than one image after another, as two launches for each image and
           the traffic of the stored matrix are gone. Against direct little or nothing. One thread
           still makes one output, at two shared-memory loads a product, and working out an
           input's place takes divisions.
check:     lts__t_sectors_op_write.sum falls against unroll_gemm
builds_on: unroll_gemm
reference: https://arxiv.org/abs/1410.0759
constants: {TILE: 16}
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 4, H: 4, M: 16, N: 1}}  # 16 in their order, of 16 maps
limits:    {N: 65535}
claims:
  - says:     Many times faster than one image after another
    quantity: op_time
    change:   falls
    by:       80 %
    where:    {N: {at_least: 100}}
  - says:     Against direct little or nothing
    quantity: op_time
    change:   falls
    by:       {at_most: 20 %}
    against:  direct
  - says:     falls against unroll_gemm
    quantity: lts__t_sectors_op_write.sum
    change:   falls
*/

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" __global__ void __launch_bounds__(TILE * TILE) conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    __shared__ float taps[TILE][TILE];
    __shared__ float inputs[TILE][TILE];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int outputs = H_out * W_out;
    const int products = C * K * K;
    const int output = blockIdx.x * TILE + threadIdx.x;
    const int row = output / W_out;
    const int column = output % W_out;
    const int map = blockIdx.y * TILE + threadIdx.y;
    const int image = blockIdx.z;
    // The grid counts tiles of 4x4 outputs, which may be more than 16 in sequence make: whole blocks are left over.
    if (blockIdx.x * TILE >= outputs) return;

    const float* input = x + ((size_t)image * C * H + row) * W + column;
    float sum = 0.0f;
    for (int first = 0; first < products; first += TILE) {
        // Row `source` of the unrolled matrix holds the inputs under tap (p, q) of input map c.
        const int source = first + threadIdx.y;
        const int c = source / (K * K);
        const int p = source / K % K;
        const int q = source % K;
        const int tap = first + threadIdx.x;
        // Zeros beyond the ends of either matrix add nothing.
        taps[threadIdx.y][threadIdx.x] = (map < M && tap < products) ? w[(size_t)map * products + tap] : 0.0f;
        inputs[threadIdx.y][threadIdx.x] =
            (source < products && output < outputs) ? input[(c * H + p) * W + q] : 0.0f;
        __syncthreads();  // both tiles are complete before anyone reads them

        for (int i = 0; i < TILE; ++i)
            sum += taps[threadIdx.y][i] * inputs[i][threadIdx.x];
        __syncthreads();  // everyone has read them before the next ones overwrite them
    }
    if (map < M && output < outputs)
        y[((size_t)image * M + map) * outputs + output] = sum;
}
