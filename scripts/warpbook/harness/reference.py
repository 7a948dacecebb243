"""The float64 reference that every result is compared with, computed apart from the code under test."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from warpbook.kernels.headers import Header
from warpbook.kernels.variants import PRECISIONS, Variant
from warpbook.problems import fashion_mnist, problem
from warpbook.problems.layers import Activation, DenseLayer, PoolLayer
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case

# The rounding error of a long sum grows like a random walk and stays within this many standard deviations.
# (Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41, 2019.)
DEVIATIONS = 10

ERROR_MAX = 1e140
"""Errors are no larger, so that their squares add up to a number."""

ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Unit roundoff of types that an output may be stored in, where it is coarser than float32's."""


def convolve(x: np.ndarray, w: np.ndarray, stride: int = 1, padding: int = 0) -> np.ndarray:
    """The convolution that `conv` describes, float64, of x (N, C, H, W) and w (M, C, K, K)."""
    reference = problem.find("conv").module.reference
    y: np.ndarray = reference(x.astype(np.float64), w.astype(np.float64), S=stride, P=padding)
    return y


def activate(x: np.ndarray, activation: Activation, slope: float = 0.0) -> np.ndarray:
    """An activation of every value; `slope` is leaky_relu's."""
    functions: dict[Activation, Callable[[], np.ndarray]] = {
        "none": lambda: x,
        "tanh": lambda: np.tanh(x),
        "relu": lambda: np.maximum(x, 0),
        "sigmoid": lambda: 0.5 * (1 + np.tanh(0.5 * x)),
        "leaky_relu": lambda: np.where(x < 0, slope * x, x),
    }
    return functions[activation]()


def pool(x: np.ndarray, layer: PoolLayer) -> np.ndarray:
    """The pooled maps of x (n, C, H, W): along columns, and then along rows."""
    reduce = np.max if layer.kind == "max" else np.mean
    rows = np.stack([reduce(x[:, :, top:bottom], axis=2) for top, bottom in layer.spans(0)], axis=2)
    return np.stack([reduce(rows[..., left:right], axis=3) for left, right in layer.spans(1)], axis=3)


@dataclass(frozen=True)
class Difference:
    """How an output differs from the float64 reference; values that are not finite are counted apart. `magnitude` is
    the natural unit of a value's rounding error, `worst_unit` the largest error in that unit."""

    max_abs_err: float
    worst_unit: float
    rel_l2_err: float
    max_magnitude: float
    not_finite: int


def magnitudes(case: Case, inputs: Mapping[str, Any], xp: Any) -> dict[str, Any]:
    """The unit of each output's rounding error: the problem's `magnitude`, else the reference of absolute inputs."""
    if hasattr(case.problem.module, "magnitude"):
        return problem.compute(case, inputs, xp, "magnitude")
    return problem.compute(case, {name: abs(problem.widen(values, xp)) for name, values in inputs.items()}, xp)


def differences(
    case: Case, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> dict[str, Difference]:
    """The difference of each output, by name, from the problem's reference."""
    expected, units = problem.compute(case, inputs, np), magnitudes(case, inputs, np)
    return {name: difference(found, expected[name], units[name]) for name, found in outputs.items()}


def difference(found: np.ndarray, expected: np.ndarray, magnitude: np.ndarray) -> Difference:
    """The difference between an output and the float64 values that it should have."""
    err = np.abs(found.astype(np.float64) - expected)
    finite = np.isfinite(err)
    err, expected, magnitude = np.minimum(err[finite], ERROR_MAX), expected[finite], magnitude[finite]
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
    case: Case, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], tolerance: float
) -> str:
    """How many values differ from the reference by more than the tolerance, the first of them, and whether they are the
    right values in other places, as a part of a sentence; empty where none differs by so much."""
    every = problem.compute(case, inputs, np)
    for name, found in outputs.items():
        expected = every[name]
        wrong = ~(np.abs(found.astype(np.float64) - expected) <= tolerance)
        if not wrong.any():
            continue
        first = np.unravel_index(wrong.argmax(), wrong.shape)
        extents = ", ".join(map(str, case.arrays[name].shape))
        place = f"{name}[{', '.join(map(str, first))}] (of [{extents}])"
        words = f"{wrong.sum()} of {wrong.size} outputs are wrong, the first {place}: {found[first]:.6g} in place of "
        words += f"{expected[first]:.6g}"
        ordered = np.sort(found, axis=None), np.sort(expected, axis=None)
        moved = np.isfinite(found).all() and np.abs(ordered[0] - ordered[1]).max() <= tolerance
        hint = f"; every value is there, in another's place: is {name} indexed in the order of its extents?"
        return words + hint * bool(moved)
    return ""


def unit_error(case: Case, variant: Variant) -> float:
    """Largest error allowed to a value, as a share of the magnitude behind it.

    n terms of a sum in the accumulation's unit roundoff u: at most (n + 1) u (Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1), and statistically `DEVIATIONS` * sqrt(n + 1) u, whichever is less; the first is
    a theorem on plain sums, so for a method that is not direct the second alone. Twice the operands' unit roundoff
    besides where the precision class rounds them first; FP16 may also add up some terms in it (`fp16_sums`).
    """
    accumulation, operand = PRECISIONS[variant.header.precision]
    terms = case.sums + 1
    summed = DEVIATIONS * math.sqrt(terms)
    if variant.header.method == "direct":
        summed = min(terms, summed)
    roundings = 2 + (case.value(case.problem.facts.fp16_sums) if variant.header.precision == "fp16" else 0)
    stored = max((ROUNDOFF.get(one.dtype, 0.0) for one in case.problem.outputs.values()), default=0.0)
    return summed * accumulation + roundings * operand + stored


def outputs(network: Network, parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """A network's float64 results for images (n, channels, height, width) of 0 to 255: logits (n, 10), or maps."""
    x = fashion_mnist.normalize(images, network, np.float64)
    for step in network.steps:
        layer = step.layer
        if isinstance(layer, Case):
            inputs = {"x": x, "w": parameters[f"{layer.name}.weight"]}
            inputs |= {name: parameters[f"{layer.name}.{name}"] for name in layer.optional}
            x = problem.compute(layer.at(len(x)), inputs, np)["y"]
        elif isinstance(layer, PoolLayer):
            x = pool(x, layer)
        elif isinstance(layer, DenseLayer):
            w, b = (parameters[f"{layer.name}.{part}"].astype(np.float64) for part in ("weight", "bias"))
            x = x.reshape(len(x), -1) @ w.T + b
        x = activate(x, step.activation, step.slope)
    return x


def scores(network: Network, parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
    """A network's float64 scores (n, classes) for images (n, channels, height, width), a few at a time."""
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
        layer.inputs if isinstance(layer, DenseLayer) else layer.sums
        for layer in (step.layer for step in network.steps)
        if not isinstance(layer, PoolLayer)
    ]
    return sum(deviations * math.sqrt(n + 1) * accumulation + 2 * operand for n in terms)


def max_label_differences(precision: str, images: int) -> int:
    """Images whose label rounding may change: those whose two best classes nearly tie."""
    return max(1, images // (1000 if precision == "fp32" else 100))
