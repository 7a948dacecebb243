/*
title:     Products from halves, each pixel fetched once
idea:      Pixels that were fetched from shared memory serve every row of taps that falls on them, since who fetches
           them computes several rows of outputs. Later layers use Hopper's wgmma, which multiplies 64 columns of
           outputs by two rows of taps in all maps, takes weights from shared memory itself, and finds pixels in the
           registers that they were fetched to. One warpgroup does nothing but split images, into two places in turn;
           the others multiply a tile after another and wait for that one alone, so that while one stores another
           multiplies. An image's results leave shared memory in one copy, where there is room for them. A first
           layer of 4 maps stays with mma.sync.
expect:    Tensor cores reach the rate that mma.sync leaves out. At 10,000 images 12x33x33 falls from 1.65 to 1.1 ms;
           later layers of 16 maps by a fifth to a third; the first layer, where reading pixels sets the pace, by 5 %
           to 20 %. Errors stay those of FP32 sums.
check:     smsp__inst_executed.sum falls, a wgmma being many mma.sync
builds_on: split_fp16
split:     {precision: fp16, products: 3}
kernel:    later_12_7_24
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
constants: {LATER_12_ROWS: 4, LATER_12_GROUPS: 2, LATER_12_BLOCKS: 1,
            LATER_6_30_ROWS: 4, LATER_6_30_GROUPS: 3, LATER_6_30_BLOCKS: 1,
            LATER_6_22_ROWS: 6, LATER_6_22_GROUPS: 2, LATER_6_22_BLOCKS: 1,
            LATER_4_ROWS: 4, LATER_4_GROUPS: 3, LATER_4_BLOCKS: 1,
            FIRST_86_ROWS: 4, FIRST_86_THREADS: 256, FIRST_86_BLOCKS: 2, FP32_THREADS: 512}
limits:    {layers: [12x33x33 * 24@7x7, 6x30x30 * 16@5x5, 6x22x22 * 16@5x5, 4x40x40 * 16@7x7, 1x86x86 * 4@7x7]}
least_arch: sm_90a
*/

#include <cuda_fp16.h>

// Numbers are scaled below 2^15, so that no high half overflows. A low half is then right to 2^-25, which is FP32's
// own precision down to 2^-RANGE of the largest number.
#define TOP 14
#define RANGE 17

#define INFINITE 0x7f800000u  // bits of FP32's infinity; those of NaN are larger
#define TOO_LARGE 1024        // an exponent that no product with an image brings back into FP32's range

// d (64 outputs x WIDTH columns) = a (64 outputs x 16 taps) * b (16 taps x WIDTH columns), and what d was where ADD, by
// a warpgroup. Warp w of the four has rows 16 * w and on; a lane of it, with g = lane / 4 and t = lane % 4:
//   a[0]  row g, taps 2 * t and the next;  a[1]  row g + 8;  a[2]  row g, taps + 8;  a[3]  row g + 8, taps + 8
//   d[4 * i]  row g, column 8 * i + 2 * t;  [+ 1]  the next column;  [+ 2]  row g + 8;  [+ 3]  row g + 8, next column
// b is a descriptor of shared memory. Registers belong to the instruction until its group has been waited for.
template <int WIDTH, bool ADD>
__device__ __forceinline__ void multiply_add(float* d, const unsigned (&a)[4], unsigned long long b)
{
    static_assert(WIDTH == 32 || WIDTH == 48, "a product of two rows of outputs in 16 or 24 maps");
    if constexpr (WIDTH == 32)
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
                     "{%16, %17, %18, %19}, %20, %21, 1, 1, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));
    if constexpr (WIDTH == 48)
        asm volatile("wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
                     " %16, %17, %18, %19, %20, %21, %22, %23}, "
                     "{%24, %25, %26, %27}, %28, %29, 1, 1, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));
}

// Registers written by other instructions may be read by those that follow.
__device__ __forceinline__ void begin_group() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All groups but the last LEFT have ended.
template <int LEFT> __device__ __forceinline__ void wait_for_groups()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory");
}

__device__ __forceinline__ unsigned address_in_shared(const void* place)
{
    return (unsigned)__cvta_generic_to_shared(place);
}

// Two scaled numbers as two pairs of halves.
__device__ __forceinline__ uint2 split(float first, float second)
{
    const __half2 high = __floats2half2_rn(first, second);
    const float2 kept = __half22float2(high);
    const __half2 low = __floats2half2_rn(first - kept.x, second - kept.y);
    return make_uint2(*(const unsigned*)&high, *(const unsigned*)&low);
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

// Whether an image, or its product with a map, is scaled by more than one float holds; or a map is not finite. The same
// for all warps of a block, who come here whole.
__device__ __forceinline__ bool beyond_floats(int image_exponent, const int* __restrict__ exponents, int maps)
{
    bool beyond = image_exponent < TOP - 127;
    for (int map = threadIdx.x % 32; map < maps; map += 32) {
        const int back = image_exponent + exponents[map] - 2 * TOP;
        beyond |= back < -126 || back > 127;
    }
    return __any_sync(0xffffffffu, beyond);
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

// Splits the weights of one map a block into the order in which wgmma takes them: 8 maps x 8 taps are 128 bytes,
// the next 8 taps lie behind them, then the next 8 maps, then those of the row of taps above, then the next 16 taps of
// a row; a row of zeros before the first and behind the last, and low halves behind all high ones. A row of taps is
// K * C halves, a pixel's channels together, and zeros. Where a pixel is whole pairs of words of two channels, words 2 * t
// and the next of the eight of 16 taps stand at t and t + 4, where a lane wants them that fetches both at once.
// exponents (map): what the map's weights were scaled by.
extern "C" __global__ void split_later_weights(
    const float* __restrict__ w, __half* __restrict__ parts, int* __restrict__ exponents, int* __restrict__ listed,
    int C, int M, int K)
{
    __shared__ unsigned largest_of_warp[32];
    const int map = blockIdx.x;
    if (map == 0 && threadIdx.x == 0) listed[0] = 0;
    const int count = C * K * K;
    const float* source = w + (size_t)map * count;

    unsigned largest = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) largest = max(largest, magnitude_of(source[i]));
    largest = largest_of_block(largest, largest_of_warp);
    const int exponent = exponent_of(largest);
    if (threadIdx.x == 0) exponents[map] = largest < INFINITE ? exponent : TOO_LARGE;
    const float2 scale = scale_of(TOP - exponent);

    const int rows = (K * C + 15) / 16 * (K + 1) + 1;
    for (int i = threadIdx.x; i < rows * 16; i += blockDim.x) {
        const int p = K - i / 16 % (K + 1);
        const int word = i % 16 / 2;
        const int place = i / 16 / (K + 1) * 16 + (C % 4 == 0 ? word % 4 * 2 + word / 4 : word) * 2 + i % 2;
        const int q = place / C;
        const int c = place % C;
        const float value = p < K && q < K ? source[(c * K + p) * K + q] * scale.x * scale.y : 0.0f;
        const uint2 halves = split(value, 0.0f);
        __half* const high = parts + ((i / 16 * M / 8 + map / 8) * 2 + i % 16 / 8) * 64 + map % 8 * 8 + i % 8;
        high[0] = __ushort_as_half(halves.x);
        high[rows * 16 * M] = __ushort_as_half(halves.y);
    }
}

// A layer and how it is dealt: bands of ROWS_ rows of outputs; a tile is 64 columns of all bands, each of them ROWS_
// outputs in every map. GROUPS_ warpgroups multiply a tile after another, and one more splits the images for them.
template <int C_, int H_, int K_, int M_, int ROWS_, int GROUPS_>
struct Layer {
    static constexpr int C = C_, H = H_, W = H_, K = K_, M = M_, ROWS = ROWS_, GROUPS = GROUPS_;
    static constexpr int H_OUT = H - K + 1, W_OUT = W - K + 1;
    static constexpr int THREADS = 128 * (GROUPS + 1);
    static constexpr int BANDS = (H_OUT + ROWS - 1) / ROWS;
    static constexpr int COLUMNS = BANDS * W_OUT;
    static constexpr int TILES = (COLUMNS + 63) / 64;
    static constexpr int STEPS = (K * C + 15) / 16;     // of a row of taps
    static constexpr int FETCHED = ROWS + K - 1;        // rows of pixels of a band
    static constexpr int WORDS = C / 2;                 // of a pixel
    static constexpr bool PAIRED = WORDS % 2 == 0;      // high halves of two words, then their low ones; else of one
    static constexpr int EACH = PAIRED ? 4 : 2;         // channels of a pixel that a thread splits at a time
    static constexpr int ROUNDS = (H * W + 127) / 128;  // of the pixels that a warpgroup splits at a time
    // As many pixels follow a band's rows as make the banks of the next band's first column those of a column more.
    static constexpr int PERIOD = PAIRED ? 8 : 16;
    static constexpr int SKEW = ((W_OUT - ROWS * W) % PERIOD + PERIOD) % PERIOD;
    static constexpr int BAND = (ROWS * W + SKEW) * 2 * WORDS;
    // Words of an image, up to the end of the last row of taps and its zeros.
    static constexpr int LAST = BANDS * ROWS + K - 2;   // row of pixels
    static constexpr int PLANE = ((LAST * W + LAST / ROWS * SKEW + W_OUT - 1) * WORDS + STEPS * 8 + 3) / 4 * 8;
    static constexpr int TAPS = 2 * (STEPS * (K + 1) + 1) * M * 32;  // bytes of the weights, and of zeros between them
    static constexpr int IMAGE = C * H * W;
    static constexpr int RESULT = M * H_OUT * W_OUT;    // of an image
    // Results leave by way of shared memory, an image's at once, where they have room there beside the images.
    static constexpr bool GATHERED = RESULT % 4 == 0 && TAPS + 2 * (PLANE + RESULT) * 4 <= 230000;
    static constexpr int PLACE = PLANE + (GATHERED ? RESULT : 0);  // words
    static_assert(C % 2 == 0 && M % 8 == 0, "words of two channels, maps in eights");
    static_assert(ROWS % 2 == 0 && LAST >= H - 1, "rows of outputs in pairs, and every row of the image has its place");
};

// Where a band's row of pixels is, in words.
template <class L> __device__ constexpr int row_of(int row)
{
    return (row * L::W + row / L::ROWS * L::SKEW) * 2 * L::WORDS;
}

template <class L> struct Fragments {  // of three steps in turn
    unsigned high[3][4], low[3][4];
};

// Fetch the pixels of a step: 16 taps for two rows of the product.
template <class L, int STEP>
__device__ __forceinline__ void fetch(Fragments<L>& fragments, const unsigned* first, const unsigned* second)
{
    constexpr int place = row_of<L>(STEP / L::STEPS) + STEP % L::STEPS * 16;
    unsigned (&high)[4] = fragments.high[STEP % 3];
    unsigned (&low)[4] = fragments.low[STEP % 3];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned* source = (i ? second : first) + place;
        if constexpr (L::PAIRED) {
            const uint4 words = *(const uint4*)source;
            high[i] = words.x, high[i + 2] = words.y, low[i] = words.z, low[i + 2] = words.w;
        } else {
            const uint2 front = *(const uint2*)source, back = *(const uint2*)(source + 8);
            high[i] = front.x, high[i + 2] = back.x, low[i] = front.y, low[i + 2] = back.y;
        }
    }
}

// Sums of a lane: of a pair of rows of outputs side by side, in all maps. Small products apart from large ones, since
// tensor cores cut off what does not fit.
template <class L> struct Sums {
    float large[L::ROWS / 2][L::M], small[L::ROWS / 2][L::M];
};

// The products of a step for a pair of rows of outputs: the rows of taps that a row of pixels meets there, if any. The
// sums of a pair stay the registers of one product: ptxas makes products wait for each other that share some of theirs.
template <class L, int STEP, int PAIR>
__device__ __forceinline__ void multiply_pair(Sums<L>& sums, Fragments<L>& fragments, unsigned long long weights)
{
    constexpr int row = STEP / L::STEPS - 2 * PAIR;  // of pixels, from the pair's first
    if constexpr (row >= 0 && row <= L::K) {
        constexpr bool add = row > 0 || STEP % L::STEPS > 0;
        constexpr int rows_before = STEP % L::STEPS * (L::K + 1) + L::K - row;
        constexpr int high_taps = rows_before * L::M * 32 / 16, low_taps = high_taps + L::TAPS / 2 / 16;
        multiply_add<2 * L::M, add>(sums.large[PAIR], fragments.high[STEP % 3], weights + high_taps);
        multiply_add<2 * L::M, add>(sums.small[PAIR], fragments.high[STEP % 3], weights + low_taps);
        multiply_add<2 * L::M, true>(sums.small[PAIR], fragments.low[STEP % 3], weights + high_taps);
    }
    if constexpr (2 * PAIR + 2 < L::ROWS) multiply_pair<L, STEP, PAIR + 1>(sums, fragments, weights);
}

// The steps of a tile from STEP on. `weights` describes the high halves of the first 16 taps of a row.
template <class L, int STEP>
__device__ __forceinline__ void multiply(
    Sums<L>& sums, Fragments<L>& fragments, const unsigned* first, const unsigned* second, unsigned long long weights)
{
    constexpr int STEPS = L::FETCHED * L::STEPS;
    begin_group();
    multiply_pair<L, STEP, 0>(sums, fragments, weights);
    end_group();
    if constexpr (STEP + 1 < STEPS) {
        wait_for_groups<1>();  // what the step before has read may be written
        if constexpr (STEP + 2 < STEPS) fetch<L, STEP + 2>(fragments, first, second);
        multiply<L, STEP + 1>(sums, fragments, first, second, weights);
    } else {
        wait_for_groups<0>();
    }
}

// A barrier of the warpgroup that splits images.
__device__ __forceinline__ void wait_for_each_other(int barrier) { asm volatile("bar.sync %0, 128;" :: "r"(barrier) : "memory"); }

// mbarriers, in shared memory: a phase ends when so many threads have arrived, and none of them waits.
__device__ __forceinline__ void begin_phases(unsigned long long* barrier, int threads)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address_in_shared(barrier)), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_at(unsigned long long* barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address_in_shared(barrier)) : "memory");
}
// Wait for the end of a phase: of the first, of the second, and so on.
__device__ __forceinline__ void wait_for_phase(unsigned long long* barrier, int phase)
{
    unsigned over;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(address_in_shared(barrier)), "r"(phase % 2) : "memory");
    } while (!over);
}

// What shared memory is written with the threads' own stores, the copies ordered after a barrier see.
__device__ __forceinline__ void show_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Two images are in shared memory, each in one of two places, and their results behind them where these are gathered.
// Those who multiply wait until a place holds the next image, and who splits images waits until all have left it. Every
// thread arrives, and not one for its warp: compute-sanitizer's racecheck sees no other order.
template <class L> struct Images {
    enum { SPLITTING = 1, EMPTY = 2 };  // barriers of who splits
    unsigned* places;
    unsigned long long* held;           // of a place
    unsigned long long* left;
    unsigned (*largest_of_warp)[4];
    // Of a place: twice the image's exponent, and 1 more where some of its numbers are too small for halves; or TOO_LARGE
    // where it is not multiplied.
    int (*exponent_of_warp)[4];

    __device__ __forceinline__ float* results(int place) const { return (float*)(places + place * L::PLACE + L::PLANE); }

    __device__ __forceinline__ int told(int place) const
    {
        const int* of_warp = exponent_of_warp[place];
        return max(max(of_warp[0], of_warp[1]), max(of_warp[2], of_warp[3]));
    }

    // Waits until everyone has left the image of a turn, and orders the copy of the results gathered there.
    __device__ __forceinline__ void store(float* __restrict__ y, int turn) const
    {
        const int place = turn % 2;
        const int image = blockIdx.x + turn * gridDim.x;
        wait_for_phase(left + place, turn / 2);
        if (!L::GATHERED || threadIdx.x % 128 > 0 || told(place) == TOO_LARGE) return;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     :: "l"(y + (size_t)image * L::RESULT), "r"(address_in_shared(results(place))),
                        "r"(L::RESULT * 4) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }

    // Splits one image of the block after another.
    __device__ __forceinline__ void split_all(
        const float* __restrict__ x, const int* __restrict__ exponents, float* __restrict__ y, int N) const
    {
        const int thread = threadIdx.x % 128;
        int turn = 0;
        for (int image = blockIdx.x; image < N; image += gridDim.x, ++turn) {
            const int place = turn % 2;
            float values[L::ROUNDS][L::C];
            unsigned largest = 0;
            const float* const source = x + (size_t)image * L::IMAGE;
            #pragma unroll
            for (int r = 0; r < L::ROUNDS; ++r)
                #pragma unroll
                for (int c = 0; c < L::C; ++c) {
                    const int pixel = thread + r * 128;
                    values[r][c] = pixel < L::H * L::W ? source[pixel + c * L::H * L::W] : 0.0f;
                }
            if (image + gridDim.x < N)
                for (int i = thread * 32; i < L::IMAGE; i += 128 * 32)
                    asm volatile("prefetch.global.L2 [%0];" :: "l"(source + (size_t)gridDim.x * L::IMAGE + i));
            // Not magnitude_of: the compiler would keep what it gives for those below, beside the numbers.
            #pragma unroll
            for (int r = 0; r < L::ROUNDS; ++r)
                #pragma unroll
                for (int c = 0; c < L::C; ++c) largest = max(largest, __float_as_uint(fabsf(values[r][c])));
            largest = __reduce_max_sync(0xffffffffu, largest);
            if (thread % 32 == 0) largest_of_warp[place][thread / 32] = largest;
            wait_for_each_other(SPLITTING);
            for (int i = 0; i < 4; ++i) largest = max(largest, largest_of_warp[place][i]);
            const int exponent = exponent_of(largest);
            const float scale = power_of_two(min(TOP - exponent, 127));
            const float least = least_of(exponent);
            const bool too_large = largest >= INFINITE || beyond_floats(exponent, exponents, L::M);
            bool spread = false;

            if (turn >= 2) store(y, turn - 2);
            #pragma unroll
            for (int r = 0; r < L::ROUNDS; ++r) {
                const int pixel = thread + r * 128;
                if (pixel >= L::H * L::W) break;
                unsigned* const to = places + place * L::PLACE
                                   + (pixel + pixel / (L::W * L::ROWS) * L::SKEW) * (2 * L::WORDS);
                #pragma unroll
                for (int c = 0; c < L::C; c += L::EACH) {
                    unsigned larger = 0;
                    #pragma unroll
                    for (int each = c; each < c + L::EACH; ++each) larger = max(larger, magnitude_of(values[r][each]));
                    spread |= larger != 0 && __uint_as_float(larger) < least;
                    const uint2 front = split(values[r][c] * scale, values[r][c + 1] * scale);
                    if constexpr (L::PAIRED) {
                        const uint2 back = split(values[r][c + 2] * scale, values[r][c + 3] * scale);
                        *(uint4*)(to + c) = make_uint4(front.x, back.x, front.y, back.y);
                    } else {
                        *(uint2*)(to + c) = front;
                    }
                }
            }
            if (L::GATHERED) {
                if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                wait_for_each_other(EMPTY);
            }
            spread = __any_sync(0xffffffffu, spread);
            if (thread % 32 == 0)
                exponent_of_warp[place][thread / 32] = too_large ? TOO_LARGE : 2 * exponent + spread;
            arrive_at(held + place);
        }
        if (!L::GATHERED) return;
        for (int last = max(turn - 2, 0); last < turn; ++last) store(y, last);
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
};

// A block takes one image after another. Shared memory holds the weights, two images, their results where they fit, and
// barriers.
template <class L>
__device__ __forceinline__ void later_layer(
    const float* __restrict__ x, const uint4* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N)
{
    extern __shared__ __align__(128) uint4 shared[];
    __shared__ unsigned largest_of_warp[2][4];
    __shared__ int exponent_of_warp[2][4];
    unsigned* const places = (unsigned*)(shared + L::TAPS / 16);
    unsigned long long* const barriers = (unsigned long long*)(places + 2 * L::PLACE);
    const Images<L> images = {places, barriers, barriers + 2, largest_of_warp, exponent_of_warp};
    if (threadIdx.x < 2) begin_phases(images.held + threadIdx.x, 128);
    if (threadIdx.x < 2) begin_phases(images.left + threadIdx.x, 128 * L::GROUPS);

    for (int i = threadIdx.x; i < L::TAPS / 16; i += L::THREADS) shared[i] = parts[i];
    // What lies beside an image meets weights of zero, or gives outputs that are not there, but must be a number.
    for (int i = threadIdx.x; i < 2 * L::PLACE; i += L::THREADS) places[i] = 0;
    // Tensor cores read the weights as copies do.
    show_copies();
    __syncthreads();

    // Tells the compiler that it is the same for all lanes: instructions of a warpgroup wait for each other elsewhere.
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (group == L::GROUPS) {
        images.split_all(x, exponents, y, N);
        return;
    }

    // The descriptor of weights: 128 bytes to the next 8 taps, 256 to the next 8 columns.
    const unsigned long long weights = (address_in_shared(shared) & 0x3ffff) >> 4 | 8ull << 16 | 16ull << 32;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const bool odd = t % 2;
    int map_exponents[L::M / 4];
    #pragma unroll
    for (int i = 0; i < L::M / 4; ++i) map_exponents[i] = exponents[i / 2 * 8 + 2 * t + i % 2];

    // Columns of rows g and g + 8 of the product, from the warp's first: pixels are fetched without bank conflicts.
    const int first_column = threadIdx.x % 128 / 32 * 16 + g % 4 * 4 + g / 4;
    int turn = 0;
    int tile = group;
    for (int image = blockIdx.x; image < N; image += gridDim.x, ++turn) {
        const int place = turn % 2;
        const auto leave = [&] {
            if (L::GATHERED) show_copies();
            arrive_at(images.left + place);
        };
        float* const result = y + (size_t)image * L::RESULT;
        wait_for_phase(images.held + place, turn / 2);
        const int told = images.told(place);
        const int exponent = told >> 1;
        const bool too_large = told == TOO_LARGE;
        if ((told & 1 || too_large) && threadIdx.x == 0) put_in_list(listed, image, too_large ? TOO_LARGE : exponent);
        if (too_large) {
            leave();
            continue;
        }

        #pragma unroll 1
        for (; tile < L::TILES; tile += L::GROUPS) {
            const auto source_of = [&](int half) {
                const int column = min(tile * 64 + first_column + 2 * half, L::COLUMNS - 1);
                return images.places + place * L::PLACE + column / L::W_OUT * L::BAND
                     + column % L::W_OUT * 2 * L::WORDS + t * L::EACH;
            };
            const unsigned* const first = source_of(0);
            const unsigned* const second = source_of(1);
            Sums<L> sums;
            Fragments<L> fragments;
            fetch<L, 0>(fragments, first, second);
            fetch<L, 1>(fragments, first, second);
            multiply<L, 0>(sums, fragments, first, second, weights);

            // Neighbouring lanes swap, so that 16 columns of a map are stored at once.
            const int column = tile * 64 + first_column + 2 * odd;
            const int row = column / L::W_OUT * L::ROWS;
            float* const to = (L::GATHERED ? images.results(place) : result)
                            + (t / 2 * 4 * L::H_OUT + row) * L::W_OUT + column % L::W_OUT;
            #pragma unroll
            for (int i = 0; i < L::M / 4; ++i) {
                const float back = power_of_two(exponent + map_exponents[i] - 2 * TOP);
                #pragma unroll
                for (int r = 0; r < L::ROWS; ++r) {
                    const int sum = r % 2 * L::M / 2 + i / 2 * 4 + i % 2;
                    const float front = (sums.large[r / 2][sum] + sums.small[r / 2][sum]) * back;
                    const float behind = (sums.large[r / 2][sum + 2] + sums.small[r / 2][sum + 2]) * back;
                    const float kept = odd ? behind : front;
                    const float swapped = __shfl_xor_sync(0xffffffffu, odd ? front : behind, 1);
                    if (column < L::COLUMNS && (L::H_OUT % L::ROWS == 0 || row + r < L::H_OUT)) {
                        float* const map = to + ((i / 2 * 8 + i % 2) * L::H_OUT + r) * L::W_OUT;
                        map[0] = odd ? swapped : kept;
                        map[2 * L::H_OUT * L::W_OUT] = odd ? kept : swapped;
                    }
                }
            }
        }
        tile -= L::TILES;
        leave();
    }
}

extern "C" __global__ void __launch_bounds__(128 * LATER_12_GROUPS + 128, LATER_12_BLOCKS) later_12_7_24(
    const float* __restrict__ x, const uint4* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N)
{
    later_layer<Layer<12, 33, 7, 24, LATER_12_ROWS, LATER_12_GROUPS>>(x, parts, exponents, listed, y, N);
}

extern "C" __global__ void __launch_bounds__(128 * LATER_6_30_GROUPS + 128, LATER_6_30_BLOCKS) later_6_30_5_16(
    const float* __restrict__ x, const uint4* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N)
{
    later_layer<Layer<6, 30, 5, 16, LATER_6_30_ROWS, LATER_6_30_GROUPS>>(x, parts, exponents, listed, y, N);
}

extern "C" __global__ void __launch_bounds__(128 * LATER_6_22_GROUPS + 128, LATER_6_22_BLOCKS) later_6_22_5_16(
    const float* __restrict__ x, const uint4* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N)
{
    later_layer<Layer<6, 22, 5, 16, LATER_6_22_ROWS, LATER_6_22_GROUPS>>(x, parts, exponents, listed, y, N);
}

extern "C" __global__ void __launch_bounds__(128 * LATER_4_GROUPS + 128, LATER_4_BLOCKS) later_4_7_16(
    const float* __restrict__ x, const uint4* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N)
{
    later_layer<Layer<4, 40, 7, 16, LATER_4_ROWS, LATER_4_GROUPS>>(x, parts, exponents, listed, y, N);
}

// sums (16 rows x 8 columns) += a (16 rows x 16 taps) * b (16 taps x 8 columns), spread over a warp's lanes as above:
// b0 has taps 2 * (lane % 4) and the next of column lane / 4, b1 those 8 further on.
__device__ __forceinline__ void multiply_add(float (&sums)[4], uint2 front, uint2 back, unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(front.x), "r"(front.y), "r"(back.x), "r"(back.y), "r"(b0), "r"(b1));
}

// The same for the first 8 taps.
__device__ __forceinline__ void multiply_add(float (&sums)[4], uint2 front, unsigned b0)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(front.x), "r"(front.y), "r"(b0));
}

// C = 1, one map a block. A column of the product is a map's output, shifted by 0 ... 8 - K from the leftmost that 8
// inputs serve. parts (column / 8, row of taps, lane) holds taps 2 * (lane % 4) and the next of column lane / 4, high
// and low.
extern "C" __global__ void split_first_weights(
    const float* __restrict__ w, uint2* __restrict__ parts, int* __restrict__ exponents, int* __restrict__ listed, int K)
{
    __shared__ unsigned largest_of_warp[32];
    const int map = blockIdx.x;
    if (map == 0 && threadIdx.x == 0) listed[0] = 0;
    const int shifts = 9 - K;
    const float* taps = w + (size_t)map * K * K;

    unsigned largest = 0;
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
            values[h] = q >= 0 && q < K ? taps[p * K + q] * scale.x * scale.y : 0.0f;
        }
        parts[(column / 8 * K + p) * 32 + column % 8 * 4 + i % 4] = split(values[0], values[1]);
    }
}

// 1x86x86 * 4@7x7. A block takes one image after another, and the next waits in registers. A warp multiplies 16 runs of 8
// inputs, each of which serves two neighbouring outputs, by the 8 columns of weights, in ROWS rows of outputs at a time.
// Shared memory holds the image as pairs of pixels, high halves and then low ones, 4 bytes each.
extern "C" __global__ void __launch_bounds__(FIRST_86_THREADS, FIRST_86_BLOCKS) first_86_7(
    const float* __restrict__ x, const uint2* __restrict__ parts, const int* __restrict__ exponents,
    int* __restrict__ listed, float* __restrict__ y, int N)
{
    constexpr int W = 86, K = 7, M = 4, ROWS = FIRST_86_ROWS, THREADS = FIRST_86_THREADS;
    constexpr int W_OUT = W - K + 1;
    constexpr int PAIRS = W * W / 2;                      // of pixels
    constexpr int ROUNDS = (PAIRS + THREADS - 1) / THREADS;
    constexpr int ACROSS = W_OUT / 2;                     // runs in a row
    constexpr int RUNS = W_OUT / ROWS * ACROSS;           // of the first row of each band of ROWS
    static_assert(ACROSS % 2 == 0 && W_OUT % ROWS == 0 && RUNS % 16 == 0, "a lane's two runs are neighbours");

    extern __shared__ __align__(128) uint4 shared[];
    __shared__ unsigned largest_of_warp[THREADS / 32];
    unsigned* const highs = (unsigned*)shared;
    unsigned* const lows = highs + PAIRS;
    const int lane = threadIdx.x % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const int map = t;
    const int exponent_of_map = exponents[map];
    uint2 taps[K];
    #pragma unroll
    for (int p = 0; p < K; ++p) taps[p] = parts[p * 32 + lane];

    float2 values[ROUNDS];
    const auto load = [&](int image) {
        const float2* source = (const float2*)(x + (size_t)image * W * W);
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int pair = threadIdx.x + r * THREADS;
            values[r] = pair < PAIRS ? source[pair] : make_float2(0.0f, 0.0f);
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
        const bool too_large = largest >= INFINITE || beyond_floats(exponent, exponents, M);
        bool beyond = too_large;
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int pair = threadIdx.x + r * THREADS;
            if (pair >= PAIRS) break;
            const unsigned larger = max(magnitude_of(values[r].x), magnitude_of(values[r].y));
            beyond |= larger != 0 && __uint_as_float(larger) < least;
            const uint2 halves = split(values[r].x * scale, values[r].y * scale);
            highs[pair] = halves.x;
            lows[pair] = halves.y;
        }
        if (image + gridDim.x < N) load(image + gridDim.x);
        float* const result = y + (size_t)image * (M * W_OUT * W_OUT);
        // The image is complete before anyone reads it.
        if (__syncthreads_or(beyond) && threadIdx.x == 0) put_in_list(listed, image, too_large ? TOO_LARGE : exponent);
        if (too_large) continue;

        const float back = power_of_two(exponent + exponent_of_map - 2 * TOP);
        for (int first = threadIdx.x / 32 * 16; first < RUNS; first += THREADS / 32 * 16) {
            // Rows g and g + 8 of a product are neighbouring runs, so that a lane's four outputs are one vector.
            const int run = first + 2 * g;
            const int top = run / ACROSS * ROWS;
            const int place = top * (W / 2) + run % ACROSS + t;
            uint2 high[ROWS + K - 1], low[ROWS + K - 1];
            #pragma unroll
            for (int row = 0; row < ROWS + K - 1; ++row) {
                high[row] = make_uint2(highs[place + row * (W / 2)], highs[place + row * (W / 2) + 1]);
                low[row] = make_uint2(lows[place + row * (W / 2)], lows[place + row * (W / 2) + 1]);
            }
            // Small products apart from large ones, since tensor cores cut off what does not fit.
            float large[ROWS][4] = {}, small[ROWS][4] = {};
            #pragma unroll
            for (int p = 0; p + 1 < K; p += 2)
                #pragma unroll
                for (int part = 0; part < 3; ++part)
                    #pragma unroll
                    for (int r = 0; r < ROWS; ++r) {
                        const uint2 (&pixels)[ROWS + K - 1] = part == 2 ? low : high;
                        const unsigned b0 = part == 1 ? taps[p].y : taps[p].x;
                        const unsigned b1 = part == 1 ? taps[p + 1].y : taps[p + 1].x;
                        multiply_add(part == 0 ? large[r] : small[r], pixels[r + p], pixels[r + p + 1], b0, b1);
                    }
            #pragma unroll
            for (int part = 0; part < 3; ++part)
                #pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    multiply_add(part == 0 ? large[r] : small[r], (part == 2 ? low : high)[r + K - 1],
                                 part == 1 ? taps[K - 1].y : taps[K - 1].x);
            float* const line = result + (map * W_OUT + top) * W_OUT + run % ACROSS * 2;
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float (&l)[4] = large[r], (&s)[4] = small[r];
                *(float4*)(line + r * W_OUT) = make_float4(
                    (l[0] + s[0]) * back, (l[1] + s[1]) * back, (l[2] + s[2]) * back, (l[3] + s[3]) * back);
            }
        }
    }
}
