// Kernels of every product of FP32 matrices from hi and lo FP16 parts: the one that splits A, the one before B is split, and
// the last one. TILE_M is the rows of a block's tile of C, COLUMN_ROWS the rows of B that a block looks at, SPLIT_THREADS the
// threads of a block that splits A.

#pragma once
#include "gemm_fp16_parts.cuh"

extern "C" __global__ void __launch_bounds__(SPLIT_THREADS) split_a(
    const float* __restrict__ a, uint4* __restrict__ fragments, unsigned* row_largest, int* row_is_marked,
    unsigned* column_largest, int* column_is_marked, int m, int n, int k, int steps)
{
    split_rows_of_a(
        a, fragments, {row_largest, row_is_marked}, {column_largest, column_is_marked}, TILE_M, m, n, k, steps);
}

extern "C" __global__ void __launch_bounds__(256) largest_of_columns(
    const float* __restrict__ b, unsigned* column_largest, int n, int k)
{
    find_largest_of_columns(b, {column_largest, nullptr}, n, k, COLUMN_ROWS);
}

extern "C" __global__ void __launch_bounds__(256) fp32_fallback(
    const float* __restrict__ a, const float* __restrict__ b, const int* __restrict__ row_is_marked,
    const int* __restrict__ column_is_marked, float* __restrict__ c, int m, int n, int k)
{
    compute_marked(a, b, row_is_marked, column_is_marked, c, m, n, k);
}
