/*
title:     Blocks of output channels and columns in registers
idea:      A block of outputs, some output channels by some vectors of columns, stays in registers through all C*K*K
           weights. So partial sums never reach memory. A vector of inputs serves all output channels of the block, a
           broadcast weight all its columns. Where rows do not fill vectors, an image is copied K times first, each
           copy one column further and its rows cut to the width of the outputs. The outputs of a channel are then one
           long row, whose blocks go across the ends of rows. AVX-512, AVX2 or what every processor has is found at
           run time.
expect:    simd loads and stores partial sums K times for each channel and wastes lanes at row ends. A block of 8
           output channels and 3 vectors loads 11 times for 24 multiply-adds, so two pipes of FMA should be the limit
           where C*K*K is in the hundreds. With one channel a block ends after 25 or 49 weights, and storing it should
           show.
builds_on: simd
reference: https://doi.org/10.1145/1356052.1356053
constants: {LANES_AT_MOST: 16}     # of a vector; 8 stops at AVX2, 4 at what every processor has
general:
  kernel: conv_general
  arguments: [x, w, bias, y, N, C, H, W, M, K, KW, S, SW, P, PW, P_end, PW_end, D, DW, G]
claims:
  - says:     simd loads and stores partial sums K times for each channel
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
  - says:     With one channel a block ends after 25 or 49 weights
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
    more_than: {C: {is: 1}}
  - says:     two pipes of FMA should be the limit
    undecidable: no peak of the CPU is measured to hold its rate against
*/

#ifndef LANES

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <omp.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

int ceil_div(int a, int b) { return (a + b - 1) / b; }

// What a call is about. The rest is derived, in the order in which `convolve` takes it apart.
struct Layer {
    const float *x, *w;
    float* y;
    int N, C, H, W, M, K;
    int H_out = H - K + 1, W_out = W - K + 1, taps = C * K * K;
};

using Convolve = void(const Layer&);

// What a call with strides, padding, dilation, groups or bias is about. `channels` and `maps` are those of a group.
struct GeneralLayer {
    const float *x, *w, *bias;
    float* y;
    int N, C, H, W, M, K, KW, S, SW, P, PW, P_end, PW_end, D, DW, G;
    int H_out = (H + P + P_end - D * (K - 1) - 1) / S + 1, W_out = (W + PW + PW_end - DW * (KW - 1) - 1) / SW + 1;
    int channels = C / G, maps = M / G, taps = channels * K * KW;
};

using ConvolveGeneral = void(const GeneralLayer&);

struct Convolutions {
    Convolve* usual;
    ConvolveGeneral* general;
};

constexpr double STAGED_BYTES = 1 << 20;  // of a band of an image with padding: about what a core's own cache holds

}  // namespace

// The rest of this file, once for each kind of instructions.
#define INSTRUCTIONS portable
#define TARGET
#define LANES 4
#define REGISTERS 16
#include __FILE__

#if defined(__x86_64__)
#define INSTRUCTIONS avx2
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define REGISTERS 16
#include __FILE__

#define INSTRUCTIONS avx512
#define TARGET __attribute__((target("avx512f")))
#define LANES 16
#define REGISTERS 32
#include __FILE__
#endif

static Convolutions fastest()
{
#if defined(__x86_64__)
    if (LANES_AT_MOST >= 16 && __builtin_cpu_supports("avx512f")) return {avx512::convolve, avx512::convolve_general};
    if (LANES_AT_MOST >= 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return {avx2::convolve, avx2::convolve_general};
#endif
    return {portable::convolve, portable::convolve_general};
}

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" void conv_forward(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)
{
    static Convolve* const convolve = fastest().usual;
    convolve({x, w, y, N, C, H, W, M, K});
}

// The same with strides, padding, dilation, G groups, and bias (M) where it is not null. w (M, C/G, K, KW).
extern "C" void conv_general(
    const float* x, const float* w, const float* bias, float* y, int N, int C, int H, int W, int M, int K, int KW,
    int S, int SW, int P, int PW, int P_end, int PW_end, int D, int DW, int G)
{
    static ConvolveGeneral* const convolve = fastest().general;
    convolve({x, w, bias, y, N, C, H, W, M, K, KW, S, SW, P, PW, P_end, PW_end, D, DW, G});
}

#else

namespace {
namespace INSTRUCTIONS {

typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));

TARGET inline Vector load(const float* from)
{
    Vector values;
    std::memcpy(&values, from, sizeof values);
    return values;
}

TARGET inline void store(float* to, Vector values) { std::memcpy(to, &values, sizeof values); }

// The first `count` lanes alone; memory behind them is not touched.
#if LANES == 16
TARGET inline Vector load(const float* from, int count)
{
    return (Vector)_mm512_maskz_loadu_ps((1u << count) - 1, from);
}

TARGET inline void store(float* to, Vector values, int count)
{
    _mm512_mask_storeu_ps(to, (1u << count) - 1, (__m512)values);
}
#elif LANES == 8
TARGET inline __m256i first(int count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

TARGET inline Vector load(const float* from, int count) { return (Vector)_mm256_maskload_ps(from, first(count)); }

TARGET inline void store(float* to, Vector values, int count) { _mm256_maskstore_ps(to, first(count), (__m256)values); }
#else
inline Vector load(const float* from, int count)
{
    Vector values = {};
    for (int i = 0; i < count; ++i) values[i] = from[i];
    return values;
}

inline void store(float* to, Vector values, int count)
{
    for (int i = 0; i < count; ++i) to[i] = values[i];
}
#endif

// Every second lane of two vectors, from the first on.
TARGET inline Vector even(Vector low, Vector high)
{
    typedef int Lanes __attribute__((vector_size(LANES * sizeof(int))));
    Lanes chosen;
    for (int i = 0; i < LANES; ++i) chosen[i] = 2 * i;
    return __builtin_shuffle(low, high, chosen);
}

// One block of outputs. The inputs of a tap begin at from + offsets[tap], the weights of a map lie behind those of the one
// before; `count` columns are stored, and the maps of y are `map` apart.
template <int MAPS, int VECTORS>
TARGET void block(
    const float* from, const int* offsets, int taps, const float* weights, float* y, std::ptrdiff_t map, int count)
{
    Vector sums[MAPS][VECTORS] = {};
    const float* weights_of[MAPS];
    for (int m = 0; m < MAPS; ++m) weights_of[m] = weights + std::ptrdiff_t(m) * taps;
    for (int tap = 0; tap < taps; ++tap) {
        Vector inputs[VECTORS];
        for (int v = 0; v < VECTORS; ++v) inputs[v] = load(from + offsets[tap] + v * LANES);
        for (int m = 0; m < MAPS; ++m)
            for (int v = 0; v < VECTORS; ++v) sums[m][v] += weights_of[m][tap] * inputs[v];
    }
    constexpr int last = VECTORS - 1;
#pragma GCC unroll 8  // or the sums go through memory, to be indexed
    for (int m = 0; m < MAPS; ++m, y += map) {
#pragma GCC unroll 8
        for (int v = 0; v < last; ++v) store(y + v * LANES, sums[m][v]);
        if (count == VECTORS * LANES) store(y + last * LANES, sums[m][last]);
        else store(y + last * LANES, sums[m][last], count - last * LANES);
    }
}

using Block = void(const float*, const int*, int, const float*, float*, std::ptrdiff_t, int);

constexpr int MAPS_AT_MOST = REGISTERS / 4;

// Registers hold the sums, a vector of inputs for each column of them, and a weight.
constexpr int vectors_at_most(int maps) { return std::min((REGISTERS - 1) / (maps + 1), 6); }

template <int MAPS, int VECTORS>
constexpr Block* sized = block<MAPS, std::min(VECTORS, vectors_at_most(MAPS))>;

template <int MAPS>
constexpr Block* blocks_of[] = {
    sized<MAPS, 1>, sized<MAPS, 2>, sized<MAPS, 3>, sized<MAPS, 4>, sized<MAPS, 5>, sized<MAPS, 6>,
};

constexpr Block* const* blocks[] = {
    blocks_of<1>, blocks_of<2>, blocks_of<3>, blocks_of<4>,
#if REGISTERS == 32
    blocks_of<5>, blocks_of<6>, blocks_of<7>, blocks_of<8>,
#endif
};

// K copies of `rows` rows of an image's channel, each a column further than the one before, cut to W_out columns.
TARGET void stage_shifted(const Layer& layer, const float* from, int rows, float* to, std::ptrdiff_t plane)
{
    const int whole = layer.W_out / LANES * LANES, rest = layer.W_out - whole;
    for (int h = 0; h < rows; ++h, from += layer.W, to += layer.W_out)
        for (int q = 0; q < layer.K; ++q) {
            const float* const row = from + q;
            float* const column = to + q * plane;
            for (int v = 0; v < whole; v += LANES) store(column + v, load(row + v));
            if (rest) store(column + whole, load(row + whole, rest), rest);
        }
}

TARGET void convolve(const Layer& layer)
{
    const auto [x, w, y, N, C, H, W, M, K, H_out, W_out, taps] = layer;

    // Blocks within rows waste the last vector's lanes; across their ends they cost the copies. In multiply-adds of
    // vectors, of which a copied vector costs about four:
    const double within = double(M) * taps * H_out * ceil_div(W_out, LANES);
    const double copying = 4.0 * C * K * H * ceil_div(W_out, LANES);
    const bool shifted = double(M) * taps * ceil_div(H_out * W_out, LANES) + copying < within;

    // A task is an image, or bands of its rows where there are few images for the threads.
    const int bands = std::min(H_out, ceil_div(4 * omp_get_max_threads(), N));
    const int band_rows = ceil_div(H_out, bands);

    // Staged: C planes of the image's rows, or C*K of them shifted; blocks read up to a vector behind their columns.
    const int planes = shifted ? C * K : C, pitch = shifted ? W_out : W;
    const int plane = ceil_div((band_rows + K - 1) * pitch, 16) * 16 + 16;
    std::vector<int> offsets;
    for (int c = 0; c < C; ++c)
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                offsets.push_back((shifted ? (c * K + q) * plane : c * plane + q) + p * pitch);

    const int sets = ceil_div(M, MAPS_AT_MOST);
    const auto first_map = [M = M, sets](int set) { return M * set / sets; };

#pragma omp parallel for schedule(dynamic)
    for (int task = 0; task < N * bands; ++task) {
        const int n = task / bands, h0 = task % bands * band_rows, rows = std::min(band_rows, H_out - h0);
        if (rows <= 0) continue;

        thread_local std::vector<float> memory;  // of numbers everywhere: subnormal waste behind a row would be slow
        const std::size_t needed = std::size_t(planes) * plane + 8 * LANES;
        if (memory.size() < needed) memory.assign(needed, 0.0f);
        float* const staged = memory.data();
        for (int c = 0; c < C; ++c) {
            const float* const from = x + ((std::ptrdiff_t(n) * C + c) * H + h0) * W;
            if (shifted) stage_shifted(layer, from, rows + K - 1, staged + c * K * plane, plane);
            else std::memcpy(staged + c * plane, from, sizeof(float) * (rows + K - 1) * W);
        }

        const int lines = shifted ? 1 : rows, length = shifted ? rows * W_out : W_out;
        for (int set = 0; set < sets; ++set) {
            const int m = first_map(set), maps = first_map(set + 1) - m;
            const int vectors = ceil_div(length, LANES), steps = ceil_div(vectors, vectors_at_most(maps));
            const int step = ceil_div(vectors, steps) * LANES;
            float* const out = y + ((std::ptrdiff_t(n) * M + m) * H_out + h0) * W_out;
            for (int line = 0; line < lines; ++line)
                for (int i = 0; i < length; i += step) {
                    const int count = std::min(length - i, step);
                    blocks[maps - 1][ceil_div(count, LANES) - 1](
                        staged + line * pitch + i, offsets.data(), taps, w + std::ptrdiff_t(m) * taps,
                        out + line * W_out + i, std::ptrdiff_t(H_out) * W_out, count);
                }
        }
    }
}

// A row of inputs as the tap q of a row of outputs reads it: one input for each output, zeros outside the image. `row`
// is null above and below the image.
TARGET void stage_row(const GeneralLayer& layer, const float* row, int q, float* to)
{
    const int shift = q * layer.DW - layer.PW, W_out = layer.W_out, SW = layer.SW;
    if (!row) {
        std::fill(to, to + W_out, 0.0f);
        return;
    }
    const int first = std::min(W_out, shift < 0 ? ceil_div(-shift, SW) : 0);
    const int last = std::clamp(ceil_div(layer.W - shift, SW), first, W_out);
    std::fill(to, to + first, 0.0f);
    if (SW == 1) std::copy(row + first + shift, row + last + shift, to + first);
    else {
        int v = first;
        if (SW == 2)
            for (; v + LANES < last; v += LANES) {  // the last input read is one behind the last needed
                const float* const from = row + v * 2 + shift;
                store(to + v, even(load(from), load(from + LANES)));
            }
        for (; v < last; ++v) to[v] = row[v * SW + shift];
    }
    std::fill(to + last, to + W_out, 0.0f);
}

// `convolve` with rows staged once for each q, so that the outputs of a channel are one long row.
TARGET void convolve_general(const GeneralLayer& layer)
{
    const auto [x, w, bias, y, N, C, H, W, M, K, KW, S, SW, P, PW, P_end, PW_end, D, DW, G,
                H_out, W_out, channels, maps, taps] = layer;
    const int outputs = H_out * W_out;

    // A task is a group of channels of an image, or bands of its rows: as many as make the staged inputs fit, or more where
    // each thread has less to do then.
    const int planes = channels * KW * S, tasks = N * G, threads = omp_get_max_threads();
    const auto rows_of = [H_out = H_out](int bands) { return ceil_div(H_out, bands); };
    const auto vectors_in_turn = [&](int bands) {
        return std::int64_t(ceil_div(tasks * bands, threads)) * ceil_div(rows_of(bands) * W_out, LANES);
    };
    int bands = int(std::min<double>(H_out, sizeof(float) * double(planes) * outputs / STAGED_BYTES + 1));
    for (int more = bands + 1; more <= std::min(H_out, 4 * threads / tasks); ++more)
        if (vectors_in_turn(more) < vectors_in_turn(bands)) bands = more;
    const int band_rows = rows_of(bands);

    // A plane holds, for a channel and a q, every S-th row of inputs: what a tap reads for rows of outputs in turn.
    const int plane = ceil_div((band_rows + D * (K - 1) / S) * W_out, 16) * 16 + 16;
    std::vector<int> offsets;
    for (int c = 0; c < channels; ++c)
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < KW; ++q)
                offsets.push_back(((c * KW + q) * S + p * D % S) * plane + p * D / S * W_out);

    const int sets = ceil_div(maps, MAPS_AT_MOST);  // of a group's maps, each computed at once
    const auto first_map = [maps = maps, sets](int set) { return maps * set / sets; };

#pragma omp parallel for schedule(dynamic)
    for (int task = 0; task < N * G * bands; ++task) {
        const int n = task / bands / G, group = task / bands % G;
        const int h0 = task % bands * band_rows, rows = std::min(band_rows, H_out - h0);
        if (rows <= 0) continue;

        thread_local std::vector<float> memory;  // of numbers everywhere: subnormal waste behind a row would be slow
        const std::size_t needed = std::size_t(planes) * plane + 8 * LANES;
        if (memory.size() < needed) memory.assign(needed, 0.0f);
        float* const staged = memory.data();
        const int staged_rows = (rows - 1) * S + D * (K - 1) + 1;
        for (int c = 0; c < channels; ++c) {
            const float* const image = x + (std::ptrdiff_t(n) * C + group * channels + c) * H * W;
            for (int i = 0; i < staged_rows; ++i) {
                const int row = h0 * S - P + i;
                const float* const from = row >= 0 && row < H ? image + std::ptrdiff_t(row) * W : nullptr;
                for (int q = 0; q < KW; ++q)
                    stage_row(layer, from, q, staged + ((c * KW + q) * S + i % S) * plane + i / S * W_out);
            }
        }

        const int length = rows * W_out;
        for (int set = 0; set < sets; ++set) {
            const int m = group * maps + first_map(set), count_of_maps = first_map(set + 1) - first_map(set);
            const int vectors = ceil_div(length, LANES), steps = ceil_div(vectors, vectors_at_most(count_of_maps));
            const int step = ceil_div(vectors, steps) * LANES;
            float* const out = y + (std::ptrdiff_t(n) * M + m) * outputs + h0 * W_out;
            for (int i = 0; i < length; i += step) {
                const int count = std::min(length - i, step);
                blocks[count_of_maps - 1][ceil_div(count, LANES) - 1](
                    staged + i, offsets.data(), taps, w + std::ptrdiff_t(m) * taps, out + i, outputs, count);
            }
            if (bias)
                for (int each = 0; each < count_of_maps; ++each)
                    for (int i = 0; i < rows * W_out; ++i) out[std::ptrdiff_t(each) * outputs + i] += bias[m + each];
        }
    }
}

}  // namespace INSTRUCTIONS
}  // namespace

#undef INSTRUCTIONS
#undef TARGET
#undef LANES
#undef REGISTERS
#endif
