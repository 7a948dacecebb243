"""
title:     Triton, FP32 as hi and lo TF32 parts
idea:      The kernel of triton_tiled with `input_precision="tf32x3"`. Triton splits each value into two TF32 parts and
           multiplies hi * hi, hi * lo and lo * hi on the tensor cores, on Hopper by wgmma. It leaves lo * lo out.
expect:    The tensor cores do 7 times the multiply-adds of the FP32 pipes in TF32, and three products make one. A
           factor of 2 is left, and splitting B takes a part of it. wgmma reads B from shared memory, so each step
           splits B's tile there, between barriers. A block of 128 x 64 values has 8 warps and 150 registers a thread,
           so a multiprocessor holds one block, and none computes while it waits. At least a fifth faster than FP32,
           and slower than fp16x3_wgmma, whose parts are split once.
builds_on: triton_tiled
split:     {precision: tf32, products: 3}
requires:  triton
least_arch: sm_80
limits:    {m: 1048576, n: 1048576, k: {at_least: 16}}    # a sum of few products shows that lo * lo is left out
reference: https://arxiv.org/abs/2203.03341
claims:
  - says:     At least a fifth faster than FP32
    quantity: gpu_time
    change:   falls
    by:       20 %
    where:    {n: {at_least: 4096}}
  - says:     slower than fp16x3_wgmma
    quantity: gpu_time
    change:   rises
    against:  fp16x3_wgmma
    where:    {n: {at_least: 4096}}
"""

import triton_gemm

CONSTANTS = {"TILE_M": 128, "TILE_N": 64, "TILE_K": 32, "PRECISION": "tf32x3"}
OPTIONS = {"num_warps": 8, "num_stages": 3}


def prepare(case, size):
    return triton_gemm.prepare(case, CONSTANTS, **OPTIONS)


def compiled(arch):
    return triton_gemm.compiled(arch, CONSTANTS, **OPTIONS)
