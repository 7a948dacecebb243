"""
title: Convolution layer

extents:
  N: images
  C: input channels
  H: rows of an input
  W: columns of an input
  M: output channels
  K: rows of a kernel
  S: {words: stride, usual: 1}
  P: {words: padding, usual: 0}
derived:
  H_out: (H + 2 * P - K) // S + 1
  W_out: (W + 2 * P - K) // S + 1
  accumulation: C * K * K
  weights: M * C * K * K

inputs:
  x: [N, C, H, W]
  w: [M, C, K, K]
outputs:
  y: [N, M, H_out, W_out]

flops: 2 * N * M * H_out * W_out * accumulation
sums: accumulation
fp16_sums: K
exact: true
size: N
batch: N
function: conv_forward
baseline: direct
label: "{C}x{H}x{W} * {M}@{K}x{K}"

# No two extents equal, none a multiple of a tile: shapes that square-minded indexing gets wrong. Tiny ones among them;
# then those where a stride leaves rows and columns over, and padding is read from all sides.
ragged:
  - {N: 2, C: 3, H: 19, W: 23, M: 5, K: 4}
  - {N: 3, C: 2, H: 33, W: 18, M: 7, K: 5}
  - {N: 1, C: 1, H: 9, W: 7, M: 2, K: 1}
  - {N: 17, C: 5, H: 12, W: 41, M: 3, K: 7}
  - {N: 5, C: 6, H: 13, W: 11, M: 16, K: 5}
  - {N: 1, C: 4, H: 5, W: 6, M: 1, K: 5}
  - {N: 2, C: 3, H: 17, W: 22, M: 5, K: 4, S: 3}
  - {N: 3, C: 2, H: 9, W: 14, M: 7, K: 5, P: 2}
  - {N: 5, C: 3, H: 18, W: 11, M: 2, K: 3, S: 2, P: 1}

# Three maps: the weights of the longest sums still fit constant memory. No extent is a multiple of a tile.
precision:
  - {C: 1, H: 26, W: 35, M: 3, K: 1}
  - {C: 1, H: 26, W: 35, M: 3, K: 3}
  - {C: 1, H: 26, W: 35, M: 3, K: 5}
  - {C: 1, H: 26, W: 35, M: 3, K: 7}
  - {C: 6, H: 26, W: 35, M: 3, K: 5}
  - {C: 6, H: 26, W: 35, M: 3, K: 7}
  - {C: 12, H: 26, W: 35, M: 3, K: 7}
  - {C: 24, H: 26, W: 35, M: 3, K: 7}
  - {C: 48, H: 26, W: 35, M: 3, K: 7}
  - {C: 96, H: 26, W: 35, M: 3, K: 7}
"""

import numpy as np


def reference(x, w, S, P):
    """Each image's windows as the columns of a matrix, and one matrix product: a cross-correlation, x being 0 outside
    the image."""
    M, _, K, _ = w.shape
    results = []
    for image in x:  # one at a time: its columns take K * K times its memory
        padded = np.pad(image, ((0, 0), (P, P), (P, P)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (K, K), axis=(1, 2))[:, ::S, ::S]
        columns = windows.transpose(0, 3, 4, 1, 2).reshape(w[0].size, -1)
        results.append((w.reshape(M, -1) @ columns).reshape(M, *windows.shape[1:3]))
    return np.stack(results)
