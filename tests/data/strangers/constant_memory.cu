#define TILE 16
__constant__ float taps[4096];

__global__ void conv_const(const float* x, float* y, int B, int M, int C, int H, int W, int K)
{
    int W_out = W - K + 1, H_out = H - K + 1;
    int i = blockIdx.y * TILE + threadIdx.y, j = blockIdx.x * TILE + threadIdx.x, m = blockIdx.z % M, b = blockIdx.z / M;
    if (i >= H_out || j >= W_out) return;
    float sum = 0;
    for (int c = 0; c < C; c++)
        for (int p = 0; p < K * K; p++)
            sum += x[((b * C + c) * H + i + p / K) * W + j + p % K] * taps[(m * C + c) * K * K + p];
    y[((b * M + m) * H_out + i) * W_out + j] = sum;
}

void run(const float* x, const float* w, float* y, int B, int M, int C, int H, int W, int K)
{
    cudaMemcpyToSymbol(taps, w, M * C * K * K * sizeof(float));
    dim3 grid((W - K + TILE) / TILE, (H - K + TILE) / TILE, B * M), block(TILE, TILE);
    conv_const<<<grid, block>>>(x, y, B, M, C, H, W, K);
}
