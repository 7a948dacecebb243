"""
title:     Second convolution and fully connected layer as one matrix
idea:      The last convolution of these networks and the fully connected layer are both linear, so that they are one
           matrix, computed once in float64. The convolution is never computed, and the GEMM is smaller, for it sums
           over the convolution's inputs, fewer than its outputs. Else as fused_mma.
expect:    The second convolution's time is gone, and the fully connected layer's falls as its inputs do. Fewer
           roundings, for one sum takes the place of two.
builds_on: fused_mma
split:     {precision: fp16, products: 3}
method:    any
least_arch: sm_80
"""

import cupy
import fused_mma
import numpy as np


def unsupported(network):
    if fused_mma.form(network) != "cpcdd":
        return "no convolution here feeds a fully connected layer without pooling or an activation between"
    return fused_mma.unsupported(network)


def product(conv, w_conv, w_dense):
    """A convolution and the fully connected layer behind it as one matrix (outputs, C * H * W), float64."""
    dense = w_dense.astype(np.float64).reshape(-1, conv.M, conv.H_out, conv.W_out)
    weights = w_conv.astype(np.float64)
    matrix = cupy.zeros((len(dense), conv.C, conv.H, conv.W))
    for p in range(conv.K):
        for q in range(conv.K):
            part = cupy.einsum("omhv,mc->ochv", dense, weights[:, :, p, q], optimize=True)
            matrix[:, :, p : p + conv.H_out, q : q + conv.W_out] += part
    return matrix.reshape(len(dense), -1)


def prepare(kernels, network, images, parameters, scale=None):
    first, later = network.convs
    launch, x = fused_mma.single_channel(kernels, first, images, parameters["conv1.weight"], scale=scale)
    w = product(later, parameters["conv2.weight"], parameters["fc1.weight"])
    exponents = cupy.zeros(images, np.int32)  # tanh gives at most 1
    classify = fused_mma.classifier_of(kernels, exponents, network, parameters)
    connected = fused_mma.fully_connected(kernels, images, x, exponents, w, classify)

    def order(x, scores, labels):
        launch(x)
        connected(scores, labels)

    return fused_mma.as_graph(order)


def prepare_bytes(kernels, network, images, parameters):
    return prepare(kernels, network, images, parameters, network.input.scale)
