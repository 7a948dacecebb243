"""Launches a first layer and its pooling by wgmma (kernels/include/conv_pool_wgmma.cuh)."""

from typing import Any

import numpy as np
from fp16x3_launch import int32, layout_of

MOST_PARTS = 8  # blocks that share an image, where there are few: each splits all of it


def layer_weights(kernels: Any, layout: Any, name: str, w: Any, *counts: int) -> tuple[Any, Any]:
    """A layer's weights as the kernel `name` splits them, a block for each output channel: their parts in the order of wgmma's
    B, and each channel's exponent."""
    weight_parts = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layout.padded_channels,), np.int32)
    kernels.function(name)((layout.padded_channels,), (128,), (w, weight_parts, weight_exponents, *int32(*counts)))
    return weight_parts, weight_exponents


def pooled_runs(kernels: Any, network: Any, images: int, w: Any, y: Any, name: str, together: int) -> Any:
    """A function of x that launches the kernel `name`, whose results are in y. A block takes `together` images."""
    import cupy

    conv = network.convs[0]
    layout = layout_of(kernels, "runs_layout", conv.W)
    weights = layer_weights(kernels, layout, "split_runs", w, conv.W)
    function = kernels.function(name, shared_bytes=layout.shared_bytes)
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    blocks = kernels.constants["RUNS_86_BLOCKS" if conv.W == 86 else "RUNS_BLOCKS"] * processors
    across = min(-(-images // together), blocks)
    grid = (across, max(1, min(MOST_PARTS, blocks // across)))
    return lambda x: function(grid, (128,), (x, w, *weights, y, *int32(images)))
