"""The process that an emulated variant runs in whose header says how it is launched. The judge works out the launches
(`recorded_launches.py`), so that this process needs the standard library alone: under the sanitizers, what `worker.py`
needs takes half a second to load."""

import ctypes
import json
import mmap
import re
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpbook.harness import worker_protocol

NUMBERS = {"f": ctypes.c_float, "d": ctypes.c_double, "i": ctypes.c_int32, "l": ctypes.c_int64}
"""Types of numbers that a kernel takes, by their letters in a recording."""
ALL_LARGE = 0xFFFFFFFF
_ADDED: dict[str, Any] = {
    "float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64,
}  # fmt: skip
"""Types of values that a host adds up."""


def undefined_symbol(error: OSError) -> str:
    """A sentence that names the undefined symbol in a loader's error; empty for another error."""
    found = re.search(r"undefined symbol: (\w+)", str(error))
    mangled = re.match(r"_Z(?:N12GPUInterface)?(\d+)(\w+)", found[1]) if found else None
    if mangled:
        return f"{mangled[2][: int(mangled[1])]} is called and defined nowhere"
    return f"{found[1]} is used and defined nowhere" if found and not found[1].startswith("_Z") else ""


class EmulatedLibrary:
    """A library of kernels, and the arrays that they are called on."""

    def __init__(self, path: Path):
        self._path = path
        self._arrays: list[tuple[int, int, int]] = []

    def load(self) -> dict[str, Any]:
        """Load the library; a fault, where it cannot be."""
        try:
            self._library = ctypes.CDLL(str(self._path))
        except OSError as error:
            if reason := undefined_symbol(error):
                return {"fault": ["compile_failed", reason]}
            return {"fault": ["launch_failed", f"{self._path.stem}, prepared: {str(error).partition(chr(10))[0]}"]}
        return {}

    def hold(self, memory: mmap.mmap, arrays: list[Any], outputs: int) -> None:
        """Allocate arrays of exactly their size, so that the sanitizer knows their ends; they are never freed."""
        self._memory = (ctypes.c_char * len(memory)).from_buffer(memory)
        began = ctypes.addressof(self._memory) + worker_protocol.GUARD_BYTES
        self._arrays = []
        for place, array in zip(worker_protocol.layout(arrays, outputs).arrays, arrays, strict=True):
            size = worker_protocol.nbytes(*array)
            self._arrays.append((allocate(size), began + place, size))

    def call(self, large: int = 0, **how: Any) -> dict[str, Any]:
        """Copy what was handed, run and hand back. Returns a note. `large` as in `fill_large`."""
        name = fill_large(self._library, large)
        for own, shared, size in self._arrays:
            ctypes.memmove(own, shared, size)
        self.run(**how)
        for own, shared, size in self._arrays:
            ctypes.memmove(shared, own, size)
        noted = self.note()
        return {"noted": name or noted}

    def run(self) -> None:
        raise NotImplementedError

    def note(self) -> str:
        """What may explain a wrong result of the last call."""
        raise NotImplementedError


def fill_large(library: Any, number: int) -> str:
    """Fill memory that nobody has written with large numbers in place of NaNs from now on: that of a number or, ALL_LARGE,
    all; 0: none. The name of that memory; empty where there is none."""
    function = library.emulator_fill_large
    function.restype = ctypes.c_char_p
    name: bytes = function(ctypes.c_uint(number)) or b""
    return name.decode(errors="replace") if number else ""


def allocate(size: int) -> int:
    """The address of memory of exactly this size; never freed."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    address: int = malloc(max(1, size))
    return address


def launch(
    entry: Any,
    grid: Sequence[int],
    threads: Sequence[int],
    shared_bytes: int,
    values: Sequence[Any],
    wholes: Sequence[tuple[int, int]],
    reverse: bool,
) -> None:
    """Call a kernel's C entry: each value that it gets, and the memory that it lies in, its address and bytes."""
    count = len(values)
    pointers = (ctypes.c_void_p * count)(*map(ctypes.addressof, values))
    places = (ctypes.c_void_p * count)(*(begin for begin, _ in wholes))
    sizes = (ctypes.c_size_t * count)(*(size for _, size in wholes))
    extents = ((ctypes.c_uint * 3)(*(*shape, 1, 1)[:3]) for shape in (grid, threads))
    entry(*extents, shared_bytes, pointers, places, sizes, count, int(reverse))


def fill(address: int, size: int, value: float) -> None:
    """Fill memory with a float32."""
    if not value:
        ctypes.memset(address, 0, size)
        return
    ctypes.memmove(address, struct.pack("f", value), done := min(4, size))
    while done < size:
        ctypes.memmove(address + done, address, more := min(done, size - done))
        done += more


class LaunchedKernels(EmulatedLibrary):
    """A variant's kernels, launched as its judge recorded it."""

    def prepare(
        self,
        memory: mmap.mmap,
        case: dict[str, Any],
        arrays: list[Any],
        outputs: int,
        reverse: bool,
        recorded: tuple[int, int],
    ) -> dict[str, Any]:
        """Load the library, and allocate the case's arrays and scratch memory; `recorded` is where the launches stand in the memory."""
        if fault := self.load():
            return fault
        self.hold(memory, arrays, outputs)
        self._outputs = [
            (own, size // 4)
            for (own, _, size), (_, dtype) in zip(self._arrays[-outputs:], arrays[-outputs:], strict=True)
            if dtype == "float32"
        ]
        self._read(memory, recorded, [(own, size) for own, _, size in self._arrays], reverse)
        self._unwritten = self._scratch
        return {}

    def run(self) -> None:
        for address, size in self._unwritten:
            self._library.emulator_fill_scratch(ctypes.c_void_p(address), ctypes.c_size_t(size))
        for step in self._steps:
            self._do(*step)

    def note(self) -> str:
        explain = self._library.emulator_explain
        explain.restype = ctypes.c_char_p
        noted = (explain(ctypes.c_void_p(own), ctypes.c_size_t(count)) for own, count in self._outputs)
        return next(filter(None, noted), b"").decode(errors="replace")

    def sample(
        self,
        memory: mmap.mmap,
        case: dict[str, Any],
        arrays: list[list[Any]],
        outputs: int,
        blocks: int,
        recorded: tuple[int, int],
    ) -> dict[str, Any]:
        """As `worker.Worker.sample`."""
        if fault := self.load():
            return fault
        addresses = worker_protocol.map_sampled_arrays(memory, arrays, outputs)
        sizes = [worker_protocol.nbytes(shape, dtype) for _, _, shape, dtype, _ in arrays]
        self._read(memory, recorded, list(zip(addresses, sizes, strict=True)), False)
        self._unwritten = []  # filling what is that large takes long
        self._library.emulator_sample(blocks, case.get("size") or 1)
        self.run()
        return {"launches": self._library.emulator_launches()}

    def _read(self, memory: mmap.mmap, recorded: tuple[int, int], arrays: list[tuple[int, int]], reverse: bool) -> None:
        place, count = recorded
        content = json.loads(memory[place : place + count])
        self._reverse = reverse
        self._steps: list[list[Any]] = content["steps"]
        self._known = arrays
        self._scratch: list[tuple[int, int]] = []
        for size, value in content["scratch"]:
            self._known.append((address := allocate(size), size))
            if value is None:
                self._scratch.append((address, size))
            else:
                fill(address, size, value)

    def _do(self, what: str, *given: Any) -> None:
        """One step: an array filled or added up into another, a variable in constant memory copied, or a launch."""
        if what == "fill":
            number, value = given
            begin, size = self._known[number]
            fill(begin, size, value)
        elif what == "sum":
            number, dtype, output, output_dtype = given
            begin, size = self._known[number]
            kind = _ADDED[dtype]
            added = sum((kind * (size // ctypes.sizeof(kind))).from_address(begin))
            _ADDED[output_dtype].from_address(self._known[output][0]).value = added
        elif what == "move":
            (begin, size), (target, room) = (self._known[number] for number in given)
            ctypes.memmove(target, begin, min(size, room))
        elif what == "copy":
            name, number = given
            target = ctypes.addressof(ctypes.c_char.in_dll(self._library, name))
            ctypes.memmove(target, *self._known[number])
        else:
            entry, grid, threads, shared_bytes, arguments = given
            values, wholes = [], []
            for kind, value, offset in arguments:
                is_array = kind == "array"
                begin, size = self._known[value] if is_array else (0, 0)
                values.append(ctypes.c_void_p(begin + offset) if is_array else NUMBERS[kind](value))
                wholes.append((begin, size))
            launch(getattr(self._library, entry), grid, threads, shared_bytes, values, wholes, self._reverse)


def serve(library: EmulatedLibrary) -> None:
    """Answer requests until there are no more, through the socket that the first argument names."""
    worker_protocol.say_ready(int(sys.argv[1]))
    worker_protocol.serve(int(sys.argv[1]), lambda request: getattr(library, request.pop("do"))(**request))


if __name__ == "__main__":
    serve(LaunchedKernels(Path(sys.argv[2])))
