/*
title:     Unrolled input, tiled matrix product
idea:      The inputs of one image are copied into a matrix (C*K*K, H_out*W_out) in global
           memory, a column for each output. A matrix product in 16x16 tiles of shared memory
           with the weights (M, C*K*K) then gives all outputs of that image.
expect:    Slower than direct in spite of the tiled product. Two launches an image make 20000
           of them for 10000 images, each too small to fill the GPU. Every input is written up
           to K*K times and read back. M = 6 leaves 10 of a tile's 16 rows without work.
check:     lts__t_sectors_op_write.sum rises against direct
builds_on: direct
reference: https://hal.inria.fr/inria-00112631
constants: {TILE: 16, THREADS: 256}
every_case: true
claims:
  - says:     Slower than direct in spite of the tiled product
    quantity: op_time
    change:   rises
  - says:     rises against direct
    quantity: lts__t_sectors_op_write.sum
    change:   rises
  - says:     too small to fill the GPU
    quantity: sm__throughput.avg.pct_of_peak_sustained_elapsed
    value:    {at_most: 60 %}
*/

// unrolled (C*K*K, H_out*W_out): the column of an output holds the inputs under it.
// Each thread copies those of one output in one input map, so that a warp writes neighbours.
extern "C" __global__ void __launch_bounds__(THREADS) unroll(
    const float* __restrict__ x, float* __restrict__ unrolled, int image, int C, int H, int W, int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int outputs = H_out * W_out;
    const int thread = blockIdx.x * THREADS + threadIdx.x;
    const int c = thread / outputs;
    const int output = thread % outputs;
    const int row = output / W_out;
    const int column = output % W_out;
    if (c >= C) return;

    const float* input = x + (((size_t)image * C + c) * H + row) * W + column;
    float* copy = unrolled + (size_t)c * K * K * outputs + output;
    for (int p = 0; p < K; ++p)
        for (int q = 0; q < K; ++q)
            copy[(size_t)(p * K + q) * outputs] = input[p * W + q];
}

// One element of w (M, products) x unrolled (products, outputs), whose tiles a block's threads load together.
__device__ __forceinline__ float tiled_product(
    const float* __restrict__ w, const float* __restrict__ unrolled,
    int map, int output, int M, int products, int outputs)
{
    __shared__ float taps[TILE][TILE];
    __shared__ float inputs[TILE][TILE];

    float sum = 0.0f;
    for (int first = 0; first < products; first += TILE) {
        // Zeros beyond the ends of either matrix add nothing.
        const int tap = first + threadIdx.x;
        const int source = first + threadIdx.y;
        taps[threadIdx.y][threadIdx.x] = (map < M && tap < products) ? w[(size_t)map * products + tap] : 0.0f;
        inputs[threadIdx.y][threadIdx.x] =
            (source < products && output < outputs) ? unrolled[(size_t)source * outputs + output] : 0.0f;
        __syncthreads();  // both tiles are complete before anyone reads them

        for (int i = 0; i < TILE; ++i)
            sum += taps[threadIdx.y][i] * inputs[i][threadIdx.x];
        __syncthreads();  // everyone has read them before the next ones overwrite them
    }
    return sum;
}

// y of one image (M, outputs) = w (M, products) x unrolled (products, outputs).
extern "C" __global__ void __launch_bounds__(TILE * TILE) conv_forward(
    const float* __restrict__ unrolled, const float* __restrict__ w,
    float* __restrict__ y, int image, int M, int products, int outputs)
{
    const int output = blockIdx.x * TILE + threadIdx.x;
    const int map = blockIdx.y * TILE + threadIdx.y;
    const float sum = tiled_product(w, unrolled, map, output, M, products, outputs);
    if (map < M && output < outputs)
        y[((size_t)image * M + map) * outputs + output] = sum;
}

// `unroll` with strides, padding and dilation. unrolled (C*K*KW, H_out*W_out) holds zeros for places outside the image.
extern "C" __global__ void __launch_bounds__(THREADS) unroll_general(
    const float* __restrict__ x, float* __restrict__ unrolled, int image, int C, int H, int W, int K, int KW,
    int H_out, int W_out, int S, int SW, int P, int PW, int D, int DW)
{
    const int outputs = H_out * W_out;
    const int thread = blockIdx.x * THREADS + threadIdx.x;
    const int c = thread / outputs;
    const int output = thread % outputs;
    const int top = output / W_out * S - P;
    const int left = output % W_out * SW - PW;
    if (c >= C) return;

    const float* input = x + ((size_t)image * C + c) * H * W;
    float* copy = unrolled + (size_t)c * K * KW * outputs + output;
    for (int p = 0; p < K; ++p)
        for (int q = 0; q < KW; ++q) {
            const int row = top + p * D;
            const int column = left + q * DW;
            const bool inside = row >= 0 && row < H && column >= 0 && column < W;
            copy[(size_t)(p * KW + q) * outputs] = inside ? input[(size_t)row * W + column] : 0.0f;
        }
}

// `conv_forward` for each of gridDim.z groups of `maps` output channels, and bias where it is not null. The inputs of a
// group are its `products` rows of the unrolled matrix.
extern "C" __global__ void __launch_bounds__(TILE * TILE) conv_general(
    const float* __restrict__ unrolled, const float* __restrict__ w, const float* __restrict__ bias,
    float* __restrict__ y, int image, int maps, int products, int outputs)
{
    const int output = blockIdx.x * TILE + threadIdx.x;
    const int map = blockIdx.y * TILE + threadIdx.y;
    const int first_map = blockIdx.z * maps;
    const float* weights = w + (size_t)first_map * products;
    const float* inputs = unrolled + (size_t)blockIdx.z * products * outputs;
    const float sum = tiled_product(weights, inputs, map, output, maps, products, outputs);
    if (map >= maps || output >= outputs) return;
    const float added = bias ? bias[first_map + map] : 0.0f;
    y[((size_t)image * maps * gridDim.z + first_map + map) * outputs + output] = sum + added;
}
