"""The bench that variants run on: guarded and poisoned buffers, fresh inputs, results compared with float64.

`Bench` is what checking and timing need of a device; `CpuBench` is it in NumPy, `gpu_bench.GpuBench` on a CUDA device.
"""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from warpbook.harness import cpp_compiler, reference
from warpbook.harness.worker_protocol import GUARD_BYTES
from warpbook.kernels.variants import Operation, Variant
from warpbook.machine.load import LoadMeter
from warpbook.problems.problem import Array, Case, itemsize, numpy_type

if TYPE_CHECKING:
    from warpbook.harness.shared_memory import HostSets

FLOATS = Array(shape=(), least=-4, most=4, shift=0)  # what is drawn for an array that no problem describes

# What an array holds that nobody wrote, and the margins around it, by bytes of a unit of memory: quiet NaNs with
# payloads of their own, of float32 and float64, and of both float16 and bfloat16. A result that was computed from a margin is NaN
# too, but not the NaN of an output that was never written.
POISON, MARGIN = {4: 0x7FF8DEAD, 2: 0x7FAD, 1: 0xAD}, {4: 0x7FF8BEEF, 2: 0x7FBE, 1: 0xBE}

# CPU variants are given at most so many images a call, so that ten thousand images need no more memory than a hundred.
CPU_CHUNK = 100

SHORT_CALL_MS = 100

SHIFTS = 1 << 16
"""An input is the product of values that were drawn once from two of so many places on: drawing takes longer than many calls, and
what is computed of values at one place, such as their sums, says nothing of the products."""

LONG_SUM, LARGE = 1 << 16, 16
"""A sum of so many values of either sign is smaller than what many of them add to it, and the tolerance grows with their
number: a kernel could leave a part of them out. So many values of each are large: without one of these, it is wrong."""

# A call on more than so many times the L2's bytes finds nothing there of the call before: over all variants, layers and
# sizes beyond it hot medians were 1.000 of cold ones on an H200.
HOT_WITHIN = 4

OTHERS_COMPUTE = "more processes compute on the GPU"  # of a reason to distrust a time


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


def result_arrays(returned: Any, outputs: Sequence[Any]) -> Sequence[Any]:
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


def place(case: Case, begins: Sequence[int], words_at: Callable[[int, int, Any], Any]) -> Buffers:
    """Guarded arrays of a case in memory, each from a byte on: `words_at` gives, from a byte on, so many words of an
    unsigned type."""
    arrays = {
        name: guard(case.shape(name), one.dtype, partial(words_at, begin))
        for (name, one), begin in zip(case.arrays.items(), begins, strict=True)
    }
    outputs = {name: arrays.pop(name) for name in case.problem.outputs}
    return Buffers(arrays, outputs)


def with_margins(values: Any) -> Any:
    """The words that an array of `allocate_guarded` lies in, with its margins."""
    assert values.base is not None
    return values.base


def shift_rows(values: Any, by: float, first: int) -> None:
    """Move every other row up, from `first`, 0 or 1, on, and the rows between down."""
    values[first::2] += by
    values[1 - first :: 2] -= by


def unsettle(
    case: Case, name: str, values: Any, seed: Sequence[int], asarray: Callable[[Any], Any] = np.asarray
) -> None:
    """Put into the reals of an input what its kernel was checked for, and could leave out where it is timed: rows above and
    below 0, where the problem says `shift`; in the first input, large values in long sums. `asarray`: of the values' library."""
    array, generator = case.arrays[name], np.random.default_rng(seed)
    if array.shift:
        shift_rows(values, array.shift, int(generator.integers(2)))
    long = case.problem.facts.exact and case.sums >= LONG_SUM and array.dtype in ("float32", "float64")
    if not long or name != next(iter(case.inputs)):
        return
    # Each place once: the device writes them in any order.
    places = np.unique(generator.integers(values.size, size=LARGE * max(1, values.size // case.sums)))
    large = generator.uniform(0.5, 1, len(places)) * generator.choice([-1, 1], len(places)) * case.sums / LARGE
    values.reshape(-1)[asarray(places)] = asarray(large.astype(array.dtype))


class WorkerProcess(Protocol):
    """A process that computes for this one."""

    def pids(self) -> set[int]:
        """It and what it started; empty where it is not there."""
        ...

    def processor_s(self) -> float:
        """Processor time that they have taken."""
        ...


class SharedSets(Protocol):
    """Sets of a case's arrays in memory that a variant's process is handed."""

    @property
    def sets(self) -> list[Buffers]: ...

    @property
    def handle(self) -> int | None:
        """A descriptor of the memory, to be handed on, where it has one."""
        ...

    @property
    def request(self) -> dict[str, Any]:
        """What the process is asked to arrange."""
        ...

    def results(self, number: int) -> dict[str, Any]:
        """Copies of what a call on a set left in its outputs."""
        ...


@dataclass(frozen=True)
class SteadyCall:
    """A call in a row of calls without a pause: its share of the time and of the device's energy, and the SM clock."""

    time_ms: float
    energy_j: float
    sm_clock_mhz: float | None


class Bench(Protocol):
    """A device as checking sees it."""

    reference_name: str
    on_device: bool
    """Whether variants compute on a GPU."""
    compared: tuple[tuple[str, str], ...]
    """(state, kind) of the timers of a variant and its baseline, which are interleaved."""
    audited_bytes: int
    """What the arrays of calls may take whose time the judge looks at itself."""

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

    def kinds(self, case: Case) -> list[tuple[str, str]]:
        """Each (state, kind) of sample that is taken of a case."""
        ...

    def share(self, case: Case, count: int) -> "SharedSets":
        """So many sets of a case's arrays in memory that a variant's process can have."""
        ...

    def refill(self, case: Case, buffers: Buffers, seed: int, others: int) -> None:
        """Fill the first input with reals decided by `seed` and the others by `others`, fast; see `unsettle`."""
        ...

    def watch(self, processes: Sequence[WorkerProcess]) -> None:
        """Take the work of these processes for one's own."""
        ...

    def read_clock(self) -> tuple[float | None, bool | None]:
        """SM clock in MHz now (None on a CPU), and whether a slowdown is active; None where that shows later."""
        ...

    def steady_call(self, call: Callable[[int], int], call_ms: float) -> SteadyCall | None:
        """A call in a row of calls without a pause; `call` makes about so many, and says how many. None where the device does
        not tell its energy."""
        ...

    def distrust_reason(self) -> str:
        """Why no figure taken here since the last question is to be trusted; empty where nothing speaks against it."""
        ...


Timers = dict[tuple[str, str], Callable[[], float]]
"""For each (state, kind): takes one sample of it, in milliseconds."""


class CpuBench:
    """The host, in NumPy."""

    reference_name = "NumPy float64"
    on_device = False
    compared: tuple[tuple[str, str], ...] = (("hot", "op"),)
    audited_bytes = 32 << 20  # caches are to hold what they hold when one set is timed
    noted = ""
    """What may explain a wrong result of the last call, where something is known."""
    large = 0
    """The uninitialized memory that holds large numbers in place of NaNs where a variant is emulated: 0: none;
    `emulated_worker.ALL_LARGE`: all; else the memory of that number."""

    def __init__(self, tolerated_load: float = math.inf):
        """`tolerated_load`: processors that other programs may keep busy while this one times something."""
        self._load = LoadMeter(tolerated_load)
        self._processes: Sequence[WorkerProcess] = ()
        self._children_s = 0.0
        self._drawn: dict[tuple[str, tuple[int, ...], str], np.ndarray] = {}
        """Values that an input of a shape is filled from: more than it holds, from a place of chance."""

    @property
    def ended(self) -> bool:
        """Whether the process of its variant is no more."""
        return False

    def renewed(self) -> "AbstractContextManager[CpuBench] | None":
        """A bench of the same variant whose process nothing was called in yet; None where it has no process of its own."""
        return None

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

    def kinds(self, case: Case) -> list[tuple[str, str]]:
        return [("hot", "op")]

    def share(self, case: Case, count: int) -> "HostSets":
        from warpbook.harness.shared_memory import HostSets

        return HostSets(case, count)

    def refill(self, case: Case, buffers: Buffers, seed: int, others: int) -> None:
        for number, (name, one) in enumerate(buffers.inputs.items()):
            shape, array = case.shape(name), case.arrays[name]
            generator = np.random.default_rng([others if number else seed, number])
            if not array.is_real:
                self.draw(one.values, int(generator.integers(1 << 62)), False, array)
                continue
            kept = self._drawn.get((name, shape, array.dtype))
            if kept is None:
                kept = self._drawn[name, shape, array.dtype] = np.empty(one.values.size + SHIFTS, one.values.dtype)
                self.draw(kept, secrets.randbits(63), False, array)
            first, second = (kept[begin : begin + one.values.size] for begin in generator.integers(SHIFTS + 1, size=2))
            np.multiply(first.reshape(shape), second.reshape(shape), out=one.values)
            unsettle(case, name, one.values, [others if number else seed, number, 1])

    def watch(self, processes: Sequence[WorkerProcess]) -> None:
        self._processes, self._children_s = processes, sum(one.processor_s() for one in processes)

    def read_clock(self) -> tuple[float | None, bool | None]:
        if not self._load.is_due:
            return None, None
        before_s, self._children_s = self._children_s, sum(one.processor_s() for one in self._processes)
        return None, bool(self._load.reason(self._children_s - before_s))

    def steady_call(self, call: Callable[[int], int], call_ms: float) -> SteadyCall | None:
        return None

    def distrust_reason(self) -> str:
        return ""
