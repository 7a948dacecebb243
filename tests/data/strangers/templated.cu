template <int TILE, bool GUARD>
__global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K, int Ho, int Wo)
{
    const int m = blockIdx.y, n = blockIdx.z;
    const int across = (Wo + TILE - 1) / TILE;
    const int i = blockIdx.x / across * TILE + threadIdx.y, j = blockIdx.x % across * TILE + threadIdx.x;
    if (GUARD && (i >= Ho || j >= Wo)) return;
    float a = 0;
    for (int c = 0; c < C; ++c)
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                a += x[((n * C + c) * H + i + p) * W + j + q] * w[((m * C + c) * K + p) * K + q];
    y[((n * M + m) * Ho + i) * Wo + j] = a;
}

template <typename T> T ceil_div(T a, T b) { return (a + b - 1) / b; }

void conv_layer(const float* x, const float* w, float* y, int N, int C, int H, int W, int M, int K)
{
    constexpr int tile = 16;
    auto Ho = H - K + 1, Wo = W - K + 1;
    auto grid = dim3(ceil_div(Wo, tile) * ceil_div(Ho, tile), M, N);
    conv<16, true><<<grid, dim3(tile, tile)>>>(x, w, y, N, C, H, W, M, K, Ho, Wo);
}
