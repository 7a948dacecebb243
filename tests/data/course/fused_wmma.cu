// As in sp25 to sp26: unrolling, product and permutation fused, on tensor cores in TF32. A warp makes 16 columns.
#include <cmath>
#include <iostream>
#include <mma.h>
#include "gpu-new-forward.h"

using namespace nvcuda;

__global__ void fused_kernel(const float *mask, const float *input, float *output, int Batch, int Map_out, int Channel, int Height, int Width, int K)
{
    __shared__ float a[16][8], b[8][16], c[16][16];
    const int Height_out = Height - K + 1, Width_out = Width - K + 1, image_size = Height_out * Width_out;
    const int rows = Channel * K * K, lane = threadIdx.x;
    const long long columns = (long long)Batch * image_size, first = blockIdx.x * 16LL;
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int begin = 0; begin < rows; begin += 8) {
        for (int i = lane; i < 128; i += 32) {
            const int m = i / 8, k = begin + i % 8;
            a[m][i % 8] = m < Map_out && k < rows ? mask[m * rows + k] : 0.0f;
        }
        for (int i = lane; i < 128; i += 32) {
            const int k = begin + i / 16;
            const long long column = first + i % 16;
            float value = 0.0f;
            if (k < rows && column < columns) {
                const int n = column / image_size, h = column % image_size / Width_out, w = column % Width_out;
                value = input[((n * Channel + k / (K * K)) * Height + h + k / K % K) * Width + w + k % K];
            }
            b[i / 16][i % 16] = value;
        }
        __syncwarp();
        wmma::load_matrix_sync(left, &a[0][0], 8);
        wmma::load_matrix_sync(right, &b[0][0], 16);
        for (int t = 0; t < left.num_elements; t++) left.x[t] = wmma::__float_to_tf32(left.x[t]);
        for (int t = 0; t < right.num_elements; t++) right.x[t] = wmma::__float_to_tf32(right.x[t]);
        wmma::mma_sync(sum, left, right, sum);
        __syncwarp();
    }
    wmma::store_matrix_sync(&c[0][0], sum, 16, wmma::mem_row_major);
    for (int i = lane; i < 256; i += 32) {
        const int m = i / 16;
        const long long column = first + i % 16;
        if (m < Map_out && column < columns) output[(column / image_size * Map_out + m) * image_size + column % image_size] = c[m][i % 16];
    }
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
    const int columns = Batch * (Height - K + 1) * (Width - K + 1);
    fused_kernel<<<(columns + 15) / 16, 32>>>(device_mask, device_input, device_output, Batch, Map_out, Channel, Height, Width, K);
}

__host__ void GPUInterface::conv_forward_gpu_epilog(float *host_output, float *device_output, float *device_input, float *device_mask, const int Batch, const int Map_out, const int Channel, const int Height, const int Width, const int K)
{
    cudaMemcpy(host_output, device_output, sizeof(float) * Batch * Map_out * (Height - K + 1) * (Width - K + 1), cudaMemcpyDeviceToHost);
    cudaFree(device_output);
    cudaFree(device_input);
    cudaFree(device_mask);
}
