// A product of FP32 matrices from hi and lo FP16 parts by wgmma: the kernel that splits B, and what a block does
// with a pair of tiles in shared memory. A warpgroup has 64 rows of the block's tile of C.

#pragma once
#include "gemm_fp16_split.cuh"
#include "wgmma_n64.cuh"

constexpr int WARPGROUPS = TILE_M / 64, THREADS = WARPGROUPS * 128;
constexpr int CHUNK = 64, CHUNKS = TILE_N / CHUNK;     // columns of a wgmma; those of a block
constexpr int CHUNK_SUMS = CHUNK / 2;                  // a thread's sums of a chunk

// Steps along k: hi parts, then lo parts. A in fragments of 16 rows; B in the order of wgmma's descriptor: 8 columns x
// 8 values of k are 128 bytes, the next 8 of k follow them, and the next 8 columns follow these.
struct Stage {
    uint4 a[STEPS][2][TILE_M / 16][32];
    uint4 b[STEPS][2][TILE_N / 8][2][8];
};

// Where the launcher reads the bytes of a block's shared memory.
extern "C" __global__ void shared_layout(int* __restrict__ layout) { layout[0] = STAGES * sizeof(Stage); }

// A thread splits 8 values along k of a column of B. parts (tile of TILE_N columns, step, part, 8 columns, 8 along k,
// column).
extern "C" __global__ void __launch_bounds__(256) split_b(
    const float* __restrict__ b, uint4* __restrict__ parts, unsigned* column_largest, int* column_is_marked, int n,
    int k, int steps)
{
    const int column = blockIdx.x * 32 + threadIdx.x % 32;
    const int eight = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
    if (eight >= steps * 2) return;
    uint2 pairs[4];
    split_column_of_b<4, 2>(pairs, b, {column_largest, column_is_marked}, column, eight * 8, n, k);
    uint4* to = parts + ((size_t)(column / TILE_N) * steps + eight / 2) * 2 * (TILE_N * 2)
              + (column % TILE_N / 8 * 2 + eight % 2) * 8 + column % 8;
    to[0] = make_uint4(pairs[0].x, pairs[1].x, pairs[2].x, pairs[3].x);
    to[TILE_N * 2] = make_uint4(pairs[0].y, pairs[1].y, pairs[2].y, pairs[3].y);
}

// A warp's fragments of A in a stage.
struct Fragments {
    unsigned hi[STEPS][4], lo[STEPS][4];
    __device__ __forceinline__ void load(const Stage& stage, int m_tile, int lane)
    {
        #pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            *(uint4*)hi[step] = stage.a[step][0][m_tile][lane];
            *(uint4*)lo[step] = stage.a[step][1][m_tile][lane];
        }
    }
};

// The descriptors' distances between steps, between hi and lo parts, and between chunks of columns, in their units.
constexpr unsigned long long B_STEP = sizeof(Stage::b) / STEPS / 16, B_PART = B_STEP / 2, B_CHUNK = B_PART / CHUNKS;

// Starts hi * hi, or lo * hi and hi * lo, of a chunk.
template <int CHUNK_NUMBER>
__device__ __forceinline__ void start_large(float* large, const Fragments& a, unsigned long long b)
{
    wgmma_fence();
    wgmma_m64n64k16<false>(large, a.hi[0], b + CHUNK_NUMBER * B_CHUNK);
    #pragma unroll
    for (int step = 1; step < STEPS; ++step)
        wgmma_m64n64k16<true>(large, a.hi[step], b + step * B_STEP + CHUNK_NUMBER * B_CHUNK);
    wgmma_commit_group();
}
template <int CHUNK_NUMBER>
__device__ __forceinline__ void start_small(float* small, const Fragments& a, unsigned long long b)
{
    wgmma_fence();
    wgmma_m64n64k16<false>(small, a.lo[0], b + CHUNK_NUMBER * B_CHUNK);
    wgmma_m64n64k16<true>(small, a.hi[0], b + B_PART + CHUNK_NUMBER * B_CHUNK);
    #pragma unroll
    for (int step = 1; step < STEPS; ++step) {
        wgmma_m64n64k16<true>(small, a.lo[step], b + step * B_STEP + CHUNK_NUMBER * B_CHUNK);
        wgmma_m64n64k16<true>(small, a.hi[step], b + step * B_STEP + B_PART + CHUNK_NUMBER * B_CHUNK);
    }
    wgmma_commit_group();
}

__device__ __forceinline__ void add_sums(float (&sums)[CHUNK_SUMS], const float (&products)[CHUNK_SUMS], float scale)
{
    #pragma unroll
    for (int i = 0; i < CHUNK_SUMS; ++i) sums[i] += products[i] * scale;
}

// Multiplies a stage. The products of one set of registers are under way while those of the other are added up, and the
// first ones while `start_copies` runs.
template <int CHUNK_NUMBER = 0, class StartCopies>
__device__ __forceinline__ void multiply_stage(
    float (&sums)[CHUNKS][CHUNK_SUMS], float (&large)[CHUNK_SUMS], float (&small)[CHUNK_SUMS], const Fragments& a,
    unsigned long long b, StartCopies start_copies)
{
    start_small<CHUNK_NUMBER>(small, a, b);
    if constexpr (CHUNK_NUMBER > 0) {
        wgmma_wait_group<1>();
        add_sums(sums[CHUNK_NUMBER - 1], large, 1.0f);
    }
    start_large<CHUNK_NUMBER>(large, a, b);
    if constexpr (CHUNK_NUMBER == 0) start_copies();
    wgmma_wait_group<1>();
    add_sums(sums[CHUNK_NUMBER], small, 1.0f / (1 << LO_EXPONENT));
    if constexpr (CHUNK_NUMBER + 1 < CHUNKS)
        multiply_stage<CHUNK_NUMBER + 1>(sums, large, small, a, b, start_copies);
    else {
        wgmma_wait_group<0>();
        add_sums(sums[CHUNK_NUMBER], large, 1.0f);
    }
}

// Undoes the scales and stores a thread's values within C.
__device__ __forceinline__ void store_sums(
    const float (&sums)[CHUNKS][CHUNK_SUMS], const unsigned* __restrict__ row_largest,
    const unsigned* __restrict__ column_largest, float* __restrict__ c, int first_row, int first_column, int m, int n)
{
    int row_exponents[2];
    #pragma unroll
    for (int half = 0; half < 2; ++half)
        row_exponents[half] = exponent_of(row_largest[min(first_row + half * 8, m - 1)]);
    #pragma unroll
    for (int eight = 0; eight < TILE_N / 8; ++eight) {
        const int column = first_column + eight * 8;
        if (column >= n) break;
        const int2 column_exponents =
            make_int2(exponent_of(column_largest[column]), exponent_of(column_largest[min(column + 1, n - 1)]));
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + half * 8;
            const float* const pair = &sums[eight / (CHUNK / 8)][eight % (CHUNK / 8) * 4 + half * 2];
            if (row >= m) break;
            store_pair(c + (size_t)row * n, column, n, pair[0], pair[1], row_exponents[half], column_exponents);
        }
    }
}
