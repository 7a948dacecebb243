"""Inference of a whole network with one variant's convolution: images to labels, with each convolution's op time.

The other layers are the same for every variant. On the CPU images stream through in chunks, so that memory does not
grow with the dataset; on the GPU a layer takes all images at once, as the course's programs do.
"""

import functools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter  # by name: a launcher may replace it in its module
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from warpbook.harness import cpp_compiler
from warpbook.harness.bench import CPU_CHUNK
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
    """Inference with this variant, `library` the one of its C++ where it is compiled already; a framework that brings
    a network of this form whole runs its own."""
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
    """The network's steps where pooling does the activation before it, in one pass over the data.

    After the largest values there are fewer to activate, and as tanh and ReLU grow, they come to the same.
    """
    steps = network.steps
    for previous, step, following in zip((None, *steps[:-1]), steps, (*steps[1:], None), strict=True):
        if isinstance(step.layer, PoolLayer):
            yield Step(step.layer, previous.activation if previous else "none")
        elif following and isinstance(following.layer, PoolLayer):
            yield Step(step.layer)
        else:
            yield step


def activate(x: np.ndarray, activation: Activation) -> np.ndarray:
    """An activation of every value, float32."""
    if activation == "none":
        return x
    active: np.ndarray = np.tanh(x) if activation == "tanh" else np.maximum(x, 0)
    return active


def pool(x: np.ndarray, layer: PoolLayer, activation: Activation) -> np.ndarray:
    """The pooled maps of x (n, C, H, W), float32, activated: the largest after pooling, averages before."""
    _, height, width = layer.gives
    if layer.kind == "max":
        return activate(_reduce_windows(_reduce_windows(x, layer, height, 2), layer, width, 3), activation)
    sums = _reduce_windows(_reduce_windows(activate(x, activation), layer, height, 2), layer, width, 3)
    rows, columns = (
        np.minimum(layer.size, extent - layer.size * np.arange(count))
        for extent, count in ((layer.H, height), (layer.W, width))
    )
    averages: np.ndarray = sums / np.outer(rows, columns).astype(np.float32)
    return averages


def _reduce_windows(x: np.ndarray, layer: PoolLayer, count: int, axis: int) -> np.ndarray:
    """Sums or largest values of `count` windows along one axis."""
    combine, nothing = (np.maximum, -np.inf) if layer.kind == "max" else (np.add, 0)
    end = count * layer.size
    if (left_over := end - x.shape[axis]) > 0:
        x = np.pad(x, [(0, left_over * (each == axis)) for each in range(x.ndim)], constant_values=nothing)
    ahead = (slice(None),) * axis
    return functools.reduce(combine, (x[(*ahead, slice(place, end, layer.size))] for place in range(layer.size)))


def _load_cpu(variant: Variant, network: Network, parameters: dict[str, np.ndarray], library: Path | None) -> Predict:
    steps = list(fused_steps(network))

    @functools.cache
    def prepared(n: int, conv: Case) -> Operation:
        return cpp_compiler.prepare(variant, conv.at(n), library)

    def predict(images: np.ndarray) -> tuple[np.ndarray, list[float]]:
        op_s = dict.fromkeys(network.convs, 0.0)
        labels = np.empty(len(images), np.uint8)
        for start in range(0, len(images), CPU_CHUNK):
            x = fashion_mnist.normalize(images[start : start + CPU_CHUNK], network, np.float32)
            for step in steps:
                layer = step.layer
                if isinstance(layer, PoolLayer):
                    x = pool(x, layer, step.activation)
                    continue
                if not isinstance(layer, DenseLayer):
                    y = np.empty((len(x), *layer.gives), np.float32)
                    operation = prepared(len(x), layer)  # the last chunk may be shorter
                    began = perf_counter()
                    returned = operation(x, parameters[f"{layer.name}.weight"], y)
                    op_s[layer] += perf_counter() - began
                    x = y if returned is None else returned
                else:
                    w, b = parameters[f"{layer.name}.weight"], parameters[f"{layer.name}.bias"]
                    x = x.reshape(len(x), -1) @ w.T + b
                x = activate(x, step.activation)
            labels[start : start + CPU_CHUNK] = x.argmax(axis=1)
        return labels, list(op_s.values())

    return predict


def _load_gpu(variant: Variant, network: Network, parameters: dict[str, np.ndarray]) -> Predict:
    import cupy

    from warpbook.harness import gpu_bench

    loaded = GpuNetwork(variant, network, parameters)

    def predict(images: np.ndarray) -> tuple[np.ndarray, list[float]]:
        op_s = []

        def timed(name: str, operation: Operation, *arrays: "cupy.ndarray") -> Any:
            cupy.cuda.runtime.deviceSynchronize()
            with gpu_bench.nvtx_range(name):
                began = perf_counter()
                returned = operation(*arrays)
                cupy.cuda.runtime.deviceSynchronize()
                op_s.append(perf_counter() - began)
            return returned

        with gpu_bench.nvtx_range("images to the device"):
            x = cupy.asarray(fashion_mnist.normalize(images, network, np.float32))
        scores = loaded.scores(x, timed)
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
        """The score of each class, (n, classes), of x (n, channels, height, width) float32: ordered, not waited for.

        `call` gets a convolution's name, operation and arrays, and may time it.
        """
        for step in fused_steps(self._network):
            layer = step.layer
            if isinstance(layer, PoolLayer):
                with self._marked("pool" if step.activation == "none" else f"{step.activation}, pool"):
                    x = self.around.pool(x, layer, step.activation)
            elif isinstance(layer, DenseLayer):
                with self._marked("fully connected"):
                    w, b = self._parameters[f"{layer.name}.weight"], self._parameters[f"{layer.name}.bias"]
                    x = self.around.dense(x.reshape(len(x), -1), w, b, step.activation)
            else:
                operation = self._prepare(layer, len(x))
                y = self._empty((len(x), *layer.gives), np.float32)
                w = self._parameters[f"{layer.name}.weight"]
                returned = (call or self._call)(f"{layer.name} {self._variant.name}", operation, x, w, y)
                x = y if returned is None else returned
                if step.activation != "none":
                    with self._marked(step.activation):
                        x = self.around.pool(x, PoolLayer("max", 1, False, *layer.gives), step.activation)
        return x

    def _prepare(self, layer: Case, images: int) -> Operation:
        if (layer, images) not in self._operations:
            self._operations[layer, images] = self._variant.prepare(layer.at(images), self._kernels)
        return self._operations[layer, images]

    def _call(self, name: str, operation: Operation, *arrays: "cupy.ndarray") -> Any:
        with self._marked(name):
            return operation(*arrays)


class Around:
    """The layers around the convolutions by the kernels of layers.cu, on a device's arrays or, emulated, on NumPy's.

    `function` gives a kernel by its name, `empty` an array of a shape and type.
    """

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

    def pool(self, x: "cupy.ndarray", layer: PoolLayer, activation: Activation) -> "cupy.ndarray":
        """The pooled maps of x (n, C, H, W), activated; of size 1, the activation alone."""
        y = self._empty((len(x), *layer.gives), np.float32)
        extents = (layer.H, layer.W, *layer.gives[1:], layer.size, layer.kind == "average", _number(activation))
        self._pool((min(1056, -(-y.size // 256)),), (256,), (x, y, np.int64(len(x) * layer.C), *map(np.int32, extents)))
        return y

    def dense(self, x: "cupy.ndarray", w: "cupy.ndarray", b: "cupy.ndarray", activation: Activation) -> "cupy.ndarray":
        """x (n, inputs) through a fully connected layer of w (outputs, inputs), activated."""
        y = self._empty((len(x), len(w)), np.float32)
        extents = (len(x), w.shape[1], len(w), _number(activation))
        self._dense((-(-len(w) // 16), -(-len(x) // 16)), (16, 16), (x, w, b, y, *map(np.int32, extents)))
        return y


def _number(activation: Activation) -> int:
    """As layers.cu counts activations."""
    return get_args(Activation).index(activation)
