"""The process that a variant computes in on a GPU, in memory that its judge owns. The judge believes its times as far
as a clock of its own allows."""

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import cupy

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking
from warpbook.harness.bench import Buffers, Timers
from warpbook.harness.gpu_bench import ExplainedKernels, GpuBench, GpuKernels, laid_out
from warpbook.harness.shared_memory import place_sets
from warpbook.harness.worker import Arranged, TimedCalls, infer
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems import problem
from warpbook.problems.problem import Case


class Placed(Arranged):
    """An operation and the sets of arrays of a case, on a device."""

    def __init__(self, bench: GpuBench, case: Case, operation: Operation, buffers: list[Buffers]):
        self.lay_out: list[Callable[[], None]] = []
        sets = []
        for one in buffers:
            timed, inputs, lay_out = laid_out(operation, list(one.input_values.values()))
            sets.append([*inputs, *one.output_values.values()])
            self.lay_out.append(lay_out)
        super().__init__(timed, sets, len(case.problem.outputs))
        self._bench, self._case, self._checked = bench, case, operation
        self._buffers = buffers
        self._seeds = (0, 0)

    @cached_property
    def timers(self) -> Timers:
        """Those of the first set, on inputs that are drawn from the seeds of each sample."""
        return self._bench.timers(
            self._checked, self._buffers[0], lambda: self._bench.refill(self._case, self._buffers[0], *self._seeds)
        )

    def sample(self, state: str, kind: str, seeds: tuple[int, int]) -> float:
        self._seeds = seeds
        time_ms = self.timers[state, kind]()
        self._bench.synchronize()
        self.keep(0, self._bench.returned)
        return time_ms


class GpuWorker(TimedCalls[Placed]):
    """A variant's operations and the arrays that they are called on."""

    def __init__(self, variant: Variant):
        super().__init__(variant)
        self._bench: GpuBench | None = None
        self._opened: list[int] = []
        # While the judge opens its own device. What fails here does so again when the variant is prepared.
        with suppress(Exception):
            self._import()
            cupy.cuda.runtime.free(0)

    def _import(self) -> None:
        if self._variant.cuda_source is None:
            _ = self._variant.module  # PyTorch does not load after NVRTC, which exports clashing C++ symbols

    def prepare(self, **request: Any) -> dict[str, Any]:
        """Prepare the variant to be checked: a launch that fails is explained."""
        self.forget()
        return self._prepare(ExplainedKernels, **request)

    def arrange(self, **request: Any) -> dict[str, Any]:
        """Prepare the variant for sets of arrays that it is to be timed on."""
        return self._prepare(GpuKernels, **request)

    def _prepare(self, kernels: type[GpuKernels], pointer: str, case: dict[str, Any], sets: int) -> dict[str, Any]:
        given = problem.from_description(self._variant.problem, case)
        with checking.fault_context(self._variant, "prepared"):
            self._import()
            self._bench = self._bench or GpuBench(kernels)
            operation = self._bench.prepare(self._variant, given)
        checking.reject_replaced_functions(self._variant)
        memory = cupy.cuda.runtime.ipcOpenMemHandle(bytes.fromhex(pointer))
        self._opened.append(memory)
        buffers = place_sets(given, sets, partial(_words, memory))
        self._arranged.append(Placed(self._bench, given, operation, buffers))
        return {}

    def forget(self) -> dict[str, Any]:
        """Let go of all that was arranged, and of its memory."""
        self._arranged.clear()
        while self._opened:
            cupy.cuda.runtime.ipcCloseMemHandle(self._opened.pop())
        return {}

    def call(self) -> dict[str, Any]:
        """Call the operation. Outputs that change after the default stream is done are a fault: nobody waited for that work."""
        (arranged,) = self._arranged
        bench = self._bench
        assert bench
        with checking.fault_context(self._variant, "called"):
            arranged.lay_out[0]()
            arranged.call(0)
            shapes = arranged.finish(self._variant)
            outputs = arranged.outputs(0)
            early = [bench.enqueue_hash(output) for output in outputs]
            bench.synchronize()
            late = [bench.enqueue_hash(output) for output in outputs]
            if list(map(bench.hash_value, early)) != list(map(bench.hash_value, late)):
                raise VariantFailure("wrong_result", f"{self._variant.name} {checking.GOES_ON}")
        checking.reject_replaced_functions(self._variant)
        return {"shapes": shapes}

    def ready(self, place: int) -> dict[str, Any]:
        """Make the first calls, which are no sample: a framework tries its algorithms in them."""
        with checking.fault_context(self._variant, "prepared"):
            _ = self._arranged[place].timers
        return {}

    def take(self, place: int, state: str, kind: str, seeds: tuple[int, int]) -> dict[str, Any]:
        """One sample of a call on the first set, whose inputs are drawn from seeds, in milliseconds."""
        arranged = self._arranged[place]
        arranged.drop()
        with checking.fault_context(self._variant, "timed"):
            time_ms = arranged.sample(state, kind, seeds)
            shapes = arranged.finish(self._variant)
            cupy.cuda.runtime.deviceSynchronize()
            return {"time_ms": time_ms, "shapes": shapes}

    def lay_out(self, place: int) -> dict[str, Any]:
        """Lay out the inputs of all sets as the operation takes them."""
        with checking.fault_context(self._variant, "called"):
            self._arranged[place].drop()
            for lay_out in self._arranged[place].lay_out:
                lay_out()
            cupy.cuda.runtime.deviceSynchronize()
        return {}

    def synchronize(self) -> dict[str, Any]:
        """Wait for everything, on every stream."""
        with checking.fault_context(self._variant, "called"):
            cupy.cuda.runtime.deviceSynchronize()
        return {}

    def infer(self, **request: Any) -> dict[str, Any]:
        """The labels that the variant's inference gives images."""
        return infer(self._variant, None, **request)


def _words(address: int, begin: int, count: int, kind: Any) -> cupy.ndarray:
    """So many words of a type in memory that somebody else owns, from a byte on."""
    memory = cupy.cuda.UnownedMemory(address + begin, count * kind.itemsize, owner=None)
    return cupy.ndarray((count,), kind, cupy.cuda.MemoryPointer(memory, 0))
