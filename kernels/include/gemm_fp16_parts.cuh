// A and B of a matrix product as hi and lo FP16 parts. Powers of two, one for each row of A and column of B, bring
// their largest value to 2^SCALE_EXPONENT. lo parts are 2^LO_EXPONENT times larger than they count, so that they do
// not leave FP16's normal numbers before hi parts do. Values keep 22 bits down to 2^MIN_EXPONENT of the largest. Rows
// and columns with smaller values, infinities or NaN are marked, and a last kernel computes their outputs in FP32.

#pragma once
#define MIN_EXPONENT (-28)
#include "fp16_split.cuh"

constexpr int LO_EXPONENT = 11;
constexpr int FRAGMENT_K = 16;  // values along k of a fragment

// Largest magnitudes, as bits, and marks of the rows of A or the columns of B.
struct Range {
    unsigned* largest;
    int* is_marked;
};

// Two scaled values: their hi parts in x, their lo parts times 2^LO_EXPONENT in y.
__device__ __forceinline__ uint2 split_wide(float first, float second)
{
    constexpr float LO_SCALE = 1 << LO_EXPONENT;
    const __half2 hi = __floats2half2_rn(first, second);
    const float2 rounded = __half22float2(hi);
    const __half2 lo = __floats2half2_rn((first - rounded.x) * LO_SCALE, (second - rounded.y) * LO_SCALE);
    return make_uint2(*(const unsigned*)&hi, *(const unsigned*)&lo);
}

__device__ __forceinline__ bool keeps_precision(float value, float least)
{
    return value == 0.0f || fabsf(value) >= least;
}

// What values are scaled by, and the smallest that keeps its precision, for a largest magnitude.
struct Scale {
    float2 factors;
    float least;
    __device__ __forceinline__ explicit Scale(unsigned largest)
        : factors(scale_factors(SCALE_EXPONENT - exponent_of(largest))), least(min_magnitude(exponent_of(largest)))
    {
    }
    __device__ __forceinline__ float operator()(float value) const { return value * factors.x * factors.y; }
};

// Undoes the scales of a row and a column, by the exponents of their largest values.
__device__ __forceinline__ float unscale(float sum, int row_exponent, int column_exponent)
{
    const int exponent = row_exponent + column_exponent - 2 * SCALE_EXPONENT;
    if (exponent >= -126 && exponent <= 127) return sum * __int_as_float((exponent + 127) << 23);
    const float2 factors = scale_factors(exponent);
    return sum * factors.x * factors.y;
}

// Stores the sums of two neighbours in a row of C, `row_exponent` being that of A's row.
__device__ __forceinline__ void store_pair(
    float* row, int column, int n, float first, float second, int row_exponent, int2 column_exponents)
{
    first = unscale(first, row_exponent, column_exponents.x);
    second = unscale(second, row_exponent, column_exponents.y);
    if (n % 2 == 0) {
        *(float2*)(row + column) = make_float2(first, second);
        return;
    }
    row[column] = first;
    if (column + 1 < n) row[column + 1] = second;
}

// Splits 16 rows of A a block, zeros beyond m and k, into fragments of mma: fragment (tile of TILE_M rows, step along
// k, part, 16 rows, lane). Also clears what is known of B's columns.
__device__ __forceinline__ void split_rows_of_a(
    const float* __restrict__ a, uint4* __restrict__ fragments, Range rows, Range columns, int tile_m, int m, int n,
    int k, int steps)
{
    __shared__ unsigned largest[FRAGMENT_K];
    __shared__ int is_marked[FRAGMENT_K];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const int top = blockIdx.x * 16;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        columns.largest[i] = 0;
        columns.is_marked[i] = 0;
    }
    for (int row = warp; row < 16; row += warps) {
        unsigned mine = 0;
        if (top + row < m)
            #pragma unroll 8
            for (int i = lane; i < k; i += 32) mine = max(mine, magnitude_bits(a[(size_t)(top + row) * k + i]));
        mine = __reduce_max_sync(0xffffffffu, mine);
        if (lane == 0) {
            largest[row] = mine;
            is_marked[row] = mine >= INFINITY_BITS;
        }
    }
    __syncthreads();

    const int group_id = lane / 4, lane_in_group = lane % 4;
    const Scale scales[2] = {Scale(largest[group_id]), Scale(largest[group_id + 8])};
    for (int step = warp; step < steps; step += warps) {
        uint2 parts[2][2];  // of 8 values along k and the next 8, in rows group_id and group_id + 8
        #pragma unroll
        for (int half = 0; half < 2; ++half)
            #pragma unroll
            for (int eight = 0; eight < 2; ++eight) {
                const int row = group_id + half * 8, in_sum = step * FRAGMENT_K + eight * 8 + lane_in_group * 2;
                const float* source = a + (size_t)(top + row) * k + in_sum;
                const Scale& scale = scales[half];
                const float first = top + row < m && in_sum < k ? source[0] : 0.0f;
                const float second = top + row < m && in_sum + 1 < k ? source[1] : 0.0f;
                if (!keeps_precision(first, scale.least) || !keeps_precision(second, scale.least)) is_marked[row] = 1;
                parts[eight][half] = split_wide(scale(first), scale(second));
            }
        const int tiles = tile_m / 16;
        const size_t part = ((size_t)(blockIdx.x / tiles) * steps + step) * 2;
        uint4* to = fragments + (part * tiles + blockIdx.x % tiles) * 32 + lane;
        to[0] = make_uint4(parts[0][0].x, parts[0][1].x, parts[1][0].x, parts[1][1].x);
        to[tiles * 32] = make_uint4(parts[0][0].y, parts[0][1].y, parts[1][0].y, parts[1][1].y);
    }
    __syncthreads(); // all marks are there
    if (threadIdx.x < 16 && top + threadIdx.x < m) {
        rows.largest[top + threadIdx.x] = largest[threadIdx.x];
        rows.is_marked[top + threadIdx.x] = is_marked[threadIdx.x];
    }
}

// The largest magnitude of each column of B; a block looks at `count` rows.
__device__ __forceinline__ void find_largest_of_columns(
    const float* __restrict__ b, Range columns, int n, int k, int count)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= n) return;
    unsigned largest = 0;
    const int begin = blockIdx.y * count, end = min(begin + count, k);
    #pragma unroll 8
    for (int i = begin; i < end; ++i) largest = max(largest, magnitude_bits(b[(size_t)i * n + column]));
    atomicMax(columns.largest + column, largest);
}

// Splits PAIRS pairs of neighbours along k of a column of B, each pair APART from the one before, zeros beyond n and k.
// Marks the column where a value is too small.
template <int PAIRS, int APART>
__device__ __forceinline__ void split_column_of_b(
    uint2 (&parts)[PAIRS], const float* __restrict__ b, Range columns, int column, int begin, int n, int k)
{
    const unsigned largest = column < n ? columns.largest[column] : 0;
    const Scale scale(largest);
    bool is_marked = largest >= INFINITY_BITS;
    #pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
        const int in_sum = begin + pair * APART;
        const float* source = b + (size_t)in_sum * n + column;
        const float first = column < n && in_sum < k ? source[0] : 0.0f;
        const float second = column < n && in_sum + 1 < k ? source[n] : 0.0f;
        is_marked |= !keeps_precision(first, scale.least) || !keeps_precision(second, scale.least);
        parts[pair] = split_wide(scale(first), scale(second));
    }
    if (is_marked) columns.is_marked[column] = 1;
}

// Computes the outputs of marked rows and columns in FP32.
__device__ __forceinline__ void compute_marked(
    const float* __restrict__ a, const float* __restrict__ b, const int* __restrict__ row_is_marked,
    const int* __restrict__ column_is_marked, float* __restrict__ c, int m, int n, int k)
{
    const auto output = [&](int row, int column) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) sum += a[(size_t)row * k + i] * b[(size_t)i * n + column];
        c[(size_t)row * n + column] = sum;
    };
    for (int row = blockIdx.x; row < m; row += gridDim.x)
        if (row_is_marked[row])
            for (int column = threadIdx.x; column < n; column += blockDim.x) output(row, column);
    for (int column = blockIdx.x; column < n; column += gridDim.x)
        if (column_is_marked[column])
            for (int row = threadIdx.x; row < m; row += blockDim.x) output(row, column);
}
