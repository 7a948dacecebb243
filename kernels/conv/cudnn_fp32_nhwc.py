"""
title:     cuDNN in FP32, channels last, through PyTorch
idea:      The channels of a pixel lie together (PyTorch's channels_last), as who runs a network so
           holds them; x and w are laid out before the call, which leaves y so. TF32 is off.
expect:    Slower than NCHW where few channels lie together, as on a first layer; cuDNN's kernels for the
           FP32 pipes were written for NCHW.
builds_on: cudnn_fp32
order:     NHWC
device:    gpu
peer:      true
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

    def call(x, w, y):
        torch.backends.cudnn.allow_tf32 = TF32
        return cupy.from_dlpack(functional.conv2d(torch.from_dlpack(x), torch.from_dlpack(w)))

    return call
