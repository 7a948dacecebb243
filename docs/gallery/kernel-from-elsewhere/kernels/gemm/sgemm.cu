// A program as one finds it: its own types, macros, host code and test.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                 \
    if (cudaError_t error = (call); error != cudaSuccess) {                         \
        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error)); \
        exit(1);                                                                    \
    }

template <int TILE>
__global__ void sgemm(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C)
{
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        As[threadIdx.y][threadIdx.x] = row < M && k0 + threadIdx.x < K ? A[row * K + k0 + threadIdx.x] : 0.0f;
        Bs[threadIdx.y][threadIdx.x] = k0 + threadIdx.y < K && col < N ? B[(k0 + threadIdx.y) * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = alpha * sum + (beta != 0.0f ? beta * C[row * N + col] : 0.0f);
}

int main()
{
    const int M = 1024, N = 1024, K = 1024;
    float *A, *B, *C;
    CHECK(cudaMallocManaged(&A, M * K * sizeof(float)));
    CHECK(cudaMallocManaged(&B, K * N * sizeof(float)));
    CHECK(cudaMallocManaged(&C, M * N * sizeof(float)));
    for (int i = 0; i < M * K; ++i) A[i] = rand() / (float)RAND_MAX;
    for (int i = 0; i < K * N; ++i) B[i] = rand() / (float)RAND_MAX;

    constexpr int TILE = 32;
    dim3 block(TILE, TILE), grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    sgemm<TILE><<<grid, block>>>(M, N, K, 1.0f, A, B, 0.0f, C);
    CHECK(cudaDeviceSynchronize());

    printf("C[0] = %f\n", C[0]);
    cudaFree(A);
    cudaFree(B);
    cudaFree(C);
}
