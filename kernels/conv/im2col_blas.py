"""
title:     Unrolled input, BLAS product
idea:      The input patches of one image are copied into the columns of a matrix
           (C*K*K x H_out*W_out); one BLAS product with the weights (M x C*K*K) gives all
           its outputs. Every input is copied up to K*K times to buy the product's speed.
expect:    Many times faster than the loops where there are many input channels. On a first layer the matrix
           is as thin as M = 6 rows, and copying costs more than multiplying.
builds_on: loop_nest
device:    cpu
every_case: true
reference: https://hal.inria.fr/inria-00112631
claims:
  - says:     Many times faster than the loops where there are many input channels
    quantity: op_time
    change:   falls
    by:       80 %
    where:    {C: {at_least: 2}}
  - says:     copying costs more than multiplying
    undecidable: its two parts are not timed apart
"""

import numpy as np


def prepare(layer, images):
    if layer.unusual or layer.optional:
        return _general(layer, images)
    K = layer.K
    columns = np.empty((layer.C, K, K, layer.H_out, layer.W_out), np.float32)

    def call(x, w, y):
        rows = w.reshape(layer.M, -1)
        for image in range(images):
            windows = np.lib.stride_tricks.sliding_window_view(x[image], (K, K), axis=(1, 2))
            columns[...] = windows.transpose(0, 3, 4, 1, 2)
            np.matmul(rows, columns.reshape(layer.accumulation, -1), out=y[image].reshape(layer.M, -1))

    return call


def _general(layer, images):
    """The same with strides, padding, dilation, bias, and a product for each group."""
    K, KW, G = layer.K, layer.KW, layer.G
    columns = np.empty((layer.C, K, KW, layer.H_out, layer.W_out), np.float32)
    padded = np.zeros((layer.C, layer.H + layer.P + layer.P_end, layer.W + layer.PW + layer.PW_end), np.float32)
    inside = padded[:, layer.P : layer.P + layer.H, layer.PW : layer.PW + layer.W]
    spans = (layer.D * (K - 1) + 1, layer.DW * (KW - 1) + 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=(1, 2))
    windows = windows[:, :: layer.S, :: layer.SW, :: layer.D, :: layer.DW].transpose(0, 3, 4, 1, 2)

    def call(x, w, *rest):
        *bias, y = rest
        rows = w.reshape(G, layer.M // G, -1)
        for image in range(images):
            inside[...] = x[image]
            columns[...] = windows
            np.matmul(rows, columns.reshape(G, layer.accumulation, -1), out=y[image].reshape(G, layer.M // G, -1))
            if bias:
                y[image] += bias[0][:, None, None]

    return call
