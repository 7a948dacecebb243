"""Splits the weights into scratch memory, and launches the kernel for this layer, or the general one."""

from typing import NamedTuple

import numpy as np


class Compiled(NamedTuple):
    """A kernel of the .cu file: what it is compiled for, and what its constants' names begin with."""

    name: str
    maps: int  # at most
    pixels: int  # at most
    constants: str


LATER = {  # by C, K
    (12, 7): Compiled("later_12_7_24", 24, 1089, "LATER_12"),
    (6, 5): Compiled("later_6_5_16", 16, 900, "LATER_6"),
    (4, 7): Compiled("later_4_7_16", 16, 1600, "LATER_4"),
}
FIRST = {  # by W, K
    (28, 5): Compiled("first_28_5", 64, 784, "FIRST_28"),
    (48, 5): Compiled("first_48_5", 6, 2304, "FIRST_5"),
    (64, 5): Compiled("first_64_5", 6, 4096, "FIRST_5"),
    (72, 7): Compiled("first_72_7", 12, 5184, "FIRST_72"),
    (86, 7): Compiled("first_86_7", 4, 7396, "FIRST_86"),
}


def prepare(kernels, layer, images, launch):
    return first_layer(kernels, layer, images) or later_layer(kernels, layer, images) or general(kernels, layer, images)


def fits(compiled, layer):
    """Whether there is a kernel, and it holds the layer's maps and pixels."""
    return compiled is not None and compiled.maps >= layer.M and compiled.pixels >= layer.H * layer.W


def int32(*values):
    return [np.int32(value) for value in values]


def first_layer(kernels, layer, images):
    """The call for a layer of one channel; None where no kernel fits."""
    compiled = FIRST.get((layer.W, layer.K)) if layer.C == 1 else None
    if not fits(compiled, layer) or layer.H_out * layer.W_out % 4:
        return None
    shifts = 9 - layer.K
    column_tiles = -(-compiled.maps * shifts // 8)
    maps = column_tiles * 8 // shifts
    split = kernels.function("split_first_weights")
    parts = kernels.empty((column_tiles * layer.K * 32, 2), np.uint32)
    shared = layer.H * layer.W * 4
    if compiled.maps > 12:
        shared += parts.nbytes
    arguments = int32(layer.M, layer.K)
    extents = int32(images, layer.H, layer.M)
    return with_split_weights(kernels, compiled, layer, images, split, maps, parts, arguments, extents, shared)


def later_layer(kernels, layer, images):
    """The call for a layer of several channels; None where no kernel fits."""
    compiled = LATER.get((layer.C, layer.K))
    if not fits(compiled, layer):
        return None
    # Vectors of outputs, and of inputs, must not straddle maps or rows.
    if (layer.C != 12 and layer.H_out * layer.W_out % 4) or (layer.C == 6 and layer.W % 2):
        return None
    row = -(-layer.K * layer.C // 4)
    steps = layer.K * (row // 4) + -(-layer.K * (row % 4) // 4)
    maps = -(-compiled.maps // 8) * 8
    split = kernels.function("split_later_weights")
    parts = kernels.empty((steps, maps // 8, 32, 4), np.uint32)
    together = 2 if layer.C % 4 else 1
    fours = together * layer.C // 4
    pitch = (layer.W + 3) // 8 * 8 + 4 if layer.C == 4 else layer.W
    copy = ((layer.H * pitch // together + 1) * fours + 3) // 8 * 8 + 4
    shared = parts.nbytes + together * copy * 16
    arguments = int32(layer.C, layer.M, layer.K)
    extents = int32(images, layer.H, layer.W, layer.M)
    return with_split_weights(kernels, compiled, layer, images, split, maps, parts, arguments, extents, shared)


def with_split_weights(kernels, compiled, layer, images, split, maps, parts, arguments, extents, shared):
    """A call that splits the weights before the launch; None where the device has too little shared memory."""
    import cupy

    device = cupy.cuda.Device().attributes
    if shared + 1024 > device["MaxSharedMemoryPerBlockOptin"]:
        return None
    function = kernels.function(compiled.name, shared_bytes=shared)
    exponents = kernels.empty((maps,), np.int32)
    listed, add_up = fp32_sums(kernels, layer, images)
    threads, blocks = (kernels.constants[f"{compiled.constants}_{extent}"] for extent in ("THREADS", "BLOCKS"))
    grid = (min(images, blocks * device["MultiProcessorCount"]),)

    def call(x, w, y):
        split((maps,), (128,), (w, parts, exponents, listed, *arguments))
        function(grid, (threads,), (x, parts, exponents, listed, y, *extents))
        add_up(x, w, y)

    return call


def fp32_sums(kernels, layer, images):
    """(the list of images with numbers that halves cannot hold, a function of x, w and y that orders sums for them)."""
    import cupy

    listed = kernels.empty((2 + 2 * images,), np.int32)
    outputs = layer.H_out * layer.W_out
    function = kernels.function("sum_in_fp32", shared_bytes=outputs * 4 + layer.H * layer.W)
    grid = (min(images, 4 * cupy.cuda.Device().attributes["MultiProcessorCount"]),)
    threads = (kernels.constants["FP32_THREADS"],)
    extents = int32(layer.C, layer.H, layer.W, layer.M, layer.K)
    return listed, lambda x, w, y: function(grid, threads, (x, w, listed, y, *extents))


def general(kernels, layer, images):
    """The call for any layer."""
    TILE = kernels.constants["TILE"]
    grid = (-(-layer.W_out // TILE) * -(-layer.H_out // TILE), layer.M, images)
    function = kernels.function("conv_forward")
    extents = int32(images, layer.C, layer.H, layer.W, layer.M, layer.K)

    def call(x, w, y):
        function(grid, (TILE, TILE), (x, w, y, *extents))

    return call
