"""Unrolls and multiplies each image on one of four streams, which take turns and own a scratch matrix each."""

from itertools import cycle

import numpy as np

STREAMS = 4


def prepare(kernels, layer, images, launch):
    TILE, THREADS = kernels.constants["TILE"], kernels.constants["THREADS"]
    unroll, conv_forward = kernels.function("unroll"), kernels.function("conv_forward")
    outputs = layer.H_out * layer.W_out
    lanes = [(stream, kernels.empty((layer.accumulation, outputs))) for stream in kernels.streams(STREAMS)]
    copies = (-(-layer.C * outputs // THREADS),)
    tiles = (-(-outputs // TILE), -(-layer.M // TILE))
    shape = [np.int32(extent) for extent in (layer.C, layer.H, layer.W, layer.K)]
    extents = [np.int32(extent) for extent in (layer.M, layer.accumulation, outputs)]
    # Built here, because the calls below are paced by how fast Python issues them.
    work = [
        (stream, unrolled, (unrolled, np.int32(image), *shape), (np.int32(image), *extents))
        for image, (stream, unrolled) in zip(range(images), cycle(lanes))
    ]

    def call(x, w, y):
        for stream, unrolled, unrolling, product in work:
            unroll(copies, (THREADS,), (x, *unrolling), stream=stream)
            conv_forward(tiles, (TILE, TILE), (unrolled, w, y, *product), stream=stream)

    return call
