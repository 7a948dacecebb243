"""
title: Sum of n values

extents: {n: values}
inputs:  {x: [n]}
outputs: {y: [1]}
flops:   n
sums:    n
exact:   true
baseline: interleaved
cpu_baseline: loop
ragged:
  - {n: 1}
  - {n: 3}
  - {n: 31}
  - {n: 257}
  - {n: 1000}
  - {n: 4098}
  - {n: 70001}
  - {n: 262148}
precision:     # the order of the sum decides its error
  - {n: 256}
  - {n: 4096}
  - {n: 65536}
  - {n: 1048576}
  - {n: 16777216}
aliases:
  n: [N, size, len, length, count, num, elements, num_elements, array_size, total, data_size, input_size,
      elems, n_elem, items, num_items, vector_size, arr_size]
  x: [input, in, g_idata, idata, d_in, a, data, array, arr, src, v, vec, values, inp]
  y: [output, out, g_odata, odata, d_out, result, res, sum, total_sum, dst, r]
"""


def reference(x):
    return x.sum(keepdims=True)


def alternatives(x, n):
    """What those compute who mistake the problem, in words, and what they get."""
    yield "takes the maximum of the values; this is their sum", x.max(keepdims=True)
    yield "takes the minimum of the values; this is their sum", x.min(keepdims=True)
    yield "divides the sum by n, which a mean does", x.sum(keepdims=True) / n
