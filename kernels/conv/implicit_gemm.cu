/*
title:     Implicit GEMM, FP32 as hi and lo FP16 parts, by wgmma
idea:      A convolution is a product of weights by inputs under each output. No matrix of these inputs is written. One
           pass splits the images into FP16 parts, 8 channels of a pixel together in 16 bytes, with a column and a row of
           zeros between them. Pixels of all images then stand in one line, and each weight of the kernel has a distance in it.
           A block copies a piece of that line to shared memory, where wgmma reads it at as many addresses. Blocks of 512
           places fill whole waves, and smaller ones the last. An image is scaled by what a sample of it says. Outputs
           that read a value beyond these scales are computed again, in FP32. Products and sums are those of the matrix
           product gemm/fp16x3_wgmma.
expect:    The matrix product reaches 150 TFLOP/s at 4096. A layer of 7.4 GFLOP at 32 images is 50 us at that rate.
           Preparing images and weights takes 15 us more, and the last wave of blocks is half empty. At 3x3 layers of 64
           channels and more at 32 images, at least 1.5 times as fast as the best of cuDNN in FP32. Small images lose by
           zeros between them. At 7x7 these are a quarter of the line.
builds_on: unroll_gemm
split:     {precision: fp16, products: 3}
kernel:    conv_512
every_case: true
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
constants: {PARTS: 8, SAMPLE_LINES: 256, STAGES: 2, THREADS: 256}
limits:    {C: {at_least: 16}, K: 3, KW: 3, W: 256, S: {is: 1}, SW: {is: 1}, D: 2, DW: 2, G: {is: 1}}  # lo * lo is left out
least_arch: sm_90a
claims:
  - says:     at least 1.5 times as fast as the best of cuDNN in FP32
    quantity: gpu_time
    change:   falls
    by:       33 %
    against:  cudnn_fp32
    where:    {C: {at_least: 64}, K: {is: 3}, N: {at_least: 32}}
*/

#include "async_pipeline.cuh"
#define MIN_EXPONENT (-28)
#include "gemm_fp16_parts.cuh"
#include "wgmma_n64.cuh"

constexpr int CHUNK = 64;              // places of a wgmma
constexpr int CHUNK_SUMS = CHUNK / 2;  // a thread's sums of a chunk
constexpr int TAPS = 3;                // taps that are multiplied before their products are added up
constexpr int MAX_TAPS = 9;
constexpr int AHEAD = STAGES - 1;      // stages that are copied before they are multiplied
constexpr int WARPS = THREADS / 32;
constexpr float ROOM = 4.0f, MOST = 3.402823466e38f;

// A layer. Pixel (row, column) of image n stands at (n * rows + row) * pitch + column + lead in the line, where rows and
// pitch count the zeros behind an image and a row. Output (row, column) of image n has the place (n * rows + row) * pitch +
// column, `outputs` places in all, and reads the line from there on.
struct Layer {
    int N, C, H, W, M, K, KW, D, DW, H_out, W_out, rows, pitch, lead, length, outputs;

    __device__ __forceinline__ int steps() const { return (C + 15) / 16; }  // of 16 channels
    __device__ __forceinline__ int padded_taps() const { return (K * KW + TAPS - 1) / TAPS * TAPS; }
    // How far behind an output's place a tap reads. Weights behind the last tap are zeros, and read what that reads.
    __device__ __forceinline__ int distance(int tap) const
    {
        tap = min(tap, K * KW - 1);
        return tap / KW * D * pitch + tap % KW * DW;
    }
    // Where an output of channel 0 stands in y; -1 where a place is none of an output.
    __device__ __forceinline__ long long output_at(int place) const
    {
        const int image = place / (rows * pitch), row = place / pitch % rows, column = place % pitch;
        if (image >= N || row >= H_out || column >= W_out) return -1;
        return ((long long)image * M * H_out + row) * W_out + column;
    }
};
// 16 channels of the line: hi parts of 8 of them, then of the other 8; then their lo parts.
constexpr int PLANES = 4;

// Largest magnitudes: of a sample of each image, in PARTS parts, then of the weights of each output channel. Clears the
// marks: marked_places holds how many there are, then the places themselves.
extern "C" __global__ void __launch_bounds__(THREADS) find_largest(
    const float* __restrict__ x, const float* __restrict__ w, unsigned* __restrict__ image_largest,
    unsigned* __restrict__ weight_largest, int* __restrict__ place_is_marked, int* __restrict__ marked_places,
    int* __restrict__ weight_is_marked, const Layer layer)
{
    __shared__ unsigned warp_max[WARPS];
    if (blockIdx.x == 0 && threadIdx.x == 0) marked_places[0] = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < layer.outputs; i += gridDim.x * THREADS) place_is_marked[i] = 0;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, channel = blockIdx.x - layer.N * PARTS;
    unsigned largest = 0;
    if (channel < 0) {
        const int all = layer.C * layer.H * layer.W, every = max(1, all / 32 / SAMPLE_LINES), part = blockIdx.x % PARTS;
        const float* const image = x + (size_t)(blockIdx.x / PARTS) * all;
        #pragma unroll 4
        for (int i = (part * WARPS + warp) * every * 32 + lane; i < all; i += PARTS * WARPS * every * 32)
            largest = max(largest, magnitude_bits(image[i]));
    } else {
        const int all = layer.C * layer.K * layer.KW;
        #pragma unroll 4
        for (int i = threadIdx.x; i < all; i += THREADS)
            largest = max(largest, magnitude_bits(w[(size_t)channel * all + i]));
    }
    largest = block_max(largest, warp_max);
    if (threadIdx.x) return;
    if (channel < 0)
        image_largest[blockIdx.x] = largest;
    else {
        weight_largest[channel] = largest;
        weight_is_marked[channel] = largest >= INFINITY_BITS;
    }
}

// Splits the weights of 16 output channels and 16 input channels a block into fragments of wgmma's A: (64 output
// channels, 16 input channels, 16 output channels, tap, part, lane). Zeros stand for channels and taps that are not there.
__device__ __forceinline__ void split_weights(
    const float* __restrict__ w, uint4* __restrict__ fragments, const unsigned* __restrict__ weight_largest,
    int* __restrict__ weight_is_marked, int sixteen_rows, int step, const Layer& layer)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int taps = layer.K * layer.KW, padded = layer.padded_taps();
    const size_t sixteen = ((size_t)(sixteen_rows / 4) * layer.steps() + step) * 4 + sixteen_rows % 4;
    uint4* const to = fragments + sixteen * padded * 2 * 32 + lane;
    for (int tap = warp; tap < padded; tap += WARPS) {
        uint2 parts[2][2];  // of two channels and the two that are 8 behind them, in two rows
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = sixteen_rows * 16 + lane / 4 + half * 8;
            const Scale scale(row < layer.M ? weight_largest[row] : 0);
            #pragma unroll
            for (int eight = 0; eight < 2; ++eight) {
                const int channel = step * 16 + eight * 8 + lane % 4 * 2;
                const float* const source = w + ((size_t)row * layer.C + channel) * taps + tap;
                const bool is_there = row < layer.M && tap < taps;
                const float first = is_there && channel < layer.C ? source[0] : 0.0f;
                const float second = is_there && channel + 1 < layer.C ? source[taps] : 0.0f;
                if (!keeps_precision(first, scale.least) || !keeps_precision(second, scale.least))
                    weight_is_marked[row] = 1;
                parts[eight][half] = split_wide(scale(first), scale(second));
            }
        }
        to[(tap * 2 + 0) * 32] = make_uint4(parts[0][0].x, parts[0][1].x, parts[1][0].x, parts[1][1].x);
        to[(tap * 2 + 1) * 32] = make_uint4(parts[0][0].y, parts[0][1].y, parts[1][0].y, parts[1][1].y);
    }
}

// What an image is scaled by: ROOM times the largest of its sample.
__device__ __forceinline__ unsigned largest_of_image(const unsigned* __restrict__ image_largest, int image)
{
    unsigned largest = 0;
    #pragma unroll
    for (int part = 0; part < PARTS; ++part) largest = max(largest, image_largest[image * PARTS + part]);
    return __float_as_uint(fminf(__uint_as_float(largest) * ROOM, MOST));
}

// A thread splits one pixel of the line, in its share of the channels. Marks outputs that read a value which FP16 parts
// cannot hold.
__device__ __forceinline__ void split_images(
    const float* __restrict__ x, uint4* __restrict__ line, const unsigned* __restrict__ image_largest,
    int* __restrict__ place_is_marked, int* __restrict__ marked_places, int block, int share, int shares,
    const Layer& layer)
{
    const int at = block * THREADS + threadIdx.x, pixel = at - layer.lead;
    if (at >= layer.length) return;
    const int image = pixel / (layer.rows * layer.pitch);
    const int row = pixel / layer.pitch % layer.rows, column = pixel % layer.pitch;
    const bool is_there = pixel >= 0 && image < layer.N && row < layer.H && column < layer.W;
    const unsigned largest = is_there ? largest_of_image(image_largest, image) : 0;
    const Scale scale(largest);
    const size_t plane = (size_t)layer.H * layer.W;
    const float* const source = x + ((size_t)image * layer.C * layer.H + row) * layer.W + column;
    const int exponent = exponent_of(largest);
    const float most = exponent < 127 ? power_of_two(exponent + 1) : MOST;
    bool is_marked = false;
    for (int eight = share; eight < layer.steps() * 2; eight += shares) {
        float values[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            values[i] = is_there && eight * 8 + i < layer.C ? __ldcs(source + (eight * 8 + i) * plane) : 0.0f;
        uint2 pairs[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float first = values[2 * i], second = values[2 * i + 1];
            is_marked |= !keeps_precision(first, scale.least) || !keeps_precision(second, scale.least);
            is_marked |= !(fmaxf(fabsf(first), fabsf(second)) <= most) || first != first || second != second;
            pairs[i] = split_wide(scale(first), scale(second));
        }
        uint4* const to = line + ((size_t)(eight / 2) * PLANES + eight % 2) * layer.length + at;
        to[0] = make_uint4(pairs[0].x, pairs[1].x, pairs[2].x, pairs[3].x);
        to[(size_t)2 * layer.length] = make_uint4(pairs[0].y, pairs[1].y, pairs[2].y, pairs[3].y);
    }
    if (!is_marked) return;
    for (int tap = 0; tap < layer.K * layer.KW; ++tap) {
        const int place = at - layer.distance(tap);
        if (place >= 0 && place < layer.outputs && !atomicExch(place_is_marked + place, 1))
            marked_places[1 + atomicAdd(marked_places, 1)] = place;
    }
}

// The first `of_weights` blocks split weights, the others images: `shares` blocks the same pixels.
extern "C" __global__ void __launch_bounds__(THREADS) split(
    const float* __restrict__ x, const float* __restrict__ w, uint4* __restrict__ line, uint4* __restrict__ fragments,
    const unsigned* __restrict__ image_largest, const unsigned* __restrict__ weight_largest,
    int* __restrict__ place_is_marked, int* __restrict__ marked_places, int* __restrict__ weight_is_marked,
    int of_weights, int shares, const Layer layer)
{
    const int block = blockIdx.x - of_weights, steps = layer.steps();
    if (block < 0)
        split_weights(w, fragments, weight_largest, weight_is_marked, blockIdx.x / steps, blockIdx.x % steps, layer);
    else
        split_images(
            x, line, image_largest, place_is_marked, marked_places, block / shares, block % shares, shares, layer);
}

// A warp's fragments of the weights for a group of taps.
struct Fragments {
    unsigned hi[TAPS][4], lo[TAPS][4];
    __device__ __forceinline__ void load(const uint4* from)
    {
        #pragma unroll
        for (int tap = 0; tap < TAPS; ++tap) {
            *(uint4*)hi[tap] = from[(tap * 2 + 0) * 32];
            *(uint4*)lo[tap] = from[(tap * 2 + 1) * 32];
        }
    }
};

// Starts hi * hi, or lo * hi and hi * lo, of a chunk. `b` are the descriptors of a group's taps, `to_lo` the distance
// to lo parts.
__device__ __forceinline__ void start_large(
    float* large, const Fragments& a, const unsigned long long (&b)[TAPS], int chunk)
{
    wgmma_fence();
    wgmma_m64n64k16<false>(large, a.hi[0], b[0] + chunk * CHUNK);
    #pragma unroll
    for (int tap = 1; tap < TAPS; ++tap) wgmma_m64n64k16<true>(large, a.hi[tap], b[tap] + chunk * CHUNK);
    wgmma_commit_group();
}
__device__ __forceinline__ void start_small(
    float* small, const Fragments& a, const unsigned long long (&b)[TAPS], int to_lo, int chunk)
{
    wgmma_fence();
    wgmma_m64n64k16<false>(small, a.lo[0], b[0] + chunk * CHUNK);
    wgmma_m64n64k16<true>(small, a.hi[0], b[0] + to_lo + chunk * CHUNK);
    #pragma unroll
    for (int tap = 1; tap < TAPS; ++tap) {
        wgmma_m64n64k16<true>(small, a.lo[tap], b[tap] + chunk * CHUNK);
        wgmma_m64n64k16<true>(small, a.hi[tap], b[tap] + to_lo + chunk * CHUNK);
    }
    wgmma_commit_group();
}

__device__ __forceinline__ void add_sums(float (&sums)[CHUNK_SUMS], const float (&products)[CHUNK_SUMS], float scale)
{
    #pragma unroll
    for (int i = 0; i < CHUNK_SUMS; ++i) sums[i] += products[i] * scale;
}

// Multiplies a group of taps. The products of one set of registers are under way while those of the other are added up,
// and the first ones while `start_copies` runs.
template <int CHUNKS, int CHUNK_NUMBER = 0, class StartCopies>
__device__ __forceinline__ void multiply_group(
    float (&sums)[CHUNKS][CHUNK_SUMS], float (&large)[CHUNK_SUMS], float (&small)[CHUNK_SUMS], const Fragments& a,
    const unsigned long long (&b)[TAPS], int to_lo, StartCopies start_copies)
{
    start_small(small, a, b, to_lo, CHUNK_NUMBER);
    if constexpr (CHUNK_NUMBER > 0) {
        wgmma_wait_group<1>();
        add_sums(sums[CHUNK_NUMBER - 1], large, 1.0f);
    }
    start_large(large, a, b, CHUNK_NUMBER);
    if constexpr (CHUNK_NUMBER == 0) start_copies();
    wgmma_wait_group<1>();
    add_sums(sums[CHUNK_NUMBER], small, 1.0f / (1 << LO_EXPONENT));
    if constexpr (CHUNK_NUMBER + 1 < CHUNKS)
        multiply_group<CHUNKS, CHUNK_NUMBER + 1>(sums, large, small, a, b, to_lo, start_copies);
    else {
        wgmma_wait_group<0>();
        add_sums(sums[CHUNK_NUMBER], large, 1.0f);
    }
}

// 64 output channels of PLACES places. Each of two warpgroups has half of these.
template <int PLACES>
__device__ __forceinline__ void convolve(
    const uint4* __restrict__ line, const uint4* __restrict__ fragments, const float* __restrict__ bias,
    const unsigned* __restrict__ image_largest, const unsigned* __restrict__ weight_largest, float* __restrict__ y,
    int first, const Layer& layer)
{
    constexpr int CHANNELS = 64, CHUNKS = PLACES / CHUNK / (WARPS / 4), ROW = CHUNK + 8;
    extern __shared__ __align__(128) uint4 stages[];  // fragments, then the line's planes
    __shared__ long long output_of[PLACES];
    __shared__ int exponent_at[PLACES], exponent_of_channel[CHANNELS], distance_of[MAX_TAPS];
    __shared__ float bias_of[CHANNELS];
    const int thread = threadIdx.x;
    // The shuffle tells the compiler that the warp is the same for all lanes.
    const int warp = __shfl_sync(0xffffffffu, thread / 32, 0), lane = thread % 32;
    const int first_channel = blockIdx.y * CHANNELS, steps = layer.steps(), taps = layer.padded_taps();
    const int span = (layer.K - 1) * layer.D * layer.pitch + (layer.KW - 1) * layer.DW;
    const int units = (PLACES + span + 7) / 8 * 8;  // pixels of a stage
    const int of_fragments = 4 * taps * 2 * 32, of_stage = of_fragments + PLANES * units;

    const auto start_copies = [&](int step) {
        if (step < steps) {
            unsigned to = smem_address(stages + step % STAGES * of_stage) + thread * 16;
            const uint4* const weights = fragments + (size_t)(blockIdx.y * steps + step) * of_fragments;
            for (int i = thread; i < of_fragments; i += THREADS) cp_async_16(to + (i - thread) * 16, weights + i);
            to += of_fragments * 16;
            #pragma unroll
            for (int which = 0; which < PLANES; ++which, to += units * 16) {
                const uint4* const from = line + ((size_t)step * PLANES + which) * layer.length + first;
                for (int i = thread; i < units; i += THREADS) cp_async_16(to + (i - thread) * 16, from + i);
            }
        }
        cp_async_commit_group();
    };
    #pragma unroll
    for (int step = 0; step < AHEAD; ++step) start_copies(step);

    for (int i = thread; i < PLACES; i += THREADS) {
        output_of[i] = layer.output_at(first + i);
        const int image = (first + i) / (layer.rows * layer.pitch);
        exponent_at[i] = output_of[i] >= 0 ? exponent_of(largest_of_image(image_largest, image)) : 0;
    }
    if (thread < CHANNELS && first_channel + thread < layer.M) {
        exponent_of_channel[thread] = exponent_of(weight_largest[first_channel + thread]);
        bias_of[thread] = bias ? bias[first_channel + thread] : 0.0f;
    }
    if (thread < taps) distance_of[thread] = layer.distance(thread);

    const int channel_of_warp = warp % 4 * 16, place_of_warp = warp / 4 * CHUNKS * CHUNK;
    float sums[CHUNKS][CHUNK_SUMS] = {}, large[CHUNK_SUMS] = {}, small[CHUNK_SUMS] = {};
    // Distances of a descriptor: from 8 channels to the next 8, and from 8 pixels to the next 8.
    const unsigned long long strides = (unsigned long long)units << 16 | 8ull << 32;
    #pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        cp_async_wait_group<AHEAD - 1>();
        fence_proxy_async_shared(); // wgmma sees this thread's copies
        __syncthreads(); // all copies of this stage have arrived, and nobody reads the stage before it any more
        const uint4* const stage = stages + step % STAGES * of_stage;
        const uint4* weights = stage + channel_of_warp / 16 * taps * 2 * 32 + lane;
        const unsigned planes = smem_address(stage + of_fragments + place_of_warp);
        const unsigned long long descriptor = (planes & 0x3ffff) >> 4 | strides;
        #pragma unroll 1
        for (int group = 0; group < taps; group += TAPS) {
            Fragments a;
            a.load(weights + group * 2 * 32);
            unsigned long long b[TAPS];
            #pragma unroll
            for (int tap = 0; tap < TAPS; ++tap)
                b[tap] = descriptor + __shfl_sync(0xffffffffu, distance_of[group + tap], 0);
            multiply_group<CHUNKS>(sums, large, small, a, b, 2 * units, [&] {
                if (group == 0) start_copies(step + AHEAD);
            });
        }
    }

    // By way of shared memory, so that a warp stores neighbours.
    __syncthreads();
    float* const mine = (float*)stages + warp * 16 * ROW;
    #pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        #pragma unroll
        for (int eight = 0; eight < CHUNK / 8; ++eight)
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                *(float2*)(mine + (lane / 4 + half * 8) * ROW + eight * 8 + lane % 4 * 2) =
                    make_float2(sums[chunk][eight * 4 + half * 2], sums[chunk][eight * 4 + half * 2 + 1]);
        __syncwarp();
        #pragma unroll
        for (int side = 0; side < CHUNK; side += 32) {
            const int place = place_of_warp + chunk * CHUNK + side + lane, exponent = exponent_at[place];
            float* const to = y + output_of[place] + (size_t)(first_channel + channel_of_warp) * layer.H_out * layer.W_out;
            if (output_of[place] >= 0)
                #pragma unroll
                for (int row = 0; row < 16; ++row) {
                    const int channel = channel_of_warp + row;
                    if (first_channel + channel >= layer.M) break;
                    to[(size_t)row * layer.H_out * layer.W_out] = bias_of[channel] +
                        unscale(mine[row * ROW + side + lane], exponent_of_channel[channel], exponent);
                }
        }
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) conv_512(
    const uint4* __restrict__ line, const uint4* __restrict__ fragments, const float* __restrict__ bias,
    const unsigned* __restrict__ image_largest, const unsigned* __restrict__ weight_largest, float* __restrict__ y,
    int first, const Layer layer)
{
    convolve<512>(line, fragments, bias, image_largest, weight_largest, y, first + blockIdx.x * 512, layer);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) conv_256(
    const uint4* __restrict__ line, const uint4* __restrict__ fragments, const float* __restrict__ bias,
    const unsigned* __restrict__ image_largest, const unsigned* __restrict__ weight_largest, float* __restrict__ y,
    int first, const Layer layer)
{
    convolve<256>(line, fragments, bias, image_largest, weight_largest, y, first + blockIdx.x * 256, layer);
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) conv_128(
    const uint4* __restrict__ line, const uint4* __restrict__ fragments, const float* __restrict__ bias,
    const unsigned* __restrict__ image_largest, const unsigned* __restrict__ weight_largest, float* __restrict__ y,
    int first, const Layer layer)
{
    convolve<128>(line, fragments, bias, image_largest, weight_largest, y, first + blockIdx.x * 128, layer);
}

// An output in FP32: lanes share its products.
__device__ __forceinline__ void compute_output(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias, float* __restrict__ y,
    int P, int PW, int place, int channel, int lane, const Layer& layer)
{
    const long long output = layer.output_at(place);
    if (output < 0) return;
    const int image = place / (layer.rows * layer.pitch), taps = layer.K * layer.KW;
    const int top = place / layer.pitch % layer.rows - P, left = place % layer.pitch - PW;
    const float* const weights = w + (size_t)channel * layer.C * taps;
    float sum = 0.0f;
    #pragma unroll 4
    for (int i = lane; i < layer.C * taps; i += 32) {
        const int row = top + i % taps / layer.KW * layer.D, column = left + i % taps % layer.KW * layer.DW;
        if (row >= 0 && row < layer.H && column >= 0 && column < layer.W)
            sum += x[(((size_t)image * layer.C + i / taps) * layer.H + row) * layer.W + column] * weights[i];
    }
    #pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    if (lane == 0)
        y[output + (size_t)channel * layer.H_out * layer.W_out] = sum + (bias ? bias[channel] : 0.0f);
}

// Computes marked outputs, and all of marked output channels, in FP32.
extern "C" __global__ void __launch_bounds__(THREADS) fp32_fallback(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
    const int* __restrict__ place_is_marked, const int* __restrict__ marked_places,
    const int* __restrict__ weight_is_marked, float* __restrict__ y, int P, int PW, const Layer layer)
{
    const int lane = threadIdx.x % 32, warps = gridDim.x * WARPS;
    const int warp = blockIdx.x * WARPS + __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
    for (long long i = warp; i < (long long)marked_places[0] * layer.M; i += warps)
        compute_output(x, w, bias, y, P, PW, marked_places[1 + i / layer.M], i % layer.M, lane, layer);
    bool is_any = false;
    for (int channel = threadIdx.x; channel < layer.M; channel += THREADS) is_any |= weight_is_marked[channel];
    if (!__syncthreads_or(is_any)) return;
    for (int channel = 0; channel < layer.M; ++channel)
        if (weight_is_marked[channel])
            for (int place = warp; place < layer.outputs; place += warps)
                if (!place_is_marked[place]) compute_output(x, w, bias, y, P, PW, place, channel, lane, layer);
}
