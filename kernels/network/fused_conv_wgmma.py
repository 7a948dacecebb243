"""Plans a network whose second convolution is pooled: that convolution by wgmma, the rest as fused_mma has it."""

import fused_mma
import numpy as np
from fp16x3_launch import int32, layout_of, persistent_grid


def unsupported(network):
    if reason := fused_mma.unsupported(network):
        return reason
    if fused_mma.form(network) != "cpcpdd":
        return "its kernel is for a second convolution with pooling behind it"
    return ""


def pooled_convolution(kernels, conv, images, w, x, pool):
    """As fused_mma's `multi_channel`, for a layer that is pooled."""
    layout = layout_of(kernels, "wgmma_layout")
    weight_parts = kernels.empty((layout.weight_bytes // 4,), np.uint32)
    weight_exponents = kernels.empty((layout.padded_channels,), np.int32)
    arguments = (w, weight_parts, weight_exponents, *int32(conv.C, conv.M, conv.K))
    kernels.function("split_wgmma_weights")((layout.padded_channels,), (128,), arguments)
    function = kernels.function("conv_pool_wgmma_4_7_16", shared_bytes=layout.shared_bytes)
    grid, threads = persistent_grid(kernels, "WGMMA_4", images), (128 * (kernels.constants["WGMMA_4_GROUPS"] + 1),)
    y, exponents = kernels.empty((images, *pool.gives)), kernels.empty((images,), np.int32)
    arguments = (x, w, weight_parts, weight_exponents, y, exponents, *int32(images))
    return lambda: function(grid, threads, arguments), y, exponents


def prepare(kernels, network, images, parameters, scale=None):
    first, x = fused_mma.single_channel(kernels, network.convs[0], images, parameters["conv1.weight"], scale=scale)
    conv, pool = (step.layer for step in network.steps[2:4])
    second, pooled, exponents = pooled_convolution(kernels, conv, images, parameters["conv2.weight"], x, pool)
    classify = fused_mma.classifier_of(kernels, exponents, network, parameters)
    w = parameters["fc1.weight"].astype(np.float64)
    connected = fused_mma.fully_connected(kernels, images, pooled, exponents, w, classify)

    def order(x, scores, labels):
        first(x)
        second()
        connected(scores, labels)

    return fused_mma.as_graph(order)


def prepare_bytes(kernels, network, images, parameters):
    return prepare(kernels, network, images, parameters, network.input.scale)
