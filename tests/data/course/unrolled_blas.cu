// As in sp24 and since: the input unrolled, a product of matrices by the course's kernel or by cuBLAS, and a permutation.
#include <cmath>
#include <iostream>
#include "gpu-new-forward.h"
#include "matmul.h"
#include <cublas_v2.h>

#define BLOCK 256
#define IMAGES_AT_ONCE 10

__global__ void matrix_unrolling_kernel(const float *input, float *output, const int Batch, const int Channel, const int Height, const int Width, const int K)
{
    const int Height_out = Height - K + 1, Width_out = Width - K + 1;
    const size_t columns = (size_t)Batch * Height_out * Width_out, column = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int b = column / (Height_out * Width_out), h = column / Width_out % Height_out, w = column % Width_out;
    for (int c = 0; c < Channel; c++)
        for (int p = 0; p < K; p++)
            for (int q = 0; q < K; q++)
                output[((c * K + p) * K + q) * columns + column] = input[((b * Channel + c) * Height + h + p) * Width + w + q];
}

__global__ void matrix_permute_kernel(const float *input, float *output, int Map_out, int Batch, int image_size)
{
    const int b = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < image_size)
        for (int m = 0; m < Map_out; m++) output[(b * Map_out + m) * image_size + i] = input[(m * Batch + b) * image_size + i];
}

__host__ void GPUInterface::conv_forward_gpu_prolog(const float *host_output, const float *host_input, const float *host_mask, float **device_output_ptr, float **device_input_ptr, float **device_mask_ptr, const int Batch, const int Map_out, const int Channel, const int Height, const int Width, const int K)
{
    cudaMalloc(device_output_ptr, sizeof(float) * Batch * Map_out * (Height - K + 1) * (Width - K + 1));
    cudaMalloc(device_input_ptr, sizeof(float) * Batch * Channel * Height * Width);
    cudaMalloc(device_mask_ptr, sizeof(float) * Map_out * Channel * K * K);
    cudaMemcpy(*device_input_ptr, host_input, sizeof(float) * Batch * Channel * Height * Width, cudaMemcpyHostToDevice);
    cudaMemcpy(*device_mask_ptr, host_mask, sizeof(float) * Map_out * Channel * K * K, cudaMemcpyHostToDevice);
}

__host__ void GPUInterface::conv_forward_gpu(float *device_output, const float *device_input, const float *device_mask, const int Batch, const int Map_out, const int Channel, const int Height, const int Width, const int K)
{
    const int image_size = (Height - K + 1) * (Width - K + 1), rows = Channel * K * K;
    const int at_once = IMAGES_AT_ONCE;
    float *unrolled, *product;
    cudaMalloc((void **)&unrolled, sizeof(float) * rows * at_once * image_size);
    cudaMalloc((void **)&product, sizeof(float) * Map_out * at_once * image_size);
    cublasHandle_t handle;
    cublasCreate(&handle);
    for (int begin = 0; begin < Batch; begin += at_once) {
        const int images = std::min(at_once, Batch - begin);
        const int columns = images * image_size;
        matrix_unrolling_kernel<<<(columns + BLOCK - 1) / BLOCK, BLOCK>>>(device_input + begin * Channel * Height * Width, unrolled, images, Channel, Height, Width, K);
        if (begin % (2 * at_once)) {
            dim3 grid((columns - 1) / MATMUL_TILE_WIDTH + 1, (Map_out - 1) / MATMUL_TILE_WIDTH + 1), block(MATMUL_TILE_WIDTH, MATMUL_TILE_WIDTH);
            matrixMultiplyShared<<<grid, block>>>(device_mask, unrolled, product, Map_out, rows, rows, columns, Map_out, columns);
        } else {
            const float one = 1.0f, zero = 0.0f;
            cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, columns, Map_out, rows, &one, unrolled, columns, device_mask, rows, &zero, product, columns);
        }
        matrix_permute_kernel<<<dim3((image_size - 1) / BLOCK + 1, images), BLOCK>>>(product, device_output + begin * Map_out * image_size, Map_out, images, image_size);
    }
    cublasDestroy(handle);
    cudaFree(unrolled);
    cudaFree(product);
}

__host__ void GPUInterface::conv_forward_gpu_epilog(float *host_output, float *device_output, float *device_input, float *device_mask, const int Batch, const int Map_out, const int Channel, const int Height, const int Width, const int K)
{
    cudaMemcpy(host_output, device_output, sizeof(float) * Batch * Map_out * (Height - K + 1) * (Width - K + 1), cudaMemcpyDeviceToHost);
    cudaFree(device_output);
    cudaFree(device_input);
    cudaFree(device_mask);
}
