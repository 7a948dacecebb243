#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                       \
    do {                                                                                  \
        cudaError_t status = (call);                                                      \
        if (status != cudaSuccess) { printf("%s\n", cudaGetErrorString(status)); exit(1); } \
    } while (0)

const int THREADS = 128;

__global__ void convolve(const float *X, const float *F, float *Y, int N, int C, int H, int W, int M, int K, int total)
{
    int OH = H - K + 1, OW = W - K + 1;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        int ow = i % OW, oh = i / OW % OH, m = i / (OW * OH) % M, n = i / (OW * OH * M);
        float acc = 0;
        for (int c = 0; c < C; c++)
            for (int p = 0; p < K; p++)
                for (int q = 0; q < K; q++)
                    acc += X[((n * C + c) * H + oh + p) * W + ow + q] * F[((m * C + c) * K + p) * K + q];
        Y[i] = acc;
    }
}

float random_number() { return rand() / (float)RAND_MAX; }

int main(int argc, char **argv)
{
    int N = argc > 1 ? atoi(argv[1]) : 100;
    int C = 3, H = 64, W = 64, M = 16, K = 5;
    int OH = H - K + 1, OW = W - K + 1;
    std::vector<float> x(N * C * H * W), f(M * C * K * K), y(N * M * OH * OW);
    for (auto &value : x) value = random_number();
    float *dX, *dF, *dY;
    CHECK(cudaMalloc(&dX, x.size() * sizeof(float)));
    CHECK(cudaMalloc(&dF, f.size() * sizeof(float)));
    CHECK(cudaMalloc(&dY, y.size() * sizeof(float)));
    CHECK(cudaMemcpy(dX, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(dF, f.data(), f.size() * sizeof(float), cudaMemcpyHostToDevice));
    int total = N * M * OH * OW;
    int blocks = (total + THREADS - 1) / THREADS;
    convolve<<<blocks, THREADS>>>(dX, dF, dY, N, C, H, W, M, K, total);
    CHECK(cudaDeviceSynchronize());
    auto start = std::chrono::steady_clock::now();
    for (int round = 0; round < 10; round++)
        convolve<<<blocks, THREADS>>>(dX, dF, dY, N, C, H, W, M, K, total);
    CHECK(cudaDeviceSynchronize());
    std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    printf("%f ms\n", spent.count() / 10);
    cudaFree(dX), cudaFree(dF), cudaFree(dY);
    return 0;
}
