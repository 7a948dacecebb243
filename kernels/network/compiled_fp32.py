"""
title:     PyTorch, compiled, FP32
idea:      torch.compile puts activations and pooling into kernels of Triton's and leaves convolutions and matrix
           products to cuDNN and cuBLAS, in FP32. It compiles before the first sample, for the largest dataset
           alone.
expect:    Faster than eager by the passes over memory that activations and pooling no longer take.
builds_on: eager_fp32
precision: fp32
device:    gpu
peer:      true
requires:  torch
method:    any
limits:    {N: {at_least: 10000}}
reference: https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

import eager_fp32
import torch

unsupported = eager_fp32.unsupported


def compiled(network, parameters):
    # Inductor pads strides, and one reader of such an array does not know: scores were wrong.
    options = {"comprehensive_padding": False}
    return torch.compile(eager_fp32.model(network, parameters), dynamic=False, options=options)


def prepare(kernels, network, images, parameters):
    return eager_fp32.called(compiled(network, parameters), tf32=False)
