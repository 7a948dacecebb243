/*
title:     FP32 as hi and lo FP16 parts, by mma.sync
idea:      Every FP32 value is split into a hi and a lo FP16 part, which together keep 22 bits. Tensor cores add up
           hi * hi, hi * lo and lo * hi in FP32. Powers of two, found for each image and each output channel, keep
           the parts inside FP16's range. An image is split once, as it enters shared memory, and then serves all
           weights. Layers of several channels keep the channels of a pixel together, so that a row of the kernel is
           one run of K*C values. Layers of one channel multiply 8 neighbouring pixels by the weights of 9 - K
           shifted outputs. Layers other than the networks' take a general kernel. Images with values too small for
           FP16 parts beside the largest go into a list, and a last kernel computes the outputs around those in FP32.
expect:    mma.sync does 8 times the multiply-adds of FP32, half the tensor cores' peak, and needs 3 times as many. So
           later layers gain up to 2.5 times over FP32's own bound. Beyond that, reads of shared
           memory limit them (12 of 14 cycles on 12x33x33). First layers come near the
           time of their memory traffic. Errors stay those of FP32 sums. Few images gain less.
check:     sm__inst_executed_pipe_tensor_op_hmma.sum rises, smsp__sass_thread_inst_executed_op_ffma_pred_on.sum falls
builds_on: layer_specialised
split:     {precision: fp16, products: 3}
reference: https://doi.org/10.1177/10943420221090256 (Ootomo and Yokota, 2022)
constants: {TILE: 16, FP32_THREADS: 512,
            MULTI_12_N_TILES: 4, MULTI_12_ILP: 4, MULTI_12_THREADS: 256, MULTI_12_BLOCKS: 2,
            MULTI_6_N_TILES: 8, MULTI_6_ILP: 4, MULTI_6_THREADS: 128, MULTI_6_BLOCKS: 4,
            MULTI_4_N_TILES: 8, MULTI_4_ILP: 8, MULTI_4_THREADS: 128, MULTI_4_BLOCKS: 4,
            SINGLE_28_M_TILES: 3, SINGLE_28_THREADS: 96, SINGLE_28_BLOCKS: 5, SINGLE_5_THREADS: 128, SINGLE_5_BLOCKS: 2,
            SINGLE_72_THREADS: 256, SINGLE_72_BLOCKS: 1,
            SINGLE_86_M_TILES: 2, SINGLE_86_THREADS: 128, SINGLE_86_BLOCKS: 4}
limits:    {M: 65535, N: 65535}
least_arch: sm_80
claims:
  - says:     later layers gain up to 2.5 times over FP32's own bound
    quantity: times_bound
    value:    {at_most: 1}
    where:    {C: {at_least: 2}}
  - says:     First layers come near the time of their memory traffic
    quantity: times_memory_bound
    value:    {at_most: 1.5}
    where:    {C: {is: 1}}
  - says:     Errors stay those of FP32 sums
    quantity: error
    value:    {at_most: 0.000002}
  - says:     Few images gain less
    quantity: op_time
    change:   falls
    where:    {N: {at_least: 10000}}
    more_than: {N: {at_most: 100}}
  - says:     sm__inst_executed_pipe_tensor_op_hmma.sum rises
    quantity: sm__inst_executed_pipe_tensor_op_hmma.sum
    change:   rises
  - says:     smsp__sass_thread_inst_executed_op_ffma_pred_on.sum falls
    quantity: smsp__sass_thread_inst_executed_op_ffma_pred_on.sum
    change:   falls
*/

#include "async_copy.cuh"
#include "conv_single_channel.cuh"
#include "fp16_split.cuh"
#include "fp32_fallback.cuh"
#include "mma.cuh"

// ---- Layers of several channels -----------------------------------------------------------------
//
// A holds the weights, 16 output channels to a tile; B the pixels, 8 outputs to a tile. A row of the kernel is one run
// of K * C values, a pixel's channels together, and a fragment is four of them: their hi parts, then their lo parts, 16
// bytes. One mma step multiplies four fragments. The steps of a row's whole fours of fragments come first; the
// fragments that are left of all rows share steps of their own.

__host__ __device__ constexpr int fragments_per_kernel_row(int C, int K) { return (K * C + 3) / 4; }
__host__ __device__ constexpr int whole_steps_per_kernel_row(int C, int K)
{
    return fragments_per_kernel_row(C, K) / 4;
}
__host__ __device__ constexpr int fragments_left_per_kernel_row(int C, int K)
{
    return fragments_per_kernel_row(C, K) % 4;
}
__host__ __device__ constexpr int mma_steps(int C, int K)
{
    return K * whole_steps_per_kernel_row(C, K) + (K * fragments_left_per_kernel_row(C, K) + 3) / 4;
}

// Splits the weights of one output channel a block, of M and some of zeros behind them. weight_fragments (step, part,
// lane) holds a.x ... a.w of an mma. The first 16 channels fill two parts, hi and lo. The 8 that may follow share one:
// their hi parts are its first rows, their lo parts its last.
extern "C" __global__ void split_multi_channel_weights(
    const float* __restrict__ w, unsigned* __restrict__ weight_fragments, int* __restrict__ exponents,
    int* __restrict__ fallback_list, int C, int M, int K)
{
    const int channel = blockIdx.x;
    if (channel == 0 && threadIdx.x == 0) fallback_list[0] = 0;
    const int parts_per_step = gridDim.x / 8;
    const int whole = whole_steps_per_kernel_row(C, K);
    const int left = fragments_left_per_kernel_row(C, K);
    const int steps = mma_steps(C, K);
    const float* weights = w + (size_t)channel * C * K * K;
    const float2 scale = weight_scale(weights, C * K * K, channel < M, channel, exponents);

    for (int i = threadIdx.x; i < steps * 4; i += blockDim.x) {
        const int among_left = i - K * whole * 4;
        const int p = among_left < 0 ? i / 4 / whole : among_left / left;
        const int fragment = among_left < 0 ? i / 4 % whole * 4 + i % 4 : whole * 4 + among_left % left;
        uint2 parts[2];
        for (int half = 0; half < 2; ++half) {
            float values[2];
            for (int j = 0; j < 2; ++j) {
                const int place = fragment * 4 + half * 2 + j;
                const int q = place / C;
                const int c = place % C;
                const bool has_weight = channel < M && p < K && place < K * C;
                values[j] = has_weight ? weights[(c * K + p) * K + q] * scale.x * scale.y : 0.0f;
            }
            parts[half] = split(values[0], values[1]);
        }
        const int first_part = i / 4 * parts_per_step + channel / 16 * 2;
        unsigned* const hi = weight_fragments + (first_part * 32 + channel % 8 * 4 + i % 4) * 4;
        unsigned* const lo = channel < 16 ? hi + 32 * 4 : hi + 1;
        const int row = channel < 16 ? channel / 8 : 0;
        hi[row] = parts[0].x;
        hi[row + 2] = parts[1].x;
        lo[row] = parts[0].y;
        lo[row + 2] = parts[1].y;
    }
}

// Stores outputs as they are.
struct StoreOutputs {
    float* __restrict__ y;
    int* __restrict__ fallback_list;
    int M, outputs;
    __device__ void begin() const {}
    __device__ void store(int image, int channel, int output, float value) const
    {
        y[((size_t)image * M + channel) * outputs + output] = value;
    }
    __device__ void store(int image, int channel, int output, float4 values) const
    {
        *(float4*)(y + ((size_t)image * M + channel) * outputs + output) = values;
    }
    // FP16 parts cannot hold an image. Where its exponent is OUT_OF_RANGE, none of its outputs is stored.
    __device__ void fall_back(int exponent, const float* x, int image, int C, int H, int W, int K) const
    {
        if (threadIdx.x == 0) append_fallback(fallback_list, image, exponent);
    }
    __device__ void end(int image) const {}
};

// A layer of several channels as its kernel computes it. HAS_THIRD_M_TILE: 24 output channels, else 16. A warp computes
// N_TILES_PER_WARP * 8 outputs of all of them at a time, ILP tiles side by side. VECTOR_STORE: a lane's outputs in two
// tiles are neighbours and stored together. A thread splits LOADS_PER_THREAD groups of CHANNELS_PER_LOAD channels of an
// image.
template <int C_, int K_, bool HAS_THIRD_M_TILE_, int N_TILES_PER_WARP_, int ILP_, bool VECTOR_STORE_,
          int LOADS_PER_THREAD_>
struct MultiChannelConv {
    static constexpr int C = C_, K = K_, N_TILES_PER_WARP = N_TILES_PER_WARP_, ILP = ILP_;
    static constexpr int LOADS_PER_THREAD = LOADS_PER_THREAD_;
    static constexpr bool HAS_THIRD_M_TILE = HAS_THIRD_M_TILE_, VECTOR_STORE = VECTOR_STORE_;
    static constexpr int PARTS_PER_STEP = HAS_THIRD_M_TILE ? 3 : 2;
    static constexpr int THIRD_TILES = HAS_THIRD_M_TILE ? N_TILES_PER_WARP : 1;
    static constexpr int WHOLE_STEPS = whole_steps_per_kernel_row(C, K);
    static constexpr int FRAGMENTS_LEFT = fragments_left_per_kernel_row(C, K);
    static constexpr int STEPS = mma_steps(C, K);
    static constexpr int WEIGHT_FRAGMENTS = STEPS * PARTS_PER_STEP * 32;
    static constexpr bool TWO_COPIES = C % 4 != 0;
    static constexpr int COPIES = TWO_COPIES ? 2 : 1;
    static constexpr int PIXELS_PER_LOAD = COPIES;
    static constexpr int FRAGMENTS_PER_LOAD = PIXELS_PER_LOAD * C / 4;  // of a pixel, or of a pair of them
    static constexpr int CHANNELS_PER_LOAD = TWO_COPIES ? C : 4;
    static_assert(C % 4 == 0 || C == 6, "how a pixel is split into fragments");
    static_assert(C / CHANNELS_PER_LOAD <= 3 && N_TILES_PER_WARP % ILP == 0, "");

    using Values = float[LOADS_PER_THREAD][CHANNELS_PER_LOAD][PIXELS_PER_LOAD];
};

// Extents of an image, and where its pixels are in shared memory. Where a pixel is no whole number of fragments, a pair
// of pixels is, and there are two copies of the image: the pairs of one begin with even pixels, those of the other with
// odd ones. pitch: pixels from one row to the next; where C = 4, an odd multiple of 64 bytes, so that lanes read
// several rows without bank conflicts. copy_stride: fragments from one copy to the next, an odd multiple of 64 bytes,
// so that both are read without bank conflicts. Divisions by extents are multiplications by their inverses.
template <class Conv>
struct MultiChannelImage {
    int H, W, H_out, W_out, outputs, pitch, copy_stride;
    float inverse_W_out, inverse_W;
    __device__ __forceinline__ int loads() const { return H * W / Conv::PIXELS_PER_LOAD; }

    __device__ __forceinline__ MultiChannelImage(int H, int W)
        : H(H), W(W), H_out(H - Conv::K + 1), W_out(W - Conv::K + 1), outputs(H_out * W_out),
          pitch(Conv::C == 4 ? (W + 3) / 8 * 8 + 4 : W),
          copy_stride(((H * pitch / Conv::PIXELS_PER_LOAD + 1) * Conv::FRAGMENTS_PER_LOAD + 3) / 8 * 8 + 4),
          inverse_W_out(1.0f / W_out), inverse_W(1.0f / W)
    {
    }

    // Which pixel, or pair of pixels, a thread's load r is of, and which group of channels.
    __device__ __forceinline__ int pixel_of_load(int loads, int thread, int r, int& channels) const
    {
        const int i = thread + r * blockDim.x;
        channels = Conv::C == Conv::CHANNELS_PER_LOAD ? i >= loads
                                                      : (i >= loads) + (i >= 2 * loads) + (i >= 3 * loads);
        return i - channels * loads;
    }

    // The fragment that an output's kernel window begins with.
    __device__ __forceinline__ int first_fragment(int output) const
    {
        const int row = (output + 0.5f) * inverse_W_out;
        const int pixel = row * pitch + output - row * W_out;
        return Conv::TWO_COPIES ? pixel % 2 * copy_stride + pixel / 2 * Conv::FRAGMENTS_PER_LOAD
                                : pixel * Conv::FRAGMENTS_PER_LOAD;
    }

    __device__ __forceinline__ int row_bytes() const
    {
        return pitch / Conv::PIXELS_PER_LOAD * Conv::FRAGMENTS_PER_LOAD * 16;
    }
};

// threadIdx.x, which the compiler takes for another value each time. It would otherwise compute the places of a
// thread's loads once for all images, and keep them in local memory.
__device__ __forceinline__ int opaque_thread_index()
{
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

template <class Conv>
__device__ __forceinline__ void load_image(
    typename Conv::Values& values, const float* x, int image, const MultiChannelImage<Conv>& shape, int loads,
    int thread)
{
    #pragma unroll
    for (int r = 0; r < Conv::LOADS_PER_THREAD; ++r) {
        int channels;
        const int pixel = shape.pixel_of_load(loads, thread, r, channels);
        const float* source =
            x + ((size_t)image * Conv::C + channels * Conv::CHANNELS_PER_LOAD) * shape.H * shape.W
            + pixel * Conv::PIXELS_PER_LOAD;
        #pragma unroll
        for (int c = 0; c < Conv::CHANNELS_PER_LOAD; ++c) {
            const bool has_channels = channels < Conv::C / Conv::CHANNELS_PER_LOAD;
            if (Conv::PIXELS_PER_LOAD == 2) {
                const float2 none = make_float2(0.0f, 0.0f);
                const float2 pair = has_channels ? *(const float2*)(source + c * shape.H * shape.W) : none;
                values[r][c][0] = pair.x;
                values[r][c][Conv::PIXELS_PER_LOAD - 1] = pair.y;
            } else {
                values[r][c][0] = has_channels ? source[c * shape.H * shape.W] : 0.0f;
            }
        }
    }
}

// The largest magnitude of each load, and of all of them.
template <class Conv>
__device__ __forceinline__ unsigned max_magnitudes(
    unsigned (&largest)[Conv::LOADS_PER_THREAD], const typename Conv::Values& values)
{
    unsigned largest_of_all = 0;
    #pragma unroll
    for (int r = 0; r < Conv::LOADS_PER_THREAD; ++r) {
        largest[r] = 0;
        #pragma unroll
        for (int c = 0; c < Conv::CHANNELS_PER_LOAD; ++c)
            #pragma unroll
            for (int i = 0; i < Conv::PIXELS_PER_LOAD; ++i)
                largest[r] = max(largest[r], magnitude_bits(values[r][c][i]));
        largest_of_all = max(largest_of_all, largest[r]);
    }
    return largest_of_all;
}

// Two splits of two values each as one fragment.
__device__ __forceinline__ uint4 fragment_of(uint2 left, uint2 right)
{
    return make_uint4(left.x, right.x, left.y, right.y);
}

// Store a pair of pixels of 6 channels, split: as three fragments of the copy that begins with even pixels, and shifted
// by one pixel in the copy that begins with odd ones.
template <class Conv, int PAIRS>
__device__ __forceinline__ void store_in_both_copies(
    uint4* even_copy, const uint2 (&even)[PAIRS], const uint2 (&odd)[PAIRS], int copy_stride, bool has_left_neighbour)
{
    even_copy[0] = fragment_of(even[0], even[1]);
    even_copy[1] = fragment_of(even[PAIRS - 1], odd[0]);
    even_copy[2] = fragment_of(odd[1], odd[PAIRS - 1]);
    uint4* const odd_copy = even_copy + copy_stride;
    odd_copy[0] = fragment_of(odd[0], odd[1]);
    ((unsigned*)(odd_copy + 1))[0] = odd[PAIRS - 1].x;
    ((unsigned*)(odd_copy + 1))[2] = odd[PAIRS - 1].y;
    if (has_left_neighbour) {
        ((unsigned*)(odd_copy - 2))[1] = even[0].x;
        ((unsigned*)(odd_copy - 2))[3] = even[0].y;
        odd_copy[-1] = fragment_of(even[1], even[PAIRS - 1]);
    }
}

// Split an image to shared memory, and set out_of_range where one of the thread's values is too small for FP16 parts.
template <class Conv>
__device__ __forceinline__ void split_image(
    uint4* smem_image, const typename Conv::Values& values, const unsigned (&largest)[Conv::LOADS_PER_THREAD],
    const MultiChannelImage<Conv>& shape, int loads, int thread, ImageScale image_scale, bool& out_of_range)
{
    constexpr int PAIRS = Conv::CHANNELS_PER_LOAD / 2;
    #pragma unroll
    for (int r = 0; r < Conv::LOADS_PER_THREAD; ++r) {
        int channels;
        const int pixel = shape.pixel_of_load(loads, thread, r, channels);
        if (channels >= Conv::C / Conv::CHANNELS_PER_LOAD) break;
        out_of_range |= largest[r] != 0 && __uint_as_float(largest[r]) < image_scale.least;
        uint2 parts[Conv::PIXELS_PER_LOAD][PAIRS];
        #pragma unroll
        for (int i = 0; i < Conv::PIXELS_PER_LOAD; ++i)
            #pragma unroll
            for (int c = 0; c < Conv::CHANNELS_PER_LOAD; c += 2)
                parts[i][c / 2] = split(values[r][c][i] * image_scale.scale, values[r][c + 1][i] * image_scale.scale);
        if (!Conv::TWO_COPIES) {
            const int padded = shape.pitch > shape.W
                                   ? pixel + (int)((pixel + 0.5f) * shape.inverse_W) * (shape.pitch - shape.W)
                                   : pixel;
            smem_image[padded * Conv::FRAGMENTS_PER_LOAD + channels] = fragment_of(parts[0][0], parts[0][1]);
        } else {
            store_in_both_copies<Conv>(
                smem_image + pixel * Conv::FRAGMENTS_PER_LOAD, parts[0], parts[Conv::PIXELS_PER_LOAD - 1],
                shape.copy_stride, pixel > 0);
        }
    }
}

// What a warp adds up: 16 output channels in N_TILES_PER_WARP tiles, and the third tile's channels, where there are 24.
// In the third tile's products, rows 0 to 7 are of hi parts of the weights and rows 8 to 15 of lo parts.
template <class Conv> using Tiles = float[Conv::N_TILES_PER_WARP][4];
template <class Conv> using ThirdTiles = float[Conv::THIRD_TILES][4];
template <class Conv> using ThirdSums = float[Conv::THIRD_TILES][2];
template <class Conv> using Windows = const char*[Conv::N_TILES_PER_WARP];

template <class Conv>
__device__ __forceinline__ void clear_products(Tiles<Conv>& products, ThirdTiles<Conv>& third_products)
{
    #pragma unroll
    for (int tile = 0; tile < Conv::N_TILES_PER_WARP; ++tile)
        #pragma unroll
        for (int i = 0; i < 4; ++i) products[tile][i] = third_products[Conv::HAS_THIRD_M_TILE ? tile : 0][i] = 0.0f;
}

template <class Conv>
__device__ __forceinline__ void add_products(
    Tiles<Conv>& sums, ThirdSums<Conv>& third_sums, const Tiles<Conv>& products, const ThirdTiles<Conv>& third_products)
{
    #pragma unroll
    for (int tile = 0; tile < Conv::N_TILES_PER_WARP; ++tile) {
        const int third = Conv::HAS_THIRD_M_TILE ? tile : 0;
        #pragma unroll
        for (int i = 0; i < 4; ++i) sums[tile][i] += products[tile][i];
        if (Conv::HAS_THIRD_M_TILE)
            #pragma unroll
            for (int e = 0; e < 2; ++e) third_sums[third][e] += third_products[third][e] + third_products[third][e + 2];
    }
}

// One mma step of all tiles. `offset`: bytes from the first fragment of a window to that of the lane. ILP tiles at a
// time, so that the mma of one need not wait for those of another.
template <class Conv>
__device__ __forceinline__ void mma_step(
    Tiles<Conv>& products, ThirdTiles<Conv>& third_products, const uint4*& smem_weights, const Windows<Conv>& windows,
    int offset)
{
    constexpr int ILP = Conv::ILP;
    const uint4 hi = smem_weights[0];
    const uint4 lo = smem_weights[32];
    const uint4 third = Conv::HAS_THIRD_M_TILE ? smem_weights[64] : make_uint4(0, 0, 0, 0);
    smem_weights += Conv::PARTS_PER_STEP * 32;
    #pragma unroll
    for (int first = 0; first < Conv::N_TILES_PER_WARP; first += ILP) {
        uint4 fragments[ILP];
        #pragma unroll
        for (int i = 0; i < ILP; ++i) fragments[i] = *(const uint4*)(windows[first + i] + offset);
        #pragma unroll
        for (int i = 0; i < ILP; ++i) mma_m16n8k16(products[first + i], hi, fragments[i].z, fragments[i].w);
        #pragma unroll
        for (int i = 0; i < ILP; ++i)
            if (Conv::HAS_THIRD_M_TILE)
                mma_m16n8k16(
                    third_products[Conv::HAS_THIRD_M_TILE ? first + i : 0], third, fragments[i].z, fragments[i].w);
        #pragma unroll
        for (int i = 0; i < ILP; ++i) mma_m16n8k16(products[first + i], lo, fragments[i].x, fragments[i].y);
        #pragma unroll
        for (int i = 0; i < ILP; ++i)
            if (Conv::HAS_THIRD_M_TILE)
                mma_m16n8k16(
                    third_products[Conv::HAS_THIRD_M_TILE ? first + i : 0], third, fragments[i].x, fragments[i].y);
        #pragma unroll
        for (int i = 0; i < ILP; ++i) mma_m16n8k16(products[first + i], hi, fragments[i].x, fragments[i].y);
    }
}

// Multiply all weights by the windows of a warp's outputs. Tensor cores cut off digits that do not fit beside a larger
// sum, so the products of a few steps are added up by themselves and then to the others.
template <class Conv>
__device__ __forceinline__ void mma_windows(
    Tiles<Conv>& sums, ThirdSums<Conv>& third_sums, Tiles<Conv>& products, ThirdTiles<Conv>& third_products,
    const uint4* smem_weights, const Windows<Conv>& windows, int row_bytes, int lane_in_group)
{
    constexpr int K = Conv::K, STEPS = Conv::STEPS, LEFT = Conv::FRAGMENTS_LEFT;
    const auto begin = [&] { clear_products<Conv>(products, third_products); };
    const auto end = [&] { add_products<Conv>(sums, third_sums, products, third_products); };
    const auto step_at = [&](int offset) {
        mma_step<Conv>(products, third_products, smem_weights, windows, offset);
    };
    const auto offset_among_left = [&](int i) {
        const int fragment = min(i + lane_in_group, K * LEFT - 1);  // what follows the last meets weights of zero
        return fragment / max(LEFT, 1) * row_bytes + (Conv::WHOLE_STEPS * 4 + fragment % max(LEFT, 1)) * 16;
    };
    if (Conv::WHOLE_STEPS > 1) {
        #pragma unroll 1
        for (int p = 0; p < K; ++p) {
            begin();
            #pragma unroll
            for (int s = 0; s < Conv::WHOLE_STEPS; ++s) step_at(p * row_bytes + (s * 4 + lane_in_group) * 16);
            end();
        }
        if (LEFT > 0) {
            begin();
            #pragma unroll
            for (int i = 0; i < K * LEFT; i += 4) step_at(offset_among_left(i));
            end();
        }
    } else {
        const auto offset_of = [&](int step) {
            return step < K ? step * row_bytes + lane_in_group * 16 : offset_among_left((step - K) * 4);
        };
        #pragma unroll 1
        for (int step = 0; step < STEPS / 2 * 2; step += 2) {
            begin();
            step_at(offset_of(step));
            step_at(offset_of(step + 1));
            end();
        }
        if (STEPS % 2) {
            begin();
            step_at(offset_of(STEPS - 1));
            end();
        }
    }
}

// The output in column 2 * i + e of a tile.
template <class Conv>
__device__ __forceinline__ int output_of(int group, int tile, int i, int e)
{
    return Conv::VECTOR_STORE ? (group * Conv::N_TILES_PER_WARP + tile / 2 * 2) * 8 + 4 * i + tile % 2 * 2 + e
                              : (group * Conv::N_TILES_PER_WARP + tile) * 8 + i + 4 * e;
}

// Undo the scales of a warp's outputs and hand them to the epilogue.
template <class Conv, class Epilogue>
__device__ __forceinline__ void store_outputs(
    Tiles<Conv>& sums, ThirdSums<Conv>& third_sums, const Epilogue& epilogue, const int* weight_exponents, int exponent,
    int image, int group, int outputs, int M, int group_id, int lane_in_group)
{
    #pragma unroll
    for (int rows = 0; rows < Conv::PARTS_PER_STEP; ++rows) {
        const int channel = rows * 8 + group_id;
        if (channel >= M) continue;
        const float unscale = power_of_two(exponent + weight_exponents[channel] - 2 * SCALE_EXPONENT);
        #pragma unroll
        for (int tile = 0; tile < Conv::N_TILES_PER_WARP; ++tile) {
            const int third = Conv::HAS_THIRD_M_TILE ? tile : 0;
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                float& sum = rows < 2 ? sums[tile][rows * 2 + e] : third_sums[third][e];
                sum *= unscale;
                const int output = output_of<Conv>(group, tile, lane_in_group, e);
                if (!Conv::VECTOR_STORE && output < outputs) epilogue.store(image, channel, output, sum);
            }
            if (Conv::VECTOR_STORE && tile % 2 && output_of<Conv>(group, tile, lane_in_group, 0) < outputs) {
                const float* left = rows < 2 ? &sums[tile - 1][rows * 2]
                                             : &third_sums[Conv::HAS_THIRD_M_TILE ? tile - 1 : 0][0];
                const float* right = rows < 2 ? &sums[tile][rows * 2] : &third_sums[third][0];
                epilogue.store(image, channel, output_of<Conv>(group, tile - 1, lane_in_group, 0),
                               make_float4(left[0], left[1], right[0], right[1]));
            }
        }
    }
}

// C > 1. A block takes one image after another. Shared memory holds the weights' fragments and then the image.
// What took as long or longer: the next image in registers or, by bar.sync, several images in one block (more spills
// than waits saved); the next step's operands fetched ahead; more tiles and fewer warps; each step's sum added outside.
template <class Conv, class Epilogue>
__device__ __forceinline__ void conv_multi_channel(
    const float* __restrict__ x, const uint4* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    const Epilogue epilogue, int N, int H, int W, int M)
{
    constexpr int C = Conv::C, K = Conv::K;
    constexpr int WEIGHT_FRAGMENTS = Conv::WEIGHT_FRAGMENTS;
    extern __shared__ uint4 shared[];
    __shared__ unsigned warp_max[32];
    uint4* const smem_weights = shared;
    uint4* const smem_image = shared + WEIGHT_FRAGMENTS;

    const int lane = threadIdx.x % 32;
    const int group_id = lane / 4;
    const int lane_in_group = lane % 4;
    const MultiChannelImage<Conv> shape(H, W);

    for (int i = threadIdx.x; i < WEIGHT_FRAGMENTS; i += blockDim.x) smem_weights[i] = weight_fragments[i];
    // What a row of the kernel reads beyond the last pixel meets weights of zero, but must be a number.
    for (int i = threadIdx.x; i < Conv::COPIES * shape.copy_stride; i += blockDim.x)
        smem_image[i] = make_uint4(0, 0, 0, 0);
    epilogue.begin();

    const int loads = shape.loads();
    typename Conv::Values values;
    for (int image = blockIdx.x; image < N; image += gridDim.x) {
        load_image<Conv>(values, x, image, shape, loads, opaque_thread_index());
        const int thread = opaque_thread_index();
        unsigned largest[Conv::LOADS_PER_THREAD];
        unsigned largest_of_all = max_magnitudes<Conv>(largest, values);
        // Its barrier also keeps the image before from being overwritten while it is read.
        largest_of_all = block_max(largest_of_all, warp_max);
        const ImageScale image_scale = scale_of_image(largest_of_all);
        const int exponent = image_scale.exponent;
        bool out_of_range = largest_of_all >= INFINITY_BITS
                            || scale_out_of_range(exponent, weight_exponents, M);
        split_image<Conv>(smem_image, values, largest, shape, loads, thread, image_scale, out_of_range);
        if (image + gridDim.x < N)
            prefetch_l2(x + (size_t)(image + gridDim.x) * C * H * W, C * H * W, threadIdx.x, blockDim.x);
        // The image is complete before anyone reads it.
        if (__syncthreads_or(out_of_range)) {
            const bool not_multiplied =
                largest_of_all >= INFINITY_BITS
                || __syncthreads_or(scale_out_of_range(exponent, weight_exponents, M));
            epilogue.fall_back(not_multiplied ? OUT_OF_RANGE : exponent, x, image, C, H, W, K);
            if (not_multiplied) {
                epilogue.end(image);
                continue;
            }
        }

        for (int group = threadIdx.x / 32; group * Conv::N_TILES_PER_WARP * 8 < shape.outputs;
             group += blockDim.x / 32) {
            Windows<Conv> windows;
            #pragma unroll
            for (int tile = 0; tile < Conv::N_TILES_PER_WARP; ++tile) {
                const int output = min(output_of<Conv>(group, tile, group_id / 2, group_id % 2), shape.outputs - 1);
                windows[tile] = (const char*)(smem_image + shape.first_fragment(output));
            }
            Tiles<Conv> sums = {};
            ThirdSums<Conv> third_sums = {};
            Tiles<Conv> products;
            ThirdTiles<Conv> third_products;
            mma_windows<Conv>(sums, third_sums, products, third_products, smem_weights + lane, windows,
                              shape.row_bytes(), lane_in_group);
            store_outputs<Conv>(sums, third_sums, epilogue, weight_exponents, exponent, image, group, shape.outputs, M,
                                group_id, lane_in_group);
        }
        epilogue.end(image);
    }
}

// Loads that each of `threads` threads needs for an image.
__host__ __device__ constexpr int loads_per_thread(int loads, int threads) { return (loads + threads - 1) / threads; }

using Conv12 = MultiChannelConv<12, 7, true, MULTI_12_N_TILES, MULTI_12_ILP, false,
                                loads_per_thread(33 * 33 * 3, MULTI_12_THREADS)>;
using Conv6 = MultiChannelConv<6, 5, false, MULTI_6_N_TILES, MULTI_6_ILP, true,
                               loads_per_thread(30 * 30 / 2, MULTI_6_THREADS)>;
using Conv4 = MultiChannelConv<4, 7, false, MULTI_4_N_TILES, MULTI_4_ILP, true,
                               loads_per_thread(40 * 40, MULTI_4_THREADS)>;

// Where the launcher reads what it must know: output channels with those of zeros, bytes of their weights' fragments,
// and bytes of a block's shared memory.
template <class Conv>
__device__ void write_layout(int* layout, int H, int W)
{
    layout[0] = Conv::PARTS_PER_STEP * 8;
    layout[1] = Conv::WEIGHT_FRAGMENTS * 16;
    layout[2] = layout[1] + Conv::COPIES * MultiChannelImage<Conv>(H, W).copy_stride * 16;
}
extern "C" __global__ void multi_channel_layout(int* __restrict__ layout, int C, int H, int W)
{
    if (C == 12) write_layout<Conv12>(layout, H, W);
    if (C == 6) write_layout<Conv6>(layout, H, W);
    if (C == 4) write_layout<Conv4>(layout, H, W);
}

extern "C" __global__ void __launch_bounds__(MULTI_12_THREADS, MULTI_12_BLOCKS) conv_multi_channel_12_7_24(
    const float* __restrict__ x, const uint4* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int H, int W, int M)
{
    conv_multi_channel<Conv12>(
        x, weight_fragments, weight_exponents, StoreOutputs{y, fallback_list, M, (H - 6) * (W - 6)}, N, H, W, M);
}

extern "C" __global__ void __launch_bounds__(MULTI_6_THREADS, MULTI_6_BLOCKS) conv_multi_channel_6_5_16(
    const float* __restrict__ x, const uint4* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int H, int W, int M)
{
    conv_multi_channel<Conv6>(
        x, weight_fragments, weight_exponents, StoreOutputs{y, fallback_list, M, (H - 4) * (W - 4)}, N, H, W, M);
}

extern "C" __global__ void __launch_bounds__(MULTI_4_THREADS, MULTI_4_BLOCKS) conv_multi_channel_4_7_16(
    const float* __restrict__ x, const uint4* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int H, int W, int M)
{
    conv_multi_channel<Conv4>(
        x, weight_fragments, weight_exponents, StoreOutputs{y, fallback_list, M, (H - 6) * (W - 6)}, N, H, W, M);
}

// ---- Layers of one channel ----------------------------------------------------------------------

extern "C" __global__ void split_single_channel_weights(
    const float* __restrict__ w, uint2* __restrict__ weight_fragments, int* __restrict__ exponents,
    int* __restrict__ fallback_list, int M, int K)
{
    split_single_channel_weights_of(w, weight_fragments, exponents, fallback_list, (int)blockIdx.x < M, K);
}

// Fetch the fragments of A for a warp's tiles of runs.
template <class Conv>
__device__ __forceinline__ void load_run_tiles(
    typename Conv::RunFragments& hi, typename Conv::RunFragments& lo, const unsigned* smem_hi, const unsigned* smem_lo,
    const RunIndex<Conv::SHIFTS>& run_of, int runs, int lane_in_group)
{
    #pragma unroll
    for (int m = 0; m < Conv::M_TILES; ++m) {
        int place[2];
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int run = min(run_of(m, half), runs - 1);
            place[half] = run / Conv::RUNS_PER_ROW * (Conv::W / 2)
                          + run % Conv::RUNS_PER_ROW * (Conv::SHIFTS / 2) + lane_in_group;
        }
        load_run_fragments<Conv::K, Conv::W, true>(hi[m], lo[m], smem_hi, smem_lo, place);
    }
}

// Undo the scales of a tile of columns and store it: two runs in each tile of runs, `large` and `small` added up.
template <class Conv>
__device__ __forceinline__ void store_runs(
    float* result, int tile_offset, const typename Conv::Sums& large, const typename Conv::Sums& small, int n,
    float unscale, bool has_channel, int runs, const RunIndex<Conv::SHIFTS>& run_of)
{
    #pragma unroll
    for (int m = 0; m < Conv::M_TILES; ++m) {
        float sums[4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] = (large[m][n][i] + small[m][n][i]) * unscale;
        if (!has_channel) continue;
        float* const destination = result + tile_offset;
        if (Conv::SHIFTS == 2) {
            if (run_of(m, 0) < runs)
                *(float4*)(destination + run_of(m, 0) * 2) = make_float4(sums[0], sums[1], sums[2], sums[3]);
        } else {
            #pragma unroll
            for (int half = 0; half < 2; ++half)
                if (run_of(m, half) < runs)
                    *(float2*)(destination + run_of(m, half) * 4) = make_float2(sums[2 * half], sums[2 * half + 1]);
        }
    }
}

// C = 1. A block takes one image after another, the next waits in registers.
template <class Conv>
__device__ __forceinline__ void conv_single_channel(
    const float* __restrict__ x, const uint2* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int H, int M)
{
    constexpr int K = Conv::K, W = Conv::W, ILP = Conv::ILP, M_TILES = Conv::M_TILES;
    constexpr int SHIFTS = Conv::SHIFTS, CHANNELS_PER_TILE = Conv::CHANNELS_PER_TILE;
    extern __shared__ unsigned smem_hi[];
    __shared__ unsigned warp_max[32];
    const int pairs = H * W / 2;
    unsigned* const smem_lo = smem_hi + pairs;
    uint2* const smem_weights = (uint2*)(smem_lo + pairs);
    const int H_out = H - K + 1;
    const int outputs = H_out * Conv::W_OUT;
    const int runs = H_out * Conv::RUNS_PER_ROW;
    const int lane = threadIdx.x % 32;
    const int group_id = lane / 4;
    const int lane_in_group = lane % 4;
    const int lane_channel = lane_in_group * CHANNELS_PER_TILE / 4;  // of its sums in a tile of columns
    const int n_tiles = Conv::WEIGHTS_IN_REGISTERS ? Conv::N_TILES : single_channel_n_tiles(M, K);
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

    float2 values[Conv::LOADS_PER_THREAD];
    const auto load = [&](int image) {
        load_pairs(values, (const float2*)(x + (size_t)image * H * W), pairs, blockDim.x);
    };
    load(blockIdx.x);

    for (int image = blockIdx.x; image < N; image += gridDim.x) {
        // Its barrier also keeps the image before from being overwritten while it is read.
        const unsigned largest = block_max(max_magnitude(values), warp_max);
        const ImageScale image_scale = scale_of_image(largest);
        const int exponent = image_scale.exponent;
        const bool not_multiplied =
            largest >= INFINITY_BITS || scale_out_of_range_in_warp(exponent, weight_exponents, M);
        bool out_of_range = not_multiplied;
        split_pairs(values, smem_hi, smem_lo, pairs, blockDim.x, image_scale, out_of_range);
        if (image + gridDim.x < N) load(image + gridDim.x);
        // The image is complete before anyone reads it.
        if (__syncthreads_or(out_of_range) && threadIdx.x == 0)
            append_fallback(fallback_list, image, not_multiplied ? OUT_OF_RANGE : exponent);
        if (not_multiplied) continue;

        for (int group = threadIdx.x / 32; group * M_TILES * 16 < runs; group += blockDim.x / 32) {
            const RunIndex<SHIFTS> run_of = {group * M_TILES, group_id};
            typename Conv::RunFragments hi, lo;
            load_run_tiles<Conv>(hi, lo, smem_hi, smem_lo, run_of, runs, lane_in_group);
            float* const result = y + ((size_t)image * M + lane_channel) * outputs
                                  + (SHIFTS == 2 ? 0 : lane_in_group % 2 * 2);
            #pragma unroll 1
            for (int first = 0; first < n_tiles; first += ILP) {
                typename Conv::WeightFragments b;
                fetch_weight_fragments<Conv>(b, register_weights, smem_weights, first, lane);
                typename Conv::Sums large = {}, small = {};
                mma_runs<K, M_TILES, ILP, true>(large, small, hi, lo, b);
                #pragma unroll
                for (int n = 0; n < ILP; ++n) {
                    const int channel = (first + n) * CHANNELS_PER_TILE + lane_channel;
                    const int exponent_bits =
                        Conv::WEIGHTS_IN_REGISTERS ? register_exponent_bits[n] : weight_exponents[channel] << 23;
                    const float unscale = __int_as_float(exponent_bits + ((exponent - 2 * SCALE_EXPONENT + 127) << 23));
                    store_runs<Conv>(result, (first + n) * CHANNELS_PER_TILE * outputs, large, small, n, unscale,
                                     channel < M, runs, run_of);
                }
            }
        }
    }
}

using Single28 = SingleChannelConv<5, 28, 0, SINGLE_28_M_TILES, loads_per_thread(28 * 28 / 2, SINGLE_28_THREADS)>;
using Single48 = SingleChannelConv<5, 48, 3, 1, loads_per_thread(48 * 48 / 2, SINGLE_5_THREADS)>;
using Single64 = SingleChannelConv<5, 64, 3, 1, loads_per_thread(64 * 64 / 2, SINGLE_5_THREADS)>;
using Single72 = SingleChannelConv<7, 72, 3, 1, loads_per_thread(72 * 72 / 2, SINGLE_72_THREADS)>;
using Single86 = SingleChannelConv<7, 86, 1, SINGLE_86_M_TILES, loads_per_thread(86 * 86 / 2, SINGLE_86_THREADS)>;

extern "C" __global__ void __launch_bounds__(SINGLE_28_THREADS, SINGLE_28_BLOCKS) conv_single_channel_28_5(
    const float* __restrict__ x, const uint2* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int H, int M)
{
    conv_single_channel<Single28>(x, weight_fragments, weight_exponents, fallback_list, y, N, H, M);
}

extern "C" __global__ void __launch_bounds__(SINGLE_5_THREADS, SINGLE_5_BLOCKS) conv_single_channel_48_5(
    const float* __restrict__ x, const uint2* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int H, int M)
{
    conv_single_channel<Single48>(x, weight_fragments, weight_exponents, fallback_list, y, N, H, M);
}

extern "C" __global__ void __launch_bounds__(SINGLE_5_THREADS, SINGLE_5_BLOCKS) conv_single_channel_64_5(
    const float* __restrict__ x, const uint2* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int H, int M)
{
    conv_single_channel<Single64>(x, weight_fragments, weight_exponents, fallback_list, y, N, H, M);
}

extern "C" __global__ void __launch_bounds__(SINGLE_72_THREADS, SINGLE_72_BLOCKS) conv_single_channel_72_7(
    const float* __restrict__ x, const uint2* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int H, int M)
{
    conv_single_channel<Single72>(x, weight_fragments, weight_exponents, fallback_list, y, N, H, M);
}

extern "C" __global__ void __launch_bounds__(SINGLE_86_THREADS, SINGLE_86_BLOCKS) conv_single_channel_86_7(
    const float* __restrict__ x, const uint2* __restrict__ weight_fragments, const int* __restrict__ weight_exponents,
    int* __restrict__ fallback_list, float* __restrict__ y, int N, int H, int M)
{
    conv_single_channel<Single86>(x, weight_fragments, weight_exponents, fallback_list, y, N, H, M);
}

// ---- Every other layer --------------------------------------------------------------------------

// x (N, C, H, W), w (M, C, K, K), y (N, M, H-K+1, W-K+1); float32, row-major.
extern "C" __global__ void conv_forward(
    const float* __restrict__ x, const float* __restrict__ w,
    float* __restrict__ y, int N, int C, int H, int W, int M, int K)
{
    const int H_out = H - K + 1;
    const int W_out = W - K + 1;
    const int tiles_across = (W_out + TILE - 1) / TILE;
    const int column = (blockIdx.x % tiles_across) * TILE + threadIdx.x;
    const int row = (blockIdx.x / tiles_across) * TILE + threadIdx.y;
    const int channel = blockIdx.y;
    const int image = blockIdx.z;
    if (row >= H_out || column >= W_out) return;

    float sum = 0.0f;
    for (int c = 0; c < C; ++c) {
        const float* input = x + (((size_t)image * C + c) * H + row) * W + column;
        const float* weights = w + ((size_t)channel * C + c) * K * K;
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q)
                sum += input[p * W + q] * weights[p * K + q];
    }
    y[(((size_t)image * M + channel) * H_out + row) * W_out + column] = sum;
}
