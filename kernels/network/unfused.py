"""Orders a network's layers one after another: the launcher of fp16x3_mma, and the plain kernels around it."""

import cupy
import fp16x3_mma
import numpy as np

from warpbook.harness import inference
from warpbook.kernels import variants
from warpbook.problems.layers import DenseLayer, PoolLayer


def unsupported(network):
    """Why the convolutions' kernel does not compute a network; empty where it does."""
    variant = variants.read("fp16x3_mma")
    return next(filter(None, (variant.unsupported(conv.at(1)) for conv in network.convs)), "")


def prepare(kernels, network, images, parameters):
    around = inference.Around(kernels.function, cupy.empty)
    steps = list(inference.fused_steps(network))
    operations = {conv: fp16x3_mma.prepare(kernels, conv, images, None) for conv in network.convs}
    outputs = {conv: kernels.empty(conv.y_shape(images)) for conv in network.convs}

    def call(x, scores, labels):
        for step in steps:
            layer = step.layer
            if isinstance(layer, PoolLayer):
                x = around.pool(x, layer, step.activation, step.slope)
            elif isinstance(layer, DenseLayer):
                w, b = parameters[f"{layer.name}.weight"], parameters[f"{layer.name}.bias"]
                x = around.dense(x.reshape(images, -1), w, b, step.activation, step.slope)
            else:
                operations[layer](x, *inference.conv_parameters(layer, parameters), outputs[layer])
                x = outputs[layer]
                if step.activation != "none":
                    x = around.activate(x, step.activation, step.slope)
        scores[...] = x
        labels[...] = x.argmax(axis=1).astype(np.int32)

    return call
