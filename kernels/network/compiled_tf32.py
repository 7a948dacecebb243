"""
title:     PyTorch, compiled, TF32
idea:      torch.compile puts activations and pooling into kernels of Triton's and leaves convolutions and matrix
           products to cuDNN and cuBLAS, in TF32. It compiles before the first sample, for the largest dataset
           alone.
expect:    Faster than eager by the passes over memory that activations and pooling no longer take.
builds_on: eager_tf32
precision: tf32
device:    gpu
peer:      true
requires:  torch
method:    any
limits:    {N: {at_least: 10000}}
reference: https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

import compiled_fp32
import eager_fp32

unsupported = eager_fp32.unsupported


def prepare(kernels, network, images, parameters):
    return eager_fp32.called(compiled_fp32.compiled(network, parameters), tf32=True)
