"""Launches the fully connected layers of a network for many images (kernels/include/dense_wgmma.cuh)."""

from typing import Any

import numpy as np

ROWS, INPUTS = 128, 32  # images of a tile, inputs of a stage
MOST_SHARES = 12  # blocks of a tile, where there are few tiles: each writes all sums, which the last layer reads


def tiled_inputs(kernels: Any, images: int, channels: int, values: int) -> Any:
    """Zeros for a layer's inputs, so many values of each channel: parts, float16, in the order of the kernel's stages."""
    x = kernels.empty((-(-images // ROWS), -(-channels // 2) * -(-values // 16), 2, ROWS, INPUTS), np.float16)
    x[...] = 0
    return x


def in_order_of_tiles(w: Any, channels: int) -> Any:
    """Weights (outputs, inputs) of those inputs. A stage has 16 values of two channels."""
    of_channels = w.reshape(len(w), channels, -1)
    padded = np.pad(of_channels, ((0, 0), (0, -channels % 2), (0, -of_channels.shape[2] % 16)))
    pairs = padded.reshape(len(w), padded.shape[1] // 2, 2, padded.shape[2] // 16, 16)
    return pairs.transpose(0, 1, 3, 2, 4).reshape(len(w), -1)


def many_connected(kernels: Any, images: int, x: Any, w: Any, classifier: Any) -> Any:
    """As fused_mma's `fully_connected`, for x of `tiled_inputs`, times 2^SCALE_EXPONENT, and w `in_order_of_tiles`.
    `classifier` also takes how blocks divide the stages."""
    import cupy
    import fused_mma
    from fp16x3_launch import int32, layout_of

    outputs, steps = len(w), x.shape[1]
    layout = layout_of(kernels, "dense_wgmma_layout", outputs)
    width = layout.padded_channels
    tiles, stages = -(-outputs // width), len(x) * steps
    hi, lo, weight_exponents = fused_mma.split_weights(w, (tiles * width, steps * INPUTS))
    weights = in_stages(hi, lo, width)
    blocks = min(cupy.cuda.Device().attributes["MultiProcessorCount"] // tiles, len(x) * MOST_SHARES, stages)
    partial = kernels.empty((most_shares(stages, steps, blocks), images, tiles * width))
    dense = kernels.function(f"dense_wgmma_{width}", shared_bytes=layout.shared_bytes, early=True)
    classify = classifier(partial, weight_exponents, stages, steps, blocks)
    extents = int32(images, steps, tiles * width)

    def launch(scores: Any, labels: Any) -> None:
        dense((tiles, blocks), (384,), (x, weights, partial, *extents))
        classify(scores, labels)

    return launch


def in_stages(hi: Any, lo: Any, width: int) -> Any:
    """Parts of weights (outputs, inputs) in the order of the kernel's stages."""
    # (tile, 8 outputs, output, stage, 16 inputs, 8 inputs, input)
    parts = [part.reshape(-1, width // 8, 8, hi.shape[1] // INPUTS, 2, 2, 8) for part in (hi, lo)]
    return np.stack([part.transpose(0, 3, 4, 1, 5, 2, 6) for part in parts], axis=3).copy()


def most_shares(stages: int, steps: int, blocks: int) -> int:
    """How many blocks at most have stages of one tile."""
    owners = [((stage + 1) * blocks - 1) // stages for stage in range(stages)]
    return max(owners[first + steps - 1] - owners[first] + 1 for first in range(0, stages, steps))
