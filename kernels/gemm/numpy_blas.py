"""
title:     NumPy's BLAS
idea:      What a NumPy user gets from `a @ b`, on all cores.
expect:    Tens of times faster than three loops, being blocked for the caches, vectorised, and on every core.
builds_on: loop_nest
device:    cpu
peer:      true
method:    any
limits:    {m: 4096, n: 4096, k: 4096}
reference: https://numpy.org/doc/stable/reference/generated/numpy.matmul.html
claims:
  - says:     Tens of times faster than three loops
    quantity: op_time
    change:   falls
    by:       90 %
"""

import numpy as np


def prepare(case, size):
    def call(a, b, c):
        np.matmul(a, b, out=c)

    return call
