#include <cmath>
#include <cuda_runtime.h>

#define TILE_WIDTH 16

__global__ void conv_forward_kernel(float *output, const float *input, const float *mask, const int B, const int M,
                                    const int C, const int H, const int W, const int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int tiles_across = (W_out + TILE_WIDTH - 1) / TILE_WIDTH;
    const int h = (blockIdx.y / tiles_across) * TILE_WIDTH + threadIdx.y;
    const int w = (blockIdx.y % tiles_across) * TILE_WIDTH + threadIdx.x;
    const int m = blockIdx.x, b = blockIdx.z;
    if (h >= H_out || w >= W_out) return;
    float sum = 0.0f;
    for (int c = 0; c < C; c++)
        for (int p = 0; p < K; p++)
            for (int q = 0; q < K; q++)
                sum += input[((b * C + c) * H + h + p) * W + w + q] * mask[((m * C + c) * K + p) * K + q];
    output[((b * M + m) * H_out + h) * W_out + w] = sum;
}

void conv_forward_gpu(float *device_output, const float *device_input, const float *device_mask, const int B,
                      const int M, const int C, const int H, const int W, const int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int Y = ceil(H_out / 16.0) * ceil(W_out * 1.0 / TILE_WIDTH);
    dim3 dimGrid(M, Y, B);
    dim3 dimBlock(TILE_WIDTH, TILE_WIDTH, 1);
    conv_forward_kernel<<<dimGrid, dimBlock>>>(device_output, device_input, device_mask, B, M, C, H, W, K);
    cudaDeviceSynchronize();
}
