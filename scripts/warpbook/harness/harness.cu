// What the harness itself runs on the device: drawing inputs, poisoning and inspecting buffers, the float64
// reference, making numbers of a network's images, and the two kernels that prepare a timing sample. Nothing here is under test.

typedef unsigned int word;
typedef unsigned long long word64;

// A bijective mix of 64 bits (SplitMix64's finalizer): enough to make every buffer's content its own.
__device__ word64 mixed(word64 v)
{
    v += 0x9e3779b97f4a7c15ull;
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
    return v ^ (v >> 31);
}

// Fresh inputs. integers: -4 ... 4, whose sums of products are exact in float32; else uniform in [-1, 1) with full mantissas.
extern "C" __global__ void draw(float* values, word64 count, word64 seed, int integers)
{
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < count; i += (word64)gridDim.x * blockDim.x) {
        const word64 bits = mixed(seed ^ mixed(i));
        values[i] = integers ? (float)((int)(bits % 9) - 4) : (float)((int)(bits >> 39) - (1 << 24)) * 0x1p-24f;
    }
}

extern "C" __global__ void fill(word* words, word64 count, word pattern)
{
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < count; i += (word64)gridDim.x * blockDim.x)
        words[i] = pattern;
}

// partial[block] = words of this block's share that differ from the pattern.
extern "C" __global__ void count_changed(const word* words, word64 count, word pattern, word64* partial)
{
    __shared__ word64 changed;
    if (threadIdx.x == 0) changed = 0;
    __syncthreads();
    word64 mine = 0;
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < count; i += (word64)gridDim.x * blockDim.x)
        mine += words[i] != pattern;
    if (mine) atomicAdd(&changed, mine);
    __syncthreads();
    if (threadIdx.x == 0) partial[blockIdx.x] = changed;
}

// partial[block] = sum of mixed(word, place): two buffers with the same sums hold the same words in the same places.
extern "C" __global__ void hash(const word* words, word64 count, word64* partial)
{
    __shared__ word64 sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    word64 mine = 0;
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < count; i += (word64)gridDim.x * blockDim.x)
        mine += mixed(((word64)words[i] << 32) ^ mixed(i));
    atomicAdd(&sum, mine);
    __syncthreads();
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

struct Difference {
    double max_abs_err, worst_ratio, square_err, square_ref, max_magnitude;
    word64 not_finite;
};

const int MAPS = 4; // that a thread compares at a place: each pixel is read and widened once for all of them

// wide (groups, taps, MAPS) from w (M, taps): the weights of MAPS maps side by side, zeros where there are fewer.
extern "C" __global__ void widen(const float* w, double* wide, int M, word64 taps)
{
    const word64 count = (M + MAPS - 1) / MAPS * taps * MAPS;
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < count; i += (word64)gridDim.x * blockDim.x) {
        const word64 map = i / (taps * MAPS) * MAPS + i % MAPS;
        wide[i] = map < M ? w[map * taps + i / MAPS % taps] : 0;
    }
}

// Compares y with the float64 convolution of x and widened w. magnitude is the sum of |x||w| behind an output, its error's
// natural unit; worst_ratio is the largest error over that unit. One place of MAPS maps a thread and step; partial[block] for
// the host to merge.
extern "C" __global__ void compare(
    const float* x, const double* wide, const float* y, int N, int C, int H, int W, int M, int K, int S, int P,
    Difference* partial)
{
    const int H_out = (H + 2 * P - K) / S + 1, W_out = (W + 2 * P - K) / S + 1;
    const int groups = (M + MAPS - 1) / MAPS;
    const word64 area = (word64)H_out * W_out, places = N * groups * area;
    Difference mine = {0, 0, 0, 0, 0, 0};
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < places; i += (word64)gridDim.x * blockDim.x) {
        const int column = i % W_out, row = i / W_out % H_out, group = i / area % groups;
        const word64 image = i / area / groups;
        double sum[MAPS] = {0}, magnitude[MAPS] = {0};
        for (int c = 0; c < C; ++c)
            for (int p = 0; p < K; ++p) {
                const int above = row * S + p - P;
                if (above < 0 || above >= H) continue;
                const float* pixels = x + ((image * C + c) * H + above) * W;
                const double2* weights = (const double2*)wide + (((word64)group * C + c) * K + p) * K * (MAPS / 2);
                for (int q = 0; q < K; ++q, weights += MAPS / 2) {
                    const int left = column * S + q - P;
                    if (left < 0 || left >= W) continue;
                    const double pixel = pixels[left];
                    for (int m = 0; m < MAPS; ++m) {
                        // Exact: both have 24 bits.
                        const double product = pixel * (m % 2 ? weights[m / 2].y : weights[m / 2].x);
                        sum[m] += product;
                        magnitude[m] += fabs(product);
                    }
                }
            }
        for (int m = 0; m < MAPS && group * MAPS + m < M; ++m) {
            const double err = fabs((double)y[(image * M + group * MAPS + m) * area + i % area] - sum[m]);
            if (!isfinite(err)) { ++mine.not_finite; continue; }
            mine.max_abs_err = fmax(mine.max_abs_err, err);
            if (err > 0) mine.worst_ratio = fmax(mine.worst_ratio, err / magnitude[m]);
            mine.max_magnitude = fmax(mine.max_magnitude, magnitude[m]);
            mine.square_err += err * err;
            mine.square_ref += sum[m] * sum[m];
        }
    }
    __shared__ Difference all[256];
    all[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int t = 1; t < blockDim.x; ++t) {
            mine.max_abs_err = fmax(mine.max_abs_err, all[t].max_abs_err);
            mine.worst_ratio = fmax(mine.worst_ratio, all[t].worst_ratio);
            mine.max_magnitude = fmax(mine.max_magnitude, all[t].max_magnitude);
            mine.square_err += all[t].square_err;
            mine.square_ref += all[t].square_ref;
            mine.not_finite += all[t].not_finite;
        }
        partial[blockIdx.x] = mine;
    }
}

// x (images, channels, pixels) from images (images, pixels), `count` bytes in all: each channel is the same grey image, scaled.
// Four pixels at a time where there is a multiple of four.
extern "C" __global__ void enter(
    const unsigned char* images, float* x, word64 count, int channels, word64 pixels, float scale)
{
    const int at_a_time = pixels % 4 == 0 ? 4 : 1;
    const word64 step = (word64)gridDim.x * blockDim.x * at_a_time;
    for (word64 i = (blockIdx.x * (word64)blockDim.x + threadIdx.x) * at_a_time; i < count; i += step) {
        float* place = x + i + (channels == 1 ? 0 : i / pixels * (channels - 1) * pixels);
        if (at_a_time == 4) {
            const uchar4 four = *(const uchar4*)(images + i);
            const float4 values = make_float4(four.x * scale, four.y * scale, four.z * scale, four.w * scale);
            for (int channel = 0; channel < channels; ++channel) *(float4*)(place + channel * pixels) = values;
        } else {
            const float value = images[i] * scale;
            for (int channel = 0; channel < channels; ++channel) place[channel * pixels] = value;
        }
    }
}

// Keeps the device busy for `cycles` clock cycles, while the host queues what is to be timed behind it.
extern "C" __global__ void spin(long long cycles)
{
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}

// Does `rounds` times 512 FP32 multiply-adds a thread in 16 independent chains: the rate is the device's, not memory's. What
// they come to is written where it can be, so that none is left out.
extern "C" __global__ void multiply_add(float* result, int rounds, float a, float b)
{
    float chain[16];
    for (int i = 0; i < 16; ++i) chain[i] = threadIdx.x + i;
    for (int round = 0; round < rounds; ++round) {
        #pragma unroll
        for (int step = 0; step < 32; ++step)
            #pragma unroll
            for (int i = 0; i < 16; ++i) chain[i] = fmaf(chain[i], a, b);
    }
    float sum = 0;
    for (int i = 0; i < 16; ++i) sum += chain[i];
    if (sum == -1) *result = sum;
}
