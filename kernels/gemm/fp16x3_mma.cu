/*
title:     FP32 as hi and lo FP16 parts, by mma.sync
idea:      Every value is split into a hi and a lo FP16 part, which together keep 22 bits. Before that, a power of two
           for each row of A and column of B scales its values into FP16's range. Tensor cores multiply hi * hi, hi *
           lo, lo * hi. They cut off digits where they add, so each of their sums spans 16 steps along k alone, and
           the FP32 pipes add those. The parts are stored in the order of the fragments of mma. Rows and columns with
           values below 2^-28 of their largest are computed in FP32 by a last kernel.
expect:    Through mma.sync, tensor cores do about 10 times the multiply-adds of the FP32 pipes and need 3 for each.
           At 70 % of their rate that is 2.3 times the FP32 peak. Splitting moves 2.5 bytes for each byte of A and B,
           0.1 ms of 1 ms at 4096. At least 2.3 times as fast as cuBLAS in FP32 there. Errors stay those of FP32 sums.
           At 256 the five launches take longer than the product.
builds_on: async_copies
split:     {precision: fp16, products: 3}
reference: https://doi.org/10.1177/10943420221090256 (Ootomo and Yokota, 2022)
constants: {TILE_M: 128, TILE_N: 128, STEPS: 2, STAGES: 3, WARPS_HIGH: 2, WARPS_WIDE: 4, BLOCKS: 2, COLUMN_ROWS: 64, SPLIT_THREADS: 1024}
limits:    {m: 1048576, n: 1048576, k: {at_least: 16}}    # a sum of few products shows that lo * lo is left out
least_arch: sm_80
claims:
  - says:     At least 2.3 times as fast as cuBLAS in FP32 there
    quantity: gpu_time
    change:   falls
    by:       56 %
    against:  cublas_fp32
    where:    {n: {at_least: 4096}}
  - says:     Errors stay those of FP32 sums
    quantity: error
    value:    {at_most: 0.000002}
  - says:     At 256 the five launches take longer than the product
    quantity: gpu_time
    change:   rises
    where:    {m: {is: 256}, n: {is: 256}}
*/

#include "async_pipeline.cuh"
#include "gemm_fp16_split.cuh"
#include "mma.cuh"

constexpr int THREADS = WARPS_HIGH * WARPS_WIDE * 32;
constexpr int M_TILES = TILE_M / WARPS_HIGH / 16, N_PAIRS = TILE_N / WARPS_WIDE / 16;  // of a warp

// Fragments of STEPS steps along k: hi parts, then lo parts. One of A is 16 rows; one of B is two tiles of 8 columns.
struct Stage {
    uint4 a[STEPS][2][TILE_M / 16][32];
    uint4 b[STEPS][2][TILE_N / 16][32];
};
constexpr int LOADS_A = sizeof(Stage::a) / 16 / THREADS, LOADS_B = sizeof(Stage::b) / 16 / THREADS;
static_assert(LOADS_A * THREADS * 16 == sizeof(Stage::a) && LOADS_B * THREADS * 16 == sizeof(Stage::b), "a share each");

// Where the launcher reads the bytes of a block's shared memory.
extern "C" __global__ void shared_layout(int* __restrict__ layout) { layout[0] = STAGES * sizeof(Stage); }

// A warp splits 16 columns of B in one step along k into a fragment (tile of TILE_N columns, step, part, 16 columns,
// lane).
extern "C" __global__ void __launch_bounds__(256) split_b(
    const float* __restrict__ b, uint4* __restrict__ fragments, unsigned* column_largest, int* column_is_marked, int n,
    int k, int steps)
{
    constexpr int PAIRS = TILE_N / 16;
    const int lane = threadIdx.x % 32, group_id = lane / 4, lane_in_group = lane % 4;
    const int step = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
    if (step >= steps) return;
    uint2 parts[2][2];  // of a tile of 8 columns, then the next; 8 values along k, then the next 8
    #pragma unroll
    for (int tile = 0; tile < 2; ++tile)
        split_column_of_b<2, 8>(
            parts[tile], b, {column_largest, column_is_marked}, blockIdx.x * 16 + tile * 8 + group_id,
            step * FRAGMENT_K + lane_in_group * 2, n, k);
    const size_t part = ((size_t)(blockIdx.x / PAIRS) * steps + step) * 2;
    uint4* to = fragments + (part * PAIRS + blockIdx.x % PAIRS) * 32 + lane;
    to[0] = make_uint4(parts[0][0].x, parts[0][1].x, parts[1][0].x, parts[1][1].x);
    to[PAIRS * 32] = make_uint4(parts[0][0].y, parts[0][1].y, parts[1][0].y, parts[1][1].y);
}

// d = a b.
__device__ __forceinline__ void mma_m16n8k16_from_zero(float (&d)[4], uint4 a, unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1), "f"(0.0f));
}

// Adds the three products of a tile of 16 x 8 in one step along k.
__device__ __forceinline__ void add_products(
    float (&sums)[4], uint4 a_hi, uint4 a_lo, unsigned b0_hi, unsigned b1_hi, unsigned b0_lo, unsigned b1_lo)
{
    constexpr float LO_UNSCALE = 1.0f / (1 << LO_EXPONENT);
    float large[4], small[4];
    mma_m16n8k16_from_zero(small, a_lo, b0_hi, b1_hi);
    mma_m16n8k16_from_zero(large, a_hi, b0_hi, b1_hi);
    mma_m16n8k16(small, a_hi, b0_lo, b1_lo);
    #pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = sums[i] + small[i] * LO_UNSCALE + large[i];
}

__device__ __forceinline__ void multiply_stage(
    float (&sums)[M_TILES][N_PAIRS * 2][4], const Stage& stage, int first_m_tile, int first_pair, int lane)
{
    #pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        uint4 b_hi[N_PAIRS], b_lo[N_PAIRS];
        #pragma unroll
        for (int pair = 0; pair < N_PAIRS; ++pair) {
            b_hi[pair] = stage.b[step][0][first_pair + pair][lane];
            b_lo[pair] = stage.b[step][1][first_pair + pair][lane];
        }
        #pragma unroll
        for (int i = 0; i < M_TILES; ++i) {
            const uint4 a_hi = stage.a[step][0][first_m_tile + i][lane];
            const uint4 a_lo = stage.a[step][1][first_m_tile + i][lane];
            #pragma unroll
            for (int pair = 0; pair < N_PAIRS; ++pair) {
                const uint4 hi = b_hi[pair], lo = b_lo[pair];
                add_products(sums[i][2 * pair], a_hi, a_lo, hi.x, hi.y, lo.x, lo.y);
                add_products(sums[i][2 * pair + 1], a_hi, a_lo, hi.z, hi.w, lo.z, lo.w);
            }
        }
    }
}

// Undoes the scales and stores a lane's values within C.
__device__ __forceinline__ void store_sums(
    const float (&sums)[M_TILES][N_PAIRS * 2][4], const unsigned* __restrict__ row_largest,
    const unsigned* __restrict__ column_largest, float* __restrict__ c, int first_row, int first_column, int m, int n)
{
    #pragma unroll
    for (int tile = 0; tile < N_PAIRS * 2; ++tile) {
        const int column = first_column + tile * 8;
        if (column >= n) break;
        const int2 column_exponents =
            make_int2(exponent_of(column_largest[column]), exponent_of(column_largest[min(column + 1, n - 1)]));
        #pragma unroll
        for (int i = 0; i < M_TILES * 2; ++i) {
            const int row = first_row + i * 8;
            if (row >= m) break;
            const float* const pair = &sums[i / 2][tile][i % 2 * 2];
            const int row_exponent = exponent_of(row_largest[row]);
            store_pair(c + (size_t)row * n, column, n, pair[0], pair[1], row_exponent, column_exponents);
        }
    }
}

// A tile of C from the fragments of A and B; `steps` is a multiple of STEPS.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) gemm(
    const uint4* __restrict__ a, const uint4* __restrict__ b, const unsigned* __restrict__ row_largest,
    const unsigned* __restrict__ column_largest, float* __restrict__ c, int m, int n, int steps)
{
    extern __shared__ __align__(16) Stage stages[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first_m_tile = warp / WARPS_WIDE * M_TILES, first_pair = warp % WARPS_WIDE * N_PAIRS;
    const uint4* a_next = a + (size_t)blockIdx.y * (steps / STEPS) * (sizeof(Stage::a) / 16) + threadIdx.x;
    const uint4* b_next = b + (size_t)blockIdx.x * (steps / STEPS) * (sizeof(Stage::b) / 16) + threadIdx.x;
    const int tiles = steps / STEPS;
    const auto start_copies = [&](int tile, Stage& stage) {
        if (tile < tiles) {
            const unsigned a_smem = smem_address(&stage.a) + threadIdx.x * 16;
            const unsigned b_smem = smem_address(&stage.b) + threadIdx.x * 16;
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
    for (int tile = 0; tile < STAGES - 1; ++tile) start_copies(tile, stages[tile]);

    float sums[M_TILES][N_PAIRS * 2][4] = {};
    #pragma unroll 1
    for (int tile = 0, current = 0; tile < tiles; ++tile) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads(); // all copies of this tile have arrived, and nobody reads the tile before it any more
        start_copies(tile + STAGES - 1, stages[current == 0 ? STAGES - 1 : current - 1]);
        multiply_stage(sums, stages[current], first_m_tile, first_pair, lane);
        current = current + 1 == STAGES ? 0 : current + 1;
    }
    store_sums(sums, row_largest, column_largest, c, blockIdx.y * TILE_M + first_m_tile * 16 + lane / 4,
               blockIdx.x * TILE_N + first_pair * 16 + lane % 4 * 2, m, n);
}
