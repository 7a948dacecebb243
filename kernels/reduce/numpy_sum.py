"""
title:     NumPy
idea:      What a NumPy user gets from `x.sum()`, pairwise from blocks of 128 values on, on one core.
expect:    Several times faster than one loop, since NumPy keeps 8 sums and adds vectors. The error grows with the
           logarithm of n.
builds_on: loop
device:    cpu
peer:      true
limits:    {n: 67108864}
reference: https://numpy.org/doc/stable/reference/generated/numpy.sum.html
claims:
  - says:     Several times faster than one loop
    quantity: op_time
    change:   falls
    by:       60 %
  - says:     The error grows with the logarithm of n
    undecidable: "one sum's error is chance, and the tests draw few; it takes the test of precision over many"
"""

import numpy as np


def prepare(case, size):
    def call(x, y):
        np.add.reduce(x, keepdims=True, out=y)

    return call
