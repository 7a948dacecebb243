"""
title:     cuTile, FP32 as hi and lo TF32 parts
idea:      The tile of C in cuTile. A block splits the values of its tiles of A and B into two TF32 parts each. It multiplies
           hi * hi, hi * lo and lo * hi on the tensor cores, and leaves lo * lo out. Two sums keep the small products apart
           from the large ones.
expect:    In FP32 the compiler multiplies and adds apart, so that the FP32 pipes reach half their peak. From TF32 parts it
           makes wgmma, and from loads copies by the TMA. As in triton_tf32x3, each step splits its tiles behind barriers.
           So within 30 % of triton_tf32x3, and slower than fp16x3_wgmma, whose parts are split once.
builds_on: triton_tf32x3
split:     {precision: tf32, products: 3}
requires:  cuda.tile
least_arch: sm_80
limits:    {m: {at_least: 2}, n: {at_least: 2}, k: {at_least: 16}}    # of an axis of one, cuTile 1.7 stores values behind
reference: https://docs.nvidia.com/cuda/cutile-python/
claims:
  - says:     within 30 % of triton_tf32x3
    quantity: gpu_time
    change:   stays
    by:       30 %
    where:    {n: {at_least: 4096}}
  - says:     slower than fp16x3_wgmma
    quantity: gpu_time
    change:   rises
    against:  fp16x3_wgmma
    where:    {n: {at_least: 4096}}
"""

import cuda.tile as ct
import cutile_kernels

TILE_M, TILE_N, TILE_K = 128, 64, 32


def split(tile):
    """hi and lo TF32 parts."""
    hi = ct.astype(tile, ct.tfloat32)
    return hi, ct.astype(tile - ct.astype(hi, ct.float32), ct.tfloat32)


@ct.kernel
def gemm(a, b, c, TILE_M: ct.Constant[int], TILE_N: ct.Constant[int], TILE_K: ct.Constant[int]):
    column, row = ct.bid(0), ct.bid(1)
    large = ct.zeros((TILE_M, TILE_N), ct.float32)
    small = ct.zeros((TILE_M, TILE_N), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(TILE_M, TILE_K))):
        a_hi, a_lo = split(ct.load(a, (row, step), (TILE_M, TILE_K), padding_mode=ct.PaddingMode.ZERO))
        b_hi, b_lo = split(ct.load(b, (step, column), (TILE_K, TILE_N), padding_mode=ct.PaddingMode.ZERO))
        small = ct.mma(a_lo, b_hi, small)
        small = ct.mma(a_hi, b_lo, small)
        large = ct.mma(a_hi, b_hi, large)
    ct.store(c, (row, column), large + small)


def prepare(case, size):
    return cutile_kernels.load(gemm, (-(-case.n // TILE_N), -(-case.m // TILE_M)), TILE_M, TILE_N, TILE_K)
