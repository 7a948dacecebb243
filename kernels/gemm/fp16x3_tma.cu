/*
title:     FP32 as hi and lo FP16 parts, tiles by the TMA
idea:      The parts of a tile lie together in memory, so that one bulk copy brings those of A and another those of B. One
           thread of a third warpgroup starts them, and the TMA does the rest. A barrier in shared memory counts the bytes
           that have come, and a second one the threads that are done with a tile. The third warpgroup leaves its registers
           to the two that multiply.
expect:    In fp16x3_wgmma a thread issues 24 cp.async for each pair of tiles, a fence and a barrier of the whole block.
           All of that goes. Two warpgroups that wait for each other at each tile add up their sums at the same time, while
           the tensor cores idle. Without that barrier one may add while the other multiplies. Faster by 3 to 15 % on large
           matrices.
builds_on: fp16x3_wgmma
split:     {precision: fp16, products: 3}
reference: https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async-bulk
constants: {TILE_M: 128, TILE_N: 256, STEPS: 4, STAGES: 2, COLUMN_ROWS: 64, SPLIT_THREADS: 1024}
limits:    {m: 1048576, n: 1048576, k: {at_least: 16}}    # a sum of few products shows that lo * lo is left out
least_arch: sm_90a
claims:
  - says:     All of that goes
    quantity: smsp__inst_executed.sum
    change:   falls
    where:    {n: {at_least: 2048}}
  - says:     Faster by 3 to 15 % on large matrices
    quantity: gpu_time
    change:   falls
    by:       {at_least: 3 %, at_most: 15 %}
    where:    {n: {at_least: 4096}}
*/

#include "bulk_load.cuh"
#include "gemm_fp16_wgmma.cuh"

// A tile of C from the parts of A and B; `steps` is a multiple of STEPS.
extern "C" __global__ void __launch_bounds__(THREADS + 128, 1) gemm(
    const uint4* __restrict__ a, const uint4* __restrict__ b, const unsigned* __restrict__ row_largest,
    const unsigned* __restrict__ column_largest, float* __restrict__ c, int m, int n, int steps)
{
    extern __shared__ __align__(128) Stage stages[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    // The shuffle tells the compiler that the warp is the same for all lanes.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int tiles = steps / STEPS;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full + stage, 1);
            mbarrier_init(empty + stage, THREADS);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    if (warp >= THREADS / 32) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x > THREADS) return;
        const uint4* a_next = a + (size_t)blockIdx.y * tiles * (sizeof(Stage::a) / 16);
        const uint4* b_next = b + (size_t)blockIdx.x * tiles * (sizeof(Stage::b) / 16);
        for (int tile = 0; tile < tiles; ++tile) {
            const int stage = tile % STAGES;
            if (tile >= STAGES) mbarrier_wait(empty + stage, tile / STAGES - 1);
            mbarrier_arrive_expect_tx(full + stage, sizeof(Stage));
            bulk_load(stages[stage].a, a_next, sizeof(Stage::a), full + stage);
            bulk_load(stages[stage].b, b_next, sizeof(Stage::b), full + stage);
            a_next += sizeof(Stage::a) / 16;
            b_next += sizeof(Stage::b) / 16;
        }
        return;
    }
    // A multiprocessor has 512 registers for one thread of each warpgroup together.
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");

    float sums[CHUNKS][CHUNK_SUMS] = {}, large[CHUNK_SUMS] = {}, small[CHUNK_SUMS] = {};
    #pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % STAGES;
        mbarrier_wait(full + stage, tile / STAGES);
        Fragments fragments;
        fragments.load(stages[stage], warp, lane);
        multiply_stage(sums, large, small, fragments, wgmma_descriptor(smem_address(&stages[stage].b)), [] {});
        mbarrier_arrive(empty + stage);
    }
    store_sums(sums, row_largest, column_largest, c, blockIdx.y * TILE_M + warp * 16 + lane / 4,
               blockIdx.x * TILE_N + lane % 4 * 2, m, n);
}
