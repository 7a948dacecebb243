"""
title:     cuBLAS in FP16
idea:      A and B are rounded to FP16 within the call, and tensor cores multiply them. Sums and C are FP32.
expect:    Tensor cores do 16 times the multiply-adds of the FP32 pipes. Rounding moves 6 bytes for each value of A and
           B, 0.07 ms at 4096, where the product takes 0.2. At least 6 times as fast as cuBLAS in FP32 there. Errors
           like TF32's, which keeps as many bits, but values beyond 65504 become infinite.
builds_on: cublas_tf32
precision: fp16
device:    gpu
peer:      true
requires:  cupy
method:    any
reference: https://docs.nvidia.com/cuda/cublas/#cublasgemmex
claims:
  - says:     At least 6 times as fast as cuBLAS in FP32 there
    quantity: gpu_time
    change:   falls
    by:       83 %
    where:    {n: {at_least: 4096}}
    against:  cublas_fp32
  - says:     Errors like TF32's
    quantity: error
    value:    {at_least: 0.0001, at_most: 0.001}
"""

import cupy
import numpy as np


def prepare(case, size):
    from cupy.cuda import device, runtime
    from cupy_backends.cuda.libs import cublas

    m, n, k = case.m, case.n, case.k
    handle = device.get_cublas_handle()
    zero, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    rounded_a, rounded_b = cupy.empty((m, k), np.float16), cupy.empty((k, n), np.float16)

    def call(a, b, c):
        cupy.copyto(rounded_a, a)
        cupy.copyto(rounded_b, b)
        # cuBLAS has columns where C has rows, so it multiplies the transposes, B's first.
        cublas.gemmEx(
            handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, n, m, k, one.ctypes.data, rounded_b.data.ptr,
            runtime.CUDA_R_16F, n, rounded_a.data.ptr, runtime.CUDA_R_16F, k, zero.ctypes.data, c.data.ptr,
            runtime.CUDA_R_32F, n, cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    return call
