/*
title:     Outputs held in an array for each thread
idea:      A thread keeps the sums of all output channels of its output in an array of its own and writes them to y
           together, after the last output channel.
expect:    Nothing to gain, as each sum was written once already. The array is indexed by a number known only at run
           time, as registers cannot be, so it lives in local memory, which is global memory behind the caches.
           Slower by those loads and stores, little where C*K*K multiply-adds stand between them.
check:     l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum rises from zero against grid_images
builds_on: grid_images
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#local-memory
constants: {THREADS: 1024, PATCH: 11700, CHANNELS: 12, K_MAX: 7, M_MAX: 64}  # 48 KiB of shared memory
launch:    {threads: [1024, 1, 1], outputs_per_block: {W: 65536, H: 65536, M: 65536, N: 1}}  # a whole image
limits:    {W: 1024, K: 7, M: 64, N: 65535}  # a row of outputs fits the threads, its input PATCH
claims:
  - says:     Nothing to gain
    quantity: op_time
    change:   rises
  - says:     it lives in local memory
    quantity: local_bytes
    change:   rises
  - says:     Slower by those loads and stores, little where C*K*K multiply-adds stand between them
    quantity: op_time
    change:   rises
    where:    {C: {is: 1}}
    more_than: {C: {at_least: 2}}
  - says:     rises from zero against grid_images
    quantity: l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum
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
    x += image * C * H * W;
    y += image * M * H_out * W_out;
    // With this pitch the 32 outputs of a warp read 32 banks, also where a row of outputs ends among them.
    const int pitch = W_out + 32;
    const int band = min(min(H_out, THREADS / W_out), PATCH / pitch - K + 1);  // rows of outputs
    const int channels = min(min(C, CHANNELS), PATCH / (pitch * (band + K - 1)));  // staged together
    const int row = threadIdx.x / W_out;  // in the band
    const int column = threadIdx.x % W_out;
    float sums[M_MAX];

    for (int top = 0; top < H_out; top += band) {
        const int rows = min(band, H_out - top);
        const int rows_staged = rows + K - 1;
        const bool inside = row < rows;

        for (int map = 0; map < M; ++map)
            sums[map] = 0.0f;
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
                    float sum = sums[map];
                    for (int c = 0; c < staged; ++c) {
                        const float* input = patch + (c * rows_staged + row) * pitch + column;
                        for (int p = 0; p < K; ++p)
                            for (int q = 0; q < K; ++q)
                                sum += input[p * pitch + q] * taps[(c * K + p) * K + q];
                    }
                    sums[map] = sum;
                }
                __syncthreads();  // everyone has read them before they are overwritten
            }
        }
        if (inside)
            for (int map = 0; map < M; ++map)
                y[(map * H_out + top + row) * W_out + column] = sums[map];
    }
}
