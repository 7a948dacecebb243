/*
title:     A kernel for each kind of layer
idea:      Every thread computes several output channels of several outputs in one column, so that each value it
           loads serves many multiply-adds. First layers (C = 1) keep the input patch in registers and write all
           output channels from it; later layers share input channels through shared memory. Weights come from
           constant memory, arranged in the order of their use, and reach the multiply-adds through uniform
           registers, two in one load. K = 5 and 7 are compile-time.
expect:    Most instructions are multiply-adds, so time falls near the larger of two bounds, that
           of memory on first layers and that of FP32 arithmetic on later ones. Calls with few
           images gain less, since arranging and copying the weights is part of the call. Other
           layers (other K, very small ones, large later ones) take the general kernel and gain nothing.
check:     smsp__inst_executed.sum falls against constant_weights
builds_on: constant_weights
reference: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#constant-memory
constants: {TILE: 16, WEIGHTS_MAX: 16384, STAGE: 10240, FIRST_THREADS: 128, FIRST_ROWS: 6, FIRST_MAPS: 2,
            LATER_THREADS: 256, LATER_ROWS: 9, LATER_MAPS: 8}
limits:    {weights: 16384, M: 65535, N: 65535}
claims:
  - says:     Most instructions are multiply-adds
    quantity: fma_share
    value:    {at_least: 50 %}
  - says:     time falls near the larger of two bounds
    quantity: times_bound
    value:    {at_most: 1.5}
  - says:     Calls with few images gain less
    quantity: op_time
    change:   falls
    where:    {N: {at_least: 10000}}
    more_than: {N: {at_most: 100}}
  - says:     falls against constant_weights
    quantity: smsp__inst_executed.sum
    change:   falls
*/

// Constant memory holds 64 KiB.
__constant__ float weights[WEIGHTS_MAX];

// w (M, C, K, K) to arranged (groups of maps, C, column of taps, row of taps, maps of the group); maps beyond M are zero.
extern "C" __global__ void arrange(
    const float* __restrict__ w, float* __restrict__ arranged, int count, int C, int M, int K, int maps)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int p = i / maps % K;
    const int q = i / (maps * K) % K;
    const int c = i / (maps * K * K) % C;
    const int map = i / (maps * K * K * C) * maps + i % maps;
    arranged[i] = map < M ? w[((map * C + c) * K + p) * K + q] : 0.0f;
}

// C = 1. A thread computes FIRST_ROWS outputs of one column in every map. Threads count over all columns of all images.
// The last threads of a column overlap those above, and write the same values: cheaper than a guard for each store.
template <int K>
__device__ __forceinline__ void first_layer(
    const float* __restrict__ x, float* __restrict__ y, int N, int H, int W, int M)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int strips = (H_out + FIRST_ROWS - 1) / FIRST_ROWS;
    const int place = blockIdx.x * blockDim.x + threadIdx.x;
    const int column = place % W_out;
    const int top = min(place / W_out % strips * FIRST_ROWS, H_out - FIRST_ROWS);
    const int image = place / (W_out * strips);
    if (image >= N) return;

    float patch[FIRST_ROWS + K - 1][K];
    const float* input = x + ((size_t)image * H + top) * W + column;
    #pragma unroll
    for (int i = 0; i < FIRST_ROWS + K - 1; ++i)
        #pragma unroll
        for (int q = 0; q < K; ++q)
            patch[i][q] = input[i * W + q];

    y += ((size_t)image * M * H_out + top) * W_out + column;
    for (int map = 0; map < M; map += FIRST_MAPS) {
        const float* taps = weights + map * K * K;
        float sum[FIRST_MAPS][FIRST_ROWS] = {};
        #pragma unroll
        for (int q = 0; q < K; ++q)
            #pragma unroll
            for (int p = 0; p < K; ++p)
                #pragma unroll
                for (int m = 0; m < FIRST_MAPS; ++m)
                    #pragma unroll
                    for (int i = 0; i < FIRST_ROWS; ++i)
                        sum[m][i] += patch[i + p][q] * taps[(q * K + p) * FIRST_MAPS + m];
        #pragma unroll
        for (int m = 0; m < FIRST_MAPS; ++m) {
            if (map + m < M)
                #pragma unroll
                for (int i = 0; i < FIRST_ROWS; ++i)
                    y[i * W_out] = sum[m][i];
            y += H_out * W_out;
        }
    }
}

// C > 1. A thread computes LATER_ROWS outputs of one column in LATER_MAPS maps. A block holds whole images, as many as
// its threads suffice for, and copies as many channels of them to shared memory at a time as fit. The last threads of
// a column overlap those above. weights_per_map is C * K * K: as a product of parameters in the kernel it would keep
// the compiler from seeing that all threads of a warp read the same weight.
template <int K>
__device__ __forceinline__ void later_layer(
    const float* __restrict__ x, float* __restrict__ y, int N, int C, int H, int W, int M,
    int weights_per_map, int images, int channels)
{
    __shared__ float4 stage[STAGE / 4];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int strips = (H_out + LATER_ROWS - 1) / LATER_ROWS;
    const int thread = threadIdx.x;
    const int column = thread % W_out;
    const int top = min(thread / W_out % strips * LATER_ROWS, H_out - LATER_ROWS);
    const int held = thread / (W_out * strips);  // which of the block's images
    const int first_image = blockIdx.x * images;
    const int first_map = blockIdx.y * LATER_MAPS;
    const int images_here = min(images, N - first_image);
    // Threads without an image compute the block's first again and keep nothing: a branch around the products would
    // cost the uniform registers.
    const int place = ((held < images_here ? held * channels : 0) * H + top) * W + column;
    const float* taps = weights + first_map * weights_per_map;

    float sum[LATER_MAPS][LATER_ROWS] = {};
    for (int first = 0; first < C; first += channels) {
        const int channels_here = min(channels, C - first);
        __syncthreads();  // everyone has read the channels before, which these overwrite
        for (int image = 0; image < images_here; ++image) {
            const float* input = x + ((size_t)(first_image + image) * C + first) * H * W;
            float* copy = (float*)stage + image * channels * H * W;
            if (H * W % 4 == 0) {
                #pragma unroll 4
                for (int i = thread; i < channels_here * H * W / 4; i += blockDim.x)
                    ((float4*)copy)[i] = ((const float4*)input)[i];
            } else {
                #pragma unroll 4
                for (int i = thread; i < channels_here * H * W; i += blockDim.x)
                    copy[i] = input[i];
            }
        }
        __syncthreads();  // the channels are complete before anyone reads them

        for (int c = 0; c < channels_here; ++c) {
            const float* input = (const float*)stage + place + c * H * W;
            #pragma unroll 1
            for (int q = 0; q < K; ++q) {
                float values[LATER_ROWS + K - 1];
                const float* value = input + q;
                #pragma unroll
                for (int i = 0; i < LATER_ROWS + K - 1; ++i) {
                    values[i] = *value;
                    value += W;
                }
                #pragma unroll
                for (int p = 0; p < K; ++p)
                    #pragma unroll
                    for (int m = 0; m < LATER_MAPS; ++m)
                        #pragma unroll
                        for (int i = 0; i < LATER_ROWS; ++i)
                            sum[m][i] += values[i + p] * taps[p * LATER_MAPS + m];
                taps += K * LATER_MAPS;
            }
        }
    }

    if (held >= images_here) return;
    y += (((size_t)(first_image + held) * M + first_map) * H_out + top) * W_out + column;
    #pragma unroll
    for (int m = 0; m < LATER_MAPS; ++m)
        if (first_map + m < M)
            #pragma unroll
            for (int i = 0; i < LATER_ROWS; ++i)
                y[(m * H_out + i) * W_out] = sum[m][i];
}

extern "C" __global__ void __launch_bounds__(FIRST_THREADS, 3) first_layer_5(
    const float* __restrict__ x, float* __restrict__ y, int N, int H, int W, int M)
{
    first_layer<5>(x, y, N, H, W, M);
}

extern "C" __global__ void __launch_bounds__(FIRST_THREADS, 3) first_layer_7(
    const float* __restrict__ x, float* __restrict__ y, int N, int H, int W, int M)
{
    first_layer<7>(x, y, N, H, W, M);
}

extern "C" __global__ void __launch_bounds__(LATER_THREADS, 2) later_layer_5(
    const float* __restrict__ x, float* __restrict__ y, int N, int C, int H, int W, int M,
    int weights_per_map, int images, int channels)
{
    later_layer<5>(x, y, N, C, H, W, M, weights_per_map, images, channels);
}

extern "C" __global__ void __launch_bounds__(LATER_THREADS, 2) later_layer_7(
    const float* __restrict__ x, float* __restrict__ y, int N, int C, int H, int W, int M,
    int weights_per_map, int images, int channels)
{
    later_layer<7>(x, y, N, C, H, W, M, weights_per_map, images, channels);
}

// Every other layer. `weights` is w as it is.
// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" __global__ void conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int tiles_across = (W_out + TILE - 1) / TILE;
    const int column = (blockIdx.x % tiles_across) * TILE + threadIdx.x;
    const int row = (blockIdx.x / tiles_across) * TILE + threadIdx.y;
    const int map = blockIdx.y;
    const int image = blockIdx.z;
    if (row >= H_out || column >= W_out) return;

    float sum = 0.0f;
    for (int c = 0; c < C; ++c) {
        const float* input = x + (((size_t)image * C + c) * H + row) * W + column;
        const float* taps = weights + (map * C + c) * K * K;
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += input[p * W + q] * taps[p * K + q];
    }
    y[(((size_t)image * M + map) * H_out + row) * W_out + column] = sum;
}
