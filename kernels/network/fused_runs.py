"""Plans a network: its first layer by wgmma from runs of pixels, a pooled second layer by wgmma, the rest as
fused_wgmma or fused_mma has it."""

from typing import NamedTuple

import cupy
import fused_conv_fc_algebra
import fused_cublas
import fused_mma
import fused_wgmma
import numpy as np
from conv_pool_wgmma import pooled_runs
from dense_few import few_connected
from fp16x3_launch import int32, layout_of, persistent_grid


class Runs(NamedTuple):
    """A first layer. together: images of a block; plane: values from one channel of split results to the next."""

    kernel: str
    channels: int
    together: int
    plane: int


SPLIT_RUNS = {48: Runs("48_5", 6, 2, 496), 64: Runs("64_5", 6, 2, 912), 72: Runs("72_7", 12, 1, 1104)}  # by W


def unsupported(network):
    if reason := fused_mma.unsupported(network):
        return reason
    conv, form = network.convs[0], fused_mma.form(network)
    if form == "cpcpdd":
        return "" if (conv.W, conv.M) == (86, 4) else f"no kernel here is for a first layer {conv}"
    if form != "cpcdd" or conv.W not in SPLIT_RUNS or SPLIT_RUNS[conv.W].channels != conv.M:
        return f"no kernel here is for a first layer {conv}, or it takes another second layer"
    return fused_wgmma.unsupported_end(network)


def is_pooled_twice(network):
    return fused_mma.form(network) == "cpcpdd"


def first_layer(kernels, network, images, w):
    """(a function of x that launches the first layer and its pooling, their result).

    The result is as fused_mma's: float32 where the second layer is pooled, else split, and channels are in planes.
    """
    conv = network.convs[0]
    if is_pooled_twice(network):
        y = kernels.empty((images, *network.steps[1].layer.gives))
        return pooled_runs(kernels, network, images, w, y, "conv_pool_runs_86_7", 1), y
    runs = SPLIT_RUNS[conv.W]
    y = kernels.empty((images, 2, conv.M * runs.plane), np.float16)
    y[...] = 0  # between planes too, where weights of zero meet it
    return pooled_runs(kernels, network, images, w, y, f"conv_pool_split_runs_{runs.kernel}", runs.together), y


def few_runs(kernels, network, w, y):
    """A function of x that launches the first layer; y: its result, float32."""
    name = f"conv_pool_few_runs_{SPLIT_RUNS[network.convs[0].W].kernel}"
    return pooled_runs(kernels, network, len(y), w, y, name, 1)


def in_planes(conv, w):
    """Weights (outputs, inputs) of the first layer's split results."""
    windows = w.shape[1] // conv.M
    planes = cupy.zeros((len(w), conv.M, SPLIT_RUNS[conv.W].plane))
    planes[:, :, :windows] = cupy.asarray(w).reshape(len(w), conv.M, windows)
    return planes.reshape(len(w), -1)


def pooled_convolution(kernels, conv, images, w, x, pool):
    """As fused_mma's `multi_channel`, for a layer that is pooled."""
    layout = layout_of(kernels, "wgmma_layout")
    weight_parts = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layout.padded_channels,), np.int32)
    arguments = (w, weight_parts, weight_exponents)
    kernels.function("split_wgmma_weights")((layout.padded_channels,), (128,), arguments)
    function = kernels.function("conv_pool_wgmma_4_7_16", shared_bytes=layout.shared_bytes)
    grid, threads = persistent_grid(kernels, "WGMMA_4", images), (128 * (kernels.constants["WGMMA_4_GROUPS"] + 1),)
    y, exponents = kernels.empty((images, *pool.gives)), kernels.empty((images,), np.int32)
    arguments = (x, w, weight_parts, weight_exponents, y, exponents, *int32(images))
    return lambda: function(grid, threads, arguments), y, exponents


def prepare(kernels, network, images, parameters):
    w_conv, w = parameters["conv1.weight"], parameters["fc1.weight"].astype(np.float64)
    if is_pooled_twice(network):
        return prepare_pooled(kernels, network, images, parameters, w_conv, w)
    w = fused_conv_fc_algebra.product(network.convs[1], parameters["conv2.weight"], parameters["fc1.weight"])
    if images <= fused_wgmma.FEW_IMAGES:
        x = kernels.empty((images, w.shape[1]))
        first = few_runs(kernels, network, w_conv, x)
        exponents = cupy.zeros(images, np.int32)  # tanh gives at most 1
        classify = fused_wgmma.few_classifier_of(kernels, exponents, network, parameters)
        connected = few_connected(kernels, images, x, exponents, w, classify)
        as_call = fused_mma.as_graph
    else:
        first, x = first_layer(kernels, network, images, w_conv)
        classify = fused_wgmma.classifier_of(kernels, network, parameters)
        connected = fused_cublas.fully_connected(kernels, images, x, in_planes(network.convs[0], w), classify)

        def as_call(order):  # CuPy lets cuBLAS into no graph
            return order

    def order(pixels, scores, labels):
        first(pixels)
        connected(scores, labels)

    return as_call(order)


def prepare_pooled(kernels, network, images, parameters, w_conv, w):
    """The call for a network whose second layer is pooled."""
    first, x = first_layer(kernels, network, images, w_conv)
    conv, pool = (step.layer for step in network.steps[2:4])
    second, pooled, exponents = pooled_convolution(kernels, conv, images, parameters["conv2.weight"], x, pool)
    few = images <= fused_wgmma.FEW_IMAGES
    classifier_of = fused_wgmma.few_classifier_of if few else fused_mma.classifier_of
    connect = few_connected if few else fused_mma.fully_connected
    connected = connect(kernels, images, pooled, exponents, w, classifier_of(kernels, exponents, network, parameters))

    def order(pixels, scores, labels):
        first(pixels)
        second()
        connected(scores, labels)

    return fused_mma.as_graph(order)
