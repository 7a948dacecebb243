"""
title:     cuBLAS, FP32 emulated by BF16x9
idea:      cuBLAS splits each value into three BF16 parts, which together keep FP32's 24 bits and its range, and tensor
           cores multiply all nine pairs. It does so on Blackwell; elsewhere the same call runs in FP32.
expect:    On Hopper the time of cuBLAS in FP32 within 2 %, and the same bits. On Blackwell, whose tensor cores do more
           than 9 times the multiply-adds of its FP32 pipes, faster than FP32 on large matrices.
builds_on: cublas_fp32
device:    gpu
peer:      true
requires:  cupy
method:    any
reference: https://docs.nvidia.com/cuda/cublas/#floating-point-emulation
claims:
  - says:     On Hopper the time of cuBLAS in FP32 within 2 %
    quantity: gpu_time
    change:   stays
    by:       2 %
    where:    {n: {at_least: 2048}}
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
            cublas.CUBLAS_COMPUTE_32F_EMULATED_16BFX9, cublas.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip

    return call
