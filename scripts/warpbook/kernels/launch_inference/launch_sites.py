"""Where a file launches its kernels, and where it defines them and what they find in constant memory."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from warpbook.kernels.launch_inference import cuda_ast

if TYPE_CHECKING:
    from tree_sitter import Node

_MACROS = ("preproc_def", "preproc_function_def")


@dataclass
class LaunchSite:
    """One `<<<>>>` and where it stands."""

    node: "Node"
    configuration: "list[Node]"
    kernel: str
    function: "Node"
    arguments: "list[Node]"
    line: int = field(init=False)

    def __post_init__(self) -> None:
        self.line = cuda_ast.line(self.node)

    @property
    def plain(self) -> str:
        """The kernel's name without what a template is given."""
        return self.kernel.partition("<")[0].rpartition("::")[2]


def kernel_definitions(root: "Node") -> "dict[str, Node]":
    """The kernels that a file defines, by name, templates included, in their order there; not those of macros."""
    return {name: node for node in cuda_ast.walk(root) if (name := _kernel_name(node))}


@cache
def kernel_names(code: str) -> tuple[str, ...]:
    """Names of the kernels in CUDA C++, without templates and what macros define, in their order there."""
    nodes = cuda_ast.walk(cuda_ast.parse(code)) if "__global__" in code else ()
    plain = (node for node in nodes if not node.parent or node.parent.type != "template_declaration")
    return tuple(dict.fromkeys(filter(None, map(_kernel_name, plain))))


def parameter_names(code: str) -> dict[str, list[str]]:
    """The names of each kernel's parameters, by the kernel's name."""
    names = {}
    for kernel, definition in kernel_definitions(cuda_ast.parse(code)).items():
        declarator = cuda_ast.field(definition, "declarator")
        parameters = cuda_ast.field(declarator, "parameters") if declarator else None
        declared = parameters.named_children if parameters else []
        identifiers = ([one for one in cuda_ast.walk(each) if one.type == "identifier"] for each in declared)
        names[kernel] = [cuda_ast.node_text(found[0]) if found else "" for found in identifiers]
    return names


def defines_kernels_by_macro(code: str) -> bool:
    """Whether a macro of CUDA C++ defines kernels, whose names are then not to be read."""
    macros = (node for node in cuda_ast.walk(cuda_ast.parse(code)) if node.type in _MACROS)
    return any("__global__" in cuda_ast.node_text(cuda_ast.field(node, "value")) for node in macros)


def _kernel_name(node: "Node") -> str:
    """The name of the kernel that a node defines; empty for others."""
    if node.type != "function_definition" or "__global__" not in cuda_ast.node_text(node).partition("{")[0]:
        return ""
    declared = cuda_ast.field(node, "declarator")
    return cuda_ast.node_text(cuda_ast.field(declared, "declarator")) if declared else ""


def constant_array(node: "Node") -> str:
    """The name of an array of float in constant memory that a node declares, visible from outside; empty for others."""
    said = cuda_ast.node_text(node).split()
    if node.type != "declaration" or "__constant__" not in said or "static" in said or "float" not in said:
        return ""
    declarator = cuda_ast.field(node, "declarator")
    names = (each for each in cuda_ast.walk(declarator) if each.type == "identifier") if declarator else iter(())
    return cuda_ast.node_text(next(names, None))


def find_launches(root: "Node") -> Iterator[LaunchSite]:
    for node in cuda_ast.walk(root):
        config = cuda_ast.child(node, "kernel_call_syntax") if node.type == "call_expression" else None
        if config is None:
            continue
        function: Node | None = node
        while function is not None and function.type != "function_definition":
            function = function.parent
        listed = cuda_ast.field(node, "arguments")
        if function is not None and listed is not None:
            arguments = [each for each in listed.named_children if each.type != "comment"]
            written = "".join(cuda_ast.node_text(cuda_ast.field(node, "function")).split()).replace(",", ", ")
            kernel = _qualified_name(written, root)
            configuration = [each for each in config.named_children if each.type != "comment"]
            yield LaunchSite(node, configuration, kernel, function, arguments)


def _qualified_name(kernel: str, root: "Node") -> str:
    """A kernel's name with those of the named namespaces that it is defined in."""
    plain = kernel.partition("<")[0].rpartition("::")[2]
    found = kernel_definitions(root).get(plain)
    names = namespaces(found) if found else []
    return "::".join([*names, kernel.rpartition("::")[2] if names else kernel])


def namespaces(node: "Node") -> list[str]:
    """Names of the namespaces that a node stands in, from the outermost."""
    names: list[str] = []
    around: Node | None = node
    while around is not None:
        if around.type == "namespace_definition" and (name := cuda_ast.field(around, "name")):
            names = [*cuda_ast.node_text(name).split("::"), *names]
        around = around.parent
    return names
