"""Inference of a whole network with one variant's convolution: images to labels, with each convolution's op time. On
the CPU images stream through in chunks; on the GPU a layer takes all at once, as the course's programs do."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter  # by name: a launcher may replace it in its module
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from warpbook.common.errors import UserError
from warpbook.harness import cpp_compiler
from warpbook.harness.bench import CPU_CHUNK
from warpbook.harness.reference import activate
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems import fashion_mnist
from warpbook.problems.layers import Activation, DenseLayer, PoolLayer, Step
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case

if TYPE_CHECKING:
    import cupy

Predict = Callable[[np.ndarray], tuple[np.ndarray, list[float]]]
"""Images (n, channels, height, width) uint8 to (labels (n,), seconds spent in each convolution; empty where nobody can
tell)."""


def load(variant: Variant, network: Network, parameters: dict[str, np.ndarray], library: Path | None = None) -> Predict:
    """Inference with this variant, `library` that of its C++ if compiled; frameworks may run networks whole."""
    if runs_whole_network(variant, network):
        framework = variant.module.load(network.form_2017, parameters)
        return lambda images: (framework(images.astype(np.float32)), [])
    if variant.device == "gpu":
        return _load_gpu(variant, network, parameters)
    return _load_cpu(variant, network, parameters, library)


def runs_whole_network(variant: Variant, network: Network) -> bool:
    """Whether a variant is a framework that runs the network whole, its other layers too."""
    known = variant.header.peer and network.form_2017 and variant.launcher
    return bool(known and hasattr(variant.module, "load"))


def fused_steps(network: Network) -> Iterator[Step]:
    """The network's steps where pooling does the activation before it. No activation falls, so the largest value stays
    the largest, and there are fewer to activate."""
    steps = network.steps
    for previous, step, following in zip((None, *steps[:-1]), steps, (*steps[1:], None), strict=True):
        if isinstance(step.layer, PoolLayer):
            yield Step(step.layer, previous.activation, previous.slope) if previous else step
        elif following and isinstance(following.layer, PoolLayer):
            yield Step(step.layer)
        else:
            yield step


def conv_parameters(conv: Case, parameters: Mapping[str, Any]) -> list[Any]:
    """The weights of a convolution, and its bias where it has one, as its variants take them."""
    return [parameters[f"{conv.name}.{name}"] for name in ("weight", *sorted(conv.optional))]


def pool(x: np.ndarray, layer: PoolLayer, activation: Activation, slope: float = 0.0) -> np.ndarray:
    """The pooled maps of x (n, C, H, W), float32, activated: the largest after pooling, averages before."""
    if layer.kind == "max":
        return activate(_reduce_windows(_reduce_windows(x, layer, 0), layer, 1), activation, slope)
    sums = _reduce_windows(_reduce_windows(activate(x, activation, slope), layer, 0), layer, 1)
    rows, columns = ([end - begin for begin, end in layer.spans(axis)] for axis in (0, 1))
    averages: np.ndarray = sums / np.outer(rows, columns).astype(np.float32)
    return averages


def _reduce_windows(x: np.ndarray, layer: PoolLayer, axis: int) -> np.ndarray:
    """Sums or largest values of windows along the rows, or the columns where `axis` is 1."""
    combine, nothing = (np.maximum, -np.inf) if layer.kind == "max" else (np.add, 0)
    of, count, step, size = axis + 2, layer.gives[1 + axis], layer.strides[axis], layer.window[axis]
    before = layer.padding[axis]
    after = max(0, (count - 1) * step + size - before - x.shape[of])
    if before or after:
        widths = [(before, after) if each == of else (0, 0) for each in range(x.ndim)]
        x = np.pad(x, widths, constant_values=nothing)
    ahead, end = (slice(None),) * of, (count - 1) * step + 1
    return functools.reduce(combine, (x[(*ahead, slice(place, place + end, step))] for place in range(size)))


def _reject_missing_arguments(variant: Variant, case: Case) -> None:
    """Raises UserError where a variant would compute another convolution, without the bias for example."""
    if variant.missing_arguments(case):
        raise UserError(variant.unsupported(case))


def _load_cpu(variant: Variant, network: Network, parameters: dict[str, np.ndarray], library: Path | None) -> Predict:
    steps = list(fused_steps(network))
    arguments = {conv: conv_parameters(conv, parameters) for conv in network.convs}

    @functools.cache
    def prepare_conv(n: int, conv: Case) -> Operation:
        _reject_missing_arguments(variant, conv.at(n))
        return cpp_compiler.prepare(variant, conv.at(n), library)

    def predict(images: np.ndarray) -> tuple[np.ndarray, list[float]]:
        op_s = dict.fromkeys(network.convs, 0.0)
        labels = np.empty(len(images), np.uint8)
        for start in range(0, len(images), CPU_CHUNK):
            x = fashion_mnist.normalize(images[start : start + CPU_CHUNK], network, np.float32)
            for step in steps:
                layer = step.layer
                if isinstance(layer, PoolLayer):
                    x = pool(x, layer, step.activation, step.slope)
                    continue
                if not isinstance(layer, DenseLayer):
                    y = np.empty((len(x), *layer.gives), np.float32)
                    operation = prepare_conv(len(x), layer)  # the last chunk may be shorter
                    began = perf_counter()
                    returned = operation(x, *arguments[layer], y)
                    op_s[layer] += perf_counter() - began
                    x = y if returned is None else returned
                else:
                    w, b = parameters[f"{layer.name}.weight"], parameters[f"{layer.name}.bias"]
                    x = x.reshape(len(x), -1) @ w.T + b
                x = activate(x, step.activation, step.slope)
            labels[start : start + CPU_CHUNK] = x.argmax(axis=1)
        return labels, list(op_s.values())

    return predict


def _load_gpu(variant: Variant, network: Network, parameters: dict[str, np.ndarray]) -> Predict:
    import cupy

    from warpbook.harness import gpu_bench

    loaded = GpuNetwork(variant, network, parameters)

    def predict(images: np.ndarray) -> tuple[np.ndarray, list[float]]:
        op_s = []

        def time_operation(name: str, operation: Operation, *arrays: "cupy.ndarray") -> Any:
            cupy.cuda.runtime.deviceSynchronize()
            with gpu_bench.nvtx_range(name):
                began = perf_counter()
                returned = operation(*arrays)
                cupy.cuda.runtime.deviceSynchronize()
                op_s.append(perf_counter() - began)
            return returned

        with gpu_bench.nvtx_range("images to the device"):
            x = cupy.asarray(fashion_mnist.normalize(images, network, np.float32))
        scores = loaded.scores(x, time_operation)
        with gpu_bench.nvtx_range("labels to the host"):
            return scores.get().argmax(axis=1).astype(np.uint8), op_s

    return predict


class GpuNetwork:
    """A network on the GPU with one variant's convolution; `around` has its other layers."""

    def __init__(self, variant: Variant, network: Network, parameters: dict[str, np.ndarray]):
        import cupy

        from warpbook.harness import gpu_bench

        arch = gpu_bench.require_device().arch
        self._variant, self._network, self._marked, self._empty = variant, network, gpu_bench.nvtx_range, cupy.empty
        self._kernels = gpu_bench.load_kernels(variant, arch)
        self._parameters = {name: cupy.asarray(array) for name, array in parameters.items()}
        self._operations: dict[tuple[Case, int], Operation] = {}
        self.around = Around(gpu_bench.project_module("layers", arch).get_function, cupy.empty)

    def scores(self, x: "cupy.ndarray", call: Callable[..., Any] | None = None) -> "cupy.ndarray":
        """The score of each class, (n, classes), of x (n, channels, height, width) float32: enqueued, not waited for.
        `call` gets a convolution's name, operation and arrays, and may time it."""
        for step in fused_steps(self._network):
            layer = step.layer
            if isinstance(layer, PoolLayer):
                with self._marked("pool" if step.activation == "none" else f"{step.activation}, pool"):
                    x = self.around.pool(x, layer, step.activation, step.slope)
            elif isinstance(layer, DenseLayer):
                with self._marked("fully connected"):
                    w, b = self._parameters[f"{layer.name}.weight"], self._parameters[f"{layer.name}.bias"]
                    x = self.around.dense(x.reshape(len(x), -1), w, b, step.activation, step.slope)
            else:
                operation = self._prepare(layer, len(x))
                y = self._empty((len(x), *layer.gives), np.float32)
                arrays = (x, *conv_parameters(layer, self._parameters), y)
                returned = (call or self._call)(f"{layer.name} {self._variant.name}", operation, *arrays)
                x = y if returned is None else returned
                if step.activation != "none":
                    with self._marked(step.activation):
                        x = self.around.activate(x, step.activation, step.slope)
        return x

    def _prepare(self, layer: Case, images: int) -> Operation:
        if (layer, images) not in self._operations:
            _reject_missing_arguments(self._variant, layer.at(images))
            self._operations[layer, images] = self._variant.prepare(layer.at(images), self._kernels)
        return self._operations[layer, images]

    def _call(self, name: str, operation: Operation, *arrays: "cupy.ndarray") -> Any:
        with self._marked(name):
            return operation(*arrays)


class Around:
    """The layers around the convolutions by the kernels of layers.cu, on a device's arrays or, emulated, on NumPy's.
    `function` gives a kernel by its name, `empty` an array."""

    def __init__(self, function: Callable[[str], Any], empty: Callable[..., Any]):
        self._pool, self._dense, self._empty = function("pool"), function("fully_connected"), empty
        self._entering, self._largest = function("entering"), function("largest")

    def network_input(self, images: "cupy.ndarray", channels: int, scale: float) -> "cupy.ndarray":
        """What enters a network of images (n, H, W) uint8: (n, channels, H, W) float32, as `data.entering` has it."""
        x = self._empty((len(images), channels, *images.shape[1:]), np.float32)
        extents = (np.int64(x.size), np.int32(channels), np.int64(math.prod(images.shape[1:])), np.float32(scale))
        self._entering((min(1056, -(-x.size // 256)),), (256,), (images, x, *extents))
        return x

    def argmax(self, scores: "cupy.ndarray") -> "cupy.ndarray":
        """The label (n,) uint8 of each row of scores (n, classes), as NumPy's argmax has it."""
        labels = self._empty((len(scores),), np.uint8)
        self._largest((-(-len(scores) // 256),), (256,), (scores, labels, *map(np.int32, scores.shape)))
        return labels

    def pool(self, x: "cupy.ndarray", layer: PoolLayer, activation: Activation, slope: float = 0.0) -> "cupy.ndarray":
        """The pooled maps of x (n, C, H, W), activated; of size 1, the activation alone."""
        y = self._empty((len(x), *layer.gives), np.float32)
        extents = (layer.H, layer.W, *layer.gives[1:], *layer.window, *layer.strides, *layer.padding[:2])
        numbers = (*map(np.int32, (*extents, layer.kind == "average", _number(activation))), np.float32(slope))
        self._pool((min(1056, -(-y.size // 256)),), (256,), (x, y, np.int64(len(x) * layer.C), *numbers))
        return y

    def activate(self, x: "cupy.ndarray", activation: Activation, slope: float = 0.0) -> "cupy.ndarray":
        """An activation of every value of x (n, C, H, W)."""
        return self.pool(x, PoolLayer("max", 1, False, *x.shape[1:]), activation, slope)

    def dense(
        self, x: "cupy.ndarray", w: "cupy.ndarray", b: "cupy.ndarray", activation: Activation, slope: float = 0.0
    ) -> "cupy.ndarray":
        """x (n, inputs) through a fully connected layer of w (outputs, inputs), activated."""
        y = self._empty((len(x), len(w)), np.float32)
        numbers = (*map(np.int32, (len(x), w.shape[1], len(w), _number(activation))), np.float32(slope))
        self._dense((-(-len(w) // 16), -(-len(x) // 16)), (16, 16), (x, w, b, y, *numbers))
        return y


def _number(activation: Activation) -> int:
    """As layers.cu counts activations."""
    return get_args(Activation).index(activation)
