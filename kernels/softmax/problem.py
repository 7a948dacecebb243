"""
title: Softmax of rows

extents: {rows: rows, columns: values of a row}
inputs:  {x: {shape: [rows, columns], shift: 110}}     # beyond what an exponential of FP32 holds
outputs: {y: [rows, columns]}
flops:   5 * rows * columns     # maximum, difference, exponential, sum, quotient
sums:    columns
exact:   false
ragged:
  - {rows: 1, columns: 1}
  - {rows: 3, columns: 17}
  - {rows: 65, columns: 33}
  - {rows: 131, columns: 4}
  - {rows: 5, columns: 1000}
  - {rows: 7, columns: 1029}
  - {rows: 6, columns: 1030}
  - {rows: 2, columns: 8197}
  - {rows: 3, columns: 32764}
  - {rows: 2, columns: 33001}
precision:
  - {rows: 33, columns: 31}
  - {rows: 33, columns: 260}
  - {rows: 33, columns: 2052}
  - {rows: 33, columns: 16388}
aliases:
  rows: [row, m, M, N, batch, batch_size, num_rows, B, T, height, H]
  columns: [column, col, n, C, cols, D, dim, num_cols, V, vocab, width, W, hidden, classes, size, len,
    d_model, hidden_size, hidden_dim, embed_dim, features]
  x: [input, inp, in, a, src, logits, scores]
  y: [output, out, b, dst, probs, result, res]
"""


def reference(x, xp):
    exponentials = xp.exp(x - x.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def magnitude(x, xp):
    """The unit of an output's rounding error. The argument of the exponential is a difference, times log2(e): it is off
    by up to 3 roundings of itself, which the exponential turns into a relative error, and by 2 of the maximum where that is
    multiplied apart. A few more are its own and the quotient's. What is below float32's normal numbers may be 0."""
    largest = x.max(axis=1, keepdims=True)
    return reference(x, xp) * (4 + 3 * (largest - x) + 2 * abs(largest)) + 2.0**-100
