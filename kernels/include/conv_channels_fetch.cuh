// How a lane fetches the pixels that it multiplies, and the order of weights that meets it.
//
// A lane has two columns of outputs: rows group_id and group_id + 8 of wgmma's A. Of each step of 16 values it takes
// four, two words of two channels for each row: values 2 * lane_in_group and the next, and 8 further. Which pixels and
// channels these are is free, as long as the weights are in the same order. So they are chosen to be fetched by few
// wide loads and without bank conflicts. Of a pair of neighbouring columns, the right one's tap q is the left one's tap
// q + 1: half of the pixels or more serve both.

#pragma once

#include "conv_channels_layer.cuh"
#include "fp16_split.cuh"

// Pixels of three steps: one is multiplied, one waits, one is being fetched.
struct Fragments {
    unsigned hi[3][4], lo[3][4];
};

// Which weight a value of a step meets: tap q of a row of the kernel, and its channel. q is K or more where that is
// none.
struct Tap {
    int q, channel;
};

// 0, which the compiler cannot know. `value | zero` is a copy that ptxas does not remove: it would let two wgmma share
// a register of A, and make them wait for each other.
__device__ __forceinline__ unsigned runtime_zero() { return blockDim.y - 1; }

// For each kind: `tap` says what a lane takes as value i of a step, `column` which of a warp's 16 columns is the first
// of a lane's two. `set` takes a tile's image and that column; `fetch` a step.
template <class L, FetchKind = L::FETCH_KIND> struct Fetch;

// A pair of columns, at `from` the left, of 4 channels: a lane takes taps 2 * lane_in_group and the next, one in each
// step. Loads are of 16 bytes, a pixel. Its taps lie two columns apart from the next lane's: in shared memory they are
// neighbours.
template <class L> struct Fetch<L, PAIRS_OF_4_CHANNELS> {
    const unsigned* from;
    unsigned zero;

    static __device__ __forceinline__ Tap tap(int step, int i) { return {i / 2 % 4 * 2 + step, i / 8 * 2 + i % 2}; }

    static __device__ __forceinline__ int column(int group_id) { return group_id % 2 * 8 + group_id / 2 * 2; }

    __device__ __forceinline__ explicit Fetch(int) : zero(runtime_zero()) {}

    __device__ __forceinline__ void set(const unsigned* image, int column, int lane_in_group)
    {
        from = image + window_of<L>(min(column, L::COLUMNS - 2)) + lane_in_group * 4;
    }

    template <int STEP> __device__ __forceinline__ void fetch(Fragments& fragments) const
    {
        constexpr int row = row_of<L>(STEP / 2);
        unsigned(&hi)[4] = fragments.hi[STEP % 3], (&lo)[4] = fragments.lo[STEP % 3];
        if constexpr (STEP % 2 == 0) {
            const uint4 left = *(const uint4*)(from + row), right = *(const uint4*)(from + row + column_of<L>(1));
            hi[0] = left.x, hi[1] = right.x, hi[2] = left.y, hi[3] = right.y;
            lo[0] = left.z, lo[1] = right.z, lo[2] = left.w, lo[3] = right.w;
        } else {
            const unsigned(&hi_before)[4] = fragments.hi[(STEP - 1) % 3];
            const unsigned(&lo_before)[4] = fragments.lo[(STEP - 1) % 3];
            const uint4 right = *(const uint4*)(from + row + column_of<L>(2));
            hi[0] = hi_before[1] | zero, hi[1] = right.x, hi[2] = hi_before[3] | zero, hi[3] = right.y;
            lo[0] = lo_before[1] | zero, lo[1] = right.z, lo[2] = lo_before[3] | zero, lo[3] = right.w;
        }
    }
};

// A pair of columns of 6 channels, 5 taps. Lanes 0 to 2 take two channels of taps 0 to 3, one tap after another, by
// loads of 8 bytes. Lane 3 takes tap 4: channels 4 and 5, nothing, channels 2 and 3, channels 0 and 1.
template <class L> struct Fetch<L, PAIRS_OF_6_CHANNELS> {
    const unsigned *from, *from_2, *from_4;  // of loads 0 and 1, 2 and 3, and 4
    bool takes_last_tap;
    unsigned zero;

    static __device__ __forceinline__ Tap tap(int step, int i)
    {
        const int lane_in_group = i / 2 % 4, turn = 2 * step + i / 8;
        if (lane_in_group < 3) return {turn, 2 * lane_in_group + i % 2};
        return {turn == 1 ? L::K : 4, (turn ? 3 - turn : 2) * 2 + i % 2};
    }

    static __device__ __forceinline__ int column(int group_id) { return group_id % 4 * 4 + group_id / 4 * 2; }

    __device__ __forceinline__ explicit Fetch(int lane_in_group)
        : takes_last_tap(lane_in_group == 3), zero(runtime_zero()) {}

    __device__ __forceinline__ void set(const unsigned* image, int column, int lane_in_group)
    {
        const unsigned* const window = image + window_of<L>(min(column, L::COLUMNS - 2));
        const unsigned* const last_tap = window + column_of<L>(4);
        from = takes_last_tap ? last_tap + 4 : window + lane_in_group * 2;
        from_2 = takes_last_tap ? last_tap + 2 - column_of<L>(2) : from;
        from_4 = takes_last_tap ? last_tap + column_of<L>(1) - column_of<L>(4) : from;
    }

    template <int STEP> __device__ __forceinline__ void fetch(Fragments& fragments) const
    {
        constexpr int row = row_of<L>(STEP / 2);
        unsigned(&hi)[4] = fragments.hi[STEP % 3], (&lo)[4] = fragments.lo[STEP % 3];
        if constexpr (STEP % 2 == 0) {
            const uint2 first = load(from, row, 0), second = load(from, row, 1), third = load(from_2, row, 2);
            hi[0] = first.x, hi[1] = second.x, hi[2] = second.x | zero, hi[3] = third.x;
            lo[0] = first.y, lo[1] = second.y, lo[2] = second.y | zero, lo[3] = third.y;
        } else {
            const unsigned third_hi = fragments.hi[(STEP - 1) % 3][3], third_lo = fragments.lo[(STEP - 1) % 3][3];
            const uint2 fourth = load(from_2, row, 3), fifth = load(from_4, row, 4);
            hi[0] = third_hi | zero, hi[1] = fourth.x, hi[2] = fourth.x | zero, hi[3] = fifth.x;
            lo[0] = third_lo | zero, lo[1] = fourth.y, lo[2] = fourth.y | zero, lo[3] = fifth.y;
            if (takes_last_tap) {
                const uint2 left = load(from_4, row, 3);  // a pixel before the fifth
                hi[2] = left.x, lo[2] = left.y;
            }
        }
    }

    static __device__ __forceinline__ uint2 load(const unsigned* from, int row, int column)
    {
        return *(const uint2*)(from + row + column_of<L>(column));
    }
};

// Any two columns; 4 channels by a load of 16 bytes. `tail`: where the fetches of the tail's steps are, which repeat
// every ROWS rows.
template <class L> struct Fetch<L, ANY_COLUMNS> {
    const unsigned *first, *second;
    int tail[L::TAIL_FETCHES];

    static __device__ __forceinline__ Tap tap(int step, int i)
    {
        const int value = step * 16 + i / 2 % 4 * 4 + i / 8 * 2 + i % 2;
        return {value / L::C, value % L::C};
    }

    static __device__ __forceinline__ int column(int group_id) { return group_id % 4 * 4 + group_id / 4; }

    __device__ __forceinline__ explicit Fetch(int lane_in_group)
    {
        #pragma unroll
        for (int step = 0; step < L::TAIL_FETCHES; ++step) {
            const int fetch = step * 4 + lane_in_group;
            const int value = L::STEPS * 16 + fetch % L::TAIL_FETCHES * 4;
            tail[step] = row_of<L>(fetch / L::TAIL_FETCHES) + value - lane_in_group * 4;
        }
    }

    __device__ __forceinline__ void set(const unsigned* image, int column, int lane_in_group)
    {
        first = image + window_of<L>(min(column, L::COLUMNS - 1)) + lane_in_group * 4;
        second = image + window_of<L>(min(column + 2, L::COLUMNS - 1)) + lane_in_group * 4;
    }

    template <int STEP> __device__ __forceinline__ void fetch(Fragments& fragments) const
    {
        constexpr int tail_step = STEP - L::ROWS_FETCHED * L::STEPS;
        int offset = row_of<L>(STEP / L::STEPS) + STEP % L::STEPS * 16;
        if constexpr (tail_step >= 0)
            offset = tail[tail_step % L::TAIL_FETCHES] + tail_step / L::TAIL_FETCHES * L::BAND_WORDS;
        unsigned(&hi)[4] = fragments.hi[STEP % 3], (&lo)[4] = fragments.lo[STEP % 3];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint4 words = *(const uint4*)((i ? second : first) + offset);
            hi[i] = words.x, hi[i + 2] = words.y, lo[i] = words.z, lo[i + 2] = words.w;
        }
    }
};

// Splits the weights of one output channel a block into the order of wgmma's B: 8 channels x 8 values are 128 bytes,
// the next 8 values follow, then the next 8 channels. That is a block of weights. All lo parts stand after all hi
// parts.
//
// The first 16 values of the kernel's last row are followed by those of the row above, then by the next 16 values of a
// row. A row of zeros stands before the last row and after the first. In the tail, a step has a block for each row of a
// band's outputs: of the row of the kernel that meets a row of pixels there, or zeros.
template <class L>
__device__ __forceinline__ void split_channel_weights(
    const float* __restrict__ w, __half* __restrict__ weight_parts, int* __restrict__ exponents)
{
    constexpr int COUNT = L::C * L::K * L::K;
    const int channel = blockIdx.x;
    const float* weights = w + (size_t)channel * COUNT;
    const float2 scale = weight_scale(weights, COUNT, true, channel, exponents);

    for (int i = threadIdx.x; i < L::WEIGHT_BLOCKS * 16; i += blockDim.x) {
        const int block = i / 16;
        int p = L::K - block % (L::K + 1);
        Tap tap = Fetch<L>::tap(block / (L::K + 1), i % 16);
        if constexpr (L::TAIL_FETCHES > 0) {
            if (block >= L::ROW_BLOCKS) {
                const int fetch = (block - L::ROW_BLOCKS) / L::ROWS * 4 + i / 2 % 4;
                const int value = L::STEPS * 16 + fetch % L::TAIL_FETCHES * 4 + i % 16 / 8 * 2 + i % 2;
                p = fetch / L::TAIL_FETCHES - (block - L::ROW_BLOCKS) % L::ROWS;
                tap = {value / L::C, value % L::C};
            }
        }
        const bool meets = p >= 0 && p < L::K && tap.q < L::K;
        const float weight = meets ? weights[(tap.channel * L::K + p) * L::K + tap.q] : 0.0f;
        const uint2 parts = split(weight * scale.x * scale.y, 0.0f);
        __half* const hi =
            weight_parts + ((block * L::M / 8 + channel / 8) * 2 + i % 16 / 8) * 64 + channel % 8 * 8 + i % 8;
        hi[0] = __ushort_as_half(parts.x);
        hi[L::WEIGHT_BLOCKS * 16 * L::M] = __ushort_as_half(parts.y);
    }
}
