"""
title:     cuDNN in FP32, channels last, through PyTorch
idea:      The channels of a pixel lie together (PyTorch's channels_last), as who runs a network so
           holds them; x and w are laid out before the call, which leaves y so. TF32 is off. Where
           padding differs between two sides, the call pads x first, which is timed.
expect:    Slower than NCHW where few channels lie together, as on a first layer; cuDNN's kernels for the
           FP32 pipes were written for NCHW.
builds_on: cudnn_fp32
order:     NHWC
device:    gpu
peer:      true
every_case: true
requires:  torch
method:    any
reference: https://docs.nvidia.com/deeplearning/cudnn/
claims:
  - says:     Slower than NCHW where few channels lie together
    quantity: op_time
    change:   rises
    where:    {C: {is: 1}, N: {at_least: 1000}}
"""

import cupy
import torch
from torch.nn import functional

TF32 = False


def prepare(layer, images):
    torch.backends.cudnn.benchmark = True
    if layer.unusual or layer.optional:
        return _general(layer)

    def call(x, w, y):
        torch.backends.cudnn.allow_tf32 = TF32
        return cupy.from_dlpack(functional.conv2d(torch.from_dlpack(x), torch.from_dlpack(w)))

    return call


def _general(layer):
    """The same with strides, padding, dilation, groups and bias. Padding that differs between two sides is not
    conv2d's own: the call pads x first."""
    symmetric = (layer.P_end, layer.PW_end) == (layer.P, layer.PW)
    ends = () if symmetric else (layer.PW, layer.PW_end, layer.P, layer.P_end)
    padding = (layer.P, layer.PW) if symmetric else 0
    strides, dilation = (layer.S, layer.SW), (layer.D, layer.DW)

    def call(*arrays):
        torch.backends.cudnn.allow_tf32 = TF32
        x, w, *bias = map(torch.from_dlpack, arrays[:-1])
        padded = functional.pad(x, ends) if ends else x
        return cupy.from_dlpack(functional.conv2d(padded, w, *(bias or [None]), strides, padding, dilation, layer.G))

    return call
