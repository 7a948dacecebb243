"""What kernels take, as their source declares it: names and types of parameters, and of constant memory."""

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from warpbook.kernels import sources
from warpbook.kernels.launch_inference import cuda_ast, launch_sites
from warpbook.problems.problem import Dtype, element_type

if TYPE_CHECKING:
    from tree_sitter import Node

UNTYPED = ("void", "auto", "")
"""Types of parameters that do not tell what a pointer points to."""


class Parameter(NamedTuple):
    """A kernel's parameter: its name, its type as the source writes it, whether it is a pointer."""

    name: str
    kind: str
    pointer: bool
    constant: bool

    @property
    def number(self) -> str:
        """What a number is passed as: f, a float; d, a double; i, an int; l, a whole number of other size, or of a type
        that the source does not tell."""
        words = set(self.kind.replace("const", "").split())
        if words in ({"float"}, {"double"}):
            return "f" if "float" in words else "d"
        return "i" if words and words <= {"int", "unsigned", "signed", "int32_t", "uint32_t"} else "l"

    @property
    def range(self) -> tuple[int, int]:
        """The whole numbers that it holds, from the first and before the last."""
        if re.search(r"long|size_t|64|float|double", self.kind):
            return -(2**63), 2**63
        return (0, 2**32) if re.search(r"\bu", self.kind) else (-(2**31), 2**31)


@cache
def kernel_parameters(code: str, kernel: str) -> tuple[Parameter, ...]:
    """The parameters of a kernel of CUDA C++, by its name in the source; none where no such kernel is to be read."""
    if launch_sites.unqualified(kernel) not in code:
        return ()
    found = launch_sites.kernel_definitions(cuda_ast.parse(code)).get(launch_sites.unqualified(kernel))
    if found is None:
        return ()
    given = [text.strip() for text in kernel.partition("<")[2].removesuffix(">").split(",")]
    types = dict(zip(launch_sites.template_parameters(found), given, strict=False))

    def type_of(declared: "Node") -> str:
        written = cuda_ast.field_text(declared, "type")
        untold = written in launch_sites.template_parameters(found)
        return types.get(written) or ("" if untold else launch_sites.without_alias(written, code))

    return tuple(
        Parameter(
            name,
            type_of(declared),
            launch_sites.is_pointer(declared),
            "const" in cuda_ast.node_text(declared).partition("*")[0].split(),
        )
        for name, declared in launch_sites.function_parameters(found)
    )


@cache
def tests_pointer(code: str, kernel: str, place: int) -> bool:
    """Whether a kernel asks if the pointer that it gets at a place is there before it reads it; so of one that cannot be
    read, since whoever wrote of it knows."""
    found = launch_sites.kernel_definitions(cuda_ast.parse(code)).get(launch_sites.unqualified(kernel))
    names = [name for name, _ in launch_sites.function_parameters(found)] if found else []
    if not found or place >= len(names):
        return True
    body, name = cuda_ast.field_text(found, "body"), re.escape(names[place])
    alone = rf"(?:\(|&&|\|\||!)\s*{name}\s*(?:\)|&&|\|\|)"
    return bool(re.search(rf"{alone}|\b{name}\s*(?:[!=]=|\?)", body))


def constant_type(code: str, variable: str) -> Dtype | None:
    """The type of the values of an array in constant memory; None where the source does not tell."""
    name = re.escape(variable.rpartition("::")[2])
    found = re.search(rf"__constant__\s+([\w ]+?)\s+{name}\s*\[", sources.without_comments(code))
    return element_type(launch_sites.without_alias(found[1], code)) if found else None
