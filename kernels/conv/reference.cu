// The float64 convolution on a GPU, compared in one pass: 10,000 images leave no room for its outputs in float64.

#include "difference.cuh"

const int MAPS = 4; // that a thread compares at a place: each pixel is read and widened once for all of them

// Compares y with the convolution of x and w, and bias where it is not null. One place of MAPS maps a thread and step.
extern "C" __global__ void compare(
    const float* x, const float* w, const float* bias, const float* y, int N, int C, int H, int W, int M, int K, int KW,
    int S, int SW, int P, int PW, int P_end, int PW_end, int D, int DW, int G, Difference* partial)
{
    const int H_out = (H + P + P_end - D * (K - 1) - 1) / S + 1, W_out = (W + PW + PW_end - DW * (KW - 1) - 1) / SW + 1;
    const int maps = M / G, channels = C / G; // of a group
    const int sets = (maps + MAPS - 1) / MAPS, taps = channels * K * KW;
    const word64 area = (word64)H_out * W_out, places = N * (word64)G * sets * area;
    Difference mine = {0, 0, 0, 0, 0, 0};
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < places; i += (word64)gridDim.x * blockDim.x) {
        const int column = i % W_out, row = i / W_out % H_out, set = i / area % sets, group = i / area / sets % G;
        const word64 image = i / area / sets / G;
        const int first = group * maps + set * MAPS, held = min(MAPS, maps - set * MAPS);
        const float* weights[MAPS]; // of maps beyond the last, those of the last
        for (int m = 0; m < MAPS; ++m) weights[m] = w + (word64)(first + min(m, held - 1)) * taps;
        double sum[MAPS] = {0}, magnitude[MAPS] = {0};
        for (int c = 0; c < channels; ++c)
            for (int p = 0; p < K; ++p) {
                const int above = row * S + p * D - P;
                if (above < 0 || above >= H) continue;
                const float* pixels = x + ((image * C + group * channels + c) * H + above) * W;
                for (int q = 0; q < KW; ++q) {
                    const int left = column * SW + q * DW - PW;
                    if (left < 0 || left >= W) continue;
                    const double pixel = pixels[left];
                    for (int m = 0; m < MAPS; ++m) {
                        const double product = pixel * weights[m][(c * K + p) * KW + q]; // exact: both have 24 bits
                        sum[m] += product;
                        magnitude[m] += fabs(product);
                    }
                }
            }
        for (int m = 0; m < held; ++m) {
            const double added = bias ? bias[first + m] : 0;
            mine.add(y[(image * M + first + m) * area + i % area], sum[m] + added, magnitude[m] + fabs(added));
        }
    }
    store(mine, partial);
}
