"""C++ for this machine's processor: the system's compiler, and the CPU variants that it compiles."""

import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common.errors import MachineFault, UserError
from warpbook.common.expressions import Expression
from warpbook.common.files import PROJECT, atomic_write, scratch_folder
from warpbook.common.supervision import limit_resources, run_to_end
from warpbook.harness import sandbox
from warpbook.kernels import sources, variants
from warpbook.kernels.variants import Operation, Variant
from warpbook.machine import faults
from warpbook.problems.problem import Case, Problem

LIBRARIES = PROJECT / "results" / "libraries"
COMPILERS = ("g++", "clang++")

# Machine code for any processor of the architecture, so that a kept library runs wherever the folder is carried: a
# variant finds at run time what there is beyond.
OPTIONS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared", "-Wl,--no-undefined")

# A source may ask a compiler for anything (`#include "/dev/zero"`). No shipped kernel takes a tenth of these.
COMPILE_BYTES = 2 << 30
COMPILE_S = 300
TRIALS = 3  # where the machine fails a compiler, a second and two later


class CompileRefusal(UserError):
    """What a compiler refuses, and all its words on it."""

    def __init__(self, reason: str, words: str):
        super().__init__(reason)
        self.words = words

    def __reduce__(self) -> tuple[type["CompileRefusal"], tuple[str, str]]:
        return CompileRefusal, (str(self), self.words)


def compiler() -> str | None:
    """The C++ compiler: CXX of the environment, else g++ or clang++; None where there is none."""
    return next((path for name in _compiler_candidates() if (path := shutil.which(name))), None)


def _compiler_candidates() -> Sequence[str]:
    named = os.environ.get("CXX")
    return [named] if named else COMPILERS


def compiler_version() -> str:
    """The compiler's name and version, as `g++ 12.2.0`; empty where there is none."""
    path = compiler()
    return _version(path) if path else ""


@functools.cache
def _version(path: str) -> str:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace").stdout
    number = re.search(r"\b\d+\.\d+\.\d+\b", said)
    return f"{Path(path).name} {number[0] if number else 'of unknown version'}"


def architecture() -> str:
    """What this machine's compiler makes code for, as `x86_64`."""
    return platform.machine()


def options(variant: Variant) -> list[str]:
    """What a variant is compiled with."""
    return [*OPTIONS, *variant.defines]


def run_compiler(command: list[str], folder: Path, sandboxed: bool, refused: str, readable: Sequence[Path] = ()) -> str:
    """The words of a compiler run in `folder`, within bounds on time and memory. `sandboxed`, a source can include only
    system headers and what is `readable`. Raises CompileRefusal with `refused` and the first error, or MachineFault."""
    environment = {**os.environ, "TMPDIR": str(folder)}  # a compiler that is killed leaves its files
    if sandboxed:
        command, environment = sandbox.wrap(command, readable=readable, writable=[folder]), {}
    bounded = functools.partial(limit_resources, COMPILE_BYTES, COMPILE_S)
    for trial in range(TRIALS):
        time.sleep(trial)
        began, killed = time.monotonic(), faults.killed_for_memory()
        try:
            status, _, words = run_to_end(command, COMPILE_S, environment, bounded, by_processor_time=True)
        except subprocess.TimeoutExpired:
            raise UserError(
                f"{refused}: the compiler was still running after {COMPILE_S} s of processor time"
            ) from None
        in_time = time.monotonic() - began < COMPILE_S
        fault = _fault_of_machine(status, words, folder, in_time, faults.killed_for_memory() > killed) if status else ""
        if not fault:
            break
    if fault:
        raise MachineFault(f"not judged: {fault}")
    if status:
        lines = words.splitlines()
        told = "error|undefined reference|out of memory"
        errors = [line for line in lines if re.search(told, line)] or lines or ["no words"]
        memory = f" (it may take {COMPILE_BYTES >> 30} GiB)" if "out of memory" in errors[0] else ""
        raise CompileRefusal(f"{refused}: {errors[0].replace(f'{folder}/', '')}{memory}", words)
    return words


def _fault_of_machine(status: int, words: str, folder: Path, in_time: bool, killed: bool) -> str:
    """What the machine lacked, where a compiler failed `in_time`; empty where the source is at fault."""
    if full := faults.full_disk(folder):  # where the compiler may say nothing of it: it reads half of what it wrote
        return full
    if re.search(r"out of memory|virtual memory exhausted|Cannot allocate memory|bad_alloc|unavailable", words):
        return faults.little_memory() or ("the machine ran out of memory" if killed else "")
    if in_time and (status < 0 or re.search(r"^[\w+.-]+: fatal error: Killed signal", words, re.MULTILINE)):
        return "the compiler was killed; is there too little memory?"
    return ""


def declaration(problem: Problem, name: str, arguments: Sequence[Expression]) -> str:
    """What stands before a variant's source, so that only a function of the right type compiles and links."""
    taken = ", ".join(map(problem.c_type, arguments))
    return (
        f'\nextern "C" void {name}({taken});\n'
        f"static decltype(&{name}) const {name}_is_there __attribute__((used)) = {name};\n"
    )


def library(variant: Variant, sandboxed: bool) -> Path:
    """A C++ variant's shared library, compiled once and kept under the hash of its source, options and compiler. Raises
    UserError with the compiler's words, or the remedy where there is none."""
    assert variant.cpp_source is not None
    program = compiler()
    if program is None:
        raise UserError(
            f"{variant.name} needs a C++ compiler, and there is no {' or '.join(_compiler_candidates())} here "
            "(apt-get install g++)"
        )
    of, general = variant.problem, variant.header.general
    declared_as = declaration(of, of.function, of.arguments)
    if general:
        declared_as += declaration(of, general.kernel, general.arguments)
    identity = "\0".join([variant.source_sha256, compiler_version(), architecture(), *options(variant), declared_as])
    kept = LIBRARIES / f"{variant.stem}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    if kept.exists():
        return kept
    with atomic_write(kept) as made, scratch_folder() as folder:
        source = folder / variant.cpp_source.name
        source.write_text(sources.read_text(variant.cpp_source))
        declared, output = source.with_suffix(".h"), source.with_suffix(".so")
        declared.write_text(declared_as)
        command = [program, *options(variant), "-include", str(declared), str(source), "-o", str(output)]
        run_compiler(command, folder, sandboxed, f"{variant.name} does not compile")
        shutil.copyfile(output, made)
    return kept


def prepare(variant: Variant, case: Case, built: Path | None = None) -> Operation:
    """The operation of a CPU variant for a case at its size. C++ is compiled first, outside a sandbox, where neither
    `built` is its library nor one is kept."""
    if variant.cpp_source is None:
        return variant.prepare(case)
    compiled = ctypes.CDLL(str(built or library(variant, sandboxed=False)))
    if general := variant.header.general_for(case):
        return _general_operation(getattr(compiled, general.kernel), case, variant.header.argument_values(case))
    function = getattr(compiled, variant.problem.function)
    function.restype = None
    extents = [ctypes.c_int(int(extent)) for extent in variants.launch_arguments(case)]

    def operation(*arrays: np.ndarray) -> None:
        function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays), *extents)

    return operation


def _general_operation(function: Any, case: Case, passed: Sequence[Any]) -> Operation:
    """A call of a function that takes the arrays, and the numbers among them, in an order of its own; a null pointer for
    an optional input that the case does not have."""
    function.restype = None

    def operation(*arrays: np.ndarray) -> None:
        pointers = {name: ctypes.c_void_p(array.ctypes.data) for name, array in zip(case.arrays, arrays, strict=True)}
        function(*(pointers.get(value) if isinstance(value, str) else ctypes.c_int(value) for value in passed))

    return operation
