/*
title:     Fully connected layer by wgmma
idea:      'cuBLAS needs a GEMM for each share of the inputs, because tensor cores lose digits in long sums. Each reads and
           writes all sums, and the sums of a share are still too long for FP32 accuracy. Here one kernel multiplies. It
           adds the products of 32 inputs by themselves, and keeps its sums in registers. The first layer writes its
           results where the TMA wants them: one bulk copy brings 32 inputs of 128 images.
           Fetched by cp.async, inputs would cross from the L2 cache twice. Blocks share the inputs of all tiles evenly
           (stream-K), so that no multiprocessor waits for another. The last layer adds up what they share, for five
           images a warp. One CUDA graph launches all. Up to 300 images, nothing changes.'
expect:    At 10,000 images the fully connected layer takes 15 to 40 % less time, most where it has few outputs. The first
           layer takes up to 10 % more, as it writes memory in smaller pieces. Networks take 7 to 14 % less. The errors
           fall to a quarter or less.
builds_on: fused_runs
split:     {precision: fp16, products: 3}
method:    any
least_arch: sm_90a
reference: https://arxiv.org/abs/2301.03598
*/

#include "fused_runs.cu"

#include "dense_wgmma.cuh"

// ---- First layers ------------------------------------------------------------------------------------
// Split, where the fully connected layer wants them.

// Stores the parts of an activated value in tiles, a stage of which has 16 values of two channels: of a pair of channels
// all values, `sixteens` stages, and then of the next pair.
__device__ __forceinline__ void store_in_tiles(
    __half* y, int image, int channel, int i, float value, int sixteens, int stages)
{
    const uint2 parts = split(value * power_of_two(SCALE_EXPONENT), 0.0f);
    __half* const place = dense_place(y, image, channel / 2 * sixteens + i / 16, channel % 2 * 16 + i % 16, stages);
    place[0] = __ushort_as_half(parts.y);
    place[DENSE_HI] = __ushort_as_half(parts.x);
}

// What the first layers of runs store. In conv_pool_runs a lane has one of each 8 columns' channels, and an `i` that lies
// twice its group_id behind a multiple of 16: so a lane's places differ by whole stages.
template <class Of> struct StoreTiledRuns {
    static constexpr int SIXTEENS = (Of::WINDOWS + 15) / 16, STAGES = Of::M / 2 * SIXTEENS;
    static constexpr int PLANE = SIXTEENS * 8;  // of conv_pool_runs: 16 values further, or two channels, is a stage further
    static_assert(Of::M % 2 == 0, "pairs of channels");
    __half* __restrict__ y;

    // Of two neighbouring values.
    __device__ void store_words(int image, int i, unsigned hi, unsigned lo) const
    {
        const int lane_channel = Of::SHIFTS == 4 ? threadIdx.x % 4 / 2 : threadIdx.x % 4, within = threadIdx.x / 4 % 8 * 2;
        __half* const of_lane =
            dense_place(y, image, lane_channel / 2 * SIXTEENS, lane_channel % 2 * 16 + within, STAGES);
        const int further = i - lane_channel * PLANE - within;
        unsigned* const place = (unsigned*)(of_lane + (long long)further * (DENSE_X_BYTES / 32));
        place[0] = lo;
        place[DENSE_HI / 2] = hi;
    }
    // As StoreSplit's. Here of two neighbouring lanes one stores the first values of both, the other the second ones.
    __device__ void store_pair(int image, int, int i, int distance, float2 values, bool first, bool second) const
    {
        const bool odd = threadIdx.x % 2;
        const uint2 parts = split(values.x * power_of_two(SCALE_EXPONENT), values.y * power_of_two(SCALE_EXPONENT));
        const unsigned hi = __shfl_xor_sync(0xffffffffu, parts.x, 1), lo = __shfl_xor_sync(0xffffffffu, parts.y, 1);
        if (odd ? second : first)
            store_words(image, odd ? i - 1 + distance : i, __byte_perm(parts.x, hi, odd ? 0x3276 : 0x5410),
                        __byte_perm(parts.y, lo, odd ? 0x3276 : 0x5410));
    }
};

// As StoreSplit's.
template <bool EVEN, class L>
__device__ __forceinline__ void store_neighbours(
    const StoreTiledRuns<L>& epilogue, int image, int, int i, float2 values, bool first, bool)
{
    static_assert(EVEN, "both parts of two values are a word each");
    const uint2 parts = split(values.x * power_of_two(SCALE_EXPONENT), values.y * power_of_two(SCALE_EXPONENT));
    if (first) epilogue.store_words(image, i, parts.x, parts.y);
}

// The results of an image that is computed in FP32, whose channels follow each other.
template <class L, class Of> struct StoreInPlanes<L, StoreTiledRuns<Of>> {
    StoreTiledRuns<Of> epilogue;

    __device__ void store(int image, int, int i, float value) const
    {
        using Tiled = StoreTiledRuns<Of>;
        store_in_tiles(epilogue.y, image, i / Of::WINDOWS, i % Of::WINDOWS, value, Tiled::SIXTEENS, Tiled::STAGES);
    }
};

// What the first layer of windows stores of such an image, and where.
struct StoreTiledWindows {
    static constexpr int SIXTEENS = PoolWindows28::WINDOWS / 16;
    __half* __restrict__ y;
    int M;

    __device__ int stages() const { return (M + 1) / 2 * SIXTEENS; }
    __device__ void store(int image, int, int i, float value) const
    {
        using L = PoolWindows28;
        store_in_tiles(y, image, i / L::WINDOWS, i % L::WINDOWS, value, SIXTEENS, stages());
    }
};

// As conv_pool_split_wgmma_28_5.
extern "C" __global__ void __launch_bounds__(128, POOL_SPLIT_28_BLOCKS) conv_pool_tiled_28_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N, int M)
{
    using L = PoolWindows28;
    extern __shared__ __align__(128) unsigned smem_hi[];  // the name that conv_pool_single_channel gives it
    __shared__ unsigned warp_max[4];
    __shared__ int2 unscale_bits[L::CHANNELS / 2];
    load_unscale_bits(unscale_bits, weight_exponents);
    unsigned* const smem_images = smem_hi + L::WEIGHT_BYTES / 4;
    unsigned* const stages = smem_images + 8 * L::WORDS;  // two: one is written while the other is stored
    copy_weights((uint4*)smem_hi, weight_parts);

    // Not wgmma_descriptor, with which the compiler schedules this kernel otherwise.
    const unsigned long long weights = ((unsigned)__cvta_generic_to_shared(smem_hi) & 0x3ffff) >> 4 | WGMMA_STRIDES;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group_id = lane / 4, lane_in_group = lane % 4;
    const StoreTiledWindows epilogue = {y, M};
    // What a thread stores: 8 channels of neighbouring lanes lie in different banks, and 16 windows of two are 64 bytes.
    const int first_channel = threadIdx.x % 8 + threadIdx.x / 64 * 8, lo_part = threadIdx.x / 32 % 2;
    const int sixteen = threadIdx.x / 16 % 2, eighth = threadIdx.x / 8 % 2;
    const int staged_place = lo_part * L::LO_STAGE + first_channel * L::LINE + sixteen * 8 + eighth * 4;
    int word_offsets[4];
    find_window_words(word_offsets, lane_in_group);
    ImageWords words;
    const int image_of_warp = threadIdx.x / 64;
    load_words(words, x, 2 * blockIdx.x + image_of_warp, N);

    for (int first = 2 * blockIdx.x; first < N; first += 2 * gridDim.x) {
        store_warp_max(warp_max, words, warp, lane);
        // Also keeps the images before from being overwritten while they are read.
        __syncthreads();
        const unsigned largest_first = max(warp_max[0], warp_max[1]), largest_second = max(warp_max[2], warp_max[3]);
        const int exponent_first = exponent_of(largest_first), exponent_second = exponent_of(largest_second);
        const float scale = power_of_two(min(SCALE_EXPONENT - (image_of_warp ? exponent_second : exponent_first), 127));
        const bool out_of_range = max(largest_first, largest_second) >= INFINITY_BITS
                                  || scale_out_of_range(exponent_first, weight_exponents, M)
                                  || scale_out_of_range(exponent_second, weight_exponents, M);
        split_words(smem_images + image_of_warp * 4 * L::WORDS, words, scale);
        if (first + 2 * gridDim.x < N) load_words(words, x, first + 2 * gridDim.x + image_of_warp, N);
        // The images are complete before anyone reads them.
        if (__syncthreads_or(out_of_range)) {
            for (int image = first; image < min(first + 2, N); ++image)
                conv_pool_image_fp32(
                    FloatInput{x + (size_t)image * L::W * L::W}, w, epilogue, image, L::W, L::W, M, L::K, TANH);
            continue;
        }

        // The two images are neighbours in the same tile, and of the same order there.
        __half* const of_images = dense_place(y, first, first_channel / 2 * epilogue.SIXTEENS,
                                              first_channel % 2 * 16 + eighth * 8, epilogue.stages())
                                  + (lo_part ? 0 : DENSE_HI);
        #pragma unroll 1
        for (int tile = 0; tile < L::TILES; ++tile) {
            const int first_window = tile * 32 + warp * 8;  // of the warp's eight, among those of both images
            const int second = first_window >= L::WINDOWS;
            const int exponent = second ? exponent_second : exponent_first;
            const int window = first_window - second * L::WINDOWS + group_id;
            float sums[2][28];
            multiply_windows(sums, corner_of(smem_images + second * 4 * L::WORDS, window), word_offsets, weights);

            unsigned* const stage = stages + tile % 2 * L::STAGE;
            const int odd = group_id % 2;
            const unsigned selector = odd ? 0x3276 : 0x5410;
            #pragma unroll
            for (int i = 0; i < 28; i += 4) {
                const int channel = i * 2 + 2 * lane_in_group;
                // Of two neighbouring windows one lane writes the first channel, the other the second.
                const uint2 parts = pool_channels(sums, i, unscale_bits[channel / 2], exponent);
                const uint2 other = shuffle_parts(parts);
                unsigned* const to = stage + (channel + odd) * L::LINE + warp * 4 + group_id / 2;
                to[0] = __byte_perm(parts.x, other.x, selector);
                to[L::LO_STAGE] = __byte_perm(parts.y, other.y, selector);
            }
            // Also keeps the other stage, which everyone has read before coming here, for the next tile.
            __syncthreads();
            const int sixteenth = tile * 2 + sixteen;  // 16 windows, of the second image from SIXTEENS on
            const bool in_second = sixteenth >= epilogue.SIXTEENS;
            if (first + in_second >= N) continue;
            __half* const to = of_images + in_second * DENSE_INPUTS
                               + (sixteenth - in_second * epilogue.SIXTEENS) * (DENSE_X_BYTES / 2);
            #pragma unroll
            for (int further = 0; further < L::CHANNELS; further += 16)
                if (first_channel + further < M)
                    *(uint4*)(to + further / 2 * epilogue.SIXTEENS * (DENSE_X_BYTES / 2)) =
                        *(const uint4*)(stage + staged_place + further * L::LINE);
        }
    }
}

using TiledRuns48 = PooledRuns<5, 48, 6, 2, TANH, StoreTiledRuns<SplitRuns48>::PLANE>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_tiled_runs_48_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N)
{
    conv_pool_runs<TiledRuns48>(x, w, weight_parts, weight_exponents, StoreTiledRuns<SplitRuns48>{y}, N);
}

using TiledRuns64 = PooledRuns<5, 64, 6, 2, TANH, StoreTiledRuns<SplitRuns64>::PLANE>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_tiled_runs_64_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N)
{
    conv_pool_runs<TiledRuns64>(x, w, weight_parts, weight_exponents, StoreTiledRuns<SplitRuns64>{y}, N);
}

using TiledRuns72 = PooledRuns<7, 72, 12, 1, TANH, StoreTiledRuns<SplitRuns72>::PLANE>;

extern "C" __global__ void __launch_bounds__(128, RUNS_BLOCKS) conv_pool_tiled_runs_72_7(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N)
{
    conv_pool_runs<TiledRuns72>(x, w, weight_parts, weight_exponents, StoreTiledRuns<SplitRuns72>{y}, N);
}

// ---- The last layer ----------------------------------------------------------------------------------

// Adds up values of each lane over a warp, twice HALF of them and twice OFFSET lanes. A lane gets the sums of two, those
// from twice its number on.
template <int HALF = 32, int OFFSET = 16> __device__ __forceinline__ float2 warp_sums(float (&values)[2 * HALF])
{
    const bool upper = threadIdx.x & OFFSET;
    float kept[HALF];
    #pragma unroll
    for (int i = 0; i < HALF; ++i) {
        const float given = upper ? values[i] : values[i + HALF];
        kept[i] = (upper ? values[i + HALF] : values[i]) + __shfl_xor_sync(0xffffffffu, given, OFFSET);
    }
    if constexpr (OFFSET > 1)
        return warp_sums<HALF / 2, OFFSET / 2>(kept);
    else
        return make_float2(kept[0], kept[1]);
}

// What classify does, for shares of dense_wgmma, inputs that are at most 1, and up to 10 classes. A warp has five images
// of a tile, for which it reads the weights of the last layer once. `blocks` of a column share `stages`, `steps` a tile.
extern "C" __global__ void __launch_bounds__(256, 2) classify_shares(
    const float* __restrict__ partial, const int* __restrict__ weight_exponents, const float* __restrict__ b,
    const float* __restrict__ w_last, const float* __restrict__ b_last, float* __restrict__ scores,
    int* __restrict__ labels, int N, int padded, int hidden, int classes, int stages, int steps, int blocks)
{
    constexpr int IMAGES = 5, CLASSES = 10, GROUPS = (DENSE_ROWS + IMAGES - 1) / IMAGES;  // of a tile
    constexpr int ILP = 4;  // hidden values that a lane adds up side by side
    extern __shared__ __align__(128) unsigned smem_hi[];
    __shared__ float2 totals[8][32];
    float* const weights = (float*)smem_hi;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = blockIdx.x * 8 + warp, tile = group / GROUPS;
    const int first = tile * DENSE_ROWS + group % GROUPS * IMAGES;
    const int count = min(IMAGES, min((tile + 1) * DENSE_ROWS, N) - first);
    const int shares = count > 0 ? block_of_stage(tile * steps + steps - 1, stages, blocks)
                                       - block_of_stage(tile * steps, stages, blocks) + 1 : 0;
    float sums[ILP][IMAGES];
    const auto load = [&](int start) {
        #pragma unroll
        for (int j = 0; j < ILP; ++j)
            #pragma unroll
            for (int i = 0; i < IMAGES; ++i) sums[j][i] = 0.0f;
        for (int share = 0; share < shares; ++share)
            #pragma unroll
            for (int j = 0; j < ILP; ++j)
                #pragma unroll
                for (int i = 0; i < IMAGES; ++i)
                    sums[j][i] += partial[((size_t)share * N + first + min(i, count - 1)) * padded
                                          + min(start + j * 32, padded - 1)];
    };
    load(lane);  // under way while the weights come
    #pragma unroll 8
    for (int i = threadIdx.x; i < CLASSES * hidden; i += 256) weights[i] = i < classes * hidden ? w_last[i] : 0.0f;
    __syncthreads();

    float results[64] = {};  // of each image's classes
    for (int start = lane;;) {
        #pragma unroll
        for (int j = 0; j < ILP; ++j) {
            const int unit = start + j * 32;
            if (unit >= hidden) break;
            const float2 unscale = scale_factors(weight_exponents[unit] - 2 * SCALE_EXPONENT);
            const float bias = b[unit];
            #pragma unroll
            for (int i = 0; i < IMAGES; ++i) {
                const float value = tanh_of(sums[j][i] * unscale.x * unscale.y + bias);
                #pragma unroll
                for (int c = 0; c < CLASSES; ++c) results[i * CLASSES + c] += value * weights[c * hidden + unit];
            }
        }
        start += ILP * 32;
        if (start - lane >= hidden) break;
        load(start);
    }
    totals[warp][lane] = warp_sums(results);
    __syncwarp();
    const float* const found = (const float*)totals[warp];
    for (int i = lane; i < count * classes; i += 32)
        scores[(size_t)first * classes + i] = found[i / classes * CLASSES + i % classes] + b_last[i % classes];
    if (lane >= count) return;
    int label = 0;
    float largest = found[lane * CLASSES] + b_last[0];
    for (int c = 1; c < classes; ++c) {
        const float score = found[lane * CLASSES + c] + b_last[c];
        if (score > largest) {
            largest = score;
            label = c;
        }
    }
    labels[first + lane] = label;
}
