// Layers of several channels by Hopper's wgmma, FP32 values as hi and lo FP16 parts.
//
// A holds pixels, 64 outputs of two rows to a tile; B the weights of all output channels, for two rows of the kernel. A
// pixel that was fetched to registers serves every row of the kernel that meets it. All but one of a block's warpgroups
// multiply; the last splits the images for them.

#pragma once

#include "async_copy.cuh"
#include "conv_channels_fetch.cuh"
#include "fp32_fallback.cuh"
#include "wgmma.cuh"

// A lane's sums, for each pair of rows of outputs in all channels. hi * hi goes to `large`, the smaller products to
// `small`, because tensor cores cut off digits that do not fit beside a larger sum.
template <class L> struct Sums {
    float large[L::ROWS / 2][L::M], small[L::ROWS / 2][L::M];

    // In a row of outputs: of the lane's channel i, the first or second of its columns.
    __device__ __forceinline__ float of(int i, int row, int second) const
    {
        const int d = row % 2 * L::M / 2 + i / 2 * 4 + second * 2 + i % 2;
        return large[row / 2][d] + small[row / 2][d];
    }
};

// The wgmma of a step for a pair of rows of outputs, with the rows of the kernel that meet its row of pixels, if any.
// The sums of a pair belong to one wgmma shape: ptxas would make wgmma wait for each other that share only some of
// their registers.
template <class L, int STEP, int PAIR>
__device__ __forceinline__ void wgmma_row_pair(Sums<L>& sums, Fragments& fragments, unsigned long long weights)
{
    constexpr int row = STEP / L::STEPS - 2 * PAIR;  // of pixels, from the pair's first
    constexpr int tail_step = STEP - L::ROWS_FETCHED * L::STEPS;
    constexpr int tail_begin = 2 * PAIR * L::TAIL_FETCHES, tail_end = tail_begin + (L::K + 1) * L::TAIL_FETCHES;
    constexpr bool meets = tail_step < 0 ? row >= 0 && row <= L::K
                                         : tail_step * 4 + 4 > tail_begin && tail_step * 4 < tail_end;
    if constexpr (meets) {
        constexpr bool add = tail_step >= 0 || row > 0 || STEP % L::STEPS > 0;
        constexpr int block = tail_step < 0 ? STEP % L::STEPS * (L::K + 1) + L::K - row
                                            : L::ROW_BLOCKS + tail_step * L::ROWS + 2 * PAIR;
        constexpr int hi_weights = block * L::M * 32 / 16, lo_weights = hi_weights + L::WEIGHT_BYTES / 2 / 16;
        wgmma_m64k16<2 * L::M, add>(sums.large[PAIR], fragments.hi[STEP % 3], weights + hi_weights);
        wgmma_m64k16<2 * L::M, add>(sums.small[PAIR], fragments.hi[STEP % 3], weights + lo_weights);
        wgmma_m64k16<2 * L::M, true>(sums.small[PAIR], fragments.lo[STEP % 3], weights + hi_weights);
    }
    if constexpr (2 * PAIR + 2 < L::ROWS) wgmma_row_pair<L, STEP, PAIR + 1>(sums, fragments, weights);
}

// The steps of a tile from STEP on. `weights` is the descriptor of the hi parts of a row's first 16 values.
template <class L, int STEP>
__device__ __forceinline__ void wgmma_steps(
    Sums<L>& sums, Fragments& fragments, const Fetch<L>& fetch, unsigned long long weights)
{
    wgmma_fence();
    wgmma_row_pair<L, STEP, 0>(sums, fragments, weights);
    wgmma_commit_group();
    if constexpr (STEP + 1 < L::ALL_STEPS) {
        wgmma_wait_group<1>();  // what the step before has read may be written
        if constexpr (STEP + 2 < L::ALL_STEPS) fetch.template fetch<STEP + 2>(fragments);
        wgmma_steps<L, STEP + 1>(sums, fragments, fetch, weights);
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
    unsigned (*warp_max)[4];  // of the images in the slots, and of their pooled results
    // Of a slot, the largest of four warps': twice the image's exponent, and 1 more where some of its values are too
    // small for FP16 parts; or OUT_OF_RANGE where the image is not multiplied.
    int (*warp_state)[4];

    __device__ __forceinline__ float* results(int slot) const
    {
        return (float*)(image(slot) + L::IMAGE_WORDS);
    }

    __device__ __forceinline__ unsigned* image(int slot) const { return slots + slot * L::SLOT_WORDS; }

    __device__ __forceinline__ int state(int slot) const
    {
        const int* of_warps = warp_state[slot];
        return max(max(of_warps[0], of_warps[1]), max(of_warps[2], of_warps[3]));
    }

    // Wait until the slot of a turn is empty, store the pooled results that are in it and the exponent of the largest,
    // and leave zeros for the next.
    __device__ __forceinline__ void store_pooled(float* __restrict__ y, int* __restrict__ y_exponents, int turn) const
    {
        const int slot = turn % 2;
        const size_t image = blockIdx.x + turn * gridDim.x;
        mbarrier_wait(empty + slot, turn / 2);
        float* const pooled = results(slot);
        unsigned largest = 0;
        for (int i = threadIdx.x % 128; i < L::RESULT_FLOATS; i += 128) {
            y[image * L::RESULT_FLOATS + i] = pooled[i];
            largest = max(largest, __float_as_uint(pooled[i]));
            pooled[i] = 0.0f;
        }
        largest = __reduce_max_sync(0xffffffffu, largest);
        if (threadIdx.x % 32 == 0) warp_max[2 + slot][threadIdx.x % 128 / 32] = largest;
        warpgroup_barrier(RESULTS_STORED);
        for (int i = 0; i < 4; ++i) largest = max(largest, warp_max[2 + slot][i]);
        if (threadIdx.x % 128 == 0) y_exponents[image] = exponent_of(largest);
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
        constexpr int CHANNELS = L::C % 4 ? 2 : 4;  // hi parts together, then lo parts
        bool too_small = false;
        #pragma unroll
        for (int r = 0; r < L::LOADS_PER_THREAD; ++r) {
            const int pixel = thread + r * 128;
            if (pixel >= L::H * L::W) break;
            unsigned* const to = image(slot) + row_of<L>(pixel / L::W) + column_of<L>(pixel % L::W);
            #pragma unroll
            for (int c = 0; c < L::C; c += CHANNELS) {
                unsigned larger = 0;
                #pragma unroll
                for (int each = c; each < c + CHANNELS; ++each)
                    larger = max(larger, magnitude_bits(values[r][each]));
                too_small |= larger != 0 && __uint_as_float(larger) < least;
                const uint2 first = split(values[r][c] * scale, values[r][c + 1] * scale);
                if constexpr (CHANNELS == 4) {
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
        const float* __restrict__ x, const int* __restrict__ weight_exponents, float* __restrict__ y,
        int* __restrict__ y_exponents, int N) const
    {
        const auto store_results = [&](int turn) {
            if constexpr (L::POOL > 0)
                store_pooled(y, y_exponents, turn);
            else
                store(y, turn);
        };
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
            if (turn >= 2) store_results(turn - 2);
            bool too_small = split_pixels(slot, values, thread, scale, least);
            if (L::RESULTS_IN_SMEM && !L::POOL) {
                if (thread == 0) bulk_wait_read();
                warpgroup_barrier(RESULTS_STORED);
            }
            too_small = __any_sync(0xffffffffu, too_small);
            if (thread % 32 == 0)
                warp_state[slot][thread / 32] = not_multiplied ? OUT_OF_RANGE : 2 * exponent + too_small;
            mbarrier_arrive(full + slot);
        }
        if (!L::RESULTS_IN_SMEM) return;
        for (int last = max(turn - 2, 0); last < turn; ++last) store_results(last);
        if (!L::POOL) bulk_wait();
    }
};

// What the kernel reads and writes. w, which images that are not multiplied need, and y_exponents, of each image's
// largest result: with POOL. fallback_list: without.
struct ChannelsArrays {
    const float* __restrict__ x;
    const float* __restrict__ w;
    const uint4* __restrict__ weight_parts;
    const int* __restrict__ weight_exponents;
    int* __restrict__ fallback_list;
    float* __restrict__ y;
    int* __restrict__ y_exponents;
    int N;
};

// Raise the pooled result of the window that an output is in. None is negative, so bits are in the order of the values.
template <class L>
__device__ __forceinline__ void raise_window(float* pooled, int channel, int row, int column, float output)
{
    float* const window = pooled + channel * L::WINDOWS + row / L::POOL * L::WINDOWS_PER_ROW + column / L::POOL;
    if (!(output <= 0.0f)) atomicMax((int*)window, __float_as_int(output));
}

// Compute an image in FP32 and pool it; the threads of all warpgroups that multiply share its outputs.
template <class L>
__device__ __noinline__ void pool_image_fp32(float* pooled, const float* __restrict__ x, const float* __restrict__ w)
{
    constexpr int OUTPUTS = L::H_OUT * L::W_OUT;
    for (int i = threadIdx.x; i < L::M * OUTPUTS; i += 128 * L::GROUPS) {
        const float output = conv_output_fp32(x, w, L::C, L::H, L::W, L::K, i);
        raise_window<L>(pooled, i / OUTPUTS, i % OUTPUTS / L::W_OUT, i % L::W_OUT, output);
    }
}

// Pool a tile. A lane's two columns lie in one window.
template <class L>
__device__ __forceinline__ void pool_tile(
    float* pooled, const Sums<L>& sums, const int (&channel_exponents)[L::M / 4], int exponent, int column,
    int lane_in_group)
{
    if (column >= L::COLUMNS) return;
    const int rows = L::H_OUT - column / L::W_OUT * L::ROWS;
    #pragma unroll
    for (int i = 0; i < L::M / 4; ++i) {
        float largest = 0.0f;
        #pragma unroll
        for (int r = 0; r < L::ROWS; ++r) {
            if (r >= rows) break;
            largest = fmaxf(largest, fmaxf(sums.of(i, r, 0), sums.of(i, r, 1)));
        }
        const float unscale = power_of_two(exponent + channel_exponents[i] - 2 * SCALE_EXPONENT);
        raise_window<L>(pooled, i / 2 * 8 + lane_in_group * 2 + i % 2, column / L::W_OUT * L::ROWS, column % L::W_OUT,
                        largest * unscale);
    }
}

// Store a tile, pairs of columns. Lanes of odd lane_in_group store each two rows in the other order: into other banks.
template <class L>
__device__ __forceinline__ void store_pairs(
    float* result, const Sums<L>& sums, const int (&channel_exponents)[L::M / 4], int exponent, int column,
    int lane_in_group)
{
    constexpr int APART = L::FETCH_KIND == PAIRS_OF_4_CHANNELS ? 2 : 1;  // the two rows
    if (column >= L::COLUMNS) return;
    const bool odd = lane_in_group % 2;
    const int row = column / L::W_OUT * L::ROWS;
    float* const destination = result + (lane_in_group * 2 * L::H_OUT + row) * L::W_OUT + column % L::W_OUT;
    #pragma unroll
    for (int i = 0; i < L::M / 4; ++i) {
        const float unscale = power_of_two(exponent + channel_exponents[i] - 2 * SCALE_EXPONENT);
        #pragma unroll
        for (int r = 0; r < L::ROWS; ++r) {
            const float2 here = make_float2(sums.of(i, r, 0), sums.of(i, r, 1));
            const float2 other = make_float2(sums.of(i, r ^ APART, 0), sums.of(i, r ^ APART, 1));
            const int stored = odd ? r ^ APART : r;
            float* const channel = destination + ((i / 2 * 8 + i % 2) * L::H_OUT + stored) * L::W_OUT;
            if (L::H_OUT % L::ROWS == 0 || row + stored < L::H_OUT)
                *(float2*)channel =
                    make_float2((odd ? other.x : here.x) * unscale, (odd ? other.y : here.y) * unscale);
        }
    }
}

// Store a tile of any columns.
template <class L>
__device__ __forceinline__ void store_columns(
    float* result, const Sums<L>& sums, const int (&channel_exponents)[L::M / 4], int exponent, int first_column,
    int lane_in_group)
{
    const bool odd = lane_in_group % 2;
    const int column = first_column + 2 * odd;
    const int row = column / L::W_OUT * L::ROWS;
    float* const destination = result + (lane_in_group / 2 * 4 * L::H_OUT + row) * L::W_OUT + column % L::W_OUT;
    // Neighbouring lanes swap values, so that 16 columns of a channel are stored at once.
    #pragma unroll
    for (int i = 0; i < L::M / 4; ++i) {
        const float unscale = power_of_two(exponent + channel_exponents[i] - 2 * SCALE_EXPONENT);
        #pragma unroll
        for (int r = 0; r < L::ROWS; ++r) {
            const float first = sums.of(i, r, 0) * unscale, second = sums.of(i, r, 1) * unscale;
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

// Multiply one image of the block after another by all weights. Warpgroup `group` takes one tile after another.
template <class L>
__device__ __forceinline__ void multiply_images(
    const ImagePipeline<L>& images, unsigned long long weights, const ChannelsArrays& arrays, int group)
{
    const int* __restrict__ const weight_exponents = arrays.weight_exponents;
    const int lane = threadIdx.x % 32;
    const int group_id = lane / 4;
    const int lane_in_group = lane % 4;
    int channel_exponents[L::M / 4];
    #pragma unroll
    for (int i = 0; i < L::M / 4; ++i) channel_exponents[i] = weight_exponents[i / 2 * 8 + 2 * lane_in_group + i % 2];

    Fetch<L> fetch(lane_in_group);
    const int first_column = threadIdx.x % 128 / 32 * 16 + Fetch<L>::column(group_id);
    int turn = 0;
    int tile = group;
    for (int image = blockIdx.x; image < arrays.N; image += gridDim.x, ++turn) {
        const int slot = turn % 2;
        const auto release = [&] {
            if (L::RESULTS_IN_SMEM && !L::POOL) fence_proxy_async_shared();
            mbarrier_arrive(images.empty + slot);
        };
        float* const result = arrays.y + (size_t)image * L::RESULT_FLOATS;
        mbarrier_wait(images.full + slot, turn / 2);
        const int state = images.state(slot);
        const int exponent = state >> 1;
        const bool not_multiplied = state == OUT_OF_RANGE;
        if (!L::POOL && (state & 1 || not_multiplied) && threadIdx.x == 0)
            append_fallback(arrays.fallback_list, image, not_multiplied ? OUT_OF_RANGE : exponent);
        if (not_multiplied) {
            if constexpr (L::POOL > 0)
                pool_image_fp32<L>(images.results(slot), arrays.x + (size_t)image * L::IMAGE_FLOATS, arrays.w);
            release();
            continue;
        }

        #pragma unroll 1
        for (; tile < L::TILES; tile += L::GROUPS) {
            const int column = tile * 64 + first_column;
            fetch.set(images.image(slot), column, lane_in_group);
            Sums<L> sums;
            Fragments fragments;
            fetch.template fetch<0>(fragments);
            fetch.template fetch<1>(fragments);
            wgmma_steps<L, 0>(sums, fragments, fetch, weights);

            float* const to = L::RESULTS_IN_SMEM ? images.results(slot) : result;
            if constexpr (L::POOL > 0)
                pool_tile<L>(to, sums, channel_exponents, exponent, column, lane_in_group);
            else if constexpr (L::PAIRS)
                store_pairs<L>(to, sums, channel_exponents, exponent, column, lane_in_group);
            else
                store_columns<L>(to, sums, channel_exponents, exponent, column, lane_in_group);
        }
        tile -= L::TILES;
        release();
    }
}

// A block takes one image after another. Its last warpgroup splits them, the others multiply.
template <class L>
__device__ __forceinline__ void conv_channels(const ChannelsArrays& arrays)
{
    extern __shared__ __align__(128) uint4 shared[];
    __shared__ unsigned warp_max[L::POOL ? 4 : 2][4];
    __shared__ int warp_state[2][4];
    unsigned* const slots = (unsigned*)(shared + L::WEIGHT_BYTES / 16);
    unsigned long long* const barriers = (unsigned long long*)(slots + 2 * L::SLOT_WORDS);
    const ImagePipeline<L> images = {slots, barriers, barriers + 2, warp_max, warp_state};
    if (threadIdx.x < 2) mbarrier_init(images.full + threadIdx.x, 128);
    if (threadIdx.x < 2) mbarrier_init(images.empty + threadIdx.x, 128 * L::GROUPS);

    for (int i = threadIdx.x; i < L::WEIGHT_BYTES / 16; i += L::THREADS) shared[i] = arrays.weight_parts[i];
    // What lies beside an image meets weights of zero, or gives outputs that are not there, but must be a number.
    for (int i = threadIdx.x; i < 2 * L::SLOT_WORDS; i += L::THREADS) slots[i] = 0;
    // Tensor cores read the weights through the asynchronous proxy.
    fence_proxy_async_shared();
    __syncthreads();

    // The shuffle tells the compiler that `group` is the same for all lanes. It would otherwise serialize the wgmma.
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (group == L::GROUPS) {
        images.produce(arrays.x, arrays.weight_exponents, arrays.y, arrays.y_exponents, arrays.N);
        return;
    }
    multiply_images<L>(images, wgmma_descriptor(smem_address(shared)), arrays, group);
}

// Where the launcher reads what it must know: output channels, bytes of their weights' parts, and bytes of a block's
// shared memory.
template <class L>
__device__ void write_channels_layout(int* layout)
{
    layout[0] = L::M;
    layout[1] = L::WEIGHT_BYTES;
    layout[2] = L::SHARED_BYTES;
}
