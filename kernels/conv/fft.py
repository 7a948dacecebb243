"""Transforms the weights into scratch memory, then convolves tile by tile."""

import numpy as np


def prepare(kernels, layer, images, launch):
    SIDE, MAPS = kernels.constants["SIDE"], kernels.constants["MAPS"]
    weight_spectra, conv_forward = kernels.function("weight_spectra"), kernels.function("conv_forward")
    spectra = kernels.empty((layer.M, layer.C, SIDE, SIDE, 2))
    valid = SIDE - layer.K + 1
    tiles = -(-layer.W_out // valid) * -(-layer.H_out // valid)
    grid = (tiles, -(-layer.M // MAPS), -(-images // 2))
    C, K = np.int32(layer.C), np.int32(layer.K)
    extents = [np.int32(extent) for extent in (images, layer.C, layer.H, layer.W, layer.M, layer.K)]

    def call(x, w, y):
        weight_spectra((layer.C, layer.M), (SIDE,), (w, spectra, C, K))
        conv_forward(grid, (SIDE, MAPS), (x, spectra, y, *extents))

    return call
