// What the harness itself runs on the device: drawing inputs, poisoning and inspecting buffers, making numbers of a
// network's images, and the two kernels that prepare a timing sample. Nothing here is under test.

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

// Fresh inputs. integers: `span` numbers from `least`, few and small enough that sums of their products are exact in float32;
// else uniform in [-1, 1) with full mantissas.
extern "C" __global__ void draw(float* values, word64 count, word64 seed, int integers, int least, word span)
{
    for (word64 i = blockIdx.x * (word64)blockDim.x + threadIdx.x; i < count; i += (word64)gridDim.x * blockDim.x) {
        const word64 bits = mixed(seed ^ mixed(i));
        values[i] = integers ? (float)((int)(bits % span) + least) : (float)((int)(bits >> 39) - (1 << 24)) * 0x1p-24f;
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
