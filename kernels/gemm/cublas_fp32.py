"""
title:     cuBLAS in FP32
idea:      What a CuPy user gets from `a @ b`; cuBLAS picks its kernel by the extents. TF32 is off.
expect:    Near the FP32 peak where the matrices are large; far from it where one is thin.
builds_on: naive
device:    gpu
peer:      true
requires:  cupy
method:    any
reference: https://docs.nvidia.com/cuda/cublas/
claims:
  - says:     Near the FP32 peak where the matrices are large
    quantity: fp32_peak_share
    value:    {at_least: 70 %}
    where:    {n: {at_least: 2048}}
"""

import cupy


def prepare(case, size):
    def call(a, b, c):
        cupy.matmul(a, b, out=c)

    return call
