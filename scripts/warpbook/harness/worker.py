"""The process that a variant's code runs in while it is checked, apart from the one that judges it.

It maps the memory that it is handed, calls the variant on the arrays there, and answers that it did. What it answers is
believed in nothing: the judge draws the inputs, keeps them to itself and compares what lies in the memory afterwards.
"""

import math
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking, cpp_compiler, inference, nvcc
from warpbook.harness.emulator import emulation
from warpbook.harness.worker_protocol import GUARD_WORDS, layout, serve, shapes
from warpbook.kernels import variants
from warpbook.kernels.variants import Operation, Variant
from warpbook.problems.networks import ConvLayer, Description, Network

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

    def prepare(self, memory: mmap.mmap, layer: list[Any], images: int, reverse: bool) -> dict[str, Any]:
        self._operation, self._layer = self._prepare(ConvLayer(*layer), images, reverse), ConvLayer(*layer)
        checking.reject_replaced_functions(self._variant)
        places, _ = layout(self._layer, images)
        extents = shapes(self._layer, images)
        begins = [4 * (place + GUARD_WORDS) for place in places[:3]]
        self._shared = [
            np.frombuffer(memory, np.float32, math.prod(shape), begin).reshape(shape)
            for shape, begin in zip(extents, begins, strict=True)
        ]
        self._returned = np.frombuffer(memory, np.float64, math.prod(extents[2]), 4 * places[3]).reshape(extents[2])
        if self._emulated:
            # They have exactly their size, so that the sanitizer knows their ends.
            self._called = [emulation.allocate(shape) for shape in extents]
        elif self._driver:
            # Ordinary memory, as the course's program has, and not pages that two processes share.
            self._whole = [np.frombuffer(memory, np.uint32, *place) for place in _array_words(places, extents)]
            self._own = [words.copy() for words in self._whole]
            self._called = [
                words[GUARD_WORDS:-GUARD_WORDS].view(np.float32).reshape(shape)
                for words, shape in zip(self._own, extents, strict=True)
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
            checking.reject_lazy_result(self._variant, result, self._called[2])
            if result is not None:
                result = np.asarray(result, np.float64)
        checking.reject_replaced_functions(self._variant)
        if self._emulated:
            for called, shared in zip(self._called, self._shared, strict=True):
                shared[...] = called
        if result is None:
            return {}
        if result.shape == self._returned.shape:
            self._returned[...] = result
        return {"shape": list(result.shape)}

    def time(self, how: str) -> dict[str, Any]:
        """The times of one round, as the course takes them or on the `device`, on the arrays of the last call."""
        assert self._driver
        with checking.fault_context(self._variant, "called"):
            times = getattr(self._driver, how)(self._layer, *self._called)
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

    def _prepare(self, layer: ConvLayer, images: int, reverse: bool) -> Operation:
        with checking.fault_context(self._variant, "prepared"):
            if self._driver:
                return lambda x, w, y: None  # the driver is called with a layer
            if not self._emulated:
                return cpp_compiler.prepare(self._variant, layer, images, self._library)
            assert self._library
            kernels = emulation.EmulatedKernels(self._library, self._variant.header.constants, reverse)
            return self._variant.prepare(layer, images, kernels)


def _array_words(places: list[int], shapes: tuple[tuple[int, ...], ...]) -> list[tuple[int, int]]:
    """Words and first byte of each array with its margins."""
    return [(math.prod(shape) + 2 * GUARD_WORDS, 4 * place) for place, shape in zip(places, shapes, strict=False)]


def main() -> None:
    """Answer requests until there are no more. Arguments: the socket, what it runs on, the variant, its folder, its
    library if any."""
    number, how, name, folder, *library = sys.argv[1:]
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
