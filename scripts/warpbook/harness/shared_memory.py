"""Arrays in memory that a variant's process shares with its judge, on the host."""

import fcntl
import mmap
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from warpbook.harness import worker_protocol
from warpbook.harness.bench import MARGIN, Buffers, place
from warpbook.problems.problem import Case


def allocate(size: int) -> tuple[int, mmap.mmap]:
    """Memory that another process can map, and neither grow nor shrink, which would fault whoever reads it."""
    handle = os.memfd_create("warpbook", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(handle, size)
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return handle, mmap.mmap(handle, size)


def describe_arrays(case: Case) -> dict[str, Any]:
    """A case and the shapes and types of its arrays, for a request to a variant's process."""
    arrays = [(case.shape(name), one.dtype) for name, one in case.arrays.items()]
    return {"case": case.describe(), "arrays": arrays, "outputs": len(case.problem.outputs)}


def _words(memory: mmap.mmap, begin: int, count: int, kind: Any) -> np.ndarray:
    """So many words of a type in memory, from a byte on."""
    return np.frombuffer(memory, kind, count, begin)


def place_sets(memory: mmap.mmap, case: Case, count: int) -> Iterator[tuple[Buffers, dict[str, np.ndarray]]]:
    """So many sets of a case's arrays in memory, each with room for what a call returns, by output."""
    layout = _layout(case)
    for first in range(0, layout.size * count, layout.size):
        returned = {
            name: _words(memory, first + begin, case.count(name), np.float64).reshape(case.shape(name))
            for name, begin in zip(case.problem.outputs, layout.returned, strict=True)
        }
        yield place(case, [first + begin for begin in layout.arrays], partial(_words, memory)), returned


def _layout(case: Case) -> worker_protocol.Layout:
    told = describe_arrays(case)
    return worker_protocol.layout(told["arrays"], told["outputs"])


class HostSets:
    """So many sets of the arrays of a case, each with room for what a call returns."""

    def __init__(self, case: Case, count: int):
        self.request: dict[str, Any] = {"case": case.describe(), "sets": count}
        """What the process is asked to arrange, with the memory of the handle."""
        self.handle, memory = allocate(_layout(case).size * count)
        """A descriptor of the memory; whoever hands it on closes it."""
        placed = list(place_sets(memory, case, count))
        self.sets = [buffers for buffers, _ in placed]
        self._returned = [returned for _, returned in placed]
        for buffers in self.sets:
            for one in (*buffers.inputs.values(), *buffers.outputs.values()):
                for margin in one.margins:
                    margin[...] = MARGIN[one.unit]

    def results(self, number: int, returned: bool) -> dict[str, np.ndarray]:
        """Copies of what a call on a set left in its outputs, or `returned`."""
        if returned:
            return {name: values.copy() for name, values in self._returned[number].items()}
        return {name: one.values.copy() for name, one in self.sets[number].outputs.items()}
