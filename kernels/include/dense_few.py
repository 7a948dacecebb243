"""Launches the fully connected layers of a network for few images (kernels/include/dense_few.cuh)."""

from typing import Any

ROWS, INPUTS = 64, 64  # images of a block, inputs of a chunk


def few_connected(kernels: Any, images: int, x: Any, exponents: Any, w: Any, classifier: Any) -> Any:
    """As fused_mma's `fully_connected`."""
    import cupy
    import fused_mma
    from fp16x3_launch import int32

    outputs, inputs = w.shape
    tiles = next((tiles for tiles in fused_mma.TILES if tiles * 16 >= outputs), 8)
    blocks, rows = -(-outputs // (tiles * 16)), -(-images // ROWS)
    weights, weight_exponents = fused_mma.split_matrix(w, tiles, blocks)
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    shares = max(1, min(-(-inputs // INPUTS), processors // (blocks * rows)))
    padded = blocks * tiles * 16
    partial = kernels.empty((shares, images, padded))
    dense = kernels.function(f"dense_few_{tiles}", early=True)
    classify = classifier(partial, weight_exponents)
    extents = int32(images, inputs, padded)

    def launch(scores: Any, labels: Any) -> None:
        dense((blocks, rows, shares), (256,), (x, weights, exponents, partial, *extents))
        classify(scores, labels)

    return launch
