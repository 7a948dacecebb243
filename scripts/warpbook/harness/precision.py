"""How far a variant's results are from float64, over the length of its sums and the range of its inputs, beside those
of the direct convolution on the very same inputs."""

from collections.abc import Iterator
from dataclasses import astuple, replace

import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking
from warpbook.harness.bench import Bench
from warpbook.harness.checking import Row
from warpbook.harness.reference import Difference
from warpbook.kernels.variants import Variant
from warpbook.problems import networks
from warpbook.problems.networks import ConvLayer

CLASS_RATIO = 2
"""A result is of FP32's class where its relative L2 error is at most so many times that of the direct convolution."""

IMAGES = 4
_CHANNELS_AND_TAPS = ((1, 1), (1, 3), (1, 5), (1, 7), (6, 5), (6, 7), (12, 7), (24, 7), (48, 7), (96, 7))
# Three maps: the weights of the longest sums still fit constant memory. No extent is a multiple of a tile.
LENGTHS = tuple(ConvLayer("", C, 26, 35, 3, K) for C, K in _CHANNELS_AND_TAPS)

EXPONENTS = {"reals": (0, 0), "small": (-20, 0), "large": (20, 0), "mixed": (0, 0), "subnormal": (-130, 30)}
"""Kinds of inputs: the powers of two that the reals in [-1, 1) of x and of w are scaled by. Products of subnormal
inputs are normal numbers again."""

MIXED_EXPONENT = 12


def layers() -> list[ConvLayer]:
    """Layers whose sums grow longer, then those of the networks, each shape once: some kernels are for them alone."""
    every = [*LENGTHS, *(conv for network in networks.all_networks().values() for conv in network.convs)]
    return [replace(layer, name=shape) for shape, layer in {str(layer): layer for layer in every}.items()]


def draw_inputs(layer: ConvLayer, images: int, inputs: str) -> tuple[np.ndarray, np.ndarray]:
    """x and w of a kind, float32: the same whenever they are drawn."""
    generator = np.random.default_rng([*astuple(layer)[1:], images, list(EXPONENTS).index(inputs)])
    shapes = (layer.x_shape(images), layer.w_shape)
    x, w = (generator.integers(-(1 << 24), 1 << 24, shape) * 2.0**-24 for shape in shapes)
    if inputs == "mixed":
        x = np.ldexp(x, generator.integers(-MIXED_EXPONENT, MIXED_EXPONENT + 1, x.shape))
    x, w = (np.ldexp(values, by).astype(np.float32) for values, by in zip((x, w), EXPONENTS[inputs], strict=True))
    return x, w


def precision_columns(variant: Variant, found: Difference, direct: Difference) -> Row:
    """The columns of PRECISION from `rel_l2_err` on."""
    reason = f"{variant.name}: {found.not_finite} outputs are NaN or infinite" if found.not_finite else ""
    return {
        "rel_l2_err": None if reason else found.rel_l2_err,
        "direct_rel_l2_err": direct.rel_l2_err,
        "fp32_class": not reason and found.rel_l2_err <= CLASS_RATIO * direct.rel_l2_err,
        "status": "wrong_result" if reason else "ok",
        "reason": reason,
    }


def precision_row(variant: Variant, layer: ConvLayer | None, inputs: str, columns: Row) -> Row:
    """A row of PRECISION without its variant's name, its errors empty where nothing was compared."""
    place = {"products": layer.accumulation, "images": IMAGES} if layer else {"products": None, "images": None}
    nothing = {"rel_l2_err": None, "direct_rel_l2_err": None, "fp32_class": False}
    said = {"inputs": inputs, "layer": layer.name if layer else "", "precision": variant.header.precision}
    return {**said, **place, **nothing, **columns}


def measure_layer(bench: Bench, variant: Variant, direct: Variant, layer: ConvLayer) -> list[Row]:
    """A row for each kind of inputs; one alone where the variant cannot compute the layer. A failure ends them with the
    row that names it."""
    if reason := variant.problem or variant.unsupported(layer, IMAGES):
        status = "compile_failed" if variant.problem else "unsupported"
        return [precision_row(variant, layer, "", {"status": status, "reason": reason})]
    rows: list[Row] = []
    inputs = ""
    try:
        with checking.device_fault_context(variant):
            operations = []
            for one in (direct, variant):
                with checking.fault_context(one, "prepared"):
                    operations.append((one, bench.prepare(one, layer, IMAGES)))
            x, w, y = map(bench.allocate_guarded, (layer.x_shape(IMAGES), layer.w_shape, layer.y_shape(IMAGES)))
            for inputs in EXPONENTS:
                for buffer, values in zip((x, w), draw_inputs(layer, IMAGES, inputs), strict=True):
                    bench.copy_in(buffer.values, values)
                differences = []
                for one, operation in operations:
                    result = checking.guarded_call(bench, one, operation, x, w, y)
                    differences.append(bench.compare(layer, x.values, w.values, result))
                by_direct, by_variant = differences
                rows.append(precision_row(variant, layer, inputs, precision_columns(variant, by_variant, by_direct)))
    except VariantFailure as failure:
        rows.append(precision_row(variant, layer, inputs, failure.columns))
    return rows


def measure(bench: Bench, variant: Variant, direct: Variant) -> Iterator[list[Row]]:
    """The rows of each layer in turn that `direct` computes, up to a failure that every later one would repeat."""
    for layer in layers():
        if direct.unsupported(layer, IMAGES):
            continue
        rows = measure_layer(bench, variant, direct, layer)
        yield rows
        if rows[-1]["status"] in ("compile_failed", "launch_failed"):
            return  # after a fault, no CUDA call of this process succeeds
