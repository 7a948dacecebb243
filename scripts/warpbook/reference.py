"""The float64 reference that every result is compared with, computed apart from the code under test."""

import math
from dataclasses import dataclass

import numpy as np

from warpbook.networks import ConvLayer, Network
from warpbook.variants import PRECISIONS, Variant

# The rounding error of a long sum grows like a random walk and stays within this many standard deviations.
# (Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, 2019.)
DEVIATIONS = 10


def convolve_by_definition(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """y (N, M, H-K+1, W-K+1) in float64 from x (N, C, H, W) and w (M, C, K, K): the course's seven loops, slow and
    obvious."""
    N, C, H, W = x.shape
    M, _, K, _ = w.shape
    y = np.zeros((N, M, H - K + 1, W - K + 1))
    for n in range(N):
        for m in range(M):
            for h in range(H - K + 1):
                for v in range(W - K + 1):
                    for c in range(C):
                        for p in range(K):
                            for q in range(K):
                                y[n, m, h, v] += float(x[n, c, h + p, v + q]) * float(w[m, c, p, q])
    return y


def convolve(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The same convolution in float64: each image's windows as the columns of a matrix, and one matrix product."""
    N, C = x.shape[:2]
    M, _, K, _ = w.shape
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (K, K), axis=(2, 3))
    H_out, W_out = windows.shape[2:4]
    columns = windows.transpose(0, 1, 4, 5, 2, 3).reshape(N, C * K * K, H_out * W_out)
    return (w.reshape(M, -1).astype(np.float64) @ columns).reshape(N, M, H_out, W_out)


@dataclass(frozen=True)
class Difference:
    """How a float32 result differs from the float64 reference.

    `magnitude` of an output is the sum of |x||w| behind it, the natural unit of its rounding error; `worst_unit` is the
    largest error in that unit. Values that are not finite are counted and left out of the rest.
    """

    max_abs_err: float
    worst_unit: float
    rel_l2_err: float
    max_magnitude: float
    not_finite: int


def difference(x: np.ndarray, w: np.ndarray, y: np.ndarray) -> Difference:
    """The difference between y and the float64 convolution of x and w."""
    expected, magnitude = convolve(x, w), convolve(np.abs(x), np.abs(w))
    err = np.abs(y - expected)
    finite = np.isfinite(err)
    err, expected, magnitude = err[finite], expected[finite], magnitude[finite]
    with np.errstate(divide="ignore", invalid="ignore"):
        units = np.where(err > 0, err / magnitude, 0.0)
    return Difference(
        max_abs_err=float(err.max(initial=0)),
        worst_unit=float(units.max(initial=0)),
        rel_l2_err=float(np.linalg.norm(err) / (np.linalg.norm(expected) or 1)),
        max_magnitude=float(magnitude.max(initial=0)),
        not_finite=int((~finite).sum()),
    )


def unit_error(layer: ConvLayer, variant: Variant) -> float:
    """Largest error allowed to an output, as a share of the sum of |x||w| behind it.

    n = C*K*K products and additions in the accumulation's unit roundoff u: at most (n + 1) u (Higham, Accuracy and
    Stability of Numerical Algorithms, section 3.1), and statistically `DEVIATIONS` * sqrt(n + 1) u, whichever is
    less; the first is a theorem on plain sums, so for a method that is not direct the second alone. Twice the operands'
    unit roundoff besides where the precision class rounds them first; FP16 may also add up a row of K taps in it.
    """
    accumulation, operand = PRECISIONS[variant.header.precision]
    terms = layer.accumulation + 1
    summed = DEVIATIONS * math.sqrt(terms)
    if variant.header.method == "direct":
        summed = min(terms, summed)
    roundings = 2 + (layer.K if variant.header.precision == "fp16" else 0)
    return summed * accumulation + roundings * operand


def logits(network: Network, parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Logits (n, 10) of images (n, 1, side, side), everything in float64."""
    x = images.astype(np.float64)
    for number, conv in enumerate(network.convs):
        x = convolve(x, parameters[f"{conv.name}.weight"])
        if number == 0:
            n, maps, height, width = x.shape
            x = np.tanh(x.reshape(n, maps, height // 2, 2, width // 2, 2).max(axis=(3, 5)))
    x = np.tanh(x.reshape(len(x), -1) @ parameters["fc1.weight"].T.astype(np.float64) + parameters["fc1.bias"])
    outputs: np.ndarray = x @ parameters["fc2.weight"].T.astype(np.float64) + parameters["fc2.bias"]
    return outputs


def labels(network: Network, parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Predicted labels (n,) of images (n, 1, side, side), computed in float64, a few images at a time."""
    parts = [images[start : start + 25] for start in range(0, len(images), 25)]
    return np.concatenate([logits(network, parameters, part).argmax(axis=1) for part in parts]).astype(np.uint8)


def labels_allowed_to_differ(variant: Variant, images: int) -> int:
    """Images whose label rounding may change: those whose two best classes nearly tie."""
    return max(1, images // (1000 if variant.header.precision == "fp32" else 100))
