#ifndef LAYER_FORWARD_CUH
#define LAYER_FORWARD_CUH
#include <mxnet/base.h>

namespace framework
{
namespace layers
{
static const int TILE = 8;
__constant__ float filters[16 * 12 * 7 * 7];

__global__ void forward_kernel(float *y, const float *x, const int B, const int M, const int C, const int H, const int W,
                               const int K)
{
#define x4d(i3, i2, i1, i0) x[(i3) * (C * H * W) + (i2) * (H * W) + (i1) * W + i0]
    const int H_out = H - K + 1, W_out = W - K + 1;
    const int across = (W_out - 1) / TILE + 1;
    const int h = blockIdx.y / across * TILE + threadIdx.y, w = blockIdx.y % across * TILE + threadIdx.x;
    if (h >= H_out || w >= W_out) return;
    float sum = 0;
    for (int c = 0; c < C; c++)
        for (int i = 0; i < K * K; i++)
            sum += x4d(blockIdx.z, c, h + i / K, w + i % K) * filters[(blockIdx.x * C + c) * K * K + i];
    y[((blockIdx.z * M + blockIdx.x) * H_out + h) * W_out + w] = sum;
#undef x4d
}

template <typename device, typename T>
void forward(tensor::Tensor<device, 4, T> &y, const tensor::Tensor<device, 4, T> &x, const tensor::Tensor<device, 4, T> &w);

template <>
void forward<gpu, float>(tensor::Tensor<gpu, 4, float> &y, const tensor::Tensor<gpu, 4, float> &x,
                         const tensor::Tensor<gpu, 4, float> &w)
{
    int B, M, C, H, W, K;
    B = x.shape_[0];
    M = y.shape_[1];
    C = x.shape_[1];
    H = x.shape_[2];
    W = x.shape_[3];
    K = w.shape_[3];
    cudaMemcpyToSymbol(filters, w.dptr_, M * C * K * K * sizeof(float), 0, cudaMemcpyDeviceToDevice);
    dim3 gridDim(M, ((H - K) / TILE + 1) * ((W - K) / TILE + 1), B);
    dim3 blockDim(TILE, TILE, 1);
    forward_kernel<<<gridDim, blockDim>>>(y.dptr_, x.dptr_, B, M, C, H, W, K);
    CHECK_CALL(cudaDeviceSynchronize());
}
} // namespace layers
} // namespace framework
#endif
