"""
title:     Seven loops, one thread
idea:      The course's definition of the layer as it is written down, compiled by Numba, one
           output after the other on one core. What a first CPU implementation is.
expect:    The slow end of every comparison. A few cycles for each product, for the sum over
           c, p and q is one chain of dependent additions.
device:    cpu
reference: https://numba.readthedocs.io/en/stable/user/5minguide.html
claims:
  - says:     The slow end of every comparison
    undecidable: it is the baseline of every CPU variant and has none of its own
"""

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


def prepare(layer, images):
    return _convolve
