"""Unrolls one image and multiplies, image after image, through one scratch matrix."""

import numpy as np


def prepare(kernels, layer, images, launch):
    if layer.unusual or layer.optional:
        return _general(kernels, layer, images)
    TILE, THREADS = kernels.constants["TILE"], kernels.constants["THREADS"]
    unroll, conv_forward = kernels.function("unroll"), kernels.function("conv_forward")
    outputs = layer.H_out * layer.W_out
    unrolled = kernels.empty((layer.accumulation, outputs))
    copies = (-(-layer.C * outputs // THREADS),)
    tiles = (-(-outputs // TILE), -(-layer.M // TILE))
    shape = [np.int32(extent) for extent in (layer.C, layer.H, layer.W, layer.K)]
    extents = [np.int32(extent) for extent in (layer.M, layer.accumulation, outputs)]
    # Built here, because the calls below are paced by how fast Python issues them.
    numbers = [np.int32(image) for image in range(images)]
    of_unroll = [(unrolled, number, *shape) for number in numbers]
    of_product = [(number, *extents) for number in numbers]

    def call(x, w, y):
        for unrolling, product in zip(of_unroll, of_product, strict=True):
            unroll(copies, (THREADS,), (x, *unrolling))
            conv_forward(tiles, (TILE, TILE), (unrolled, w, y, *product))

    return call


def _general(kernels, layer, images):
    """The same with strides, padding, dilation and bias; a launch multiplies all groups."""
    TILE, THREADS = kernels.constants["TILE"], kernels.constants["THREADS"]
    unroll, conv_general = kernels.function("unroll_general"), kernels.function("conv_general")
    outputs, maps, products = layer.H_out * layer.W_out, layer.M // layer.G, layer.accumulation
    unrolled = kernels.empty((layer.G * products, outputs))
    copies = (-(-layer.C * outputs // THREADS),)
    tiles = (-(-outputs // TILE), -(-maps // TILE), layer.G)
    names = ("C", "H", "W", "K", "KW", "H_out", "W_out", "S", "SW", "P", "PW", "D", "DW")
    shape = [np.int32(layer.extents[name]) for name in names]
    extents = [np.int32(extent) for extent in (maps, products, outputs)]
    numbers = [np.int32(image) for image in range(images)]
    of_unroll = [(unrolled, number, *shape) for number in numbers]
    of_product = [(number, *extents) for number in numbers]
    no_bias = np.intp(0)

    def call(x, w, *rest):
        *given, y = rest
        bias = given[0] if given else no_bias
        for unrolling, product in zip(of_unroll, of_product, strict=True):
            unroll(copies, (THREADS,), (x, *unrolling))
            conv_general(tiles, (TILE, TILE), (unrolled, w, bias, y, *product))

    return call
