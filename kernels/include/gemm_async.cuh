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
static_assert(TILE_M % WARP_ROWS == 0 && TILE_N % WARP_COLUMNS == 0 && TILE_K % 4 == 0, "whole warps and vectors");
static_assert(THREAD_N % 8 == 0, "whole strips");
static_assert(sizeof(Stage) == 4 * (TILE_M * (TILE_K + 4) + TILE_K * TILE_N), "what `shared_bytes` counts on");

__device__ __forceinline__ void cp_async_4(unsigned smem_destination, const float* source)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(smem_destination), "l"(source));
}

// The same, or a zero: what is not `within` the source is not read.
__device__ __forceinline__ void cp_async_4_or_zero(unsigned smem_destination, const float* source, bool within)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(smem_destination), "l"(source), "r"(within ? 4 : 0));
}

// Copies WIDTH values to shared memory, zeros in place of those from `end` on. Only vectors of rows that are no whole
// vectors are waited for.
template <int WIDTH>
__device__ __forceinline__ void copy_edge(float* smem, const float* row, int first, int end, bool aligned)
{
    if (WIDTH == 1)
        cp_async_4_or_zero(smem_address(smem), row + first, first < end);
    else if (aligned && first < end)
        cp_async_16(smem_address(smem), row + first);
    else
        *(float4*)smem = load4(row, first, end, aligned);
}

// What a thread copies of each pair of tiles, WIDTH values at a time: of A in rows ROWS_APART below each other, of B in
// rows STEPS_APART below each other.
template <int WIDTH> struct Share {
    static_assert(WIDTH == 1 || WIDTH == 4, "a value or a vector");
    static constexpr int ROWS_APART = THREADS * WIDTH / TILE_K, STEPS_APART = THREADS * WIDTH / TILE_N;
    static constexpr int LOADS_A = TILE_M / ROWS_APART, LOADS_B = TILE_K / STEPS_APART;
    static_assert(ROWS_APART * TILE_K == THREADS * WIDTH && LOADS_A * ROWS_APART == TILE_M, "whole rows of A");
    static_assert(STEPS_APART * TILE_N == THREADS * WIDTH && LOADS_B * STEPS_APART == TILE_K, "whole rows of B");
    int row = threadIdx.x / (TILE_K / WIDTH), a_step = threadIdx.x % (TILE_K / WIDTH) * WIDTH;
    int b_step = threadIdx.x / (TILE_N / WIDTH), column = threadIdx.x % (TILE_N / WIDTH) * WIDTH;
};

template <int WIDTH> __device__ __forceinline__ void copy_inner(unsigned smem_destination, const float* source)
{
    if (WIDTH == 1)
        cp_async_4(smem_destination, source);
    else
        cp_async_16(smem_destination, source);
}

// Starts the copies of two tiles that lie within A and B. `a` and `b` are the thread's first values of them.
template <int WIDTH>
__device__ __forceinline__ void load_inner_stage(
    Stage& stage, const float* __restrict__ a, const float* __restrict__ b, int n, int k)
{
    const Share<WIDTH> share;
    const unsigned a_smem = smem_address(&stage.a[share.row][share.a_step]);
    const unsigned b_smem = smem_address(&stage.b[share.b_step][share.column]);
    #pragma unroll
    for (int load = 0; load < share.LOADS_A; ++load)
        copy_inner<WIDTH>(a_smem + load * share.ROWS_APART * (TILE_K + 4) * 4,
                          a + (size_t)(load * share.ROWS_APART) * k);
    #pragma unroll
    for (int load = 0; load < share.LOADS_B; ++load)
        copy_inner<WIDTH>(b_smem + load * share.STEPS_APART * TILE_N * 4, b + (size_t)(load * share.STEPS_APART) * n);
}

// The same for tiles that end beyond A and B, or whose rows are no whole vectors. Rows of A beyond the last are the
// last again: their results are not stored.
template <int WIDTH>
__device__ __forceinline__ void load_edge_stage(
    Stage& stage, const float* __restrict__ a, const float* __restrict__ b, int top, int left, int begin, int m, int n,
    int k)
{
    const Share<WIDTH> share;
    #pragma unroll 1
    for (int load = 0; load < share.LOADS_A; ++load) {
        const int row = load * share.ROWS_APART + share.row, step = share.a_step;
        copy_edge<WIDTH>(&stage.a[row][step], a + (size_t)min(top + row, m - 1) * k, begin + step, k, k % 4 == 0);
    }
    #pragma unroll 1
    for (int load = 0; load < share.LOADS_B; ++load) {
        const int step = load * share.STEPS_APART + share.b_step, column = share.column;
        const int end = begin + step < k ? n : 0;
        copy_edge<WIDTH>(&stage.b[step][column], b + (size_t)(begin + step) * n, left + column, end, n % 4 == 0);
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

// WIDTH is how many values a copy takes: 4, or 1 where rows are no whole vectors.
template <int WIDTH = 4>
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
    const bool inner = top + TILE_M <= m && left + TILE_N <= n && (WIDTH == 1 || (k % 4 == 0 && n % 4 == 0));
    const Share<WIDTH> share;
    const float* a_next = a + (size_t)(top + share.row) * k + share.a_step;
    const float* b_next = b + (size_t)share.b_step * n + left + share.column;
    const auto start_copies = [&](int tile, Stage& stage) {
        const int begin = tile * TILE_K;
        if (inner && begin + TILE_K <= k)
            load_inner_stage<WIDTH>(stage, a_next, b_next, n, k);
        else if (tile < tiles)
            load_edge_stage<WIDTH>(stage, a, b, top, left, begin, m, n, k);
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
