"""CUDA C++ as a syntax tree, by tree-sitter; and a source without what is the host's in it."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from warpbook.kernels import sources

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_HOST_CODE = re.compile(
    r"<<<|\bcuda[A-Z]\w*\s*\(|\bmain\s*\(|\bstd\s*::\s*(?:vector|string|cout|cerr|chrono)\b|\busing\s+namespace\s+std\b"
    r"|^(?:(?:static|inline|extern|__host__)\s+)*(?:void|int|float|double|bool|auto|torch::Tensor)\s+\w+\s*\([^;{}]*\)\s*\{",
    re.MULTILINE,
)
_FRAMEWORK_MACROS = re.compile(r"(?:PYBIND11|TORCH|BENCHMARK|TEST|REGISTER)\w*\s*\(")
_STRUCTURE = re.compile(r"(?:typedef\s+)?(?:struct|union|class)\s+\w+\s*\([^)]*\)\s*\w+\s*\{")
"""A structure with its alignment, `struct __align__(8) Pair {`."""
_OPENING, _CLOSING = re.compile(r"<<[ \t]+<(?!<)|<[ \t]+<<"), re.compile(r">>[ \t]+>(?=[ \t]*\()|>[ \t]+>>(?=[ \t]*\()")
ARGUMENTS = r"\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)"
"""A pattern of what stands in brackets, and other brackets in it."""
CLUSTER_DIMS = re.compile(rf"\b__cluster_dims__{ARGUMENTS}")
"""The blocks of a kernel's clusters."""
_BEYOND_GRAMMAR = re.compile(rf"\b__(?:cluster_dims|maxnreg)__{ARGUMENTS}")
"""What a kernel's definition may say and tree-sitter does not know."""
_DEVICE_WORDS = {"__global__", "__device__", "__constant__", "__shared__", "__managed__"}
_HOST_TYPES = re.compile(
    r"\bstd\s*::|\bcuda[A-Z]\w*_t\b|\bcuda[A-Z]\w*\s*\(|\bcublas\w+|\bcudnn\w+|\btorch\s*::|\bat\s*::"
)
_HOST_MEMBERS = re.compile(
    r"<<<|\bvector\s*<|\bstd\s*::\s*(?:vector|string|map|unordered_map|function|unique_ptr|shared_ptr|chrono|o?stream|mutex|thread)\b"
    r"|\bcuda[A-Z]\w*\s*\(|\bcuda(?:Stream|Event|Graph\w*|Error)_t\b|\bcublas\w+|\bcudnn\w+|\b(?:torch|at)\s*::"
)
"""What tells that a class or a name for a type is of the host."""


@cache
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def parse(text: str) -> "Node":
    """The tree of CUDA C++; what could not be parsed is of type ERROR. Raises ImportError without tree-sitter."""
    text = _BEYOND_GRAMMAR.sub(lambda found: sources.blanked(found[0]), join_brackets(text))
    return _parser().parse(text.encode()).root_node


def join_brackets(text: str) -> str:
    """CUDA C++ in which the brackets of a launch stand together, as `<< <` does not; every character in its place."""
    joined = _OPENING.sub(lambda found: "<<<".ljust(len(found[0])), text)
    return joined if joined == text else _CLOSING.sub(lambda found: ">>>".ljust(len(found[0])), joined)


def enclosing(node: "Node | None", kind: str) -> "Node | None":
    """The nearest node of a kind that a node is or stands in; None where there is none."""
    while node is not None and node.type != kind:
        node = node.parent
    return node


def root(node: "Node") -> "Node":
    """The whole tree that a node is of."""
    while node.parent is not None:
        node = node.parent
    return node


def walk(node: "Node") -> Iterator["Node"]:
    """A node and all below it, in the order of the text."""
    ahead = [node]
    while ahead:
        node = ahead.pop()
        yield node
        ahead += reversed(node.children)


def child(node: "Node", kind: str) -> "Node | None":
    """The first child of a kind."""
    return next((child for child in node.children if child.type == kind), None)


def field(node: "Node", name: str) -> "Node | None":
    """The child of a name in the grammar."""
    return node.child_by_field_name(name)


def field_text(node: "Node | None", name: str) -> str:
    """The text of the child of a name in the grammar; empty where there is none."""
    return node_text(field(node, name)) if node else ""


def items(node: "Node | None") -> "list[Node]":
    """What a list holds, without comments; nothing for none."""
    return [each for each in node.named_children if each.type != "comment"] if node else []


def arguments(call: "Node") -> "list[Node]":
    """What a call gives."""
    return items(field(call, "arguments"))


def node_text(node: "Node | None") -> str:
    """A node's text; empty for none."""
    return (node.text or b"").decode() if node else ""


def line(node: "Node") -> int:
    """The line that a node begins in, from 1."""
    return node.start_point.row + 1


def device_code(text: str) -> str:
    """CUDA C++ without the host's functions, prototypes and variables, every line in its place.

    NVRTC refuses each of them. Where nothing tells that there is host code, the text is returned as it is. Raises
    ImportError where there is and tree-sitter is not installed.
    """
    if not _HOST_CODE.search(sources.without_comments(join_brackets(text))):
        return text
    root = parse(text)
    of_device = _annotations(root)
    made = blank(text, _host_nodes(root, of_device, set()))
    # C++'s own namespace is there for who uses it, whatever was included.
    return re.sub(r"\busing\s+namespace\s+std\b", r"namespace std {} \g<0>", made)


def blank(text: str, nodes: "Iterable[Node]") -> str:
    """A text with spaces in the place of some of its nodes, every line in its place."""
    content = bytearray(text.encode())
    for node in nodes:
        for place in range(node.start_byte, node.end_byte):
            if content[place] != ord("\n"):
                content[place] = ord(" ")
    return content.decode()


def _annotations(root: "Node") -> set[str]:
    """What says that a declaration is the device's: CUDA's words, and macros made of them."""
    known = set(_DEVICE_WORDS)
    for node in walk(root):
        if node.type == "preproc_def" and known & set(re.findall(r"\w+", field_text(node, "value"))):
            known.add(field_text(node, "name"))
    return known


def _host_nodes(node: "Node", of_device: set[str], of_host: set[str]) -> Iterator["Node"]:
    """Declarations of the host alone, the outermost of each; `of_host` are the types that were found to be."""
    for each in node.children:
        inner = each
        while inner.type == "template_declaration":
            inner = inner.named_children[-1]
        if inner.type == "function_definition" and _STRUCTURE.match(node_text(inner)):
            continue  # to the parser, since a macro stands before its name
        if inner.type == "function_definition":
            if child(inner, "default_method_clause") or child(inner, "delete_method_clause"):
                continue  # which serve both
            head = _head(inner)
            if not of_device & head and ("constexpr" not in head or _HOST_TYPES.search(node_text(inner))):
                yield each  # what is constexpr may stand in a device's constants
        elif inner.type in ("declaration", "field_declaration"):
            if _is_host_declaration(inner, of_device, of_host):
                yield each
        elif inner.type in ("class_specifier", "struct_specifier", "type_definition", "alias_declaration"):
            said, words = node_text(inner), set(re.findall(r"\w+", node_text(inner)))
            if (_HOST_MEMBERS.search(said) or of_host & words) and not of_device & words:
                of_host.add(field_text(inner, "name"))
                yield each
            else:
                yield from _host_nodes(inner, of_device, of_host)
        elif inner.type == "expression_statement" and _FRAMEWORK_MACROS.match(node_text(inner)):
            yield each
        elif inner.type == "template_instantiation":
            if not of_device & set(re.findall(r"\w+", node_text(inner))):
                yield each
        elif inner.type == "linkage_specification":
            body = field(inner, "body")
            alone = body is not None and body.type != "declaration_list"
            hosts = list(_host_nodes(inner, of_device, of_host))
            yield from [each] if alone and hosts else hosts
        elif inner.type == "using_declaration":
            if re.match(r"using\s+std\s*::", node_text(inner)):
                yield each
        elif inner.type in ("preproc_def", "preproc_function_def"):
            if "<<<" in node_text(inner):
                yield each  # whoever launches by it is of the host
        elif inner.type not in ("compound_statement", "preproc_include"):
            yield from _host_nodes(inner, of_device, of_host)


def _head(function: "Node") -> set[str]:
    """Words of a function's definition before its body."""
    body = field(function, "body")
    end = body.start_byte - function.start_byte if body else None
    return set(re.findall(r"\w+", (function.text or b"")[:end].decode()))


def _is_host_declaration(declaration: "Node", of_device: set[str], of_host: set[str]) -> bool:
    """Whether a declaration is of a host's function or variable; constants serve both."""
    text = node_text(declaration)
    said = set(re.findall(r"\w+", text))
    if of_device & said:
        return False
    if _HOST_TYPES.search(text) or of_host & said:
        return True
    if declaration.type == "field_declaration":
        return False  # a structure's variable
    declared = field(declaration, "declarator")
    if declared is None:
        return False  # a type
    return any(node.type == "function_declarator" for node in walk(declared)) or not said & {"const", "constexpr"}
