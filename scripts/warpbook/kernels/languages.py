"""Languages besides CUDA C++ that a kernel is written in: how each is installed, and how a CPU runs its kernels.

A variant in one of them is a .py whose header says `requires:`. Its `prepare` returns the call, as of any launcher; its
`compiled(arch)` says what its kernels are compiled to: {name: Compiled}.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Compiled(NamedTuple):
    """A kernel's PTX, the dynamic shared memory that its language launches it with, and the assembler that the language
    brings, if it does."""

    ptx: str
    shared_bytes: int = 0
    ptxas: str = ""


@dataclass(frozen=True)
class Language:
    """A language: its name, that of its package and of its distribution, and the environment in which it computes on a
    CPU; none where it cannot."""

    name: str
    package: str
    distribution: str
    extra: str
    interpreter: Mapping[str, str] = field(default_factory=dict)


LANGUAGES = {
    one.package: one
    for one in (
        Language("Triton", "triton", "triton", "triton", {"TRITON_INTERPRET": "1"}),
        Language("Numba-CUDA", "numba_cuda", "numba-cuda", "numba-cuda", {"NUMBA_ENABLE_CUDASIM": "1"}),
    )
}
"""By what their variants require."""
