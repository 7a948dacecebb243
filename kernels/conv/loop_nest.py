"""
title:     Seven loops, one thread
idea:      The course's definition of the layer as it is written down, compiled by Numba, one
           output after the other on one core. What a first CPU implementation is.
expect:    The slow end of every comparison. A few cycles for each product, for the sum over
           c, p and q is one chain of dependent additions.
device:    cpu
every_case: true
reference: https://numba.readthedocs.io/en/stable/user/5minguide.html
claims:
  - says:     The slow end of every comparison
    undecidable: it is the baseline of every CPU variant and has none of its own
"""

import numpy as np
from numba import njit


@njit("void(float32[:,:,:,::1], float32[:,:,:,::1], float32[:,:,:,::1])", cache=True, nogil=True)
def _convolve(x, w, y):
    N, C = x.shape[0], x.shape[1]
    M, K = w.shape[0], w.shape[2]
    H_out, W_out = y.shape[2], y.shape[3]
    for n in range(N):
        for m in range(M):
            for h in range(H_out):
                for v in range(W_out):
                    total = y.dtype.type(0)
                    for c in range(C):
                        for p in range(K):
                            for q in range(K):
                                total += x[n, c, h + p, v + q] * w[m, c, p, q]
                    y[n, m, h, v] = total


def _general():
    """The same with strides, padding, dilation, groups and bias; compiled where a case has one of them."""

    @njit(
        "void(float32[:,:,:,::1], float32[:,:,:,::1], float32[::1], float32[:,:,:,::1],"
        " int64, int64, int64, int64, int64, int64, int64)",
        cache=True,
        nogil=True,
    )
    def convolve(x, w, bias, y, S, SW, P, PW, D, DW, G):
        H, W = x.shape[2], x.shape[3]
        N, M, H_out, W_out = y.shape
        channels, K, KW = w.shape[1], w.shape[2], w.shape[3]
        for n in range(N):
            for m in range(M):
                first = m // (M // G) * channels
                for h in range(H_out):
                    for v in range(W_out):
                        total = y.dtype.type(0)
                        for c in range(channels):
                            for p in range(K):
                                i = h * S + p * D - P
                                if i < 0 or i >= H:
                                    continue
                                for q in range(KW):
                                    j = v * SW + q * DW - PW
                                    if 0 <= j < W:
                                        total += x[n, first + c, i, j] * w[m, c, p, q]
                        y[n, m, h, v] = total + bias[m]

    return convolve


def prepare(layer, images):
    if not layer.unusual and not layer.optional:
        return _convolve
    convolve, no_bias = _general(), np.zeros(layer.M, np.float32)
    numbers = (layer.S, layer.SW, layer.P, layer.PW, layer.D, layer.DW, layer.G)

    def call(x, w, *rest):
        *given, y = rest
        convolve(x, w, given[0] if given else no_bias, y, *numbers)

    return call
