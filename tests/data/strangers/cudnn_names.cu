// N x C x H x W images, K filters of R x S taps, P x Q outputs; a thread computes one pixel of one filter.
__global__ void conv_fprop(const float* in, const float* filter, float* out, int N, int C, int H, int W, int K, int R,
                           int S, int P, int Q)
{
    int q = blockIdx.x * blockDim.x + threadIdx.x;
    int p = blockIdx.y * blockDim.y + threadIdx.y;
    int k = blockIdx.z % K, n = blockIdx.z / K;
    if (p < P && q < Q) {
        float acc = 0.f;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    acc += in[n * C * H * W + c * H * W + (p + r) * W + q + s]
                           * filter[k * C * R * S + c * R * S + r * S + s];
        out[n * K * P * Q + k * P * Q + p * Q + q] = acc;
    }
}

void fprop(const float* in, const float* filter, float* out, int N, int C, int H, int W, int K, int R, int S)
{
    int P = H - R + 1;
    int Q = W - S + 1;
    dim3 block(32, 8);
    dim3 grid((Q + 31) / 32, (P + 7) >> 3, N * K);
    conv_fprop<<<grid, block>>>(in, filter, out, N, C, H, W, K, R, S, P, Q);
}
