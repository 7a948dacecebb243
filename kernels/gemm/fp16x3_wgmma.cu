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
constants: {TILE_M: 128, TILE_N: 256, STEPS: 4, STAGES: 2, COLUMN_ROWS: 64, SPLIT_THREADS: 1024}
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
#include "gemm_fp16_wgmma.cuh"

constexpr int AHEAD = STAGES - 1;  // tiles that are copied before they are multiplied
constexpr int LOADS_A = sizeof(Stage::a) / 16 / THREADS, LOADS_B = sizeof(Stage::b) / 16 / THREADS;
static_assert(LOADS_A * THREADS * 16 == sizeof(Stage::a) && LOADS_B * THREADS * 16 == sizeof(Stage::b), "a share each");

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
