"""
title:     PyTorch, eager, FP32
idea:      What a PyTorch user gets with TF32 switched off. cuDNN tries its algorithms on the first call, which is not
           timed, and keeps the fastest.
expect:    The convolutions' and the activations' times added up, each over the largest feature maps of the
           network.
device:    gpu
peer:      true
requires:  torch
method:    any
reference: https://docs.pytorch.org/docs/stable/backends.html
"""

import torch
from torch.nn import functional

ACTIVATIONS = {
    "none": lambda x, slope: x,
    "tanh": lambda x, slope: torch.tanh(x),
    "relu": lambda x, slope: torch.relu(x),
    "sigmoid": lambda x, slope: torch.sigmoid(x),
    "leaky_relu": functional.leaky_relu,
}


def convolution(x, layer, weights):
    """A convolution of the network; padding that is not the same at both ends is added first."""
    padding = layer.P, layer.PW
    if (layer.P_end, layer.PW_end) != padding:
        x, padding = functional.pad(x, (layer.PW, layer.PW_end, layer.P, layer.P_end)), 0
    w, b = weights[f"{layer.name}.weight"], weights.get(f"{layer.name}.bias")
    strides, dilations = (layer.S, layer.SW), (layer.D, layer.DW)
    return functional.conv2d(x, w, b, strides, padding, dilations, layer.G)


def pooling(x, layer):
    """A pooling of the network. What lies beyond the image does not count."""
    top, left, bottom, right = layer.padding
    if layer.kind == "max":
        x = functional.pad(x, (left, right, top, bottom), value=-float("inf")) if any(layer.padding) else x
        return functional.max_pool2d(x, layer.window, layer.strides, ceil_mode=layer.ceil)
    return functional.avg_pool2d(x, layer.window, layer.strides, (top, left), layer.ceil, count_include_pad=False)


def unsupported(network):
    for step in network.steps:
        layer = step.layer
        if type(layer).__name__ == "PoolLayer" and layer.kind == "average":
            top, left, bottom, right = layer.padding
            window = layer.window
            if (top, left) != (bottom, right) or 2 * top > window[0] or 2 * left > window[1]:
                return f"PyTorch averages no windows padded by {list(layer.padding)}"
    return ""


def model(network, parameters):
    """A function from x (n, C, H, W) to (scores, labels), of PyTorch's tensors."""
    weights = {name: torch.from_dlpack(array) for name, array in parameters.items()}

    def scored(x):
        for step in network.steps:
            layer = step.layer
            kind = type(layer).__name__
            if kind == "ConvLayer":
                x = convolution(x, layer, weights)
            elif kind == "DenseLayer":
                x = functional.linear(x.flatten(1), weights[f"{layer.name}.weight"], weights[f"{layer.name}.bias"])
            else:
                x = pooling(x, layer)
            x = ACTIVATIONS[step.activation](x, step.slope)
        return x, x.argmax(1)

    return scored


def called(scored, tf32):
    """The call of a function from x to (scores, labels), with or without TF32."""

    @torch.inference_mode()
    def call(x, scores, labels):
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        found = scored(torch.from_dlpack(x))
        torch.from_dlpack(scores).copy_(found[0])
        torch.from_dlpack(labels).copy_(found[1])

    return call


def prepare(kernels, network, images, parameters):
    return called(model(network, parameters), tf32=False)
