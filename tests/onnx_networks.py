"""Small ONNX files made for tests, and what ONNX Runtime computes of them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper


def drawn(*shape, scale=0.2):
    """Numbers that are the same for a shape whenever they are drawn."""
    return (scale * np.random.default_rng(shape).standard_normal(shape)).astype(np.float32)


def save(path, nodes, constants, image=(1, 28, 28), outputs=("n", 10), images="n"):
    """A file of (operator, inputs, output, attributes) from `x` to `y`; nodes are named by their outputs."""
    made = [helper.make_node(kind, given, [out], name=out, **more) for kind, given, out, more in nodes]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [images, *image])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, outputs or list("nchw"))
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    model = helper.make_model(
        helper.make_graph(made, "test", [x], [y], tensors), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )
    onnx.save(model, path)
    return Path(path)


def lenet(path):
    """LeNet with biases, with most of the nodes that a network may have."""
    nodes = [
        ("Identity", ["x"], "same", {}),
        ("Conv", ["same", "w1", "b1"], "conv_a", {"pads": [2, 2, 2, 2], "kernel_shape": [5, 5]}),
        ("Tanh", ["conv_a"], "tanh", {}),
        ("AveragePool", ["tanh"], "pool_a", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Conv", ["pool_a", "w2", "b2"], "conv_b", {}),
        ("MaxPool", ["conv_b"], "pool_b", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("LeakyRelu", ["pool_b"], "leaky", {"alpha": 0.1}),
        ("Flatten", ["leaky"], "flat", {}),
        ("Dropout", ["flat"], "dropped", {}),
        ("Gemm", ["dropped", "w3", "b3"], "dense_a", {"alpha": 0.5, "beta": 2.0}),
        ("Sigmoid", ["dense_a"], "sigmoid", {}),
        ("MatMul", ["sigmoid", "w4"], "dense_b", {}),
        ("Add", ["b4", "dense_b"], "scores", {}),
        ("Softmax", ["scores"], "y", {}),
    ]
    constants = {
        "w1": drawn(6, 1, 5, 5, scale=1), "b1": drawn(6), "w2": drawn(16, 6, 5, 5), "b2": drawn(16), "w3": drawn(400, 84, scale=2),
        "b3": drawn(84), "w4": drawn(84, 10), "b4": drawn(10),
    }  # fmt: skip
    constants["w4"] -= constants["w4"].mean(axis=0)  # or one class would be the largest of every image
    return save(path, nodes, constants)


def keras_like(path, image=(3, 17, 22)):
    """3x3 convolutions padded as Keras does, batch normalisation, and a global average."""
    nodes = [
        ("Conv", ["x", "w1", "b1"], "conv_a", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("BatchNormalization", ["conv_a", "gamma", "beta", "mean", "var"], "normal", {"epsilon": 1e-3}),
        ("Relu", ["normal"], "relu_a", {}),
        ("Conv", ["relu_a", "w2"], "conv_b", {"auto_pad": "SAME_UPPER", "group": 2, "dilations": [1, 1]}),
        ("Add", ["conv_b", "b2"], "biased", {}),
        ("Relu", ["biased"], "relu_b", {}),
        ("MaxPool", ["relu_b"], "pool_a", {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("Conv", ["pool_a", "w3"], "conv_c", {"dilations": [2, 1], "pads": [2, 0, 1, 3]}),
        ("GlobalAveragePool", ["conv_c"], "averages", {}),
        ("Constant", [], "shape", {"value_ints": [-1, 7]}),
        ("Reshape", ["averages", "shape"], "flat", {}),
        ("Transpose", ["w4"], "turned", {"perm": [1, 0]}),
        ("Gemm", ["flat", "turned"], "y", {"transB": 1}),
    ]
    constants = {
        "w1": drawn(8, image[0], 3, 3), "b1": drawn(8), "gamma": 1 + drawn(8), "beta": drawn(8), "mean": drawn(8),
        "var": 1 + abs(drawn(8)), "w2": drawn(6, 4, 3, 3), "b2": drawn(1, 6, 1, 1), "w3": drawn(7, 6, 3, 4),
        "w4": drawn(7, 10),
    }  # fmt: skip
    return save(path, nodes, constants, image)


def residual_block(path):
    nodes = [
        ("Conv", ["x", "w1"], "conv_a", {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("Relu", ["conv_a"], "relu_a", {}),
        ("Conv", ["relu_a", "w2", "b2"], "conv_b", {"pads": [1, 1, 1, 1]}),
        ("Relu", ["conv_b"], "relu_b", {}),
        ("Conv", ["relu_b", "w2", "b2"], "conv_c", {"pads": [1, 1, 1, 1]}),
        ("Add", ["conv_c", "relu_a"], "sum", {}),
        ("Clip", ["sum"], "y", {}),
    ]
    constants = {"w1": drawn(8, 3, 3, 3), "w2": drawn(8, 8, 3, 3), "b2": drawn(8)}
    return save(path, nodes, constants, (3, 14, 14), ("n", 8, 7, 7))


def outputs(path, images):
    """What ONNX Runtime gives for images, float32."""
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": images.astype(np.float32)})[0]
