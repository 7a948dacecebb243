"""Plans a network: few images as fused_runs has them, and the fully connected layer of many images by wgmma."""

import fused_conv_fc_algebra
import fused_mma
import fused_runs
import fused_wgmma
import numpy as np
from conv_pool_wgmma import pooled_runs
from dense_wgmma import ROWS, in_order_of_tiles, many_connected, tiled_inputs
from fp16x3_launch import int32, layout_of, persistent_grid

GROUPS = 26  # of a tile's images, for classify_shares


def unsupported(network):
    if reason := planner_of(network).unsupported(network):
        return reason
    return "a pooled convolution lies before the fully connected layer" if fused_runs.is_pooled_twice(network) else ""


def planner_of(network):
    """The launcher whose first layer and few images a network has."""
    return fused_wgmma if fused_mma.form(network) == "cpdd" else fused_runs


def windows(kernels, conv, images, w):
    """(a function of x that launches fa17's first layer and its pooling, their result as `many_connected` takes it)."""
    layout = layout_of(kernels, "pool_windows_layout")
    weight_parts = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layout.padded_channels,), np.int32)
    arguments = (w, weight_parts, weight_exponents, *int32(conv.M))
    kernels.function("split_window_weights")((layout.padded_channels,), (128,), arguments)
    function = kernels.function("conv_pool_tiled_28_5", shared_bytes=layout.shared_bytes)
    grid = persistent_grid(kernels, "POOL_SPLIT_28", -(-images // 2))  # a block takes two images at a time
    y = tiled_inputs(kernels, images, conv.M, conv.H_out * conv.W_out // 4)
    extents = int32(images, conv.M)
    return lambda x: function(grid, (128,), (x, w, weight_parts, weight_exponents, y, *extents)), y


def runs(kernels, network, images, w):
    """As `windows`, for few channels by runs of pixels."""
    conv = network.convs[0]
    of = fused_runs.SPLIT_RUNS[conv.W]
    y = tiled_inputs(kernels, images, conv.M, conv.H_out * conv.W_out // 4)
    return pooled_runs(kernels, network, images, w, y, f"conv_pool_tiled_runs_{of.kernel}", of.together), y


def prepare(kernels, network, images, parameters):
    if images <= fused_wgmma.FEW_IMAGES:
        return planner_of(network).prepare(kernels, network, images, parameters)
    conv, *rest = network.convs
    w_conv, w = parameters["conv1.weight"], parameters["fc1.weight"].astype(np.float64)
    if rest:
        first, x = runs(kernels, network, images, w_conv)
        w = fused_conv_fc_algebra.product(*rest, parameters["conv2.weight"], w)
    else:
        first, x = windows(kernels, conv, images, w_conv)
    w = in_order_of_tiles(w, conv.M)
    connected = many_connected(kernels, images, x, w, classifier_of(kernels, network, parameters))

    def order(pixels, scores, labels):
        first(pixels)
        connected(scores, labels)

    return fused_mma.as_graph(order)


def classifier_of(kernels, network, parameters):
    """As fused_wgmma's, for shares of `many_connected`, which come with how blocks divide the stages."""
    hidden, last = (step.layer for step in network.steps[-2:])
    function = kernels.function("classify_shares", fused_wgmma.CLASSES * hidden.outputs * 4)

    def classifier(partial, weight_exponents, *tiling):
        images, padded = partial.shape[-2:]
        fixed = (partial, weight_exponents, parameters["fc1.bias"], parameters["fc2.weight"], parameters["fc2.bias"])
        counts = int32(images, padded, hidden.outputs, last.outputs, *tiling)
        grid = (-(-(-(-images // ROWS) * GROUPS) // 8),)  # a warp each
        return lambda scores, labels: function(grid, (256,), (*fixed, scores, labels, *counts))

    return classifier
