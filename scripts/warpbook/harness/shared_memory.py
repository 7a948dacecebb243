"""Arrays in memory that a variant's process shares with its judge, on the host."""

import fcntl
import math
import mmap
import os
from functools import partial
from typing import Any

import numpy as np

from warpbook.harness import worker_protocol
from warpbook.harness.bench import MARGIN, Buffers, guard
from warpbook.problems.problem import Case


def allocate(size: int) -> tuple[int, mmap.mmap]:
    """Memory that another process can map, and neither grow nor shrink, which would fault whoever reads it."""
    handle = os.memfd_create("warpbook", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(handle, size)
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return handle, mmap.mmap(handle, size)


def described(case: Case) -> dict[str, Any]:
    """What a variant's process is told of a case and its arrays."""
    arrays = [(case.shape(name), one.dtype) for name, one in case.arrays.items()]
    return {"case": case.describe(), "arrays": arrays, "outputs": len(case.problem.outputs)}


def _words(memory: mmap.mmap, begin: int, count: int, kind: Any) -> np.ndarray:
    """So many words of a type in memory, from a byte on."""
    return np.frombuffer(memory, kind, count, begin)


class HostSets:
    """So many sets of the arrays of a case, each with room for what a call returns."""

    def __init__(self, case: Case, count: int):
        self.request: dict[str, Any] = {**described(case), "sets": count}
        """What the process is asked to arrange, with the memory of the handle."""
        layout = worker_protocol.layout(self.request["arrays"], self.request["outputs"])
        self.handle, memory = allocate(layout.size * count)
        """A descriptor of the memory; whoever hands it on closes it."""
        self.sets: list[Buffers] = []
        self._returned: list[dict[str, np.ndarray]] = []
        for first in range(0, layout.size * count, layout.size):
            arrays = {}
            for (name, one), place in zip(case.arrays.items(), layout.arrays, strict=True):
                arrays[name] = guard(case.shape(name), one.dtype, partial(_words, memory, first + place))
                for margin in arrays[name].margins:
                    margin[...] = MARGIN[arrays[name].unit]
            outputs = {name: arrays.pop(name) for name in case.problem.outputs}
            self.sets.append(Buffers(arrays, outputs))
            self._returned.append(
                {
                    name: np.frombuffer(memory, np.float64, math.prod(shape), first + place).reshape(shape)
                    for (name, shape), place in zip(
                        ((name, case.shape(name)) for name in outputs), layout.returned, strict=True
                    )
                }
            )

    def results(self, number: int, returned: bool) -> dict[str, np.ndarray]:
        """Copies of what a call on a set left in its outputs, or `returned`."""
        if returned:
            return {name: values.copy() for name, values in self._returned[number].items()}
        return {name: one.values.copy() for name, one in self.sets[number].outputs.items()}

    def close(self) -> None:
        """Nothing more is needed."""
