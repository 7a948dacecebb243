"""Splits A and B into scratch memory, multiplies the parts, and computes what does not fit them in FP32."""

from gemm_fp16_launch import split_and_multiply


def prepare(kernels, case, size, launch):
    threads = 32 * kernels.constants["WARPS_HIGH"] * kernels.constants["WARPS_WIDE"]
    return split_and_multiply(kernels, case, threads, split_b=(16, 8))
