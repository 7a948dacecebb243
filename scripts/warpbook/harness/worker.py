"""The process that a variant's code runs in while it is checked, apart from the one that judges it.

It maps the memory that it is handed, calls the variant on the arrays there, and answers that it did. What it answers is
believed in nothing: the judge draws the inputs, keeps them to itself and compares what lies in the memory afterwards.
"""

import ctypes
import math
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking, cpp_compiler, inference, nvcc
from warpbook.harness.bench import results_of
from warpbook.harness.emulator import emulation
from warpbook.harness.worker_protocol import GUARD_BYTES, layout, nbytes, sampled, say_ready, serve
from warpbook.kernels import variants
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems import problem
from warpbook.problems.networks import Description, Network
from warpbook.problems.problem import Case, numpy_type

HOST, EMULATED, DRIVEN = "host", "emulated", "driven"
"""What a variant's code runs on: the host; the host though it is CUDA C++; or, a file of the course, on a GPU."""


class Worker:
    """A variant's operation and the arrays that it is called on."""

    def __init__(self, variant: Variant, how: str, library: Path | None):
        self._variant = variant
        self._library = library
        self._emulated = how == EMULATED
        self._driver = nvcc.Driver(library) if how == DRIVEN and library else None
        if self._emulated:
            emulation.EmulatedCuPy.install()

    def prepare(
        self,
        memory: mmap.mmap,
        case: dict[str, Any],
        arrays: list[tuple[list[int], str]],
        outputs: int,
        reverse: bool,
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

    def call(self, how: str = "course") -> dict[str, Any]:
        """Call the operation; a file of the course as its driver does it, `how` one of its methods."""
        if self._driver:
            for own, handed in zip(self._own, self._whole, strict=True):
                own[...] = handed
            self.time(how)
            for own, handed in zip(self._own, self._whole, strict=True):
                handed[...] = own
            return {"noted": self._driver.error_message}
        if self._emulated:
            for called, shared in zip(self._called, self._shared, strict=True):
                called[...] = shared
        with checking.fault_context(self._variant, "called"):
            result = self._operation(*self._called)
            checking.reject_lazy_result(self._variant, result, self._called[self._outputs])
            returned = () if result is None else results_of(result, self._called[self._outputs])
            results = tuple(np.asarray(one, np.float64) for one in returned)
        checking.reject_replaced_functions(self._variant)
        if self._emulated:
            for called, shared in zip(self._called, self._shared, strict=True):
                shared[...] = called
        for one, place in zip(results, self._returned, strict=False):
            if one.shape == place.shape:
                place[...] = one
        return {"shapes": [list(one.shape) for one in results]} if results else {}

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
        for address, (_, _, shape, dtype, _) in zip(sampled(memory, arrays, outputs), arrays, strict=True):
            held: Any = (ctypes.c_char * nbytes(shape, dtype)).from_address(address)
            called.append(np.frombuffer(held, numpy_type(dtype)).reshape(shape))
        kernels.sample(blocks)
        with checking.fault_context(self._variant, "called"):
            operation(*called)
        return {"launches": kernels.launches}

    def time(self, how: str) -> dict[str, Any]:
        """The times of one round, as the course takes them or on the `device`, on the arrays of the last call."""
        assert self._driver
        with checking.fault_context(self._variant, "called"):
            times = getattr(self._driver, how)(self._case, *self._called)
        return {"times": times}

    def infer(self, memory: mmap.mmap, name: str, described: dict[str, Any], arrays: list[list[Any]]) -> dict[str, Any]:
        network = Network(name, Description.model_validate(described))
        images, *parameters = (
            np.frombuffer(memory, kind, math.prod(shape), begin).reshape(shape) for _, kind, shape, begin in arrays
        )
        named = dict(zip((name for name, *_ in arrays[1:]), parameters, strict=True))
        with checking.fault_context(self._variant, "inferring"):
            labels, _ = inference.load(self._variant, network, named, self._library)(images)
            return {"labels": [int(label) for label in labels]}

    def _prepare(self, case: Case, reverse: bool) -> Operation:
        with checking.fault_context(self._variant, "prepared"):
            if self._driver:
                return lambda *_: None  # the driver is called with a case
            if not self._emulated:
                return cpp_compiler.prepare(self._variant, case, self._library)
            assert self._library
            kernels = emulation.EmulatedKernels(self._library, self._variant.header.constants, reverse)
            return self._variant.prepare(case, kernels)


def main() -> None:
    """Answer requests until there are no more. Arguments: the socket, what it runs on, the variant, its folder, its
    library if any."""
    number, how, name, folder, *library = sys.argv[1:]
    say_ready(int(number))
    worker = Worker(variants.read(name, Path(folder)), how, Path(library[0]) if library else None)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        try:
            answered: dict[str, Any] = getattr(worker, request.pop("do"))(**request)
        except VariantFailure as failure:
            return {"fault": [failure.status, str(failure)]}
        return answered

    serve(int(number), answer)


if __name__ == "__main__":
    main()
