// The product of matrices that files of the course since 2025 include: C = A B, row-major, a tile at a time.
#pragma once

#define MATMUL_TILE_WIDTH 16

__global__ void matrixMultiplyShared(const float* A, const float* B, float* C, int numARows, int numAColumns, int numBRows, int numBColumns, int numCRows, int numCColumns)
{
    __shared__ float left[MATMUL_TILE_WIDTH][MATMUL_TILE_WIDTH];
    __shared__ float right[MATMUL_TILE_WIDTH][MATMUL_TILE_WIDTH];
    const int row = blockIdx.y * MATMUL_TILE_WIDTH + threadIdx.y, column = blockIdx.x * MATMUL_TILE_WIDTH + threadIdx.x;
    float sum = 0;
    for (int begin = 0; begin < numAColumns; begin += MATMUL_TILE_WIDTH) {
        const int across = begin + threadIdx.x, down = begin + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < numARows && across < numAColumns ? A[(size_t)row * numAColumns + across] : 0;
        right[threadIdx.y][threadIdx.x] = down < numBRows && column < numBColumns ? B[(size_t)down * numBColumns + column] : 0;
        __syncthreads();
        for (int i = 0; i < MATMUL_TILE_WIDTH; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < numCRows && column < numCColumns) C[(size_t)row * numCColumns + column] = sum;
}
