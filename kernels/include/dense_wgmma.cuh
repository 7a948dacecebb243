// A fully connected layer of many images by Hopper's wgmma, FP32 values as hi and lo FP16 parts.
//
// A block multiplies 128 images by WIDTH outputs, 32 inputs a stage. Inputs and weights lie in memory as a stage has them
// in shared memory, so that the TMA brings each by one bulk copy. One thread of a third warpgroup starts the copies, and
// an mbarrier counts their bytes. The other two warpgroups multiply 64 images each, CHUNK outputs at a time: while the
// products of one chunk are under way, those of the chunk before are added up. The products of a stage are added by
// themselves, because tensor cores cut off digits that do not fit beside a larger sum.
//
// Blocks of one column of tiles share its stages evenly. So a block may begin and end within a tile, and a tile has
// sums of several blocks, its shares.

#pragma once

#include "bulk_load.cuh"
#include "dependent_launch.cuh"
#include "fp16_split.cuh"
#include "mma.cuh"
#include "wgmma_n64.cuh"

constexpr int DENSE_ROWS = 128, DENSE_INPUTS = 32;            // images of a tile, inputs of a stage
constexpr int DENSE_X_BYTES = DENSE_ROWS * DENSE_INPUTS * 4;  // of a stage's inputs

// Where the lo part of an image's input lies: (tile, stage, lo or hi, image, input). The quarters of a row, 8 inputs each,
// are swapped otherwise every two images, so that 8 rows of a quarter lie in different banks. `stages`: of a tile.
__device__ __forceinline__ __half* dense_place(__half* x, int image, int stage, int input, int stages)
{
    const int row = image % DENSE_ROWS;
    return x + ((size_t)(image / DENSE_ROWS) * stages + stage) * (DENSE_X_BYTES / 2) + row * DENSE_INPUTS
           + ((input / 8 ^ row / 2 % 4) * 8 + input % 8);
}
constexpr int DENSE_HI = DENSE_ROWS * DENSE_INPUTS;  // from a lo part to its hi part

// Store the parts of an activated value of a convolution there. A stage has 16 values of two channels: of a pair of
// channels all values, `sixteens` stages, and then of the next pair.
__device__ __forceinline__ void store_in_tiles(
    __half* y, int image, int channel, int i, float value, int sixteens, int stages)
{
    const uint2 parts = split(value * power_of_two(SCALE_EXPONENT), 0.0f);
    __half* const place = dense_place(y, image, channel / 2 * sixteens + i / 16, channel % 2 * 16 + i % 16, stages);
    place[0] = __ushort_as_half(parts.y);
    place[DENSE_HI] = __ushort_as_half(parts.x);
}

// Columns: outputs of a tile, and of a chunk.
template <int WIDTH_, int CHUNK_> struct DenseTile {
    static constexpr int WIDTH = WIDTH_, CHUNK = CHUNK_, CHUNKS = WIDTH / CHUNK;
    static constexpr int WEIGHT_BYTES = DENSE_INPUTS * WIDTH * 4, STAGE = DENSE_X_BYTES + WEIGHT_BYTES;
    static constexpr int STAGES = 226 * 1024 / STAGE;
    // The descriptor's distances between 16 inputs, between hi and lo parts, and between chunks, in units of 16 bytes.
    static constexpr int B_PART = WIDTH * 2, B_STEP = 2 * B_PART, B_CHUNK = CHUNK * 2;
    static_assert(WIDTH % CHUNK == 0 && CHUNK % 8 == 0, "whole chunks, 8 columns together");
};

template <int N, bool ACCUMULATE>
__device__ __forceinline__ void wgmma_dense(float (&d)[N / 2], const unsigned (&a)[4], unsigned long long b)
{
    static_assert(N == 64 || N == 72 || N == 80, "the widths of chunks");
    if constexpr (N == 64) wgmma_m64n64k16<ACCUMULATE>(d, a, b);
    if constexpr (N == 72)
        asm volatile("wgmma.mma_async.sync.aligned.m64n72k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
                     " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
                     " %32, %33, %34, %35}, "
                     "{%36, %37, %38, %39}, %40, %41, 1, 1, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                       "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ACCUMULATE));
    if constexpr (N == 80)
        asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 "
                     "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
                     " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
                     " %32, %33, %34, %35, %36, %37, %38, %39}, "
                     "{%40, %41, %42, %43}, %44, %45, 1, 1, 0;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                       "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                       "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                       "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                       "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                       "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
                       "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ACCUMULATE));
}

// Which of a column's blocks multiplies a stage, where `blocks` share `stages`. Block b has those from
// stages * b / blocks on.
__device__ __forceinline__ int block_of_stage(int stage, int stages, int blocks)
{
    return (int)((((long long)stage + 1) * blocks - 1) / stages);
}
__device__ __forceinline__ int first_stage(int block, int stages, int blocks)
{
    return (int)((long long)stages * block / blocks);
}

// A warp's 16 images of a stage.
struct DenseFragments {
    unsigned hi[2][4], lo[2][4];
    __device__ __forceinline__ void load(unsigned stage, int warp, int lane)
    {
        const int row = warp * 16 + lane % 16;
        const unsigned place = stage + row * (DENSE_INPUTS * 2) + (lane / 16 ^ row / 2 % 4) * 16;
        #pragma unroll
        for (int step = 0; step < 2; ++step) {
            *(uint4*)lo[step] = ldmatrix_x4(place ^ step * 32);
            *(uint4*)hi[step] = ldmatrix_x4((place ^ step * 32) + 2 * DENSE_HI);
        }
    }
};

// Begins lo * hi, hi * lo, hi * hi of a chunk, whose weights' descriptor is b.
template <class L>
__device__ __forceinline__ void multiply_chunk(
    float (&products)[L::CHUNK / 2], const DenseFragments& a, unsigned long long b)
{
    wgmma_fence();
    wgmma_dense<L::CHUNK, false>(products, a.lo[0], b);
    wgmma_dense<L::CHUNK, true>(products, a.lo[1], b + L::B_STEP);
    wgmma_dense<L::CHUNK, true>(products, a.hi[0], b + L::B_PART);
    wgmma_dense<L::CHUNK, true>(products, a.hi[1], b + L::B_STEP + L::B_PART);
    wgmma_dense<L::CHUNK, true>(products, a.hi[0], b);
    wgmma_dense<L::CHUNK, true>(products, a.hi[1], b + L::B_STEP);
    wgmma_commit_group();
}

template <int COUNT> __device__ __forceinline__ void add_products(float (&sums)[COUNT], const float (&products)[COUNT])
{
    #pragma unroll
    for (int i = 0; i < COUNT; ++i) sums[i] += products[i];
}

// x: as dense_place says. weights (tile, stage, 16 inputs, hi or lo, 8 outputs, 8 inputs, output, input). partial (shares,
// images, outputs). `steps`: stages of a tile.
template <class L>
__device__ __forceinline__ void dense_wgmma(
    const unsigned char* __restrict__ x, const unsigned char* __restrict__ weights, float* __restrict__ partial, int N,
    int steps, int outputs)
{
    extern __shared__ __align__(128) unsigned smem_hi[];  // the name that conv_pool_single_channel gives it
    __shared__ unsigned long long full[L::STAGES], empty[L::STAGES];
    unsigned char* const shared = (unsigned char*)smem_hi;
    // The shuffle tells the compiler that the warp is the same for all lanes.
    const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < L::STAGES; ++slot) {
            mbarrier_init(full + slot, 1);
            mbarrier_init(empty + slot, 8);  // a lane of each warp that multiplies
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    const int stages = (N + DENSE_ROWS - 1) / DENSE_ROWS * steps;
    const int first = first_stage(blockIdx.y, stages, gridDim.y), last = first_stage(blockIdx.y + 1, stages, gridDim.y);
    let_next_kernel_start();
    if (warp >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x > 256) return;
        weights += (size_t)blockIdx.x * steps * L::WEIGHT_BYTES;
        const auto load_weights = [&](int i) {
            const int slot = i % L::STAGES;
            mbarrier_arrive_expect_tx(full + slot, L::STAGE);
            bulk_load(shared + slot * L::STAGE + DENSE_X_BYTES,
                      weights + (size_t)((first + i) % steps) * L::WEIGHT_BYTES, L::WEIGHT_BYTES, full + slot);
        };
        for (int i = 0; i < min(last - first, L::STAGES); ++i) load_weights(i);
        wait_for_kernel_before();
        for (int i = 0; i < last - first; ++i) {
            const int slot = i % L::STAGES;
            if (i >= L::STAGES) {
                mbarrier_wait(empty + slot, i / L::STAGES - 1);
                load_weights(i);
            }
            bulk_load(shared + slot * L::STAGE, x + (size_t)(first + i) * DENSE_X_BYTES, DENSE_X_BYTES, full + slot);
        }
        return;
    }
    // A multiprocessor has 512 registers for one thread of each warpgroup together.
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");

    float sums[L::CHUNKS][L::CHUNK / 2] = {}, products[2][L::CHUNK / 2];
    int tile = first / steps, step = first % steps;
    #pragma unroll 1
    for (int i = 0; i < last - first; ++i) {
        const int slot = i % L::STAGES;
        const unsigned stage = smem_address(shared) + slot * L::STAGE;
        mbarrier_wait(full + slot, i / L::STAGES);
        DenseFragments a;
        a.load(stage, warp, lane);
        const unsigned long long b = wgmma_descriptor(stage + DENSE_X_BYTES);
        #pragma unroll
        for (int chunk = 0; chunk < L::CHUNKS; ++chunk) {
            multiply_chunk<L>(products[chunk % 2], a, b + chunk * L::B_CHUNK);
            if (chunk == 0) continue;
            wgmma_wait_group<1>();
            add_products(sums[chunk - 1], products[(chunk - 1) % 2]);
        }
        wgmma_wait_group<0>();
        if (lane == 0) mbarrier_arrive(empty + slot);
        add_products(sums[L::CHUNKS - 1], products[(L::CHUNKS - 1) % 2]);
        if (++step < steps && i + 1 < last - first) continue;

        const int share = blockIdx.y - block_of_stage(tile * steps, stages, gridDim.y);
        const int row = tile * DENSE_ROWS + warp * 16 + lane / 4;
        float* const to = partial + ((size_t)share * N + row) * outputs + blockIdx.x * L::WIDTH + lane % 4 * 2;
        #pragma unroll
        for (int chunk = 0; chunk < L::CHUNKS; ++chunk)
            #pragma unroll
            for (int j = 0; j < L::CHUNK / 8; ++j) {
                float* const place = to + chunk * L::CHUNK + j * 8;
                float* const four = &sums[chunk][j * 4];
                if (row < N) *(float2*)place = make_float2(four[0], four[1]);
                if (row + 8 < N) *(float2*)(place + (size_t)8 * outputs) = make_float2(four[2], four[3]);
                four[0] = four[1] = four[2] = four[3] = 0.0f;
            }
        step = 0;
        ++tile;
    }
}

// Where the launcher reads what it must know: outputs of a tile, bytes of a stage's weights, and bytes of a block's
// shared memory.
template <class L> __device__ void write_dense_layout(int* layout)
{
    layout[0] = L::WIDTH;
    layout[1] = L::WEIGHT_BYTES;
    layout[2] = L::STAGES * L::STAGE;
}

extern "C" __global__ void dense_wgmma_layout(int* __restrict__ layout, int outputs)
{
    if (outputs <= 144)
        write_dense_layout<DenseTile<144, 72>>(layout);
    else if (outputs <= 160)
        write_dense_layout<DenseTile<160, 80>>(layout);
    else
        write_dense_layout<DenseTile<256, 64>>(layout);
}

extern "C" __global__ void __launch_bounds__(384, 1) dense_wgmma_144(
    const unsigned char* __restrict__ x, const unsigned char* __restrict__ weights, float* __restrict__ partial, int N,
    int steps, int outputs)
{
    dense_wgmma<DenseTile<144, 72>>(x, weights, partial, N, steps, outputs);
}

extern "C" __global__ void __launch_bounds__(384, 1) dense_wgmma_160(
    const unsigned char* __restrict__ x, const unsigned char* __restrict__ weights, float* __restrict__ partial, int N,
    int steps, int outputs)
{
    dense_wgmma<DenseTile<160, 80>>(x, weights, partial, N, steps, outputs);
}

extern "C" __global__ void __launch_bounds__(384, 1) dense_wgmma_256(
    const unsigned char* __restrict__ x, const unsigned char* __restrict__ weights, float* __restrict__ partial, int N,
    int steps, int outputs)
{
    dense_wgmma<DenseTile<256, 64>>(x, weights, partial, N, steps, outputs);
}
