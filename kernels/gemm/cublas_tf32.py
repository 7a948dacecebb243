"""
title:     cuBLAS in TF32
idea:      cuBLAS rounds the values of A and B to 10 bits of mantissa, and tensor cores multiply them. Sums are FP32.
expect:    Tensor cores do 8 times the multiply-adds of the FP32 pipes, so at least 4 times as fast as cuBLAS in FP32
           on large matrices. Errors near 3e-4 of the result's norm.
builds_on: cublas_fp32
precision: tf32
device:    gpu
peer:      true
requires:  cupy
method:    any
reference: https://docs.nvidia.com/cuda/cublas/#cublasgemmex
claims:
  - says:     at least 4 times as fast as cuBLAS in FP32 on large matrices
    quantity: gpu_time
    change:   falls
    by:       75 %
    where:    {n: {at_least: 4096}}
  - says:     Errors near 3e-4 of the result's norm
    quantity: error
    value:    {at_least: 0.0001, at_most: 0.001}
"""

import numpy as np


def prepare(case, size):
    from cupy.cuda import device, runtime
    from cupy_backends.cuda.libs import cublas

    m, n, k = case.m, case.n, case.k
    handle = device.get_cublas_handle()
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)

    def call(a, b, c):
        # cuBLAS has columns where C has rows, so it multiplies the transposes, B's first.
        cublas.gemmEx(
            handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, n, m, k, one.ctypes.data, b.data.ptr, runtime.CUDA_R_32F, n,
            a.data.ptr, runtime.CUDA_R_32F, k, zero.ctypes.data, c.data.ptr, runtime.CUDA_R_32F, n,
            cublas.CUBLAS_COMPUTE_32F_FAST_TF32, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    return call
