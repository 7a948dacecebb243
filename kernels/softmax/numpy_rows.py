"""
title:     NumPy
idea:      What a NumPy user writes, a vectorised call for each step, on one core. Steps write into y.
expect:    Faster than three loops by the vectorised exponential, though every step goes through memory.
builds_on: loop_nest
device:    cpu
peer:      true
reference: https://numpy.org/doc/stable/reference/ufuncs.html
claims:
  - says:     Faster than three loops
    quantity: op_time
    change:   falls
"""

import numpy as np


def prepare(case, size):
    def call(x, y):
        np.subtract(x, x.max(axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        np.divide(y, y.sum(axis=1, keepdims=True), out=y)

    return call
