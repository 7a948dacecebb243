"""Correctness of a variant: the same tests on the CPU and on the GPU, written so that a kernel cannot pass by chance.

Before each call the output is poisoned and ringed with guard bands, and the inputs are drawn fresh. After it the
harness looks for outputs never written, writes outside, changed inputs and work still going on, and compares every
output with the float64 convolution. Two calls with different inputs go through the same prepared operation, so that
an answer replayed from the first is wrong in the second. That finds its output as the first left it, and ordinary
numbers in the margins: a kernel that works for poison and NaNs alone is wrong there.
"""

import math
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from warpbook.common.errors import UserError
from warpbook.common.supervision import VariantFailure
from warpbook.harness import bench as benches
from warpbook.harness import reference, tamper_check
from warpbook.harness.bench import MARGIN, POISON, Bench, GuardedArray
from warpbook.kernels.variants import Variant
from warpbook.problems.networks import ConvLayer

Row = dict[str, Any]


class NamedSubject(Protocol):
    """What is checked or timed: a variant, or an implementation of a network."""

    @property
    def name(self) -> str: ...


# No two extents equal, none a multiple of a tile: shapes that square-minded indexing gets wrong. Tiny ones among them.
RAGGED_LAYERS = (
    (ConvLayer("3x19x23 * 5@4x4", 3, 19, 23, 5, 4), 2),
    (ConvLayer("2x33x18 * 7@5x5", 2, 33, 18, 7, 5), 3),
    (ConvLayer("1x9x7 * 2@1x1", 1, 9, 7, 2, 1), 1),
    (ConvLayer("5x12x41 * 3@7x7", 5, 12, 41, 3, 7), 17),
    (ConvLayer("6x13x11 * 16@5x5", 6, 13, 11, 16, 5), 5),
    (ConvLayer("4x5x6 * 1@5x5", 4, 5, 6, 1, 5), 1),
)
# Where a stride leaves rows and columns over, and padding is read from all sides.
RAGGED_STEPS = (
    (ConvLayer("3x17x22 * 5@4x4 stride 3", 3, 17, 22, 5, 4, 3), 2),
    (ConvLayer("2x9x14 * 7@5x5 padding 2", 2, 9, 14, 7, 5, 1, 2), 3),
    (ConvLayer("3x18x11 * 2@3x3 stride 2 padding 1", 3, 18, 11, 2, 3, 2, 1), 5),
)

NOT_COMPARED: Row = {
    "reference": "",
    "max_abs_err": None,
    "rel_l2_err": None,
    "tolerance": None,
    "worst_ratio": None,
    "mismatched_labels": None,
}


def ragged_cases(variant: Variant) -> list[tuple[ConvLayer, int]]:
    """The ragged layers that a variant is tested on, and images of each: with strides and padding where it is told of
    them; none where it names the layers that it is for."""
    if variant.header.limits.layers:
        return []
    return [*RAGGED_LAYERS, *(place for place in RAGGED_STEPS if not variant.missing_arguments(place[0]))]


def first_line(error: BaseException) -> str:
    """An exception on one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


@contextmanager
def fault_context(variant: NamedSubject, doing: str) -> Iterator[None]:
    """Turn whatever a variant raises while `doing` something into VariantFailure.

    Its own code may raise anything; a CUDA fault makes every later call of the process raise too.
    """
    try:
        yield
    except VariantFailure:
        raise
    except UserError as error:
        raise VariantFailure("compile_failed", str(error)) from error
    except Exception as error:
        raise VariantFailure(_fault_status(error), f"{variant.name}, {doing}: {first_line(error)}") from error


@contextmanager
def device_fault_context(variant: NamedSubject) -> Iterator[None]:
    """Turn what the device raises in the harness's own calls into VariantFailure: it is lost, or has no memory left.

    Anything else is a fault of the harness, and stays one.
    """
    try:
        yield
    except VariantFailure:
        raise
    except Exception as error:
        of_cupy = any(kind.__module__.partition(".")[0] in ("cupy", "cupy_backends") for kind in type(error).__mro__)
        if not of_cupy and not isinstance(error, MemoryError):
            raise
        raise VariantFailure(
            _fault_status(error), f"{variant.name}, while the harness used the device: {first_line(error)}"
        ) from error


def _fault_status(error: Exception) -> str:
    out_of_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return "unsupported" if out_of_memory else "launch_failed"


def reject_replaced_functions(variant: NamedSubject) -> None:
    """Raises VariantFailure where a variant's code replaced a function that measures or judges it."""
    if names := tamper_check.replaced_functions():
        raise VariantFailure(
            "refused", f"{variant.name} replaces {', '.join(names[:3])}, by which the harness judges it"
        )


def reject_lazy_result(variant: NamedSubject, returned: Any, y: Any) -> None:
    """Raises VariantFailure where a call returned something, and no array like `y`."""
    if returned is not None and type(returned) is not type(y):
        raise VariantFailure(
            "wrong_result",
            f"{variant.name} returns a {type(returned).__name__}, not an array: it may compute when it is read",
        )


def draw_fresh(bench: Bench, *inputs: Any, integers: bool = False) -> None:
    """Fill inputs with values that nobody has seen before."""
    for values in inputs:
        bench.draw(values, secrets.randbits(63), integers)


def random_word() -> int:
    """A number from 0.5 to 1, other than any before, as a word of memory."""
    return 0x3F000000 | secrets.randbits(23)


def guarded_call(
    bench: Bench,
    variant: NamedSubject,
    operation: Any,
    x: GuardedArray,
    w: GuardedArray,
    y: GuardedArray,
    poisoned: bool = True,
    margin: int = MARGIN,
) -> Any:
    """Call an operation on guarded buffers, y poisoned first or left as it is; the array that holds the result.

    `margin` is what y's margins hold. Raises VariantFailure where the call faults, writes outside its output, changes
    an input, goes on after it returned, leaves poisoned outputs unwritten, returns what is no array, or replaced a
    function of the harness.
    """
    if poisoned:
        bench.fill(y.inner, POISON)
    with fault_context(variant, "called"):
        bench.synchronize()
        before = [bench.hash_value(bench.enqueue_hash(buffer.words)) for buffer in (x, w)]
        returned = operation(x.values, w.values, y.values)
        reject_lazy_result(variant, returned, y.values)
        result = y.values if returned is None else returned
        early = bench.enqueue_hash(result)
        bench.synchronize()
        late = bench.enqueue_hash(result)
        if bench.hash_value(early) != bench.hash_value(late):
            raise VariantFailure(
                "wrong_result",
                f"{variant.name} goes on writing after its call is over: work on a stream nobody waits for",
            )
        for name, buffer, hashed in zip("xw", (x, w), before, strict=True):
            if bench.hash_value(bench.enqueue_hash(buffer.words)) != hashed:
                raise VariantFailure(
                    "wrong_result", f"{variant.name} changes its input {name}, or the memory around it"
                )
        outside = sum(bench.count_changed(words, margin) for words in y.margins)
        if outside:
            raise VariantFailure(
                "wrong_result",
                f"{variant.name} writes outside its output: {outside} of the words around it changed",
            )
        if result.shape != y.values.shape:
            raise VariantFailure(
                "wrong_result", f"{variant.name} returns shape {result.shape}, expected {y.values.shape}"
            )
        if returned is None and poisoned:
            total = int(np.prod(y.values.shape))
            unwritten = total - bench.count_changed(y.inner, POISON)
            if unwritten:
                raise VariantFailure("wrong_result", f"{variant.name} leaves {unwritten} of {total} outputs unwritten")
    reject_replaced_functions(variant)
    return result


def comparison_columns(variant: Variant, layer: ConvLayer, difference: reference.Difference, integers: bool) -> Row:
    """The columns of CORRECTNESS that say how far off a result is and whether that passes.

    On small integers every sum is exact, so nothing but equality passes (TF32 and FP16 hold such integers exactly
    too). On reals an output's error is held against its own magnitude; for a method that is not direct against the
    largest, and so for FP16, where what falls below its smallest normal number, 2**-14, loses digits.
    """
    unit = 0.0 if integers and variant.header.method == "direct" else reference.unit_error(layer, variant)
    tolerance = unit * difference.max_magnitude
    if not difference.max_abs_err:
        ratio = 0.0
    elif not unit:
        ratio = float("inf")
    elif variant.header.method == "direct" and variant.header.precision != "fp16":
        ratio = difference.worst_unit / unit
    else:
        ratio = difference.max_abs_err / tolerance
    reason = ""
    if difference.not_finite:
        reason = f"{variant.name}: {difference.not_finite} outputs are NaN or infinite"
    elif ratio > 1:
        limit = (
            "must be exact on small integers"
            if not unit
            else f"exceeds what {variant.header.precision} allows, {tolerance:.3g}"
        )
        reason = f"{variant.name} is wrong on {layer}: largest error {difference.max_abs_err:.3g} {limit}"
    return {
        "max_abs_err": difference.max_abs_err,
        "rel_l2_err": difference.rel_l2_err,
        "tolerance": tolerance,
        "worst_ratio": ratio if math.isfinite(ratio) else None,  # no tolerance: no ratio
        "mismatched_labels": None,
        "ok": not reason,
        "status": "wrong_result" if reason else "ok",
        "reason": reason,
    }


TESTS = ("integers", "reals")


def check_layer(
    bench: Bench, variant: Variant, layer: ConvLayer, images: int, tests: Sequence[str] = TESTS
) -> list[Row]:
    """Rows (the columns of CORRECTNESS from `layer` on, without `device`) for one layer at one size.

    An unsupported layer gives one row that says so; a failure ends the layer's tests with the row that names it.
    """
    place = {"layer": layer.name, "size": images}

    def row(test: str, **columns: Any) -> Row:
        return {**place, "test": test, **NOT_COMPARED, **columns}

    reason = variant.problem or variant.unsupported(layer, images)
    if reason:
        status = "compile_failed" if variant.problem else "unsupported"
        return [row("integers", ok=False, status=status, reason=reason)]
    rows = []
    test = tests[0]
    try:
        with device_fault_context(variant):
            with fault_context(variant, "prepared"):
                operation = bench.prepare(variant, layer, images)
                x, w = bench.allocate_guarded(layer.x_shape(images)), bench.allocate_guarded(layer.w_shape)
                y = bench.allocate_guarded(layer.y_shape(images))
            reject_replaced_functions(variant)
            margin = MARGIN
            for test in tests:
                draw_fresh(bench, x.values, w.values, integers=test == "integers")
                if test == "reals":
                    margin = random_word()
                    for words in (*x.margins, *w.margins, *y.margins):
                        bench.fill(words, margin)
                result = guarded_call(bench, variant, operation, x, w, y, test == "integers", margin)
                difference = bench.compare(layer, x.values, w.values, result)
                columns = comparison_columns(variant, layer, difference, test == "integers")
                if not columns["ok"] and isinstance(bench, benches.CpuBench):
                    where = reference.describe_mismatch(
                        x.values, w.values, result, columns["tolerance"], layer.S, layer.P
                    )
                    columns["reason"] += f"; {where}" if where else ""
                rows.append(row(test, **columns, reference=bench.reference_name))
                if not rows[-1]["ok"]:
                    break
    except VariantFailure as failure:
        rows.append(row(test, ok=False, **failure.columns))
    return rows


tamper_check.remember(
    time, "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time"
)
tamper_check.remember(secrets, "randbits")
tamper_check.remember(np.random, "default_rng")
for _owner in (reference, benches, benches.CpuBench, sys.modules[__name__]):
    tamper_check.remember(_owner)
