"""What launchers share whose kernels multiply FP32 matrices as hi and lo FP16 parts (kernels/include/gemm_fp16_split.cuh)."""

from typing import Any

import numpy as np
from fp16x3_launch import int32

from warpbook.kernels.variants import Operation


def split_and_multiply(kernels: Any, case: Any, threads: int, split_b: tuple[int, int]) -> Operation:
    """A call on a, b and c that splits A and B into scratch memory, multiplies the parts with so many threads a block, and
    computes in FP32 what does not fit them. `split_b`: the columns and steps along k that a block of that kernel splits."""
    import cupy

    m, n, k = case.m, case.n, case.k
    TILE_M, TILE_N, STEPS = (kernels.constants[name] for name in ("TILE_M", "TILE_N", "STEPS"))
    tiles_m, tiles_n, steps = -(-m // TILE_M), -(-n // TILE_N), -(-k // (16 * STEPS)) * STEPS
    layout = kernels.empty((1,), np.int32)
    kernels.function("shared_layout")((1,), (1,), (layout,))

    split_a, largest_of_columns = kernels.function("split_a"), kernels.function("largest_of_columns")
    split_columns, fp32_fallback = kernels.function("split_b"), kernels.function("fp32_fallback")
    gemm = kernels.function("gemm", shared_bytes=int(layout[0]))
    a_parts = kernels.empty((tiles_m * TILE_M, steps * 16), np.uint32)
    b_parts = kernels.empty((tiles_n * TILE_N, steps * 16), np.uint32)
    row_largest, row_is_marked = kernels.empty((m,), np.uint32), kernels.empty((m,), np.int32)
    column_largest, column_is_marked = kernels.empty((n,), np.uint32), kernels.empty((n,), np.int32)
    split_threads = (kernels.constants["SPLIT_THREADS"],)
    column_grid = (-(-n // 256), -(-k // kernels.constants["COLUMN_ROWS"]))
    b_grid = (tiles_n * TILE_N // split_b[0], -(-steps // split_b[1]))
    fallback_grid = (min(max(m, n), 4 * cupy.cuda.Device().attributes["MultiProcessorCount"]),)

    def call(a: Any, b: Any, c: Any) -> None:
        ranges = row_largest, row_is_marked, column_largest, column_is_marked
        split_a((tiles_m * TILE_M // 16,), split_threads, (a, a_parts, *ranges, *int32(m, n, k, steps)))
        largest_of_columns(column_grid, (256,), (b, column_largest, *int32(n, k)))
        split_columns(b_grid, (256,), (b, b_parts, column_largest, column_is_marked, *int32(n, k, steps)))
        gemm((tiles_n, tiles_m), (threads,), (a_parts, b_parts, row_largest, column_largest, c, *int32(m, n, steps)))
        fp32_fallback(fallback_grid, (256,), (a, b, row_is_marked, column_is_marked, c, *int32(m, n, k)))

    return call
