"""
title:     PyTorch
idea:      What a PyTorch user gets without a GPU. oneDNN convolves in a layout of its own on all
           cores. Nothing is kept from call to call, so that each one lays out the weights anew,
           and returns a new array. Where padding differs between two sides, the call pads x first,
           which is timed.
expect:    Near ONNX Runtime where there is much arithmetic, for both block it for the same vector
           instructions; behind it where a call is short and those preparations weigh.
builds_on: loop_nest
device:    cpu
peer:      true
every_case: true
requires:  torch
method:    any
reference: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html
claims:
  - says:     Near ONNX Runtime where there is much arithmetic
    quantity: op_time
    change:   stays
    by:       30 %
    where:    {C: {at_least: 2}}
    against:  onnxruntime
  - says:     behind it where a call is short
    quantity: op_time
    change:   rises
    where:    {N: {at_most: 10}}
    against:  onnxruntime
"""

import numpy as np
import torch
from torch.nn import functional

CHUNK = 100


def prepare(layer, images):
    if layer.unusual or layer.optional:
        return _general(layer)

    @torch.inference_mode()
    def call(x, w, y):
        return functional.conv2d(torch.from_numpy(x), torch.from_numpy(w)).numpy()

    return call


def _general(layer):
    """The same with strides, padding, dilation, groups and bias. Padding that differs between two sides is not
    conv2d's own: the call pads x first."""
    symmetric = (layer.P_end, layer.PW_end) == (layer.P, layer.PW)
    ends = () if symmetric else (layer.PW, layer.PW_end, layer.P, layer.P_end)
    padding = (layer.P, layer.PW) if symmetric else 0
    strides, dilation = (layer.S, layer.SW), (layer.D, layer.DW)

    @torch.inference_mode()
    def call(*arrays):
        x, w, *bias = map(torch.from_numpy, arrays[:-1])
        padded = functional.pad(x, ends) if ends else x
        return functional.conv2d(padded, w, *(bias or [None]), strides, padding, dilation, layer.G).numpy()

    return call


def load(network, parameters):
    """The whole network in PyTorch: images (n, 1, side, side) to predicted labels (n,), a chunk at a time."""
    weights = {name: torch.from_numpy(array) for name, array in parameters.items()}

    def labels(x):
        x = functional.max_pool2d(torch.tanh(functional.conv2d(x, weights["conv1.weight"])), 2)
        for conv in network.convs[1:]:
            x = functional.conv2d(x, weights[f"{conv.name}.weight"])
        x = torch.tanh(functional.linear(x.flatten(1), weights["fc1.weight"], weights["fc1.bias"]))
        return functional.linear(x, weights["fc2.weight"], weights["fc2.bias"]).argmax(1).numpy()

    @torch.inference_mode()
    def predict(images):
        return np.concatenate([labels(chunk) for chunk in torch.from_numpy(images).split(CHUNK)])

    return predict
