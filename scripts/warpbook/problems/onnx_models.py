"""A network from an ONNX file: its layers as `networks:` in config.yaml describes them, and their weights. Batch
normalisation is folded into the layer before it. What this cannot express is named with its node."""

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from warpbook.common.errors import UserError, first_line

EPS = 1e-5  # what batch normalisation adds to the variance where nothing says else; PyTorch's and ONNX's
ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "LeakyRelu": "leaky_relu"}
OPERATORS = (
    "Conv, BatchNormalization, MaxPool, AveragePool, GlobalAveragePool, Flatten, Reshape, Gemm, MatMul, "
    f"Add of a bias, {', '.join(ACTIVATIONS)}, Softmax and LogSoftmax at the end, Identity, Dropout and Constant"
)
# Of constants alone, these are computed when the file is read.
_OF_CONSTANTS = ("Constant", "Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze")
_LAYERS_ONLY = "write `layers_only: true` for a workload of its convolutions alone"
_REMEDIES = {
    "Transpose": "export it with images as (N, C, H, W) (tf2onnx: --inputs-as-nchw)",
    **dict.fromkeys(("Shape", "Gather", "Concat"), "flatten by torch.flatten(x, 1), or run onnxsim on the file"),
}


@dataclass
class OnnxModel:
    """What a file says: `input` and `layers` as in config.yaml, the parameters by the names of those layers, float32,
    and sentences on what was left out. `flat`: what the last layer gives was flattened."""

    input: dict[str, Any]
    layers: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    flat: bool = False


def read(path: Path, layers_only: bool = False) -> OnnxModel:
    """The network of a file, or its convolutions alone. Raises UserError of one line where it is none."""
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    return _read(path, layers_only, changed_ns)


@functools.cache
def _read(path: Path, layers_only: bool, changed_ns: int) -> OnnxModel:
    import onnx

    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
        if layers_only:
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        graph = _Graph(path.name, model.graph)
    except Exception as error:  # protobuf, checker and shape inference each have exceptions of their own
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is no ONNX file that can be read: {first_line(error)}") from error
    return graph.convolutions() if layers_only else graph.chain()


class _Graph:
    """The graph of a file called `name`."""

    def __init__(self, name: str, graph: Any):
        from onnx import numpy_helper
        from onnx.reference import ReferenceEvaluator

        self._name = name
        self._constants: dict[str, np.ndarray] = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        self._nodes: list[Any] = []
        for node in graph.node:
            if node.op_type in _OF_CONSTANTS and all(each in self._constants for each in node.input):
                known = {each: self._constants[each] for each in node.input}
                self._constants[node.output[0]] = np.asarray(next(iter(ReferenceEvaluator(node).run(None, known))))
            else:
                self._nodes.append(node)
        self._shapes = {
            one.name: tuple(each.dim_value or None for each in one.type.tensor_type.shape.dim)
            for one in (*graph.input, *graph.value_info, *graph.output)
        }
        inputs = [one.name for one in graph.input if one.name not in self._constants]
        outputs = [one.name for one in graph.output]
        if len(inputs) != 1 or len(outputs) != 1:
            raise UserError(
                f"{name} has the inputs {', '.join(inputs)} and the outputs {', '.join(outputs)}, and a network has one "
                "of each; export it with one input and one output"
            )
        (self._input,), (self._output,) = inputs, outputs

    def _failure(self, node: Any, words: str, remedy: str = _LAYERS_ONLY) -> UserError:
        return UserError(f"{self._name}: {_label(node)} {words}; {remedy}")

    def _image(self, tensor: str, whose: str) -> tuple[int, int, int]:
        """Channels, rows and columns of a tensor."""
        shape = self._shapes.get(tensor, ())
        shown = ", ".join("?" if extent is None else str(extent) for extent in shape)
        if len(shape) != 4:
            raise UserError(
                f"{self._name}: {whose} has the shape ({shown}), and images have (N, C, H, W); export it with such an input"
            )
        channels, height, width = shape[1:]
        if channels is None or height is None or width is None:
            raise UserError(
                f"{self._name}: {whose} has the dynamic shape ({shown}); export it with fixed channels, rows and columns"
            )
        return channels, height, width

    def convolutions(self) -> OnnxModel:
        """Each convolution as a layer by itself, those of one shape once."""
        found: list[dict[str, dict[str, Any]]] = []
        for node in self._nodes:
            if node.op_type == "Conv":
                described = self._convolution(node)
                shape = self._image(node.input[0], f"the input of {_label(node)}")
                layer = {"conv": {**described, "input_shape": list(shape)}}
                found += [layer] * (layer not in found)
        if not found:
            raise UserError(f"{self._name} has no node Conv, and kernels compute convolutions; take another file")
        channels, *size = found[0]["conv"]["input_shape"]
        return OnnxModel({"channels": channels, "size": size}, found)

    def chain(self) -> OnnxModel:
        """The layers from the input to the output. Raises UserError where they are no chain."""
        channels, *size = self._image(self._input, f"the input {self._input}")
        model = OnnxModel({"channels": channels, "size": size})
        readers = defaultdict(list)
        for node in self._nodes:
            for tensor in node.input:
                readers[tensor].append(node)
        tensor = self._input
        while tensor != self._output:
            following = readers[tensor]
            if len(following) != 1:
                names = " and ".join(map(_label, following)) or "no node"
                remedy = next(filter(None, (_REMEDIES.get(one.op_type) for one in following)), _LAYERS_ONLY)
                raise UserError(f"{self._name}: {tensor} goes to {names}, and a network is a chain of layers; {remedy}")
            (node,) = following
            others = [each for each in node.input if each and each != tensor]
            if node.op_type in self._layers or node.op_type in ACTIVATIONS:
                if computed := [each for each in others if each not in self._constants]:
                    raise self._failure(node, f"joins two paths, {tensor} and {computed[0]}")
                if model.notes and node.op_type not in ("Identity", "Dropout"):
                    raise self._failure(node, "follows Softmax, which is the last node of a network")
                self._layers.get(node.op_type, _Graph._activation)(self, node, model)
            else:
                remedy = _REMEDIES.get(node.op_type, _LAYERS_ONLY)
                raise self._failure(node, f"is none of {OPERATORS}", remedy)
            tensor = node.output[0]
        return model

    def _convolution(self, node: Any) -> dict[str, Any]:
        w = self._constants.get(node.input[1])
        if w is None or w.ndim != 4:
            shape = "computed weights" if w is None else f"weights of shape {w.shape}"
            raise self._failure(
                node, f"has {shape}, and images take constant ones (M, C, rows, columns)", "leave it out"
            )
        attributes = _attributes(node)
        described: dict[str, Any] = {"out_channels": w.shape[0], "kernel_size": list(w.shape[2:])}
        for key, name in (("stride", "strides"), ("dilation", "dilations")):
            if name in attributes:
                described[key] = list(attributes[name])
        described["padding"] = self._padding(node, attributes)
        return {**described, "groups": attributes.get("group", 1), "bias": len(node.input) > 2 and bool(node.input[2])}

    def _padding(self, node: Any, attributes: dict[str, Any]) -> Any:
        automatic = attributes.get("auto_pad", b"NOTSET").decode()
        if automatic == "SAME_LOWER":
            raise self._failure(node, "has auto_pad SAME_LOWER", "export it with pads or SAME_UPPER")
        return {"SAME_UPPER": "same", "VALID": 0}.get(automatic, list(attributes.get("pads", [0, 0, 0, 0])))

    def _conv(self, node: Any, model: OnnxModel) -> None:
        model.layers.append({"conv": self._convolution(node)})
        name = _last_name(model)
        model.parameters[f"{name}.weight"] = _float32(self._constants[node.input[1]])
        if model.layers[-1]["conv"]["bias"]:
            model.parameters[f"{name}.bias"] = _float32(self._constants[node.input[2]])

    def _pool(self, node: Any, model: OnnxModel) -> None:
        attributes = _attributes(node)
        pool = {
            "kind": "max" if node.op_type == "MaxPool" else "average",
            "size": list(attributes["kernel_shape"]),
            "stride": list(attributes.get("strides", [1, 1])),
            "padding": self._padding(node, attributes),
            "ceil": bool(attributes.get("ceil_mode", 0)),
        }
        if set(attributes.get("dilations", [1])) != {1}:
            raise self._failure(node, f"has dilations {list(attributes['dilations'])}, and windows are whole here")
        padded = pool["padding"] == "same" or any(attributes.get("pads", []))
        if attributes.get("count_include_pad") and padded:
            raise self._failure(
                node, "counts its padding in averages (count_include_pad)", "export it with count_include_pad=False"
            )
        model.layers.append({"pool": pool})

    def _global_average(self, node: Any, model: OnnxModel) -> None:
        model.layers.append({"pool": {"kind": "global_average"}})

    def _flatten(self, node: Any, model: OnnxModel) -> None:
        axis = _attributes(node).get("axis", 1)
        if axis != 1:
            raise self._failure(node, f"flattens from axis {axis} on", "export it with axis 1")
        model.flat = True

    def _reshape(self, node: Any, model: OnnxModel) -> None:
        shape = self._constants[node.input[1]].tolist()
        if len(shape) != 2:
            raise self._failure(node, f"reshapes to {shape}, and only (images, features) is read")
        model.flat = True

    def _gemm(self, node: Any, model: OnnxModel) -> None:
        attributes = _attributes(node)
        w = self._constants.get(node.input[1])
        if w is None or attributes.get("transA"):
            raise self._failure(node, "multiplies by no constant matrix on the right")
        w = (w if attributes.get("transB") else w.T) * attributes.get("alpha", 1.0)
        bias = np.zeros(len(w))
        if len(node.input) > 2 and node.input[2]:
            bias = bias + self._constants[node.input[2]].reshape(-1) * attributes.get("beta", 1.0)
        self._dense(node, model, w, bias)

    def _matmul(self, node: Any, model: OnnxModel) -> None:
        w = self._constants.get(node.input[1])
        if w is None or w.ndim != 2:
            raise self._failure(node, "multiplies by no constant matrix on the right")
        self._dense(node, model, w.T, np.zeros(w.shape[1]))

    def _dense(self, node: Any, model: OnnxModel, w: np.ndarray, bias: np.ndarray) -> None:
        if not model.flat:
            raise self._failure(node, "takes an image that is not flattened", "put Flatten before it")
        model.layers.append({"fc": {"out_features": len(w)}})
        name = _last_name(model)
        model.parameters |= {f"{name}.weight": _float32(w), f"{name}.bias": _float32(bias)}

    def _add(self, node: Any, model: OnnxModel) -> None:
        """A bias as a node of its own."""
        layer = self._before(node, model)
        w = model.parameters[f"{layer}.weight"]
        (added,) = (self._constants[each] for each in node.input if each in self._constants)
        wanted = (len(w), 1, 1) if w.ndim == 4 else (len(w),)
        if added.size not in (1, len(w)) or (added.size > 1 and added.shape[-len(wanted) :] != wanted):
            raise self._failure(node, f"adds an array of shape {added.shape}, which is no bias of {layer}")
        self._fold(model, layer, 1.0, added.reshape(-1))

    def _batch_norm(self, node: Any, model: OnnxModel) -> None:
        gamma, beta, mean, var = (self._constants[each] for each in node.input[1:5])
        attributes = _attributes(node)
        if attributes.get("training_mode"):
            raise self._failure(node, "is in training mode", "export it after model.eval()")
        scale, shift = batch_norm(gamma, beta, mean, var, attributes.get("epsilon", EPS))
        self._fold(model, self._before(node, model), scale, shift)

    def _before(self, node: Any, model: OnnxModel) -> str:
        """The name of the convolution or fully connected layer that a node directly follows."""
        kind, layer = next(iter(model.layers[-1].items())) if model.layers else ("", {})
        if kind not in ("conv", "fc") or "activation" in layer:
            raise self._failure(node, "does not directly follow a convolution or fully connected layer")
        return _last_name(model)

    def _fold(self, model: OnnxModel, layer: str, scale: Any, shift: np.ndarray) -> None:
        """What a layer gives, times `scale` and plus `shift`, both for each output, as its own weight and bias."""
        fold_into(model.parameters, layer, scale, shift)
        if "conv" in model.layers[-1]:
            model.layers[-1]["conv"]["bias"] = True

    def _activation(self, node: Any, model: OnnxModel) -> None:
        *before, last = model.layers or [{}]
        # What never falls may come before a largest value as well as after it.
        pooled = "pool" in last and last["pool"]["kind"] == "max" and before
        kind, layer = next(iter((before[-1] if pooled else last).items()), ("", {}))
        if kind not in ("conv", "fc") or "activation" in layer:
            raise self._failure(node, "follows no convolution or fully connected layer without activation")
        layer["activation"] = ACTIVATIONS[node.op_type]
        if node.op_type == "LeakyRelu":
            layer["slope"] = float(_attributes(node).get("alpha", 0.01))

    def _softmax(self, node: Any, model: OnnxModel) -> None:
        if (axis := _attributes(node).get("axis", -1)) not in (1, -1):
            raise self._failure(node, f"is over axis {axis}, and scores are along axis 1")
        model.notes.append(f"{_label(node)} is left out: labels are the same without it")

    def _nothing(self, node: Any, model: OnnxModel) -> None:
        """What changes nothing in inference."""

    _layers: ClassVar[dict[str, Callable[["_Graph", Any, OnnxModel], None]]] = {
        "Conv": _conv, "BatchNormalization": _batch_norm, "MaxPool": _pool, "AveragePool": _pool,
        "GlobalAveragePool": _global_average, "Flatten": _flatten, "Reshape": _reshape, "Gemm": _gemm,
        "MatMul": _matmul, "Add": _add, "Softmax": _softmax, "LogSoftmax": _softmax,
        "Identity": _nothing, "Dropout": _nothing,
    }  # fmt: skip


def batch_norm(
    gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, var: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray]:
    """What batch normalisation multiplies each output by, and then adds to it, float64."""
    scale = gamma / np.sqrt(var.astype(np.float64) + eps)
    return scale, beta - mean * scale


def fold_into(parameters: dict[str, np.ndarray], layer: str, scale: Any, shift: np.ndarray) -> None:
    """Multiply a layer's outputs by `scale` and add `shift`, one for all or each, by its weights, in float64."""
    w = parameters[f"{layer}.weight"].astype(np.float64)
    bias = parameters.get(f"{layer}.bias", np.zeros(len(w))).astype(np.float64)
    by_output = np.broadcast_to(scale, len(w)).reshape(-1, *[1] * (w.ndim - 1))
    parameters[f"{layer}.weight"] = _float32(w * by_output)
    parameters[f"{layer}.bias"] = _float32(bias * scale + shift)


def _float32(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32)


def _last_name(model: OnnxModel) -> str:
    """The name of the last layer, as `networks` counts them."""
    (kind,) = model.layers[-1]
    return f"{kind}{sum(kind in layer for layer in model.layers)}"


def _label(node: Any) -> str:
    return f"node {node.name or node.output[0]} ({node.op_type})"


def _attributes(node: Any) -> dict[str, Any]:
    from onnx import helper

    return {one.name: helper.get_attribute_value(one) for one in node.attribute}
