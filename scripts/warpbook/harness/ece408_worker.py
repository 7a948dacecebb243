"""The process that an emulated file of the course runs in: it loads the file and its driver, and calls them on memory
that the judge hands it (`worker.py` has other variants')."""

import ctypes
import mmap
import sys
from pathlib import Path
from typing import Any

from warpbook.harness import emulated_worker, worker_protocol

ENTRY, NOTED, LEFT_OUT = "warpbook_course", "warpbook_noted", "warpbook_left_out"
"""The driver, what may explain a wrong result of its last call, and how many blocks that call left out."""

KERNELS, CONVOLUTION, INPUTS = 1, 2, 3
"""What the driver can leave out of a call: the work of every kernel, all of `conv_forward_gpu`, or the inputs, which reach the
device doubled."""


class CourseFile(emulated_worker.EmulatedLibrary):
    """A file of the course, loaded, and the arrays that it is called on: x, w and y."""

    def prepare(
        self, memory: mmap.mmap, case: dict[str, Any], arrays: list[Any], outputs: int, reverse: bool
    ) -> dict[str, Any]:
        """Load the library, and allocate the arrays."""
        if fault := self.load():
            return fault
        self.hold(memory, arrays, outputs)
        (N, C, H, W), (M, _, K, _) = (shape for shape, _ in arrays[:2])
        self._extents = (N, M, C, H, W, K, int(reverse))
        end = ctypes.addressof(self._memory) + len(memory)
        self._blocks = ctypes.c_void_p(end - worker_protocol.PAGE_BYTES)
        return {}

    def call(self, large: int = 0, **how: Any) -> dict[str, Any]:
        answer = super().call(large, **how)
        return {**answer, "left_out": getattr(self._library, LEFT_OUT)()}

    def run(self, without: int = 0, whole: bool = False) -> None:
        """Call the driver. `without` is KERNELS, CONVOLUTION or INPUTS. Of a large launch, blocks are left out that seem to
        write nothing, unless all are to run, the `whole`."""
        arrays = (ctypes.c_void_p(own) for own, _, _ in self._arrays)
        getattr(self._library, ENTRY)(*arrays, *self._extents, without, int(whole), self._blocks)

    def note(self) -> str:
        noted = getattr(self._library, NOTED)
        noted.restype = ctypes.c_char_p
        return (noted() or b"").decode(errors="replace")

    def sample(
        self, memory: mmap.mmap, case: dict[str, Any], arrays: list[list[Any]], outputs: int, blocks: int
    ) -> dict[str, Any]:
        """As `worker.Worker.sample`."""
        self._library = ctypes.CDLL(str(self._path))
        addresses = worker_protocol.map_sampled_arrays(memory, arrays, outputs)
        (N, C, H, W), (M, _, K, _) = (shape for _, _, shape, *_ in arrays[:2])
        self._library.emulator_sample(blocks, N)
        getattr(self._library, ENTRY)(*map(ctypes.c_void_p, addresses), N, M, C, H, W, K, 0, 0, 0, None)
        return {"launches": self._library.emulator_launches(), "noted": self.note()}


if __name__ == "__main__":
    emulated_worker.serve(CourseFile(Path(sys.argv[2])))
