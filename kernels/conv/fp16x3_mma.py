"""Splits the weights into scratch memory, and launches the kernel for this layer, or the general one."""

from typing import NamedTuple

import numpy as np


class Compiled(NamedTuple):
    """A kernel of the .cu file: what it is compiled for, and what its constants' names begin with."""

    name: str
    max_channels: int  # of outputs
    max_pixels: int
    constants: str
    weights_in_smem: bool = False


MULTI_CHANNEL = {  # by C, K
    (12, 7): Compiled("conv_multi_channel_12_7_24", 24, 1089, "MULTI_12"),
    (6, 5): Compiled("conv_multi_channel_6_5_16", 16, 900, "MULTI_6"),
    (4, 7): Compiled("conv_multi_channel_4_7_16", 16, 1600, "MULTI_4"),
}
SINGLE_CHANNEL = {  # by W, K
    (28, 5): Compiled("conv_single_channel_28_5", 64, 784, "SINGLE_28", weights_in_smem=True),
    (48, 5): Compiled("conv_single_channel_48_5", 6, 2304, "SINGLE_5"),
    (64, 5): Compiled("conv_single_channel_64_5", 6, 4096, "SINGLE_5"),
    (72, 7): Compiled("conv_single_channel_72_7", 12, 5184, "SINGLE_72"),
    (86, 7): Compiled("conv_single_channel_86_7", 4, 7396, "SINGLE_86"),
}


class Layout(NamedTuple):
    """What the .cu file says of a kernel's memory. padded_channels: of outputs, with those of zeros."""

    padded_channels: int
    weight_bytes: int
    shared_bytes: int


def prepare(kernels, layer, images, launch):
    return (
        single_channel(kernels, layer, images)
        or multi_channel(kernels, layer, images)
        or general(kernels, layer, images)
    )


def fits(compiled, layer):
    """Whether there is a kernel, and it holds the layer's output channels and pixels."""
    return compiled is not None and compiled.max_channels >= layer.M and compiled.max_pixels >= layer.H * layer.W


def int32(*values):
    return [np.int32(value) for value in values]


def layout_of(kernels, name, *arguments):
    """The layout that a kernel of the .cu file computes, so that it is written once."""
    values = kernels.empty((len(Layout._fields),), np.int32)
    kernels.function(name)((1,), (1,), (values, *int32(*arguments)))
    return Layout(*map(int, values))


def single_channel_layout(kernels, compiled, layer, has_lo_parts=True):
    arguments = (compiled.max_channels, layer.K, layer.H, layer.W, has_lo_parts, compiled.weights_in_smem)
    return layout_of(kernels, "single_channel_layout", *arguments)


def single_channel(kernels, layer, images):
    """The call for a layer of one channel; None where no kernel fits."""
    compiled = SINGLE_CHANNEL.get((layer.W, layer.K)) if layer.C == 1 else None
    if not fits(compiled, layer) or layer.H_out * layer.W_out % 4:
        return None
    layout = single_channel_layout(kernels, compiled, layer)
    split = kernels.function("split_single_channel_weights")
    split_extents, extents = int32(layer.M, layer.K), int32(images, layer.H, layer.M)
    return with_split_weights(kernels, compiled, layer, images, layout, split, split_extents, extents)


def multi_channel(kernels, layer, images):
    """The call for a layer of several channels; None where no kernel fits."""
    compiled = MULTI_CHANNEL.get((layer.C, layer.K))
    if not fits(compiled, layer):
        return None
    # Vectors of outputs, and of inputs, must not straddle channels or rows.
    if (layer.C != 12 and layer.H_out * layer.W_out % 4) or (layer.C == 6 and layer.W % 2):
        return None
    layout = layout_of(kernels, "multi_channel_layout", layer.C, layer.H, layer.W)
    split = kernels.function("split_multi_channel_weights")
    split_extents, extents = int32(layer.C, layer.M, layer.K), int32(images, layer.H, layer.W, layer.M)
    return with_split_weights(kernels, compiled, layer, images, layout, split, split_extents, extents)


def with_split_weights(kernels, compiled, layer, images, layout, split, split_extents, extents):
    """A call that splits the weights before the launch; None where the device has too little shared memory."""
    import cupy

    device = cupy.cuda.Device().attributes
    if layout.shared_bytes + 1024 > device["MaxSharedMemoryPerBlockOptin"]:
        return None
    function = kernels.function(compiled.name, shared_bytes=layout.shared_bytes)
    weight_fragments = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layout.padded_channels,), np.int32)
    fallback_list, fall_back = fp32_fallback(kernels, layer, images)
    threads, blocks = (kernels.constants[f"{compiled.constants}_{extent}"] for extent in ("THREADS", "BLOCKS"))
    grid = (min(images, blocks * device["MultiProcessorCount"]),)

    def call(x, w, y):
        split((layout.padded_channels,), (128,), (w, weight_fragments, weight_exponents, fallback_list, *split_extents))
        function(grid, (threads,), (x, weight_fragments, weight_exponents, fallback_list, y, *extents))
        fall_back(x, w, y)

    return call


def fp32_fallback(kernels, layer, images):
    """(the list of images with values that FP16 parts cannot hold, a function of x, w and y that computes them)."""
    import cupy

    fallback_list = kernels.empty((2 + 2 * images,), np.int32)
    outputs = layer.H_out * layer.W_out
    function = kernels.function("fp32_fallback_kernel", shared_bytes=outputs * 4 + layer.H * layer.W)
    grid = (min(images, 4 * cupy.cuda.Device().attributes["MultiProcessorCount"]),)
    threads = (kernels.constants["FP32_THREADS"],)
    extents = int32(layer.C, layer.H, layer.W, layer.M, layer.K)
    return fallback_list, lambda x, w, y: function(grid, threads, (x, w, fallback_list, y, *extents))


def general(kernels, layer, images):
    """The call for any layer."""
    TILE = kernels.constants["TILE"]
    grid = (-(-layer.W_out // TILE) * -(-layer.H_out // TILE), layer.M, images)
    function = kernels.function("conv_forward")
    extents = int32(images, layer.C, layer.H, layer.W, layer.M, layer.K)

    def call(x, w, y):
        function(grid, (TILE, TILE), (x, w, y, *extents))

    return call
