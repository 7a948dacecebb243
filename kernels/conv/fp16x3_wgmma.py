"""Splits the weights into scratch memory, and launches the kernel for this layer."""

from typing import NamedTuple

import numpy as np

MULTI_CHANNEL = {  # by C, H, K, M: the kernel, and what its constants' names begin with
    (12, 33, 7, 24): ("conv_multi_channel_12_7_24", "MULTI_12"),
    (6, 30, 5, 16): ("conv_multi_channel_6_30_5_16", "MULTI_6_30"),
    (6, 22, 5, 16): ("conv_multi_channel_6_22_5_16", "MULTI_6_22"),
    (4, 40, 7, 16): ("conv_multi_channel_4_7_16", "MULTI_4"),
}


class Layout(NamedTuple):
    """What the .cu file says of a kernel's memory."""

    channels: int  # of outputs
    weight_bytes: int
    shared_bytes: int


def int32(*values):
    return [np.int32(value) for value in values]


def layout_of(kernels, name, *arguments):
    """The layout that a kernel of the .cu file computes, so that it is written once."""
    values = kernels.empty((len(Layout._fields),), np.int32)
    kernels.function(name)((1,), (1,), (values, *int32(*arguments)))
    return Layout(*map(int, values))


def prepare(kernels, layer, images, launch):
    return single_channel(kernels, layer, images) if layer.C == 1 else multi_channel(kernels, layer, images)


def single_channel(kernels, layer, images):
    """The call for the first layer of 4 output channels."""
    layout = layout_of(kernels, "single_channel_layout", layer.M, layer.K, layer.H, layer.W, True, False)
    split, split_extents = kernels.function("split_single_channel_weights"), int32(layer.K)
    threads = kernels.constants["SINGLE_86_THREADS"]
    name = "conv_single_channel_86_7"
    return with_split_weights(kernels, layer, images, layout, split, split_extents, name, "SINGLE_86", threads)


def multi_channel(kernels, layer, images):
    """The call for a layer of several channels."""
    name, constants = MULTI_CHANNEL[layer.C, layer.H, layer.K, layer.M]
    groups = kernels.constants[f"{constants}_GROUPS"]
    layout = layout_of(kernels, "multi_channel_layout", layer.C, layer.H)
    split, split_extents = kernels.function("split_multi_channel_weights"), int32(layer.C, layer.M, layer.K)
    threads = 128 * (groups + 1)
    return with_split_weights(kernels, layer, images, layout, split, split_extents, name, constants, threads)


def with_split_weights(kernels, layer, images, layout, split, split_extents, name, constants, threads):
    """A call that splits the weights before the launch."""
    import cupy

    function = kernels.function(name, shared_bytes=layout.shared_bytes)
    weight_parts = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layer.M,), np.int32)
    fallback_list, fall_back = fp32_fallback(kernels, layer, images)
    blocks = kernels.constants[f"{constants}_BLOCKS"]
    grid = (min(images, blocks * cupy.cuda.Device().attributes["MultiProcessorCount"]),)

    def call(x, w, y):
        split((layer.M,), (128,), (w, weight_parts, weight_exponents, fallback_list, *split_extents))
        function(grid, (threads,), (x, weight_parts, weight_exponents, fallback_list, y, np.int32(images)))
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
