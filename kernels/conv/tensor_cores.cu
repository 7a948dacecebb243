/*
title:     Tensor cores in TF32
idea:      Each warp multiplies inputs by weights on tensor cores, 16 outputs x 8 weights by 8 weights x 8 output
           channels an instruction. Both are rounded to TF32 as they enter shared memory. Several channels are staged
           at once, so that their weights fill whole groups of 8, in the order in which the lanes take them.
expect:    Faster than FP32 where C*K*K is large, but far from the peak, because every operand
           still passes through shared memory. On first layers the results set the pace and
           little is gained. Errors near 3e-4 of the result's norm.
check:     smsp__sass_thread_inst_executed_op_ffma_pred_on.sum falls against register_tiled_gemm
builds_on: register_tiled_gemm
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-fragment-mma-1688
precision: tf32
constants: {WARPS: 4, OUTPUT_TILES: 4, MAP_TILES: 3, STEPS: 25, PATCH: 3456}
limits:    {K: 9, W: 384, M: 1572840}  # K lines of input fit into PATCH, and K*K taps into STEPS groups of 8
least_arch: sm_80
claims:
  - says:     Faster than FP32 where C*K*K is large
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
  - says:     On first layers the results set the pace and little is gained
    quantity: op_time
    change:   falls
    by:       {at_most: 20 %}
    where:    {C: {is: 1}}
  - says:     On first layers the results set the pace
    quantity: gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed
    value:    {at_least: 60 %}
    where:    {C: {is: 1}}
  - says:     far from the peak
    undecidable: no counter of tensor-core work was named beforehand
  - says:     Errors near 3e-4
    quantity: error
    value:    {at_least: 0.0001, at_most: 0.001}
  - says:     falls against register_tiled_gemm
    quantity: smsp__sass_thread_inst_executed_op_ffma_pred_on.sum
    change:   falls
*/

// The nearest TF32 number: 10 bits of mantissa.
__device__ __forceinline__ float rounded(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return __uint_as_float(bits);
}

// sums (16 outputs x 8 maps) += inputs (16 outputs x 8 taps) * taps (8 taps x 8 maps), spread over a warp's lanes:
//   inputs[0] output lane / 4, tap lane % 4;     [1] output + 8;     [2] tap + 4;     [3] output + 8, tap + 4
//   taps.x    tap lane % 4, map lane / 4;        .y  tap + 4
//   sums[0]   output lane / 4, map 2 * (lane % 4);  [1] map + 1;     [2] output + 8;  [3] output + 8, map + 1
__device__ __forceinline__ void multiply_add(float (&sums)[4], const float (&inputs)[4], float2 taps)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(__float_as_uint(inputs[0])), "r"(__float_as_uint(inputs[1])), "r"(__float_as_uint(inputs[2])),
                   "r"(__float_as_uint(inputs[3])), "r"(__float_as_uint(taps.x)), "r"(__float_as_uint(taps.y)));
}

// What a warp does with the staged channels, for as many tiles of 8 maps as there are.
template <int COUNT>
__device__ __forceinline__ void multiply_tiles(
    float (&sums)[MAP_TILES][OUTPUT_TILES][4], const float* const (&input)[2 * OUTPUT_TILES],
    const float2 (&taps)[MAP_TILES][STEPS][32], const int* offsets, int steps)
{
    const int lane = threadIdx.x;
    for (int step = 0; step < steps; ++step) {
        const int low = offsets[step * 8 + lane % 4];
        const int high = offsets[step * 8 + lane % 4 + 4];
        float inputs[OUTPUT_TILES][4];
        #pragma unroll
        for (int j = 0; j < OUTPUT_TILES; ++j) {
            inputs[j][0] = input[2 * j][low];
            inputs[j][1] = input[2 * j + 1][low];
            inputs[j][2] = input[2 * j][high];
            inputs[j][3] = input[2 * j + 1][high];
        }
        #pragma unroll
        for (int t = 0; t < COUNT; ++t)
            #pragma unroll
            for (int j = 0; j < OUTPUT_TILES; ++j)
                multiply_add(sums[t][j], inputs[j], taps[t][step][lane]);
    }
}

// Load lines of some channels to shared memory, rounded: from row `first_row` of an image on and through the images
// that follow.
__device__ __forceinline__ void load_lines(
    float* patch, const float* source, int first_row, int lines, int channels, int thread, int C, int H, int W)
{
    const int threads = 32 * WARPS;
    for (int staged = 0, from = first_row; staged < lines; from = 0) {
        const int count = min(H - from, lines - staged);  // to the end of this image at most
        const int words = count * W;
        int channel = thread / words;
        int word = thread % words;
        #pragma unroll 4
        for (int i = thread; i < channels * words; i += threads) {
            patch[(channel * lines + staged) * W + word] = rounded(source[(channel * H + from) * W + word]);
            channel += threads / words;
            word += threads % words;
            if (word >= words) {
                word -= words;
                ++channel;
            }
        }
        staged += count;
        source += (size_t)C * H * W;
    }
}

// Load some channels' weights to shared memory, rounded, in the order in which the lanes take them.
__device__ __forceinline__ void load_weights(
    float2 (&taps)[MAP_TILES][STEPS][32], const float* __restrict__ w, int map_tiles, int first_map, int c, int thread,
    int steps, int products, int C, int M, int K)
{
    const int threads = 32 * WARPS;
    for (int t = 0; t < map_tiles; ++t)
        #pragma unroll 2
        for (int i = thread; i < steps * 64; i += threads) {
            const int taker = i / 2 % 32;
            const int map = first_map + 8 * t + taker / 4;
            const int tap = i / 64 * 8 + taker % 4 + i % 2 * 4;
            // Zeros fill up the last group of taps, and the last group of maps.
            (&taps[t][0][0].x)[i] =
                (map < M && tap < products) ? rounded(w[((size_t)map * C + c) * K * K + tap]) : 0.0f;
        }
}

// Store a lane's outputs from `own` on, those up to the last.
__device__ __forceinline__ void store_outputs(
    float* __restrict__ y, const float (&sums)[MAP_TILES][OUTPUT_TILES][4], int own, int last, int first_map, int lane,
    int M, int outputs)
{
    int image = own / outputs;
    int output = own % outputs;
    #pragma unroll
    for (int i = 0; i < 2 * OUTPUT_TILES; ++i) {
        if (own + 8 * i <= last)
            #pragma unroll
            for (int t = 0; t < MAP_TILES; ++t)
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int map = first_map + 8 * t + 2 * (lane % 4) + e;
                    if (map < M)
                        y[((size_t)image * M + map) * outputs + output] = sums[t][i / 2][i % 2 * 2 + e];
                }
        for (output += 8; output >= outputs; output -= outputs)
            ++image;
    }
}

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
// A block makes `tile` outputs, which follow each other through rows and images, in 8 * MAP_TILES maps; it stages
// `channels` at a time. Five blocks fill a multiprocessor: registers are kept to 96 for that.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 5) conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K, int tile, int channels)
{
    __shared__ float patch[PATCH];
    __shared__ float2 taps[MAP_TILES][STEPS][32];
    __shared__ int offsets[STEPS * 8];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int outputs = H_out * W_out;
    const int lane = threadIdx.x;
    const int thread = threadIdx.y * 32 + lane;
    const int threads = 32 * WARPS;
    const int first_map = blockIdx.y * 8 * MAP_TILES;
    const int map_tiles = min((M - first_map + 7) / 8, MAP_TILES);

    // Lines of input are counted through all images: from `top` on, as many as the tile needs.
    const int first = blockIdx.x * tile;
    const int last = min(first + tile, N * outputs) - 1;
    const int first_image = first / outputs;
    const int first_row = first % outputs / W_out;
    const int top = first_image * H + first_row;
    const int lines = last / outputs * H + last % outputs / W_out + K - top;

    // A lane's outputs lie 8 apart. Those beyond the last are computed anywhere and not stored.
    const int own = first + threadIdx.y * 16 * OUTPUT_TILES + lane / 4;
    const float* input[2 * OUTPUT_TILES];
    int row = own % outputs / W_out;
    int column = own % outputs % W_out;
    int line = own / outputs * H + row - top;
    #pragma unroll
    for (int i = 0; i < 2 * OUTPUT_TILES; ++i) {
        input[i] = (own + 8 * i <= last) ? patch + line * W + column : patch;
        for (column += 8; column >= W_out; column -= W_out) {
            ++line;
            if (++row == H_out) {
                row = 0;
                line += K - 1;
            }
        }
    }

    float sums[MAP_TILES][OUTPUT_TILES][4] = {};
    for (int c = 0; c < C; c += channels) {
        const int staged_channels = min(channels, C - c);
        const int products = staged_channels * K * K;
        const int steps = (products + 7) / 8;

        const float* source = x + ((size_t)first_image * C + c) * H * W;
        load_lines(patch, source, first_row, lines, staged_channels, thread, C, H, W);
        load_weights(taps, w, map_tiles, first_map, c, thread, steps, products, C, M, K);
        for (int tap = thread; tap < steps * 8; tap += threads)
            // A zero meets the output's first input, which takes part in its sum anyway.
            offsets[tap] = (tap < products) ? (tap / (K * K) * lines + tap / K % K) * W + tap % K : 0;
        __syncthreads();  // inputs, taps and offsets are complete before anyone reads them

        if (map_tiles == 1)
            multiply_tiles<1>(sums, input, taps, offsets, steps);
        else if (map_tiles == 2)
            multiply_tiles<2>(sums, input, taps, offsets, steps);
        else
            multiply_tiles<3>(sums, input, taps, offsets, steps);
        __syncthreads();  // everyone has read them before the next channels overwrite them
    }

    store_outputs(y, sums, own, last, first_map, lane, M, outputs);
}
