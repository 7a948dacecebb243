"""Splits the weights into scratch memory, and launches the kernel for this layer."""

import numpy as np

LATER = {  # by C, H, K, M: the kernel, and what its constants' names begin with
    (12, 33, 7, 24): ("later_12_7_24", "LATER_12"),
    (6, 30, 5, 16): ("later_6_30_5_16", "LATER_6_30"),
    (6, 22, 5, 16): ("later_6_22_5_16", "LATER_6_22"),
    (4, 40, 7, 16): ("later_4_7_16", "LATER_4"),
}


def int32(*values):
    return [np.int32(value) for value in values]


def prepare(kernels, layer, images, launch):
    return first_layer(kernels, layer, images) if layer.C == 1 else later_layer(kernels, layer, images)


def first_layer(kernels, layer, images):
    """The call for the first layer of 4 maps."""
    parts = kernels.empty((layer.K * 32, 2), np.uint32)
    arguments, threads = int32(layer.K), kernels.constants["FIRST_86_THREADS"]
    split, shared = "split_first_weights", layer.H * layer.W * 4
    return with_split_weights(
        kernels, layer, images, split, arguments, parts, "first_86_7", "FIRST_86", threads, shared
    )


def later_layer(kernels, layer, images):
    """The call for a layer of several channels."""
    name, constants = LATER[layer.C, layer.H, layer.K, layer.M]
    rows, groups = (kernels.constants[f"{constants}_{each}"] for each in ("ROWS", "GROUPS"))
    # As in Layer of the .cu.
    bands = -(-layer.H_out // rows)
    steps = -(-layer.K * layer.C // 16)
    words = layer.C // 2
    skew = (layer.W_out - rows * layer.W) % (16 if words % 2 else 8)
    last = bands * rows + layer.K - 2
    plane = (last * layer.W + last // rows * skew + layer.W_out - 1) * words + steps * 8
    parts = kernels.empty((2 * (steps * (layer.K + 1) + 1) * layer.M * 16,), np.float16)
    place, results = -(-plane // 4) * 32, layer.M * layer.H_out * layer.W_out * 4
    gathered = results % 16 == 0 and parts.nbytes + 2 * (place + results) <= 230000
    shared = parts.nbytes + 2 * (place + gathered * results) + 4 * 8
    arguments, threads = int32(layer.C, layer.M, layer.K), 128 * (groups + 1)
    split = "split_later_weights"
    return with_split_weights(kernels, layer, images, split, arguments, parts, name, constants, threads, shared)


def with_split_weights(kernels, layer, images, split, arguments, parts, name, constants, threads, shared):
    """A call that splits the weights before the launch."""
    import cupy

    split = kernels.function(split)
    function = kernels.function(name, shared_bytes=shared)
    exponents = kernels.empty((layer.M,), np.int32)
    listed, add_up = fp32_sums(kernels, layer, images)
    blocks = kernels.constants[f"{constants}_BLOCKS"]
    grid = (min(images, blocks * cupy.cuda.Device().attributes["MultiProcessorCount"]),)

    def call(x, w, y):
        split((layer.M,), (128,), (w, parts, exponents, listed, *arguments))
        function(grid, (threads,), (x, parts, exponents, listed, y, np.int32(images)))
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
