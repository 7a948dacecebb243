"""What launchers share whose kernels multiply FP32 values as hi and lo FP16 parts (kernels/include/fp16_split.cuh)."""

from typing import Any, NamedTuple

import numpy as np

from warpbook.kernels.variants import Operation
from warpbook.problems.networks import ConvLayer


class Layout(NamedTuple):
    """What a .cu file says of a kernel's memory. padded_channels: of outputs, with those of zeros."""

    padded_channels: int
    weight_bytes: int
    shared_bytes: int


def int32(*values: int) -> list[np.int32]:
    """Numbers as kernels take them."""
    return [np.int32(value) for value in values]


def layout_of(kernels: Any, name: str, *arguments: int) -> Layout:
    """The layout that a kernel of the .cu file computes, so that it is written once."""
    values = kernels.empty((len(Layout._fields),), np.int32)
    kernels.function(name)((1,), (1,), (values, *int32(*arguments)))
    return Layout(*map(int, values))


def persistent_grid(kernels: Any, constants: str, images: int) -> tuple[int]:
    """The grid of a kernel whose blocks take one image after another, as many as the device holds at a time.
    `constants` is what the names of the kernel's constants begin with."""
    import cupy

    blocks = kernels.constants[f"{constants}_BLOCKS"] * cupy.cuda.Device().attributes["MultiProcessorCount"]
    return (min(images, blocks),)


def split_and_launch(
    kernels: Any,
    layer: ConvLayer,
    images: int,
    layout: Layout,
    split: str,
    split_extents: list[np.int32],
    name: str,
    grid: tuple[int],
    threads: int,
    extents: list[np.int32],
) -> Operation:
    """A call that splits the weights by the kernel `split`, launches the kernel `name`, and then computes in FP32 what
    FP16 parts cannot hold."""
    split_weights, function = kernels.function(split), kernels.function(name, shared_bytes=layout.shared_bytes)
    weight_parts = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layout.padded_channels,), np.int32)
    fallback_list, fall_back = fp32_fallback(kernels, layer, images)
    channels = (layout.padded_channels,)

    def call(x: Any, w: Any, y: Any) -> None:
        split_weights(channels, (128,), (w, weight_parts, weight_exponents, fallback_list, *split_extents))
        function(grid, (threads,), (x, weight_parts, weight_exponents, fallback_list, y, *extents))
        fall_back(x, w, y)

    return call


def fp32_fallback(kernels: Any, layer: ConvLayer, images: int) -> tuple[Any, Operation]:
    """(the list of images with values that FP16 parts cannot hold, a function of x, w and y that computes them)."""
    import cupy

    fallback_list = kernels.empty((2 + 2 * images,), np.int32)
    outputs = layer.H_out * layer.W_out
    function = kernels.function("fp32_fallback_kernel", shared_bytes=outputs * 4 + layer.H * layer.W)
    grid = (min(images, 4 * cupy.cuda.Device().attributes["MultiProcessorCount"]),)
    threads = (kernels.constants["FP32_THREADS"],)
    extents = int32(layer.C, layer.H, layer.W, layer.M, layer.K)
    return fallback_list, lambda x, w, y: function(grid, threads, (x, w, fallback_list, y, *extents))
