"""Arrays in memory that a variant's process shares with its judge, on the host."""

import fcntl
import mmap
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from warpbook.common import files
from warpbook.common.errors import MachineFault
from warpbook.harness import worker_protocol
from warpbook.harness.bench import MARGIN, Buffers, place
from warpbook.problems.problem import Case


def allocate(size: int) -> tuple[int, mmap.mmap]:
    """Memory that another process can map, and neither grow nor shrink, which would fault whoever reads it. To the system
    it is a file: MachineFault where the limit on the size of files is below it."""
    if limit := files.size_limit(size):
        raise MachineFault(f"not judged: {limit}")
    handle = os.memfd_create("warpbook", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(handle, size)
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return handle, mmap.mmap(handle, size)


def describe_arrays(case: Case) -> dict[str, Any]:
    """A case and the shapes and types of its arrays, for a request to a variant's process."""
    arrays = [(case.shape(name), one.dtype) for name, one in case.arrays.items()]
    return {"case": case.describe(), "arrays": arrays, "outputs": len(case.problem.outputs)}


def words(memory: mmap.mmap, begin: int, count: int, kind: Any) -> np.ndarray:
    """So many words of a type in memory, from a byte on."""
    return np.frombuffer(memory, kind, count, begin)


def layout_of_set(case: Case) -> worker_protocol.Layout:
    """Of a set of arrays to be timed on: what a call returns goes into its outputs."""
    return worker_protocol.layout(describe_arrays(case)["arrays"], 0)


def place_sets(case: Case, count: int, words_at: Callable[[int, int, Any], Any]) -> list[Buffers]:
    """So many sets of a case's arrays in memory, as `bench.place` takes it."""
    arrays, _, size = layout_of_set(case)
    return [place(case, [first + begin for begin in arrays], words_at) for first in range(0, size * count, size)]


class HostSets:
    """So many sets of the arrays of a case."""

    def __init__(self, case: Case, count: int):
        self.request: dict[str, Any] = {"case": case.describe(), "sets": count}
        """What the process is asked to arrange, with the memory of the handle."""
        self.handle, memory = allocate(layout_of_set(case).size * count)
        """A descriptor of the memory; whoever hands it on closes it."""
        self.sets = place_sets(case, count, partial(words, memory))
        for buffers in self.sets:
            for one in (*buffers.inputs.values(), *buffers.outputs.values()):
                for margin in one.margins:
                    margin[...] = MARGIN[one.unit]

    def results(self, number: int) -> dict[str, np.ndarray]:
        """Copies of what a call on a set left in its outputs."""
        return {name: one.values.copy() for name, one in self.sets[number].outputs.items()}
