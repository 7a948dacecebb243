/*
title:     Implicit product in register tiles
idea:      Each thread sums an 8x8 tile, 8 output channels by 8 outputs, in registers, so that 16 values read from
           shared memory serve 64 multiply-adds. A block stages the inputs themselves, not their unrolled copies, and
           an element of the unrolled matrix is found at the output's place among them plus the weight's. The outputs
           of all images form one sequence, so that no image ends in a ragged tile.
expect:    Several times faster than 16x16 tiles, near half of the FP32 peak where C*K*K is large. Least on first
           layers, whose results take the memory's time, and where M is no multiple of 8, as 6 output channels still
           cost 8. Few threads when few images.
check:     l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum falls against fused_unroll_gemm
builds_on: fused_unroll_gemm
reference: https://docs.nvidia.com/cutlass/media/docs/cpp/efficient_gemm.html
constants: {WARPS: 2, OUTPUTS: 8, MAPS: 8, PATCH: 2304, K_MAX: 7}
limits:    {K: 7, W: 256, M: 524280}  # K lines of input fit into PATCH
claims:
  - says:     Several times faster than 16x16 tiles
    quantity: op_time
    change:   falls
    by:       67 %
  - says:     near half of the FP32 peak where C*K*K is large
    quantity: fp32_peak_share
    value:    {at_least: 40 %}
    where:    {C: {at_least: 2}}
  - says:     Least on first layers
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
    more_than: {C: {is: 1}}
  - says:     Few threads when few images
    quantity: op_time
    change:   falls
    where:    {N: {at_least: 10000}}
    more_than: {N: {at_most: 100}}
  - says:     falls against fused_unroll_gemm
    quantity: l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
    change:   falls
*/

// The products of K neighbouring taps. With K known, their offsets are part of the instructions.
template <int K>
__device__ __forceinline__ void add_products(
    float (&sums)[MAPS][OUTPUTS], const float* const (&input)[OUTPUTS], int offset, const float4 (*taps)[MAPS / 4])
{
    #pragma unroll
    for (int q = 0; q < K; ++q) {
        const float4 low = taps[q][0];
        const float4 high = taps[q][1];
        const float of_map[MAPS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        #pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) {
            const float value = input[i][offset + q];
            #pragma unroll
            for (int m = 0; m < MAPS; ++m)
                sums[m][i] += value * of_map[m];
        }
    }
}

// The products of a staged channel.
__device__ __forceinline__ void add_channel(
    float (&sums)[MAPS][OUTPUTS], const float* const (&input)[OUTPUTS], const float4 (*taps)[MAPS / 4], int pitch,
    int K)
{
    for (int p = 0; p < K; ++p) {
        const int offset = p * pitch;
        const float4(*row_of_taps)[MAPS / 4] = taps + p * K;
        if (K == 5)
            add_products<5>(sums, input, offset, row_of_taps);
        else if (K == 7)
            add_products<7>(sums, input, offset, row_of_taps);
        else
            for (int q = 0; q < K; ++q)
                add_products<1>(sums, input, offset + q, row_of_taps + q);
    }
}

// Load lines of input to shared memory, from row `first_row` of an image on and through the images that follow.
__device__ __forceinline__ void load_lines(
    float* patch, const float* source, int first_row, int lines, int pitch, int H, int W, size_t image_stride)
{
    for (int staged = 0, from = first_row; staged < lines; from = 0) {
        const int count = min(H - from, lines - staged);  // to the end of this image at most
        for (int j = threadIdx.x; j < W; j += 32)
            #pragma unroll 4
            for (int i = threadIdx.y; i < count; i += WARPS)
                patch[(staged + i) * pitch + j] = source[(from + i) * W + j];
        staged += count;
        source += image_stride;
    }
}

// Store a thread's outputs from `own` on, those up to the last.
__device__ __forceinline__ void store_outputs(
    float* __restrict__ y, const float (&sums)[MAPS][OUTPUTS], int own, int last, int first_map, int M, int outputs)
{
    const int threads = 32 * WARPS;
    int image = (own) / outputs;
    int output = (own) % outputs;
    #pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) {
        float* result = y + ((size_t)image * M + first_map) * outputs + output;
        if (own + i * threads <= last)
            #pragma unroll
            for (int m = 0; m < MAPS; ++m)
                if (first_map + m < M)
                    result[(size_t)m * outputs] = sums[m][i];
        for (output += threads; output >= outputs; output -= outputs)
            ++image;
    }
}

// Load a channel's weights for a block's output channels to shared memory, and zeros where there is no output channel.
__device__ __forceinline__ void load_weights(
    float4 (*taps)[MAPS / 4], const float* __restrict__ w, int first_map, int c, int thread, int C, int M, int K)
{
    const int threads = 32 * WARPS;
    const int map = first_map + thread % MAPS;
    const float* weights = w + ((size_t)map * C + c) * K * K;
    #pragma unroll 2
    for (int i = thread / MAPS; i < K * K; i += threads / MAPS)
        (&taps[i][0].x)[thread % MAPS] = (map < M) ? weights[i] : 0.0f;
}

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
// A block makes `tile` outputs, which follow each other through rows and images, in MAPS maps.
extern "C" __global__ void __launch_bounds__(32 * WARPS) conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K, int tile)
{
    __shared__ float patch[PATCH];
    __shared__ float4 taps[K_MAX * K_MAX][MAPS / 4];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int outputs = H_out * W_out;
    const int thread = threadIdx.y * 32 + threadIdx.x;
    const int threads = 32 * WARPS;
    const int first_map = blockIdx.y * MAPS;

    // Lines of input are counted through all images: from `top` on, as many as the tile needs.
    const int first = blockIdx.x * tile;
    const int last = min(first + tile, N * outputs) - 1;
    const int first_image = first / outputs;
    const int first_row = first % outputs / W_out;
    const int top = first_image * H + first_row;
    const int lines = last / outputs * H + last % outputs / W_out + K - top;
    // The step from the end of one row of outputs to the next is one bank, so that no two lanes of a warp collide.
    const int pitch = W_out + (K - 1 + 31) / 32 * 32;

    // A thread's outputs lie `threads` apart. Those beyond the last are computed anywhere and not stored.
    const float* input[OUTPUTS];
    int row = (first + thread) % outputs / W_out;
    int column = (first + thread) % outputs % W_out;
    int line = (first + thread) / outputs * H + row - top;
    #pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) {
        input[i] = (first + thread + i * threads <= last) ? patch + line * pitch + column : patch;
        for (column += threads; column >= W_out; column -= W_out) {
            ++line;
            if (++row == H_out) {
                row = 0;
                line += K - 1;
            }
        }
    }

    float sums[MAPS][OUTPUTS] = {};
    for (int c = 0; c < C; ++c) {
        const float* source = x + ((size_t)first_image * C + c) * H * W;
        load_lines(patch, source, first_row, lines, pitch, H, W, (size_t)C * H * W);
        load_weights(taps, w, first_map, c, thread, C, M, K);
        __syncthreads();  // inputs and taps are complete before anyone reads them

        add_channel(sums, input, taps, pitch, K);
        __syncthreads();  // everyone has read them before the next channel overwrites them
    }

    store_outputs(y, sums, first + thread, last, first_map, M, outputs);
}
