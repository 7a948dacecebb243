"""Deals the outputs of all images to blocks, with as many outputs and channels each as shared memory has room for."""

import numpy as np


def patch(layer, tile):
    """Words that the inputs of one channel under `tile` outputs in sequence take in shared memory, at most."""
    outputs = layer.H_out * layer.W_out
    rows = 1 + (tile + layer.W_out - 2) // layer.W_out
    images = 1 + (tile + outputs - 2) // outputs
    return (rows + images * (layer.K - 1)) * layer.W


def prepare(kernels, layer, images, launch):
    names = ("WARPS", "OUTPUT_TILES", "MAP_TILES", "STEPS", "PATCH")
    WARPS, OUTPUT_TILES, MAP_TILES, STEPS, PATCH = (kernels.constants[name] for name in names)
    conv_forward = kernels.function("conv_forward")
    # All of 256, unless images are so small that their margins fill the patch.
    tile = next(tile for tile in range(WARPS * OUTPUT_TILES * 16, 0, -1) if patch(layer, tile) <= PATCH)
    fitting = min(PATCH // patch(layer, tile), STEPS * 8 // layer.K**2)
    channels = -(-layer.C // -(-layer.C // fitting))  # the same number each time, as near as can be
    grid = (-(-images * layer.H_out * layer.W_out // tile), -(-layer.M // (8 * MAP_TILES)))
    shape = (images, layer.C, layer.H, layer.W, layer.M, layer.K, tile, channels)
    extents = tuple(np.int32(extent) for extent in shape)

    def call(x, w, y):
        conv_forward(grid, (32, WARPS), (x, w, y, *extents))

    return call
