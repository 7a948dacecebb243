// Convolutions of images of one channel by mma.sync, FP32 values split into hi and lo parts.
//
// A row of A is a run of 8 neighbouring pixels, which serves SHIFTS = 9 - K neighbouring outputs. A column of B is the
// weights of one output channel in a row of the kernel, shifted by 0 ... SHIFTS - 1 pixels, so that 8 columns are the
// outputs of 8 / SHIFTS channels. The rows of the kernel are added up, two to an mma: K = 2 * 8.

#pragma once
#include "fp16_split.cuh"
#include "mma.cuh"

// Tiles of 8 columns that M output channels take.
__host__ __device__ constexpr int single_channel_n_tiles(int M, int K) { return (M * (9 - K) + 7) / 8; }

// Where the launcher reads what it must know for M output channels: their number with those of zeros; bytes of their
// weights' fragments, one of 8 bytes a lane for each tile of columns and row of the kernel; and bytes of a block's
// shared memory. That holds an image as pairs of pixels, 4 bytes each: all hi parts, all lo parts where there are some,
// and then the weights' fragments where registers do not keep them.
extern "C" __global__ void single_channel_layout(
    int* __restrict__ layout, int M, int K, int H, int W, int has_lo_parts, int weights_in_smem)
{
    const int n_tiles = single_channel_n_tiles(M, K);
    layout[0] = n_tiles * 8 / (9 - K);
    layout[1] = n_tiles * K * 32 * 8;
    layout[2] = H * W * (has_lo_parts ? 4 : 2) + (weights_in_smem ? layout[1] : 0);
}

// Splits the weights of one output channel a block, or zeros where there is no such channel. weight_fragments (tile of
// columns, row of the kernel, lane).
__device__ __forceinline__ void split_single_channel_weights_of(
    const float* w, uint2* weight_fragments, int* exponents,
    int* fallback_list, bool has_channel, int K)
{
    const int channel = blockIdx.x;
    if (channel == 0 && threadIdx.x == 0) fallback_list[0] = 0;
    const int shifts = 9 - K;
    const float* weights = w + (size_t)channel * K * K;
    const float2 scale = weight_scale(weights, K * K, has_channel, channel, exponents);

    for (int i = threadIdx.x; i < shifts * K * 4; i += blockDim.x) {
        const int shift = i / (4 * K);
        const int p = i / 4 % K;
        const int column = channel * shifts + shift;
        float values[2];
        for (int j = 0; j < 2; ++j) {
            const int q = i % 4 * 2 + j - shift;
            values[j] = has_channel && q >= 0 && q < K ? weights[p * K + q] * scale.x * scale.y : 0.0f;
        }
        weight_fragments[(column / 8 * K + p) * 32 + column % 8 * 4 + i % 4] = split(values[0], values[1]);
    }
}

// Load an image's pairs of pixels to registers, and zeros where there is no pair.
template <class Pair, int LOADS_PER_THREAD>
__device__ __forceinline__ void load_pairs(Pair (&values)[LOADS_PER_THREAD], const Pair* source, int pairs, int threads)
{
    #pragma unroll
    for (int r = 0; r < LOADS_PER_THREAD; ++r) {
        const int pair = threadIdx.x + r * threads;
        values[r] = pair < pairs ? source[pair] : Pair{};
    }
}

template <int LOADS_PER_THREAD>
__device__ __forceinline__ unsigned max_magnitude(const float2 (&values)[LOADS_PER_THREAD])
{
    unsigned largest = 0;
    #pragma unroll
    for (int r = 0; r < LOADS_PER_THREAD; ++r)
        largest = max(largest, max(magnitude_bits(values[r].x), magnitude_bits(values[r].y)));
    return largest;
}

// Split pairs of pixels to shared memory, and set out_of_range where one of them is too small for FP16 parts.
template <int LOADS_PER_THREAD>
__device__ __forceinline__ void split_pairs(
    const float2 (&values)[LOADS_PER_THREAD], unsigned* smem_hi, unsigned* smem_lo, int pairs, int threads,
    ImageScale image_scale, bool& out_of_range)
{
    #pragma unroll
    for (int r = 0; r < LOADS_PER_THREAD; ++r) {
        const int pair = threadIdx.x + r * threads;
        if (pair >= pairs) break;
        const unsigned larger = max(magnitude_bits(values[r].x), magnitude_bits(values[r].y));
        out_of_range |= larger != 0 && __uint_as_float(larger) < image_scale.least;
        const uint2 parts = split(values[r].x * image_scale.scale, values[r].y * image_scale.scale);
        smem_hi[pair] = parts.x;
        smem_lo[pair] = parts.y;
    }
}

// A layer of one channel as its kernel computes it. A warp multiplies M_TILES tiles of 16 runs by ILP tiles of columns
// at a time. N_TILES: all tiles of columns, whose weights stay in registers; or 0 for any number, whose weights are in
// shared memory. A thread splits LOADS_PER_THREAD pairs of pixels of an image.
template <int K_, int W_, int N_TILES_, int M_TILES_, int LOADS_PER_THREAD_>
struct SingleChannelConv {
    static constexpr int K = K_, W = W_, N_TILES = N_TILES_, M_TILES = M_TILES_, LOADS_PER_THREAD = LOADS_PER_THREAD_;
    static constexpr int SHIFTS = 9 - K;
    static constexpr int CHANNELS_PER_TILE = 8 / SHIFTS;
    static constexpr bool WEIGHTS_IN_REGISTERS = N_TILES > 0;
    static constexpr int ILP = WEIGHTS_IN_REGISTERS ? N_TILES : 1;
    static constexpr int W_OUT = W - K + 1;
    static constexpr int RUNS_PER_ROW = W_OUT / SHIFTS;
    static_assert(W_OUT % SHIFTS == 0 && W % 2 == 0, "runs end at the ends of rows");

    using RunFragments = uint4[M_TILES][(K + 1) / 2];  // of A
    using WeightFragments = uint2[ILP][K];             // of B
    using Sums = float[M_TILES][ILP][4];
};

// The run in row group_id (half: 0) or group_id + 8 (half: 1) of a warp's tile. Two shifts: these are neighbouring
// runs, so that a lane's four outputs are one vector. Four: a lane holds half of each run.
template <int SHIFTS>
struct RunIndex {
    int first_tile, group_id;
    __device__ __forceinline__ int operator()(int tile, int half) const
    {
        return (first_tile + tile) * 16 + (SHIFTS == 2 ? 2 * group_id + half : 8 * half + group_id);
    }
};

// Fetch the fragments of B for ILP tiles of columns, the first of them `first`: from registers, or from shared memory.
template <class Conv>
__device__ __forceinline__ void fetch_weight_fragments(
    typename Conv::WeightFragments& b, const typename Conv::WeightFragments& register_weights,
    const uint2* smem_weights, int first, int lane)
{
    constexpr int K = Conv::K;
    #pragma unroll
    for (int n = 0; n < Conv::ILP; ++n)
        #pragma unroll
        for (int p = 0; p < K; ++p)
            b[n][p] = Conv::WEIGHTS_IN_REGISTERS ? register_weights[n][p] : smem_weights[(first * K + p) * 32 + lane];
}

// Fetch the fragments of A for 16 runs, from the places of the lane's two runs: hi and lo parts of a.x ... a.w for two
// rows of the kernel each; where K is odd, a.x and a.y of the last.
template <int K, int W, bool HAS_LO_PARTS>
__device__ __forceinline__ void load_run_fragments(
    uint4 (&hi)[(K + 1) / 2], uint4 (&lo)[(K + 1) / 2], const unsigned* smem_hi, const unsigned* smem_lo,
    const int (&place)[2])
{
    #pragma unroll
    for (int p = 0; p < K; p += 2) {
        const int next = p + 1 < K ? (p + 1) * (W / 2) : 0;
        const unsigned* row = smem_hi + p * (W / 2);
        hi[p / 2] = make_uint4(row[place[0]], row[place[1]], smem_hi[next + place[0]], smem_hi[next + place[1]]);
        if (!HAS_LO_PARTS) continue;
        row = smem_lo + p * (W / 2);
        lo[p / 2] = make_uint4(row[place[0]], row[place[1]], smem_lo[next + place[0]], smem_lo[next + place[1]]);
    }
}

// Multiply M_TILES tiles of runs by N_TILES tiles of columns. hi * hi goes to `large`, the smaller products to `small`,
// because tensor cores cut off digits that do not fit beside a larger sum.
template <int K, int M_TILES, int N_TILES, bool HAS_LO_PARTS>
__device__ __forceinline__ void mma_runs(
    float (&large)[M_TILES][N_TILES][4], float (&small)[M_TILES][N_TILES][4], const uint4 (&hi)[M_TILES][(K + 1) / 2],
    const uint4 (&lo)[M_TILES][(K + 1) / 2], const uint2 (&b)[N_TILES][K])
{
    #pragma unroll
    for (int p = 0; p < K; p += 2)
        #pragma unroll
        for (int product = 0; product < (HAS_LO_PARTS ? 3 : 2); ++product)  // hi * lo, hi * hi, lo * hi
            #pragma unroll
            for (int m = 0; m < M_TILES; ++m)
                #pragma unroll
                for (int n = 0; n < N_TILES; ++n) {
                    float (&d)[4] = product == 1 ? large[m][n] : small[m][n];
                    const uint4 a = product == 2 ? lo[m][p / 2] : hi[m][p / 2];
                    const unsigned b0 = product == 0 ? b[n][p].y : b[n][p].x;
                    if (p + 1 < K)
                        mma_m16n8k16(d, a, b0, product == 0 ? b[n][p + 1].y : b[n][p + 1].x);
                    else
                        mma_m16n8k8(d, a.x, a.y, b0);
                }
}
