/*
title:     FP32 as hi and lo FP16 parts, by wgmma
idea:      The same parts and products as fp16x3_mma. A warpgroup multiplies 64 rows by 64 columns of B at a time, A
           from registers, B from shared memory, by Hopper's wgmma. Small products go to one set of registers, large
           ones to another. While one set is being filled, the FP32 pipes add the other to the sums. A block computes
           128 x 256 values.
expect:    wgmma does 16 times the multiply-adds of the FP32 pipes, mma.sync about 10 times. A block of 128 x 256
           reads 1.5 times its share of A and B where 128 x 128 reads 2. So the L2 cache gives 4.7 TB/s at 200
           TFLOP/s. At 60 % of the tensor cores' rate the product takes 0.7 ms at 4096, and preparing A and B another
           0.1. At least 25 % faster than mma.sync there, and 3 times as fast as cuBLAS in FP32.
builds_on: fp16x3_mma
split:     {precision: fp16, products: 3}
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
constants: {TILE_M: 128, TILE_N: 256, STEPS: 4, STAGES: 2, COLUMN_ROWS: 64}
limits:    {m: 1048576, n: 1048576, k: {at_least: 16}}    # a sum of few products shows that lo * lo is left out
least_arch: sm_90a
claims:
  - says:     At least 25 % faster than mma.sync there
    quantity: gpu_time
    change:   falls
    by:       20 %
    where:    {n: {at_least: 4096}}
  - says:     3 times as fast as cuBLAS in FP32
    quantity: gpu_time
    change:   falls
    by:       66 %
    against:  cublas_fp32
    where:    {n: {at_least: 4096}}
*/

#include "async_pipeline.cuh"
#include "gemm_fp16_parts.cuh"
#include "wgmma_n64.cuh"

constexpr int WARPGROUPS = TILE_M / 64, THREADS = WARPGROUPS * 128;
constexpr int CHUNK = 64, CHUNKS = TILE_N / CHUNK;     // columns of a wgmma; those of a block
constexpr int CHUNK_SUMS = CHUNK / 2;                  // a thread's sums of a chunk
constexpr int AHEAD = STAGES - 1;                      // tiles that are copied before they are multiplied

// Steps along k: hi parts, then lo parts. A in fragments of 16 rows; B in the order of wgmma's descriptor: 8 columns x
// 8 values of k are 128 bytes, the next 8 of k follow them, and the next 8 columns follow these.
struct Stage {
    uint4 a[STEPS][2][TILE_M / 16][32];
    uint4 b[STEPS][2][TILE_N / 8][2][8];
};
constexpr int LOADS_A = sizeof(Stage::a) / 16 / THREADS, LOADS_B = sizeof(Stage::b) / 16 / THREADS;
static_assert(LOADS_A * THREADS * 16 == sizeof(Stage::a) && LOADS_B * THREADS * 16 == sizeof(Stage::b), "a share each");

// Where the launcher reads the bytes of a block's shared memory.
extern "C" __global__ void shared_layout(int* __restrict__ layout) { layout[0] = STAGES * sizeof(Stage); }

extern "C" __global__ void __launch_bounds__(256) split_a(
    const float* __restrict__ a, uint4* __restrict__ fragments, unsigned* row_largest, int* row_is_marked,
    unsigned* column_largest, int* column_is_marked, int m, int n, int k, int steps)
{
    split_rows_of_a(
        a, fragments, {row_largest, row_is_marked}, {column_largest, column_is_marked}, TILE_M, m, n, k, steps);
}

extern "C" __global__ void __launch_bounds__(256) largest_of_columns(
    const float* __restrict__ b, unsigned* column_largest, int n, int k)
{
    find_largest_of_columns(b, {column_largest, nullptr}, n, k, COLUMN_ROWS);
}

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

// A tile of C from the parts of A and B; `steps` is a multiple of STEPS.
extern "C" __global__ void __launch_bounds__(THREADS, 1) gemm(
    const uint4* __restrict__ a, const uint4* __restrict__ b, const unsigned* __restrict__ row_largest,
    const unsigned* __restrict__ column_largest, float* __restrict__ c, int m, int n, int steps)
{
    extern __shared__ __align__(128) Stage stages[];
    // The shuffle tells the compiler that the warp is the same for all lanes.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int tiles = steps / STEPS;
    const uint4* a_next = a + (size_t)blockIdx.y * tiles * (sizeof(Stage::a) / 16) + threadIdx.x;
    const uint4* b_next = b + (size_t)blockIdx.x * tiles * (sizeof(Stage::b) / 16) + threadIdx.x;
    const auto start_copies = [&](int tile) {
        if (tile < tiles) {
            const unsigned a_smem = smem_address(&stages[tile % STAGES].a) + threadIdx.x * 16;
            const unsigned b_smem = smem_address(&stages[tile % STAGES].b) + threadIdx.x * 16;
            #pragma unroll
            for (int load = 0; load < LOADS_A; ++load)
                cp_async_16(a_smem + load * THREADS * 16, a_next + load * THREADS);
            #pragma unroll
            for (int load = 0; load < LOADS_B; ++load)
                cp_async_16(b_smem + load * THREADS * 16, b_next + load * THREADS);
            a_next += LOADS_A * THREADS;
            b_next += LOADS_B * THREADS;
        }
        cp_async_commit_group();
    };
    #pragma unroll
    for (int tile = 0; tile < AHEAD; ++tile) start_copies(tile);

    float sums[CHUNKS][CHUNK_SUMS] = {}, large[CHUNK_SUMS] = {}, small[CHUNK_SUMS] = {};
    #pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        cp_async_wait_group<AHEAD - 1>();
        fence_proxy_async_shared(); // wgmma sees this thread's copies
        __syncthreads(); // all copies of this tile have arrived, and nobody reads the tile before it any more
        const Stage& stage = stages[tile % STAGES];
        Fragments fragments;
        fragments.load(stage, warp, lane);
        multiply_stage(sums, large, small, fragments, wgmma_descriptor(smem_address(&stage.b)),
                       [&] { start_copies(tile + AHEAD); });
    }
    store_sums(sums, row_largest, column_largest, c, blockIdx.y * TILE_M + warp * 16 + lane / 4,
               blockIdx.x * TILE_N + lane % 4 * 2, m, n);
}

extern "C" __global__ void __launch_bounds__(256) fp32_fallback(
    const float* __restrict__ a, const float* __restrict__ b, const int* __restrict__ row_is_marked,
    const int* __restrict__ column_is_marked, float* __restrict__ c, int m, int n, int k)
{
    compute_marked(a, b, row_is_marked, column_is_marked, c, m, n, k);
}
