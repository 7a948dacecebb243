"""The bench that variants run on: guarded and poisoned buffers, fresh inputs, results compared with float64.

`Bench` is what checking and timing need of a device; `CpuBench` is it in NumPy, `gpu.GpuBench` on a CUDA device.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter  # by name: a launcher may replace it in its module
from typing import Any, Protocol

import numpy as np

from warpbook.harness import cpp_compiler, reference
from warpbook.harness.worker_protocol import GUARD_BYTES
from warpbook.kernels.variants import Operation, Variant
from warpbook.machine.load import LoadMeter
from warpbook.problems.problem import Array, Case, itemsize, numpy_type

FLOATS = Array(shape=(), least=-4, most=4)
"""What is drawn for an array that no problem describes."""

# What an array holds that nobody wrote, and the margins around it, by bytes of a unit of memory: quiet NaNs with
# payloads of their own, of float32, and of both float16 and bfloat16. A result that was computed from a margin is NaN
# too, but not the NaN of an output that was never written.
POISON, MARGIN = {4: 0x7FC0DEAD, 2: 0x7FAD, 1: 0xAD}, {4: 0x7FC0BEEF, 2: 0x7FBE, 1: 0xBE}

# CPU variants are given at most so many images a call, so that ten thousand images need no more memory than a hundred.
CPU_CHUNK = 100

SHORT_CALL_MS = 100

# A call on more than so many times the L2's bytes finds nothing there of the call before: over all variants, layers and
# sizes beyond it hot medians were 1.000 of cold ones on an H200.
HOT_WITHIN = 4


@dataclass(frozen=True)
class GuardedArray:
    """An array inside a larger buffer of unsigned words of its type's size, of four bytes at most; GUARD_BYTES on either
    side hold MARGIN."""

    words: Any
    values: Any

    @property
    def unit(self) -> int:
        """Bytes of a word."""
        return int(self.words.dtype.itemsize)

    @property
    def _margin(self) -> int:
        return GUARD_BYTES // self.unit

    @property
    def margins(self) -> tuple[Any, Any]:
        return self.words[: self._margin], self.words[len(self.words) - self._margin :]

    @property
    def inner(self) -> Any:
        return self.words[self._margin : len(self.words) - self._margin]


@dataclass(frozen=True)
class Buffers:
    """The inputs and outputs of a call, by name, in the order that it takes them."""

    inputs: dict[str, GuardedArray]
    outputs: dict[str, GuardedArray]

    @property
    def values(self) -> tuple[Any, ...]:
        """The arrays that a call takes."""
        return (*self.input_values.values(), *self.output_values.values())

    @property
    def input_values(self) -> dict[str, Any]:
        return {name: one.values for name, one in self.inputs.items()}

    @property
    def output_values(self) -> dict[str, Any]:
        return {name: one.values for name, one in self.outputs.items()}


def results_of(returned: Any, outputs: Sequence[Any]) -> Sequence[Any]:
    """The arrays that hold what a call computed: those that it returned, or its outputs where it returned nothing."""
    if returned is None:
        return outputs
    return returned if isinstance(returned, tuple) and len(outputs) > 1 else (returned,)


def allocate(bench: "Bench", case: Case, part: Case | None = None) -> Buffers:
    """Guarded arrays for a case; outputs of a smaller one where calls compute a part of it at a time."""
    part = part or case
    return Buffers(
        {name: bench.allocate_guarded(case.shape(name), one.dtype) for name, one in case.inputs.items()},
        {name: bench.allocate_guarded(part.shape(name), one.dtype) for name, one in case.problem.outputs.items()},
    )


def guard(shape: tuple[int, ...], dtype: str, allocate_words: Callable[[int, Any], Any]) -> GuardedArray:
    """An array with margins in memory that `allocate_words` gives: so many words of an unsigned type."""
    kind, unit = numpy_type(dtype), np.dtype(f"uint{8 * min(itemsize(dtype), 4)}")
    margin = GUARD_BYTES // unit.itemsize
    count = math.prod(shape) * kind.itemsize // unit.itemsize
    words = allocate_words(count + 2 * margin, unit)
    return GuardedArray(words, words[margin : margin + count].view(kind).reshape(shape))


class Bench(Protocol):
    """A device as checking sees it."""

    reference_name: str
    compared: tuple[tuple[str, str], ...]
    """(state, kind) of the timers that a variant and its baseline take in turn."""

    def prepare(self, variant: Variant, case: Case) -> Operation:
        """The variant's operation, built and loaded."""
        ...

    def allocate_guarded(self, shape: tuple[int, ...], dtype: str = "float32") -> GuardedArray:
        """An array with margins, both of NaNs."""
        ...

    def fill(self, words: Any, pattern: int) -> None: ...

    def draw(self, values: Any, seed: int, integers: bool, array: Array = FLOATS) -> None:
        """Fresh values decided by `seed`: whole numbers in the array's range, or, of real types, reals in [-1, 1) with
        full mantissas."""
        ...

    def copy_in(self, values: Any, held: np.ndarray) -> None:
        """Copy the host's array into one of the device."""
        ...

    def count_changed(self, words: Any, pattern: int) -> int:
        """How many words differ from the pattern."""
        ...

    def enqueue_hash(self, values: Any) -> Any:
        """Order a hash of an array, after what was ordered before it and without waiting for anything else."""
        ...

    def hash_value(self, ordered: Any) -> int:
        """The hash that was ordered."""
        ...

    def synchronize(self) -> None:
        """Wait for everything, on every stream; raises where the device reports a fault."""
        ...

    def compare(
        self, case: Case, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> dict[str, reference.Difference]:
        """How each output differs from the problem's reference on these inputs."""
        ...

    def parts(self, case: Case) -> list[Case]:
        """What each call of an operation computes of a case."""
        ...

    def timers(self, call: Operation, arrays: Buffers) -> "Timers":
        """A timer for each (state, kind) that the device has."""
        ...

    def read_clock(self) -> tuple[float | None, bool | None]:
        """SM clock in MHz now (None on a CPU), and whether a slowdown is active; None where that shows later."""
        ...

    def distrust_reason(self) -> str:
        """Why no figure taken here since the last question is to be trusted; empty where nothing speaks against it."""
        ...


Timers = dict[tuple[str, str], Callable[[], float]]
"""For each (state, kind): takes one sample of it, in milliseconds."""


class CpuBench:
    """The host, in NumPy."""

    reference_name = "NumPy float64"
    ended = False
    """Whether the process of its variant is no more."""
    compared: tuple[tuple[str, str], ...] = (("hot", "op"),)

    def __init__(self, tolerated_load: float = math.inf):
        """`tolerated_load`: processors that other programs may keep busy while this one times something."""
        self._load = LoadMeter(tolerated_load)

    def prepare(self, variant: Variant, case: Case) -> Operation:
        return cpp_compiler.prepare(variant, case)

    def allocate_guarded(self, shape: tuple[int, ...], dtype: str = "float32") -> GuardedArray:
        return guard(shape, dtype, lambda count, unit: np.full(count, MARGIN[unit.itemsize], unit))

    def fill(self, words: np.ndarray, pattern: int) -> None:
        words[...] = pattern

    def draw(self, values: np.ndarray, seed: int, integers: bool, array: Array = FLOATS) -> None:
        generator = np.random.default_rng(seed)
        if integers or not array.is_real:
            values[...] = generator.integers(array.least, array.most + 1, values.shape)
        else:
            values[...] = generator.integers(-(1 << 24), 1 << 24, values.shape) * 2.0**-24

    def copy_in(self, values: np.ndarray, held: np.ndarray) -> None:
        values[...] = held

    def count_changed(self, words: np.ndarray, pattern: int) -> int:
        return int((words != pattern).sum())

    def enqueue_hash(self, values: np.ndarray) -> int:
        return hash(values.tobytes())

    def hash_value(self, ordered: int) -> int:
        return ordered

    def synchronize(self) -> None:
        pass

    def compare(
        self, case: Case, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> dict[str, reference.Difference]:
        return reference.differences(case, inputs, outputs)

    def parts(self, case: Case) -> list[Case]:
        facts = case.problem.facts
        if not facts.batch or facts.batch != facts.size or facts.batch in dict(case.given):
            return [case]
        assert case.size is not None
        whole, rest = divmod(case.size, CPU_CHUNK)
        return [*[case.at(CPU_CHUNK)] * whole, *([case.at(rest)] if rest else [])]

    def timers(self, call: Operation, arrays: Buffers) -> Timers:
        taken, last_ms = arrays.values, float("inf")

        def op() -> float:
            nonlocal last_ms
            # What ran before may have been another variant: worker threads sleep and caches hold other things. A long
            # call is its own warm-up.
            if last_ms < SHORT_CALL_MS:
                call(*taken)
            began = perf_counter()
            call(*taken)
            last_ms = (perf_counter() - began) * 1e3
            return last_ms

        return {("hot", "op"): op}

    def read_clock(self) -> tuple[float | None, bool | None]:
        reason = self._load.reason()
        return None, None if reason is None else bool(reason)

    def distrust_reason(self) -> str:
        return ""
