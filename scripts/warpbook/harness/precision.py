"""How far a variant's results are from float64, over the length of its sums and the range of its inputs, beside those
of the direct convolution on the very same inputs."""

from collections.abc import Iterable, Iterator

import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking
from warpbook.harness.bench import Bench, allocate
from warpbook.harness.checking import Row
from warpbook.harness.reference import Difference
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems.problem import Case, Problem

CLASS_RATIO = 2
"""A result is of FP32's class where its relative L2 error is at most so many times that of the direct convolution."""

IMAGES = 4
EXPONENTS = {
    "reals": (0, 0), "small": (-20, 0), "large": (20, 0), "mixed": (0, 0), "subnormal": (-130, 30), "outliers": (0, 0),
}  # fmt: skip
"""Kinds of inputs: the powers of two that the reals in [-1, 1) of the first input and of the others are scaled by.
Products of subnormal inputs are normal numbers again."""

MIXED_EXPONENT = 12
OUTLIERS_APART, OUTLIER_EXPONENT = 997, 9
"""One of so many values of the first input is so many powers of two larger: what is added to it afterwards is rounded, or
cut, to its precision."""


def cases(problem: Problem, others: Iterable[Case]) -> list[Case]:
    """Cases whose sums grow longer, as the problem names them, then `others` that some kernels are for alone."""
    every = [*(problem.case("", extents) for extents in problem.facts.precision), *others]
    return [case.with_name(shape) for shape, case in {str(case.at(IMAGES)): case.at(IMAGES) for case in every}.items()]


def draw_inputs(case: Case, inputs: str) -> dict[str, np.ndarray]:
    """The inputs of a kind, float32: the same whenever they are drawn."""
    extents = [case.extents[name] for name in case.problem.facts.extents]
    generator = np.random.default_rng([*extents, list(EXPONENTS).index(inputs)])
    drawn = {name: generator.integers(-(1 << 24), 1 << 24, case.shape(name)) * 2.0**-24 for name in case.inputs}
    first = next(iter(drawn))
    if inputs == "mixed":
        exponents = generator.integers(-MIXED_EXPONENT, MIXED_EXPONENT + 1, drawn[first].shape)
        drawn[first] = np.ldexp(drawn[first], exponents)
    if inputs == "outliers":
        drawn[first].reshape(-1)[::OUTLIERS_APART] *= 2.0**OUTLIER_EXPONENT
    of_first, of_others = EXPONENTS[inputs]
    return {
        name: np.ldexp(values, of_first if name == first else of_others).astype(np.float32)
        for name, values in drawn.items()
    }


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


def precision_row(variant: Variant, case: Case | None, inputs: str, columns: Row) -> Row:
    """A row of PRECISION without its variant's name, its errors empty where nothing was compared."""
    place = {"products": case.sums, "images": case.size} if case else {"products": None, "images": None}
    nothing = {"rel_l2_err": None, "direct_rel_l2_err": None, "fp32_class": False}
    said = {"inputs": inputs, "layer": case.name if case else "", "precision": variant.header.precision}
    return {**said, **place, **nothing, **columns}


def measure_case(bench: Bench, variant: Variant, direct: Variant, case: Case) -> list[Row]:
    """A row for each kind of inputs; one alone where it cannot compute the case. A failure's row is the last."""
    if reason := variant.read_error or variant.unsupported(case):
        status = "compile_failed" if variant.read_error else "unsupported"
        return [precision_row(variant, case, "", {"status": status, "reason": reason})]
    rows: list[Row] = []
    inputs = ""
    try:
        with checking.device_fault_context(variant):
            operations: dict[str, Operation] = {}
            for one in (direct, variant):
                if one.source_sha256 not in operations:  # `direct` itself has one process
                    with checking.fault_context(one, "prepared"):
                        operations[one.source_sha256] = bench.prepare(one, case)
            buffers = allocate(bench, case)
            for inputs in EXPONENTS:
                for name, values in draw_inputs(case, inputs).items():
                    bench.copy_in(buffers.inputs[name].values, values)
                differences = []
                for one in (direct, variant):
                    results = checking.guarded_call(bench, one, operations[one.source_sha256], buffers)
                    (difference,) = bench.compare(case, buffers.input_values, results).values()
                    differences.append(difference)
                by_direct, by_variant = differences
                rows.append(precision_row(variant, case, inputs, precision_columns(variant, by_variant, by_direct)))
    except VariantFailure as failure:
        rows.append(precision_row(variant, case, inputs, failure.columns))
    return rows


def measure(bench: Bench, variant: Variant, direct: Variant, others: Iterable[Case]) -> Iterator[list[Row]]:
    """The rows of one case after another that `direct` computes. A failure that each later case would repeat ends them."""
    for case in cases(variant.problem, others):
        if direct.unsupported(case):
            continue
        rows = measure_case(bench, variant, direct, case)
        yield rows
        if rows[-1]["status"] in ("compile_failed", "launch_failed"):
            return  # after a fault, no CUDA call of this process succeeds
