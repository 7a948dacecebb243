/*
title:     Elements addressed by a function of four indices
idea:      The course's code reads each element by a function, x4d(n, c, h, w), which computes the offset from four
           indices. Here the copies to shared memory do so; shared_input_weights has a pointer for each tile and copies
           the weights as one row.
expect:    About as fast, since the offsets are computed once for each element copied, not for each product. The weights cost
           a division and a remainder more for each thread and channel.
check:     smsp__inst_executed.sum rises against shared_input_weights
builds_on: shared_input_weights
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#arithmetic-instructions
constants: {TILE: 16, K_MAX: 7, PITCH: 48}  # a warp reads two rows: 48 floats apart they share no bank
launch:    {threads: [16, 16, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {K: 7, N: 65535}
claims:
  - says:     About as fast
    quantity: op_time
    change:   stays
    by:       10 %
    where:    {N: {at_least: 100}}
  - says:     a division and a remainder more for each thread and channel
    quantity: smsp__inst_executed.sum
    change:   rises
*/

// Element (i3, i2, i1, i0) of an array of extents (.., n2, n1, n0).
__device__ __forceinline__ float element(const float* array, int n2, int n1, int n0, int i3, int i2, int i1, int i0)
{
    return array[(((size_t)i3 * n2 + i2) * n1 + i1) * n0 + i0];
}

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
                    for (int i = threadIdx.y; i < rows_staged; i += TILE)
                        for (int j = threadIdx.x; j < columns_staged; j += TILE)
                            patch[i][j] = element(x, C, H, W, image, c, top + i, left + j);
                    if (thread < K * K)
                        taps[thread] = element(w, C, K, K, map, c, thread / K, thread % K);
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
