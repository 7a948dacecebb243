/*
title:     Unrolled input, tiled matrix product
idea:      The inputs of one image are copied into a matrix (C*K*K, H_out*W_out) in global
           memory, a column for each output. A matrix product in 16x16 tiles of shared memory
           with the weights (M, C*K*K) then gives all outputs of that image.
expect:    Slower than direct in spite of the tiled product. Two launches an image make 20000
           of them for 10000 images, each too small to fill the GPU; every input is written up
           to K*K times and read back, and M = 6 leaves 10 of a tile's 16 rows without work.
check:     lts__t_sectors_op_write.sum rises against direct
builds_on: direct
reference: https://hal.inria.fr/inria-00112631
constants: {TILE: 16, THREADS: 256}
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

// y of one image (M, outputs) = w (M, products) x unrolled (products, outputs).
extern "C" __global__ void __launch_bounds__(TILE * TILE) conv_forward(
    const float* __restrict__ unrolled, const float* __restrict__ w,
    float* __restrict__ y, int image, int M, int products, int outputs)
{
    __shared__ float taps[TILE][TILE];
    __shared__ float inputs[TILE][TILE];

    const int output = blockIdx.x * TILE + threadIdx.x;
    const int map = blockIdx.y * TILE + threadIdx.y;

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
    if (map < M && output < outputs)
        y[((size_t)image * M + map) * outputs + output] = sum;
}
