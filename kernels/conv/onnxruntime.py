"""
title:     ONNX Runtime
idea:      What a user on a CPU gets from a library. A session is made for one set of weights
           and repacks them then, which is not timed, as a framework's user would have it.
expect:    Beats code written for clarity where a layer has arithmetic to block, and pays for
           changes of layout where it has little.
builds_on: loop_nest
device:    cpu
peer:      true
every_case: true
method:    any
reference: https://onnxruntime.ai/docs/
claims:
  - says:     Beats code written for clarity where a layer has arithmetic to block
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
  - says:     pays for changes of layout where it has little
    quantity: op_time
    change:   falls
    where:    {C: {at_least: 2}}
    more_than: {C: {is: 1}}
"""

import os
import zlib

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

CHUNK = 100


def _session(nodes, constants, input_shape, output_shape):
    """A session for a graph from `x` to `y`, float32."""
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, input_shape)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, output_shape)
    graph = helper.make_graph(nodes, "warpbook", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = onnxruntime.SessionOptions()
    # Left alone it has a thread for every core of the machine, also of those that this process may not use.
    if (allowed := len(os.sched_getaffinity(0))) < (os.cpu_count() or allowed):
        options.intra_op_num_threads = allowed
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def prepare(layer, images):
    if layer.unusual or layer.optional:
        return _general(layer)
    sessions = {}

    def call(x, w, y):
        key = zlib.crc32(w)
        if key not in sessions:
            nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
            sessions[key] = _session(nodes, {"w": w}, layer.shape("x"), layer.shape("y"))
        binding = sessions[key].io_binding()
        binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        sessions[key].run_with_iobinding(binding)

    return call


def _general(layer):
    """The same with strides, padding, dilation, groups and bias."""
    attributes = {
        "strides": [layer.S, layer.SW],
        "pads": [layer.P, layer.PW, layer.P_end, layer.PW_end],
        "dilations": [layer.D, layer.DW],
        "group": layer.G,
    }
    names = list(layer.inputs)[1:]
    sessions = {}

    def call(x, *rest):
        *weights, y = rest
        key = tuple(map(zlib.crc32, weights))
        if key not in sessions:
            nodes = [helper.make_node("Conv", ["x", *names], ["y"], **attributes)]
            constants = dict(zip(names, weights, strict=True))
            sessions[key] = _session(nodes, constants, layer.shape("x"), layer.shape("y"))
        binding = sessions[key].io_binding()
        binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        sessions[key].run_with_iobinding(binding)

    return call


def load(network, parameters):
    """The whole network in one graph: images (n, 1, side, side) to predicted labels (n,), a chunk at a time."""
    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight"], ["conv1"]),
        helper.make_node("Tanh", ["conv1"], ["tanh1"]),
        helper.make_node("MaxPool", ["tanh1"], ["features"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    last = "features"
    for conv in network.convs[1:]:
        nodes.append(helper.make_node("Conv", [last, f"{conv.name}.weight"], [conv.name]))
        last = conv.name
    nodes += [
        helper.make_node("Flatten", [last], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc1.weight", "fc1.bias"], ["fc1"], transB=1),
        helper.make_node("Tanh", ["fc1"], ["tanh2"]),
        helper.make_node("Gemm", ["tanh2", "fc2.weight", "fc2.bias"], ["y"], transB=1),
    ]
    session = _session(nodes, parameters, ["n", 1, network.image, network.image], ["n", network.classes])

    def predict(images):
        chunks = [images[start : start + CHUNK] for start in range(0, len(images), CHUNK)]
        return np.concatenate([session.run(None, {"x": chunk})[0].argmax(axis=1) for chunk in chunks])

    return predict
