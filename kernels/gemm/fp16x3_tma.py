"""Splits A and B into scratch memory, multiplies the parts, and computes what does not fit them in FP32."""

from gemm_fp16_launch import split_and_multiply


def prepare(kernels, case, size, launch):
    return split_and_multiply(kernels, case, kernels.constants["TILE_M"] * 2 + 128, split_b=(32, 4))
