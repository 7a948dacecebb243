// C = A B in FP32 with tiles of A and B that asynchronous copies bring to shared memory, STAGES of them in a ring.
//
// A block computes TILE_M x TILE_N values, WARPS_WIDE warps side by side. A warp's lanes are 8 below each other and 4
// side by side. A lane has THREAD_M rows, 8 apart, and THREAD_N columns in vectors of 4, 16 apart.

#pragma once
#include "async_pipeline.cuh"
#include "float4_edges.cuh"

// A's rows are 4 values longer than the tile: 8 lanes that read vectors of 8 rows then meet no bank twice.
struct Stage {
    float a[TILE_M][TILE_K + 4];
    float b[TILE_K][TILE_N];
};
constexpr int LANE_ROWS = 8, LANE_COLUMNS = 4;
constexpr int WARP_ROWS = LANE_ROWS * THREAD_M, WARP_COLUMNS = LANE_COLUMNS * THREAD_N;
constexpr int WARPS_WIDE = TILE_N / WARP_COLUMNS;
constexpr int THREADS = TILE_M / WARP_ROWS * WARPS_WIDE * 32;
constexpr int LOADS_A = TILE_M * TILE_K / 4 / THREADS, LOADS_B = TILE_K * TILE_N / 4 / THREADS;
static_assert(TILE_M % WARP_ROWS == 0 && TILE_N % WARP_COLUMNS == 0 && TILE_K % 4 == 0, "whole warps and vectors");
static_assert(THREAD_N % 8 == 0, "whole strips");
static_assert(LOADS_A * THREADS * 4 == TILE_M * TILE_K && LOADS_B * THREADS * 4 == TILE_K * TILE_N, "a thread's share");
static_assert(sizeof(Stage) == 4 * (TILE_M * (TILE_K + 4) + TILE_K * TILE_N), "what `shared_bytes` counts on");

// Copies a vector to shared memory, or zeros where there is none; without waiting where rows are whole vectors.
__device__ __forceinline__ void copy4(float* smem, const float* row, int first, int end, bool aligned)
{
    if (aligned && first < end)
        cp_async_16(smem_address(smem), row + first);
    else
        *(float4*)smem = load4(row, first, end, aligned);
}

// What a thread copies of each pair of tiles: vectors of A ROWS_APART below each other, of B STEPS_APART along k.
constexpr int ROWS_APART = THREADS / (TILE_K / 4), STEPS_APART = THREADS / (TILE_N / 4);
static_assert(ROWS_APART * (TILE_K / 4) == THREADS && STEPS_APART * (TILE_N / 4) == THREADS, "whole rows at a time");

// Starts the copies of two tiles that lie within A and B, whose rows are whole vectors. `a` and `b` are the thread's
// first vectors of them.
__device__ __forceinline__ void load_inner_stage(
    Stage& stage, const float* __restrict__ a, const float* __restrict__ b, int n, int k)
{
    const unsigned a_smem = smem_address(&stage.a[threadIdx.x / (TILE_K / 4)][threadIdx.x % (TILE_K / 4) * 4]);
    const unsigned b_smem = smem_address(&stage.b[threadIdx.x / (TILE_N / 4)][threadIdx.x % (TILE_N / 4) * 4]);
    #pragma unroll
    for (int load = 0; load < LOADS_A; ++load)
        cp_async_16(a_smem + load * ROWS_APART * (TILE_K + 4) * 4, a + (size_t)(load * ROWS_APART) * k);
    #pragma unroll
    for (int load = 0; load < LOADS_B; ++load)
        cp_async_16(b_smem + load * STEPS_APART * TILE_N * 4, b + (size_t)(load * STEPS_APART) * n);
}

// The same for tiles that end beyond A and B, or whose rows are no whole vectors. Rows of A beyond the last are the
// last again: their results are not stored.
__device__ __forceinline__ void load_edge_stage(
    Stage& stage, const float* __restrict__ a, const float* __restrict__ b, int top, int left, int begin, int m, int n,
    int k)
{
    #pragma unroll 1
    for (int load = 0; load < LOADS_A; ++load) {
        const int row = load * ROWS_APART + threadIdx.x / (TILE_K / 4), step = threadIdx.x % (TILE_K / 4) * 4;
        copy4(&stage.a[row][step], a + (size_t)min(top + row, m - 1) * k, begin + step, k, k % 4 == 0);
    }
    #pragma unroll 1
    for (int load = 0; load < LOADS_B; ++load) {
        const int step = load * STEPS_APART + threadIdx.x / (TILE_N / 4), column = threadIdx.x % (TILE_N / 4) * 4;
        const int end = begin + step < k ? n : 0;
        copy4(&stage.b[step][column], b + (size_t)(begin + step) * n, left + column, end, n % 4 == 0);
    }
}

// Adds the products of a stage. Each vector of A serves four steps along k. The order runs down strips of 8 columns, back
// and forth, so that neighbouring multiply-adds share a factor. The second takes it from the operand reuse cache.
__device__ __forceinline__ void multiply_stage(
    float (&sums)[THREAD_M][THREAD_N], const Stage& stage, int first_row, int first_column)
{
    #pragma unroll
    for (int begin = 0; begin < TILE_K; begin += 4) {
        float a_values[THREAD_M][4];
        #pragma unroll
        for (int r = 0; r < THREAD_M; ++r)
            *(float4*)a_values[r] = *(const float4*)&stage.a[first_row + r * LANE_ROWS][begin];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            float b_values[THREAD_N];
            #pragma unroll
            for (int s = 0; s < THREAD_N; s += 4)
                *(float4*)&b_values[s] = *(const float4*)&stage.b[begin + i][first_column + s * LANE_COLUMNS];
            #pragma unroll
            for (int strip = 0; strip < THREAD_N; strip += 8)
                #pragma unroll
                for (int r = 0; r < THREAD_M; ++r)
                    #pragma unroll
                    for (int j = 0; j < 8; ++j) {
                        const int s = strip + (r % 2 ? 7 - j : j);
                        sums[r][s] += a_values[r][i] * b_values[s];
                    }
        }
    }
}

__device__ __forceinline__ void gemm_async(
    const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k)
{
    extern __shared__ __align__(16) Stage stages[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int top = blockIdx.y * TILE_M, left = blockIdx.x * TILE_N;
    const int first_row = warp / WARPS_WIDE * WARP_ROWS + lane / LANE_COLUMNS;
    const int first_column = warp % WARPS_WIDE * WARP_COLUMNS + lane % LANE_COLUMNS * 4;
    const int tiles = (k + TILE_K - 1) / TILE_K;

    // Every tile has its group of copies, empty ones behind the last tile, so that counting groups counts tiles.
    const bool inner = top + TILE_M <= m && left + TILE_N <= n && k % 4 == 0 && n % 4 == 0;
    const float* a_next = a + (size_t)(top + threadIdx.x / (TILE_K / 4)) * k + threadIdx.x % (TILE_K / 4) * 4;
    const float* b_next = b + (size_t)(threadIdx.x / (TILE_N / 4)) * n + left + threadIdx.x % (TILE_N / 4) * 4;
    const auto start_copies = [&](int tile, Stage& stage) {
        const int begin = tile * TILE_K;
        if (inner && begin + TILE_K <= k)
            load_inner_stage(stage, a_next, b_next, n, k);
        else if (tile < tiles)
            load_edge_stage(stage, a, b, top, left, begin, m, n, k);
        cp_async_commit_group();
        a_next += TILE_K;
        b_next += (size_t)TILE_K * n;
    };
    #pragma unroll
    for (int tile = 0; tile < STAGES - 1; ++tile) start_copies(tile, stages[tile]);
    float sums[THREAD_M][THREAD_N] = {};
    #pragma unroll 1
    for (int tile = 0, current = 0; tile < tiles; ++tile) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads(); // all copies of this tile have arrived, and nobody reads the tile before it any more
        start_copies(tile + STAGES - 1, stages[current == 0 ? STAGES - 1 : current - 1]);
        multiply_stage(sums, stages[current], first_row, first_column);
        current = current + 1 == STAGES ? 0 : current + 1;
    }
    #pragma unroll
    for (int r = 0; r < THREAD_M; ++r) {
        const int row = top + first_row + r * LANE_ROWS;
        if (row >= m) break;
        #pragma unroll
        for (int s = 0; s < THREAD_N; s += 4)
            store4(c + (size_t)row * n, left + first_column + s * LANE_COLUMNS, n, n % 4 == 0,
                   make_float4(sums[r][s], sums[r][s + 1], sums[r][s + 2], sums[r][s + 3]));
    }
}
