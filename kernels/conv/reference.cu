// The float64 convolution on a GPU, compared in one pass: 10,000 images leave no room for its outputs in float64.

#include "difference.cuh"

const int MAPS = 4; // that a thread compares at a place: each pixel is read and widened once for all of them

// Compares y with the convolution of x and w. One place of MAPS maps a thread and step.
extern "C" __global__ void compare(
    const float* x, const float* w, const float* y, int N, int C, int H, int W, int M, int K, int S, int P,
    Difference* partial)
{
    const int H_out = (H + 2 * P - K) / S + 1, W_out = (W + 2 * P - K) / S + 1;
    const int groups = (M + MAPS - 1) / MAPS, taps = C * K * K;
    const word64 area = (word64)H_out * W_out, places = N * groups * area;
    Difference mine = {0, 0, 0, 0, 0, 0};
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < places; i += (word64)gridDim.x * blockDim.x) {
        const int column = i % W_out, row = i / W_out % H_out, group = i / area % groups;
        const word64 image = i / area / groups;
        const float* weights[MAPS]; // of maps beyond the last, those of the last
        for (int m = 0; m < MAPS; ++m) weights[m] = w + (word64)min(group * MAPS + m, M - 1) * taps;
        double sum[MAPS] = {0}, magnitude[MAPS] = {0};
        for (int c = 0; c < C; ++c)
            for (int p = 0; p < K; ++p) {
                const int above = row * S + p - P;
                if (above < 0 || above >= H) continue;
                const float* pixels = x + ((image * C + c) * H + above) * W;
                for (int q = 0; q < K; ++q) {
                    const int left = column * S + q - P;
                    if (left < 0 || left >= W) continue;
                    const double pixel = pixels[left];
                    for (int m = 0; m < MAPS; ++m) {
                        const double product = pixel * weights[m][(c * K + p) * K + q]; // exact: both have 24 bits
                        sum[m] += product;
                        magnitude[m] += fabs(product);
                    }
                }
            }
        for (int m = 0; m < MAPS && group * MAPS + m < M; ++m)
            mine.add(y[(image * M + group * MAPS + m) * area + i % area], sum[m], magnitude[m]);
    }
    store(mine, partial);
}
