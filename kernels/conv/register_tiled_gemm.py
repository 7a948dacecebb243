"""Deals the outputs of all images to blocks, as many to each as its patch of inputs has room for."""

import numpy as np


def patch(layer, tile):
    """Words that the inputs of one channel under `tile` outputs in sequence take in shared memory, at most."""
    outputs = layer.H_out * layer.W_out
    rows = 1 + (tile + layer.W_out - 2) // layer.W_out
    images = 1 + (tile + outputs - 2) // outputs
    pitch = layer.W_out + -(-(layer.K - 1) // 32) * 32
    return (rows + images * (layer.K - 1)) * pitch


def prepare(kernels, layer, images, launch):
    WARPS, OUTPUTS, MAPS, PATCH = (kernels.constants[name] for name in ("WARPS", "OUTPUTS", "MAPS", "PATCH"))
    conv_forward = kernels.function("conv_forward")
    # All of 512, unless images are so small that their margins fill the patch.
    tile = next(tile for tile in range(32 * WARPS * OUTPUTS, 0, -1) if patch(layer, tile) <= PATCH)
    grid = (-(-images * layer.H_out * layer.W_out // tile), -(-layer.M // MAPS))
    shape = (images, layer.C, layer.H, layer.W, layer.M, layer.K, tile)
    extents = tuple(np.int32(extent) for extent in shape)

    def call(x, w, y):
        conv_forward(grid, (32, WARPS), (x, w, y, *extents))

    return call
