"""Inference of a whole network with one variant's convolution: images to labels, with each convolution's op time.

The other layers are the same for every variant. On the CPU images stream through in chunks, so that memory does not
grow with the dataset; on the GPU a layer takes all images at once, as the course's programs do.
"""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter  # by name: a launcher may replace it in its module

import numpy as np

from warpbook.harness import host
from warpbook.harness.bench import CPU_CHUNK
from warpbook.networks import Network
from warpbook.variants import Variant

Predict = Callable[[np.ndarray], tuple[np.ndarray, list[float]]]
"""Images (n, 1, side, side) uint8 to (labels (n,), seconds spent in each convolution; empty where nobody can tell)."""


def load(variant: Variant, network: Network, parameters: dict[str, np.ndarray], library: Path | None = None) -> Predict:
    """Inference with this variant, `library` the one of its C++ where it is compiled already; a framework that brings
    whole networks runs its own."""
    if variant.header.peer and variant.launcher and hasattr(variant.module, "load"):
        framework = variant.module.load(network, parameters)
        return lambda images: (framework(images.astype(np.float32)), [])
    if variant.device == "gpu":
        return _load_gpu(variant, network, parameters)
    return _load_cpu(variant, network, parameters, library)


def max_pool_tanh(x: np.ndarray) -> np.ndarray:
    """tanh of the largest of each 2x2 of x (n, maps, H, W), H and W even."""
    rows = np.maximum(x[:, :, 0::2], x[:, :, 1::2])
    pooled: np.ndarray = np.tanh(np.maximum(rows[..., 0::2], rows[..., 1::2]))
    return pooled


def _load_cpu(variant: Variant, network: Network, parameters: dict[str, np.ndarray], library: Path | None) -> Predict:
    def predict(images: np.ndarray) -> tuple[np.ndarray, list[float]]:
        op_s = [0.0] * len(network.convs)
        labels = np.empty(len(images), np.uint8)
        # The last chunk may be shorter, and an operation is prepared for its number of images.
        lengths = {min(CPU_CHUNK, len(images)), len(images) % CPU_CHUNK or CPU_CHUNK}
        operations = {(n, conv): host.prepare(variant, conv, n, library) for n in lengths for conv in network.convs}
        for start in range(0, len(images), CPU_CHUNK):
            x = images[start : start + CPU_CHUNK].astype(np.float32)
            for number, conv in enumerate(network.convs):
                y = np.empty(conv.y_shape(len(x)), np.float32)
                operation = operations[len(x), conv]
                began = perf_counter()
                returned = operation(x, parameters[f"{conv.name}.weight"], y)
                op_s[number] += perf_counter() - began
                x = y if returned is None else returned
                if number == 0:
                    x = max_pool_tanh(x)
            x = np.tanh(x.reshape(len(x), -1) @ parameters["fc1.weight"].T + parameters["fc1.bias"])
            logits = x @ parameters["fc2.weight"].T + parameters["fc2.bias"]
            labels[start : start + CPU_CHUNK] = logits.argmax(axis=1)
        return labels, op_s

    return predict


def _load_gpu(variant: Variant, network: Network, parameters: dict[str, np.ndarray]) -> Predict:
    import cupy

    from warpbook.harness import gpu

    arch = gpu.require().arch
    kernels = gpu.kernels_of(variant, arch)
    layers = gpu.project_module("layers", arch)
    max_pool_tanh, fully_connected = layers.get_function("max_pool_tanh"), layers.get_function("fully_connected")
    on_device = {name: cupy.asarray(array) for name, array in parameters.items()}

    def dense(x: cupy.ndarray, name: str, apply_tanh: bool) -> cupy.ndarray:
        w, b = on_device[f"{name}.weight"], on_device[f"{name}.bias"]
        y = cupy.empty((len(x), len(w)), np.float32)
        extents = [np.int32(extent) for extent in (len(x), w.shape[1], len(w), apply_tanh)]
        fully_connected((-(-len(w) // 16), -(-len(x) // 16)), (16, 16), (x, w, b, y, *extents))
        return y

    def predict(images: np.ndarray) -> tuple[np.ndarray, list[float]]:
        op_s = []
        with gpu.marked("images to the device"):
            x = cupy.asarray(images.astype(np.float32))
        for number, conv in enumerate(network.convs):
            operation = variant.prepare(conv, len(images), kernels)
            y = cupy.empty(conv.y_shape(len(images)), np.float32)
            cupy.cuda.runtime.deviceSynchronize()
            with gpu.marked(f"{conv.name} {variant.name}"):
                began = perf_counter()
                returned = operation(x, on_device[f"{conv.name}.weight"], y)
                cupy.cuda.runtime.deviceSynchronize()
                op_s.append(perf_counter() - began)
            x = y if returned is None else returned
            if number == 0:
                maps, height, width = conv.M, conv.H_out, conv.W_out
                with gpu.marked("tanh, pool"):
                    pooled = cupy.empty((len(images), maps, height // 2, width // 2), np.float32)
                    max_pool_tanh(
                        (1056,), (256,), (x, pooled, np.int64(len(images) * maps), np.int32(height), np.int32(width))
                    )
                x = pooled
        with gpu.marked("fully connected"):
            x = dense(x.reshape(len(images), -1), "fc1", apply_tanh=True)
            y = dense(x, "fc2", apply_tanh=False)
        with gpu.marked("labels to the host"):
            return y.get().argmax(axis=1).astype(np.uint8), op_s

    return predict
