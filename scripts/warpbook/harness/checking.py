"""Correctness of a variant: the same tests on the CPU and on the GPU, written so that a kernel cannot pass by chance.

Before each call the output is poisoned and ringed with guard bands, and the inputs are drawn fresh. After it the
harness looks for outputs never written, writes outside, changed inputs and work still going on, and compares every
output with the problem's float64 reference. Two calls with different inputs go through the same prepared operation, so that
an answer replayed from the first is wrong in the second. That finds its output as the first left it, and ordinary
numbers in the margins: a kernel that works for poison and NaNs alone is wrong there.
"""

import errno
import math
import random
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from warpbook.common.errors import MachineFault, UserError
from warpbook.common.supervision import VariantFailure
from warpbook.harness import bench as benches
from warpbook.harness import emulated_worker, error_diagnosis, reference, tamper_check
from warpbook.harness.bench import FLOATS, MARGIN, POISON, Bench, Buffers, allocate
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems.problem import VALUES, Case, compute

Row = dict[str, Any]


class NamedSubject(Protocol):
    """What is checked or timed: a variant, or an implementation of a network."""

    @property
    def name(self) -> str: ...


NOT_COMPARED: Row = {
    "reference": "",
    "max_abs_err": None,
    "rel_l2_err": None,
    "tolerance": None,
    "worst_ratio": None,
    "mismatched_labels": None,
}


GOES_ON = "goes on writing after its call is over: work on a stream nobody waits for"

EXCERPT_FLOPS = 1 << 21
"""Of a small case in place of a study's; of a problem of one extent twice that, since 1024 blocks that each add up 2048
values cannot compute it."""
LONG = 4096
"""Of the one long extent of such a case at most, but for one more, which no tile divides."""
DRAWN = 4
"""Ragged cases of chance, so that no kernel knows them all; extents are up to DRAWN_BEYOND times as large as in the others."""
DRAWN_BEYOND = 1.5
SMALL, SMALL_FLOPS = 36, 1 << 17
"""Cases more of chance, each of few operations: a kernel may be wrong at one remainder of a vector or a tile alone, for
equal extents alone, or where two of stride, padding, dilation and groups meet."""
REMAINDERS = 32
EDGES = {tile + step for tile in (32, 64, 128) for step in (-1, 0, 1)}
"""Lengths about those of usual tiles, at which a guard is wrong if it is anywhere."""
LEAST_SUM = 16
"""Terms of sums in a case that is drawn, and in the one that is called often."""
LONG_BITS, MOST_LONG = 15, 256
"""Of a few whole numbers among small ones: lower precisions round them, and float32 still holds their sums."""
SPREAD = 16
"""Times which reals with a `shift` are spread in the last test: an exponential that is right near 0 alone is wrong there."""
PLAIN = (0.0, 1.0, 2.0**20, -(2.0**20), None, None)
"""What more calls of one preparation get on a small case: nothing but 0 or another number, values as usual."""
WIDE = 2.0**40
"""What reals are multiplied by in a ragged case, so that a clamp or a flush to zero shows."""
MANY = 259  # size of a batch that no power of two divides, beyond what a byte counts


def ragged_cases(variant: Variant) -> list[Case]:
    """The ragged cases that a variant is tested on, and the smallest of them as a large batch: those with what is unusual
    where it is told of that, each with extents that its limits allow; none where it names the layers that it is for."""
    limits, problem = variant.header.limits, variant.problem
    if limits.layers:
        return []
    cases = [limits.nearest(case) for case in problem.ragged if not variant.missing_arguments(case)]
    if cases and problem.facts.batch and (allowed := [case for case in cases if not variant.unsupported(case)]):
        smallest = min(allowed, key=lambda case: case.flops / (case.size or 1))
        cases.append(limits.nearest(smallest.at(MANY)))
    return list(dict.fromkeys(cases))


def excerpts(variant: Variant, cases: Sequence[Case]) -> list[Case]:
    """Small cases that stand for a study's large ones, with extents that a variant's limits allow: all extents halved as
    often as it takes, so that tiles divide them as there; and each extent that is longer than in every ragged case, the
    others small."""
    problem = variant.problem
    free = [name for name, one in problem.facts.extents.items() if one.usual is None]
    found: list[Case | None] = []
    for case in (each.with_problem(problem) for each in cases):
        values = {name: case.extents[name] for name, _ in case.given}
        found.append(_shrunk(case, values, free))
        for name in free:
            long = min(values[name], LONG) + 1
            if all(long > ragged.extents[name] for ragged in problem.ragged):
                found.append(_shrunk(case, {**values, name: long}, [other for other in free if other != name]))
    allowed = [variant.header.limits.nearest(one) for one in found if one and not variant.missing_arguments(one)]
    known = [*ragged_cases(variant), *drawn_cases(variant, cases)]
    return [
        one
        for one in dict.fromkeys(allowed)
        if _is_new(one, known) and one.flops <= 8 * EXCERPT_FLOPS and not variant.unsupported(one)
    ]


def _is_new(case: Case, others: Sequence[Case]) -> bool:
    """Whether no other case has its extents: what one says, another may leave to the default."""
    return all((str(case), case.size) != (str(one), one.size) for one in others)


def drawn_cases(variant: Variant, cases: Sequence[Case]) -> list[Case]:
    """Small cases whose extents are drawn by chance, up to more than those of the ragged ones, and to those of a study's
    `cases` where these have no size that could be made small: a kernel may know the shapes that are always tried. They are
    the same for a source each time, so that its verdict is."""
    problem, known = variant.problem, ragged_cases(variant)
    studied = [] if problem.facts.size else cases
    if not known:
        return []
    possible = [case for case in problem.ragged if not variant.missing_arguments(case)]
    names = dict.fromkeys(name for case in possible for name in (*dict(case.given), problem.facts.size) if name)
    values_of = {name: [case.extents[name] for case in possible] for name in names}
    least = {name: min(values) for name, values in values_of.items()}
    extents = problem.facts.extents
    usual = {name: extents[name].most or int(DRAWN_BEYOND * max(values)) for name, values in values_of.items()}
    beyond = {name: max([most, *(case.extents[name] for case in studied)]) for name, most in usual.items()}
    if problem.facts.batch in beyond:
        beyond[problem.facts.batch] = 2 * MANY
    chance = random.Random(variant.source_sha256)  # a source cannot hold what follows from its own hash
    unseen = {name: set(range(REMAINDERS)) for name, most in usual.items() if most > REMAINDERS}
    edges = {name: {edge for edge in EDGES if edge <= usual[name]} for name in unseen}
    found: list[Case] = []
    for _ in range(20 * (DRAWN + SMALL)):
        small = len(found) >= DRAWN
        highest = usual if small else beyond
        # A whole number, each length of it as likely as any other.
        values = {
            name: int(least[name] + math.expm1(chance.random() * math.log1p(highest[name] - least[name] + 1)))
            for name in values_of
        }
        if small:
            for name, left in unseen.items():
                if at_edges := len(found) % 2 and edges[name]:
                    values[name] = chance.choice([values[name], *sorted(at_edges)])
                else:
                    values[name] += min(((one - values[name]) % REMAINDERS for one in left), default=0)
            if len(found) % 4 == 0:  # some extents are equal, in the first of them all
                same = min(chance.choice(list(values.values())), REMAINDERS)
                chosen = [name for name in values if len(found) == DRAWN or chance.randrange(4)]
                values |= {name: min(same, highest[name]) for name in chosen}
        for name, extent in extents.items():
            if extent.usual is not None and name in values and chance.randrange(2):
                del values[name]
        size = values.pop(problem.facts.size or "", 1)
        try:
            case = problem.case("", values, chance.choice(possible).optional).at(size)
            made = variant.header.limits.nearest(case.with_name(str(case)))
            # Of a sum of few terms the tolerance is too narrow for products that are split into parts.
            fits = made.flops <= (SMALL_FLOPS if small else EXCERPT_FLOPS) and made.sums >= LEAST_SUM
        except ValueError:  # its extents do not fit together
            continue
        is_usable = fits and not (variant.missing_arguments(made) or variant.unsupported(made))
        if is_usable and _is_new(made, (*known, *found)):
            found.append(made)
            for name, seen in unseen.items():
                seen.discard(made.extents[name] % REMAINDERS)
                edges[name].discard(made.extents[name])
        if len(found) == DRAWN + SMALL:
            break
    return found


def _shrunk(case: Case, values: Mapping[str, int], free: Sequence[str]) -> Case | None:
    """A case with its largest extents halved until it is small; None where it cannot be."""
    values = dict(values)
    most = EXCERPT_FLOPS * (1 + (len(values) == 1))
    while max(map(values.__getitem__, free), default=1) > 1:
        try:
            made = case.problem.case("", values, case.optional).at(1)
            if made.flops <= most:
                return made.with_name(str(made))
        except ValueError:  # its extents no longer fit together
            return None
        values[max(free, key=values.__getitem__)] //= 2
    return None


def _on_one_line(error: BaseException) -> str:
    """An exception on one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


@contextmanager
def fault_context(variant: NamedSubject, doing: str) -> Iterator[None]:
    """Turn whatever a variant raises while `doing` something into VariantFailure.

    Its own code may raise anything; a CUDA fault makes every later call of the process raise too. A MachineFault is none
    of the variant's.
    """
    try:
        yield
    except (VariantFailure, MachineFault):
        raise
    except UserError as error:
        raise VariantFailure("compile_failed", str(error)) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise MachineFault(f"not judged: disk full: {error}") from error
        raise VariantFailure(_fault_status(error), f"{variant.name}, {doing}: {_on_one_line(error)}") from error


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
            _fault_status(error), f"{variant.name}, while the harness used the device: {_on_one_line(error)}"
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


def reject_lazy_result(variant: NamedSubject, returned: Any, outputs: Sequence[Any]) -> None:
    """Raises VariantFailure where a call returned something that is not one array for each output."""
    results = benches.result_arrays(returned, outputs)
    for result in results:
        if type(result) is not type(outputs[0]):
            raise VariantFailure(
                "wrong_result",
                f"{variant.name} returns a {type(result).__name__}, not an array: it may compute when it is read",
            )
    if len(results) != len(outputs):
        raise VariantFailure(
            "wrong_result", f"{variant.name} returns {len(results)} arrays, and there are {len(outputs)} outputs"
        )


def reject_other_shapes(variant: NamedSubject, case: Case, shapes: Any) -> None:
    """Raises VariantFailure where a process says that a call returned arrays of other shapes than the outputs'."""
    expected = [list(case.shape(name)) for name in case.problem.outputs]
    if shapes != expected:
        said, due = str(shapes)[1:-1][:100], str(expected)[1:-1]
        raise VariantFailure("wrong_result", f"{variant.name} returns shape {said}, expected {due}")


def draw_fresh(
    bench: Bench, case: Case | None, inputs: Mapping[str, Any], integers: bool = False, shifted: bool = False
) -> None:
    """Fill inputs with values that nobody has seen before, of the ranges that the problem says; `shifted` where it says
    that, up or down by chance, the neighbouring rows the other way, and in some rows one value beyond the others."""
    for name, values in inputs.items():
        array = case.arrays[name] if case else FLOATS
        bench.draw(values, secrets.randbits(63), integers, array)
        if shifted and array.shift and array.is_real:
            values *= SPREAD
            # In some rows one value is far above the others: no other keeps exponentials from overflowing.
            lines = values.reshape(len(values), -1)[secrets.randbelow(min(4, len(values))) :: 4]
            lines -= array.shift
            for first in range(8):  # not all in one place: a kernel may take that one for the largest
                lines[first::8, secrets.randbelow(lines.shape[1])] += array.shift
            benches.shift_rows(values, array.shift, secrets.randbelow(2))


def _holds_floats(case: Case) -> bool:
    """Whether all arrays are of float32 or float64."""
    return {one.dtype for one in case.arrays.values()} <= {"float32", "float64"}


def lengthen(variant: Variant, case: Case, values: Any) -> bool:
    """Give small whole numbers of an input, about one in each sum, so many digits that float32 alone holds them; whether
    it was done. It is not where the kernel may round its inputs, or float32 would not hold the sums."""
    header, most = variant.header, math.prod(max(abs(one.least), one.most) for one in list(case.inputs.values())[1:])
    exact = (
        _holds_floats(case) and header.precision in ("fp32", "fp64") and header.method == "direct" and not header.split
    )
    if not exact or most * (16 * 2**LONG_BITS + 4 * case.sums) > 2**24:
        return False
    flat = values.reshape(-1)
    for _ in range(min(-(-len(flat) // case.sums), MOST_LONG)):
        flat[secrets.randbelow(len(flat))] = (2 * secrets.randbelow(2) - 1) * (
            1 << LONG_BITS - 1 | secrets.randbits(LONG_BITS - 1) | 1
        )
    return True


def grows(variant: Variant, case: Case) -> bool:
    """Whether results are sums of products, which grow with their inputs and lose no digits, of a type that holds them."""
    return _holds_floats(case) and case.problem.facts.exact and variant.header.precision != "fp16"


OF_SEVERAL_MAGNITUDES = 0
"""The third of the cases whose reals are of several magnitudes."""


def _draw_of(case: Case) -> tuple[int, int]:
    """Numbers that are as good as drawn, the same for a case each time: any, and 0, 1 or 2."""
    return divmod(sum(case.extents.values()), 3)


def scale_of(variant: Variant, case: Case, integers: bool) -> float:
    """What the reals of a ragged case are multiplied by, a power of two: beyond what half precision holds, below it, or up
    to 256, the same for a case each time. It is 1 where results do not grow so, and in a study's own cases, whose errors
    are reported."""
    if integers or not grows(variant, case) or case.name != str(case):
        return 1.0
    turn, third = _draw_of(case)
    if third == OF_SEVERAL_MAGNITUDES:
        return 4.0 ** (turn % 5)
    smallest = min((one.at(1) for one in case.problem.ragged), key=lambda one: one.flops)
    inputs = {name: np.full(smallest.shape(name), WIDE) for name in smallest.inputs}
    units = reference.magnitudes(smallest, inputs, np)
    # Where many inputs are multiplied, float32 does not hold what comes of so large ones.
    scale = WIDE if max(each.max() for each in units.values()) < WIDE**2.5 else 2.0**20
    return scale if third == 1 else 1 / scale


def fill_plain(variant: Variant, case: Case, inputs: Mapping[str, Any], value: float) -> bool:
    """Fill every input with 0 or 1, or the first alone with a larger number and others with 1; as far as their ranges allow.
    Returns whether the problem says what comes of that, and as exactly as of other values."""
    if abs(value) > 1 and not grows(variant, case):
        return False
    for number, (name, values) in enumerate(inputs.items()):
        array = case.arrays[name]
        near = min(max(min(abs(value), 1), array.least), array.most)
        values[...] = value if abs(value) > 1 and not number else near
    with np.errstate(all="ignore"):
        if not all(np.isfinite(each).all() for each in compute(case, inputs, np).values()):
            return False
        # Where float64 has no error at all, float32 may have one.
        return not value or all(each.all() for each in reference.magnitudes(case, inputs, np).values())


def random_word(unit: int = 4) -> int:
    """A number from 0.5 to 1, other than any before, as a word of memory of so many bytes: of float32, or float16."""
    least, digits = {4: (0x3F000000, 23), 2: (0x3800, 10), 1: (0, 8)}[unit]
    return least | secrets.randbits(digits)


def fill_margins(bench: Bench, buffers: Buffers) -> dict[str, int]:
    """Fill the margins of every array with ordinary numbers; what those of each output hold."""
    held = {}
    for name, one in {**buffers.inputs, **buffers.outputs}.items():
        held[name] = random_word(one.unit)
        for words in one.margins:
            bench.fill(words, held[name])
    return {name: held[name] for name in buffers.outputs}


def guarded_call(
    bench: Bench,
    variant: NamedSubject,
    operation: Operation,
    buffers: Buffers,
    poisoned: bool = True,
    margins: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Call an operation on guarded buffers, its outputs poisoned first or left as they are; the arrays that hold the
    results, by output.

    `margins` is what the outputs' margins hold, where not MARGIN. Raises VariantFailure where the call faults, writes
    outside its outputs, changes an input, goes on after it returned, leaves poisoned outputs unwritten, returns what is
    no array, or replaced a function of the harness.
    """
    outputs = buffers.outputs
    if poisoned:
        for one in outputs.values():
            bench.fill(one.inner, POISON[one.unit])
    with fault_context(variant, "called"):
        bench.synchronize()
        before = {name: bench.hash_value(bench.enqueue_hash(one.words)) for name, one in buffers.inputs.items()}
        returned = operation(*buffers.values)
        values = [one.values for one in outputs.values()]
        reject_lazy_result(variant, returned, values)
        results = benches.result_arrays(returned, values)
        early = [bench.enqueue_hash(result) for result in results]
        bench.synchronize()
        late = [bench.enqueue_hash(result) for result in results]
        if list(map(bench.hash_value, early)) != list(map(bench.hash_value, late)):
            raise VariantFailure("wrong_result", f"{variant.name} {GOES_ON}")
        for name, one in buffers.inputs.items():
            if bench.hash_value(bench.enqueue_hash(one.words)) != before[name]:
                raise VariantFailure(
                    "wrong_result", f"{variant.name} changes its input {name}, or the memory around it"
                )
        for (name, one), result in zip(outputs.items(), results, strict=True):
            held = margins[name] if margins else MARGIN[one.unit]
            if outside := sum(bench.count_changed(words, held) for words in one.margins):
                raise VariantFailure(
                    "wrong_result",
                    f"{variant.name} writes outside its output {name}: {outside} of the words around it changed",
                )
            if result.shape != one.values.shape:
                raise VariantFailure(
                    "wrong_result", f"{variant.name} returns shape {result.shape}, expected {one.values.shape}"
                )
            # A byte's poison may be a result: its comparison tells.
            if returned is None and poisoned and one.unit > 1:
                total = math.prod(result.shape)
                words = max(len(one.inner) // max(total, 1), 1)  # of a value: two of a float64
                if unwritten := (len(one.inner) - bench.count_changed(one.inner, POISON[one.unit])) // words:
                    raise VariantFailure(
                        "wrong_result", f"{variant.name} leaves {unwritten} of {total} outputs unwritten"
                    )
    reject_replaced_functions(variant)
    return dict(zip(outputs, results, strict=True))


def comparison_columns(
    variant: Variant, case: Case, differences: Mapping[str, reference.Difference], integers: bool, long: bool = False
) -> Row:
    """The columns of CORRECTNESS that say how far off the worst output is and whether all pass.

    On small integers every sum is exact, so nothing but equality passes (TF32 and FP16 hold such integers exactly
    too). On reals a value's error is held against its own magnitude; for a method that is not direct against the
    largest, and so for FP16, where what falls below its smallest normal number, 2**-14, loses digits.
    """
    direct = variant.header.method == "direct"
    worst: tuple[float, Row] | None = None
    for name, difference in differences.items():
        array = case.arrays[name]
        # Half precision holds whole numbers up to a limit, and so partial sums where no magnitude is beyond it.
        most = VALUES[array.dtype][1] if array.dtype in VALUES else 2**24 if long else math.inf
        held = difference.max_magnitude <= most
        exact = not array.is_real or (integers and direct and held)
        unit = 0.0 if exact else reference.unit_error(case, variant)
        tolerance = unit * difference.max_magnitude
        if not difference.max_abs_err:
            ratio = 0.0
        elif not unit:
            ratio = float("inf")
        elif direct and variant.header.precision != "fp16":
            ratio = difference.worst_unit / unit
        else:
            ratio = difference.max_abs_err / tolerance
        reason = ""
        if difference.not_finite:
            reason = f"{variant.name} is wrong on {case}: {difference.not_finite} outputs are NaN or infinite"
        elif ratio > 1:
            limit = f"exceeds what {variant.header.precision} allows, {tolerance:.3g}"
            if not unit:
                limit = "must be exact on small integers" if array.is_real else "must be exact"
            error = f"largest error {difference.max_abs_err:.3g} {limit}"
            if difference.max_abs_err <= tolerance:  # of the largest output
                error = f"a small output's error exceeds what {variant.header.precision} allows {ratio:.3g} times over"
            reason = f"{variant.name} is wrong on {case}: {error}"
        columns = {
            "max_abs_err": difference.max_abs_err,
            "rel_l2_err": difference.rel_l2_err,
            "tolerance": tolerance,
            "worst_ratio": ratio if math.isfinite(ratio) else None,  # no tolerance: no ratio
            "mismatched_labels": None,
            "ok": not reason,
            "status": "wrong_result" if reason else "ok",
            "reason": reason,
        }
        rank = float("inf") if reason else ratio
        if worst is None or rank > worst[0]:
            worst = rank, columns
    assert worst is not None
    return worst[1]


def tests_for(case: Case) -> tuple[str, ...]:
    """integers where results on them are exact, reals where an input is real; one that stands alone twice, since what a
    call leaves must not be the answer of the next."""
    problem = case.problem
    reals = any(one.is_real for one in case.inputs.values())
    tests = (*(["integers"] if problem.facts.exact or not reals else []), *(["reals"] if reals else []))
    return tests if len(tests) > 1 else tests * 2


def brief_tests(case: Case) -> tuple[str, ...]:
    """The tests of a case whose extents are drawn: the first alone, and reals too where they may be of several
    magnitudes."""
    return tests_for(case)[: None if _draw_of(case)[1] == OF_SEVERAL_MAGNITUDES else 1]


def _with_array(reason: str, variant: Variant, case: Case) -> str:
    """A reason that tells of memory by its bytes, with the array that is as large; where several are, as it is."""
    told = re.search(r"the (\d+) bytes$", reason)
    sizes = {name: case.nbytes(name) for name in case.arrays}
    named = [name for name, size in sizes.items() if told and size == int(told[1])]
    return f"{reason} of {named[0]}" if len(named) == 1 and not variant.header.scratch else reason


def check_case(
    bench: Bench,
    variant: Variant,
    case: Case,
    tests: Sequence[str] = (),
    enough: Callable[[], bool] = lambda: False,
    diagnose: bool = True,
    more: bool = False,
) -> list[Row]:
    """Rows (the columns of CORRECTNESS from `size` on, and `case`, the case's own name) for a case at its size; of all
    its tests where none are named.

    An unsupported case gives one row that says so; a failure ends its tests with the row that names it, and its cause
    where it is to `diagnose`. A test after which there is `enough` is the last. `more`: and the calls of PLAIN on a CPU.
    """
    case = case.with_problem(variant.problem)
    tests = tests or tests_for(case)
    place = {"case": case.name, "size": case.size}

    def row(test: str, **columns: Any) -> Row:
        return {**place, "test": test, **NOT_COMPARED, **columns}

    reason = variant.read_error or variant.unsupported(case)
    if reason:
        status = "compile_failed" if variant.read_error else "unsupported"
        return [row(tests[0], ok=False, status=status, reason=reason)]
    rows: list[Row] = []
    test = tests[0]
    called: tuple[Operation, Buffers] | None = None
    try:
        with device_fault_context(variant):
            with fault_context(variant, "prepared"):
                operation = bench.prepare(variant, case)
                buffers = allocate(bench, case)
            reject_replaced_functions(variant)
            called = operation, buffers
            margins = None
            plain = PLAIN if more and isinstance(bench, benches.CpuBench) else ()
            calls: list[tuple[str, float | None]] = [(test, None) for test in tests]
            calls += [(tests[0 if value in (0, 1) else -1], value) for value in plain]
            for number, (test, value) in enumerate(calls):
                integers = test == "integers"
                last, is_more = number == len(tests) - 1, number >= len(tests)
                draw_fresh(bench, case, buffers.input_values, integers, shifted=last and not integers)
                if value is not None and not fill_plain(variant, case, buffers.input_values, value):
                    continue
                first = next(iter(buffers.input_values.values()))
                long = value is None and integers and lengthen(variant, case, first)
                if value is None and (scale := scale_of(variant, case, integers)) != 1:
                    for values in buffers.input_values.values():
                        values *= scale
                if number:
                    margins = fill_margins(bench, buffers)
                if isinstance(bench, benches.CpuBench):
                    bench.large = emulated_worker.ALL_LARGE if number else 0
                results = guarded_call(bench, variant, operation, buffers, not number, margins)
                differences = bench.compare(case, buffers.input_values, results)
                columns = comparison_columns(variant, case, differences, integers, long)
                if is_more:
                    if columns["ok"]:
                        continue
                    diagnose = False  # other calls would be right
                    of = next(iter(case.inputs))
                    columns["reason"] += (
                        f"; call {number + 1} after one preparation"
                        if value is None
                        else f"; all of {of} is {value:.0f}"
                    )
                if not columns["ok"] and isinstance(bench, benches.CpuBench):
                    where = reference.describe_mismatch(case, buffers.input_values, results, columns["tolerance"])
                    columns["reason"] += f"; {where}" if where else ""
                if not columns["ok"] and last and (moved := max(one.shift for one in case.inputs.values())):
                    columns["reason"] += (
                        f"; its rows are moved by {moved} up or down: does an intermediate value overflow?"
                    )
                rows = [one for one in rows if one["test"] != test]
                rows.append(row(test, **columns, reference=bench.reference_name))
                if not rows[-1]["ok"] or enough():
                    break
    except VariantFailure as failure:
        rows = [*(one for one in rows if one["test"] != test), row(test, ok=False, **failure.columns)]
        rows[-1]["reason"] = _with_array(rows[-1]["reason"], variant, case)
    if rows[-1]["ok"] or not isinstance(bench, benches.CpuBench):
        return rows
    if bench.large and called and not bench.ended:
        bench.noted = error_diagnosis.unwritten_memory(bench, variant, case, *called)
    bench.large = 0
    rows[-1]["reason"] = error_diagnosis.with_note(variant, case, rows[-1]["reason"], bench.noted)
    if diagnose and rows[-1]["status"] == "wrong_result" and called and not bench.ended:
        cause = error_diagnosis.find(bench, variant, case, *called)
        # A NaN that is added to stays the one that it was: it seems that nobody wrote it.
        seen = "" if cause.startswith(error_diagnosis.ADDS) else f"; {rows[-1]['reason']}"
        rows[-1] |= {"reason": f"{variant.name} {cause}{seen}"} if cause else {}
    return rows


tamper_check.remember(
    time, "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time"
)
tamper_check.remember(secrets, "randbits")
tamper_check.remember(np.random, "default_rng")
for _owner in (reference, benches, benches.CpuBench, sys.modules[__name__]):
    tamper_check.remember(_owner)
