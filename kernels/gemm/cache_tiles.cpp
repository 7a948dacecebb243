/*
title:     Tiles for the caches, on all cores
idea:      A thread copies a tile of B, 256 x 256 values, in the order in which they are read, and multiplies it with
           rows of A, 6 at a time. Its 96 sums stay in registers through the tile. AVX-512, AVX2 or what every
           processor has is found at run time.
expect:    Three loops load and store a row of C for each multiply-add. Here 22 values loaded serve 96 multiply-adds,
           so that at least ten times as fast on one core with AVX2, and more by the number of cores. Half of NumPy's
           BLAS or more, which keeps more sums with AVX-512 and prefetches.
builds_on: loop_nest
reference: https://www.cs.utexas.edu/~flame/pubs/GotoTOMS_revision.pdf
limits:    {m: 4096, n: 4096, k: 4096}
claims:
  - says:     at least ten times as fast
    quantity: op_time
    change:   falls
    by:       90 %
    where:    {n: {at_least: 256}}
*/

#include <algorithm>
#include <cstring>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

namespace {

constexpr int ROWS = 6, LANES = 16;                            // of the sums in registers
constexpr int TILE_M = 16 * ROWS, TILE_N = 256, TILE_K = 256;  // of a thread
typedef float Vector __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));

// Adds the products of ROWS rows of A and a panel of B, LANES columns wide, to `sums`.
FOR_EACH_PROCESSOR void multiply_panel(const float* const* rows, const float* panel, int steps, float* sums)
{
    Vector registers[ROWS];
    std::memcpy(registers, sums, sizeof registers);
    for (int i = 0; i < steps; ++i) {
        const Vector values = *(const Vector*)(panel + i * LANES);
        for (int r = 0; r < ROWS; ++r) registers[r] += rows[r][i] * values;
    }
    std::memcpy(sums, registers, sizeof registers);
}

// Copies a tile of B panel by panel, zeros in columns beyond the last.
void pack(float* packed, const float* b, int n, int steps, int columns)
{
    for (int left = 0; left < columns; left += LANES)
        for (int i = 0; i < steps; ++i)
            for (int lane = 0; lane < LANES; ++lane)
                *packed++ = left + lane < columns ? b[(long)i * n + left + lane] : 0.0f;
}

// Adds the product of some rows of A and a packed tile of B to C, or starts C with it. Rows beyond the last are the
// last again and are not stored.
void multiply_tile(
    const float* a, const float* packed, float* c, int n, int k, int count, int columns, int steps, bool is_first)
{
    for (int top = 0; top < count; top += ROWS) {
        const float* rows[ROWS];
        for (int r = 0; r < ROWS; ++r) rows[r] = a + (long)std::min(top + r, count - 1) * k;
        const int rows_here = std::min(ROWS, count - top);
        for (int left = 0; left < columns; left += LANES) {
            const int columns_here = std::min(LANES, columns - left);
            float sums[ROWS * LANES] = {};
            if (!is_first)
                for (int r = 0; r < rows_here; ++r)
                    std::copy_n(c + (long)(top + r) * n + left, columns_here, sums + r * LANES);
            multiply_panel(rows, packed + left * steps, steps, sums);
            for (int r = 0; r < rows_here; ++r)
                std::copy_n(sums + r * LANES, columns_here, c + (long)(top + r) * n + left);
        }
    }
}

}  // namespace

// a (m, k), b (k, n), c (m, n); float32, row-major.
extern "C" void gemm(const float* a, const float* b, float* c, int m, int n, int k)
{
    #pragma omp parallel
    {
        std::vector<float> packed(TILE_K * TILE_N);
        #pragma omp for collapse(2) schedule(dynamic)
        for (int top = 0; top < m; top += TILE_M)
            for (int left = 0; left < n; left += TILE_N)
                for (int begin = 0; begin < k; begin += TILE_K) {
                    const int columns = std::min(TILE_N, n - left), steps = std::min(TILE_K, k - begin);
                    pack(packed.data(), b + (long)begin * n + left, n, steps, columns);
                    multiply_tile(a + (long)top * k + begin, packed.data(), c + (long)top * n + left, n, k,
                                  std::min(TILE_M, m - top), columns, steps, begin == 0);
                }
    }
}
