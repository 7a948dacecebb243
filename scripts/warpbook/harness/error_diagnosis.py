"""Why a result is wrong, where a second computation shows it.

A cause is told only where it explains every output: another computation of the problem gives exactly what the variant
gave, or the variant is right as soon as one thing is changed. All is tried on small integers, where sums are exact.
"""

import itertools
import math
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from warpbook.common import expressions
from warpbook.common.supervision import VariantFailure
from warpbook.harness import emulated_worker
from warpbook.harness.bench import POISON, Buffers, CpuBench, allocate, result_arrays
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems import problem
from warpbook.problems.problem import Case

Arrays = dict[str, np.ndarray]
ADDS = "adds to"
COLUMN_MAJOR = "reads and stores its matrices in column-major order"
OUTPUTS_MAX = 1 << 20
"""Outputs of a case that is worth computing many times."""
FEW = 8
"""Outputs, below which other numbers may come out right by chance, and a wrong cause explain them: two draws must agree."""
DRAWS = 5
"""How often numbers are drawn for so few outputs, at most."""
MEMORIES = 48
"""Pieces of memory that nobody has written and that the emulator tells from each other."""


_REMEDIES = (
    (
        r"from (dynamic )?shared memory",
        "is a __syncthreads() missing before it is read, or is part of it never loaded?",
    ),
    (r"from memory allocated", "is each output some thread's to write, and is each array filled before it is read?"),
    (r"from the variable", "is it set before it is read?"),
)
_OF_THE_HOST = (
    (r"leaves (\d+) of \1 outputs unwritten$", "is the result copied back to the host (cudaMemcpyDeviceToHost)?"),
)
"""What to look at first, by what a reason says; and where the host's code is the variant's too."""


def with_note(variant: Variant, case: Case, reason: str, noted: str) -> str:
    """A reason, with what may explain a wrong result as the variant's process noted it, and what to look at first."""
    reason = "; ".join(filter(None, (reason, noted, _uncovered(variant, case))))
    known = (*_REMEDIES, *(_OF_THE_HOST if variant.course else ()))
    remedy = next((words for pattern, words in known if re.search(pattern, reason)), "")
    return f"{reason}; {remedy}" if remedy else reason


def _uncovered(variant: Variant, case: Case) -> str:
    """That the grid is an extent divided and rounded down, where the extent is no multiple; empty where it is not."""
    grids = [variant.header.grid, *(step.grid for step in variant.header.steps)]
    for blocks in (str(text) for grid in grids for text in grid):
        divided = re.fullmatch(r"(\w+) // (\d+)", blocks)
        extent = case.extents.get(divided[1], 0) if divided else 0
        if divided and extent % int(divided[2]):
            each = int(divided[2])
            limit = f"`limits: {{{divided[1]}: {{multiple_of: {each}}}}}`"
            return (
                f"its grid ({variant.fact_location('grid')}) has {blocks} blocks, and {divided[1]} = {extent} is no "
                f"multiple of {each}: round up, or say {limit}"
            )
    return ""


def unwritten_memory(bench: CpuBench, variant: Variant, case: Case, operation: Operation, buffers: Buffers) -> str:
    """Which memory that nobody has written decides the last call's result, as part of a sentence; what the variant's
    process notes where the result is wrong whatever that memory holds."""
    expected = problem.compute(case, buffers.input_values, np)
    largest = {name: float(np.abs(one).max(initial=0)) or 1.0 for name, one in expected.items()}

    def is_right(large: int) -> bool:
        bench.large = large
        for one in buffers.outputs.values():
            bench.fill(one.inner, POISON[one.unit])
        held = [one.values for one in buffers.outputs.values()]
        results = result_arrays(operation(*buffers.values), held)
        return all(
            same(one.astype(np.float64) / largest[name], expected[name] / largest[name])
            for name, one in zip(expected, results, strict=True)
        )

    try:
        if not is_right(0) or is_right(emulated_worker.ALL_LARGE):
            return bench.noted
        for number in range(1, MEMORIES):
            if not is_right(number):
                return (
                    f"what nobody had written decides the result, from {bench.noted}: it is right where that is NaN, "
                    "which comparisons pass over, and wrong where it is a large number"
                )
    except VariantFailure:
        return ""
    return "it depends on memory that nobody had written: it is wrong where that holds large numbers"


def find(bench: CpuBench, variant: Variant, case: Case, operation: Operation, buffers: Buffers) -> str:
    """The cause of a variant's wrong result on a case as a part of a sentence, the variant's name before it; empty
    where none is found."""
    count = case.count(next(iter(buffers.outputs)))
    if len(buffers.outputs) != 1 or count > OUTPUTS_MAX:
        return ""
    first = ""
    try:
        if _depends_on_earlier_calls(bench, variant, case, operation, buffers):
            return "is right in a new process, and wrong where another call came before: what does that leave in a variable?"
        for _ in range(1 if count >= FEW else DRAWS):
            words = _find(bench, variant, case, operation, buffers)
            if words and (count >= FEW or words == first):
                return words
            first = first or words
        return ""
    except Exception:  # a variant's code may raise anything: whoever meets that first tells it
        return ""


def _find(bench: CpuBench, variant: Variant, case: Case, operation: Operation, buffers: Buffers) -> str:
    (name,) = buffers.outputs
    inputs, found = _result(bench, case, operation, buffers)
    expected = problem.compute(case, inputs, np)[name]
    if same(found, expected):
        return ""  # wrong on other numbers than these
    unwritten = np.isnan(found)
    whole = not case.arrays[name].is_real  # which no NaN tells that they were not written
    if (unwritten.any() or whole) and (words := _reads_output(bench, case, operation, buffers, name)):
        return words
    for words in itertools.chain(
        _places(case, name, found, expected),
        (words for words, other in _others(case, name, inputs, expected) if _begins_with(found, other)),
        _find_transposition(case, name, found, expected),
        _find_shift(case, name, found, expected),
        _find_scale(name, found, expected),
    ):
        return words
    return next(_experiments(bench, variant, case, name), "")


def _depends_on_earlier_calls(
    bench: CpuBench, variant: Variant, case: Case, operation: Operation, buffers: Buffers
) -> bool:
    """Whether the variant is wrong here, and right twice where its process was called for nothing else."""

    def is_right(at: CpuBench, operation: Operation) -> bool:
        inputs, found = _result(at, case, operation, buffers)
        return same(found, problem.compute(case, inputs, np)[next(iter(buffers.outputs))])

    def is_right_alone() -> bool:
        renewed = bench.renewed()
        if renewed is None:
            return False
        with renewed as alone:
            return is_right(alone, alone.prepare(variant, case))

    return is_right_alone() and not is_right(bench, operation) and is_right_alone()


def _reads_output(bench: CpuBench, case: Case, operation: Operation, buffers: Buffers, name: str) -> str:
    """Whether the variant is right only where its output holds numbers before the call."""
    results = []
    for fill in (0.0, 5.0):
        given, found = _result(bench, case, operation, buffers, fill)
        results.append((found, problem.compute(case, given, np)[name]))
    (zeroed, first), (filled, second) = results
    if same(zeroed, first) and same(filled, second + 5):
        remedy = f"if its host sets that to 0, say `clear: [{name}]`"
        return f"{ADDS} {name} without setting it first: it is right where {name} is 0 before the call; {remedy}"
    if same(zeroed, first) and same(filled, second):
        return f"reads {name} without setting it first: a NaN there stays one, times 0 too"
    return ""


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether a result is the expected one but for rounding."""
    limit = 1e-5 * max(1.0, float(np.abs(expected).max(initial=0)))
    return found.shape == expected.shape and bool((np.abs(found - expected) <= limit).all())


def _begins_with(found: np.ndarray, other: np.ndarray) -> bool:
    """Whether a result is another array, or that and nothing behind it."""
    flat = found.reshape(-1)
    return (
        other.size <= flat.size
        and bool(np.isnan(flat[other.size :]).all())
        and same(flat[: other.size], other.reshape(-1))
        and bool(other.any())
    )


def _result(
    bench: CpuBench, case: Case, operation: Operation, buffers: Buffers, fill: float | None = None
) -> tuple[Arrays, np.ndarray]:
    """(inputs, output) of a call on fresh integers; the output is poisoned before, or filled with a number."""
    for name, values in buffers.input_values.items():
        bench.draw(values, secrets.randbits(63), True, case.arrays[name])
    (one,) = buffers.outputs.values()
    if fill is None:
        bench.fill(one.inner, POISON[one.unit])
    else:
        one.values[...] = fill
    returned = operation(*buffers.values)
    (result,) = result_arrays(returned, [one.values])
    held = {name: values.astype(np.float64) for name, values in buffers.input_values.items()}
    if result.shape != one.values.shape:
        raise VariantFailure("wrong_result", "another shape")
    with np.errstate(invalid="ignore"):  # NaNs of a narrower type
        return held, result.astype(np.float64)


def _axis(case: Case, array: str, axis: int) -> str:
    """What an extent of an array is, in words: `output channels`; `H_out`, where it has none."""
    text = str(case.arrays[array].shape[axis])
    extents = case.problem.facts.extents
    return extents[text].words if text in extents else text


def _shape(case: Case, array: str, order: tuple[int, ...] | None = None) -> str:
    shape = case.arrays[array].shape
    return ", ".join(str(shape[axis]) for axis in (order or range(len(shape))))


def _places(case: Case, name: str, found: np.ndarray, expected: np.ndarray) -> Iterator[str]:
    """Outputs that are right up to a place of one extent, and wrong from there on; or right but for the first."""
    right = np.abs(found - expected) <= 1e-5 * max(1.0, np.abs(expected).max(initial=0))
    for axis in range(found.ndim):
        count = found.shape[axis]
        lines = right.reshape(math.prod(found.shape[:axis]), count, -1).all(axis=(0, 2))
        behind = right.reshape(math.prod(found.shape[:axis]), count, -1).any(axis=(0, 2))
        if count < 2 or not (lines == behind).all():
            continue
        words = f"{_axis(case, name, axis)} ({name}'s extent {case.arrays[name].shape[axis]} = {count})"
        good = int(lines.sum())
        if 0 < good < count and lines[:good].all():
            last = "the first alone" if good == 1 else f"the first {good} alone"
            yield f"computes {last} of its {words} right; it " + (
                "leaves the others unwritten" if np.isnan(found[~right]).all() else "computes others wrong"
            )
        elif good == count - 1 and not lines[0]:
            yield f"computes all but the first of its {words} right"


def _others(case: Case, name: str, inputs: Arrays, expected: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Other computations of the problem, in words, and what they give."""

    def compute(given: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray(problem.compute(case, given, np)[name])

    yield f"computes max(0, {name}), an activation that the problem does not have", np.maximum(expected, 0)
    for optional in case.optional:
        yield (
            f"computes what is right without the optional input {optional}",
            compute({**inputs, optional: np.zeros_like(inputs[optional])}),
        )
    for words, other in _problem_alternatives(case, inputs):
        yield words, other
    if len(inputs) == 2 and all(values.ndim == 2 for values in (*inputs.values(), expected)):
        columns = {array: _read_as(values, (1, 0)) for array, values in inputs.items()}
        # Transposed, a product is one of the other factors: (a b)' = b' a'.
        factors, outer = " and ".join(inputs), " and ".join(str(case.problem.outputs[name].shape[at]) for at in (0, 1))
        yield (
            f"{COLUMN_MAJOR}: right for rows with {factors}, and {outer}, in each other's place",
            compute(columns).T.reshape(expected.shape),
        )
    for array, values in inputs.items():
        for order in itertools.permutations(range(values.ndim)):
            if order != tuple(sorted(order)):
                words = f"reads {array} as [{_shape(case, array, order)}]; it is [{_shape(case, array)}]"
                yield words, compute({**inputs, array: _read_as(values, order)})


def _problem_alternatives(case: Case, inputs: Arrays) -> Iterator[tuple[str, np.ndarray]]:
    """Other computations that the problem itself names in its function `alternatives`."""
    written = getattr(case.problem.module, "alternatives", None)
    if written is not None:
        yield from written(**inputs, **case.extents)


def _read_as(values: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """What an array is to who takes its memory for that of its axes in another order."""
    shape = tuple(values.shape[axis] for axis in order)
    return values.reshape(-1).reshape(shape).transpose(np.argsort(order))


def _find_transposition(case: Case, name: str, found: np.ndarray, expected: np.ndarray) -> Iterator[str]:
    """A sentence where the output is right with its extents in another order."""
    for order in itertools.permutations(range(found.ndim)):
        if order != tuple(sorted(order)) and same(found.reshape(-1), expected.transpose(order).reshape(-1)):
            yield f"stores {name} as [{_shape(case, name, order)}]; it is [{_shape(case, name)}]"


def _find_shift(case: Case, name: str, found: np.ndarray, expected: np.ndarray) -> Iterator[str]:
    """A sentence where each output stands one place further or one less along the last extents."""
    axes = range(max(found.ndim - 2, 0), found.ndim)
    for steps in itertools.product((0, 1, -1), repeat=len(axes)):
        if not any(steps) or any(found.shape[axis] < 4 for axis in axes):
            continue
        here, there = [slice(None)] * found.ndim, [slice(None)] * found.ndim
        for axis, step in zip(axes, steps, strict=True):
            here[axis] = slice(max(-step, 0), found.shape[axis] - max(step, 0))
            there[axis] = slice(max(step, 0), found.shape[axis] - max(-step, 0))
        if same(found[tuple(here)], expected[tuple(there)]):
            moved = (f"{_axis(case, name, axis)} by {step:+d}" for axis, step in zip(axes, steps, strict=True) if step)
            yield f"computes each output of {name} in its neighbour's place: {' and '.join(moved)}"


def _find_scale(name: str, found: np.ndarray, expected: np.ndarray) -> Iterator[str]:
    """A sentence where the output is right but for one factor."""
    if np.isnan(found).any() or not expected.any() or found.size < 8:
        return
    factor = float((found * expected).sum() / (expected * expected).sum())
    if factor and same(found / factor, expected):
        yield f"computes every output of {name} {factor:.6g} times as large as it should be"


def _experiments(bench: CpuBench, variant: Variant, case: Case, name: str) -> Iterator[str]:
    """What about a case, once it is changed, makes the variant right: extents that are equal, or one that is 1."""
    facts = case.problem.facts
    base = [each for each, one in facts.extents.items() if one.usual is None]
    given = {
        **dict(case.given),
        **({facts.size: case.size} if facts.size and facts.size not in dict(case.given) else {}),
    }
    # Only what stands in one array is taken for each other.
    together = [
        {name for text in one.shape for name in expressions.used_names(text)} for one in case.problem.inputs.values()
    ]
    for first, second in itertools.combinations(base, 2):
        beside = any({first, second} <= names for names in together)
        if not beside or case.extents[first] == case.extents[second]:
            continue
        values = case.extents[first], case.extents[second]
        # Both equal extents, lest the lesser one be right because of its size; and wrong the other way round.
        equal = ({**given, first: value, second: value} for value in values)
        if all(_is_right(bench, variant, case, changed, name) for changed in equal):
            swapped = {**given, first: values[1], second: values[0]}
            if not _is_right(bench, variant, case, swapped, name):
                yield f"is right where {first} = {second} and wrong where they differ: it may take one for the other"
    for only in base:
        count = case.extents[only]
        if count > 1 and _is_right(bench, variant, case, {**given, only: 1}, name):
            yield f"is right with {only} = 1 and wrong with {only} = {count} ({facts.extents[only].words})"


def _is_right(bench: CpuBench, variant: Variant, case: Case, extents: Mapping[str, Any], name: str) -> bool:
    """Whether a variant is right on a case with other extents."""
    size = extents.get(case.problem.facts.size, case.size)
    held = {key: value for key, value in extents.items() if key != case.problem.facts.size}
    other = replace(case.problem.case("", held, case.optional), size=size)
    try:
        if variant.unsupported(other):
            return False
        operation, buffers = bench.prepare(variant, other), allocate(bench, other)
        for _ in range(3):  # one wrong output may be 0 by chance
            inputs, found = _result(bench, other, operation, buffers)
            if not same(found, problem.compute(other, inputs, np)[name]):
                return False
        return True
    except Exception:  # no such case, or the variant's own code raises
        return False
