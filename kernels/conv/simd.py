"""
title:     Vectorised rows, all cores
idea:      The innermost loop runs along a row of outputs, whose additions are independent, so the compiler makes
           vector instructions of it. K is a compile-time constant where it is 1, 3, 5 or 7, so all K weights of a row
           are in that loop. Four output channels share each input they load. Images and groups of output channels are
           divided among all cores.
expect:    Against the loops, up to the vector width times the cores, less what the loads and
           stores of partial sums cost. Ragged row ends waste part of the last vector.
builds_on: loop_nest
device:    cpu
every_case: true
reference: https://numba.readthedocs.io/en/stable/user/parallel.html
claims:
  - says:     Against the loops, up to the vector width times the cores
    quantity: op_time
    change:   falls
    by:       75 %
"""

from functools import cache

import numpy as np
from numba import njit, prange

USUAL_K, USUAL_STEPS = (1, 3, 5, 7), (1, 2)  # of a row; others share one compilation, since each takes a second
ARRAYS = "float32[:,:,:,::1], float32[:,:,:,::1], float32[::1], float32[:,:,:,::1]"
TASK = f"void({ARRAYS}, UniTuple(int64, 8), int64)"
FASTMATH = {"contract", "nsz"}


# Apart from what a task computes: the compiler takes several times as long for a parallel loop.
@njit(f"void({ARRAYS}, UniTuple(int64, 8), int64, FunctionType({TASK}))", parallel=True, cache=True)
def _on_all_cores(x, w, bias, y, numbers, tasks, compute):
    for task in prange(tasks):
        compute(x, w, bias, y, numbers, np.int64(task))


@cache
def _plain(K):
    """Four output channels of an image, for one K, which the compiler then knows."""

    @njit(TASK, cache=True, fastmath=FASTMATH, error_model="numpy")
    def compute(x, w, bias, y, numbers, task):
        C = x.shape[1]
        M, H_out, W_out = y.shape[1], y.shape[2], y.shape[3]
        groups = (M + 3) // 4
        n, m0 = task // groups, task % groups * 4
        # A short last group repeats its last map: the same values are written more than once.
        m1, m2, m3 = min(m0 + 1, M - 1), min(m0 + 2, M - 1), min(m0 + 3, M - 1)
        # Arrays of their own, so that the compiler sees that the rows cannot overlap.
        row0, row1 = np.empty(W_out, np.float32), np.empty(W_out, np.float32)
        row2, row3 = np.empty(W_out, np.float32), np.empty(W_out, np.float32)
        for h in range(H_out):
            row0[:], row1[:], row2[:], row3[:] = 0, 0, 0, 0
            for c in range(C):
                for p in range(K):
                    inputs = x[n, c, h + p]
                    taps0, taps1, taps2, taps3 = w[m0, c, p], w[m1, c, p], w[m2, c, p], w[m3, c, p]
                    for v in range(W_out):
                        sum0, sum1, sum2, sum3 = row0[v], row1[v], row2[v], row3[v]
                        for q in range(K):
                            value = inputs[v + q]
                            sum0 += value * taps0[q]
                            sum1 += value * taps1[q]
                            sum2 += value * taps2[q]
                            sum3 += value * taps3[q]
                        row0[v], row1[v], row2[v], row3[v] = sum0, sum1, sum2, sum3
            y[n, m0, h], y[n, m1, h], y[n, m2, h], y[n, m3, h] = row0, row1, row2, row3

    return compute


@cache
def _general(known_KW, known_SW, known_DW):
    """The same with strides, padding, dilation, groups and bias. A row of inputs is copied between zeros first. The
    compiler knows these numbers, or none of them: 0."""

    @njit(TASK, cache=True, fastmath=FASTMATH, error_model="numpy")
    def compute(x, w, bias, y, numbers, task):
        S, P, PW, PW_end, D, G, SW, DW = numbers
        H, W, K, KW = x.shape[2], x.shape[3], w.shape[2], w.shape[3]
        if known_KW > 0:
            KW, SW, DW = known_KW, known_SW, known_DW
        M, H_out, W_out = y.shape[1], y.shape[2], y.shape[3]
        maps, channels = M // G, x.shape[1] // G  # of a group
        sets = (maps + 3) // 4
        n, group = task // (G * sets), task // sets % G
        m0, last = group * maps + task % sets * 4, (group + 1) * maps - 1
        m1, m2, m3 = min(m0 + 1, last), min(m0 + 2, last), min(m0 + 3, last)
        inputs = np.zeros(PW + W + PW_end, np.float32)
        row0, row1 = np.empty(W_out, np.float32), np.empty(W_out, np.float32)
        row2, row3 = np.empty(W_out, np.float32), np.empty(W_out, np.float32)
        for h in range(H_out):
            row0[:], row1[:], row2[:], row3[:] = bias[m0], bias[m1], bias[m2], bias[m3]
            for c in range(channels):
                for p in range(K):
                    i = h * S + p * D - P
                    if i < 0 or i >= H:
                        continue
                    inputs[PW : PW + W] = x[n, group * channels + c, i]
                    taps0, taps1, taps2, taps3 = w[m0, c, p], w[m1, c, p], w[m2, c, p], w[m3, c, p]
                    for v in range(W_out):
                        sum0, sum1, sum2, sum3 = row0[v], row1[v], row2[v], row3[v]
                        for q in range(KW):
                            value = inputs[v * SW + q * DW]
                            sum0 += value * taps0[q]
                            sum1 += value * taps1[q]
                            sum2 += value * taps2[q]
                            sum3 += value * taps3[q]
                        row0[v], row1[v], row2[v], row3[v] = sum0, sum1, sum2, sum3
            y[n, m0, h], y[n, m1, h], y[n, m2, h], y[n, m3, h] = row0, row1, row2, row3

    return compute


def prepare(layer, images):
    plain = not layer.unusual and not layer.optional
    if plain and layer.K in USUAL_K:
        compute = _plain(layer.K)
    elif layer.KW in USUAL_K and layer.SW in USUAL_STEPS and layer.DW in USUAL_STEPS:
        compute = _general(layer.KW, layer.SW, layer.DW)
    else:
        compute = _general(0, 0, 0)
    numbers = (layer.S, layer.P, layer.PW, layer.PW_end, layer.D, layer.G, layer.SW, layer.DW)
    tasks = images * layer.G * -(-layer.M // layer.G // 4)
    no_bias = np.zeros(layer.M, np.float32)

    def call(x, w, *rest):
        *bias, y = rest
        _on_all_cores(x, w, bias[0] if bias else no_bias, y, numbers, tasks, compute)

    return call
