/*
title:     Unrolled input, tiled product, four streams
idea:      Images go round robin to four streams, each with its own unrolled matrix. While
           one image is multiplied, others are unrolled beside it, as one image alone is too
           small to fill the GPU.
expect:    Up to four times faster where the GPU is the bottleneck. Where the CPU takes longer
           to issue two launches than the GPU to run them, which is likely here, nothing is
           gained. Nothing at all for a single image.
check:     no counter, as ncu runs kernels one by one; under nsys kernels of several streams overlap
builds_on: unroll_gemm
reference: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#streams
constants: {TILE: 16, THREADS: 256}
claims:
  - says:     Where the CPU takes longer to issue two launches than the GPU to run them, which is likely here, nothing is
              gained
    quantity: op_time
    change:   stays
    by:       5 %
  - says:     under nsys kernels of several streams overlap
    undecidable: its section shows how many kernels run at once; no amount was named beforehand
  - says:     Nothing at all for a single image
    undecidable: no study measures a single image
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
