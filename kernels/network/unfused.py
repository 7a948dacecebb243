"""Orders a network's layers one after another: the launcher of fp16x3_mma, and the plain kernels around it."""

import cupy
import fp16x3_mma
import numpy as np

from warpbook.harness import inference
from warpbook.problems.layers import DenseLayer, PoolLayer


def prepare(kernels, network, images, parameters):
    around = inference.Around(kernels.function, cupy.empty)
    steps = list(inference.fused_steps(network))
    operations = {conv: fp16x3_mma.prepare(kernels, conv, images, None) for conv in network.convs}
    outputs = {conv: kernels.empty(conv.y_shape(images)) for conv in network.convs}

    def call(x, scores, labels):
        for step in steps:
            layer = step.layer
            if isinstance(layer, PoolLayer):
                x = around.pool(x, layer, step.activation)
            elif isinstance(layer, DenseLayer):
                w, b = parameters[f"{layer.name}.weight"], parameters[f"{layer.name}.bias"]
                x = around.dense(x.reshape(images, -1), w, b, step.activation)
            else:
                operations[layer](x, parameters[f"{layer.name}.weight"], outputs[layer])
                x = outputs[layer]
                if step.activation != "none":
                    x = around.pool(x, PoolLayer("max", 1, False, *layer.gives), step.activation)
        scores[...] = x
        labels[...] = x.argmax(axis=1).astype(np.int32)

    return call
