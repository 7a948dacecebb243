"""
title:     cuDNN in TF32, through PyTorch
idea:      Tensor cores multiply operands rounded to 10 mantissa bits and add in float32,
           which is PyTorch's own default for convolutions. Eight times FP32's peak on Hopper. Where
           padding differs between two sides, the call pads x first, which is timed.
expect:    Faster than FP32 where the layer is bound by arithmetic; no gain where bytes or
           cuDNN's own layout changes bound it. Errors near 3e-4 of the result's norm.
builds_on: cudnn_fp32
precision: tf32
device:    gpu
peer:      true
every_case: true
requires:  torch
method:    any
reference: https://docs.nvidia.com/deeplearning/cudnn/
claims:
  - says:     Faster than FP32 where the layer is bound by arithmetic
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
  - says:     no gain where bytes or cuDNN's own layout changes bound it
    quantity: op_time
    change:   stays
    by:       5 %
    where:    {C: {is: 1}}
  - says:     Errors near 3e-4 of the result's norm
    quantity: error
    value:    {at_least: 0.0001, at_most: 0.001}
"""

import cupy
import torch
from torch.nn import functional

TF32 = True


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


def load(network, parameters):
    """The whole network in PyTorch: images (n, 1, side, side) on the host to predicted labels (n,)."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = TF32
    weights = {name: torch.from_numpy(array).cuda() for name, array in parameters.items()}

    @torch.inference_mode()
    def predict(images):
        x = torch.from_numpy(images).cuda()
        x = functional.max_pool2d(torch.tanh(functional.conv2d(x, weights["conv1.weight"])), 2)
        for conv in network.convs[1:]:
            x = functional.conv2d(x, weights[f"{conv.name}.weight"])
        x = torch.tanh(functional.linear(x.flatten(1), weights["fc1.weight"], weights["fc1.bias"]))
        return functional.linear(x, weights["fc2.weight"], weights["fc2.bias"]).argmax(1).cpu().numpy()

    return predict
