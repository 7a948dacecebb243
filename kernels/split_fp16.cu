/*
title:     FP32 products from halves on tensor cores
idea:      Every FP32 number is split in two FP16 halves, high and low, which together keep 22 bits;
           tensor cores add up high * high, high * low and low * high in FP32. Powers of two, found
           for each image and each map, keep both halves inside FP16's range. An image is split once,
           as it enters shared memory, and then serves all its taps. Later layers (C > 1) keep the
           channels of a pixel together, so that a row of taps is one run of K*C numbers; first layers
           (C = 1) multiply 8 neighbouring inputs by the weights of 9 - K shifted outputs. Layers other than
           the networks' take a general kernel. Images with numbers that halves cannot hold, being too small beside
           the largest, go into a list, and a last kernel adds up the outputs around those in FP32.
expect:    Tensor cores do 8 times the multiply-adds of the FP32 pipes and need 3 times as many, so
           later layers gain up to 2.5 times over FP32's own bound, until reading the inputs from
           shared memory sets the pace (12 of 14 cycles on 12x33x33). First layers come near the
           time of their memory traffic. Errors stay those of FP32 sums. Few images gain less.
check:     sm__inst_executed_pipe_tensor.sum rises, smsp__sass_thread_inst_executed_op_ffma_pred_on.sum falls
builds_on: layer_specialised
split:     {precision: fp16, products: 3}
reference: https://doi.org/10.1177/10943420221090256 (Ootomo and Yokota, 2022)
constants: {TILE: 16, FP32_THREADS: 512, LATER_12_TILES: 4, LATER_12_TOGETHER: 4, LATER_12_THREADS: 256, LATER_12_BLOCKS: 2,
            LATER_6_TILES: 8, LATER_6_TOGETHER: 4, LATER_6_THREADS: 128, LATER_6_BLOCKS: 4,
            LATER_4_TILES: 8, LATER_4_TOGETHER: 8, LATER_4_THREADS: 128, LATER_4_BLOCKS: 4,
            FIRST_28_TILES: 3, FIRST_28_THREADS: 96, FIRST_28_BLOCKS: 5, FIRST_5_THREADS: 128, FIRST_5_BLOCKS: 2,
            FIRST_72_THREADS: 256, FIRST_72_BLOCKS: 1, FIRST_86_TILES: 2, FIRST_86_THREADS: 128, FIRST_86_BLOCKS: 4}
limits:    {M: 65535, N: 65535}
least_arch: sm_80
*/

#include <cuda_fp16.h>

// Numbers are scaled below 2^15, so that no high half overflows. A low half is then right to 2^-25, which is FP32's
// own precision down to 2^-RANGE of the largest number.
#define TOP 14
#ifndef RANGE
#define RANGE 17
#endif

#define INFINITE 0x7f800000u  // bits of FP32's infinity; those of NaN are larger
#define TOO_LARGE 1024        // an exponent that no product with an image brings back into FP32's range

// sums (16 rows x 8 columns) += a (16 rows x 16 taps) * b (16 taps x 8 columns), spread over a warp's lanes:
//   a.x      row lane / 4, taps 2 * (lane % 4) and the next;  a.y  row + 8;  a.z  taps + 8;  a.w  row + 8, taps + 8
//   b0       taps 2 * (lane % 4) and the next, column lane / 4;              b1   taps + 8
//   sums[0]  row lane / 4, column 2 * (lane % 4);  [1]  column + 1;  [2]  row + 8;  [3]  row + 8, column + 1
__device__ __forceinline__ void multiply_add(float (&sums)[4], uint4 a, unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// The same for 8 taps: a0 is a.x above, a1 a.y.
__device__ __forceinline__ void multiply_add(float (&sums)[4], unsigned a0, unsigned a1, unsigned b0)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a0), "r"(a1), "r"(b0));
}

// Two scaled numbers as two pairs of halves.
__device__ __forceinline__ uint2 split(float first, float second)
{
    const __half2 high = __floats2half2_rn(first, second);
    const float2 kept = __half22float2(high);
    const __half2 low = __floats2half2_rn(first - kept.x, second - kept.y);
    return make_uint2(*(const unsigned*)&high, *(const unsigned*)&low);
}

// Ask for an image to be in the L2 cache when its turn comes.
__device__ __forceinline__ void prefetch(const float* image, int count)
{
    for (int i = threadIdx.x * 32; i < count; i += blockDim.x * 32)
        asm volatile("prefetch.global.L2 [%0];" :: "l"(image + i));
}

// 2^e for e from -149 to 127.
__device__ __forceinline__ float power_of_two(int e)
{
    return __int_as_float(e >= -126 ? (e + 127) << 23 : 1 << (e + 149));
}

// 2^e as a product of two, where one float would not hold it; nothing is lost until the result itself is subnormal.
__device__ __forceinline__ float2 scale_of(int e)
{
    e = max(-280, min(e, 254));
    return make_float2(power_of_two(e / 2), power_of_two(e - e / 2));
}

// Exponent of a number given as the bits of its magnitude: 2^exponent <= number < 2^(exponent + 1). 0 for zero.
__device__ __forceinline__ int exponent_of(unsigned magnitude)
{
    if (magnitude == 0) return 0;
    return magnitude >> 23 ? (int)(magnitude >> 23) - 127 : -118 - __clz(magnitude);
}

// The least number that halves hold as FP32 does, beside others of an exponent.
__device__ __forceinline__ float least_of(int exponent)
{
    return power_of_two(max(exponent - RANGE, -149));
}

// Whether an image, or its product with a map, is scaled by more than one float holds; or a map is not finite. Each of so
// many threads tells of its maps.
__device__ __forceinline__ bool beyond_floats(
    int image_exponent, const int* __restrict__ exponents, int maps, int thread, int threads)
{
    bool beyond = image_exponent < TOP - 127;
    for (int map = thread; map < maps; map += threads) {
        const int back = image_exponent + exponents[map] - 2 * TOP;
        beyond |= back < -126 || back > 127;
    }
    return beyond;
}

__device__ __forceinline__ unsigned magnitude_of(float value)
{
    return __float_as_uint(value) & 0x7fffffffu;
}

// Largest magnitude of a block's weights or pixels. Ends with a barrier.
__device__ __forceinline__ unsigned largest_of_block(unsigned mine, unsigned* largest_of_warp)
{
    mine = __reduce_max_sync(0xffffffffu, mine);
    if (threadIdx.x % 32 == 0) largest_of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    for (int i = 0; i < blockDim.x / 32; ++i) mine = max(mine, largest_of_warp[i]);
    return mine;
}

// Output i of an image, added up in FP32.
template <int K>
__device__ __forceinline__ float sum_of(
    const float* __restrict__ x, const float* __restrict__ w, int C, int H, int W, int i)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const float* input = x + i / W_out % H_out * W + i % W_out;
    const float* taps = w + (size_t)(i / (H_out * W_out)) * C * K * K;
    float sum = 0.0f;
    #pragma unroll 1
    for (int c = 0; c < C; ++c, input += H * W, taps += K * K)
        #pragma unroll
        for (int p = 0; p < K; ++p)
            #pragma unroll
            for (int q = 0; q < K; ++q) sum += input[p * W + q] * taps[p * K + q];
    return sum;
}
__device__ __forceinline__ float plain_sum(
    const float* __restrict__ x, const float* __restrict__ w, int C, int H, int W, int K, int i)
{
    return K == 5 ? sum_of<5>(x, w, C, H, W, i) : sum_of<7>(x, w, C, H, W, i);
}

// An image with numbers that halves cannot hold, in a list behind the number of such images: its exponent, or TOO_LARGE
// where it is not multiplied at all.
__device__ __forceinline__ void put_in_list(int* __restrict__ listed, int image, int exponent)
{
    ((int2*)listed)[1 + atomicAdd(listed, 1)] = make_int2(image, exponent);
}

// Adds up in FP32 what halves could not: of an image in the list, the outputs that a number too small for them is part of,
// or all. A block takes one such image after another.
extern "C" __global__ void __launch_bounds__(FP32_THREADS) sum_in_fp32(
    const float* __restrict__ x, const float* __restrict__ w, const int* __restrict__ listed, float* __restrict__ y,
    int C, int H, int W, int M, int K)
{
    extern __shared__ int found[];  // outputs of a map
    __shared__ int count;
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    bool* const small = (bool*)(found + H_out * W_out);  // pixels with such a number
    for (int i = blockIdx.x; i < listed[0]; i += gridDim.x) {
        const int2 entry = ((const int2*)listed)[1 + i];
        const bool all = entry.y == TOO_LARGE;
        const float* const input = x + (size_t)entry.x * C * H * W;
        const unsigned least = all ? 0 : __float_as_uint(least_of(entry.y));
        if (threadIdx.x == 0) count = 0;
        for (int pixel = threadIdx.x; pixel < H * W; pixel += blockDim.x) {
            bool any = all;
            for (int c = 0; c < C; ++c) {
                const unsigned magnitude = magnitude_of(input[c * H * W + pixel]);
                any |= magnitude != 0 && magnitude < least;
            }
            small[pixel] = any;
        }
        __syncthreads();
        for (int output = threadIdx.x; output < H_out * W_out; output += blockDim.x) {
            const bool* const corner = small + output / W_out * W + output % W_out;
            bool any = false;
            for (int p = 0; p < K; ++p)
                for (int q = 0; q < K; ++q) any |= corner[p * W + q];
            if (any) found[atomicAdd(&count, 1)] = output;
        }
        __syncthreads();
        for (int j = threadIdx.x; j < count * M; j += blockDim.x) {
            const int output = j / count * H_out * W_out + found[j % count];
            y[(size_t)entry.x * M * H_out * W_out + output] = plain_sum(input, w, C, H, W, K, output);
        }
        __syncthreads();
    }
}

// Splits the weights of one map a block, M padded, into the order in which lanes take them. parts (step, part, lane)
// holds a0 ... a3 for 16 rows. The first 16 maps fill two parts, high and low; the 8 that may follow share one, high
// halves in its first rows and low halves in its last. exponents (map): what the map's weights were scaled by.
// A row of taps is K*C halves, in fours: `full` steps of four fours; the `rest` fours of all rows follow in steps of
// their own.
extern "C" __global__ void split_later_weights(
    const float* __restrict__ w, unsigned* __restrict__ parts, int* __restrict__ exponents, int* __restrict__ listed,
    int C, int M, int K)
{
    __shared__ unsigned largest_of_warp[32];
    const int map = blockIdx.x;
    if (map == 0 && threadIdx.x == 0) listed[0] = 0;
    const int parts_of_step = gridDim.x / 8;
    const int row = (K * C + 3) / 4;
    const int full = row / 4;
    const int rest = row % 4;
    const int steps = K * full + (K * rest + 3) / 4;
    const float* source = w + (size_t)map * C * K * K;

    unsigned largest = 0;
    if (map < M)
        for (int i = threadIdx.x; i < C * K * K; i += blockDim.x) largest = max(largest, magnitude_of(source[i]));
    largest = largest_of_block(largest, largest_of_warp);
    const int exponent = exponent_of(largest);
    if (threadIdx.x == 0) exponents[map] = largest < INFINITE ? exponent : TOO_LARGE;
    const float2 scale = scale_of(TOP - exponent);

    for (int i = threadIdx.x; i < steps * 4; i += blockDim.x) {
        const int other = i - K * full * 4;
        const int p = other < 0 ? i / 4 / full : other / rest;
        const int four = other < 0 ? i / 4 % full * 4 + i % 4 : full * 4 + other % rest;
        uint2 halves[2];
        for (int h = 0; h < 2; ++h) {
            float values[2];
            for (int j = 0; j < 2; ++j) {
                const int place = four * 4 + h * 2 + j;
                const int q = place / C;
                const int c = place % C;
                const bool any = map < M && p < K && place < K * C;
                values[j] = any ? source[(c * K + p) * K + q] * scale.x * scale.y : 0.0f;
            }
            halves[h] = split(values[0], values[1]);
        }
        unsigned* const high = parts + ((i / 4 * parts_of_step + map / 16 * 2) * 32 + map % 8 * 4 + i % 4) * 4;
        unsigned* const low = map < 16 ? high + 32 * 4 : high + 1;
        const int rows = map < 16 ? map / 8 : 0;
        high[rows] = halves[0].x;
        high[rows + 2] = halves[1].x;
        low[rows] = halves[0].y;
        low[rows + 2] = halves[1].y;
    }
}

// Where a later layer's results go: y itself.
struct Outputs {
    float* __restrict__ y;
    int* __restrict__ listed;
    int M, outputs;
    __device__ void begin() const {}
    __device__ void put(int image, int map, int output, float value) const
    {
        y[((size_t)image * M + map) * outputs + output] = value;
    }
    __device__ void put(int image, int map, int output, float4 values) const
    {
        *(float4*)(y + ((size_t)image * M + map) * outputs + output) = values;
    }
    // Halves cannot hold an image; where the exponent is TOO_LARGE, nothing else is put for it.
    __device__ void cannot_hold(int exponent, const float* x, int image, int C, int H, int W, int K) const
    {
        if (threadIdx.x == 0) put_in_list(listed, image, exponent);
    }
    __device__ void end(int image) const {}
};

// C > 1. A block takes one image after another; a warp computes TILES * 8 outputs in 16 maps, or 24 where MORE, at a
// time. Shared memory holds the weights' parts, and the image as fours: 4 halves of the run of pixels * channels, high
// and then low, 16 bytes. Where a pixel is no whole number of fours, odd pixels have a copy of their own, one pixel on.
// VECTOR: a lane's outputs in two tiles are neighbours and stored together.
// What took as long or longer: the next image in registers or, by bar.sync, several images in one block (more spills
// than waits saved); the next step's operands fetched ahead; more tiles and fewer warps; each step's sum added outside.
template <int C, int K, bool MORE, int TILES, int TOGETHER, bool VECTOR, int ROUNDS, class To>
__device__ __forceinline__ void later_layer(
    const float* __restrict__ x, const uint4* __restrict__ parts, const int* __restrict__ exponents, const To to,
    int N, int H, int W, int M)
{
    constexpr int PARTS = MORE ? 3 : 2;
    constexpr int ROW = (K * C + 3) / 4;
    constexpr int FULL = ROW / 4;
    constexpr int REST = ROW % 4;
    constexpr int STEPS = K * FULL + (K * REST + 3) / 4;
    constexpr bool TWO_COPIES = C == 6;
    static_assert(C % 4 == 0 || TWO_COPIES, "how a pixel is split into fours");
    constexpr int PIXELS_EACH = TWO_COPIES ? 2 : 1;
    constexpr int FOURS = PIXELS_EACH * C / 4;  // of one pixel, or of a pair
    constexpr int CHANNELS = TWO_COPIES ? C : 4;  // that a thread splits at a time
    static_assert(C / CHANNELS <= 3 && TILES % TOGETHER == 0, "");

    extern __shared__ uint4 shared[];
    __shared__ unsigned largest_of_warp[32];
    uint4* const taps = shared;
    uint4* const pixels = shared + STEPS * PARTS * 32;

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int outputs = H_out * W_out;
    // C = 4: rows an odd number of half lines of 128 bytes apart, so that lanes read several without bank conflicts.
    const int pitch = C == 4 ? (W + 3) / 8 * 8 + 4 : W;
    // An odd number of half lines of 128 bytes, so that the two copies are read without bank conflicts.
    const int copy = ((H * pitch / PIXELS_EACH + 1) * FOURS + 3) / 8 * 8 + 4;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const float per_row = 1.0f / W_out;
    const float per_line = 1.0f / W;

    for (int i = threadIdx.x; i < STEPS * PARTS * 32; i += blockDim.x) taps[i] = parts[i];
    // What a row of taps reads beyond the last pixel meets weights of zero, but must be a number.
    for (int i = threadIdx.x; i < PIXELS_EACH * copy; i += blockDim.x) pixels[i] = make_uint4(0, 0, 0, 0);
    to.begin();

    const int places = H * W / PIXELS_EACH;
    float values[ROUNDS][CHANNELS][PIXELS_EACH];
    int thread;
    auto place_of = [&](int r, int& channels) {
        const int i = thread + r * blockDim.x;
        channels = C == CHANNELS ? i >= places : (i >= places) + (i >= 2 * places) + (i >= 3 * places);
        return i - channels * places;
    };
    auto load = [&](int image) {
        // Hides from the compiler that places are the same for every image: it would keep them all, in local memory.
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            int channels;
            const int place = place_of(r, channels);
            const float* source = x + ((size_t)image * C + channels * CHANNELS) * H * W + place * PIXELS_EACH;
            #pragma unroll
            for (int c = 0; c < CHANNELS; ++c) {
                const bool any = channels < C / CHANNELS;
                if (PIXELS_EACH == 2) {
                    const float2 pair = any ? *(const float2*)(source + c * H * W) : make_float2(0.0f, 0.0f);
                    values[r][c][0] = pair.x;
                    values[r][c][PIXELS_EACH - 1] = pair.y;
                } else {
                    values[r][c][0] = any ? source[c * H * W] : 0.0f;
                }
            }
        }
    };

    for (int image = blockIdx.x; image < N; image += gridDim.x) {
        load(image);
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        unsigned largest[ROUNDS];
        unsigned largest_of_all = 0;
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            largest[r] = 0;
            #pragma unroll
            for (int c = 0; c < CHANNELS; ++c)
                #pragma unroll
                for (int i = 0; i < PIXELS_EACH; ++i) largest[r] = max(largest[r], magnitude_of(values[r][c][i]));
            largest_of_all = max(largest_of_all, largest[r]);
        }
        // Its barrier also keeps the image before from being overwritten while it is read.
        largest_of_all = largest_of_block(largest_of_all, largest_of_warp);
        const int exponent = exponent_of(largest_of_all);
        const float scale = power_of_two(min(TOP - exponent, 127));
        const float least = least_of(exponent);
        bool beyond = largest_of_all >= INFINITE || beyond_floats(exponent, exponents, M, threadIdx.x, blockDim.x);
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            int channels;
            const int place = place_of(r, channels);
            if (channels >= C / CHANNELS) break;
            beyond |= largest[r] != 0 && __uint_as_float(largest[r]) < least;
            uint2 halves[PIXELS_EACH][CHANNELS / 2];
            #pragma unroll
            for (int i = 0; i < PIXELS_EACH; ++i)
                #pragma unroll
                for (int c = 0; c < CHANNELS; c += 2)
                    halves[i][c / 2] = split(values[r][c][i] * scale, values[r][c + 1][i] * scale);
            const auto four = [](uint2 left, uint2 right) { return make_uint4(left.x, right.x, left.y, right.y); };
            if (!TWO_COPIES) {
                const int padded = pitch > W ? place + (int)((place + 0.5f) * per_line) * (pitch - W) : place;
                pixels[padded * FOURS + channels] = four(halves[0][0], halves[0][1]);
            } else {
                const uint2 (&even)[CHANNELS / 2] = halves[0];
                const uint2 (&odd)[CHANNELS / 2] = halves[PIXELS_EACH - 1];
                uint4* pair = pixels + place * FOURS;
                pair[0] = four(even[0], even[1]);
                pair[1] = four(even[CHANNELS / 2 - 1], odd[0]);
                pair[2] = four(odd[1], odd[CHANNELS / 2 - 1]);
                pair += copy;
                pair[0] = four(odd[0], odd[1]);
                ((unsigned*)(pair + 1))[0] = odd[CHANNELS / 2 - 1].x;
                ((unsigned*)(pair + 1))[2] = odd[CHANNELS / 2 - 1].y;
                if (place > 0) {
                    ((unsigned*)(pair - 2))[1] = even[0].x;
                    ((unsigned*)(pair - 2))[3] = even[0].y;
                    pair[-1] = four(even[1], even[CHANNELS / 2 - 1]);
                }
            }
        }
        if (image + gridDim.x < N) prefetch(x + (size_t)(image + gridDim.x) * C * H * W, C * H * W);
        // The image is complete before anyone reads it.
        if (__syncthreads_or(beyond)) {
            const bool too_large =
                largest_of_all >= INFINITE || __syncthreads_or(beyond_floats(exponent, exponents, M, threadIdx.x, blockDim.x));
            to.cannot_hold(too_large ? TOO_LARGE : exponent, x, image, C, H, W, K);
            if (too_large) {
                to.end(image);
                continue;
            }
        }

        for (int group = threadIdx.x / 32; group * TILES * 8 < outputs; group += blockDim.x / 32) {
            // The output in column 2 * i + e of a tile.
            auto output_of = [&](int tile, int i, int e) {
                return VECTOR ? (group * TILES + tile / 2 * 2) * 8 + 4 * i + tile % 2 * 2 + e
                              : (group * TILES + tile) * 8 + i + 4 * e;
            };
            const char* input[TILES];
            #pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                const int output = min(output_of(tile, g / 2, g % 2), outputs - 1);
                const int row = (output + 0.5f) * per_row;
                const int pixel = row * pitch + output - row * W_out;
                const int place = TWO_COPIES ? pixel % 2 * copy + pixel / 2 * FOURS : pixel * FOURS;
                input[tile] = (const char*)(pixels + place);
            }
            float sums[TILES][4] = {};
            float more_sums[MORE ? TILES : 1][2] = {};
            float products[TILES][4], more[MORE ? TILES : 1][4];
            const uint4* weights = taps + lane;
            // Tensor cores cut off what does not fit, so the sum of a few steps is added to the others outside.
            const auto begin = [&] {
                #pragma unroll
                for (int tile = 0; tile < TILES; ++tile)
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) products[tile][i] = more[MORE ? tile : 0][i] = 0.0f;
            };
            const auto end = [&] {
                #pragma unroll
                for (int tile = 0; tile < TILES; ++tile) {
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) sums[tile][i] += products[tile][i];
                    if (MORE)
                        #pragma unroll
                        for (int e = 0; e < 2; ++e)
                            more_sums[MORE ? tile : 0][e] += more[MORE ? tile : 0][e] + more[MORE ? tile : 0][e + 2];
                }
            };
            const auto multiply = [&](int offset) {
                const uint4 high = weights[0];
                const uint4 low = weights[32];
                const uint4 both = MORE ? weights[64] : make_uint4(0, 0, 0, 0);
                weights += PARTS * 32;
                // Some tiles at a time, so that one's products fill the others' waits.
                #pragma unroll
                for (int first = 0; first < TILES; first += TOGETHER) {
                    uint4 values[TOGETHER];
                    #pragma unroll
                    for (int i = 0; i < TOGETHER; ++i) values[i] = *(const uint4*)(input[first + i] + offset);
                    #pragma unroll
                    for (int i = 0; i < TOGETHER; ++i)
                        multiply_add(products[first + i], high, values[i].z, values[i].w);
                    #pragma unroll
                    for (int i = 0; i < TOGETHER; ++i)
                        if (MORE) multiply_add(more[MORE ? first + i : 0], both, values[i].z, values[i].w);
                    #pragma unroll
                    for (int i = 0; i < TOGETHER; ++i)
                        multiply_add(products[first + i], low, values[i].x, values[i].y);
                    #pragma unroll
                    for (int i = 0; i < TOGETHER; ++i)
                        if (MORE) multiply_add(more[MORE ? first + i : 0], both, values[i].x, values[i].y);
                    #pragma unroll
                    for (int i = 0; i < TOGETHER; ++i)
                        multiply_add(products[first + i], high, values[i].x, values[i].y);
                }
            };
            const int row_bytes = pitch / PIXELS_EACH * FOURS * 16;
            const auto offset_of_rest = [&](int i) {
                const int four = min(i + t, K * REST - 1);  // what follows the last four meets weights of zero
                return four / max(REST, 1) * row_bytes + (FULL * 4 + four % max(REST, 1)) * 16;
            };
            if (FULL > 1) {
                #pragma unroll 1
                for (int p = 0; p < K; ++p) {
                    begin();
                    #pragma unroll
                    for (int s = 0; s < FULL; ++s) multiply(p * row_bytes + (s * 4 + t) * 16);
                    end();
                }
                if (REST > 0) {
                    begin();
                    #pragma unroll
                    for (int i = 0; i < K * REST; i += 4) multiply(offset_of_rest(i));
                    end();
                }
            } else {
                const auto offset_of = [&](int step) {
                    return step < K ? step * row_bytes + t * 16 : offset_of_rest((step - K) * 4);
                };
                #pragma unroll 1
                for (int step = 0; step < STEPS / 2 * 2; step += 2) {
                    begin();
                    multiply(offset_of(step));
                    multiply(offset_of(step + 1));
                    end();
                }
                if (STEPS % 2) {
                    begin();
                    multiply(offset_of(STEPS - 1));
                    end();
                }
            }

            #pragma unroll
            for (int rows = 0; rows < PARTS; ++rows) {
                const int map = rows * 8 + g;
                if (map >= M) continue;
                const float back = power_of_two(exponent + exponents[map] - 2 * TOP);
                #pragma unroll
                for (int tile = 0; tile < TILES; ++tile) {
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        float& sum = rows < 2 ? sums[tile][rows * 2 + e] : more_sums[MORE ? tile : 0][e];
                        sum *= back;
                        if (!VECTOR && output_of(tile, t, e) < outputs) to.put(image, map, output_of(tile, t, e), sum);
                    }
                    if (VECTOR && tile % 2 && output_of(tile, t, 0) < outputs) {
                        const float* left = rows < 2 ? &sums[tile - 1][rows * 2] : &more_sums[MORE ? tile - 1 : 0][0];
                        const float* right = rows < 2 ? &sums[tile][rows * 2] : &more_sums[MORE ? tile : 0][0];
                        to.put(image, map, output_of(tile - 1, t, 0),
                               make_float4(left[0], left[1], right[0], right[1]));
                    }
                }
            }
        }
        to.end(image);
    }
}

extern "C" __global__ void __launch_bounds__(LATER_12_THREADS, LATER_12_BLOCKS) later_12_7_24(
    const float* __restrict__ x, const uint4* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N, int H, int W, int M)
{
    later_layer<12, 7, true, LATER_12_TILES, LATER_12_TOGETHER, false,
                (1089 * 3 + LATER_12_THREADS - 1) / LATER_12_THREADS>(
        x, parts, exponents, Outputs{y, listed, M, (H - 6) * (W - 6)}, N, H, W, M);
}

extern "C" __global__ void __launch_bounds__(LATER_6_THREADS, LATER_6_BLOCKS) later_6_5_16(
    const float* __restrict__ x, const uint4* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N, int H, int W, int M)
{
    later_layer<6, 5, false, LATER_6_TILES, LATER_6_TOGETHER, true, (450 + LATER_6_THREADS - 1) / LATER_6_THREADS>(
        x, parts, exponents, Outputs{y, listed, M, (H - 4) * (W - 4)}, N, H, W, M);
}

extern "C" __global__ void __launch_bounds__(LATER_4_THREADS, LATER_4_BLOCKS) later_4_7_16(
    const float* __restrict__ x, const uint4* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N, int H, int W, int M)
{
    later_layer<4, 7, false, LATER_4_TILES, LATER_4_TOGETHER, true, (1600 + LATER_4_THREADS - 1) / LATER_4_THREADS>(
        x, parts, exponents, Outputs{y, listed, M, (H - 6) * (W - 6)}, N, H, W, M);
}

// The same for C = 1, one map a block. A column of the product is a map's output, shifted by 0 ... 8 - K from the
// leftmost that 8 inputs serve. parts (column / 8, row of taps, lane) holds taps 2 * (lane % 4) and the next of column
// lane / 4, high and low. Columns beyond M * (9 - K) are zero.
extern "C" __global__ void split_first_weights(
    const float* __restrict__ w, uint2* __restrict__ parts, int* __restrict__ exponents, int* __restrict__ listed,
    int M, int K)
{
    __shared__ unsigned largest_of_warp[32];
    const int map = blockIdx.x;
    if (map == 0 && threadIdx.x == 0) listed[0] = 0;
    const int shifts = 9 - K;
    const float* taps = w + (size_t)map * K * K;

    unsigned largest = 0;
    if (map < M)
        for (int i = threadIdx.x; i < K * K; i += blockDim.x) largest = max(largest, magnitude_of(taps[i]));
    largest = largest_of_block(largest, largest_of_warp);
    const int exponent = exponent_of(largest);
    if (threadIdx.x == 0) exponents[map] = largest < INFINITE ? exponent : TOO_LARGE;
    const float2 scale = scale_of(TOP - exponent);

    for (int i = threadIdx.x; i < shifts * K * 4; i += blockDim.x) {
        const int shift = i / (4 * K);
        const int p = i / 4 % K;
        const int column = map * shifts + shift;
        float values[2];
        for (int h = 0; h < 2; ++h) {
            const int q = i % 4 * 2 + h - shift;
            values[h] = map < M && q >= 0 && q < K ? taps[p * K + q] * scale.x * scale.y : 0.0f;
        }
        parts[(column / 8 * K + p) * 32 + column % 8 * 4 + i % 4] = split(values[0], values[1]);
    }
}

// C = 1. A block takes one image after another. A warp multiplies TILES * 16 runs of 8 inputs, each of which serves
// SHIFTS neighbouring outputs, by all columns of weights. Shared memory holds the image as pairs of pixels, high and
// low halves, 8 bytes. NT tiles of 8 columns stay in registers; where NT is 0 any number comes from shared memory.
template <int K, int W, int NT, int TILES, int ROUNDS>
__device__ __forceinline__ void first_layer(
    const float* __restrict__ x, const uint2* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N, int H, int M)
{
    constexpr int SHIFTS = 9 - K;
    constexpr int MAPS = 8 / SHIFTS;  // a tile of columns
    constexpr int W_OUT = W - K + 1;
    constexpr int ACROSS = W_OUT / SHIFTS;  // runs in a row
    static_assert(W_OUT % SHIFTS == 0 && W % 2 == 0, "runs end at the ends of rows");

    extern __shared__ unsigned highs[];
    __shared__ unsigned largest_of_warp[32];
    unsigned* const lows = highs + H * W / 2;
    const int H_out = H - K + 1;
    const int outputs = H_out * W_OUT;
    const int runs = H_out * ACROSS;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const int column_tiles = NT > 0 ? NT : (M * SHIFTS + 7) / 8;
    uint2* const columns = (uint2*)(lows + H * W / 2);

    uint2 kept[NT > 0 ? NT : 1][K];
    int scales[NT > 0 ? NT : 1];  // exponents of the lane's maps, as bits of a float
    if (NT > 0) {
        #pragma unroll
        for (int n = 0; n < NT; ++n) {
            scales[n] = exponents[n * MAPS + t * MAPS / 4] << 23;
            #pragma unroll
            for (int p = 0; p < K; ++p) kept[n][p] = parts[(n * K + p) * 32 + lane];
        }
    } else {
        for (int i = threadIdx.x; i < column_tiles * K * 32; i += blockDim.x) columns[i] = parts[i];
    }

    // The next image waits in registers.
    float2 values[ROUNDS];
    auto load = [&](int image) {
        const float2* source = (const float2*)(x + (size_t)image * H * W);
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int pair = threadIdx.x + r * blockDim.x;
            values[r] = pair < H * W / 2 ? source[pair] : make_float2(0.0f, 0.0f);
        }
    };
    load(blockIdx.x);

    for (int image = blockIdx.x; image < N; image += gridDim.x) {
        unsigned largest = 0;
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r)
            largest = max(largest, max(magnitude_of(values[r].x), magnitude_of(values[r].y)));
        // Its barrier also keeps the image before from being overwritten while it is read.
        largest = largest_of_block(largest, largest_of_warp);
        const int exponent = exponent_of(largest);
        const float scale = power_of_two(min(TOP - exponent, 127));
        const float least = least_of(exponent);
        const bool too_large =
            largest >= INFINITE || __any_sync(0xffffffffu, beyond_floats(exponent, exponents, M, lane, 32));
        bool beyond = too_large;
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int pair = threadIdx.x + r * blockDim.x;
            if (pair >= H * W / 2) break;
            const unsigned larger = max(magnitude_of(values[r].x), magnitude_of(values[r].y));
            beyond |= larger != 0 && __uint_as_float(larger) < least;
            const uint2 halves = split(values[r].x * scale, values[r].y * scale);
            highs[pair] = halves.x;
            lows[pair] = halves.y;
        }
        if (image + gridDim.x < N) load(image + gridDim.x);
        // The image is complete before anyone reads it.
        if (__syncthreads_or(beyond) && threadIdx.x == 0) put_in_list(listed, image, too_large ? TOO_LARGE : exponent);
        if (too_large) continue;

        for (int group = threadIdx.x / 32; group * TILES * 16 < runs; group += blockDim.x / 32) {
            // Two shifts: rows g and g + 8 of a fragment are neighbouring runs, so that a lane's four outputs are one
            // vector. Four: a lane holds half of run g, and of run g + 8.
            auto run_of = [&](int m, int h) {
                return (group * TILES + m) * 16 + (SHIFTS == 2 ? 2 * g + h : 8 * h + g);
            };
            // a0 ... a3 of two rows of taps; where K is odd, a0 and a1 of the last.
            uint4 high[TILES][(K + 1) / 2], low[TILES][(K + 1) / 2];
            #pragma unroll
            for (int m = 0; m < TILES; ++m) {
                int place[2];
                #pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int run = min(run_of(m, h), runs - 1);
                    place[h] = run / ACROSS * (W / 2) + run % ACROSS * (SHIFTS / 2) + t;
                }
                #pragma unroll
                for (int p = 0; p < K; p += 2) {
                    const int next = p + 1 < K ? (p + 1) * (W / 2) : 0;
                    const unsigned* pair = highs + p * (W / 2);
                    high[m][p / 2] =
                        make_uint4(pair[place[0]], pair[place[1]], highs[next + place[0]], highs[next + place[1]]);
                    pair = lows + p * (W / 2);
                    low[m][p / 2] =
                        make_uint4(pair[place[0]], pair[place[1]], lows[next + place[0]], lows[next + place[1]]);
                }
            }
            float* const result = y + ((size_t)image * M + t * MAPS / 4) * outputs + (SHIFTS == 2 ? 0 : t % 2 * 2);
            // As many tiles of columns at a time as registers hold, so that one's products fill the others' waits.
            constexpr int TOGETHER = NT > 0 ? NT : 1;
            #pragma unroll 1
            for (int first = 0; first < column_tiles; first += TOGETHER) {
                uint2 b[TOGETHER][K];
                #pragma unroll
                for (int n = 0; n < TOGETHER; ++n)
                    #pragma unroll
                    for (int p = 0; p < K; ++p) b[n][p] = NT > 0 ? kept[n][p] : columns[(first * K + p) * 32 + lane];
                // Small products apart from large ones, since tensor cores cut off what does not fit.
                float large[TILES][TOGETHER][4] = {}, small[TILES][TOGETHER][4] = {};
                #pragma unroll
                for (int p = 0; p < K; p += 2)
                    #pragma unroll
                    for (int part = 0; part < 3; ++part)
                        #pragma unroll
                        for (int m = 0; m < TILES; ++m)
                            #pragma unroll
                            for (int n = 0; n < TOGETHER; ++n) {
                                float (&sums)[4] = part == 1 ? large[m][n] : small[m][n];
                                const uint4 a = part == 2 ? low[m][p / 2] : high[m][p / 2];
                                const unsigned b0 = part == 0 ? b[n][p].y : b[n][p].x;
                                if (p + 1 < K)
                                    multiply_add(sums, a, b0, part == 0 ? b[n][p + 1].y : b[n][p + 1].x);
                                else
                                    multiply_add(sums, a.x, a.y, b0);
                            }
                #pragma unroll
                for (int n = 0; n < TOGETHER; ++n) {
                    const int map = (first + n) * MAPS + t * MAPS / 4;
                    const int scale = NT > 0 ? scales[n] : exponents[map] << 23;
                    const float back = __int_as_float(scale + ((exponent - 2 * TOP + 127) << 23));
                    #pragma unroll
                    for (int m = 0; m < TILES; ++m) {
                        float sums[4];
                        #pragma unroll
                        for (int i = 0; i < 4; ++i) sums[i] = (large[m][n][i] + small[m][n][i]) * back;
                        if (map >= M) continue;
                        float* const place = result + (first + n) * MAPS * outputs;
                        if (SHIFTS == 2) {
                            if (run_of(m, 0) < runs)
                                *(float4*)(place + run_of(m, 0) * 2) = make_float4(sums[0], sums[1], sums[2], sums[3]);
                        } else {
                            #pragma unroll
                            for (int h = 0; h < 2; ++h)
                                if (run_of(m, h) < runs)
                                    *(float2*)(place + run_of(m, h) * 4) = make_float2(sums[2 * h], sums[2 * h + 1]);
                        }
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(FIRST_28_THREADS, FIRST_28_BLOCKS) first_28_5(
    const float* __restrict__ x, const uint2* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N, int H, int M)
{
    first_layer<5, 28, 0, FIRST_28_TILES, (28 * 28 / 2 + FIRST_28_THREADS - 1) / FIRST_28_THREADS>(
        x, parts, exponents, listed, y, N, H, M);
}

extern "C" __global__ void __launch_bounds__(FIRST_5_THREADS, FIRST_5_BLOCKS) first_48_5(
    const float* __restrict__ x, const uint2* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N, int H, int M)
{
    first_layer<5, 48, 3, 1, (48 * 48 / 2 + FIRST_5_THREADS - 1) / FIRST_5_THREADS>(
        x, parts, exponents, listed, y, N, H, M);
}

extern "C" __global__ void __launch_bounds__(FIRST_5_THREADS, FIRST_5_BLOCKS) first_64_5(
    const float* __restrict__ x, const uint2* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N, int H, int M)
{
    first_layer<5, 64, 3, 1, (64 * 64 / 2 + FIRST_5_THREADS - 1) / FIRST_5_THREADS>(
        x, parts, exponents, listed, y, N, H, M);
}

extern "C" __global__ void __launch_bounds__(FIRST_72_THREADS, FIRST_72_BLOCKS) first_72_7(
    const float* __restrict__ x, const uint2* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N, int H, int M)
{
    first_layer<7, 72, 3, 1, (72 * 72 / 2 + FIRST_72_THREADS - 1) / FIRST_72_THREADS>(
        x, parts, exponents, listed, y, N, H, M);
}

extern "C" __global__ void __launch_bounds__(FIRST_86_THREADS, FIRST_86_BLOCKS) first_86_7(
    const float* __restrict__ x, const uint2* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N, int H, int M)
{
    first_layer<7, 86, 1, FIRST_86_TILES, (86 * 86 / 2 + FIRST_86_THREADS - 1) / FIRST_86_THREADS>(
        x, parts, exponents, listed, y, N, H, M);
}


// Every other layer.
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
