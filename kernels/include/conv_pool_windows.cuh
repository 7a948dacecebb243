// A first layer of many output channels and its pooling by Hopper's wgmma, FP32 values as hi and lo FP16 parts. It is a
// GEMM of 64 outputs by 25 weights of 56 channels.
//
// Tensor cores take the weights from shared memory. The pixels come as words of two neighbours from one of two copies
// of the image, one for even columns and one for odd ones. The four outputs of a pooling window lie in one lane, which
// keeps the largest, activates and splits it.

#pragma once

#include "async_copy.cuh"
#include "conv_single_channel.cuh"
#include "dense_wgmma.cuh"
#include "dependent_launch.cuh"
#include "tanh.cuh"
#include "wgmma.cuh"

// Splits the weights of one output channel a block, M of them and zeros behind, into the order of wgmma's B: 8 channels
// x 8 weights are 128 bytes, the next 8 weights follow, then the next 8 channels, then the next 16 weights; all lo
// parts follow all hi parts. A row of 5 weights takes 6 values, the last of them zero.
extern "C" __global__ void split_window_weights(
    const float* __restrict__ w, __half* __restrict__ weight_parts, int* __restrict__ exponents, int M)
{
    __shared__ unsigned warp_max[32];
    const int channel = blockIdx.x;
    const int channels = gridDim.x;
    const float* weights = w + (size_t)channel * 25;

    unsigned largest = threadIdx.x < 25 && channel < M ? magnitude_bits(weights[threadIdx.x]) : 0;
    largest = block_max(largest, warp_max);
    const int exponent = exponent_of(largest);
    if (threadIdx.x == 0) exponents[channel] = largest < INFINITY_BITS ? exponent : OUT_OF_RANGE;
    const float2 scale = scale_factors(SCALE_EXPONENT - exponent);
    if (threadIdx.x >= 32) return;

    const int i = threadIdx.x;
    const int p = i / 6;
    const int q = i % 6;
    const uint2 split_weight =
        split(channel < M && p < 5 && q < 5 ? weights[p * 5 + q] * scale.x * scale.y : 0.0f, 0.0f);
    __half* const hi =
        weight_parts + ((i / 16 * channels + channel / 8 * 8) * 2 + i % 16 / 8 * 8) * 8 + channel % 8 * 8 + i % 8;
    hi[0] = __ushort_as_half(split_weight.x);
    hi[32 * channels] = __ushort_as_half(split_weight.y);
}

// 1x28x28 * M@5x5 with M up to 56, pooled 2 x 2, tanh, and split. A block, one warpgroup, takes two images at a time; the
// next two wait in registers. A row of A is an output in the top or the bottom row of a pooling window: rows group_id in
// its left column, rows group_id + 8 in its right.
struct PoolWindows28 {
    static constexpr int W = 28, K = 5, CHANNELS = 56;
    static constexpr int WINDOWS_PER_ROW = (W - K + 1) / 2;
    static constexpr int WINDOWS = WINDOWS_PER_ROW * WINDOWS_PER_ROW;  // of an image
    static constexpr int WORDS = W * W / 2;                            // of a copy of an image
    static constexpr int WEIGHT_BYTES = 2 * 32 * CHANNELS * 2;
    // A stage of results: for each channel, words of 32 windows and a gap that keeps lanes out of each other's banks;
    // all hi parts, and from LO_STAGE on all lo parts. stmatrix stores 64 channels.
    static constexpr int LINE = 20, LO_STAGE = 64 * LINE, STAGE = 2 * LO_STAGE;
    // Shared memory: the weights; for two images, hi and lo parts of two copies; two stages of results.
    static constexpr int SHARED_BYTES = WEIGHT_BYTES + 8 * WORDS * 4 + 2 * STAGE * 4;
    static constexpr int LOADS_PER_THREAD = (WORDS + 63) / 64;  // two warps load an image
    static constexpr int TILES = 2 * WINDOWS / 32;
    static_assert(2 * WINDOWS % 32 == 0 && WINDOWS % 8 == 0, "a warp's windows are of one image");
};

// Where the launcher reads what it must know: output channels with those of zeros, bytes of their weights' parts, and
// bytes of a block's shared memory.
extern "C" __global__ void pool_windows_layout(int* __restrict__ layout)
{
    layout[0] = PoolWindows28::CHANNELS;
    layout[1] = PoolWindows28::WEIGHT_BYTES;
    layout[2] = PoolWindows28::SHARED_BYTES;
}

// A thread's words of an image, and the number following each. Behind a row that meets a weight of zero, and a thread
// that has no word has that of another.
struct ImageWords {
    float2 values[PoolWindows28::LOADS_PER_THREAD];
    float following[PoolWindows28::LOADS_PER_THREAD];
};

// Load an image, the last one where there is no such image, to the registers of two warps.
__device__ __forceinline__ void load_words(ImageWords& words, const float* x, int image, int N)
{
    constexpr int W = PoolWindows28::W;
    const float* source = x + (size_t)min(image, N - 1) * W * W;
    #pragma unroll
    for (int r = 0; r < PoolWindows28::LOADS_PER_THREAD; ++r) {
        const int word = min(threadIdx.x % 64 + r * 64, PoolWindows28::WORDS - 1);
        words.values[r] = ((const float2*)source)[word];
        words.following[r] = source[min(2 * word + 2, W * W - 1)];
    }
}

__device__ __forceinline__ void store_warp_max(unsigned (&warp_max)[4], const ImageWords& words, int warp, int lane)
{
    const unsigned largest = __reduce_max_sync(0xffffffffu, max_magnitude(words.values));
    if (lane == 0) warp_max[warp] = largest;
}

// Split an image to shared memory: hi parts of two copies, in which a word begins with an even column or with an odd
// one, and then their lo parts.
__device__ __forceinline__ void split_words(unsigned* smem_image, const ImageWords& words, float scale)
{
    constexpr int WORDS = PoolWindows28::WORDS;
    #pragma unroll
    for (int r = 0; r < PoolWindows28::LOADS_PER_THREAD; ++r) {
        const int word = threadIdx.x % 64 + r * 64;
        if (word >= WORDS) break;
        unsigned* const place = smem_image + word;
        const uint2 even = split(words.values[r].x * scale, words.values[r].y * scale);
        const uint2 last = split(words.following[r] * scale, 0.0f);
        place[0] = even.x;
        place[WORDS] = __byte_perm(even.x, last.x, 0x5432);
        place[2 * WORDS] = even.y;
        place[3 * WORDS] = __byte_perm(even.y, last.y, 0x5432);
    }
}

// Copy all weights to shared memory. Tensor cores read them through the asynchronous proxy.
__device__ __forceinline__ void copy_weights(uint4* smem_weights, const uint4* weight_parts)
{
    for (int i = threadIdx.x; i < PoolWindows28::WEIGHT_BYTES / 16; i += 128) smem_weights[i] = weight_parts[i];
    fence_proxy_async();
}

// The words of the kernel window that a lane fetches: three a row, and a last one that meets weights of zero.
__device__ __forceinline__ void find_window_words(int (&word_offsets)[4], int lane_in_group)
{
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int word = min(4 * i + lane_in_group, 14);
        word_offsets[i] = word / 3 * (PoolWindows28::W / 2) + word % 3;
    }
}

// A lane's pooling window in two images: a step takes it 32 windows further.
struct Window {
    using L = PoolWindows28;
    static constexpr int ROW = 2 * (L::W / 2), IMAGE = L::WINDOWS_PER_ROW * ROW;  // words of a copy
    int column, corner;  // `corner`: the window's first word
    bool second;         // whether it is in the second image

    __device__ __forceinline__ Window(int number)
        : column(number % L::WINDOWS_PER_ROW), corner(number / L::WINDOWS_PER_ROW * ROW + column), second(false)
    {
    }
    __device__ __forceinline__ void advance()
    {
        column += 32 % L::WINDOWS_PER_ROW;
        corner += 32 / L::WINDOWS_PER_ROW * ROW + 32 % L::WINDOWS_PER_ROW;
        if (column >= L::WINDOWS_PER_ROW) {
            column -= L::WINDOWS_PER_ROW;
            corner += ROW - L::WINDOWS_PER_ROW;
        }
        if (!second && corner >= IMAGE) {
            second = true;
            corner += 4 * L::WORDS - IMAGE;
        }
    }
};

// Fetch the fragments of A for the top and the bottom row of pooling windows, two steps each.
__device__ __forceinline__ void load_window_fragments(
    unsigned (&hi)[2][2][4], unsigned (&lo)[2][2][4], const unsigned* corner, const int (&word_offsets)[4])
{
    using L = PoolWindows28;
    #pragma unroll
    for (int row = 0; row < 2; ++row)
        #pragma unroll
        for (int step = 0; step < 2; ++step)
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const unsigned* place = corner + row * (L::W / 2) + word_offsets[2 * step + i / 2] + i % 2 * L::WORDS;
                hi[row][step][i] = place[0];
                lo[row][step][i] = place[2 * L::WORDS];
            }
}

// Multiply 64 outputs in each of two rows by all weights. hi * hi comes last, because tensor cores cut off digits that
// do not fit beside a larger sum.
__device__ __forceinline__ void wgmma_windows(
    float (&sums)[2][28], const unsigned (&hi)[2][2][4], const unsigned (&lo)[2][2][4], unsigned long long weights)
{
    constexpr int CHANNELS = PoolWindows28::CHANNELS, STEP_OFFSET = CHANNELS * 32 / 16, LO_OFFSET = 2 * STEP_OFFSET;
    wgmma_fence();
    #pragma unroll
    for (int row = 0; row < 2; ++row) {
        wgmma_m64k16<CHANNELS, false>(sums[row], lo[row][0], weights);
        wgmma_m64k16<CHANNELS, true>(sums[row], lo[row][1], weights + STEP_OFFSET);
        wgmma_m64k16<CHANNELS, true>(sums[row], hi[row][0], weights + LO_OFFSET);
        wgmma_m64k16<CHANNELS, true>(sums[row], hi[row][1], weights + LO_OFFSET + STEP_OFFSET);
        wgmma_m64k16<CHANNELS, true>(sums[row], hi[row][0], weights);
        wgmma_m64k16<CHANNELS, true>(sums[row], hi[row][1], weights + STEP_OFFSET);
    }
    wgmma_commit_group();
    wgmma_wait_group<0>();
}

__device__ __forceinline__ void multiply_windows(
    float (&sums)[2][28], const unsigned* corner, const int (&word_offsets)[4], unsigned long long weights)
{
    unsigned hi[2][2][4], lo[2][2][4];
    load_window_fragments(hi, lo, corner, word_offsets);
    wgmma_windows(sums, hi, lo, weights);
}

// stmatrix: four 8 x 8 tiles of halves, of each of which a lane has two neighbours of row group_id. They are stored
// transposed: lanes 8 * i and on give where the columns of tile i go.
__device__ __forceinline__ void stmatrix_x4_transposed(unsigned smem_address, const unsigned* tiles)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(smem_address), "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3]) : "memory");
}

// The largest of a window in two output channels, activated, times 2^SCALE_EXPONENT as `unscale` is, and split. `i`: the
// first of the channels' sums.
__device__ __forceinline__ uint2 pool_channels(const float (&sums)[2][28], int i, float2 unscale)
{
    float values[2];
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        const float largest = fmaxf(fmaxf(sums[0][i + e], sums[0][i + e + 2]),
                                    fmaxf(sums[1][i + e], sums[1][i + e + 2]));
        values[e] = tanh_of<SCALE_EXPONENT>(largest * (e ? unscale.y : unscale.x));
    }
    return split(values[0], values[1]);
}

// Pool, activate and split a lane's windows. `place`: where stmatrix stores 8 windows of a channel, the lane's.
__device__ __forceinline__ void stage_windows(const float (&sums)[2][28], const float* unscales, unsigned place)
{
    using L = PoolWindows28;
    #pragma unroll
    for (int first = 0; first < L::CHANNELS / 8; first += 4) {
        unsigned hi[4] = {}, lo[4] = {};
        #pragma unroll
        for (int i = 0; i < min(4, L::CHANNELS / 8 - first); ++i) {
            const uint2 parts = pool_channels(sums, 4 * (first + i), *(const float2*)(unscales + 8 * (first + i)));
            hi[i] = parts.x;
            lo[i] = parts.y;
        }
        stmatrix_x4_transposed(place + first * 8 * L::LINE * 4, hi);
        stmatrix_x4_transposed(place + (first * 8 * L::LINE + L::LO_STAGE) * 4, lo);
    }
}

// Where results go, and those of an image that is computed in FP32.
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

// Two warps split an image each for all four.
extern "C" __global__ void __launch_bounds__(128, WINDOWS_BLOCKS) conv_pool_windows_28_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, __half* __restrict__ y, int N, int M)
{
    using L = PoolWindows28;
    extern __shared__ __align__(128) unsigned smem_hi[];  // the name that conv_pool_single_channel gives it
    __shared__ unsigned warp_max[4];
    __shared__ __align__(8) float unscales[2 * L::CHANNELS];  // what undoes each image's and channel's scale
    let_next_kernel_start();
    unsigned* const smem_images = smem_hi + L::WEIGHT_BYTES / 4;
    unsigned* const stages = smem_images + 8 * L::WORDS;  // two: one is written while the other is stored
    copy_weights((uint4*)smem_hi, weight_parts);

    // Not wgmma_descriptor, with which the compiler schedules this kernel otherwise.
    const unsigned long long weights = ((unsigned)__cvta_generic_to_shared(smem_hi) & 0x3ffff) >> 4 | WGMMA_STRIDES;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const StoreTiledWindows epilogue = {y, M};
    // What a thread stores: 8 channels of neighbouring lanes lie in different banks, and 16 windows of two are 64 bytes.
    const int first_channel = threadIdx.x % 8 + threadIdx.x / 64 * 8, lo_part = threadIdx.x / 32 % 2;
    const int sixteen = threadIdx.x / 16 % 2, eighth = threadIdx.x / 8 % 2;
    const int staged_place = lo_part * L::LO_STAGE + first_channel * L::LINE + sixteen * 8 + eighth * 4;
    int word_offsets[4];
    find_window_words(word_offsets, lane % 4);
    ImageWords words;
    const int image_of_warp = threadIdx.x / 64;
    // Of the image whose unscales a thread makes. A channel that is not there has an exponent of zero.
    const bool of_second = threadIdx.x >= L::CHANNELS;
    const int weight_exponent =
        threadIdx.x < 2 * L::CHANNELS ? weight_exponents[threadIdx.x - of_second * L::CHANNELS] : 0;
    load_words(words, x, 2 * blockIdx.x + image_of_warp, N);

    for (int first = 2 * blockIdx.x; first < N; first += 2 * gridDim.x) {
        store_warp_max(warp_max, words, warp, lane);
        // Also keeps the images before from being overwritten while they are read.
        __syncthreads();
        const unsigned largest_first = max(warp_max[0], warp_max[1]), largest_second = max(warp_max[2], warp_max[3]);
        const int exponent_first = exponent_of(largest_first), exponent_second = exponent_of(largest_second);
        const float scale = power_of_two(min(SCALE_EXPONENT - (image_of_warp ? exponent_second : exponent_first), 127));
        // Times 2^SCALE_EXPONENT, as the results are.
        const int unscale_exponent = weight_exponent + (of_second ? exponent_second : exponent_first) - SCALE_EXPONENT;
        const bool out_of_range = max(largest_first, largest_second) >= INFINITY_BITS || unscale_exponent > 127
                                  || scale_out_of_range(exponent_first, weight_exponents, M)
                                  || scale_out_of_range(exponent_second, weight_exponents, M);
        if (threadIdx.x < 2 * L::CHANNELS)
            unscales[threadIdx.x] = __int_as_float(unscale_exponent + 127 << 23);
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
        Window window(warp * 8 + lane / 4);
        #pragma unroll 1
        for (int tile = 0; tile < L::TILES; ++tile, window.advance()) {
            float sums[2][28];
            multiply_windows(sums, smem_images + window.corner, word_offsets, weights);
            unsigned* const stage = stages + tile % 2 * L::STAGE;
            stage_windows(sums, unscales + window.second * L::CHANNELS + lane % 4 * 2,
                          smem_address(stage + lane * L::LINE + warp * 4));
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

// Few images, 1x28x28 * M@5x5, pooled 2 x 2, and tanh: a block has an image and 10 channels, a thread a pooling window
// in every second of them, so that many blocks have little to do.
extern "C" __global__ void __launch_bounds__(288) conv_pool_few_28_5(
    const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int M)
{
    constexpr int W = 28, K = 5, CHANNELS = 10, ACROSS = (W - K + 1) / 2, WINDOWS = ACROSS * ACROSS;
    __shared__ float image[W * W];
    __shared__ float smem_weights[CHANNELS * K * K];
    let_next_kernel_start();
    const int first = blockIdx.x * CHANNELS;
    const int channels = min(CHANNELS, M - first);
    for (int i = threadIdx.x; i < W * W; i += blockDim.x) image[i] = x[(size_t)blockIdx.y * W * W + i];
    for (int i = threadIdx.x; i < channels * K * K; i += blockDim.x) smem_weights[i] = w[first * K * K + i];
    __syncthreads();

    const int window = threadIdx.x % WINDOWS;
    const float* const corner = image + window / ACROSS * 2 * W + window % ACROSS * 2;
    float pixels[K + 1][K + 1];
    #pragma unroll
    for (int p = 0; p <= K; ++p)
        #pragma unroll
        for (int q = 0; q <= K; ++q) pixels[p][q] = corner[p * W + q];
    for (int channel = threadIdx.x / WINDOWS; channel < channels; channel += 2) {
        float sums[4] = {};
        #pragma unroll
        for (int p = 0; p < K; ++p)
            #pragma unroll
            for (int q = 0; q < K; ++q)
                #pragma unroll
                for (int j = 0; j < 4; ++j)
                    sums[j] += pixels[p + j / 2][q + j % 2] * smem_weights[(channel * K + p) * K + q];
        const float most = fmaxf(fmaxf(sums[0], sums[1]), fmaxf(sums[2], sums[3]));
        y[((size_t)blockIdx.y * M + first + channel) * WINDOWS + window] = tanh_of(most);
    }
}
