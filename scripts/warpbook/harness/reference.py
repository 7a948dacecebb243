"""The float64 reference that every result is compared with, computed apart from the code under test."""

import math
from dataclasses import dataclass

import numpy as np

from warpbook.kernels.headers import Header
from warpbook.kernels.variants import PRECISIONS, Variant
from warpbook.problems import fashion_mnist
from warpbook.problems.layers import Activation, ConvLayer, DenseLayer, PoolLayer
from warpbook.problems.networks import Network

# The rounding error of a long sum grows like a random walk and stays within this many standard deviations.
# (Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, 2019.)
DEVIATIONS = 10


def convolve_by_definition(x: np.ndarray, w: np.ndarray, stride: int = 1, padding: int = 0) -> np.ndarray:
    """y (N, M, H_out, W_out) in float64 from x (N, C, H, W) and w (M, C, K, K): the course's seven loops, slow and
    obvious."""
    N, C, H, W = x.shape
    M, _, K, _ = w.shape
    H_out, W_out = ((extent + 2 * padding - K) // stride + 1 for extent in (H, W))
    y = np.zeros((N, M, H_out, W_out))
    for n in range(N):
        for m in range(M):
            for h in range(H_out):
                for v in range(W_out):
                    for c in range(C):
                        for p in range(K):
                            for q in range(K):
                                row, column = h * stride + p - padding, v * stride + q - padding
                                if 0 <= row < H and 0 <= column < W:
                                    y[n, m, h, v] += float(x[n, c, row, column]) * float(w[m, c, p, q])
    return y


def convolve(x: np.ndarray, w: np.ndarray, stride: int = 1, padding: int = 0) -> np.ndarray:
    """The same convolution in float64: each image's windows as the columns of a matrix, and one matrix product."""
    K = w.shape[2]
    rows = w.reshape(len(w), -1).astype(np.float64)
    edge = (padding, padding)
    results = []
    for image in x:  # one at a time: its columns take K*K times its memory
        padded = np.pad(image.astype(np.float64), ((0, 0), edge, edge))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (K, K), axis=(1, 2))[:, ::stride, ::stride]
        columns = windows.transpose(0, 3, 4, 1, 2).reshape(rows.shape[1], -1)
        results.append((rows @ columns).reshape(len(w), *windows.shape[1:3]))
    return np.stack(results)


def activate(x: np.ndarray, activation: Activation) -> np.ndarray:
    """An activation of every value."""
    if activation == "none":
        return x
    active: np.ndarray = np.tanh(x) if activation == "tanh" else np.maximum(x, 0)
    return active


def pool(x: np.ndarray, layer: PoolLayer) -> np.ndarray:
    """The pooled maps of x (n, C, H, W), window by window."""
    _, height, width = layer.gives
    reduce, size = (np.max if layer.kind == "max" else np.mean), layer.size
    pooled = np.empty((*x.shape[:2], height, width))
    for row in range(height):
        for column in range(width):
            window = x[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size]
            pooled[:, :, row, column] = reduce(window, axis=(2, 3))
    return pooled


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


def difference(x: np.ndarray, w: np.ndarray, y: np.ndarray, stride: int = 1, padding: int = 0) -> Difference:
    """The difference between y and the float64 convolution of x and w."""
    expected, magnitude = convolve(x, w, stride, padding), convolve(np.abs(x), np.abs(w), stride, padding)
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


def describe_mismatch(
    x: np.ndarray, w: np.ndarray, y: np.ndarray, tolerance: float, stride: int = 1, padding: int = 0
) -> str:
    """How many outputs differ from the float64 convolution by more than the tolerance, the first of them, and whether
    they are the right values in other places, as a part of a sentence; empty where none differs by so much."""
    expected = convolve(x, w, stride, padding)
    wrong = ~(np.abs(y - expected) <= tolerance)
    if not wrong.any():
        return ""
    first = np.unravel_index(wrong.argmax(), wrong.shape)
    place = f"y[{', '.join(map(str, first))}] (image, map, row, column)"
    words = f"{wrong.sum()} of {wrong.size} outputs are wrong, the first {place}: {y[first]:.6g} in place of "
    words += f"{expected[first]:.6g}"
    moved = np.isfinite(y).all() and np.abs(np.sort(y, axis=None) - np.sort(expected, axis=None)).max() <= tolerance
    return words + "; every value is there, in another's place: is y indexed in the order of its extents?" * bool(moved)


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


def outputs(network: Network, parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """What a network gives for images (n, channels, height, width) of 0 to 255, everything in float64: logits (n, 10),
    or a workload's maps."""
    x = fashion_mnist.normalize(images, network, np.float64)
    for step in network.steps:
        layer = step.layer
        if isinstance(layer, ConvLayer):
            x = convolve(x, parameters[f"{layer.name}.weight"], layer.S, layer.P)
        elif isinstance(layer, PoolLayer):
            x = pool(x, layer)
        elif isinstance(layer, DenseLayer):
            w, b = (parameters[f"{layer.name}.{part}"].astype(np.float64) for part in ("weight", "bias"))
            x = x.reshape(len(x), -1) @ w.T + b
        x = activate(x, step.activation)
    return x


def scores(network: Network, parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """What a network gives for images (n, channels, height, width), (n, classes), computed in float64, a few images at
    a time; the largest of an image's is its label."""
    parts = [images[start : start + 25] for start in range(0, len(images), 25)]
    return np.concatenate([outputs(network, parameters, part) for part in parts])


def labels(network: Network, parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """Predicted labels (n,) of images (n, channels, height, width), uint8, computed in float64."""
    found: np.ndarray = scores(network, parameters, images).argmax(axis=1).astype(np.uint8)
    return found


def network_error(network: Network, header: Header) -> float:
    """Norm of the error of a network's scores over the norm of the scores, as far as the precision class and the method
    that an implementation declares explain it.

    For each layer in turn the rounding of a sum of n products, sqrt(n) u, and twice the operands' unit roundoff where
    the class rounds them: errors of many scores add up as their squares do, so the norm stays near one deviation where
    a single output may reach `DEVIATIONS`. Three deviations for a method that is not direct: cuDNN's choice for one
    network and batch, in FP32, was seen at 2.3.
    """
    accumulation, operand = PRECISIONS[header.precision]
    deviations = 1 if header.method == "direct" else 3
    terms = [
        layer.accumulation if isinstance(layer, ConvLayer) else layer.inputs
        for layer in (step.layer for step in network.steps)
        if not isinstance(layer, PoolLayer)
    ]
    return sum(deviations * math.sqrt(n + 1) * accumulation + 2 * operand for n in terms)


def max_label_differences(precision: str, images: int) -> int:
    """Images whose label rounding may change: those whose two best classes nearly tie."""
    return max(1, images // (1000 if precision == "fp32" else 100))
