/*
title:     First layer by warpgroups, products of halves by cuBLAS
idea:      A first layer of many maps is a matrix product as well, of 64 outputs by 25 taps and 56 maps. Hopper's
           wgmma takes the weights from shared memory itself, while the pixels come as words of two neighbours from
           one of two copies of the image, one for even columns and one for odd ones. The four outputs of a pooling
           window lie in one lane, which keeps the largest, takes tanh by two approximating instructions or, near 0,
           by a series, and splits it. Halves leave by way of shared memory, 16 bytes at a time. In the last layer a
           warp has five images, for which it reads the weights once. Up to 300 images go another way, as a graph, by
           a first layer in float32, of many small blocks, and fused's products of halves.
expect:    The first layer of 50 maps no longer reads weights from shared memory into registers, and falls from 0.33 to
           0.15 ms at 10,000 images, near the time of writing its results; the network from 0.74 to 0.6 ms. Ten images
           take 40 microseconds in place of 52. Errors stay those of FP32 sums.
builds_on: library
split:     {precision: fp16, products: 3}
constants: {HALVES_28_BLOCKS: 4}
method:    any
least_arch: sm_90a
requires:  torch
*/

#include "fused.cu"

// d (64 outputs x 56 columns) = a (64 outputs x 16 taps) * b (16 taps x 56 columns), and what d was where ADD, by a
// warpgroup. Warp w of the four has rows 16 * w and on; a lane of it, with g = lane / 4 and t = lane % 4:
//   a[0]  row g, taps 2 * t and the next;  a[1]  row g + 8;  a[2]  row g, taps + 8;  a[3]  row g + 8, taps + 8
//   d[4 * i]  row g, column 8 * i + 2 * t;  [+ 1]  the next column;  [+ 2]  row g + 8;  [+ 3]  row g + 8, next column
// b is a descriptor of shared memory. Registers belong to the instruction until it has been waited for.
template <bool ADD>
__device__ __forceinline__ void multiply_add_56(float (&d)[28], const unsigned (&a)[4], unsigned long long b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n56k16.f32.f16.f16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
                 " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27}, "
                 "{%28, %29, %30, %31}, %32, %33, 1, 1, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));
}

// 1 - 2 / (1 + e^2x), and near 0, where that would lose digits, x + x^3 * a series: within 3e-7 of tanh.
__device__ __forceinline__ float tanh_of(float x)
{
    const float magnitude = fabsf(x);
    float power, reciprocal;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(magnitude * 2.88539008f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(power + 1.0f));
    const float far = fmaf(-2.0f, reciprocal, 1.0f);
    const float square = x * x;
    const float series = fmaf(fmaf(fmaf(0.0164587132f, square, -0.0526841161f), square, 0.133209414f), square, -0.333329575f);
    return magnitude < 0.55f ? fmaf(series * square, x, x) : copysignf(far, x);
}

// Splits the weights of one map a block, M of them and zeros, into the order in which wgmma takes them: 8 maps x 8 taps
// are 128 bytes, the next 8 taps lie behind them, then the next 8 maps, then the next 16 taps; low halves behind all
// high ones. A row of 5 taps is 6 halves, the last of them zero. exponents (map): what the weights were scaled by.
extern "C" __global__ void split_window_weights(
    const float* __restrict__ w, __half* __restrict__ parts, int* __restrict__ exponents, int M)
{
    __shared__ unsigned largest_of_warp[32];
    const int map = blockIdx.x;
    const int maps = gridDim.x;
    const float* taps = w + (size_t)map * 25;

    unsigned largest = threadIdx.x < 25 && map < M ? magnitude_of(taps[threadIdx.x]) : 0;
    largest = largest_of_block(largest, largest_of_warp);
    const int exponent = exponent_of(largest);
    if (threadIdx.x == 0) exponents[map] = largest < INFINITE ? exponent : TOO_LARGE;
    const float2 scale = scale_of(TOP - exponent);
    if (threadIdx.x >= 32) return;

    const int i = threadIdx.x;
    const int p = i / 6;
    const int q = i % 6;
    const uint2 halves = split(map < M && p < 5 && q < 5 ? taps[p * 5 + q] * scale.x * scale.y : 0.0f, 0.0f);
    __half* const high = parts + ((i / 16 * maps + map / 8 * 8) * 2 + i % 16 / 8 * 8) * 8 + map % 8 * 8 + i % 8;
    high[0] = __ushort_as_half(halves.x);
    high[32 * maps] = __ushort_as_half(halves.y);
}

// 1x28x28 * M@5x5 with M up to 56: pooled 2 x 2, tanh, and halves times 2^TOP, an image's low ones before its high ones.
// A block, one warpgroup, takes two images after another two, which wait in registers. A product's row is an output in
// the top or the bottom row of a pooling window: rows g of its left column, rows g + 8 of its right.
extern "C" __global__ void __launch_bounds__(128, HALVES_28_BLOCKS) windows_28_5(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ parts,
    const int* __restrict__ exponents, __half* __restrict__ y, int N, int M)
{
    constexpr int W = 28, K = 5, MAPS = 56;
    constexpr int ACROSS = (W - K + 1) / 2;               // windows in a row
    constexpr int WINDOWS = ACROSS * ACROSS;              // of an image
    constexpr int WORDS = W * W / 2;                      // of a copy of an image
    constexpr int TAPS = 2 * 32 * MAPS * 2;               // bytes of the weights
    constexpr int ROUNDS = (WORDS + 63) / 64;
    constexpr int TILES = 2 * WINDOWS / 32;
    static_assert(2 * WINDOWS % 32 == 0 && WINDOWS % 8 == 0, "a warp's windows are of one image");
    // Words of a map's halves on their way out, of 32 windows and a gap, and where the low ones begin: without conflicts.
    constexpr int LINE = 20, LOWS = MAPS * LINE + 16, STAGE = LOWS + MAPS * LINE;

    extern __shared__ __align__(128) unsigned highs[];  // the name that first_layer_pooled gives all of it
    __shared__ unsigned largest_of_warp[4];
    __shared__ int2 map_scales[MAPS / 2];               // what brings sums back, as exponents of float32, of an image of 1
    if (threadIdx.x < MAPS)
        ((int*)map_scales)[threadIdx.x] = (exponents[threadIdx.x] - 2 * TOP + 127) << 23;
    unsigned* const images = highs + TAPS / 4;          // (image, half, copy, word): high halves first, even columns first
    unsigned* const leaving = images + 8 * WORDS;       // two stages in turn
    for (int i = threadIdx.x; i < TAPS / 16; i += 128) ((uint4*)highs)[i] = parts[i];
    // Tensor cores read the weights past the threads' own way to shared memory.
    asm volatile("fence.proxy.async;" ::: "memory");

    // The descriptor of weights: 128 bytes to the next 8 taps, 256 to the next 8 columns.
    const unsigned long long weights =
        ((unsigned)__cvta_generic_to_shared(highs) & 0x3ffff) >> 4 | 8ull << 16 | 16ull << 32;
    constexpr int STEP = MAPS * 32 / 16, LOW = 2 * STEP;
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const int count = M * WINDOWS;
    // Words of taps 4 * i + t: three a row, and a last one that meets weights of zero.
    int place_of[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int word = min(4 * i + t, 14);
        place_of[i] = word / 3 * (W / 2) + word % 3;
    }

    // Two warps have an image each: its words, and the number behind each. Behind a row that meets a weight of zero, and
    // who has no word or no image has that of another.
    float2 values[ROUNDS];
    float behind[ROUNDS];
    const int mine = threadIdx.x / 64;
    const auto load = [&](int first) {
        const float* source = x + (size_t)min(first + mine, N - 1) * W * W;
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int word = min(threadIdx.x % 64 + r * 64, WORDS - 1);
            values[r] = ((const float2*)source)[word];
            behind[r] = source[min(2 * word + 2, W * W - 1)];
        }
    };
    load(2 * blockIdx.x);

    for (int first = 2 * blockIdx.x; first < N; first += 2 * gridDim.x) {
        unsigned largest = 0;
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r)
            largest = max(largest, max(magnitude_of(values[r].x), magnitude_of(values[r].y)));
        largest = __reduce_max_sync(0xffffffffu, largest);
        if (lane == 0) largest_of_warp[warp] = largest;
        // Also keeps the images before from being overwritten while they are read.
        __syncthreads();
        const unsigned largest_first = max(largest_of_warp[0], largest_of_warp[1]);
        const unsigned largest_second = max(largest_of_warp[2], largest_of_warp[3]);
        const int exponent_first = exponent_of(largest_first);
        const int exponent_second = exponent_of(largest_second);
        const float scale = power_of_two(min(TOP - (mine ? exponent_second : exponent_first), 127));
        const bool beyond = max(largest_first, largest_second) >= INFINITE
                            || beyond_floats(exponent_first, exponents, M, threadIdx.x, blockDim.x)
                            || beyond_floats(exponent_second, exponents, M, threadIdx.x, blockDim.x);
        #pragma unroll
        for (int r = 0; r < ROUNDS; ++r) {
            const int word = threadIdx.x % 64 + r * 64;
            if (word >= WORDS) break;
            unsigned* const place = images + mine * 4 * WORDS + word;
            const uint2 even = split(values[r].x * scale, values[r].y * scale);
            const uint2 last = split(behind[r] * scale, 0.0f);
            place[0] = even.x;
            place[WORDS] = __byte_perm(even.x, last.x, 0x5432);
            place[2 * WORDS] = even.y;
            place[3 * WORDS] = __byte_perm(even.y, last.y, 0x5432);
        }
        if (first + 2 * gridDim.x < N) load(first + 2 * gridDim.x);
        // The images are complete before anyone reads them.
        if (__syncthreads_or(beyond)) {
            for (int image = first; image < min(first + 2, N); ++image)
                plain_pooled_image(Numbers{x + (size_t)image * W * W}, w, Halves{y}, image, W, W, M, K, TANH);
            continue;
        }

        #pragma unroll 1
        for (int tile = 0; tile < TILES; ++tile) {
            const int eight = tile * 32 + warp * 8;  // windows of both images, the warp's first
            const int second = eight >= WINDOWS;
            const int exponent = second ? exponent_second : exponent_first;
            const int window = eight - second * WINDOWS + g;
            const unsigned* const source =
                images + second * 4 * WORDS + window / ACROSS * 2 * (W / 2) + window % ACROSS;
            unsigned high[2][2][4], low[2][2][4];  // of the windows' top and bottom rows, and of two steps
            #pragma unroll
            for (int row = 0; row < 2; ++row)
                #pragma unroll
                for (int step = 0; step < 2; ++step)
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const unsigned* place = source + row * (W / 2) + place_of[2 * step + i / 2] + i % 2 * WORDS;
                        high[row][step][i] = place[0];
                        low[row][step][i] = place[2 * WORDS];
                    }
            // Small products before large ones, since tensor cores cut off what does not fit.
            float sums[2][28];
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            #pragma unroll
            for (int row = 0; row < 2; ++row) {
                multiply_add_56<false>(sums[row], low[row][0], weights);
                multiply_add_56<true>(sums[row], low[row][1], weights + STEP);
                multiply_add_56<true>(sums[row], high[row][0], weights + LOW);
                multiply_add_56<true>(sums[row], high[row][1], weights + LOW + STEP);
                multiply_add_56<true>(sums[row], high[row][0], weights);
                multiply_add_56<true>(sums[row], high[row][1], weights + STEP);
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

            unsigned* const stage = leaving + tile % 2 * STAGE;
            const int odd = g % 2;
            const unsigned bytes = odd ? 0x3276 : 0x5410;
            #pragma unroll
            for (int i = 0; i < 28; i += 4) {
                const int map = i * 2 + 2 * t;
                // A map that is not there has an exponent of zero.
                const int2 scales = map_scales[map / 2];
                float values[2];
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const float back = __int_as_float((e ? scales.y : scales.x) + (exponent << 23));
                    const float most = fmaxf(fmaxf(sums[0][i + e], sums[0][i + e + 2]),
                                             fmaxf(sums[1][i + e], sums[1][i + e + 2]));
                    values[e] = tanh_of(most * back) * power_of_two(TOP);
                }
                // Of two neighbouring windows one lane writes the first map, the other the second.
                const uint2 halves = split(values[0], values[1]);
                const unsigned other_high = __shfl_xor_sync(0xffffffffu, halves.x, 4);
                const unsigned other_low = __shfl_xor_sync(0xffffffffu, halves.y, 4);
                unsigned* const to = stage + (map + odd) * LINE + warp * 4 + g / 2;
                to[0] = __byte_perm(halves.x, other_high, bytes);
                to[LOWS] = __byte_perm(halves.y, other_low, bytes);
            }
            // Also keeps the other stage, which everyone has read before coming here, for the next tile.
            __syncthreads();
            const int part = threadIdx.x % 4;  // 8 windows
            const int low_half = threadIdx.x / 4 % 2;
            const int from = tile * 32 + part * 8;
            const int image = first + (from >= WINDOWS);
            if (image >= N) continue;
            __half* const lows = y + (size_t)image * 2 * count;
            uint4* to = (uint4*)(lows + (low_half ? 0 : count) + from % WINDOWS) + threadIdx.x / 8 * (WINDOWS / 8);
            const unsigned* staged = stage + low_half * LOWS + threadIdx.x / 8 * LINE + part * 4;
            for (int map = threadIdx.x / 8; map < M; map += 16, to += 16 * (WINDOWS / 8), staged += 16 * LINE)
                *to = *(const uint4*)staged;
        }
    }
}

// What classify does, for one share of sums of inputs that are at most 1, up to 10 classes, and five images a warp, which
// reads the weights of the last layer once for them.
extern "C" __global__ void __launch_bounds__(256, 2) classify_many(
    const float* __restrict__ partial, const int* __restrict__ weight_exponents, const float* __restrict__ b,
    const float* __restrict__ w_last, const float* __restrict__ b_last, float* __restrict__ scores,
    int* __restrict__ labels, int N, int padded, int hidden, int classes)
{
    constexpr int IMAGES = 5, CLASSES = 10, AT_ONCE = 4;
    extern __shared__ __align__(128) unsigned highs[];
    float* const weights = (float*)highs;
    for (int i = threadIdx.x; i < CLASSES * hidden; i += blockDim.x) weights[i] = i < classes * hidden ? w_last[i] : 0.0f;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    const int first = (blockIdx.x * 8 + threadIdx.x / 32) * IMAGES;
    if (first >= N) return;

    float results[IMAGES][CLASSES] = {};
    for (int start = lane; start < hidden; start += AT_ONCE * 32) {
        float sums[AT_ONCE][IMAGES];
        #pragma unroll
        for (int j = 0; j < AT_ONCE; ++j)
            #pragma unroll
            for (int i = 0; i < IMAGES; ++i)
                sums[j][i] = partial[(size_t)min(first + i, N - 1) * padded + min(start + j * 32, padded - 1)];
        #pragma unroll
        for (int j = 0; j < AT_ONCE; ++j) {
            const int unit = start + j * 32;
            if (unit >= hidden) break;
            const float2 back = scale_of(weight_exponents[unit] - 2 * TOP);
            const float bias = b[unit];
            #pragma unroll
            for (int i = 0; i < IMAGES; ++i) {
                const float value = tanh_of(sums[j][i] * back.x * back.y + bias);
                #pragma unroll
                for (int c = 0; c < CLASSES; ++c) results[i][c] += value * weights[c * hidden + unit];
            }
        }
    }
    #pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        #pragma unroll
        for (int i = 0; i < IMAGES; ++i)
            #pragma unroll
            for (int c = 0; c < CLASSES; ++c)
                results[i][c] += __shfl_xor_sync(0xffffffffu, results[i][c], apart);
    #pragma unroll
    for (int i = 0; i < IMAGES; ++i) {
        float score = __int_as_float(0xff800000);
        #pragma unroll
        for (int c = 0; c < CLASSES; ++c)
            if (lane == c && c < classes) score = results[i][c] + b_last[c];
        if (first + i >= N) break;
        const size_t image = first + i;
        if (lane < classes) scores[image * classes + lane] = score;
        const int label = label_of(score, lane);
        if (lane == 0) labels[image] = label;
    }
}

// Few images, 1x28x28 * M@5x5, pooled 2 x 2, and tanh: a block has an image and 10 maps, a thread a pooling window in
// every second of them, so that many blocks have little to do.
extern "C" __global__ void __launch_bounds__(288) pooled_few_28_5(
    const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int M)
{
    constexpr int W = 28, K = 5, MAPS = 10, ACROSS = (W - K + 1) / 2, WINDOWS = ACROSS * ACROSS;
    __shared__ float image[W * W];
    __shared__ float taps[MAPS * K * K];
    const int first = blockIdx.x * MAPS;
    const int maps = min(MAPS, M - first);
    for (int i = threadIdx.x; i < W * W; i += blockDim.x) image[i] = x[(size_t)blockIdx.y * W * W + i];
    for (int i = threadIdx.x; i < maps * K * K; i += blockDim.x) taps[i] = w[first * K * K + i];
    __syncthreads();

    const int window = threadIdx.x % WINDOWS;
    const float* const corner = image + window / ACROSS * 2 * W + window % ACROSS * 2;
    float pixels[K + 1][K + 1];
    #pragma unroll
    for (int p = 0; p <= K; ++p)
        #pragma unroll
        for (int q = 0; q <= K; ++q) pixels[p][q] = corner[p * W + q];
    for (int map = threadIdx.x / WINDOWS; map < maps; map += 2) {
        float sums[4] = {};
        #pragma unroll
        for (int p = 0; p < K; ++p)
            #pragma unroll
            for (int q = 0; q < K; ++q)
                #pragma unroll
                for (int j = 0; j < 4; ++j) sums[j] += pixels[p + j / 2][q + j % 2] * taps[(map * K + p) * K + q];
        const float most = fmaxf(fmaxf(sums[0], sums[1]), fmaxf(sums[2], sums[3]));
        y[((size_t)blockIdx.y * M + first + map) * WINDOWS + window] = tanh_of(most);
    }
}

// What classify does, for few images, a block each, of inputs that are at most 1: many shares are fetched at once.
extern "C" __global__ void __launch_bounds__(512) classify_few(
    const float* __restrict__ partial, const int* __restrict__ weight_exponents, const float* __restrict__ b,
    const float* __restrict__ w_last, const float* __restrict__ b_last, float* __restrict__ scores,
    int* __restrict__ labels, int N, int shares, int padded, int hidden, int classes)
{
    __shared__ float of_warp[16][16];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    float results[16] = {};
    for (int unit = threadIdx.x; unit < hidden; unit += blockDim.x) {
        const float2 back = scale_of(weight_exponents[unit] - 2 * TOP);
        float sum = 0.0f;
        #pragma unroll 16
        for (int share = 0; share < shares; ++share)
            sum += partial[((size_t)share * N + blockIdx.x) * padded + unit];
        const float value = tanh_of(sum * back.x * back.y + b[unit]);
        #pragma unroll
        for (int c = 0; c < 16; ++c) results[c] += c < classes ? value * w_last[c * hidden + unit] : 0.0f;
    }
    #pragma unroll
    for (int c = 0; c < 16; ++c) {
        #pragma unroll
        for (int apart = 16; apart > 0; apart /= 2) results[c] += __shfl_xor_sync(0xffffffffu, results[c], apart);
        if (lane == c) of_warp[warp][c] = results[c];
    }
    __syncthreads();
    if (warp > 0) return;
    float score = __int_as_float(0xff800000);
    if (lane < classes) {
        score = b_last[lane];
        for (int other = 0; other < 16; ++other) score += of_warp[other][lane];
        scores[(size_t)blockIdx.x * classes + lane] = score;
    }
    const int label = label_of(score, lane);
    if (lane == 0) labels[blockIdx.x] = label;
}
