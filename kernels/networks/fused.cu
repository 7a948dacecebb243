/*
title:     Layers in one kernel, products from halves
idea:      What lies between two matrix products costs no pass over memory. The first convolution takes the largest of
           each 2 x 2 outputs while it holds them, activates what is left, and writes a quarter of them; the second, where
           pooling follows it, pools in shared memory. The fully connected layer adds up three products of FP16 halves
           as the convolutions do (split_fp16), its weights split once for all calls, its inputs shared out over the
           device; one more kernel adds the shares, activates, and finds the labels. One CUDA graph orders all of it.
           From the host, the first layer takes bytes as they come. A half holds any byte, so that an image has no low
           halves, two products do for three, and nobody looks for its largest number.
expect:    The convolutions' own times are left, shorter by what they no longer write, and the fully connected layer
           at a half of the tensor cores' peak. Ten images take what a few kernels take to begin and end.
builds_on: one_by_one
split:     {precision: fp16, products: 3}
constants: {POOLED_28_PAIRS: 1, POOLED_28_THREADS: 160, POOLED_28_BLOCKS: 4,
            POOLED_5_PAIRS: 1, POOLED_5_THREADS: 128, POOLED_5_BLOCKS: 3,
            POOLED_72_PAIRS: 1, POOLED_72_THREADS: 192, POOLED_72_BLOCKS: 2,
            POOLED_86_PAIRS: 2, POOLED_86_THREADS: 128, POOLED_86_BLOCKS: 3}
method:    any
least_arch: sm_80
*/

// Within a network no result is looked at by itself: numbers of an image that are small beside its largest may lose
// what the sums of a fully connected layer would not keep.
#define RANGE 300

#include "split_fp16.cu"

#define TANH 1
#define RELU 2

__device__ __forceinline__ float activated(float value, int activation)
{
    if (activation == TANH) return tanhf(value);
    return activation == RELU ? fmaxf(value, 0.0f) : value;
}

// What a first layer reads: numbers, which it scales and splits, or bytes, which one half holds exactly; the network
// takes those times `scale`.
struct Numbers {
    static constexpr bool BYTES = false;
    using Pair = float2;
    const float* __restrict__ x;

    __device__ Numbers behind(size_t count) const { return {x + count}; }
    __device__ float at(int i) const { return x[i]; }
    __device__ float scaled(float sum) const { return sum; }
};
struct Bytes {
    static constexpr bool BYTES = true;
    using Pair = uchar2;
    const unsigned char* __restrict__ x;
    float scale;

    __device__ Bytes behind(size_t count) const { return {x + count, scale}; }
    __device__ float at(int i) const { return x[i] * scale; }
    __device__ float scaled(float sum) const { return sum * scale; }
};

// Where a first layer's results go, `count` an image: as they are, or for products of halves, the low halves of an image
// before the high ones, each times 2^TOP. Only what tanh gives, and no more than 1, may go there.
struct Values {
    float* __restrict__ y;

    __device__ void put(int image, int count, int i, float value) const { y[(size_t)image * count + i] = value; }
    __device__ void put_beside(int image, int count, int i, int apart, float2 values, bool first, bool second) const
    {
        if (first) put(image, count, i, values.x);
        if (second) put(image, count, i + apart, values.y);
    }
};
struct Halves {
    __half* __restrict__ y;

    __device__ __half* lows(int image, int count) const { return y + (size_t)image * 2 * count; }
    __device__ void put(int image, int count, int i, float value) const
    {
        const uint2 halves = split(value * power_of_two(TOP), 0.0f);
        lows(image, count)[count + i] = __ushort_as_half(halves.x);
        lows(image, count)[i] = __ushort_as_half(halves.y);
    }
    // Two values of each lane, `apart` from each other, and of each two neighbouring lanes those of an even i and of the
    // next: one lane writes the high halves of both, the other the low ones. All lanes call it.
    __device__ void put_beside(int image, int count, int i, int apart, float2 values, bool first, bool second) const
    {
        const bool odd = threadIdx.x % 2;
        const uint2 halves = split(values.x * power_of_two(TOP), values.y * power_of_two(TOP));
        const unsigned kept = odd ? halves.y : halves.x;
        const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? halves.x : halves.y, 1);
        const unsigned left = odd ? other : kept;
        const unsigned right = odd ? kept : other;
        __half* const place = lows(image, count) + (odd ? i - 1 : count + i);
        if (first) *(unsigned*)place = __byte_perm(left, right, 0x5410);
        if (second) *(unsigned*)(place + apart) = __byte_perm(left, right, 0x7632);
    }
};

// One image by plain FP32, pooled 2 x 2 and activated.
template <typename From, typename To>
__device__ __noinline__ void plain_pooled_image(
    From from, const float* __restrict__ w, To to, int image, int H, int W, int M, int K, int activation)
{
    const int H_pooled = (H - K + 1) / 2;
    const int W_pooled = (W - K + 1) / 2;
    const int count = M * H_pooled * W_pooled;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const From input = from.behind(i / W_pooled % H_pooled * 2 * W + i % W_pooled * 2);
        const float* taps = w + (size_t)(i / (H_pooled * W_pooled)) * K * K;
        float sums[4] = {};
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                for (int j = 0; j < 4; ++j) sums[j] += input.at((p + j / 2) * W + q + j % 2) * taps[p * K + q];
        to.put(image, count, i, activated(fmaxf(fmaxf(sums[0], sums[1]), fmaxf(sums[2], sums[3])), activation));
    }
}

// C = 1: first_layer of split_fp16.cu, the largest of each 2 x 2 outputs taken before anything is written, then
// activated: tanh and ReLU grow, so that order makes no difference. Two tiles are two rows of the same runs, so a lane
// holds all four.
template <int K, int W, int NT, int PAIRS, int ROUNDS, int ACTIVATION, typename From, typename To>
__device__ __forceinline__ void first_layer_pooled(
    From from, const float* __restrict__ w, const uint2* __restrict__ parts, const int* __restrict__ exponents, To to,
    int N, int M)
{
    constexpr int H = W;
    constexpr int SHIFTS = 9 - K;
    constexpr int MAPS = 8 / SHIFTS;  // a tile of columns
    constexpr int W_OUT = W - K + 1;
    constexpr int ACROSS = W_OUT / SHIFTS;  // runs in a row
    constexpr int RUNS = W_OUT / 2 * ACROSS;  // pairs of runs, one below the other
    constexpr int PLACES = W_OUT / 2 * (W_OUT / 2);
    static_assert(W_OUT % SHIFTS == 0 && W_OUT % 2 == 0 && W % 2 == 0, "runs end at the ends of rows");

    extern __shared__ unsigned highs[];
    __shared__ unsigned largest_of_warp[32];
    unsigned* const lows = highs + (From::BYTES ? 0 : H * W / 2);  // bytes have none
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
    typename From::Pair values[ROUNDS];
    auto load = [&](int image) {
        const auto* source = (const typename From::Pair*)from.behind((size_t)image * H * W).x;
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int pair = threadIdx.x + r * blockDim.x;
            values[r] = pair < H * W / 2 ? source[pair] : typename From::Pair{};
        }
    };
    load(blockIdx.x);

    for (int image = blockIdx.x; image < N; image += gridDim.x) {
        int exponent = TOP;
        bool beyond;
        if constexpr (From::BYTES) {
            beyond = beyond_floats(exponent, exponents, M, threadIdx.x, blockDim.x);
            __syncthreads();  // the image before is read no more
            #pragma unroll
            for (int r = 0; r < ROUNDS; ++r) {
                const int pair = threadIdx.x + r * blockDim.x;
                if (pair >= H * W / 2) break;
                const __half2 both = __floats2half2_rn(values[r].x, values[r].y);
                highs[pair] = *(const unsigned*)&both;
            }
        } else {
            unsigned largest = 0;
            #pragma unroll
            for (int r = 0; r < ROUNDS; ++r)
                largest = max(largest, max(magnitude_of(values[r].x), magnitude_of(values[r].y)));
            // Its barrier also keeps the image before from being overwritten while it is read.
            largest = largest_of_block(largest, largest_of_warp);
            exponent = exponent_of(largest);
            const float scale = power_of_two(min(TOP - exponent, 127));
            const float least = least_of(exponent);
            beyond = largest >= INFINITE || beyond_floats(exponent, exponents, M, threadIdx.x, blockDim.x);
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
        }
        if (image + gridDim.x < N) load(image + gridDim.x);
        // The image is complete before anyone reads it.
        if (__syncthreads_or(beyond)) {
            plain_pooled_image(from.behind((size_t)image * H * W), w, to, image, H, W, M, K, ACTIVATION);
            continue;
        }

        for (int group = threadIdx.x / 32; group * PAIRS * 16 < RUNS; group += blockDim.x / 32) {
            auto run_of = [&](int pair, int h) {
                return (group * PAIRS + pair) * 16 + (SHIFTS == 2 ? 2 * g + h : 8 * h + g);
            };
            // a0 ... a3 of two rows of taps; where K is odd, a0 and a1 of the last.
            uint4 high[2 * PAIRS][(K + 1) / 2], low[2 * PAIRS][(K + 1) / 2];
            #pragma unroll
            for (int m = 0; m < 2 * PAIRS; ++m) {
                int place[2];
                #pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int run = min(run_of(m / 2, h), RUNS - 1);
                    place[h] = (run / ACROSS * 2 + m % 2) * (W / 2) + run % ACROSS * (SHIFTS / 2) + t;
                }
                #pragma unroll
                for (int p = 0; p < K; p += 2) {
                    const int next = p + 1 < K ? (p + 1) * (W / 2) : 0;
                    const unsigned* pair = highs + p * (W / 2);
                    high[m][p / 2] =
                        make_uint4(pair[place[0]], pair[place[1]], highs[next + place[0]], highs[next + place[1]]);
                    if (From::BYTES) continue;
                    pair = lows + p * (W / 2);
                    low[m][p / 2] =
                        make_uint4(pair[place[0]], pair[place[1]], lows[next + place[0]], lows[next + place[1]]);
                }
            }
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
                float large[2 * PAIRS][TOGETHER][4] = {}, small[2 * PAIRS][TOGETHER][4] = {};
                #pragma unroll
                for (int p = 0; p < K; p += 2)
                    #pragma unroll
                    for (int part = 0; part < (From::BYTES ? 2 : 3); ++part)
                        #pragma unroll
                        for (int m = 0; m < 2 * PAIRS; ++m)
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
                    if (SHIFTS != 4 && map >= M) continue;  // with 4, neighbours wait for it
                    const int scale_of_map = NT > 0 ? scales[n] : exponents[map] << 23;
                    const float back = __int_as_float(scale_of_map + ((exponent - 2 * TOP + 127) << 23));
                    const int result = map * PLACES + (SHIFTS == 4 ? t % 2 : 0);
                    #pragma unroll
                    for (int pair = 0; pair < PAIRS; ++pair) {
                        float largest_of[4];
                        #pragma unroll
                        for (int i = 0; i < 4; ++i)
                            largest_of[i] = fmaxf(large[2 * pair][n][i] + small[2 * pair][n][i],
                                                  large[2 * pair + 1][n][i] + small[2 * pair + 1][n][i]);
                        float2 values;
                        values.x = activated(from.scaled(fmaxf(largest_of[0], largest_of[1]) * back), ACTIVATION);
                        values.y = activated(from.scaled(fmaxf(largest_of[2], largest_of[3]) * back), ACTIVATION);
                        const int first_run = run_of(pair, 0), second_run = run_of(pair, 1);
                        const int place = result + first_run * (SHIFTS / 2);
                        const int apart = (second_run - first_run) * (SHIFTS / 2);
                        if (SHIFTS == 4) {
                            const bool one = map < M && first_run < RUNS, two = map < M && second_run < RUNS;
                            to.put_beside(image, M * PLACES, place, apart, values, one, two);
                        } else {
                            if (first_run < RUNS) to.put(image, M * PLACES, place, values.x);
                            if (second_run < RUNS) to.put(image, M * PLACES, place + apart, values.y);
                        }
                    }
                }
            }
        }
    }
}

// Each for numbers, and for bytes.
#define POOLED(NAME, TYPE, TO, K, W, NT, PAIRS, THREADS, BLOCKS, ACTIVATION)                               \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME(                                   \
        const float* __restrict__ x, const float* __restrict__ w, const uint2* __restrict__ parts,        \
        const int* __restrict__ exponents, TYPE* __restrict__ y, int N, int M)                            \
    {                                                                                                     \
        first_layer_pooled<K, W, NT, PAIRS, (W * W / 2 + THREADS - 1) / THREADS, ACTIVATION>(             \
            Numbers{x}, w, parts, exponents, TO{y}, N, M);                                                \
    }                                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME##_of_bytes(                        \
        const unsigned char* __restrict__ x, const float* __restrict__ w, const uint2* __restrict__ parts, \
        const int* __restrict__ exponents, TYPE* __restrict__ y, int N, int M, float scale)               \
    {                                                                                                     \
        first_layer_pooled<K, W, NT, PAIRS, (W * W / 2 + THREADS - 1) / THREADS, ACTIVATION>(             \
            Bytes{x, scale}, w, parts, exponents, TO{y}, N, M);                                           \
    }

POOLED(pooled_28_5, float, Values, 5, 28, 0, POOLED_28_PAIRS, POOLED_28_THREADS, POOLED_28_BLOCKS, TANH)
POOLED(pooled_48_5, float, Values, 5, 48, 3, POOLED_5_PAIRS, POOLED_5_THREADS, POOLED_5_BLOCKS, TANH)
POOLED(pooled_64_5, float, Values, 5, 64, 3, POOLED_5_PAIRS, POOLED_5_THREADS, POOLED_5_BLOCKS, TANH)
POOLED(pooled_72_7, float, Values, 7, 72, 3, POOLED_72_PAIRS, POOLED_72_THREADS, POOLED_72_BLOCKS, TANH)
POOLED(pooled_86_7, float, Values, 7, 86, 1, POOLED_86_PAIRS, POOLED_86_THREADS, POOLED_86_BLOCKS, RELU)

POOLED(halves_28_5, __half, Halves, 5, 28, 0, POOLED_28_PAIRS, POOLED_28_THREADS, POOLED_28_BLOCKS, TANH)
POOLED(halves_48_5, __half, Halves, 5, 48, 3, POOLED_5_PAIRS, POOLED_5_THREADS, POOLED_5_BLOCKS, TANH)
POOLED(halves_64_5, __half, Halves, 5, 64, 3, POOLED_5_PAIRS, POOLED_5_THREADS, POOLED_5_BLOCKS, TANH)

// A later layer's results, ReLU and the largest of each SIZE x SIZE of them, windows cut at the end. Their bits grow as
// the numbers do, for none is negative. exponents (image): of the largest.
template <int SIZE>
struct PooledPositive {
    const float* __restrict__ w;
    float* __restrict__ y;
    int* __restrict__ exponents;
    int* pooled;  // in shared memory, as many as an image has, and the largest
    int M, H_out, W_out;

    __device__ int across() const { return (W_out + SIZE - 1) / SIZE; }
    __device__ int places() const { return (H_out + SIZE - 1) / SIZE * across(); }
    __device__ void begin() const
    {
        for (int i = threadIdx.x; i <= M * places(); i += blockDim.x) pooled[i] = 0;
    }
    __device__ void raise(int map, int row, int column, float value) const
    {
        int* const place = pooled + map * places() + row / SIZE * across() + column / SIZE;
        if (!(value <= 0.0f)) atomicMax(place, __float_as_int(value));
    }
    __device__ void put(int image, int map, int output, float4 values) const
    {
        // W_out is even and output a multiple of 4: two neighbours share a row and a window.
        const int row = output / W_out;
        const int column = output - row * W_out;
        raise(map, row, column, fmaxf(values.x, values.y));
        const bool wraps = column + 2 == W_out;
        raise(map, row + wraps, wraps ? 0 : column + 2, fmaxf(values.z, values.w));
    }
    __device__ void put(int image, int map, int output, float value) const
    {
        raise(map, output / W_out, output % W_out, value);
    }
    __device__ void cannot_hold(int exponent, const float* x, int image, int C, int H, int W, int K) const
    {
        const int outputs = H_out * W_out;
        for (int i = threadIdx.x; i < M * outputs; i += blockDim.x)
            put(image, i / outputs, i % outputs, plain_sum(x + (size_t)image * C * H * W, w, C, H, W, K, i));
    }
    __device__ void end(int image) const
    {
        __syncthreads();
        const int count = M * places();
        int largest = 0;
        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            const int value = pooled[i];
            y[(size_t)image * count + i] = __int_as_float(value);
            pooled[i] = 0;
            largest = max(largest, value);
        }
        largest = __reduce_max_sync(0xffffffffu, largest);
        if (threadIdx.x % 32 == 0) atomicMax(pooled + count, largest);
        __syncthreads();
        if (threadIdx.x == 0) {
            exponents[image] = exponent_of(pooled[count]);
            pooled[count] = 0;
        }
    }
};

extern "C" __global__ void __launch_bounds__(LATER_4_THREADS, LATER_4_BLOCKS) later_4_7_16_pooled(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ parts,
    const int* __restrict__ exponents, float* __restrict__ y, int* __restrict__ y_exponents, int N, int H, int W, int M)
{
    __shared__ int pooled[16 * 81 + 1];
    later_layer<4, 7, false, LATER_4_TILES, LATER_4_TOGETHER, true, (1600 + LATER_4_THREADS - 1) / LATER_4_THREADS>(
        x, parts, exponents, PooledPositive<4>{w, y, y_exponents, pooled, M, H - 6, W - 6}, N, H, W, M);
}

// The fully connected layer, K inputs an image: sums over one of gridDim.z shares of the inputs, of 128 images
// (blockIdx.y) and 16 * TILES outputs (blockIdx.x) a block. Four warps take 32 images each and half of the outputs,
// four the other half.
// weights (blockIdx.x, K / 16, tile, lane): halves of inputs 2 * (lane % 4), the next, and 8 on, of output lane / 4:
// high, high, low, low. exponents (image): of a bound on the image's inputs. Sums of few steps are added up outside,
// since tensor cores cut off what does not fit.
template <int TILES>
__device__ __forceinline__ void connected(
    const float* __restrict__ x, const uint4* __restrict__ weights, const int* __restrict__ exponents,
    float* __restrict__ partial, int N, int K, int outputs)
{
    constexpr int PITCH = 80;  // bytes of 32 halves and a gap, which spreads 8 rows over all banks
    constexpr int A_BYTES = 128 * PITCH;
    constexpr int B_BYTES = 2 * 2 * TILES * 512;
    constexpr int STAGE = 2 * A_BYTES + B_BYTES;
    constexpr int TOGETHER = TILES % 3 == 0 ? 3 : TILES % 4 == 0 ? 4 : TILES % 5 == 0 ? 5 : TILES;
    extern __shared__ __align__(16) char stages[];

    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int chunks = (K + 31) / 32;
    const int first = (int)((long long)chunks * blockIdx.z / gridDim.z);
    const int last = (int)((long long)chunks * (blockIdx.z + 1) / gridDim.z);
    const int top = blockIdx.y * 128;
    const uint4* const block_weights = weights + (size_t)blockIdx.x * chunks * (B_BYTES / 16);

    const int column = threadIdx.x % 8 * 4;
    const float* rows[4];
    float scales[4];
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int image = min(top + (int)threadIdx.x / 8 + 32 * r, N - 1);
        rows[r] = x + (size_t)image * K + column;
        scales[r] = power_of_two(min(TOP - exponents[image], 127));
    }

    float4 next[4];
    auto load = [&](int chunk) {
        #pragma unroll
        for (int r = 0; r < 4; ++r)
            next[r] = chunk * 32 + column < K ? __ldcs((const float4*)(rows[r] + chunk * 32))
                                              : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    };
    auto fetch_weights = [&](int chunk, int stage) {
        const uint4* source = block_weights + (size_t)chunk * (B_BYTES / 16);
        const unsigned to = (unsigned)__cvta_generic_to_shared(stages + stage * STAGE + 2 * A_BYTES);
        for (int i = threadIdx.x; i < B_BYTES / 16; i += 256)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to + i * 16), "l"(source + i));
        asm volatile("cp.async.commit_group;");
    };
    auto keep = [&](int stage) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
            const uint2 left = split(next[r].x * scales[r], next[r].y * scales[r]);
            const uint2 right = split(next[r].z * scales[r], next[r].w * scales[r]);
            char* place = stages + stage * STAGE + (threadIdx.x / 8 + 32 * r) * PITCH + column * 2;
            *(uint2*)place = make_uint2(left.x, right.x);
            *(uint2*)(place + A_BYTES) = make_uint2(left.y, right.y);
        }
    };

    float sums[2][TILES][4] = {};
    if (first < last) {
        load(first);
        fetch_weights(first, 0);
        keep(0);
    }
    for (int chunk = first; chunk < last; ++chunk) {
        const int stage = (chunk - first) % 2;
        asm volatile("cp.async.wait_group 0;");
        __syncthreads();
        if (chunk + 1 < last) {
            load(chunk + 1);
            fetch_weights(chunk + 1, stage ^ 1);
        }
        const char* const a = stages + stage * STAGE;
        const uint4* const b = (const uint4*)(a + 2 * A_BYTES) + warp / 4 * TILES * 32 + lane;
        float products[2][TILES][4];
        #pragma unroll
        for (int m = 0; m < 2; ++m)
            #pragma unroll
            for (int n = 0; n < TILES; ++n)
                #pragma unroll
                for (int i = 0; i < 4; ++i) products[m][n][i] = 0.0f;
        #pragma unroll
        for (int step = 0; step < 2; ++step) {
            uint4 halves[2][2];  // high and low, of 16 rows each
            #pragma unroll
            for (int part = 0; part < 2; ++part)
                #pragma unroll
                for (int m = 0; m < 2; ++m) {
                    const char* place = a + part * A_BYTES + (warp % 4 * 32 + m * 16 + lane % 16) * PITCH
                                        + step * 32 + lane / 16 * 16;
                    uint4& it = halves[part][m];
                    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(it.x), "=r"(it.y), "=r"(it.z), "=r"(it.w)
                                 : "r"((unsigned)__cvta_generic_to_shared(place)));
                }
            #pragma unroll
            for (int start = 0; start < TILES; start += TOGETHER) {
                uint4 taps[TOGETHER];
                #pragma unroll
                for (int n = 0; n < TOGETHER; ++n) taps[n] = b[(step * 2 * TILES + start + n) * 32];
                #pragma unroll
                for (int part = 0; part < 3; ++part)
                    #pragma unroll
                    for (int n = 0; n < TOGETHER; ++n)
                        #pragma unroll
                        for (int m = 0; m < 2; ++m)
                            multiply_add(products[m][start + n], halves[part == 1][m],
                                         part == 0 ? taps[n].z : taps[n].x, part == 0 ? taps[n].w : taps[n].y);
            }
            if (step == 0 && chunk + 1 < last) keep(stage ^ 1);
        }
        #pragma unroll
        for (int m = 0; m < 2; ++m)
            #pragma unroll
            for (int n = 0; n < TILES; ++n)
                #pragma unroll
                for (int i = 0; i < 4; ++i) sums[m][n][i] += products[m][n][i];
    }

    #pragma unroll
    for (int m = 0; m < 2; ++m)
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int image = top + warp % 4 * 32 + m * 16 + h * 8 + lane / 4;
            if (image >= N) continue;
            float* place = partial + ((size_t)blockIdx.z * N + image) * outputs + blockIdx.x * 16 * TILES
                           + warp / 4 * TILES * 8 + lane % 4 * 2;
            #pragma unroll
            for (int n = 0; n < TILES; ++n)
                *(float2*)(place + n * 8) = make_float2(sums[m][n][2 * h], sums[m][n][2 * h + 1]);
        }
}

#define CONNECTED(TILES)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 1) connected_##TILES(                               \
        const float* __restrict__ x, const uint4* __restrict__ weights, const int* __restrict__ exponents, \
        float* __restrict__ partial, int N, int K, int outputs)                                           \
    {                                                                                                     \
        connected<TILES>(x, weights, exponents, partial, N, K, outputs);                                  \
    }

CONNECTED(2)
CONNECTED(8)
CONNECTED(9)
CONNECTED(10)

// Who of a warp has the largest score, the first of equal ones.
__device__ __forceinline__ int label_of(float score, int label)
{
    #pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        const float theirs = __shfl_xor_sync(0xffffffffu, score, apart);
        const int their_label = __shfl_xor_sync(0xffffffffu, label, apart);
        if (theirs > score || (theirs == score && their_label < label)) {
            score = theirs;
            label = their_label;
        }
    }
    return label;
}

// So many of a block's 8 warps an image: the shares of its hidden values added up, scaled back and activated, the last
// layer, and the label.
extern "C" __global__ void __launch_bounds__(256) classify(
    const float* __restrict__ partial, const int* __restrict__ exponents, const int* __restrict__ weight_exponents,
    const float* __restrict__ b, const float* __restrict__ w_last, const float* __restrict__ b_last,
    float* __restrict__ scores, int* __restrict__ labels, int N, int shares, int padded, int hidden, int classes,
    int activation, int warps)
{
    constexpr int AT_ONCE = 4;
    __shared__ float of_warp[8][16];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int image = blockIdx.x * (8 / warps) + warp / warps;
    const int step = warps * 32;
    const float* const of_image = partial + (size_t)min(image, N - 1) * padded;
    const int exponent = max(exponents[min(image, N - 1)] - TOP, -127);
    float results[16] = {};
    for (int start = warp % warps * 32 + lane; start < hidden; start += AT_ONCE * step) {
        float sums[AT_ONCE] = {};
        #pragma unroll 4
        for (int share = 0; share < shares; ++share)
            #pragma unroll
            for (int j = 0; j < AT_ONCE; ++j)
                if (start + j * step < hidden) sums[j] += of_image[(size_t)share * N * padded + start + j * step];
        #pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            const int unit = start + j * step;
            if (unit >= hidden) break;
            const float2 back = scale_of(exponent + weight_exponents[unit] - TOP);
            const float value = activated(sums[j] * back.x * back.y + b[unit], activation);
            #pragma unroll
            for (int i = 0; i < 16; ++i)
                if (i < classes) results[i] += value * w_last[i * hidden + unit];
        }
    }
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (i >= classes) break;
        #pragma unroll
        for (int apart = 16; apart > 0; apart /= 2) results[i] += __shfl_xor_sync(0xffffffffu, results[i], apart);
        if (lane == i) of_warp[warp][i] = results[i];
    }
    __syncthreads();
    if (warp % warps > 0 || image >= N) return;
    float score = __int_as_float(0xff800000);
    if (lane < classes) {
        score = b_last[lane];
        for (int other = warp; other < warp + warps; ++other) score += of_warp[other][lane];
        scores[(size_t)image * classes + lane] = score;
    }
    const int label = label_of(score, lane);
    if (lane == 0) labels[image] = label;
}
