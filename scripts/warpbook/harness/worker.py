"""The process that a variant's code runs in while it is checked. It calls the variant on arrays in shared memory.
Nothing that it answers is believed: the judge draws the inputs and compares what lies in the memory afterwards."""

import ctypes
import gc
import math
import mmap
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, TypeVar

import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking, cpp_compiler, inference, nvcc, sandbox, shared_memory
from warpbook.harness.bench import result_arrays
from warpbook.harness.emulator import emulation
from warpbook.harness.worker_protocol import GUARD_BYTES, layout, map_sampled_arrays, nbytes, say_ready, serve
from warpbook.kernels import variants
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems import problem
from warpbook.problems.networks import Description, Network
from warpbook.problems.problem import Case, numpy_type

HOST, EMULATED, DRIVEN, DEVICE = "host", "emulated", "driven", "device"
"""What a variant's code runs on: the host; the host though it is CUDA C++; a GPU, a file of the course; or a GPU."""

ON_A_GPU = (DRIVEN, DEVICE)


class Arranged:
    """An operation and the sets of arrays that it is called on, to be timed. What a call returns goes into the outputs."""

    def __init__(self, operation: Operation, sets: Sequence[Sequence[Any]], outputs: int):
        self.operation, self.sets = operation, sets
        self._outputs = outputs
        self._results: list[tuple[int, Any]] = []

    def call(self, number: int) -> None:
        self.keep(number, self.operation(*self.sets[number]))

    def outputs(self, number: int) -> Sequence[Any]:
        """The outputs of a set."""
        return self.sets[number][-self._outputs :]

    def keep(self, number: int, result: Any) -> None:
        """Remember what a call on a set returned."""
        self._results.append((number, result))

    def drop(self) -> None:
        """Let go of what calls returned."""
        self._results.clear()

    def finish(self, variant: Variant) -> list[list[int]]:
        """Hand over what the calls since the last time returned; the shapes of what the last of them did."""
        results, self._results = self._results, []
        shapes: list[list[int]] = []
        for number, result in results:
            outputs = self.outputs(number)
            checking.reject_lazy_result(variant, result, outputs)
            arrays = () if result is None else result_arrays(result, outputs)
            shapes = [list(one.shape) for one in arrays]
            for place, values in zip(outputs, arrays, strict=False):
                if values is not place and values.shape == place.shape:
                    place[...] = values
        return shapes


Kind = TypeVar("Kind", bound=Arranged)


class TimedCalls(Generic[Kind]):
    """What a variant was arranged for, and what its process is asked on every device."""

    def __init__(self, variant: Variant):
        self._variant = variant
        self._arranged: list[Kind] = []

    def run(self, place: int, numbers: list[int], rounds: int = 1, finish: bool = True) -> dict[str, Any]:
        """Call the operation on some sets, one after another, so many times, without looking at a clock; the shapes of what
        the last call returned. `finish`: all that was returned is handed over, while the judge's clock goes on."""
        arranged = self._arranged[place]
        with checking.fault_context(self._variant, "called"):
            for _ in range(rounds):
                arranged.drop()
                for number in numbers:
                    arranged.call(number)
            return {"shapes": arranged.finish(self._variant) if finish else []}


class Worker(TimedCalls[Arranged]):
    """A variant's operation and the arrays that it is called on."""

    def __init__(self, variant: Variant, how: str, library: Path | None):
        super().__init__(variant)
        self._library = library
        self._emulated = how == EMULATED
        self._kernels: emulation.EmulatedKernels | None = None
        self._driver = nvcc.Driver(library) if how == DRIVEN and library else None
        if self._emulated:
            emulation.EmulatedCuPy.install()

    def prepare(
        self, memory: mmap.mmap, case: dict[str, Any], arrays: list[tuple[list[int], str]], outputs: int, reverse: bool
    ) -> dict[str, Any]:
        self._case = problem.from_description(self._variant.problem, case)
        self._operation = self._prepare(self._case, reverse)
        checking.reject_replaced_functions(self._variant)
        places, returned, _ = layout(arrays, outputs)
        self._shared = [
            np.frombuffer(memory, numpy_type(dtype), math.prod(shape), place + GUARD_BYTES).reshape(shape)
            for (shape, dtype), place in zip(arrays, places, strict=True)
        ]
        self._outputs = slice(len(arrays) - outputs, len(arrays))
        self._returned = [
            np.frombuffer(memory, np.float64, math.prod(shape), place).reshape(shape)
            for (shape, _), place in zip(arrays[self._outputs], returned, strict=True)
        ]
        if self._emulated:
            # They have exactly their size, so that the sanitizer knows their ends.
            self._called = [emulation.allocate(tuple(shape), numpy_type(dtype)) for shape, dtype in arrays]
        elif self._driver:
            # Ordinary memory, as the course's program has, and not pages that two processes share.
            sizes = [nbytes(*one) + 2 * GUARD_BYTES for one in arrays]
            self._whole = [
                np.frombuffer(memory, np.uint8, size, place) for size, place in zip(sizes, places, strict=True)
            ]
            self._own = [whole.copy() for whole in self._whole]
            self._called = [
                own[GUARD_BYTES:-GUARD_BYTES].view(numpy_type(dtype)).reshape(shape)
                for own, (shape, dtype) in zip(self._own, arrays, strict=True)
            ]
        else:
            self._called = self._shared
        return {}

    def call(self, how: str = "course", large: int = 0) -> dict[str, Any]:
        """Call the operation; a file of the course as its driver does it, `how` one of its methods. `large` as in
        `emulated_worker.fill_large`."""
        if self._driver:
            for own, handed in zip(self._own, self._whole, strict=True):
                own[...] = handed
            self.time(how)
            for own, handed in zip(self._own, self._whole, strict=True):
                handed[...] = own
            return {"noted": self._driver.error_message}
        name = ""
        if self._emulated:
            name = self._kernels.fill_large(large) if self._kernels else ""
            for called, shared in zip(self._called, self._shared, strict=True):
                called[...] = shared
        with checking.fault_context(self._variant, "called"):
            result = self._operation(*self._called)
            checking.reject_lazy_result(self._variant, result, self._called[self._outputs])
            returned = () if result is None else result_arrays(result, self._called[self._outputs])
            results = tuple(np.asarray(one, np.float64) for one in returned)
        checking.reject_replaced_functions(self._variant)
        if self._emulated:
            for called, shared in zip(self._called, self._shared, strict=True):
                shared[...] = called
        for one, place in zip(results, self._returned, strict=False):
            if one.shape == place.shape:
                place[...] = one
        noted = next(filter(None, map(self._kernels.explain, self._called[self._outputs])), "") if self._kernels else ""
        return {"noted": name or noted, **({"shapes": [list(one.shape) for one in results]} if results else {})}

    def sample(
        self, memory: mmap.mmap, case: dict[str, Any], arrays: list[list[Any]], outputs: int, blocks: int
    ) -> dict[str, Any]:
        """Run some blocks of each launch: [first byte, bytes, shape, type, whether its images repeat] of each array in
        the memory, the last `outputs` of them outputs."""
        self._case = problem.from_description(self._variant.problem, case)
        assert self._library
        with checking.fault_context(self._variant, "prepared"):
            kernels = emulation.EmulatedKernels(self._library, self._variant.header.constants)
            operation = self._variant.prepare(self._case, kernels)
        called = []
        for address, (_, _, shape, dtype, _) in zip(map_sampled_arrays(memory, arrays, outputs), arrays, strict=True):
            held: Any = (ctypes.c_char * nbytes(shape, dtype)).from_address(address)
            called.append(np.frombuffer(held, numpy_type(dtype)).reshape(shape))
        kernels.sample(blocks, self._case.size or 1)
        with checking.fault_context(self._variant, "called"):
            operation(*called)
        return {"launches": kernels.launches}

    def time(self, how: str) -> dict[str, Any]:
        """The times of one round, as the course takes them or on the `device`, on the arrays of the last call."""
        assert self._driver
        with checking.fault_context(self._variant, "called"):
            times = getattr(self._driver, how)(self._case, *self._called)
        return {"times": times}

    def arrange(self, memory: mmap.mmap, case: dict[str, Any], sets: int) -> dict[str, Any]:
        """Prepare the variant for sets of arrays that it is to be timed on."""
        given = problem.from_description(self._variant.problem, case)
        operation = self._prepare(given, False)
        placed = [
            buffers.values for buffers in shared_memory.place_sets(given, sets, partial(shared_memory.words, memory))
        ]
        self._arranged.append(Arranged(operation, placed, len(given.problem.outputs)))
        return {}

    def forget(self) -> dict[str, Any]:
        """Let go of all that was arranged."""
        self._arranged.clear()
        return {}

    def take(self, place: int, number: int, wake: int | None = None) -> dict[str, Any]:
        """One sample of a call on a set, in milliseconds, after one on another set that wakes the threads."""
        arranged = self._arranged[place]
        with checking.fault_context(self._variant, "timed"):
            if wake is not None:
                arranged.call(wake)
            arranged.drop()
            began = perf_counter()
            arranged.call(number)
            time_ms = (perf_counter() - began) * 1e3
            return {"time_ms": time_ms, "shapes": arranged.finish(self._variant)}

    def synchronize(self) -> dict[str, Any]:
        """Wait for what was called: on the host a call returns when it is done."""
        return {}

    def infer(self, **request: Any) -> dict[str, Any]:
        return infer(self._variant, self._library, **request)

    def _prepare(self, case: Case, reverse: bool) -> Operation:
        with checking.fault_context(self._variant, "prepared"):
            if self._driver:
                return lambda *_: None  # the driver is called with a case
            if not self._emulated:
                return cpp_compiler.prepare(self._variant, case, self._library)
            assert self._library
            self._kernels = emulation.EmulatedKernels(self._library, self._variant.header.constants, reverse)
            return self._variant.prepare(case, self._kernels)


def infer(
    variant: Variant,
    library: Path | None,
    memory: mmap.mmap,
    name: str,
    described: dict[str, Any],
    arrays: list[list[Any]],
) -> dict[str, Any]:
    """The labels that a variant's inference gives images, which lie in the memory before the weights."""
    network = Network(name, Description.model_validate(described))
    images, *parameters = (
        np.frombuffer(memory, kind, math.prod(shape), begin).reshape(shape) for _, kind, shape, begin in arrays
    )
    named = dict(zip((name for name, *_ in arrays[1:]), parameters, strict=True))
    with checking.fault_context(variant, "inferring"):
        labels, _ = inference.load(variant, network, named, library)(images)
        return {"labels": [int(label) for label in labels]}


def main() -> None:
    """Answer requests. Arguments: the socket, what it runs on, the variant, its folder, its library if any."""
    number, how, name, folder, *library = sys.argv[1:]
    say_ready(int(number))
    variant = variants.read(name, Path(folder))
    worker: Any
    if how == DEVICE:
        from warpbook.harness.gpu_worker import GpuWorker

        worker = GpuWorker(variant)
    else:
        worker = Worker(variant, how, Path(library[0]) if library else None)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        try:
            answered: dict[str, Any] = getattr(worker, request.pop("do"))(**request)
        except VariantFailure as failure:
            return {"fault": [failure.status, sandbox.printable(failure)]}
        return answered

    gc.disable()  # Python's garbage collector would interrupt one sample in a few dozen
    serve(int(number), answer)


if __name__ == "__main__":
    main()
