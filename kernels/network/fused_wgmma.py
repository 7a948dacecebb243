"""Plans a network of one or two convolutions, every layer by wgmma, as one CUDA graph."""

from typing import NamedTuple

import cupy
import fused_conv_fc_algebra
import fused_mma
import numpy as np
from conv_pool_wgmma import layer_weights, pooled_runs
from dense_few import few_connected
from dense_wgmma import ROWS, in_order_of_tiles, many_connected, tiled_inputs
from fp16x3_launch import int32, layout_of, persistent_grid

CHANNELS = 56  # of outputs, at most, of a first layer by windows
CLASSES = 10  # at most
MOST_HIDDEN = 1024  # values of the hidden layer
GROUPS = 26  # of a tile's images, for classify_shares


class Runs(NamedTuple):
    """A first layer of few channels. together: images of a block, where there are many."""

    kernel: str
    channels: int
    together: int
    few: int  # images, at most: many small blocks are faster for them


RUNS = {  # by W
    48: Runs("48_5", 6, 2, few=1100),
    64: Runs("64_5", 6, 2, few=850),
    72: Runs("72_7", 12, 1, few=550),
    86: Runs("86_7", 4, 1, few=1000),
}
FEW_OF_WINDOWS = 380


def unsupported(network):
    if reason := fused_mma.unsupported(network):
        return reason
    conv, runs = network.convs[0], RUNS.get(network.convs[0].W)
    if fused_mma.form(network) == "cpdd":
        if (conv.W, conv.K) != (28, 5) or conv.M > CHANNELS:
            return f"with one convolution, it is of 28 x 28 pixels, 5 x 5 weights and up to {CHANNELS} output channels"
    elif not runs or runs.channels != conv.M:
        return f"no kernel here is for a first layer {conv}"
    hidden, last = network.steps[-2:]
    fits = hidden.layer.outputs <= MOST_HIDDEN and last.layer.outputs <= CLASSES
    if is_pooled_twice(network) or (fits and hidden.activation == "tanh"):
        return ""
    return f"its last kernels are for up to {MOST_HIDDEN} hidden values with tanh, and up to {CLASSES} scores"


def is_pooled_twice(network):
    return fused_mma.form(network) == "cpcpdd"


def windows(kernels, conv, images, w):
    """(a function of x that launches a first layer of many channels and its pooling, their result as `many_connected`
    takes it)."""
    layout = layout_of(kernels, "pool_windows_layout")
    weights = layer_weights(kernels, layout, "split_window_weights", w, conv.M)
    function = kernels.function("conv_pool_windows_28_5", shared_bytes=layout.shared_bytes)
    grid = persistent_grid(kernels, "WINDOWS", -(-images // 2))  # a block takes two images at a time
    y = tiled_inputs(kernels, images, conv.M, conv.H_out * conv.W_out // 4)
    extents = int32(images, conv.M)
    return lambda x: function(grid, (128,), (x, w, *weights, y, *extents)), y


def many_runs(kernels, network, images, w):
    """As `windows`, for few channels by runs of pixels."""
    conv = network.convs[0]
    runs = RUNS[conv.W]
    y = tiled_inputs(kernels, images, conv.M, conv.H_out * conv.W_out // 4)
    return pooled_runs(kernels, network, images, w, y, f"conv_pool_runs_{runs.kernel}", runs.together), y


def few_windows(kernels, conv, images, w):
    """As `windows`, for few images, the result float32."""
    function = kernels.function("conv_pool_few_28_5")
    y = kernels.empty((images, conv.M * (conv.H_out * conv.W_out // 4)))
    return lambda x: function((-(-conv.M // 10), images), (288,), (x, w, y, np.int32(conv.M))), y


def float_runs(kernels, network, images, w):
    """As `many_runs`, the result float32: for few images, or for a second convolution that is pooled."""
    y = kernels.empty((images, *network.steps[1].layer.gives))
    few = "" if is_pooled_twice(network) else "few_"
    return pooled_runs(kernels, network, images, w, y, f"conv_pool_{few}runs_{RUNS[network.convs[0].W].kernel}", 1), y


def pooled_convolution(kernels, conv, images, w, x, pool):
    """As fused_mma's `multi_channel`, for a layer that is pooled."""
    layout = layout_of(kernels, "wgmma_layout")
    weights = layer_weights(kernels, layout, "split_wgmma_weights", w)
    function = kernels.function("conv_pool_wgmma_4_7_16", layout.shared_bytes, early=True)
    grid, threads = persistent_grid(kernels, "WGMMA_4", images), (128 * (kernels.constants["WGMMA_4_GROUPS"] + 1),)
    y, exponents = kernels.empty((images, *pool.gives)), kernels.empty((images,), np.int32)
    arguments = (x, w, *weights, y, exponents, *int32(images))
    return lambda: function(grid, threads, arguments), y, exponents


def classifier_of(kernels, network, parameters):
    """As fused_mma's, for shares of `many_connected`, which come with how blocks divide the stages."""
    hidden, last = (step.layer for step in network.steps[-2:])
    function = kernels.function("classify_shares", CLASSES * hidden.outputs * 4, early=True)

    def classifier(partial, weight_exponents, *tiling):
        images, padded = partial.shape[-2:]
        fixed = (partial, weight_exponents, parameters["fc1.bias"], parameters["fc2.weight"], parameters["fc2.bias"])
        counts = int32(images, padded, hidden.outputs, last.outputs, *tiling)
        grid = (-(-(-(-images // ROWS) * GROUPS) // 8),)  # a warp each
        return lambda scores, labels: function(grid, (256,), (*fixed, scores, labels, *counts))

    return classifier


def few_classifier_of(kernels, exponents, network, parameters):
    """As fused_mma's `classifier_of`, for few images."""
    function = kernels.function("classify_few", early=True)
    hidden, last = (step.layer for step in network.steps[-2:])
    activation = fused_mma.ACTIVATIONS.index(network.steps[-2].activation)

    def classifier(partial, weight_exponents):
        shares, images, padded = partial.shape
        fixed = (weight_exponents, parameters["fc1.bias"], parameters["fc2.weight"], parameters["fc2.bias"])
        counts = int32(images, shares, padded, hidden.outputs, last.outputs, activation)
        grid, threads = (images,), (MOST_HIDDEN,)
        return lambda scores, labels: function(grid, threads, (partial, exponents, *fixed, scores, labels, *counts))

    return classifier


def prepare(kernels, network, images, parameters):
    if is_pooled_twice(network):
        return prepare_pooled(kernels, network, images, parameters)
    conv, *rest = network.convs
    w_conv, w = parameters["conv1.weight"], parameters["fc1.weight"].astype(np.float64)
    if rest:
        w = fused_conv_fc_algebra.product(*rest, parameters["conv2.weight"], parameters["fc1.weight"])
    if images > (RUNS[conv.W].few if rest else FEW_OF_WINDOWS):
        first, x = many_runs(kernels, network, images, w_conv) if rest else windows(kernels, conv, images, w_conv)
        classify = classifier_of(kernels, network, parameters)
        connected = many_connected(kernels, images, x, in_order_of_tiles(w, conv.M), classify)
    else:
        first, x = float_runs(kernels, network, images, w_conv) if rest else few_windows(kernels, conv, images, w_conv)
        exponents = cupy.zeros(images, np.int32)  # tanh gives at most 1
        classify = few_classifier_of(kernels, exponents, network, parameters)
        connected = few_connected(kernels, images, x, exponents, w, classify)

    def order(pixels, scores, labels):
        first(pixels)
        connected(scores, labels)

    return fused_mma.as_graph(order)


def prepare_pooled(kernels, network, images, parameters):
    """The call for a network whose second layer is pooled."""
    w = parameters["fc1.weight"].astype(np.float64)
    first, x = float_runs(kernels, network, images, parameters["conv1.weight"])
    conv, pool = (step.layer for step in network.steps[2:4])
    second, pooled, exponents = pooled_convolution(kernels, conv, images, parameters["conv2.weight"], x, pool)
    few = images <= RUNS[network.convs[0].W].few and len(w) <= MOST_HIDDEN
    connect, classifier = (
        (few_connected, few_classifier_of) if few else (fused_mma.fully_connected, fused_mma.classifier_of)
    )
    connected = connect(kernels, images, pooled, exponents, w, classifier(kernels, exponents, network, parameters))

    def order(pixels, scores, labels):
        first(pixels)
        second()
        connected(scores, labels)

    return fused_mma.as_graph(order)
