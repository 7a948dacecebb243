#define T 16
__global__ void unroll(const float* x, float* columns, int C, int H, int W, int K)
{
    int H_out = H - K + 1, W_out = W - K + 1, t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= C * H_out * W_out) return;
    int c = t / (H_out * W_out), place = t % (H_out * W_out);
    for (int p = 0; p < K * K; p++)
        columns[(c * K * K + p) * H_out * W_out + place] = x[(c * H + place / W_out + p / K) * W + place % W_out + p % K];
}

__global__ void multiply(const float* a, const float* b, float* c, int rows, int inner, int columns)
{
    int i = blockIdx.y * T + threadIdx.y, j = blockIdx.x * T + threadIdx.x;
    if (i >= rows || j >= columns) return;
    float sum = 0;
    for (int k = 0; k < inner; k++) sum += a[i * inner + k] * b[k * columns + j];
    c[i * columns + j] = sum;
}

void conv(const float* x, const float* w, float* y, int B, int M, int C, int H, int W, int K)
{
    int H_out = H - K + 1, W_out = W - K + 1;
    float* columns;
    cudaMalloc(&columns, sizeof(float) * C * K * K * H_out * W_out);
    for (int b = 0; b < B; b++) {
        unroll<<<(C * H_out * W_out + 255) / 256, 256>>>(x + b * C * H * W, columns, C, H, W, K);
        multiply<<<dim3((H_out * W_out + T - 1) / T, (M + T - 1) / T), dim3(T, T)>>>(w, columns, y + b * M * H_out * W_out,
                                                                                    M, C * K * K, H_out * W_out);
    }
    cudaFree(columns);
}
