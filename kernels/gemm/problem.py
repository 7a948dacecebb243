"""
title: Matrix product C = A B

extents: {m: rows of C, n: columns of C, k: length of a sum}
inputs:  {a: [m, k], b: [k, n]}
outputs: {c: [m, n]}
flops:   2 * m * n * k
sums:    k
fp16_sums: 4
exact:   true
ragged:
  - {m: 33, n: 65, k: 17}
  - {m: 1, n: 127, k: 3}
  - {m: 70, n: 1, k: 130}
  - {m: 129, n: 31, k: 64}
  - {m: 131, n: 132, k: 36}     # rows of whole vectors of four, and more than one tile of 128
  - {m: 132, n: 260, k: 32}
  - {m: 131, n: 261, k: 67}     # no whole vectors, and more than one tile of 128 x 256
# One more than a tile of 128 and of 64. Sums grow longer.
precision:
  - {m: 129, n: 65, k: 64}
  - {m: 129, n: 65, k: 256}
  - {m: 129, n: 68, k: 1024}
  - {m: 129, n: 68, k: 4096}
  - {m: 129, n: 68, k: 16384}
aliases:
  m: [M, rows]
  n: [N, cols, columns, ldb, ldc, ldB, ldC, colsB, b_cols]
  k: [K, inner, lda, ldA, colsA, a_cols]
  a: [A, M, Md, lhs, left, mat1, matA, first, x]
  b: [B, N, Nd, rhs, right, mat2, matB, second, w]
  c: [C, Pd, out, output, result, res, matC, prod, product, dst, ans]
"""


def reference(a, b):
    return a @ b
