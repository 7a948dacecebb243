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

ACTIVATIONS = {"none": lambda x: x, "tanh": torch.tanh, "relu": torch.relu}


def model(network, parameters):
    """A function from x (n, C, H, W) to (scores, labels), of PyTorch's tensors."""
    weights = {name: torch.from_dlpack(array) for name, array in parameters.items()}

    def scored(x):
        for step in network.steps:
            layer = step.layer
            kind = type(layer).__name__
            if kind == "ConvLayer":
                x = functional.conv2d(x, weights[f"{layer.name}.weight"], stride=layer.S, padding=layer.P)
            elif kind == "DenseLayer":
                x = functional.linear(x.flatten(1), weights[f"{layer.name}.weight"], weights[f"{layer.name}.bias"])
            elif layer.kind == "max":
                x = functional.max_pool2d(x, layer.size, ceil_mode=layer.ceil)
            else:
                x = functional.avg_pool2d(x, layer.size, ceil_mode=layer.ceil)
            x = ACTIVATIONS[step.activation](x)
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
