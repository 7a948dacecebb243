"""Some blocks of an emulated launch at the size that a study measures: its limits, its indices and some results. To
compute everything there takes too much time and memory. So inputs are a few images repeated, outputs are pages that
exist once they are written, and the first, the last and some other blocks run. Of a problem without a batch the rows of
its outputs stand for images, where they are independent of each other."""

import math
import os
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from warpbook.common import expressions
from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking, reference
from warpbook.harness.bench import CpuBench
from warpbook.harness.checking import Row
from warpbook.harness.isolated import IsolatedBench
from warpbook.harness.worker_protocol import PAGE_BYTES, nbytes
from warpbook.kernels.variants import Variant
from warpbook.problems import problem
from warpbook.problems.problem import Case, Problem, numpy_type

TEST = "indices"
BLOCKS = 24  # blocks of a launch that run
FEW_BLOCKS = 8  # of a problem without a batch, whose rows may be long
TIMEOUT_S = 6  # of a case, four times what blocks of one image take on a busy machine: a longer one computes many
ROWS_TIMEOUT_S = 1  # of a problem without a batch: a longer one computes all rows
LEAST_IMAGES = 8
LEAST_BYTES = 1 << 16  # of an input that is repeated: the system maps some ten thousand pieces
CHANCE = 1e-6  # that blocks chosen at random are all of other images
DOUBTED, MORE_BLOCKS = 1e-2, 96  # below that chance, more blocks run
FEW_TERMS = 64  # of the sums of a problem without a batch: more take longer, and tell what smaller cases tell


def batch_of(problem: Problem) -> str:
    """The extent that outputs are independent along: the batch that a problem says, or the first extent of all outputs, which
    no array has in another place, where its reference gives the same for a part of it; empty where there is none."""
    if problem.facts.batch:
        return problem.facts.batch
    inputs, outputs = problem.inputs.values(), problem.outputs.values()
    first = outputs and next(iter(outputs)).shape[:1]
    name = str(first[0]) if first else ""
    elsewhere = [
        *(text for one in (*inputs, *outputs) for text in one.shape if text != name),
        *problem.facts.derived.values(),
        *problem.facts.conditions.values(),
    ]
    if (
        name not in problem.facts.extents
        or any(one.shape[:1] != first or name in one.shape[1:] for one in outputs)
        or any(name in one.shape[1:] for one in inputs)
        or any(name in expressions.used_names(text) for text in elsewhere)
    ):
        return ""
    case = next((case for case in problem.ragged if case.extents[name] > 1), None)
    return name if case and _is_independent(case, name) else ""


def repeated_extent(problem: Problem) -> str:
    """The extent along which inputs repeat: `batch_of`, else the first of an input, where results are not compared."""
    firsts = (str(one.shape[0]) for one in problem.inputs.values() if one.shape)
    return batch_of(problem) or next((name for name in firsts if name in problem.facts.extents), "")


def _is_independent(case: Case, name: str) -> bool:
    generator = np.random.default_rng(1)
    inputs = {
        one: generator.integers(array.least, array.most + 1, case.shape(one)).astype(numpy_type(array.dtype))
        for one, array in case.inputs.items()
    }
    part = {one: values[1:] if case.arrays[one].shape[:1] == (name,) else values for one, values in inputs.items()}
    whole, rest = (problem.compute(at, held, np) for at, held in
                   ((case, inputs), (_with_extent(case, name, case.extents[name] - 1), part)))  # fmt: skip
    return all(np.allclose(whole[one][1:], rest[one], rtol=1e-9, atol=0) for one in whole)


def _with_extent(case: Case, name: str, value: int) -> Case:
    """A case with one extent of another value."""
    values = {one: case.extents[one] for one in case.problem.facts.extents}
    return case.problem.case(case.name, {**values, name: value}, case.optional).at(case.size or 1)


def widest(variant: Variant, cases: Sequence[Case]) -> list[Case]:
    """Of a study's cases of a problem without a batch, the one with most outputs and inputs, its sums short where that leaves
    the outputs; none where no input could be repeated."""
    allowed = [case for case in cases if not variant.unsupported(case)]
    if not allowed or not repeated_extent(variant.problem):
        return []
    case = max(allowed, key=lambda one: (sum(map(one.count, one.problem.outputs)), one.bytes))
    if not batch_of(variant.problem):
        return [case]
    of_outputs = {
        name for one in case.problem.outputs.values() for text in one.shape for name in expressions.used_names(text)
    }
    for name, one in case.problem.facts.extents.items():
        value = case.extents[name]
        while value > FEW_TERMS and one.usual is None and name not in of_outputs:
            value //= 2
        if value != case.extents[name]:
            case = _with_extent(case, name, value)
    return [case]


Written = dict[str, dict[int, np.ndarray]]
"""What was written of each output: by its name and the number of an image, that image's values."""


@dataclass(frozen=True)
class Sparse:
    """The memory of a case at a size: whole pages of a few images for each input that has one an image, other inputs
    whole, then the outputs, a page that nobody may touch behind each."""

    case: Case
    batch: str

    def has_batch_axis(self, name: str) -> bool:
        return self.case.arrays[name].shape[:1] == (self.batch,)

    @property
    def blocks(self) -> int:
        return BLOCKS if self.case.problem.facts.batch else FEW_BLOCKS

    @property
    def timeout_s(self) -> float:
        return TIMEOUT_S if self.case.problem.facts.batch else ROWS_TIMEOUT_S

    @property
    def place(self) -> str:
        return f"{self.batch} = {self.case.extents[self.batch]}"

    @cached_property
    def images(self) -> int:
        """How many images make whole pages of every input."""
        counts, least = [1], LEAST_IMAGES
        for name, one in self.case.inputs.items():
            if self.has_batch_axis(name):
                image = nbytes(self.case.shape(name)[1:], one.dtype)
                counts.append(PAGE_BYTES // math.gcd(PAGE_BYTES, image))
                least = max(least, LEAST_BYTES // image)
        period = math.lcm(*counts)
        return period * -(-least // period)

    @cached_property
    def few(self) -> Case:
        return self.at(self.images)

    def at(self, images: int) -> Case:
        return _with_extent(self.case, self.batch, images)

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """First byte and bytes of each array in the memory."""
        places, end = {}, 0
        for name, one in self.case.arrays.items():
            shape = (self.few if name in self.case.inputs and self.has_batch_axis(name) else self.case).shape(name)
            places[name] = (end, nbytes(shape, one.dtype))
            end += (-(-places[name][1] // PAGE_BYTES) + 1) * PAGE_BYTES
        return places

    @cached_property
    def size(self) -> int:
        place, count = list(self.places.values())[-1]
        return (-(-(place + count) // PAGE_BYTES) + 1) * PAGE_BYTES


def check(
    variant: Variant,
    case: Case,
    sandboxed: bool,
    folder: Path,
    library: Path | None = None,
    running: IsolatedBench | None = None,
    blocks: int = 0,
) -> Row:
    """The row of a case at its size, compiled into `folder` or in `library`; others' faults are `unsupported`. A bench that is
    `running` does it, and nothing else after that: AddressSanitizer keeps the ends of arrays that are there no longer.
    `blocks` run of each launch; usually as many as `Sparse.blocks` says, and more where these write suspiciously little."""
    case = case.with_problem(variant.problem)
    place = {"case": case.name, "size": case.size, "test": TEST}

    def row(status: str, reason: str) -> Row:
        return {**place, **checking.NOT_COMPARED, "ok": status == "ok", "status": status, "reason": reason}

    if reason := variant.unsupported(case):
        return row("unsupported", reason)
    is_compared = bool(batch_of(case.problem))
    sparse = Sparse(case, repeated_extent(case.problem))
    inputs = {
        name: np.empty((sparse.few if sparse.has_batch_axis(name) else case).shape(name), numpy_type(one.dtype))
        for name, one in case.inputs.items()
    }
    checking.draw_fresh(CpuBench(), case, inputs)
    unchecked = f"{variant.name}: indices at {sparse.place} were not checked: "
    try:
        usable = nullcontext(running) if running and not running.ended else None
        with usable or IsolatedBench(variant, sandboxed, folder, library) as bench:
            handle, launches = bench.sample(sparse, inputs, blocks or sparse.blocks, sparse.timeout_s)
        try:
            if launches < 0 or not is_compared:
                return row("ok", "")
            written = {name: _written_images(sparse, name, handle) for name in case.problem.outputs}
            if not blocks and any(CHANCE < _chance(sparse, images) < DOUBTED for images in written.values()):
                return check(variant, case, sandboxed, folder, library, blocks=MORE_BLOCKS)
            if reason := _unwritten(variant, sparse, written, blocks):
                return row("wrong_result", "; ".join(filter(None, (reason, bench.noted))))
            # Of several launches, a later one may read what blocks of an earlier one did not compute.
            return {**place, **_compare(variant, sparse, inputs, written)} if launches == 1 else row("ok", "")
        finally:
            os.close(handle)
    except VariantFailure as failure:
        if failure.status == "wrong_result":
            at = "" if sparse.place in str(failure) else f"; at {sparse.place}"
            return row("wrong_result", f"{failure}{at}")
        return row("unsupported", f"{'' if failure.status == 'unsupported' else unchecked}{failure}")


def _unwritten(variant: Variant, sparse: Sparse, written: Written, blocks: int) -> str:
    """That no output of the last images is written; empty where chance may have chosen blocks of others alone."""
    for name, images in written.items():
        if _chance(sparse, images, blocks) < CHANCE:
            most = f"{sparse.batch} = {max(images)}" if images else "any size"
            size = sparse.case.extents[sparse.batch]
            return f"{variant.name} writes no {name} above {most}, of {size}, in the blocks that ran"
    return ""


def _chance(sparse: Sparse, images: Collection[int], blocks: int = 0) -> float:
    """How likely blocks chosen at random, half of those that run, all compute images up to the last of these."""
    return ((max(images, default=-1) + 1) / sparse.case.extents[sparse.batch]) ** ((blocks or sparse.blocks) // 2)


def _compare(variant: Variant, sparse: Sparse, inputs: dict[str, np.ndarray], written: Written) -> Row:
    """What was written, against the reference: outputs that are still 0 nobody wrote, or they tell nothing."""
    case, columns = sparse.case, {**checking.NOT_COMPARED, "ok": True, "status": "ok", "reason": ""}
    for name, found in written.items():
        if not found:
            continue
        images = sorted(found)
        some = sparse.at(len(images))
        held = {one: values[np.array(images) % sparse.images] if sparse.has_batch_axis(one) else values
                for one, values in inputs.items()}  # fmt: skip
        expected = problem.compute(some, held, np)[name]
        units = reference.magnitudes(some, held, np)[name]
        values = np.stack([found[image] for image in images])
        known = values != 0
        difference = reference.difference(values[known], expected[known], units[known])
        columns = {**columns, **checking.comparison_columns(variant, case, {name: difference}, integers=False)}
        if not columns["ok"]:
            columns["reason"] += (
                f"; at {sparse.place}, {len(images)} of them compared, from number {images[0]} to {images[-1]}"
            )
            break
    return columns


def _written_images(sparse: Sparse, name: str, handle: int) -> dict[int, np.ndarray]:
    """The outputs of each image of which something was written, by its number."""
    begin, count = sparse.places[name]
    shape, kind = sparse.case.shape(name)[1:], numpy_type(sparse.case.arrays[name].dtype)
    image_bytes = nbytes(shape, sparse.case.arrays[name].dtype)
    images: set[int] = set()
    at = begin
    while at < begin + count:
        try:
            at = os.lseek(handle, at, os.SEEK_DATA)
        except OSError:  # no more data
            break
        if at >= begin + count:
            break
        end = min(os.lseek(handle, at, os.SEEK_HOLE), begin + count)
        images.update(range((at - begin) // image_bytes, -(-(end - begin) // image_bytes)))
        at = end
    found = {}
    for image in images:
        values = np.frombuffer(os.pread(handle, image_bytes, begin + image * image_bytes), kind).reshape(shape)
        if values.any():
            found[image] = values
    return found
