"""
title:     CUB, through CuPy
idea:      What a CuPy user gets from `cupy.sum`, CUB's device-wide reduction, which CuPy calls where its accelerator
           is on. It picks vectors and blocks for the architecture.
expect:    92 % of the copy rate or more from 2^26 values on. Two launches and a copy of the result show at 2^16
           values.
builds_on: interleaved
device:    gpu
peer:      true
requires:  cupy
reference: https://docs.cupy.dev/en/stable/reference/environment.html
claims:
  - says:     92 % of the copy rate or more from 2^26 values on
    quantity: times_memory_bound
    value:    {at_most: 1.09}
    where:    {n: {at_least: 67108864}}
"""

import os

os.environ.setdefault("CUPY_ACCELERATORS", "cub")  # CuPy's own default since version 11

import cupy


def prepare(case, size):
    def call(x, y):
        cupy.sum(x, keepdims=True, out=y)

    return call
