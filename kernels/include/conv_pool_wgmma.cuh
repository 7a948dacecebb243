// A first layer of few output channels and its pooling by Hopper's wgmma, FP32 values as hi and lo FP16 parts. Beside
// what fused_mma.cu has: where results in FP32 go.
//
// A row of A is a run of 8 neighbouring pixels in two rows of an image, which serves SHIFTS = 9 - K neighbouring
// outputs. A column of B is the weights of one output channel, shifted by 0 ... SHIFTS - 1 pixels to the right, and by
// 0 or 1 down: an output in the upper or the lower row of a pooling window. Where columns would be few, it is shifted by
// up to 3, for two windows below each other. So each pixel is fetched once for all of them, and a lane has all four
// outputs of a window. The sums of a step's two rows of pixels are added up, hi * hi last: tensor cores cut off digits
// that do not fit beside a larger sum.

#pragma once

#include "async_copy.cuh"
#include "conv_single_channel.cuh"
#include "dense_wgmma.cuh"
#include "dependent_launch.cuh"
#include "tanh.cuh"
#include "wgmma.cuh"

// 1xWxW * M@KxK, pooled 2 x 2. A block, one warpgroup, takes IMAGES images at a time; a warp has 16 runs of one of
// them. TILED: see StoreTiles. TALL: windows below each other that a run serves; if several, see multiply_down.
template <int K_, int W_, int M_, int IMAGES_, int ACTIVATION_, bool TILED, int TALL_ = 1>
struct PooledRuns {
    static constexpr int TALL = TALL_;
    static constexpr int K = K_, W = W_, M = M_, IMAGES = IMAGES_, ACTIVATION = ACTIVATION_;
    static constexpr int SHIFTS = 9 - K;
    static constexpr int W_OUT = W - K + 1;
    static constexpr int WINDOWS = W_OUT / 2 * (W_OUT / 2);
    static constexpr int SIXTEENS = (WINDOWS + 15) / 16;
    static constexpr int EXPONENT = TILED ? SCALE_EXPONENT : 0;  // what activated values are times
    static constexpr int PLANE = TILED ? SIXTEENS * 8 : WINDOWS;  // from one channel of results to the next
    static constexpr int RUNS_PER_ROW = W_OUT / SHIFTS;
    static constexpr int RUNS = RUNS_PER_ROW * (W_OUT / 2);
    static constexpr int WARP_RUNS = (RUNS + 15) / 16;  // so many times 16 runs has an image
    static constexpr int TILES = (IMAGES * WARP_RUNS + 3) / 4;
    static constexpr int STEPS = (K + 2 * TALL - 1) / 2;
    static constexpr int EIGHTS = M * SHIFTS / 8;    // so many times 8 columns of B has a row of outputs
    static constexpr int N = 2 * TALL * M * SHIFTS;  // columns of B
    static constexpr int WORDS = W * W / 2;          // of an image, pairs of pixels
    static constexpr int WEIGHT_BYTES = 2 * STEPS * N * 32;
    static constexpr int SHARED_BYTES = WEIGHT_BYTES + IMAGES * 2 * WORDS * 4;
    static constexpr int LOADS_PER_THREAD = (WORDS + 127) / 128;
    static_assert(K % 2 == 1 && W % 2 == 0 && W_OUT % 2 == 0 && W_OUT % SHIFTS == 0, "runs end at the ends of rows");
    static_assert(TALL == 1 || IMAGES == 1 && SHIFTS == 2 && RUNS_PER_ROW % 8 == 0 && EIGHTS == 1 && W_OUT / 2 % TALL == 0,
                  "what multiply_down is for");
    static_assert(M * SHIFTS % 8 == 0 && (SHIFTS == 2 || SHIFTS == 4), "8 columns are whole channels");
};

// Split the weights of one output channel a block into the order of wgmma's B, all lo parts behind all hi parts.
template <class L>
__device__ __forceinline__ void split_run_weights(
    const float* __restrict__ w, __half* __restrict__ weight_parts, int* __restrict__ exponents)
{
    constexpr int K = L::K, VALUES = L::STEPS * 16;  // of a column
    const int channel = blockIdx.x;
    const float* weights = w + channel * K * K;
    const float2 scale = weight_scale(weights, K * K, true, channel, exponents);
    for (int i = threadIdx.x; i < 2 * L::TALL * L::SHIFTS * VALUES; i += blockDim.x) {
        const int down = i / VALUES / L::SHIFTS, right = i / VALUES % L::SHIFTS;
        const int k = i % VALUES;
        const int p = k / 8 - down, q = k % 8 - right;
        const bool meets = p >= 0 && p < K && q >= 0 && q < K;
        const uint2 parts = split(meets ? weights[p * K + q] * scale.x * scale.y : 0.0f, 0.0f);
        const int column = (down * L::M + channel) * L::SHIFTS + right;
        __half* const hi =
            weight_parts + ((k / 16 * L::N / 8 + column / 8) * 2 + k % 16 / 8) * 64 + column % 8 * 8 + k % 8;
        hi[0] = __ushort_as_half(parts.x);
        hi[VALUES * L::N] = __ushort_as_half(parts.y);
    }
}

// Where the launcher reads what it must know: output channels, bytes of their weights' parts, and bytes of a block's
// shared memory.
template <class L> __device__ void write_runs_layout(int* layout)
{
    layout[0] = L::M;
    layout[1] = L::WEIGHT_BYTES;
    layout[2] = L::SHARED_BYTES;
}

// Where the results of conv_pool_runs go. A lane has one channel of each 8 columns, lane_channel() behind their first,
// and its two values, or one of each of its two, lie within() behind the warp's.
template <class L> struct StoreRuns {
    static constexpr int CHANNELS = 8 / L::SHIFTS;  // of 8 columns
    __device__ static int lane_channel() { return L::SHIFTS == 4 ? threadIdx.x % 4 / 2 : threadIdx.x % 4; }
    __device__ static int within() { return threadIdx.x / 4 % 8 * 2; }
};

// Results go, split, where dense_wgmma wants them: 16 values further, or two channels, is a stage further. Of two images
// that a block takes, the first has an even number. So they are neighbours in the same tile, and of the same order there.
template <class L> struct StoreTiles : StoreRuns<L> {
    static constexpr int STAGES = L::M / 2 * L::SIXTEENS;
    static_assert(L::M % 2 == 0, "pairs of channels");
    __half* __restrict__ y;
    unsigned* of_lane;  // the lo part of its first values in the block's first image

    __device__ __forceinline__ StoreTiles(__half* y) : y(y), of_lane(nullptr) {}
    __device__ __forceinline__ void begin(int first)
    {
        const int channel = this->lane_channel();
        of_lane = (unsigned*)dense_place(y, first, channel / 2 * L::SIXTEENS, channel % 2 * 16 + this->within(), STAGES);
    }
    // Of an image that is computed in FP32, whose channels follow each other.
    __device__ void store(int image, int, int i, float value) const
    {
        store_in_tiles(y, image, i / L::WINDOWS, i % L::WINDOWS, value, L::SIXTEENS, STAGES);
    }
    // Two neighbouring values of the block's first image or the second, from `of_warp` on, of `columns`, 8 each.
    __device__ __forceinline__ void store_words(int second, int columns, int of_warp, unsigned hi, unsigned lo) const
    {
        const int further = columns * this->CHANNELS * L::PLANE + of_warp;
        unsigned* const place = of_lane + (further * (DENSE_X_BYTES / 64) + second * (DENSE_INPUTS / 2));
        place[0] = lo;
        place[DENSE_HI / 2] = hi;
    }
    // Two values of each lane times 2^EXPONENT, 16 from each other; all lanes call it. Of two neighbouring lanes, which
    // have neighbouring values, one stores the first ones and the other the second ones.
    __device__ __forceinline__ void store_apart(
        int, int second, int columns, int of_warp, float2 values, bool has_first, bool has_second) const
    {
        const bool odd = threadIdx.x % 2;
        const uint2 parts = split(values.x, values.y);
        const unsigned hi = __shfl_xor_sync(0xffffffffu, parts.x, 1), lo = __shfl_xor_sync(0xffffffffu, parts.y, 1);
        if (odd ? has_second : has_first)
            store_words(second, columns, of_warp + (odd ? 16 : 0), __byte_perm(parts.x, hi, odd ? 0x3276 : 0x5410),
                        __byte_perm(parts.y, lo, odd ? 0x3276 : 0x5410));
    }
    // Two values of each lane, side by side. Behind the last value that is there, one that is not may be stored.
    __device__ __forceinline__ void store_neighbours(
        int, int second, int columns, int of_warp, float2 values, bool has_first, bool) const
    {
        const uint2 parts = split(values.x, values.y);
        if (has_first) store_words(second, columns, of_warp, parts.x, parts.y);
    }
};

// Results go to `y` as they are.
template <class L> struct StoreFloats : StoreRuns<L> {
    static constexpr int COUNT = L::M * L::PLANE;
    StoreFloat epilogue;

    __device__ __forceinline__ StoreFloats(float* y) : epilogue{y} {}
    __device__ __forceinline__ void begin(int) const {}
    __device__ void store(int image, int, int i, float value) const { epilogue.store(image, COUNT, i, value); }
    __device__ __forceinline__ int place(int columns, int of_warp) const
    {
        return (columns * this->CHANNELS + this->lane_channel()) * L::PLANE + of_warp + this->within();
    }
    __device__ __forceinline__ void store_apart(
        int first, int second, int columns, int of_warp, float2 values, bool has_first, bool has_second) const
    {
        epilogue.store_pair(
            first + second, COUNT, place(columns, of_warp) + threadIdx.x % 2, 16, values, has_first, has_second);
    }
    __device__ __forceinline__ void store_neighbours(
        int first, int second, int columns, int of_warp, float2 values, bool has_first, bool has_second) const
    {
        store_at(first + second, place(columns, of_warp), values, has_first, has_second);
    }
    __device__ __forceinline__ void store_at(int image, int i, float2 values, bool has_first, bool has_second) const
    {
        if (L::PLANE % 2 == 0 && has_second)
            *(float2*)(epilogue.y + (size_t)image * COUNT + i) = values;
        else
            epilogue.store_pair(image, COUNT, i, 1, values, has_first, has_second);
    }
};

// Of a value times 2^EXPONENT, the result as well.
template <class L> __device__ __forceinline__ float activated_run(float value)
{
    return L::ACTIVATION == TANH ? tanh_of<L::EXPONENT>(value) : fmaxf(value, 0.0f);
}

// The largest of the four outputs in a window, of channels in columns 8 * i and on: `half` 0 or 1, of rows group_id or
// group_id + 8; `below` 0, or 1 of the window below.
template <class L> __device__ __forceinline__ float pooled_of(const float (&sums)[L::N / 2], int i, int half, int below = 0)
{
    const int upper = 4 * (2 * below * L::EIGHTS + i) + 2 * half, lower = upper + 4 * L::EIGHTS;
    return fmaxf(fmaxf(sums[upper], sums[upper + 1]), fmaxf(sums[lower], sums[lower + 1]));
}

// Begin the products of all steps: lo * hi, hi * lo, hi * hi.
template <class L, int SLOTS>
__device__ __forceinline__ void multiply_runs(
    float (&sums)[L::N / 2], const unsigned (&hi)[SLOTS][4], const unsigned (&lo)[SLOTS][4], unsigned long long weights)
{
    constexpr int STEP = L::N * 32 / 16, LO = L::STEPS * STEP;  // of the descriptor
    wgmma_fence();
    wgmma_m64k16<L::N, false>(sums, lo[0], weights);
    #pragma unroll
    for (int step = 1; step < L::STEPS; ++step) wgmma_m64k16<L::N, true>(sums, lo[step], weights + step * STEP);
    #pragma unroll
    for (int part = 1; part >= 0; --part)
        #pragma unroll
        for (int step = 0; step < L::STEPS; ++step)
            wgmma_m64k16<L::N, true>(sums, hi[step], weights + part * LO + step * STEP);
    wgmma_commit_group();
}

// A lane's pixels where a strip, 8 runs side by side, moves down an image, TALL windows at a time, and then down the next
// strip.
template <class L> struct Strip {
    static constexpr int ROWS = L::W_OUT / 2 / L::TALL;
    int column;  // of runs
    int row;     // of TALL windows
    int pixels;  // where the first two are

    __device__ __forceinline__ void enter()
    {
        pixels = row * L::TALL * L::W + min(column, L::RUNS_PER_ROW - 1) + threadIdx.x % 4;
    }
    __device__ __forceinline__ void begin(int place)
    {
        column = place / ROWS * 8 + threadIdx.x % 32 / 4;
        row = place % ROWS;
        enter();
    }
    // Whether that is the top of the next strip.
    __device__ __forceinline__ bool advance()
    {
        pixels += L::TALL * L::W;
        if (++row < ROWS) return false;
        column += 8;
        row = 0;
        enter();
        return true;
    }
    // Two rows of pixels, for a step of wgmma.
    __device__ __forceinline__ void fetch(unsigned* hi, unsigned* lo, const unsigned* smem_image, int step) const
    {
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            hi[2 * i] = smem_image[pixels + (2 * step + i) * (L::W / 2)];
            lo[2 * i] = smem_image[pixels + (2 * step + i) * (L::W / 2) + L::WORDS];
        }
    }
};

// An image's windows by strips: a warp moves two of them down, and fetches the rows of pixels that are new. It holds the
// others.
template <class L, class Store>
__device__ __forceinline__ void multiply_down(
    const unsigned* smem_image, unsigned long long weights, int unscale_bits, int exponent, bool stores,
    const Store& epilogue, int image)
{
    constexpr int STEPS = L::STEPS, TALL = L::TALL, SLOTS = STEPS + TALL, ACROSS = L::W_OUT / 2;
    constexpr int PLACES = Strip<L>::ROWS * L::RUNS_PER_ROW / 8;
    const int group_id = threadIdx.x % 32 / 4;
    const bool odd = group_id % 2;  // stores the second strip's results, an even neighbour the first one's
    const float unscale = __int_as_float(unscale_bits + (exponent << 23));
    const int length = (PLACES + 8 * gridDim.y - 1) / (8 * gridDim.y);
    Strip<L> strips[2];
    unsigned hi[SLOTS][4], lo[SLOTS][4];  // the last ones: what is new in the next windows
    #pragma unroll
    for (int half = 0; half < 2; ++half) {
        strips[half].begin(((blockIdx.y * 4 + threadIdx.x / 32) * 2 + half) * length);
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) strips[half].fetch(hi[step] + half, lo[step] + half, smem_image, step);
    }
    for (int begin = 0; begin < length; begin += SLOTS) {
        #pragma unroll  // so that no register is copied
        for (int i = 0; i < SLOTS; ++i) {
            if (begin + i == length) return;
            float sums[L::N / 2];
            multiply_runs<L>(sums, hi, lo, weights);
            const int column = odd ? strips[1].column : strips[0].column;
            const int place = (odd ? strips[1].row : strips[0].row) * TALL * ACROSS + column / 2 * 2;
            bool entered[2];
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                entered[half] = strips[half].advance();
                #pragma unroll
                for (int step = STEPS; step < SLOTS; ++step)
                    strips[half].fetch(hi[step] + half, lo[step] + half, smem_image, step - TALL);
            }
            wgmma_wait_group<0>();

            const bool is_there = stores && column < L::RUNS_PER_ROW;
            #pragma unroll
            for (int below = 0; below < TALL; ++below) {
                const float first = pooled_of<L>(sums, 0, 0, below), second = pooled_of<L>(sums, 0, 1, below);
                const float kept = odd ? second : first, other = __shfl_xor_sync(0xffffffffu, odd ? first : second, 4);
                const float2 pooled = make_float2(activated_run<L>((odd ? other : kept) * unscale),
                                                  activated_run<L>((odd ? kept : other) * unscale));
                epilogue.store_at(
                    image, threadIdx.x % 4 * L::PLANE + place + below * ACROSS, pooled, is_there, is_there);
            }
            #pragma unroll
            for (int step = 0; step < STEPS; ++step)
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    hi[step][j] = hi[step + TALL][j];
                    lo[step][j] = lo[step + TALL][j];
                }
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                if (entered[half])
                    #pragma unroll
                    for (int step = 0; step < STEPS - TALL; ++step)
                        strips[half].fetch(hi[step] + half, lo[step] + half, smem_image, step);
        }
    }
}

// Each block takes images blockIdx.x and on, `gridDim.y` blocks the same: each some of their windows.
template <class L, class Store>
__device__ __forceinline__ void conv_pool_runs(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_parts,
    const int* __restrict__ weight_exponents, Store epilogue, int N)
{
    constexpr int W = L::W, SHIFTS = L::SHIFTS;
    extern __shared__ __align__(128) unsigned smem_hi[];  // the name that conv_pool_single_channel gives it
    __shared__ unsigned warp_max[32];
    unsigned* const smem_images = smem_hi + L::WEIGHT_BYTES / 4;
    let_next_kernel_start();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group_id = lane / 4, lane_in_group = lane % 4;
    const int lane_channel = SHIFTS == 4 ? lane_in_group / 2 : lane_in_group;  // of 8 columns' channels
    for (int i = threadIdx.x; i < L::WEIGHT_BYTES / 16; i += 128) ((uint4*)smem_hi)[i] = weight_parts[i];
    fence_proxy_async_shared();  // tensor cores read the weights through the asynchronous proxy
    const unsigned long long weights = wgmma_descriptor(smem_address(smem_hi));
    int unscale_bits[L::EIGHTS];  // what undoes the weights' scales, where FP32 has its exponent
    #pragma unroll
    for (int i = 0; i < L::EIGHTS; ++i)
        unscale_bits[i] =
            weight_exponents[i * (8 / SHIFTS) + lane_channel] + L::EXPONENT - 2 * SCALE_EXPONENT + 127 << 23;

    for (int first = blockIdx.x * L::IMAGES; first < N; first += gridDim.x * L::IMAGES) {
        int exponents[L::IMAGES];
        int runs[L::IMAGES];  // that are stored: none of an image that is computed in FP32 or is not there
        #pragma unroll
        for (int i = 0; i < L::IMAGES; ++i) {
            const int image = min(first + i, N - 1);
            float2 values[L::LOADS_PER_THREAD];
            load_pairs(values, (const float2*)(x + (size_t)image * W * W), L::WORDS, 128);
            // Its barrier also keeps the images before from being overwritten while they are read.
            const unsigned largest = block_max(max_magnitude(values), warp_max);
            const ImageScale image_scale = scale_of_image(largest);
            bool out_of_range =
                largest >= INFINITY_BITS || scale_out_of_range(image_scale.exponent, weight_exponents, L::M);
            #pragma unroll
            for (int j = 0; j < L::EIGHTS; ++j)
                out_of_range |= L::EXPONENT > 0 && (unscale_bits[j] >> 23) + image_scale.exponent > 254;
            bool too_small;  // no matter in a network
            unsigned* const smem_image = smem_images + i * 2 * L::WORDS;
            split_pairs(values, smem_image, smem_image + L::WORDS, L::WORDS, 128, image_scale, too_small);
            const bool multiplied = !__syncthreads_or(out_of_range);  // and the image is complete before anyone reads it
            exponents[i] = multiplied ? image_scale.exponent : 0;
            runs[i] = multiplied && first + i < N ? L::RUNS : 0;
            if (!multiplied && first + i < N && blockIdx.y == 0)
                conv_pool_image_fp32(FloatInput{x + (size_t)image * W * W}, w, epilogue, image, W, W, L::M, L::K,
                                     L::ACTIVATION);
            if (image + gridDim.x * L::IMAGES < N)
                prefetch_l2(x + (size_t)(image + gridDim.x * L::IMAGES) * W * W, W * W, threadIdx.x, 128);
        }

        if constexpr (L::TALL > 1) {
            multiply_down<L>(smem_images, weights, unscale_bits[0], exponents[0], runs[0] > 0, epilogue, first);
            continue;
        }
        epilogue.begin(first);
        #pragma unroll 1
        for (int tile = blockIdx.y; tile < L::TILES; tile += gridDim.y) {
            const int warp_runs = tile * 4 + warp;
            const int second = L::IMAGES == 2 && warp_runs >= L::WARP_RUNS;
            // Two shifts: a lane's runs are neighbours. Four: a lane holds half of each run.
            const int of_warp = (warp_runs - second * L::WARP_RUNS) * 16;
            const int first_run = of_warp + (SHIFTS == 2 ? 2 * group_id : group_id);
            constexpr int APART = SHIFTS == 2 ? 1 : 8;
            unsigned hi[L::STEPS][4], lo[L::STEPS][4];
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int run = min(first_run + half * APART, L::RUNS - 1);
                const unsigned* const corner = smem_images + second * 2 * L::WORDS + run / L::RUNS_PER_ROW * W
                                               + run % L::RUNS_PER_ROW * (SHIFTS / 2) + lane_in_group;
                #pragma unroll
                for (int row = 0; row < 2 * L::STEPS; ++row) {
                    hi[row / 2][row % 2 * 2 + half] = corner[row * (W / 2)];
                    lo[row / 2][row % 2 * 2 + half] = corner[row * (W / 2) + L::WORDS];
                }
            }
            float sums[L::N / 2];
            multiply_runs<L>(sums, hi, lo, weights);
            wgmma_wait_group<0>();

            const int stored_runs = second ? runs[L::IMAGES - 1] : runs[0];
            const bool has_first = first_run < stored_runs, has_second = first_run + APART < stored_runs;
            const int exponent = second ? exponents[L::IMAGES - 1] : exponents[0];
            #pragma unroll
            for (int i = 0; i < L::EIGHTS; ++i) {
                const float unscale = __int_as_float(unscale_bits[i] + (exponent << 23));
                const float2 pooled = make_float2(activated_run<L>(pooled_of<L>(sums, i, 0) * unscale),
                                                  activated_run<L>(pooled_of<L>(sums, i, 1) * unscale));
                if constexpr (SHIFTS == 4)
                    epilogue.store_apart(first, second, i, 2 * of_warp, pooled, has_first, has_second);
                else
                    epilogue.store_neighbours(first, second, i, of_warp, pooled, has_first, has_second);
            }
        }
    }
}
