"""CUDA C++ variants emulated on the CPU: the system's C++ compiler compiles a kernel's source, sanitizers on.

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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warpbook import devices, sources
from warpbook.errors import UserError
from warpbook.harness import building, host
from warpbook.harness.supervision import Failed
from warpbook.variants import Variant

HEADER = Path(__file__).with_name("emulator.h")
FLAGS = (
    "-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-w", "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
)  # fmt: skip

_SHARED = re.compile(
    r"(?P<dynamic>\bextern\s+)?(?:\bstatic\s+)?__shared__\s+(?:(?:__align__|alignas)\s*\(\s*\d+\s*\)\s*)?"
    r"(?P<kind>[A-Za-z_][\w: ]*?)\s*\b(?P<declarators>\w+\s*(?:\[[^;=]*?\]\s*)*(?:,\s*\w+\s*(?:\[[^;=]*?\]\s*)*)*);"
)
_DECLARATOR = re.compile(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)")


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


def to_host(source: str, name: str, kernels: Sequence[str]) -> str:
    """CUDA C++ as C++ for the host: shared variables become references to the block's memory, and the kernels, by
    their names in the source, get a C entry each."""
    code = sources.without_comments(source)

    def rewritten(match: re.Match[str]) -> str:
        kind = match["kind"].strip()
        if match["dynamic"]:
            (array, extents) = _DECLARATOR.findall(match["declarators"])[0]
            if not re.fullmatch(r"\[\s*\]\s*", extents):
                raise UserError(f"{name}: the size of dynamic shared memory is the launch's; write {array}[]")
            if _in_function(code[: match.start()]):
                return f"{kind}* const {array} = reinterpret_cast<{kind}*>(emulator::dynamic_shared(__LINE__));"
            return f"static {kind}*& {array} = reinterpret_cast<{kind}*&>(emulator::dynamic_base);"
        parts = [
            f"static const char {variable}_declared = 0; "
            f"{kind} (&{variable}){extents} = emulator::shared<{kind}{extents}>(&{variable}_declared);"
            for variable, extents in _DECLARATOR.findall(_one_line(match["declarators"]))
        ]
        return " ".join(parts) + "\n" * match[0].count("\n")

    pieces, end = [], 0
    for match in _SHARED.finditer(code):
        pieces += [source[end : match.start()], rewritten(match)]
        end = match.end()
    body = "".join(pieces) + source[end:]
    if "__shared__" in sources.without_comments(body):
        line = _line_of("__shared__", sources.without_comments(body))
        raise UserError(f"beyond the emulator: this declaration in shared memory, {name}, line {line}")
    entries = "".join(
        f'extern "C" void {entry_of(kernel)}'
        "(const unsigned* grid, const unsigned* block, unsigned shared, void** arguments, int count, int reversed)"
        f"{{ emulator::launch({kernel}, grid, block, shared, arguments, count, reversed); }}\n"
        for kernel in kernels
    )
    waits = "#define EMULATOR_BARRIERS\n" if "__syncthreads" in code else ""
    return f'{waits}#include "{HEADER}"\n#line 1 "{name}"\n{body}\n{entries}'


def entry_of(kernel: str) -> str:
    """The name of a kernel's C entry; those of templates too."""
    return "launch_" + re.sub(r"\W", "_", kernel)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _line_of(word: str, code: str) -> int:
    return code.count("\n", 0, code.index(word)) + 1


def _in_function(before: str) -> bool:
    """Whether a place in C++ is inside a function, by the code before it: what opens there follows a parenthesis."""
    opened: list[bool] = []
    for brace in re.finditer(r"[{}]", before):
        if brace[0] == "{":
            opened.append(before[: brace.start()].rstrip().endswith(")"))
        elif opened:
            opened.pop()
    return any(opened)


def compile_host(variant: Variant, folder: Path, sandboxed: bool) -> Path:
    """The variant's shared library; UserError with the compiler's words where it is no C++.

    `sandboxed`, a source can include nothing of its author's choice but the system's headers.
    """
    assert variant.cuda_source is not None
    path = folder / f"{variant.name}.cpp"
    # A launcher may want any of the kernels; without one the header's is enough.
    there = sources.kernels(variant.code) if variant.launcher else []
    kernels = dict.fromkeys([*there, *([variant.kernel] if "<" in variant.kernel or not there else [])])
    path.write_text(to_host(building.checked_source(variant), variant.cuda_source.name, list(kernels)))
    library = folder / f"{variant.name}.so"
    command = [str(compiler()), *FLAGS, *variant.defines, str(path), "-o", str(library)]
    host.compiled(command, folder, sandboxed, f"{variant.name} does not compile for the emulator")
    return library


class Kernels:
    """A variant's kernels as its launcher sees them: the host's stand-in for `gpu.Kernels`."""

    def __init__(self, library: Path, constants: Mapping[str, int], reversed_order: bool = False):
        self._library = ctypes.CDLL(str(library))
        self.constants = constants
        self._reversed = reversed_order

    def function(self, name: str, shared_bytes: int = 0) -> Callable[..., None]:
        """A kernel: call it with grid, threads and arguments; a stream, if given, is the order of the calls."""
        entry = getattr(self._library, entry_of(name))

        def call(
            grid: tuple[int, ...], threads: tuple[int, ...], arguments: tuple[Any, ...], stream: Any = None
        ) -> None:
            if reason := devices.beyond_launch(grid, threads, shared_bytes):
                raise Failed("launch_failed", f"{name}: {reason}")
            extents = [(ctypes.c_uint * 3)(*(*shape, 1, 1)[:3]) for shape in (grid, threads)]
            held = [_argument(value) for value in arguments]
            pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
            entry(*extents, shared_bytes, pointers, len(held), int(self._reversed))

        return call

    def has(self, name: str) -> bool:
        """Whether there is a kernel of that name."""
        return hasattr(self._library, entry_of(name))

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


def sanitizing() -> dict[str, str]:
    """The environment of a process that loads emulated kernels: the sanitizer's library must be loaded first."""
    asked = [str(compiler()), "-print-file-name=libasan.so"]
    return {
        "LD_PRELOAD": subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:handle_segv=1:color=never",
        "UBSAN_OPTIONS": "print_stacktrace=0:color=never",
    }


def sanitizer_words(text: str) -> str:
    """The sanitizer's error that ended a process, and its place in the kernel, of what it wrote; empty without one."""
    if words := re.search(r"^emulator: (.*)", text, re.MULTILINE):
        return words.group(1)
    if undefined := re.search(r"([\w.]+\.cu:\d+):\d+: runtime error: (.*)", text):
        return f"undefined behaviour at {undefined.group(1)}: {undefined.group(2)}"
    if address := re.search(r"ERROR: AddressSanitizer: ([\w-]+)", text):
        place = re.search(r"#\d+ 0x\w+ in (\w+).*?([\w.]+\.cu:\d+)", text)
        return f"{address.group(1)}{f' in {place.group(1)} at {place.group(2)}' if place else ''}"
    return ""
