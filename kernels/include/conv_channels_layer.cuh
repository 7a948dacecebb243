// A layer of several channels, how its work is divided, and where what is in shared memory.

#pragma once

// How lanes fetch pixels: see conv_channels_fetch.cuh.
enum FetchKind { PAIRS_OF_4_CHANNELS, PAIRS_OF_6_CHANNELS, ANY_COLUMNS };

// A layer, and how its work and a block's shared memory are divided. Outputs are in bands of ROWS_ rows; a tile is 64
// columns of the bands side by side, each of them ROWS_ outputs in every channel. GROUPS_ warpgroups multiply one tile
// after another, and one more splits the images for them. POOL_: results are the largest of each POOL_ x POOL_ outputs,
// at least 0, windows cut at the end; or 0, the outputs themselves.
template <int C_, int H_, int K_, int M_, int ROWS_, int GROUPS_, int POOL_ = 0>
struct Layer {
    static constexpr int C = C_, H = H_, W = H_, K = K_, M = M_, ROWS = ROWS_, GROUPS = GROUPS_, POOL = POOL_;
    static constexpr int H_OUT = H - K + 1, W_OUT = W - K + 1;
    static constexpr int THREADS = 128 * (GROUPS + 1);
    static constexpr int BANDS = (H_OUT + ROWS - 1) / ROWS;
    static constexpr int COLUMNS = BANDS * W_OUT;
    static constexpr int TILES = (COLUMNS + 63) / 64;
    static constexpr int ROWS_FETCHED = ROWS + K - 1;  // rows of pixels that a band's outputs need
    static constexpr int LOADS_PER_THREAD = (H * W + 127) / 128;  // of pixels, in the warpgroup that splits

    // Where rows of outputs are whole pairs of neighbours, a lane computes such a pair, whose pixels overlap.
    static constexpr bool PAIRS = W_OUT % 2 == 0;
    static constexpr FetchKind FETCH_KIND = !PAIRS ? ANY_COLUMNS : C == 4 ? PAIRS_OF_4_CHANNELS : PAIRS_OF_6_CHANNELS;
    // Steps of 16 values in a row of the kernel. Without pairs, what is left over of a row is TAIL_FETCHES times 4
    // values; 4 of these, of one row after another, are a step of the tail.
    static constexpr int STEPS = PAIRS ? (K * C + 15) / 16 : K * C / 16;
    static constexpr int TAIL_FETCHES = PAIRS ? 0 : K * C / 4 % 4;
    static constexpr int TAIL_STEPS = (ROWS_FETCHED * TAIL_FETCHES + 3) / 4;
    static constexpr int ALL_STEPS = ROWS_FETCHED * STEPS + TAIL_STEPS;  // of a tile

    // Weights are in blocks, of 16 values of all channels: those that a row of pixels meets, and those of the tail.
    static constexpr int ROW_BLOCKS = STEPS * (K + 1) + 1;
    static constexpr int WEIGHT_BLOCKS = ROW_BLOCKS + TAIL_STEPS * ROWS;
    static constexpr int WEIGHT_BYTES = 2 * WEIGHT_BLOCKS * M * 32;

    // A pixel is a word for each channel in shared memory: two channels' hi parts, or their lo parts. After a band's
    // rows follow as many pixels as put the first column of the next band into the banks of one column more.
    static constexpr bool EVEN_COLUMNS_FIRST = FETCH_KIND == PAIRS_OF_4_CHANNELS;
    static constexpr int BANK_PERIOD = C % 4 ? 16 : 8;
    static constexpr int NEXT_COLUMN = EVEN_COLUMNS_FIRST ? W_OUT / 2 : W_OUT;
    static constexpr int SKEW = ((NEXT_COLUMN - ROWS * W) % BANK_PERIOD + BANK_PERIOD) % BANK_PERIOD;
    static constexpr int BAND_WORDS = (ROWS * W + SKEW) * C;

    // Shared memory: the weights and the zeros between them; two slots, each for an image up to the zeros after its
    // last row and, where there is room, for its results, which then leave in one copy; and the barriers.
    static constexpr int TAIL_ROWS = TAIL_STEPS ? (TAIL_STEPS * 4 - 1) / TAIL_FETCHES + 1 - ROWS_FETCHED : 0;
    static constexpr int LAST_ROW = BANDS * ROWS + K - 2 + TAIL_ROWS;  // of pixels
    static constexpr int IMAGE_WORDS = (((LAST_ROW + 1) * W + LAST_ROW / ROWS * SKEW + 2) * C + 7) / 8 * 8;
    static constexpr int IMAGE_FLOATS = C * H * W;
    static constexpr int WINDOWS_PER_ROW = POOL ? (W_OUT + POOL - 1) / POOL : 0;
    static constexpr int WINDOWS = BANDS * WINDOWS_PER_ROW;  // of a channel
    static constexpr int RESULT_FLOATS = M * (POOL ? WINDOWS : H_OUT * W_OUT);
    static constexpr bool RESULTS_IN_SMEM = PAIRS;
    static constexpr int SLOT_WORDS = IMAGE_WORDS + (RESULTS_IN_SMEM ? RESULT_FLOATS : 0);
    static constexpr int BARRIERS = 4;
    static constexpr int SHARED_BYTES = WEIGHT_BYTES + 2 * SLOT_WORDS * 4 + BARRIERS * 8;

    static_assert(FETCH_KIND != PAIRS_OF_4_CHANNELS || (K == 7 && W % 2 == 0), "8 taps of 4 channels are two steps");
    static_assert(FETCH_KIND != PAIRS_OF_6_CHANNELS || (C == 6 && K == 5), "lanes take 4 taps, or the fifth");
    static_assert(PAIRS || (C % 4 == 0 && ROWS == 4), "a lane fetches 4 channels; 4 rows have whole steps of the tail");
    static_assert(M % 8 == 0 && ROWS % 2 == 0, "output channels in eights, rows of outputs in pairs");
    static_assert(!POOL || (POOL == ROWS && PAIRS), "a band is a row of windows, a pair lies in one");
    static_assert(RESULT_FLOATS % 4 == 0 || !RESULTS_IN_SMEM, "one copy, of whole 16 bytes");
    static_assert(LAST_ROW >= H - 1, "every row of the image in its place");
    static_assert(SHARED_BYTES <= 232448, "what a block can have of an SM's shared memory");
};

// Where a row of an image is in shared memory, in words.
template <class L> __device__ constexpr int row_of(int row)
{
    return (row * L::W + row / L::ROWS * L::SKEW) * L::C;
}

// Where a pixel of a row is, in words.
template <class L> __device__ constexpr int column_of(int column)
{
    return (L::EVEN_COLUMNS_FIRST ? column / 2 + column % 2 * (L::W / 2) : column) * L::C;
}

// Where the pixels that an output needs begin, in words. Columns of all bands are counted on.
template <class L> __device__ __forceinline__ int window_of(int column)
{
    return column / L::W_OUT * L::BAND_WORDS + column_of<L>(column % L::W_OUT);
}
