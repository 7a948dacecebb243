"""The bench that variants run on: guarded and poisoned buffers, fresh inputs, results compared with float64.

`Bench` is what checking and timing need of a device; `CpuBench` is it in NumPy, `gpu.GpuBench` on a CUDA device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter  # by name: a launcher may replace it in its module
from typing import Any, Protocol

import numpy as np

from warpbook.harness import cpp_compiler, reference
from warpbook.harness.worker_protocol import GUARD_WORDS
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems.networks import ConvLayer

# Quiet NaNs with payloads of their own: one for outputs not yet written, one for the margins around every buffer. A
# result that was computed from a margin is NaN too, but not the NaN of an output that was never written.
POISON, MARGIN = 0x7FC0DEAD, 0x7FC0BEEF

# CPU variants are given at most so many images a call, so that ten thousand images need no more memory than a hundred.
CPU_CHUNK = 100

SHORT_CALL_MS = 100

# A call on more than so many times the L2's bytes finds nothing there of the call before: over all variants, layers and
# sizes beyond it hot medians were 1.000 of cold ones on an H200.
HOT_WITHIN = 4


@dataclass(frozen=True)
class GuardedArray:
    """A float32 array inside a larger buffer of words, `margin` of which on either side hold MARGIN."""

    words: Any
    values: Any
    margin: int = GUARD_WORDS

    @property
    def margins(self) -> tuple[Any, Any]:
        return self.words[: self.margin], self.words[len(self.words) - self.margin :]

    @property
    def inner(self) -> Any:
        return self.words[self.margin : len(self.words) - self.margin]


class Bench(Protocol):
    """A device as checking sees it."""

    reference_name: str
    compared: tuple[tuple[str, str], ...]
    """(state, kind) of the timers that a variant and its baseline take in turn."""

    def prepare(self, variant: Variant, layer: ConvLayer, images: int) -> Operation:
        """The variant's operation, built and loaded."""
        ...

    def allocate_guarded(self, shape: tuple[int, ...]) -> GuardedArray:
        """An array with margins, both of NaNs."""
        ...

    def fill(self, words: Any, pattern: int) -> None: ...

    def draw(self, values: Any, seed: int, integers: bool) -> None:
        """Fresh values decided by `seed`: integers from -4 to 4, or reals in [-1, 1) with full mantissas."""
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

    def compare(self, layer: ConvLayer, x: Any, w: Any, y: Any) -> reference.Difference: ...

    def batches(self, images: int) -> list[int]:
        """How many images each call of an operation gets, for so many in all."""
        ...

    def timers(self, call: Operation, x: Any, w: Any, y: Any) -> "Timers":
        """A timer for each (state, kind) that the device has."""
        ...

    def read_clock(self) -> tuple[float | None, bool]:
        """SM clock in MHz now (None on a CPU), and whether a slowdown is active."""
        ...

    def distrust_reason(self) -> str:
        """Why no figure taken here since the last question is to be trusted; empty where nothing speaks against it."""
        ...


Timers = dict[tuple[str, str], Callable[[], float]]
"""For each (state, kind): takes one sample of it, in milliseconds."""


class CpuBench:
    """The host, in NumPy."""

    reference_name = "NumPy float64"
    compared: tuple[tuple[str, str], ...] = (("hot", "op"),)

    def prepare(self, variant: Variant, layer: ConvLayer, images: int) -> Operation:
        return cpp_compiler.prepare(variant, layer, images)

    def allocate_guarded(self, shape: tuple[int, ...]) -> GuardedArray:
        words = np.full(int(np.prod(shape)) + 2 * GUARD_WORDS, MARGIN, np.uint32)
        return GuardedArray(words, words[GUARD_WORDS:-GUARD_WORDS].view(np.float32).reshape(shape))

    def fill(self, words: np.ndarray, pattern: int) -> None:
        words[...] = pattern

    def draw(self, values: np.ndarray, seed: int, integers: bool) -> None:
        generator = np.random.default_rng(seed)
        if integers:
            values[...] = generator.integers(-4, 5, values.shape)
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

    def compare(self, layer: ConvLayer, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> reference.Difference:
        return reference.difference(x, w, y, layer.S, layer.P)

    def batches(self, images: int) -> list[int]:
        whole, rest = divmod(images, CPU_CHUNK)
        return [CPU_CHUNK] * whole + ([rest] if rest else [])

    def timers(self, call: Operation, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> Timers:
        last_ms = float("inf")

        def op() -> float:
            nonlocal last_ms
            # What ran before may have been another variant: worker threads sleep and caches hold other things. A long
            # call is its own warm-up.
            if last_ms < SHORT_CALL_MS:
                call(x, w, y)
            began = perf_counter()
            call(x, w, y)
            last_ms = (perf_counter() - began) * 1e3
            return last_ms

        return {("hot", "op"): op}

    def read_clock(self) -> tuple[float | None, bool]:
        return None, False

    def distrust_reason(self) -> str:
        return ""
