"""The process that an emulated file of the course runs in, apart from the one that judges it (`worker.py` has others').

It loads a library that holds the file and its driver, and calls that on memory as the judge hands it.
"""

import ctypes
import mmap
import re
import sys
from pathlib import Path
from typing import Any

from warpbook.harness import worker_protocol

ENTRY, NOTED = "warpbook_course", "warpbook_noted"
"""The driver, and what may explain a wrong result of its last call."""

KERNELS, CONVOLUTION = 1, 2
"""What the driver can leave out of a call: the work of every kernel, or all of `conv_forward_gpu`."""


def undefined_symbol(error: OSError) -> str:
    """A sentence that names the undefined symbol in a loader's error; empty for another error."""
    found = re.search(r"undefined symbol: (\w+)", str(error))
    mangled = re.match(r"_Z(?:N12GPUInterface)?(\d+)(\w+)", found[1]) if found else None
    if mangled:
        return f"{mangled[2][: int(mangled[1])]} is called and defined nowhere"
    return f"{found[1]} is used and defined nowhere" if found and not found[1].startswith("_Z") else ""


class CourseFile:
    """A file of the course, loaded, and the arrays that it is called on."""

    def __init__(self, path: Path):
        self._path = path

    def prepare(
        self, memory: mmap.mmap, case: dict[str, Any], arrays: list[Any], outputs: int, reverse: bool
    ) -> dict[str, Any]:
        """Load the library, and allocate x, w and y. They have exactly their size, so that the sanitizer knows their
        ends, and are never freed."""
        try:
            self._library = ctypes.CDLL(str(self._path))
        except OSError as error:
            if reason := undefined_symbol(error):
                return {"fault": ["compile_failed", reason]}
            return {"fault": ["launch_failed", f"{self._path.stem}, prepared: {str(error).partition(chr(10))[0]}"]}
        getattr(self._library, NOTED).restype = ctypes.c_char_p
        allocate = ctypes.CDLL(None).malloc
        allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._memory = (ctypes.c_char * len(memory)).from_buffer(memory)
        began = ctypes.addressof(self._memory) + worker_protocol.GUARD_BYTES
        self._arrays = []
        for place, array in zip(worker_protocol.layout(arrays, outputs).arrays, arrays, strict=True):
            size = worker_protocol.nbytes(*array)
            self._arrays.append((allocate(size), began + place, size))
        (N, C, H, W), (M, _, K, _) = (shape for shape, _ in arrays[:2])
        self._extents = (N, M, C, H, W, K, int(reverse))
        self._blocks = ctypes.c_void_p(began - worker_protocol.GUARD_BYTES + len(memory) - worker_protocol.PAGE_BYTES)
        return {}

    def call(self, without: int = 0) -> dict[str, Any]:
        """Copy what was handed, call the driver and hand back. `without` is KERNELS or CONVOLUTION. Returns a note."""
        for own, shared, size in self._arrays:
            ctypes.memmove(own, shared, size)
        arrays = (ctypes.c_void_p(own) for own, _, _ in self._arrays)
        getattr(self._library, ENTRY)(*arrays, *self._extents, without, self._blocks)
        for own, shared, size in self._arrays:
            ctypes.memmove(shared, own, size)
        noted = getattr(self._library, NOTED)() or b""
        return {"noted": noted.decode(errors="replace")}

    def sample(
        self, memory: mmap.mmap, case: dict[str, Any], arrays: list[list[Any]], outputs: int, blocks: int
    ) -> dict[str, Any]:
        """As `worker.Worker.sample`."""
        self._library = ctypes.CDLL(str(self._path))
        addresses = worker_protocol.map_sampled_arrays(memory, arrays, outputs)
        (N, C, H, W), (M, _, K, _) = (shape for _, _, shape, *_ in arrays[:2])
        self._library.emulator_sample(blocks, N)
        getattr(self._library, ENTRY)(*map(ctypes.c_void_p, addresses), N, M, C, H, W, K, 0, 0, None)
        return {"launches": self._library.emulator_launches()}


def main() -> None:
    """Answer requests until there are no more. Arguments: the socket, the library."""
    coursed = CourseFile(Path(sys.argv[2]))
    worker_protocol.say_ready(int(sys.argv[1]))
    worker_protocol.serve(int(sys.argv[1]), lambda request: getattr(coursed, request.pop("do"))(**request))


if __name__ == "__main__":
    main()
