"""
title:     PyTorch, eager, TF32
idea:      What a PyTorch user gets with TF32 allowed, in convolutions and in matrix products.
expect:    Faster than FP32 where a layer has many input channels; the activations take what they took.
builds_on: eager_fp32
precision: tf32
device:    gpu
peer:      true
requires:  torch
method:    any
reference: https://docs.pytorch.org/docs/stable/backends.html
"""

import eager_fp32

unsupported = eager_fp32.unsupported


def prepare(kernels, network, images, parameters):
    return eager_fp32.called(eager_fp32.model(network, parameters), tf32=True)
