"""
title:     PyTorch
idea:      What a PyTorch user gets from `torch.matmul`, TF32 off, as is its default.
expect:    It calls cuBLAS, so within 5 % of cuBLAS in FP32 where matrices are large.
builds_on: cublas_fp32
device:    gpu
peer:      true
requires:  torch
method:    any
reference: https://docs.pytorch.org/docs/stable/generated/torch.matmul.html
claims:
  - says:     within 5 % of cuBLAS in FP32 where matrices are large
    quantity: gpu_time
    change:   stays
    by:       5 %
    where:    {n: {at_least: 2048}}
"""

import torch


def prepare(case, size):
    def call(a, b, c):
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.matmul(torch.from_dlpack(a), torch.from_dlpack(b), out=torch.from_dlpack(c))

    return call
