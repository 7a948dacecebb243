#include <cstddef>

struct Shape { int n, c, h, w; };
struct Tensor { float* data; Shape shape; };

__global__ void conv_kernel(float* y, const float* x, const float* k, int B, int M, int C, int H, int W, int K)
{
    int H_out = H - K + 1, W_out = W - K + 1;
    for (int h = threadIdx.y; h < H_out; h += blockDim.y)
        for (int w = threadIdx.x; w < W_out; w += blockDim.x) {
            float sum = 0;
            for (int c = 0; c < C; c++)
                for (int p = 0; p < K; p++)
                    for (int q = 0; q < K; q++)
                        sum += x[((blockIdx.x * C + c) * H + h + p) * W + w + q] * k[((blockIdx.y * C + c) * K + p) * K + q];
            y[((blockIdx.x * M + blockIdx.y) * H_out + h) * W_out + w] = sum;
        }
}

void forward(Tensor y, const Tensor& x, const Tensor& w)
{
    const int B = x.shape.n;
    const int M = y.shape.c;
    const int C = x.shape.c;
    const int H = x.shape.h;
    const int W = x.shape.w;
    const int K = w.shape.w;
    dim3 gridDim(B, M);
    dim3 blockDim(32, 8);
    conv_kernel<<<gridDim, blockDim, 0, 0>>>(y.data, x.data, w.data, B, M, C, H, W, K);
}
