"""Arranges the weights, copies them into constant memory, and launches the kernel for this kind of layer."""

import numpy as np

BLOCKS_WANTED = 264  # two for each multiprocessor of an H200


def prepare(kernels, layer, images, launch):
    return first_layer(kernels, layer, images) or later_layer(kernels, layer, images) or general(kernels, layer, images)


def int32(*values):
    return [np.int32(value) for value in values]


def first_layer(kernels, layer, images):
    """The call for a layer of one channel; None where its kernel does not fit."""
    threads, rows, maps = (kernels.constants[f"FIRST_{name}"] for name in ("THREADS", "ROWS", "MAPS"))
    columns = -(-layer.H_out // rows) * layer.W_out
    if layer.C > 1 or layer.K not in (5, 7) or layer.H_out < rows or images * columns >= 2**31:
        return None
    grid = (-(-images * columns // threads),)
    function = kernels.function(f"first_layer_{layer.K}")
    extents = int32(images, layer.H, layer.W, layer.M)
    return with_arranged_weights(kernels, layer, maps, lambda x, y: function(grid, (threads,), (x, y, *extents)))


def later_layer(kernels, layer, images):
    """The call for a layer of several channels; None where its kernel does not fit."""
    most, rows, maps = (kernels.constants[f"LATER_{name}"] for name in ("THREADS", "ROWS", "MAPS"))
    stage = kernels.constants["STAGE"]
    columns = -(-layer.H_out // rows) * layer.W_out
    pixels = layer.H * layer.W
    if layer.K not in (5, 7) or layer.H_out < rows or columns > most or pixels > stage:
        return None
    groups = -(-layer.M // maps)
    # Fewer images in a block where there are too few to give every multiprocessor work.
    held = max(1, min(most // columns, stage // pixels, images * groups // BLOCKS_WANTED))
    channels = min(layer.C, stage // (held * pixels))
    grid = (-(-images // held), groups)
    threads = (-(-held * columns // 32) * 32,)
    function = kernels.function(f"later_layer_{layer.K}")
    extents = int32(images, layer.C, layer.H, layer.W, layer.M, layer.accumulation, held, channels)
    return with_arranged_weights(kernels, layer, maps, lambda x, y: function(grid, threads, (x, y, *extents)))


def with_arranged_weights(kernels, layer, maps, launch):
    """A call that arranges the weights for groups of `maps` maps before the launch; None where they do not fit."""
    count = -(-layer.M // maps) * maps * layer.accumulation
    if count > kernels.constants["WEIGHTS_MAX"]:
        return None
    arrange, weights = kernels.function("arrange"), kernels.symbol("weights")
    arranged = kernels.empty((count,))
    extents = int32(count, layer.C, layer.M, layer.K, maps)

    def call(x, w, y):
        arrange((-(-count // 256),), (256,), (w, arranged, *extents))
        weights.copy(arranged)
        launch(x, y)

    return call


def general(kernels, layer, images):
    """The call for any layer."""
    TILE = kernels.constants["TILE"]
    grid = (-(-layer.W_out // TILE) * -(-layer.H_out // TILE), layer.M, images)
    function, weights = kernels.function("conv_forward"), kernels.symbol("weights")
    extents = int32(images, layer.C, layer.H, layer.W, layer.M, layer.K)

    def call(x, w, y):
        weights.copy(w)
        function(grid, (TILE, TILE), (x, w, y, *extents))

    return call
