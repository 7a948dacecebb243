"""
title:     Triton, FP32
idea:      The tile of C in Triton. The source says what a block computes. The compiler chooses which thread has which
           values, their places in shared memory, and the pipeline of copies. With `input_precision="ieee"` it
           multiplies in FP32. Blocks go down 8 tiles before they go on to the right, so that the L2 cache serves them.
expect:    A thread has 8 x 4 sums and 96 registers, so that 5 blocks of 64 x 64 values and 4 warps are on a
           multiprocessor at a time. Twice as many as of 64 x 128 values hide what each waits for, and small products
           have blocks for all multiprocessors. Within 15 % of wide_thread_tile, which is written for this by hand, at
           60 % of the FP32 peak or more.
builds_on: wide_thread_tile
requires:  triton
least_arch: sm_80
limits:    {m: 1048576, n: 1048576}
reference: https://triton-lang.org/main/getting-started/tutorials/03-matrix-multiplication.html
claims:
  - says:     Within 15 % of wide_thread_tile
    quantity: gpu_time
    change:   stays
    by:       15 %
    where:    {n: {at_least: 4096}}
  - says:     at 60 % of the FP32 peak or more
    quantity: fp32_peak_share
    value:    {at_least: 60 %}
    where:    {n: {at_least: 4096}}
"""

import triton_gemm

CONSTANTS = {"TILE_M": 64, "TILE_N": 64, "TILE_K": 16, "PRECISION": "ieee"}
OPTIONS = {"num_warps": 4, "num_stages": 3}


def prepare(case, size):
    return triton_gemm.prepare(case, CONSTANTS, **OPTIONS)


def compiled(arch):
    return triton_gemm.compiled(arch, CONSTANTS, **OPTIONS)
