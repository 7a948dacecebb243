#include <cmath>
#include <iostream>
#include "gpu-new-forward.h"

#define TILE 16
#define checked(call) do { cudaError_t error = (call); if (error != cudaSuccess) { std::cout << cudaGetErrorString(error) << std::endl; exit(-1); } } while (0)

__global__ void conv_forward_kernel(float *y, const float *x, const float *k, const int B, const int M, const int C, const int H, const int W, const int K)
{
    const int H_out = H - K + 1, W_out = W - K + 1, across = (W_out - 1) / TILE + 1, side = TILE + K - 1;
    extern __shared__ float tile[];
    float *weights = &tile[side * side];
    const int b = blockIdx.x, m = blockIdx.y;
    const int top = blockIdx.z / across * TILE, left = blockIdx.z % across * TILE;
    const int h = top + threadIdx.y, w = left + threadIdx.x;
    float sum = 0.0f;
    for (int c = 0; c < C; ++c) {
        for (int i = threadIdx.y * TILE + threadIdx.x; i < K * K; i += TILE * TILE) weights[i] = k[(m * C + c) * K * K + i];
        for (int i = threadIdx.y; i < side; i += TILE)
            for (int j = threadIdx.x; j < side; j += TILE)
                tile[i * side + j] = top + i < H && left + j < W ? x[((b * C + c) * H + top + i) * W + left + j] : 0.0f;
        __syncthreads();  // loaded
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q) sum += tile[(threadIdx.y + p) * side + threadIdx.x + q] * weights[p * K + q];
    }
    if (h < H_out && w < W_out) y[((b * M + m) * H_out + h) * W_out + w] = sum;
}

void GPUInterface::conv_forward_gpu(float *host_y, const float *host_x, const float *host_k, const int B, const int M, const int C, const int H, const int W, const int K)
{
    const int H_out = H - K + 1, W_out = W - K + 1;
    float *y, *x, *k;
    checked(cudaMalloc((void **)&y, sizeof(float) * B * M * H_out * W_out));
    checked(cudaMalloc((void **)&x, sizeof(float) * B * C * H * W));
    checked(cudaMalloc((void **)&k, sizeof(float) * M * C * K * K));
    checked(cudaMemcpy(x, host_x, sizeof(float) * B * C * H * W, cudaMemcpyHostToDevice));
    checked(cudaMemcpy(k, host_k, sizeof(float) * M * C * K * K, cudaMemcpyHostToDevice));
    dim3 grid(B, M, ceil(H_out / (1.0 * TILE)) * ceil(W_out / (1.0 * TILE))), block(TILE, TILE, 1);
    conv_forward_kernel<<<grid, block, sizeof(float) * ((TILE + K - 1) * (TILE + K - 1) + K * K)>>>(y, x, k, B, M, C, H, W, K);
    checked(cudaDeviceSynchronize());
    checked(cudaMemcpy(host_y, y, sizeof(float) * B * M * H_out * W_out, cudaMemcpyDeviceToHost));
    cudaFree(y), cudaFree(x), cudaFree(k);
}
