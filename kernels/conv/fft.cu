/*
title:     Convolution by Fourier transform
idea:      In the frequency domain a convolution is one product for each frequency, whatever K is.
           The input is cut into overlapping tiles of 32x32, transformed in shared memory,
           multiplied by the spectra of the weights, summed over the channels and transformed
           back. The outputs that the tile's edges spoil are left to its neighbours. One complex
           transform carries two images, as real and imaginary part. A kernel before computes
           the spectra of the weights.
expect:    Per tile and pair of output channels 1024 complex multiply-adds replace K*K real ones for each output. So
           it pays where C and M are large enough to share the transforms, and more for K = 7 than for 5. First
           layers have C = 1, and the transforms cost more than they save. Spectra are 1024 values where there were
           K*K, so L2 traffic for weights is the limit.
check:     smsp__sass_thread_inst_executed_op_ffma_pred_on.sum falls against direct
builds_on: direct
reference: https://arxiv.org/abs/1412.7580
method:    any
constants: {SIDE: 32, LEVELS: 5, MAPS: 4}  # SIDE is 2 to the power of LEVELS; a block has MAPS warps
limits:    {K: 32, M: 65535, N: 131070}
claims:
  - says:     it pays where C and M are large enough to share the transforms
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
  - says:     more for K = 7 than for 5
    quantity: op_time
    change:   falls
    where:    {K: {is: 7}}
    more_than: {K: {is: 5}}
  - says:     the transforms cost more than they save
    quantity: op_time
    change:   rises
    where:    {C: {is: 1}}
  - says:     L2 traffic for weights is the limit
    quantity: lts__throughput.avg.pct_of_peak_sustained_elapsed
    value:    {at_least: 80 %}
  - says:     falls against direct
    quantity: smsp__sass_thread_inst_executed_op_ffma_pred_on.sum
    change:   falls
*/

// exp(-2 pi i k / 32)
__constant__ float2 roots[SIDE / 2] = {
    {1.0f, 0.0f}, {0.980785251f, -0.195090324f},
    {0.923879504f, -0.382683426f}, {0.831469595f, -0.555570245f},
    {0.707106769f, -0.707106769f}, {0.555570245f, -0.831469595f},
    {0.382683426f, -0.923879504f}, {0.195090324f, -0.980785251f},
    {0.0f, -1.0f}, {-0.195090324f, -0.980785251f},
    {-0.382683426f, -0.923879504f}, {-0.555570245f, -0.831469595f},
    {-0.707106769f, -0.707106769f}, {-0.831469595f, -0.555570245f},
    {-0.923879504f, -0.382683426f}, {-0.980785251f, -0.195090324f},
};

__device__ __forceinline__ float2 times(float2 a, float2 b)
{
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// a times root k, or its inverse. The roots 1 and -i need no product.
template <bool inverse> __device__ __forceinline__ float2 turned(float2 a, int k)
{
    if (k == 0) return a;
    if (k == SIDE / 4) return inverse ? make_float2(-a.y, a.x) : make_float2(a.y, -a.x);
    return times(a, make_float2(roots[k].x, inverse ? -roots[k].y : roots[k].y));
}

// Discrete Fourier transform in place, by decimation in frequency: frequencies come out in bit-reversed order, which
// does not matter to a product of two spectra.
__device__ __forceinline__ void transform(float2 (&v)[SIDE])
{
    #pragma unroll
    for (int level = LEVELS - 1; level >= 0; --level)
        #pragma unroll
        for (int i = 0; i < SIDE / 2; ++i) {
            const int half = 1 << level;
            const int k = i % half;
            const int at = i / half * 2 * half + k;
            const float2 a = v[at], b = v[at + half];
            v[at] = make_float2(a.x + b.x, a.y + b.y);
            v[at + half] = turned<false>(make_float2(a.x - b.x, a.y - b.y), k * (SIDE / 2 / half));
        }
}

// The way back: takes that order, gives the natural one, and SIDE times the values.
__device__ __forceinline__ void transform_back(float2 (&v)[SIDE])
{
    #pragma unroll
    for (int level = 0; level < LEVELS; ++level)
        #pragma unroll
        for (int i = 0; i < SIDE / 2; ++i) {
            const int half = 1 << level;
            const int k = i % half;
            const int at = i / half * 2 * half + k;
            const float2 a = v[at], b = turned<true>(v[at + half], k * (SIDE / 2 / half));
            v[at] = make_float2(a.x + b.x, a.y + b.y);
            v[at + half] = make_float2(a.x - b.x, a.y - b.y);
        }
}

// The spectrum of a tile, whose column `lane` this thread holds, into shared memory. For all threads of the block.
__device__ __forceinline__ void spectrum(float2 (&v)[SIDE], float2 (&tile)[SIDE][SIDE + 1], int lane)
{
    transform(v);
    #pragma unroll
    for (int i = 0; i < SIDE; ++i)
        tile[i][lane] = v[i];
    __syncthreads();  // the columns are complete before they are read as rows
    #pragma unroll
    for (int j = 0; j < SIDE; ++j)
        v[j] = tile[lane][j];
    transform(v);
    #pragma unroll
    for (int j = 0; j < SIDE; ++j)
        tile[lane][j] = v[j];  // the row that this thread alone has read
}

// spectra (M, C, SIDE, SIDE): conjugate, as y[h] sums x[h + p] w[p], and divided by what transforming back multiplies.
extern "C" __global__ void weight_spectra(const float* __restrict__ w, float2* __restrict__ spectra, int C, int K)
{
    __shared__ float2 tile[SIDE][SIDE + 1];

    const int lane = threadIdx.x;
    const size_t pair = (size_t)blockIdx.y * C + blockIdx.x;  // of a map and a channel
    float2 v[SIDE];
    #pragma unroll
    for (int i = 0; i < SIDE; ++i)
        v[i] = make_float2(i < K && lane < K ? w[(pair * K + i) * K + lane] : 0.0f, 0.0f);
    spectrum(v, tile, lane);
    __syncthreads();  // the spectrum is complete
    const float scale = 1.0f / (SIDE * SIDE);
    for (int i = 0; i < SIDE; ++i)
        spectra[(pair * SIDE + i) * SIDE + lane] = make_float2(tile[i][lane].x * scale, -tile[i][lane].y * scale);
}

// The way back: a tile from its spectrum in shared memory; column `lane` of it. For all threads of the block.
__device__ __forceinline__ void spectrum_back(float2 (&v)[SIDE], float2 (&tile)[SIDE][SIDE + 1], int lane)
{
    #pragma unroll
    for (int j = 0; j < SIDE; ++j)
        v[j] = tile[lane][j];
    transform_back(v);
    #pragma unroll
    for (int j = 0; j < SIDE; ++j)
        tile[lane][j] = v[j];
    __syncthreads();  // the rows are complete before they are read as columns
    #pragma unroll
    for (int i = 0; i < SIDE; ++i)
        v[i] = tile[i][lane];
    transform_back(v);
}

// Load a column of a tile of two images as real and imaginary parts. Beyond the image and the last channel there are
// zeros.
__device__ __forceinline__ void load_tile(
    float2 (&v)[SIDE], const float* __restrict__ input, int C, int H, int W, int channel, int top, int column,
    bool has_second)
{
    #pragma unroll
    for (int i = 0; i < SIDE; ++i) {
        const bool inside = channel < C && top + i < H && column < W;
        v[i].x = inside ? input[i * W] : 0.0f;
        v[i].y = inside && has_second ? input[(size_t)C * H * W + i * W] : 0.0f;
    }
}

// x (N, C, H, W), y (N, M, H-K+1, W-K+1); float32, row-major. A block computes one tile of two images in MAPS maps.
extern "C" __global__ void __launch_bounds__(32 * MAPS, 3) conv_forward(
    const float* __restrict__ x, const float2* __restrict__ spectra,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    __shared__ float2 tiles[MAPS][SIDE][SIDE + 1];

    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int valid = SIDE - K + 1;  // outputs across a tile that the wrap-around leaves right
    const int tiles_across = (W_out + valid - 1) / valid;
    const int left = (blockIdx.x % tiles_across) * valid;
    const int top = (blockIdx.x / tiles_across) * valid;
    const int first_map = blockIdx.y * MAPS;
    const int image = blockIdx.z * 2;
    const bool has_second = image + 1 < N;
    const int lane = threadIdx.x;
    const int warp = threadIdx.y;
    const int rows = SIDE / MAPS;  // of the spectra, whose products a thread sums

    float2 v[SIDE];
    float2 sum[MAPS][rows];
    #pragma unroll
    for (int m = 0; m < MAPS; ++m)
        #pragma unroll
        for (int i = 0; i < rows; ++i)
            sum[m][i] = make_float2(0.0f, 0.0f);

    for (int first = 0; first < C; first += MAPS) {
        // Each warp transforms a channel. Beyond the image and the last channel there are zeros.
        const int channel = first + warp;
        const float* input = x + (((size_t)image * C + channel) * H + top) * W + left + lane;
        load_tile(v, input, C, H, W, channel, top, left + lane, has_second);
        __syncthreads();  // everyone has read the channels before, which these overwrite
        spectrum(v, tiles[warp], lane);
        __syncthreads();  // the spectra are complete

        for (int c = 0; c < min(MAPS, C - first); ++c)
            #pragma unroll
            for (int m = 0; m < MAPS; ++m) {
                // Beyond the last map its sums are computed again and not kept.
                const size_t pair = (size_t)min(first_map + m, M - 1) * C + first + c;
                const float2* taps = spectra + (pair * SIDE + warp * rows) * SIDE + lane;
                #pragma unroll
                for (int i = 0; i < rows; ++i) {
                    const float2 a = tiles[c][warp * rows + i][lane], b = taps[i * SIDE];
                    sum[m][i].x += a.x * b.x;
                    sum[m][i].x -= a.y * b.y;
                    sum[m][i].y += a.x * b.y;
                    sum[m][i].y += a.y * b.x;
                }
            }
    }

    __syncthreads();  // everyone has read the last channels, which the sums overwrite
    #pragma unroll
    for (int m = 0; m < MAPS; ++m)
        #pragma unroll
        for (int i = 0; i < rows; ++i)
            tiles[m][warp * rows + i][lane] = sum[m][i];
    __syncthreads();  // the sums are complete
    // Each warp transforms a map back.
    spectrum_back(v, tiles[warp], lane);

    const int map = first_map + warp;
    if (map >= M || lane >= valid || left + lane >= W_out) return;
    float* output = y + (((size_t)image * M + map) * H_out + top) * W_out + left + lane;
    #pragma unroll
    for (int i = 0; i < SIDE; ++i)
        if (i < valid && top + i < H_out) {
            output[i * W_out] = v[i].x;
            if (has_second) output[(size_t)M * H_out * W_out + i * W_out] = v[i].y;
        }
}
