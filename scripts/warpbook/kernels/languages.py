"""Languages besides CUDA C++ that kernels are written in: what installs each, and how a CPU runs its kernels. A variant
in one of them is a .py whose header names the package under `requires`. Its `prepare` returns the call, as of any
launcher; its `compiled(arch)`, if it has one, tells what its kernels are compiled to, by name."""

import importlib.util
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import NamedTuple

from warpbook.common import cuda_toolkit


class Compiled(NamedTuple):
    """A kernel's PTX, the dynamic shared memory that it is launched with, and its language's assembler, if any."""

    ptx: str
    shared_bytes: int = 0
    ptxas: str = ""


@dataclass(frozen=True)
class Language:
    """A language: its name, what pip installs for it, the variables that have it compute on a CPU, if it can, and the
    program that compiles it, where that is no part of the package."""

    name: str
    package: str
    interpreter: Mapping[str, str] = field(default_factory=dict)
    compiler: str = ""

    @property
    def command(self) -> str:
        """What installs it."""
        return f"pip install {shlex.quote(self.package)}"

    @property
    def version(self) -> str:
        """Its name, and its version where pip installed it by the usual name: PyTorch's nightly builds bring another."""
        try:
            return f"{self.name} {metadata.version(self.package.partition('[')[0])}"
        except metadata.PackageNotFoundError:
            return self.name


LANGUAGES = {
    "triton": Language("Triton", "triton", {"TRITON_INTERPRET": "1"}),
    "numba_cuda": Language("Numba-CUDA", "numba-cuda[cu13]", {"NUMBA_ENABLE_CUDASIM": "1"}),
    "cutlass": Language("CuTe DSL", "nvidia-cutlass-dsl"),
    "cuda.tile": Language("cuTile", "cuda-tile[tileiras]", compiler="tileiras"),
}
"""By the package that its variants import and require."""


def is_installed(package: str) -> bool:
    """Whether a package, or one within another such as cuda.tile, can be imported here."""
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the outer package
        return False


def missing_words(package: str) -> str:
    """What of a package, or of the language that it is of, is not installed here, in words; empty when nothing is missing."""
    if not is_installed(package):
        return f"the Python package {package}"
    language = LANGUAGES.get(package)
    if language and language.compiler and not cuda_toolkit.find_program(language.compiler):
        return f"{language.compiler}, the compiler of {language.name}"
    return ""
