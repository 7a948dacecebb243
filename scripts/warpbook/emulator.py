"""CUDA C++ variants on the CPU: a kernel's own source, compiled by the system's C++ compiler with its sanitizers on.

For machines without a GPU, CI's among them: a wrong kernel is caught there too. Inline PTX, tensor cores and half
precision are beyond it; such variants say so in their headers. No maintained library does this for plain CUDA C++
(HIP-CPU, which came nearest, is no longer developed), so `emulator.h` supplies the built-ins that these kernels use.
"""

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from warpbook import reference
from warpbook.bench import CpuBench, Guarded
from warpbook.errors import UserError
from warpbook.networks import ConvLayer
from warpbook.variants import Operation, Variant

HEADER = Path(__file__).with_name("emulator.h")
FLAGS = (
    "-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-w", "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
)  # fmt: skip
_LOG = "WARPBOOK_SANITIZER_LOG"

_SHARED = re.compile(r"__shared__\s+([\w ]+?)\s+(\w+(?:\[[^;=]*?\])+(?:\s*,\s*\w+(?:\[[^;=]*?\])+)*)\s*;")
_DECLARATOR = re.compile(r"(\w+)((?:\[[^\]]*\])+)")
_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)')


def compiler() -> str | None:
    """The C++ compiler; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def beyond(variant: Variant) -> str:
    """Why a variant cannot be emulated here; empty when it can."""
    if variant.cuda_source is None:
        return f"{variant.name} is no CUDA C++ of ours"
    if variant.header.beyond_emulator:
        return f"{variant.name} is beyond the emulator: {variant.header.beyond_emulator}"
    if compiler() is None:
        return "the emulator needs a C++ compiler, and there is no g++ here (apt-get install g++)"
    return ""


def to_host(source: str, name: str) -> str:
    """CUDA C++ as C++ for the host: shared arrays become references to the block's memory, kernels get a C entry."""

    def rewritten(match: re.Match[str]) -> str:
        kind, declarators = match.groups()
        parts = [
            f"static const char {array}_declared = 0; "
            f"{kind} (&{array}){extents} = emulator::shared<{kind}{extents}>(&{array}_declared);"
            for array, extents in _DECLARATOR.findall(declarators)
        ]
        return " ".join(parts)

    body = _SHARED.sub(rewritten, source)
    if "__shared__" in body:
        raise UserError(f"{name}: only arrays of fixed size are emulated in shared memory, one statement each")
    entries = "".join(
        f'extern "C" void launch_{kernel}(const unsigned* grid, const unsigned* block, void** arguments, int reversed)'
        f"{{ emulator::launch({kernel}, grid, block, arguments, reversed); }}\n"
        for kernel in _KERNEL.findall(source)
    )
    waits = "#define EMULATOR_BARRIERS\n" if "__syncthreads" in source else ""
    return f'{waits}#include "{HEADER}"\n#line 1 "{name}"\n{body}\n{entries}'


def compile_host(variant: Variant, folder: Path) -> Path:
    """The variant's shared library; UserError with the compiler's words where it is no C++."""
    assert variant.cuda_source is not None
    path = folder / f"{variant.name}.cpp"
    path.write_text(to_host(variant.cuda_source.read_text(), variant.cuda_source.name))
    library = folder / f"{variant.name}.so"
    command = [str(compiler()), *FLAGS, *variant.defines, str(path), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise UserError(f"{variant.name} does not compile for the emulator: {errors[0] if errors else 'no words'}")
    return library


class Kernels:
    """A variant's kernels as its launcher sees them: the host's stand-in for `gpu.Kernels`."""

    def __init__(self, library: Path, reversed_order: bool = False):
        self._library = ctypes.CDLL(str(library))
        self._reversed = reversed_order

    def function(self, name: str) -> Any:
        """A kernel: call it with grid, threads and arguments; a stream, if given, is the order of the calls."""
        entry = getattr(self._library, f"launch_{name}")

        def call(
            grid: tuple[int, ...], threads: tuple[int, ...], arguments: tuple[Any, ...], stream: Any = None
        ) -> None:
            extents = [(ctypes.c_uint * 3)(*(*shape, 1, 1)[:3]) for shape in (grid, threads)]
            held = [_argument(value) for value in arguments]
            pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
            entry(*extents, pointers, int(self._reversed))

        return call

    def symbol(self, name: str) -> "Symbol":
        return Symbol(ctypes.addressof(ctypes.c_char.in_dll(self._library, name)))

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        return allocated(shape, dtype)

    def streams(self, count: int) -> list[None]:
        return [None] * count


class Symbol:
    """A variable in constant or device memory."""

    def __init__(self, address: int):
        self._address = address

    def copy(self, values: np.ndarray) -> None:
        """Copy an array over it."""
        ctypes.memmove(self._address, values.ctypes.data, values.nbytes)


def _argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    kinds = {np.int32: ctypes.c_int32, np.int64: ctypes.c_int64, np.float32: ctypes.c_float}
    return kinds[type(value)](value.item())


@functools.cache
def _malloc() -> Any:
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    return library.malloc


def allocated(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """An array in an allocation of exactly its size, so that the sanitizer knows its ends; never freed."""
    count = int(np.prod(shape))
    size = max(1, count * np.dtype(dtype).itemsize)
    memory = (ctypes.c_char * size).from_address(_malloc()(size))
    return np.frombuffer(memory, dtype, count).reshape(shape)


class EmulatorBench(CpuBench):
    """The host running GPU variants. Buffers have no margins: the sanitizer stands guard.

    `reversed_order` runs blocks and threads from the last to the first: what happens to work in one order only is
    found in the other.
    """

    reference_name = "NumPy float64"

    def __init__(self) -> None:
        self.reversed_order = False
        self._folder = tempfile.TemporaryDirectory()
        self._libraries: dict[str, Path] = {}

    def prepare(self, variant: Variant, layer: ConvLayer, images: int) -> Operation:
        if variant.name not in self._libraries:
            self._libraries[variant.name] = compile_host(variant, Path(self._folder.name))
        return variant.prepare(layer, images, Kernels(self._libraries[variant.name], self.reversed_order))

    def guarded(self, shape: tuple[int, ...]) -> Guarded:
        values = allocated(shape)
        return Guarded(values.reshape(-1).view(np.uint32), values, margin=0)

    def compare(self, layer: ConvLayer, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> reference.Difference:
        return reference.difference(x, w, y)


def under_sanitizer() -> None:
    """See that this process has the sanitizer's library loaded first, as it demands: start it again if need be."""
    if _LOG in os.environ:
        return
    asked = [str(compiler()), "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    environment = {
        **os.environ,
        _LOG: str(Path(tempfile.mkdtemp()) / "stderr"),
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:handle_segv=1:color=never",
        "UBSAN_OPTIONS": "print_stacktrace=0:color=never",
    }
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def keep_words() -> None:
    """Keep what this process and its libraries write to stderr from now on, for `sanitizer_words` in its parent."""
    log = os.open(os.environ[_LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)


def sanitizer_words() -> str:
    """What stopped this process's child: the error, and where in the kernel it is. Empty where nothing was said."""
    log = Path(os.environ.get(_LOG, "/nonexistent"))
    text = log.read_text(errors="replace") if log.exists() else ""
    if own := re.search(r"^emulator: (.*)", text, re.MULTILINE):
        return own.group(1)
    if undefined := re.search(r"([\w.]+\.cu:\d+):\d+: runtime error: (.*)", text):
        return f"undefined behaviour at {undefined.group(1)}: {undefined.group(2)}"
    if address := re.search(r"ERROR: AddressSanitizer: ([\w-]+)", text):
        place = re.search(r"#\d+ 0x\w+ in (\w+).*?([\w.]+\.cu:\d+)", text)
        return f"{address.group(1)}{f' in {place.group(1)} at {place.group(2)}' if place else ''}"
    return ""
