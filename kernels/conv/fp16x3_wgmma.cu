/*
title:     FP32 as hi and lo FP16 parts, by wgmma
idea:      A thread computes several rows of outputs, so that a pixel that it fetched from shared memory serves every
           row of the kernel that meets it. Layers of several channels use Hopper's wgmma. It multiplies 64 columns
           of outputs by two rows of the kernel in all output channels, takes the weights from shared memory itself,
           and the pixels from registers. One warpgroup does nothing but split images, alternately into two slots.
           The others multiply one tile after another and wait only for that one, so that one stores while another
           multiplies. An image's results leave shared memory in one copy, where there is room for them. A first
           layer of 4 output channels stays with mma.sync.
expect:    wgmma reaches a rate of the tensor cores that mma.sync cannot. At 10,000 images 12x33x33 falls from 1.65
           to 1.1 ms. Later layers of 16 output channels gain by a fifth to a third. The first layer, which reading
           pixels limits, gains by 5 % to 20 %. Errors stay those of FP32 sums.
check:     smsp__inst_executed.sum falls, a wgmma being many mma.sync
builds_on: fp16x3_mma
split:     {precision: fp16, products: 3}
kernel:    conv_multi_channel_12_7_24
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
constants: {MULTI_12_ROWS: 4, MULTI_12_GROUPS: 2, MULTI_12_BLOCKS: 1,
            MULTI_6_30_ROWS: 4, MULTI_6_30_GROUPS: 3, MULTI_6_30_BLOCKS: 1,
            MULTI_6_22_ROWS: 6, MULTI_6_22_GROUPS: 2, MULTI_6_22_BLOCKS: 1,
            MULTI_4_ROWS: 4, MULTI_4_GROUPS: 3, MULTI_4_BLOCKS: 1,
            SINGLE_86_ROWS: 4, SINGLE_86_THREADS: 256, SINGLE_86_BLOCKS: 2, FP32_THREADS: 512}
limits:    {layers: [12x33x33 * 24@7x7, 6x30x30 * 16@5x5, 6x22x22 * 16@5x5, 4x40x40 * 16@7x7, 1x86x86 * 4@7x7]}
least_arch: sm_90a
claims:
  - says:     12x33x33 falls from 1.65 to 1.1 ms
    quantity: op_time
    change:   falls
    by:       {at_least: 30 %}
    where:    {C: {is: 12}, N: {at_least: 10000}}
  - says:     by a fifth to a third
    quantity: op_time
    change:   falls
    by:       {at_least: 20 %, at_most: 33 %}
    where:    {C: {at_least: 2}, M: {is: 16}, N: {at_least: 10000}}
  - says:     by 5 % to 20 %
    quantity: op_time
    change:   falls
    by:       {at_least: 5 %, at_most: 20 %}
    where:    {C: {is: 1}, N: {at_least: 10000}}
  - says:     Errors stay those of FP32 sums
    quantity: error
    value:    {at_most: 0.000002}
  - says:     smsp__inst_executed.sum falls
    quantity: smsp__inst_executed.sum
    change:   falls
*/

#include "async_copy.cuh"
#include "conv_single_channel.cuh"
#include "fp16_split.cuh"
#include "fp32_fallback.cuh"
#include "wgmma.cuh"

// ---- Layers of several channels -----------------------------------------------------------------
//
// A holds pixels, 64 outputs of two rows to a tile; B the weights of all output channels, for two rows of the kernel. A
// pixel that was fetched to registers serves every row of the kernel that meets it. All but one of a block's warpgroups
// multiply; the last splits the images for them.

// Splits the weights of one output channel a block into the order of wgmma's B: 8 channels x 8 values of a row of the
// kernel are 128 bytes, the next 8 values follow, then the next 8 channels, then the row of the kernel above, then the
// next 16 values of a row. A row of zeros stands before the first row and after the last, and all lo parts after all hi
// parts. A row is K * C values, a pixel's channels together, and zeros. Where a pixel is whole pairs of words of two
// channels, words 2 * t and 2 * t + 1 of the eight of 16 values stand at t and t + 4, where a lane wants them that
// fetches both at once.
extern "C" __global__ void split_multi_channel_weights(
    const float* __restrict__ w, __half* __restrict__ weight_parts, int* __restrict__ exponents,
    int* __restrict__ fallback_list, int C, int M, int K)
{
    const int channel = blockIdx.x;
    if (channel == 0 && threadIdx.x == 0) fallback_list[0] = 0;
    const int count = C * K * K;
    const float* weights = w + (size_t)channel * count;
    const float2 scale = weight_scale(weights, count, true, channel, exponents);

    const int rows = (K * C + 15) / 16 * (K + 1) + 1;
    for (int i = threadIdx.x; i < rows * 16; i += blockDim.x) {
        const int p = K - i / 16 % (K + 1);
        const int word = i % 16 / 2;
        const int place = i / 16 / (K + 1) * 16 + (C % 4 == 0 ? word % 4 * 2 + word / 4 : word) * 2 + i % 2;
        const int q = place / C;
        const int c = place % C;
        const float value = p < K && q < K ? weights[(c * K + p) * K + q] * scale.x * scale.y : 0.0f;
        const uint2 parts = split(value, 0.0f);
        __half* const hi =
            weight_parts + ((i / 16 * M / 8 + channel / 8) * 2 + i % 16 / 8) * 64 + channel % 8 * 8 + i % 8;
        hi[0] = __ushort_as_half(parts.x);
        hi[rows * 16 * M] = __ushort_as_half(parts.y);
    }
}

// A layer, and how its work and a block's shared memory are divided. Outputs are in bands of ROWS_ rows; a tile is 64
// columns of the bands side by side, each of them ROWS_ outputs in every channel. GROUPS_ warpgroups multiply one tile
// after another, and one more splits the images for them.
template <int C_, int H_, int K_, int M_, int ROWS_, int GROUPS_>
struct Layer {
    static constexpr int C = C_, H = H_, W = H_, K = K_, M = M_, ROWS = ROWS_, GROUPS = GROUPS_;
    static constexpr int H_OUT = H - K + 1, W_OUT = W - K + 1;
    static constexpr int THREADS = 128 * (GROUPS + 1);
    static constexpr int BANDS = (H_OUT + ROWS - 1) / ROWS;
    static constexpr int COLUMNS = BANDS * W_OUT;
    static constexpr int TILES = (COLUMNS + 63) / 64;
    static constexpr int STEPS = (K * C + 15) / 16;  // of 16 values, in a row of the kernel
    static constexpr int ROWS_FETCHED = ROWS + K - 1;  // rows of pixels that a band's outputs need
    static constexpr int WORDS_PER_PIXEL = C / 2;
    // A pixel's words in shared memory: the hi parts of two words and then their lo parts, or of one.
    static constexpr bool LOADS_TWO_WORDS = WORDS_PER_PIXEL % 2 == 0;
    static constexpr int CHANNELS_PER_LOAD = LOADS_TWO_WORDS ? 4 : 2;
    static constexpr int LOADS_PER_THREAD = (H * W + 127) / 128;  // of pixels, in the warpgroup that splits
    // After a band's rows follow as many pixels as put the first column of the next band into the banks of one column
    // more.
    static constexpr int BANK_PERIOD = LOADS_TWO_WORDS ? 8 : 16;
    static constexpr int SKEW = ((W_OUT - ROWS * W) % BANK_PERIOD + BANK_PERIOD) % BANK_PERIOD;
    static constexpr int BAND_WORDS = (ROWS * W + SKEW) * 2 * WORDS_PER_PIXEL;
    // Shared memory: the weights and the zeros between them; two slots, each for an image up to the zeros after its
    // last row and, where there is room, for its results, which then leave in one copy; and the barriers.
    static constexpr int LAST_ROW = BANDS * ROWS + K - 2;  // of pixels
    static constexpr int IMAGE_WORDS =
        ((LAST_ROW * W + LAST_ROW / ROWS * SKEW + W_OUT - 1) * WORDS_PER_PIXEL + STEPS * 8 + 3) / 4 * 8;
    static constexpr int WEIGHT_BYTES = 2 * (STEPS * (K + 1) + 1) * M * 32;
    static constexpr int IMAGE_FLOATS = C * H * W;
    static constexpr int RESULT_FLOATS = M * H_OUT * W_OUT;
    static constexpr bool RESULTS_IN_SMEM =
        RESULT_FLOATS % 4 == 0 && WEIGHT_BYTES + 2 * (IMAGE_WORDS + RESULT_FLOATS) * 4 <= 230000;
    static constexpr int SLOT_WORDS = IMAGE_WORDS + (RESULTS_IN_SMEM ? RESULT_FLOATS : 0);
    static constexpr int BARRIERS = 4;
    static constexpr int SHARED_BYTES = WEIGHT_BYTES + 2 * SLOT_WORDS * 4 + BARRIERS * 8;
    static_assert(C % 2 == 0 && M % 8 == 0, "words of two channels, output channels in eights");
    static_assert(ROWS % 2 == 0 && LAST_ROW >= H - 1, "rows of outputs in pairs, every row of the image in its place");
};

// Where a band's row of pixels is, in words.
template <class L> __device__ constexpr int row_of(int row)
{
    return (row * L::W + row / L::ROWS * L::SKEW) * 2 * L::WORDS_PER_PIXEL;
}

// The pixels of three steps: one is multiplied, one waits, one is being fetched.
template <class L> struct Fragments {
    unsigned hi[3][4], lo[3][4];
};

// Fetch the pixels of a step: 16 values for two rows of A.
template <class L, int STEP>
__device__ __forceinline__ void fetch(Fragments<L>& fragments, const unsigned* first, const unsigned* second)
{
    constexpr int offset = row_of<L>(STEP / L::STEPS) + STEP % L::STEPS * 16;
    unsigned (&hi)[4] = fragments.hi[STEP % 3];
    unsigned (&lo)[4] = fragments.lo[STEP % 3];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned* source = (i ? second : first) + offset;
        if constexpr (L::LOADS_TWO_WORDS) {
            const uint4 words = *(const uint4*)source;
            hi[i] = words.x, hi[i + 2] = words.y, lo[i] = words.z, lo[i + 2] = words.w;
        } else {
            const uint2 front = *(const uint2*)source, back = *(const uint2*)(source + 8);
            hi[i] = front.x, hi[i + 2] = back.x, lo[i] = front.y, lo[i + 2] = back.y;
        }
    }
}

// A lane's sums, for each pair of rows of outputs in all channels. hi * hi goes to `large`, the smaller products to
// `small`, because tensor cores cut off digits that do not fit beside a larger sum.
template <class L> struct Sums {
    float large[L::ROWS / 2][L::M], small[L::ROWS / 2][L::M];
};

// The wgmma of a step for a pair of rows of outputs, with the rows of the kernel that meet its row of pixels, if any.
// The sums of a pair belong to one wgmma shape: ptxas would make wgmma wait for each other that share only some of
// their registers.
template <class L, int STEP, int PAIR>
__device__ __forceinline__ void wgmma_row_pair(Sums<L>& sums, Fragments<L>& fragments, unsigned long long weights)
{
    constexpr int row = STEP / L::STEPS - 2 * PAIR;  // of pixels, from the pair's first
    if constexpr (row >= 0 && row <= L::K) {
        constexpr bool add = row > 0 || STEP % L::STEPS > 0;
        constexpr int rows_before = STEP % L::STEPS * (L::K + 1) + L::K - row;
        constexpr int hi_weights = rows_before * L::M * 32 / 16, lo_weights = hi_weights + L::WEIGHT_BYTES / 2 / 16;
        wgmma_m64k16<2 * L::M, add>(sums.large[PAIR], fragments.hi[STEP % 3], weights + hi_weights);
        wgmma_m64k16<2 * L::M, add>(sums.small[PAIR], fragments.hi[STEP % 3], weights + lo_weights);
        wgmma_m64k16<2 * L::M, true>(sums.small[PAIR], fragments.lo[STEP % 3], weights + hi_weights);
    }
    if constexpr (2 * PAIR + 2 < L::ROWS) wgmma_row_pair<L, STEP, PAIR + 1>(sums, fragments, weights);
}

// The steps of a tile from STEP on. `weights` is the descriptor of the hi parts of a row's first 16 values.
template <class L, int STEP>
__device__ __forceinline__ void wgmma_steps(
    Sums<L>& sums, Fragments<L>& fragments, const unsigned* first, const unsigned* second, unsigned long long weights)
{
    constexpr int STEPS = L::ROWS_FETCHED * L::STEPS;
    wgmma_fence();
    wgmma_row_pair<L, STEP, 0>(sums, fragments, weights);
    wgmma_commit_group();
    if constexpr (STEP + 1 < STEPS) {
        wgmma_wait_group<1>();  // what the step before has read may be written
        if constexpr (STEP + 2 < STEPS) fetch<L, STEP + 2>(fragments, first, second);
        wgmma_steps<L, STEP + 1>(sums, fragments, first, second, weights);
    } else {
        wgmma_wait_group<0>();
    }
}

// Load one image's pixels, all channels of each, to the registers of a warpgroup.
template <class L> using Pixels = float[L::LOADS_PER_THREAD][L::C];

template <class L>
__device__ __forceinline__ void load_pixels(Pixels<L>& values, const float* source, int thread)
{
    #pragma unroll
    for (int r = 0; r < L::LOADS_PER_THREAD; ++r)
        #pragma unroll
        for (int c = 0; c < L::C; ++c) {
            const int pixel = thread + r * 128;
            values[r][c] = pixel < L::H * L::W ? source[pixel + c * L::H * L::W] : 0.0f;
        }
}

// Two images are in shared memory, each in a slot. The warpgroups that multiply wait until a slot is full; the one that
// splits images waits until all of them have emptied it. Every thread arrives, not one for its warp:
// compute-sanitizer's racecheck sees no other order.
template <class L> struct ImagePipeline {
    enum { MAX_FOUND = 1, RESULTS_STORED = 2 };  // barriers of the warpgroup that splits
    unsigned* slots;
    unsigned long long* full;   // mbarriers, one of each for a slot
    unsigned long long* empty;
    unsigned (*warp_max)[4];
    // Of a slot, the largest of four warps': twice the image's exponent, and 1 more where some of its values are too
    // small for FP16 parts; or OUT_OF_RANGE where the image is not multiplied.
    int (*warp_state)[4];

    __device__ __forceinline__ float* results(int slot) const
    {
        return (float*)(slots + slot * L::SLOT_WORDS + L::IMAGE_WORDS);
    }

    // The pixels that a lane fetches for the outputs in a column.
    __device__ __forceinline__ const unsigned* pixels(int slot, int column, int lane_in_group) const
    {
        column = min(column, L::COLUMNS - 1);
        return slots + slot * L::SLOT_WORDS + column / L::W_OUT * L::BAND_WORDS
               + column % L::W_OUT * 2 * L::WORDS_PER_PIXEL + lane_in_group * L::CHANNELS_PER_LOAD;
    }

    __device__ __forceinline__ int state(int slot) const
    {
        const int* of_warps = warp_state[slot];
        return max(max(of_warps[0], of_warps[1]), max(of_warps[2], of_warps[3]));
    }

    // Wait until the slot of a turn is empty, and start the copy of the results that are in it.
    __device__ __forceinline__ void store(float* __restrict__ y, int turn) const
    {
        const int slot = turn % 2;
        const int image = blockIdx.x + turn * gridDim.x;
        mbarrier_wait(empty + slot, turn / 2);
        if (!L::RESULTS_IN_SMEM || threadIdx.x % 128 > 0 || state(slot) == OUT_OF_RANGE) return;
        bulk_store(y + (size_t)image * L::RESULT_FLOATS, results(slot), L::RESULT_FLOATS * 4);
    }

    // Split a thread's pixels to a slot. True where one of them is too small for FP16 parts.
    __device__ __forceinline__ bool split_pixels(
        int slot, const Pixels<L>& values, int thread, float scale, float least) const
    {
        bool too_small = false;
        #pragma unroll
        for (int r = 0; r < L::LOADS_PER_THREAD; ++r) {
            const int pixel = thread + r * 128;
            if (pixel >= L::H * L::W) break;
            unsigned* const to = slots + slot * L::SLOT_WORDS
                                 + (pixel + pixel / (L::W * L::ROWS) * L::SKEW) * (2 * L::WORDS_PER_PIXEL);
            #pragma unroll
            for (int c = 0; c < L::C; c += L::CHANNELS_PER_LOAD) {
                unsigned larger = 0;
                #pragma unroll
                for (int each = c; each < c + L::CHANNELS_PER_LOAD; ++each)
                    larger = max(larger, magnitude_bits(values[r][each]));
                too_small |= larger != 0 && __uint_as_float(larger) < least;
                const uint2 first = split(values[r][c] * scale, values[r][c + 1] * scale);
                if constexpr (L::LOADS_TWO_WORDS) {
                    const uint2 second = split(values[r][c + 2] * scale, values[r][c + 3] * scale);
                    *(uint4*)(to + c) = make_uint4(first.x, second.x, first.y, second.y);
                } else {
                    *(uint2*)(to + c) = first;
                }
            }
        }
        return too_small;
    }

    // Split one image of the block after another.
    __device__ __forceinline__ void produce(
        const float* __restrict__ x, const int* __restrict__ weight_exponents, float* __restrict__ y, int N) const
    {
        const int thread = threadIdx.x % 128;
        int turn = 0;
        for (int image = blockIdx.x; image < N; image += gridDim.x, ++turn) {
            const int slot = turn % 2;
            Pixels<L> values;
            unsigned largest = 0;
            const float* const source = x + (size_t)image * L::IMAGE_FLOATS;
            load_pixels<L>(values, source, thread);
            if (image + gridDim.x < N)
                prefetch_l2(source + (size_t)gridDim.x * L::IMAGE_FLOATS, L::IMAGE_FLOATS, thread, 128);
            // Not magnitude_bits: the compiler would keep its results for split_pixels, in more registers.
            #pragma unroll
            for (int r = 0; r < L::LOADS_PER_THREAD; ++r)
                #pragma unroll
                for (int c = 0; c < L::C; ++c) largest = max(largest, __float_as_uint(fabsf(values[r][c])));
            largest = __reduce_max_sync(0xffffffffu, largest);
            if (thread % 32 == 0) warp_max[slot][thread / 32] = largest;
            warpgroup_barrier(MAX_FOUND);
            for (int i = 0; i < 4; ++i) largest = max(largest, warp_max[slot][i]);
            const int exponent = exponent_of(largest);
            const float scale = power_of_two(min(SCALE_EXPONENT - exponent, 127));
            const float least = min_magnitude(exponent);
            const bool not_multiplied =
                largest >= INFINITY_BITS || scale_out_of_range_in_warp(exponent, weight_exponents, L::M);
            if (turn >= 2) store(y, turn - 2);
            bool too_small = split_pixels(slot, values, thread, scale, least);
            if (L::RESULTS_IN_SMEM) {
                if (thread == 0) bulk_wait_read();
                warpgroup_barrier(RESULTS_STORED);
            }
            too_small = __any_sync(0xffffffffu, too_small);
            if (thread % 32 == 0)
                warp_state[slot][thread / 32] = not_multiplied ? OUT_OF_RANGE : 2 * exponent + too_small;
            mbarrier_arrive(full + slot);
        }
        if (!L::RESULTS_IN_SMEM) return;
        for (int last = max(turn - 2, 0); last < turn; ++last) store(y, last);
        bulk_wait();
    }
};

// Multiply one image of the block after another by all weights. Warpgroup `group` takes one tile after another.
template <class L>
__device__ __forceinline__ void multiply_images(
    const ImagePipeline<L>& images, unsigned long long weights, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int group)
{
    const int lane = threadIdx.x % 32;
    const int group_id = lane / 4;
    const int lane_in_group = lane % 4;
    const bool odd = lane_in_group % 2;
    int channel_exponents[L::M / 4];
    #pragma unroll
    for (int i = 0; i < L::M / 4; ++i) channel_exponents[i] = weight_exponents[i / 2 * 8 + 2 * lane_in_group + i % 2];

    // The tile's columns that rows group_id and group_id + 8 of A are: an order in which pixels are fetched without
    // bank conflicts.
    const int first_column = threadIdx.x % 128 / 32 * 16 + group_id % 4 * 4 + group_id / 4;
    int turn = 0;
    int tile = group;
    for (int image = blockIdx.x; image < N; image += gridDim.x, ++turn) {
        const int slot = turn % 2;
        const auto release = [&] {
            if (L::RESULTS_IN_SMEM) fence_proxy_async_shared();
            mbarrier_arrive(images.empty + slot);
        };
        float* const result = y + (size_t)image * L::RESULT_FLOATS;
        mbarrier_wait(images.full + slot, turn / 2);
        const int state = images.state(slot);
        const int exponent = state >> 1;
        const bool not_multiplied = state == OUT_OF_RANGE;
        if ((state & 1 || not_multiplied) && threadIdx.x == 0)
            append_fallback(fallback_list, image, not_multiplied ? OUT_OF_RANGE : exponent);
        if (not_multiplied) {
            release();
            continue;
        }

        #pragma unroll 1
        for (; tile < L::TILES; tile += L::GROUPS) {
            const unsigned* const first = images.pixels(slot, tile * 64 + first_column, lane_in_group);
            const unsigned* const second = images.pixels(slot, tile * 64 + first_column + 2, lane_in_group);
            Sums<L> sums;
            Fragments<L> fragments;
            fetch<L, 0>(fragments, first, second);
            fetch<L, 1>(fragments, first, second);
            wgmma_steps<L, 0>(sums, fragments, first, second, weights);

            const int column = tile * 64 + first_column + 2 * odd;
            const int row = column / L::W_OUT * L::ROWS;
            float* const destination = (L::RESULTS_IN_SMEM ? images.results(slot) : result)
                                       + (lane_in_group / 2 * 4 * L::H_OUT + row) * L::W_OUT + column % L::W_OUT;
            // Neighbouring lanes swap values, so that 16 columns of a channel are stored at once.
            #pragma unroll
            for (int i = 0; i < L::M / 4; ++i) {
                const float unscale = power_of_two(exponent + channel_exponents[i] - 2 * SCALE_EXPONENT);
                #pragma unroll
                for (int r = 0; r < L::ROWS; ++r) {
                    const int d = r % 2 * L::M / 2 + i / 2 * 4 + i % 2;
                    const float first = (sums.large[r / 2][d] + sums.small[r / 2][d]) * unscale;
                    const float second = (sums.large[r / 2][d + 2] + sums.small[r / 2][d + 2]) * unscale;
                    const float kept = odd ? second : first;
                    const float swapped = __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
                    if (column < L::COLUMNS && (L::H_OUT % L::ROWS == 0 || row + r < L::H_OUT)) {
                        float* const channel = destination + ((i / 2 * 8 + i % 2) * L::H_OUT + r) * L::W_OUT;
                        channel[0] = odd ? swapped : kept;
                        channel[2 * L::H_OUT * L::W_OUT] = odd ? kept : swapped;
                    }
                }
            }
        }
        tile -= L::TILES;
        release();
    }
}

// A block takes one image after another. Its last warpgroup splits them, the others multiply.
template <class L>
__device__ __forceinline__ void conv_multi_channel(
    const float* __restrict__ x, const uint4* __restrict__ weight_parts, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    extern __shared__ __align__(128) uint4 shared[];
    __shared__ unsigned warp_max[2][4];
    __shared__ int warp_state[2][4];
    unsigned* const slots = (unsigned*)(shared + L::WEIGHT_BYTES / 16);
    unsigned long long* const barriers = (unsigned long long*)(slots + 2 * L::SLOT_WORDS);
    const ImagePipeline<L> images = {slots, barriers, barriers + 2, warp_max, warp_state};
    if (threadIdx.x < 2) mbarrier_init(images.full + threadIdx.x, 128);
    if (threadIdx.x < 2) mbarrier_init(images.empty + threadIdx.x, 128 * L::GROUPS);

    for (int i = threadIdx.x; i < L::WEIGHT_BYTES / 16; i += L::THREADS) shared[i] = weight_parts[i];
    // What lies beside an image meets weights of zero, or gives outputs that are not there, but must be a number.
    for (int i = threadIdx.x; i < 2 * L::SLOT_WORDS; i += L::THREADS) slots[i] = 0;
    // Tensor cores read the weights through the asynchronous proxy.
    fence_proxy_async_shared();
    __syncthreads();

    // The shuffle tells the compiler that `group` is the same for all lanes. It would otherwise serialize the wgmma.
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (group == L::GROUPS) {
        images.produce(x, weight_exponents, y, N);
        return;
    }
    multiply_images<L>(images, wgmma_descriptor(smem_address(shared)), weight_exponents, fallback_list, y, N, group);
}

using Layer12 = Layer<12, 33, 7, 24, MULTI_12_ROWS, MULTI_12_GROUPS>;
using Layer6x30 = Layer<6, 30, 5, 16, MULTI_6_30_ROWS, MULTI_6_30_GROUPS>;
using Layer6x22 = Layer<6, 22, 5, 16, MULTI_6_22_ROWS, MULTI_6_22_GROUPS>;
using Layer4 = Layer<4, 40, 7, 16, MULTI_4_ROWS, MULTI_4_GROUPS>;

// Where the launcher reads what it must know: output channels, bytes of their weights' parts, and bytes of a block's
// shared memory.
template <class L>
__device__ void write_layout(int* layout)
{
    layout[0] = L::M;
    layout[1] = L::WEIGHT_BYTES;
    layout[2] = L::SHARED_BYTES;
}
extern "C" __global__ void multi_channel_layout(int* __restrict__ layout, int C, int H)
{
    if (C == 12) write_layout<Layer12>(layout);
    if (C == 6 && H == 30) write_layout<Layer6x30>(layout);
    if (C == 6 && H == 22) write_layout<Layer6x22>(layout);
    if (C == 4) write_layout<Layer4>(layout);
}

extern "C" __global__ void __launch_bounds__(128 * MULTI_12_GROUPS + 128, MULTI_12_BLOCKS) conv_multi_channel_12_7_24(
    const float* __restrict__ x, const uint4* __restrict__ weight_parts, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    conv_multi_channel<Layer12>(x, weight_parts, weight_exponents, fallback_list, y, N);
}

extern "C" __global__ void __launch_bounds__(128 * MULTI_6_30_GROUPS + 128, MULTI_6_30_BLOCKS)
conv_multi_channel_6_30_5_16(
    const float* __restrict__ x, const uint4* __restrict__ weight_parts, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    conv_multi_channel<Layer6x30>(x, weight_parts, weight_exponents, fallback_list, y, N);
}

extern "C" __global__ void __launch_bounds__(128 * MULTI_6_22_GROUPS + 128, MULTI_6_22_BLOCKS)
conv_multi_channel_6_22_5_16(
    const float* __restrict__ x, const uint4* __restrict__ weight_parts, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    conv_multi_channel<Layer6x22>(x, weight_parts, weight_exponents, fallback_list, y, N);
}

extern "C" __global__ void __launch_bounds__(128 * MULTI_4_GROUPS + 128, MULTI_4_BLOCKS) conv_multi_channel_4_7_16(
    const float* __restrict__ x, const uint4* __restrict__ weight_parts, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    conv_multi_channel<Layer4>(x, weight_parts, weight_exponents, fallback_list, y, N);
}

// ---- The layer of one channel -------------------------------------------------------------------

extern "C" __global__ void split_single_channel_weights(
    const float* __restrict__ w, uint2* __restrict__ weight_fragments, int* __restrict__ exponents,
    int* __restrict__ fallback_list, int K)
{
    split_single_channel_weights_of(w, weight_fragments, exponents, fallback_list, true, K);
}

// Fetch the fragments of A for 16 runs in consecutive rows of pixels.
template <int W, int ROWS>
__device__ __forceinline__ void load_rows(uint2 (&rows)[ROWS], const unsigned* smem_pixels)
{
    #pragma unroll
    for (int row = 0; row < ROWS; ++row)
        rows[row] = make_uint2(smem_pixels[row * (W / 2)], smem_pixels[row * (W / 2) + 1]);
}

// Multiply 16 runs in ROWS rows of outputs by the weights: row r of the outputs meets row p of the kernel in row r + p
// of the pixels. hi * hi goes to `large`, the smaller products to `small`, because tensor cores cut off digits that do
// not fit beside a larger sum.
template <int ROWS, int K>
__device__ __forceinline__ void mma_rows(
    float (&large)[ROWS][4], float (&small)[ROWS][4], const uint2 (&hi)[ROWS + K - 1], const uint2 (&lo)[ROWS + K - 1],
    const uint2 (&weights)[K])
{
    #pragma unroll
    for (int p = 0; p + 1 < K; p += 2)
        #pragma unroll
        for (int product = 0; product < 3; ++product)  // hi * hi, hi * lo, lo * hi
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const uint2 (&pixels)[ROWS + K - 1] = product == 2 ? lo : hi;
                const unsigned b0 = product == 1 ? weights[p].y : weights[p].x;
                const unsigned b1 = product == 1 ? weights[p + 1].y : weights[p + 1].x;
                const uint4 a = make_uint4(pixels[r + p].x, pixels[r + p].y, pixels[r + p + 1].x, pixels[r + p + 1].y);
                mma_m16n8k16(product == 0 ? large[r] : small[r], a, b0, b1);
            }
    #pragma unroll
    for (int product = 0; product < 3; ++product)
        #pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const uint2 a = (product == 2 ? lo : hi)[r + K - 1];
            mma_m16n8k8(product == 0 ? large[r] : small[r], a.x, a.y,
                        product == 1 ? weights[K - 1].y : weights[K - 1].x);
        }
}

// Undo the scales of a lane's outputs and store them, four neighbours in each row.
template <int W_OUT, int ROWS>
__device__ __forceinline__ void store_rows(
    float* destination, const float (&large)[ROWS][4], const float (&small)[ROWS][4], float unscale)
{
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float (&l)[4] = large[r], (&s)[4] = small[r];
        *(float4*)(destination + r * W_OUT) = make_float4((l[0] + s[0]) * unscale, (l[1] + s[1]) * unscale,
                                                          (l[2] + s[2]) * unscale, (l[3] + s[3]) * unscale);
    }
}

// 1x86x86 * 4@7x7. A block takes one image after another, and the next waits in registers. A warp multiplies 16 runs of
// 8 pixels, each of which serves two neighbouring outputs, by the 8 columns of weights, in ROWS rows of outputs at a
// time: the pixels of a row are fetched once for all rows of the kernel that meet it.
extern "C" __global__ void __launch_bounds__(SINGLE_86_THREADS, SINGLE_86_BLOCKS) conv_single_channel_86_7(
    const float* __restrict__ x, const uint2* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N)
{
    constexpr int W = 86, K = 7, M = 4, ROWS = SINGLE_86_ROWS, THREADS = SINGLE_86_THREADS;
    constexpr int W_OUT = W - K + 1;
    constexpr int PAIRS = W * W / 2;  // of pixels
    constexpr int LOADS_PER_THREAD = (PAIRS + THREADS - 1) / THREADS;
    constexpr int RUNS_PER_ROW = W_OUT / 2;
    constexpr int RUNS = W_OUT / ROWS * RUNS_PER_ROW;  // of the first row of each band of ROWS
    static_assert(RUNS_PER_ROW % 2 == 0 && W_OUT % ROWS == 0 && RUNS % 16 == 0, "a lane's two runs are neighbours");

    extern __shared__ __align__(128) uint4 shared[];
    __shared__ unsigned warp_max[THREADS / 32];
    unsigned* const smem_hi = (unsigned*)shared;
    unsigned* const smem_lo = smem_hi + PAIRS;
    const int lane = threadIdx.x % 32;
    const int group_id = lane / 4;
    const int lane_in_group = lane % 4;
    const int channel = lane_in_group;
    const int channel_exponent = weight_exponents[channel];
    uint2 weights[K];
    #pragma unroll
    for (int p = 0; p < K; ++p) weights[p] = weight_fragments[p * 32 + lane];

    float2 values[LOADS_PER_THREAD];
    const auto load = [&](int image) {
        load_pairs(values, (const float2*)(x + (size_t)image * W * W), PAIRS, THREADS);
    };
    load(blockIdx.x);

    for (int image = blockIdx.x; image < N; image += gridDim.x) {
        // Its barrier also keeps the image before from being overwritten while it is read.
        const unsigned largest = block_max(max_magnitude(values), warp_max);
        const ImageScale image_scale = scale_of_image(largest);
        const int exponent = image_scale.exponent;
        const bool not_multiplied =
            largest >= INFINITY_BITS || scale_out_of_range_in_warp(exponent, weight_exponents, M);
        bool out_of_range = not_multiplied;
        split_pairs(values, smem_hi, smem_lo, PAIRS, THREADS, image_scale, out_of_range);
        if (image + gridDim.x < N) load(image + gridDim.x);
        float* const result = y + (size_t)image * (M * W_OUT * W_OUT);
        // The image is complete before anyone reads it.
        if (__syncthreads_or(out_of_range) && threadIdx.x == 0)
            append_fallback(fallback_list, image, not_multiplied ? OUT_OF_RANGE : exponent);
        if (not_multiplied) continue;

        const float unscale = power_of_two(exponent + channel_exponent - 2 * SCALE_EXPONENT);
        for (int first = threadIdx.x / 32 * 16; first < RUNS; first += THREADS / 32 * 16) {
            // Rows group_id and group_id + 8 of A are neighbouring runs, so that a lane's four outputs are one vector.
            const int run = first + 2 * group_id;
            const int top = run / RUNS_PER_ROW * ROWS;
            const int place = top * (W / 2) + run % RUNS_PER_ROW + lane_in_group;
            uint2 hi[ROWS + K - 1], lo[ROWS + K - 1];
            load_rows<W>(hi, smem_hi + place);
            load_rows<W>(lo, smem_lo + place);
            float large[ROWS][4] = {}, small[ROWS][4] = {};
            mma_rows(large, small, hi, lo, weights);
            store_rows<W_OUT>(result + (channel * W_OUT + top) * W_OUT + run % RUNS_PER_ROW * 2, large, small, unscale);
        }
    }
}
