"""Languages besides CUDA C++ that kernels are written in: what installs each, and how a CPU runs its kernels.

A variant in one of them is a .py whose header names the package under `requires`. Its `prepare` returns the call, as of
any launcher; its `compiled(arch)`, if it has one, tells what its kernels are compiled to, by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Compiled(NamedTuple):
    """A kernel's PTX, the dynamic shared memory that its language launches it with, and the assembler that the language
    brings; empty where it brings none."""

    ptx: str
    shared_bytes: int = 0
    ptxas: str = ""


@dataclass(frozen=True)
class Language:
    """A language: its name, its package on PyPI, which of that package's extras its compiler needs, and the variables
    that have it compute on a CPU; none where it cannot."""

    name: str
    distribution: str
    extras: str = ""
    interpreter: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """What installs it."""
        return f"pip install '{self.distribution}{self.extras}'" if self.extras else f"pip install {self.distribution}"


LANGUAGES = {
    "triton": Language("Triton", "triton", interpreter={"TRITON_INTERPRET": "1"}),
    "numba_cuda": Language("Numba-CUDA", "numba-cuda", "[cu13]", {"NUMBA_ENABLE_CUDASIM": "1"}),
    "cutlass": Language("CuTe DSL", "nvidia-cutlass-dsl"),
    "cuda.tile": Language("cuTile", "cuda-tile"),
}
"""By the package that its variants import and require."""
