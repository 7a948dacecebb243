// The first fully connected layer for few images, FP32 values as hi and lo FP16 parts, by mma.sync.
//
// Latency limits it. So many blocks share the inputs, most often a chunk of 64 each. Their loads are all under way at
// once. Warps share the outputs, and take all of a block's 64 images.

#pragma once

#include "async_copy.cuh"
#include "dependent_launch.cuh"
#include "fp16_split.cuh"
#include "mma.cuh"

constexpr int FEW_ROWS = 64, FEW_INPUTS = 64;  // of a block, of a chunk
constexpr int FEW_PITCH = 72;                  // a row's inputs and a gap that spreads 8 rows over all banks

// TILES: of 8 outputs a block. Tiles warp, warp + 8 and on are a warp's.
template <int TILES_> struct FewImages {
    static constexpr int TILES = TILES_, WARP_TILES = (TILES + 7) / 8, STEPS = FEW_INPUTS / 16;
    using Weights = uint4[WARP_TILES][STEPS];
};

// Load a chunk's inputs of the thread's four images, zeros where there is none, and the warp's weights.
template <class L>
__device__ __forceinline__ void load_chunk(
    float4 (&inputs)[4], typename L::Weights& fragments, const float* x, const uint4* weights, int images, int chunk,
    int K)
{
    const int column = chunk * FEW_INPUTS + threadIdx.x % 16 * 4;
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int row = threadIdx.x / 16 + 16 * r;
        const bool is_there = row < images && column < K;
        inputs[r] = is_there ? *(const float4*)(x + (size_t)row * K + column) : make_float4(0, 0, 0, 0);
    }
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    #pragma unroll
    for (int j = 0; j < L::WARP_TILES; ++j)
        #pragma unroll
        for (int step = 0; step < L::STEPS; ++step) {
            const int k = chunk * L::STEPS + step, tile = min(warp + 8 * j, L::TILES - 1);
            // Weights end with a whole 32 inputs.
            const bool is_there = k < (K + 31) / 32 * 2;
            fragments[j][step] = is_there ? weights[((size_t)k * L::TILES + tile) * 32 + lane] : make_uint4(0, 0, 0, 0);
        }
}

// Sums over one of gridDim.z shares of the K inputs, of 64 images (blockIdx.y) and 8 * TILES outputs (blockIdx.x) a
// block. Arguments and results are those of fused_mma.cu's dense. The products of a chunk are added up by themselves,
// because tensor cores cut off digits that do not fit beside a larger sum.
template <class L>
__device__ __forceinline__ void dense_few(
    const float* x, const uint4* __restrict__ weights, const int* exponents, float* partial, int N, int K, int outputs)
{
    __shared__ __align__(16) __half smem_parts[2][FEW_ROWS * FEW_PITCH];  // hi, lo
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int chunks = (K + FEW_INPUTS - 1) / FEW_INPUTS;
    const int last = (int)((long long)chunks * (blockIdx.z + 1) / gridDim.z);
    const int top = blockIdx.y * FEW_ROWS, images = min(N - top, FEW_ROWS);
    const float* const block_x = x + (size_t)top * K;
    const uint4* const block_weights = weights + (size_t)blockIdx.x * ((K + 31) / 32 * 2) * L::TILES * 32;

    int chunk = (int)((long long)chunks * blockIdx.z / gridDim.z);
    float4 inputs[4];
    typename L::Weights fragments;
    let_next_kernel_start();
    if (blockIdx.y == 0) {  // the weights come to the L2 cache meanwhile
        const int begin = chunk * L::STEPS, end = min(last * L::STEPS, (K + 31) / 32 * 2);
        prefetch_l2((const float*)(block_weights + (size_t)begin * L::TILES * 32), (end - begin) * L::TILES * 128,
                    threadIdx.x, 256);
    }
    wait_for_kernel_before();
    load_chunk<L>(inputs, fragments, block_x, block_weights, images, chunk, K);
    float scales[4], sums[FEW_ROWS / 16][L::WARP_TILES][4] = {};
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int image = min(top + (int)threadIdx.x / 16 + 16 * r, N - 1);
        scales[r] = power_of_two(min(SCALE_EXPONENT - exponents[image], 127));
    }
    for (; chunk < last; ++chunk) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
            const uint2 left = split(inputs[r].x * scales[r], inputs[r].y * scales[r]);
            const uint2 right = split(inputs[r].z * scales[r], inputs[r].w * scales[r]);
            const int place = (threadIdx.x / 16 + 16 * r) * FEW_PITCH + threadIdx.x % 16 * 4;
            *(uint2*)(smem_parts[0] + place) = make_uint2(left.x, right.x);
            *(uint2*)(smem_parts[1] + place) = make_uint2(left.y, right.y);
        }
        typename L::Weights b;
        #pragma unroll
        for (int j = 0; j < L::WARP_TILES; ++j)
            #pragma unroll
            for (int step = 0; step < L::STEPS; ++step) b[j][step] = fragments[j][step];
        __syncthreads();
        if (chunk + 1 < last) load_chunk<L>(inputs, fragments, block_x, block_weights, images, chunk + 1, K);
        #pragma unroll
        for (int first = 0; first < FEW_ROWS / 16; first += 2) {  // 16 images, two times side by side
            if (first * 16 >= images) break;
            float products[2][L::WARP_TILES][4] = {};
            #pragma unroll
            for (int step = 0; step < L::STEPS; ++step) {
                uint4 hi[2], lo[2];
                #pragma unroll
                for (int m = 0; m < 2; ++m) {
                    const int place = ((first + m) * 16 + lane % 16) * FEW_PITCH + step * 16 + lane / 16 * 8;
                    hi[m] = ldmatrix_x4(smem_address(smem_parts[0] + place));
                    lo[m] = ldmatrix_x4(smem_address(smem_parts[1] + place));
                }
                #pragma unroll
                for (int product = 0; product < 3; ++product)  // hi * lo, lo * hi, hi * hi
                    #pragma unroll
                    for (int j = 0; j < L::WARP_TILES; ++j)
                        #pragma unroll
                        for (int m = 0; m < 2; ++m)
                            mma_m16n8k16(products[m][j], product == 1 ? lo[m] : hi[m],
                                         product == 0 ? b[j][step].z : b[j][step].x,
                                         product == 0 ? b[j][step].w : b[j][step].y);
            }
            #pragma unroll
            for (int m = 0; m < 2; ++m)
                #pragma unroll
                for (int j = 0; j < L::WARP_TILES; ++j)
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) sums[first + m][j][i] += products[m][j][i];
        }
        __syncthreads();  // before the next chunk's inputs overwrite these
    }
    #pragma unroll
    for (int m = 0; m < FEW_ROWS / 16; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = m * 16 + half * 8 + lane / 4;
            if (row >= images) continue;
            float* const place = partial + ((size_t)blockIdx.z * N + top + row) * outputs + blockIdx.x * 8 * L::TILES
                                 + lane % 4 * 2;
            #pragma unroll
            for (int j = 0; j < L::WARP_TILES; ++j)
                if (const int tile = warp + 8 * j; tile < L::TILES)
                    *(float2*)(place + tile * 8) = make_float2(sums[m][j][2 * half], sums[m][j][2 * half + 1]);
        }
}

extern "C" __global__ void __launch_bounds__(256, 1) dense_few_2(
    const float* x, const uint4* __restrict__ weights, const int* exponents, float* partial, int N, int K, int outputs)
{
    dense_few<FewImages<4>>(x, weights, exponents, partial, N, K, outputs);
}

extern "C" __global__ void __launch_bounds__(256, 1) dense_few_8(
    const float* x, const uint4* __restrict__ weights, const int* exponents, float* partial, int N, int K, int outputs)
{
    dense_few<FewImages<16>>(x, weights, exponents, partial, N, K, outputs);
}

extern "C" __global__ void __launch_bounds__(256, 1) dense_few_9(
    const float* x, const uint4* __restrict__ weights, const int* exponents, float* partial, int N, int K, int outputs)
{
    dense_few<FewImages<18>>(x, weights, exponents, partial, N, K, outputs);
}

extern "C" __global__ void __launch_bounds__(256, 1) dense_few_10(
    const float* x, const uint4* __restrict__ weights, const int* exponents, float* partial, int N, int K, int outputs)
{
    dense_few<FewImages<20>>(x, weights, exponents, partial, N, K, outputs);
}
