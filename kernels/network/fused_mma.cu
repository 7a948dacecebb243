/*
title:     Layers in one kernel, hi and lo FP16 parts
idea:      'Pooling and activation cost no pass over memory of their own. The first convolution takes the largest of
           each 2 x 2 outputs in registers, activates it, and writes a quarter of the outputs. The second, where
           pooling follows it, pools in shared memory. The fully connected layer multiplies hi and lo FP16 parts as
           the convolutions do (fp16x3_mma). Its weights are split once for all calls, and shares of its inputs are
           spread over the device. One more kernel adds the shares, activates, and finds the labels. One CUDA graph
           launches all of it. The first layer also takes the host''s bytes as they are. FP16 holds every byte value
           exactly, so the image needs no lo part: two MMAs instead of three, and no scaling pass.'
expect:    The time is that of the convolutions, which write less, and of the fully connected layer, at half of the
           tensor cores' peak. For ten images, launch overhead dominates.
builds_on: unfused
split:     {precision: fp16, products: 3}
constants: {POOL_28_ROW_PAIRS: 1, POOL_28_THREADS: 160, POOL_28_BLOCKS: 4,
            POOL_5_ROW_PAIRS: 1, POOL_5_THREADS: 128, POOL_5_BLOCKS: 3,
            POOL_72_ROW_PAIRS: 1, POOL_72_THREADS: 192, POOL_72_BLOCKS: 2,
            POOL_86_ROW_PAIRS: 2, POOL_86_THREADS: 128, POOL_86_BLOCKS: 3}
method:    any
least_arch: sm_80
*/

// Within a network nobody looks at a single result: values of an image that are small beside its largest may lose
// digits that the sums of a fully connected layer would not keep.
#define MIN_EXPONENT (-300)

#include "fp16x3_mma.cu"

#define TANH 1
#define RELU 2

__device__ __forceinline__ float activated(float value, int activation)
{
    if (activation == TANH) return tanhf(value);
    return activation == RELU ? fmaxf(value, 0.0f) : value;
}

// What the first layer reads: float32, which it scales and splits; or uint8, which FP16 holds exactly, so that there
// are no lo parts. The network takes bytes times `scale`.
struct FloatInput {
    static constexpr bool HAS_LO_PARTS = true;
    using Pair = float2;
    const float* __restrict__ x;

    __device__ FloatInput from(size_t count) const { return {x + count}; }
    __device__ float at(int i) const { return x[i]; }
    __device__ float scaled(float sum) const { return sum; }
};
struct ByteInput {
    static constexpr bool HAS_LO_PARTS = false;
    using Pair = uchar2;
    const unsigned char* __restrict__ x;
    float scale;

    __device__ ByteInput from(size_t count) const { return {x + count, scale}; }
    __device__ float at(int i) const { return x[i] * scale; }
    __device__ float scaled(float sum) const { return sum * scale; }
};

// Where the first layer's results go, `count` an image: as float32; or split for the next matrix product, an image's lo
// parts before its hi parts, each times 2^SCALE_EXPONENT. Only results of tanh, which are no more than 1, may be split.
struct StoreFloat {
    float* __restrict__ y;

    __device__ void store(int image, int count, int i, float value) const { y[(size_t)image * count + i] = value; }
    __device__ void store_pair(int image, int count, int i, int distance, float2 values, bool first, bool second) const
    {
        if (first) store(image, count, i, values.x);
        if (second) store(image, count, i + distance, values.y);
    }
};
struct StoreSplit {
    __half* __restrict__ y;

    __device__ __half* lo_parts(int image, int count) const { return y + (size_t)image * 2 * count; }
    __device__ void store(int image, int count, int i, float value) const
    {
        const uint2 parts = split(value * power_of_two(SCALE_EXPONENT), 0.0f);
        lo_parts(image, count)[count + i] = __ushort_as_half(parts.x);
        lo_parts(image, count)[i] = __ushort_as_half(parts.y);
    }
    // Two values of each lane, `distance` from each other. Of two neighbouring lanes, one has an even i and the other
    // the next i: one stores the hi parts of both, the other the lo parts. All lanes call it.
    __device__ void store_pair(int image, int count, int i, int distance, float2 values, bool first, bool second) const
    {
        const bool odd = threadIdx.x % 2;
        const uint2 parts = split(values.x * power_of_two(SCALE_EXPONENT), values.y * power_of_two(SCALE_EXPONENT));
        const unsigned kept = odd ? parts.y : parts.x;
        const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? parts.x : parts.y, 1);
        const unsigned left = odd ? other : kept;
        const unsigned right = odd ? kept : other;
        __half* const place = lo_parts(image, count) + (odd ? i - 1 : count + i);
        if (first) *(unsigned*)place = __byte_perm(left, right, 0x5410);
        if (second) *(unsigned*)(place + distance) = __byte_perm(left, right, 0x7632);
    }
};

// One image in FP32, pooled 2 x 2 and activated.
template <typename Input, typename Store>
__device__ __noinline__ void conv_pool_image_fp32(
    Input source, const float* __restrict__ w, Store epilogue, int image, int H, int W, int M, int K, int activation)
{
    const int H_pooled = (H - K + 1) / 2;
    const int W_pooled = (W - K + 1) / 2;
    const int count = M * H_pooled * W_pooled;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const Input input = source.from(i / W_pooled % H_pooled * 2 * W + i % W_pooled * 2);
        const float* weights = w + (size_t)(i / (H_pooled * W_pooled)) * K * K;
        float sums[4] = {};
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                for (int j = 0; j < 4; ++j) sums[j] += input.at((p + j / 2) * W + q + j % 2) * weights[p * K + q];
        epilogue.store(image, count, i, activated(fmaxf(fmaxf(sums[0], sums[1]), fmaxf(sums[2], sums[3])), activation));
    }
}

// Fetch the fragments of A for pairs of tiles: the upper and the lower row of the same runs.
template <class Conv, bool HAS_LO_PARTS>
__device__ __forceinline__ void load_run_tile_pairs(
    typename Conv::RunFragments& hi, typename Conv::RunFragments& lo, const unsigned* smem_hi, const unsigned* smem_lo,
    const RunIndex<Conv::SHIFTS>& run_of, int lane_in_group)
{
    #pragma unroll
    for (int m = 0; m < Conv::M_TILES; ++m) {
        int place[2];
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int run = min(run_of(m / 2, half), Conv::RUNS - 1);
            const int row = run / Conv::RUNS_PER_ROW * 2 + m % 2;
            place[half] = row * (Conv::W / 2) + run % Conv::RUNS_PER_ROW * (Conv::SHIFTS / 2) + lane_in_group;
        }
        load_run_fragments<Conv::K, Conv::W, HAS_LO_PARTS>(hi[m], lo[m], smem_hi, smem_lo, place);
    }
}

// Load bytes to shared memory as FP16 values.
template <int LOADS_PER_THREAD>
__device__ __forceinline__ void store_byte_pairs(const uchar2 (&values)[LOADS_PER_THREAD], unsigned* smem_hi, int pairs)
{
    #pragma unroll
    for (int r = 0; r < LOADS_PER_THREAD; ++r) {
        const int pair = threadIdx.x + r * blockDim.x;
        if (pair >= pairs) break;
        const __half2 both = __floats2half2_rn(values[r].x, values[r].y);
        smem_hi[pair] = *(const unsigned*)&both;
    }
}

// A first layer whose outputs are pooled 2 x 2. Two tiles of A are two rows of the same runs, so that a lane holds all
// four outputs of a window. A warp multiplies ROW_PAIRS such pairs of tiles at a time.
template <int K, int W, int N_TILES, int ROW_PAIRS_, int LOADS_PER_THREAD>
struct PooledConv : SingleChannelConv<K, W, N_TILES, 2 * ROW_PAIRS_, LOADS_PER_THREAD> {
    using Base = SingleChannelConv<K, W, N_TILES, 2 * ROW_PAIRS_, LOADS_PER_THREAD>;
    static constexpr int ROW_PAIRS = ROW_PAIRS_;
    static constexpr int RUNS = Base::W_OUT / 2 * Base::RUNS_PER_ROW;  // pairs of runs, one below the other
    static constexpr int WINDOWS = Base::W_OUT / 2 * (Base::W_OUT / 2);
    static_assert(Base::W_OUT % 2 == 0, "rows of outputs in pairs");
};

// Keep the largest of each 2 x 2 outputs in a tile of columns, activate it and store it.
template <class Conv, int ACTIVATION, typename Input, typename Store>
__device__ __forceinline__ void store_pooled_runs(
    const Input& input, const Store& epilogue, int image, const typename Conv::Sums& large,
    const typename Conv::Sums& small, int n, float unscale, int channel, int M, const RunIndex<Conv::SHIFTS>& run_of,
    int lane_in_group)
{
    constexpr int SHIFTS = Conv::SHIFTS, RUNS = Conv::RUNS;
    if (SHIFTS != 4 && channel >= M) return;  // with 4, neighbours wait for it
    const int count = M * Conv::WINDOWS;
    const int result = channel * Conv::WINDOWS + (SHIFTS == 4 ? lane_in_group % 2 : 0);
    #pragma unroll
    for (int pair = 0; pair < Conv::ROW_PAIRS; ++pair) {
        float largest[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i)
            largest[i] = fmaxf(large[2 * pair][n][i] + small[2 * pair][n][i],
                            large[2 * pair + 1][n][i] + small[2 * pair + 1][n][i]);
        float2 pooled;
        pooled.x = activated(input.scaled(fmaxf(largest[0], largest[1]) * unscale), ACTIVATION);
        pooled.y = activated(input.scaled(fmaxf(largest[2], largest[3]) * unscale), ACTIVATION);
        const int first_run = run_of(pair, 0), second_run = run_of(pair, 1);
        const int place = result + first_run * (SHIFTS / 2);
        const int distance = (second_run - first_run) * (SHIFTS / 2);
        if (SHIFTS == 4) {
            const bool has_first = channel < M && first_run < RUNS, has_second = channel < M && second_run < RUNS;
            epilogue.store_pair(image, count, place, distance, pooled, has_first, has_second);
        } else {
            if (first_run < RUNS) epilogue.store(image, count, place, pooled.x);
            if (second_run < RUNS) epilogue.store(image, count, place + distance, pooled.y);
        }
    }
}

// C = 1: conv_single_channel with the largest of each 2 x 2 outputs taken before anything is stored, then activated:
// tanh and ReLU are monotonic, so that order makes no difference. The next image waits in registers.
template <class Conv, int ACTIVATION, typename Input, typename Store>
__device__ __forceinline__ void conv_pool_single_channel(
    Input input, const float* __restrict__ w, const uint2* __restrict__ weight_fragments,
    const int* __restrict__ weight_exponents, Store epilogue, int N, int M)
{
    constexpr int K = Conv::K, W = Conv::W, H = W, ILP = Conv::ILP;
    constexpr int CHANNELS_PER_TILE = Conv::CHANNELS_PER_TILE, ROW_PAIRS = Conv::ROW_PAIRS, RUNS = Conv::RUNS;
    extern __shared__ unsigned smem_hi[];
    __shared__ unsigned warp_max[32];
    unsigned* const smem_lo = smem_hi + (Input::HAS_LO_PARTS ? H * W / 2 : 0);
    const int lane = threadIdx.x % 32;
    const int group_id = lane / 4;
    const int lane_in_group = lane % 4;
    const int lane_channel = lane_in_group * CHANNELS_PER_TILE / 4;  // of its sums in a tile of columns
    const int n_tiles = Conv::WEIGHTS_IN_REGISTERS ? Conv::N_TILES : single_channel_n_tiles(M, K);
    uint2* const smem_weights = (uint2*)(smem_lo + H * W / 2);
    typename Conv::WeightFragments register_weights;
    int register_exponent_bits[ILP];  // of the lane's channels, where FP32 has its exponent
    if (Conv::WEIGHTS_IN_REGISTERS) {
        #pragma unroll
        for (int n = 0; n < Conv::N_TILES; ++n) {
            register_exponent_bits[n] = weight_exponents[n * CHANNELS_PER_TILE + lane_channel] << 23;
            #pragma unroll
            for (int p = 0; p < K; ++p) register_weights[n][p] = weight_fragments[(n * K + p) * 32 + lane];
        }
    } else {
        for (int i = threadIdx.x; i < n_tiles * K * 32; i += blockDim.x) smem_weights[i] = weight_fragments[i];
    }

    typename Input::Pair values[Conv::LOADS_PER_THREAD];
    const auto load = [&](int image) {
        load_pairs(values, (const typename Input::Pair*)input.from((size_t)image * H * W).x, H * W / 2, blockDim.x);
    };
    load(blockIdx.x);

    for (int image = blockIdx.x; image < N; image += gridDim.x) {
        int exponent = SCALE_EXPONENT;
        bool out_of_range;
        if constexpr (!Input::HAS_LO_PARTS) {
            out_of_range = scale_out_of_range(exponent, weight_exponents, M);
            __syncthreads();  // the image before is read no more
            store_byte_pairs(values, smem_hi, H * W / 2);
        } else {
            // Its barrier also keeps the image before from being overwritten while it is read.
            const unsigned largest = block_max(max_magnitude(values), warp_max);
            const ImageScale image_scale = scale_of_image(largest);
            exponent = image_scale.exponent;
            out_of_range = largest >= INFINITY_BITS || scale_out_of_range(exponent, weight_exponents, M);
            split_pairs(values, smem_hi, smem_lo, H * W / 2, blockDim.x, image_scale, out_of_range);
        }
        if (image + gridDim.x < N) load(image + gridDim.x);
        // The image is complete before anyone reads it.
        if (__syncthreads_or(out_of_range)) {
            conv_pool_image_fp32(input.from((size_t)image * H * W), w, epilogue, image, H, W, M, K, ACTIVATION);
            continue;
        }

        for (int group = threadIdx.x / 32; group * ROW_PAIRS * 16 < RUNS; group += blockDim.x / 32) {
            const RunIndex<Conv::SHIFTS> run_of = {group * ROW_PAIRS, group_id};
            typename Conv::RunFragments hi, lo;
            load_run_tile_pairs<Conv, Input::HAS_LO_PARTS>(hi, lo, smem_hi, smem_lo, run_of, lane_in_group);
            #pragma unroll 1
            for (int first = 0; first < n_tiles; first += ILP) {
                typename Conv::WeightFragments b;
                fetch_weight_fragments<Conv>(b, register_weights, smem_weights, first, lane);
                typename Conv::Sums large = {}, small = {};
                mma_runs<K, Conv::M_TILES, ILP, Input::HAS_LO_PARTS>(large, small, hi, lo, b);
                #pragma unroll
                for (int n = 0; n < ILP; ++n) {
                    const int channel = (first + n) * CHANNELS_PER_TILE + lane_channel;
                    const int exponent_bits =
                        Conv::WEIGHTS_IN_REGISTERS ? register_exponent_bits[n] : weight_exponents[channel] << 23;
                    const float unscale = __int_as_float(exponent_bits + ((exponent - 2 * SCALE_EXPONENT + 127) << 23));
                    store_pooled_runs<Conv, ACTIVATION>(input, epilogue, image, large, small, n, unscale, channel, M,
                                                        run_of, lane_in_group);
                }
            }
        }
    }
}

// Each for float32 and for uint8.
#define CONV_POOL(NAME, TYPE, STORE, K, W, N_TILES, ROW_PAIRS, THREADS, BLOCKS, ACTIVATION)                       \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME(                                           \
        const float* __restrict__ x, const float* __restrict__ w, const uint2* __restrict__ weight_fragments,     \
        const int* __restrict__ weight_exponents, TYPE* __restrict__ y, int N, int M)                             \
    {                                                                                                             \
        using Conv = PooledConv<K, W, N_TILES, ROW_PAIRS, loads_per_thread(W * W / 2, THREADS)>;                  \
        conv_pool_single_channel<Conv, ACTIVATION>(                                                               \
            FloatInput{x}, w, weight_fragments, weight_exponents, STORE{y}, N, M);                                \
    }                                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME##_uint8(                                   \
        const unsigned char* __restrict__ x, const float* __restrict__ w,                                         \
        const uint2* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,                     \
        TYPE* __restrict__ y, int N, int M, float scale)                                                          \
    {                                                                                                             \
        using Conv = PooledConv<K, W, N_TILES, ROW_PAIRS, loads_per_thread(W * W / 2, THREADS)>;                  \
        conv_pool_single_channel<Conv, ACTIVATION>(                                                               \
            ByteInput{x, scale}, w, weight_fragments, weight_exponents, STORE{y}, N, M);                          \
    }

CONV_POOL(conv_pool_28_5, float, StoreFloat, 5, 28, 0, POOL_28_ROW_PAIRS, POOL_28_THREADS, POOL_28_BLOCKS, TANH)
CONV_POOL(conv_pool_48_5, float, StoreFloat, 5, 48, 3, POOL_5_ROW_PAIRS, POOL_5_THREADS, POOL_5_BLOCKS, TANH)
CONV_POOL(conv_pool_64_5, float, StoreFloat, 5, 64, 3, POOL_5_ROW_PAIRS, POOL_5_THREADS, POOL_5_BLOCKS, TANH)
CONV_POOL(conv_pool_72_7, float, StoreFloat, 7, 72, 3, POOL_72_ROW_PAIRS, POOL_72_THREADS, POOL_72_BLOCKS, TANH)
CONV_POOL(conv_pool_86_7, float, StoreFloat, 7, 86, 1, POOL_86_ROW_PAIRS, POOL_86_THREADS, POOL_86_BLOCKS, RELU)

CONV_POOL(conv_pool_split_28_5, __half, StoreSplit, 5, 28, 0, POOL_28_ROW_PAIRS, POOL_28_THREADS, POOL_28_BLOCKS, TANH)
CONV_POOL(conv_pool_split_48_5, __half, StoreSplit, 5, 48, 3, POOL_5_ROW_PAIRS, POOL_5_THREADS, POOL_5_BLOCKS, TANH)
CONV_POOL(conv_pool_split_64_5, __half, StoreSplit, 5, 64, 3, POOL_5_ROW_PAIRS, POOL_5_THREADS, POOL_5_BLOCKS, TANH)

// Epilogue of conv_multi_channel: ReLU and the largest of each SIZE x SIZE outputs, windows cut at the end. None is
// negative, so their bits are in the order of the values. exponents (image): of the image's largest result.
template <int SIZE>
struct PoolPositive {
    const float* __restrict__ w;
    float* __restrict__ y;
    int* __restrict__ exponents;
    int* pooled;  // in shared memory, as many as an image has, and the largest
    int M, H_out, W_out;

    __device__ int across() const { return (W_out + SIZE - 1) / SIZE; }
    __device__ int places() const { return (H_out + SIZE - 1) / SIZE * across(); }
    __device__ void begin() const
    {
        for (int i = threadIdx.x; i <= M * places(); i += blockDim.x) pooled[i] = 0;
    }
    __device__ void raise(int channel, int row, int column, float value) const
    {
        int* const place = pooled + channel * places() + row / SIZE * across() + column / SIZE;
        if (!(value <= 0.0f)) atomicMax(place, __float_as_int(value));
    }
    __device__ void store(int image, int channel, int output, float4 values) const
    {
        // W_out is even and output a multiple of 4: two neighbours share a row and a window.
        const int row = output / W_out;
        const int column = output - row * W_out;
        raise(channel, row, column, fmaxf(values.x, values.y));
        const bool wraps = column + 2 == W_out;
        raise(channel, row + wraps, wraps ? 0 : column + 2, fmaxf(values.z, values.w));
    }
    __device__ void store(int image, int channel, int output, float value) const
    {
        raise(channel, output / W_out, output % W_out, value);
    }
    __device__ void fall_back(int exponent, const float* x, int image, int C, int H, int W, int K) const
    {
        const int outputs = H_out * W_out;
        for (int i = threadIdx.x; i < M * outputs; i += blockDim.x)
            store(image, i / outputs, i % outputs, conv_output_fp32(x + (size_t)image * C * H * W, w, C, H, W, K, i));
    }
    __device__ void end(int image) const
    {
        __syncthreads();
        const int count = M * places();
        int largest = 0;
        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            const int value = pooled[i];
            y[(size_t)image * count + i] = __int_as_float(value);
            pooled[i] = 0;
            largest = max(largest, value);
        }
        largest = __reduce_max_sync(0xffffffffu, largest);
        if (threadIdx.x % 32 == 0) atomicMax(pooled + count, largest);
        __syncthreads();
        if (threadIdx.x == 0) {
            exponents[image] = exponent_of(pooled[count]);
            pooled[count] = 0;
        }
    }
};

extern "C" __global__ void __launch_bounds__(MULTI_4_THREADS, MULTI_4_BLOCKS) conv_multi_channel_pool_4_7_16(
    const float* __restrict__ x, const float* __restrict__ w, const uint4* __restrict__ weight_fragments,
    const int* __restrict__ weight_exponents, float* __restrict__ y, int* __restrict__ y_exponents, int N,
    int H, int W, int M)
{
    __shared__ int pooled[16 * 81 + 1];
    conv_multi_channel<Conv4>(
        x, weight_fragments, weight_exponents, PoolPositive<4>{w, y, y_exponents, pooled, M, H - 6, W - 6}, N, H, W, M);
}

// Shared memory of a fully connected layer: two stages, each with hi and lo parts of 128 images' inputs, 32 of each and
// a gap that spreads 8 rows over all banks, and with the weights of 16 * n_tiles outputs.
constexpr int DENSE_PITCH = 80;  // bytes
constexpr int DENSE_A_BYTES = 128 * DENSE_PITCH;
__host__ __device__ constexpr int dense_b_bytes(int n_tiles) { return 2 * 2 * n_tiles * 512; }
__host__ __device__ constexpr int dense_stage_bytes(int n_tiles) { return 2 * DENSE_A_BYTES + dense_b_bytes(n_tiles); }

// Where the launcher reads what it must know: a block's outputs, bytes of a stage's weights, and bytes of shared
// memory.
extern "C" __global__ void dense_layout(int* __restrict__ layout, int n_tiles)
{
    layout[0] = 16 * n_tiles;
    layout[1] = dense_b_bytes(n_tiles);
    layout[2] = 2 * dense_stage_bytes(n_tiles);
}

// The fully connected layer as its kernel computes it: N_TILES tiles of 8 outputs for each of a block's two groups of
// four warps, ILP tiles side by side.
template <int N_TILES_>
struct DenseLayer {
    static constexpr int N_TILES = N_TILES_;
    static constexpr int A_BYTES = DENSE_A_BYTES, B_BYTES = dense_b_bytes(N_TILES), STAGE = dense_stage_bytes(N_TILES);
    static constexpr int ILP = N_TILES % 3 == 0 ? 3 : N_TILES % 4 == 0 ? 4 : N_TILES % 5 == 0 ? 5 : N_TILES;
    using Sums = float[2][N_TILES][4];  // of 16 images each
};

// Load a tile of 32 inputs (k_tile) of the thread's four images, zeros behind the last input.
__device__ __forceinline__ void load_inputs(
    float4 (&inputs)[4], const float* const (&rows)[4], int k_tile, int column, int K)
{
    #pragma unroll
    for (int r = 0; r < 4; ++r)
        inputs[r] = k_tile * 32 + column < K ? __ldcs((const float4*)(rows[r] + k_tile * 32))
                                            : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

// Split the inputs of a tile to a stage of shared memory.
template <class Layer>
__device__ __forceinline__ void split_inputs(
    char* stages, int stage, const float4 (&inputs)[4], const float (&scales)[4], int column)
{
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
        const uint2 left = split(inputs[r].x * scales[r], inputs[r].y * scales[r]);
        const uint2 right = split(inputs[r].z * scales[r], inputs[r].w * scales[r]);
        char* place = stages + stage * Layer::STAGE + (threadIdx.x / 8 + 32 * r) * DENSE_PITCH + column * 2;
        *(uint2*)place = make_uint2(left.x, right.x);
        *(uint2*)(place + Layer::A_BYTES) = make_uint2(left.y, right.y);
    }
}

// Start the copy of a tile's weights to a stage of shared memory.
template <class Layer>
__device__ __forceinline__ void copy_weights(char* stages, int stage, const uint4* block_weights, int k_tile)
{
    const uint4* source = block_weights + (size_t)k_tile * (Layer::B_BYTES / 16);
    const unsigned to = smem_address(stages + stage * Layer::STAGE + 2 * Layer::A_BYTES);
    for (int i = threadIdx.x; i < Layer::B_BYTES / 16; i += 256) cp_async_16(to + i * 16, source + i);
    cp_async_commit_group();
}

// Fetch the fragments of A for a step of 16 inputs: hi and lo parts, of 16 images each.
template <class Layer>
__device__ __forceinline__ void load_input_fragments(
    uint4 (&parts)[2][2], const char* stage, int step, int warp, int lane)
{
    #pragma unroll
    for (int part = 0; part < 2; ++part)
        #pragma unroll
        for (int m = 0; m < 2; ++m) {
            const char* place = stage + part * Layer::A_BYTES + (warp % 4 * 32 + m * 16 + lane % 16) * DENSE_PITCH
                                + step * 32 + lane / 16 * 16;
            parts[part][m] = ldmatrix_x4(smem_address(place));
        }
}

// Multiply a step's inputs by its weights.
template <class Layer>
__device__ __forceinline__ void mma_inputs(
    typename Layer::Sums& products, const uint4 (&parts)[2][2], const uint4* b, int step)
{
    constexpr int ILP = Layer::ILP, N_TILES = Layer::N_TILES;
    #pragma unroll
    for (int start = 0; start < N_TILES; start += ILP) {
        uint4 fragments[ILP];
        #pragma unroll
        for (int n = 0; n < ILP; ++n) fragments[n] = b[(step * 2 * N_TILES + start + n) * 32];
        #pragma unroll
        for (int product = 0; product < 3; ++product)  // hi * lo, lo * hi, hi * hi
            #pragma unroll
            for (int n = 0; n < ILP; ++n)
                #pragma unroll
                for (int m = 0; m < 2; ++m)
                    mma_m16n8k16(products[m][start + n], parts[product == 1][m],
                                 product == 0 ? fragments[n].z : fragments[n].x,
                                 product == 0 ? fragments[n].w : fragments[n].y);
    }
}

template <class Layer>
__device__ __forceinline__ void clear_sums(typename Layer::Sums& sums)
{
    #pragma unroll
    for (int m = 0; m < 2; ++m)
        #pragma unroll
        for (int n = 0; n < Layer::N_TILES; ++n)
            #pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
}

template <class Layer>
__device__ __forceinline__ void add_sums(typename Layer::Sums& sums, const typename Layer::Sums& products)
{
    #pragma unroll
    for (int m = 0; m < 2; ++m)
        #pragma unroll
        for (int n = 0; n < Layer::N_TILES; ++n)
            #pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] += products[m][n][i];
}

// Store a warp's sums over one share of the inputs, for each image that there is.
template <class Layer>
__device__ __forceinline__ void store_partial_sums(
    float* __restrict__ partial, const typename Layer::Sums& sums, int N, int outputs, int top, int warp, int lane)
{
    constexpr int N_TILES = Layer::N_TILES;
    #pragma unroll
    for (int m = 0; m < 2; ++m)
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int image = top + warp % 4 * 32 + m * 16 + half * 8 + lane / 4;
            if (image >= N) continue;
            float* place = partial + ((size_t)blockIdx.z * N + image) * outputs + blockIdx.x * 16 * N_TILES
                           + warp / 4 * N_TILES * 8 + lane % 4 * 2;
            #pragma unroll
            for (int n = 0; n < N_TILES; ++n)
                *(float2*)(place + n * 8) = make_float2(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
        }
}

// The fully connected layer, K inputs an image: sums over one of gridDim.z shares of the inputs, of 128 images
// (blockIdx.y) and 16 * N_TILES outputs (blockIdx.x) a block. Four warps take 32 images each and half of the outputs,
// four the other half. weights (blockIdx.x, K / 16, tile, lane): b0 and b1 of an mma, hi parts and then lo parts.
// exponents (image): of a bound on the image's inputs. Products of a few steps are added up by themselves and then to
// the others, because tensor cores cut off digits that do not fit beside a larger sum.
template <class Layer>
__device__ __forceinline__ void dense(
    const float* __restrict__ x, const uint4* __restrict__ weights, const int* __restrict__ exponents,
    float* __restrict__ partial, int N, int K, int outputs)
{
    extern __shared__ __align__(16) char stages[];

    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int k_tiles = (K + 31) / 32;
    const int first = (int)((long long)k_tiles * blockIdx.z / gridDim.z);
    const int last = (int)((long long)k_tiles * (blockIdx.z + 1) / gridDim.z);
    const int top = blockIdx.y * 128;
    const uint4* const block_weights = weights + (size_t)blockIdx.x * k_tiles * (Layer::B_BYTES / 16);

    const int column = threadIdx.x % 8 * 4;
    const float* rows[4];
    float scales[4];
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int image = min(top + (int)threadIdx.x / 8 + 32 * r, N - 1);
        rows[r] = x + (size_t)image * K + column;
        scales[r] = power_of_two(min(SCALE_EXPONENT - exponents[image], 127));
    }

    float4 next[4];
    typename Layer::Sums sums = {};
    if (first < last) {
        load_inputs(next, rows, first, column, K);
        copy_weights<Layer>(stages, 0, block_weights, first);
        split_inputs<Layer>(stages, 0, next, scales, column);
    }
    for (int k_tile = first; k_tile < last; ++k_tile) {
        const int stage = (k_tile - first) % 2;
        cp_async_wait_all_groups();
        __syncthreads();
        if (k_tile + 1 < last) {
            load_inputs(next, rows, k_tile + 1, column, K);
            copy_weights<Layer>(stages, stage ^ 1, block_weights, k_tile + 1);
        }
        const char* const a = stages + stage * Layer::STAGE;
        const uint4* const b = (const uint4*)(a + 2 * Layer::A_BYTES) + warp / 4 * Layer::N_TILES * 32 + lane;
        typename Layer::Sums products;
        clear_sums<Layer>(products);
        #pragma unroll
        for (int step = 0; step < 2; ++step) {
            uint4 parts[2][2];
            load_input_fragments<Layer>(parts, a, step, warp, lane);
            mma_inputs<Layer>(products, parts, b, step);
            if (step == 0 && k_tile + 1 < last)
                split_inputs<Layer>(stages, stage ^ 1, next, scales, column);
        }
        add_sums<Layer>(sums, products);
    }
    store_partial_sums<Layer>(partial, sums, N, outputs, top, warp, lane);
}

#define DENSE(N_TILES)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 1) dense_##N_TILES(                                  \
        const float* __restrict__ x, const uint4* __restrict__ weights, const int* __restrict__ exponents, \
        float* __restrict__ partial, int N, int K, int outputs)                                            \
    {                                                                                                      \
        dense<DenseLayer<N_TILES>>(x, weights, exponents, partial, N, K, outputs);                         \
    }

DENSE(2)
DENSE(8)
DENSE(9)
DENSE(10)

// Who of a warp has the largest score, the first of equal ones.
__device__ __forceinline__ int label_of(float score, int label)
{
    #pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const float theirs = __shfl_xor_sync(0xffffffffu, score, offset);
        const int their_label = __shfl_xor_sync(0xffffffffu, label, offset);
        if (theirs > score || (theirs == score && their_label < label)) {
            score = theirs;
            label = their_label;
        }
    }
    return label;
}

// So many of a block's 8 warps an image: the shares of its hidden values added up, scaled back and activated, the last
// layer, and the label.
extern "C" __global__ void __launch_bounds__(256) classify(
    const float* __restrict__ partial, const int* __restrict__ exponents, const int* __restrict__ weight_exponents,
    const float* __restrict__ b, const float* __restrict__ w_last, const float* __restrict__ b_last,
    float* __restrict__ scores, int* __restrict__ labels, int N, int shares, int padded, int hidden, int classes,
    int activation, int warps)
{
    constexpr int ILP = 4;  // hidden values that a lane adds up side by side
    __shared__ float warp_results[8][16];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int image = blockIdx.x * (8 / warps) + warp / warps;
    const int step = warps * 32;
    const float* const image_sums = partial + (size_t)min(image, N - 1) * padded;
    const int exponent = max(exponents[min(image, N - 1)] - SCALE_EXPONENT, -127);
    float results[16] = {};
    for (int start = warp % warps * 32 + lane; start < hidden; start += ILP * step) {
        float sums[ILP] = {};
        #pragma unroll 4
        for (int share = 0; share < shares; ++share)
            #pragma unroll
            for (int j = 0; j < ILP; ++j)
                if (start + j * step < hidden) sums[j] += image_sums[(size_t)share * N * padded + start + j * step];
        #pragma unroll
        for (int j = 0; j < ILP; ++j) {
            const int unit = start + j * step;
            if (unit >= hidden) break;
            const float2 unscale = scale_factors(exponent + weight_exponents[unit] - SCALE_EXPONENT);
            const float value = activated(sums[j] * unscale.x * unscale.y + b[unit], activation);
            #pragma unroll
            for (int i = 0; i < 16; ++i)
                if (i < classes) results[i] += value * w_last[i * hidden + unit];
        }
    }
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (i >= classes) break;
        #pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) results[i] += __shfl_xor_sync(0xffffffffu, results[i], offset);
        if (lane == i) warp_results[warp][i] = results[i];
    }
    __syncthreads();
    if (warp % warps > 0 || image >= N) return;
    float score = __int_as_float(0xff800000);
    if (lane < classes) {
        score = b_last[lane];
        for (int other = warp; other < warp + warps; ++other) score += warp_results[other][lane];
        scores[(size_t)image * classes + lane] = score;
    }
    const int label = label_of(score, lane);
    if (lane == 0) labels[image] = label;
}
