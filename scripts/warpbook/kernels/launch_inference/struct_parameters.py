"""Kernels that get structures by value, written as kernels that get the members one by one.

Launchers of every language give a kernel pointers and numbers. Of

    __global__ void product(Matrix A, Matrix B, Matrix C) {...}

is made a function of the device with the same body and, behind it in the same line, a kernel that calls it:

    __global__ void product(int A_width, float* A_elements, ...) { product_of_structures(Matrix{A_width, A_elements}, ...); }

Launches give `A.width, A.elements` where they gave `A`. Every line stays in its place.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from warpbook.kernels import sources
from warpbook.kernels.launch_inference import cuda_ast, launch_sites

if TYPE_CHECKING:
    from tree_sitter import Node

_SUFFIX = "_of_structures"
_OF_KERNELS = re.compile(rf"__(?:launch_bounds|cluster_dims|maxnreg)__{cuda_ast.ARGUMENTS}|\b__grid_constant__\b")
"""What a kernel's definition may say, and no other function's."""
_NUMBER = re.compile(r"size_t|ptrdiff_t|u?int\d*(?:_t)?|(?:__)?half|(?:__)?nv_bfloat16")
_ALIGNMENT = re.compile(r"(?<=struct) +(?:__align__|alignas)\s*\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)")
_NAMED = re.compile(r"\bstruct\b[^{};]*\{|\}[\w\s,*]*;")
"""Where the name of a structure stands, before its members or, of a `typedef`, behind them."""
_OTHER_LAUNCH = re.compile(r"\bcu(?:da)?Launch\w+")


class _Member(NamedTuple):
    kind: str  # its type
    name: str


class _Edit(NamedTuple):
    begin: int
    end: int
    text: str


class _UnknownForm(Exception):
    """Something is written in a way that is not understood."""


_Structures = dict[str, list[_Member]]


@cache
def flatten(text: str) -> str:
    """CUDA C++ in which no kernel gets a structure of pointers and numbers by value. Where something of that is written in a
    way that is not understood, the text is returned as it is."""
    if not _may_take_structures(text) or _OTHER_LAUNCH.search(text):
        return text
    # To the parser a structure is none where a macro stands before its name.
    root = cuda_ast.parse(_ALIGNMENT.sub(lambda found: " " * len(found[0]), text))
    structures = dict(_structures(root))
    edits: list[_Edit] = []
    names = set()
    try:
        for node in cuda_ast.walk(root):
            if node.type in ("function_definition", "declaration") and _takes_structures(node, structures):
                names.add(cuda_ast.field_text(cuda_ast.field(node, "declarator"), "declarator"))
                edits += _kernel_edits(node, structures)
        kernels = launch_sites.kernel_definitions(root)
        for node in cuda_ast.walk(root) if names else ():
            if node.type == "call_expression" and cuda_ast.child(node, "kernel_call_syntax"):
                called = launch_sites.unqualified(cuda_ast.field_text(node, "function"))
                if called not in kernels:  # a pointer, to one of them perhaps
                    raise _UnknownForm
                if called in names:
                    edits += _launch_edits(node, launch_sites.function_parameters(kernels[called]), structures)
    except _UnknownForm:
        return text
    content = text.encode()
    for begin, end, made in sorted(edits, reverse=True):
        content = content[:begin] + made.encode() + content[end:]
    return content.decode()


def _may_take_structures(text: str) -> bool:
    """Whether the head of a kernel has a word that may be a structure's name: nothing else is worth a syntax tree."""
    named = set(re.findall(r"\w+", " ".join(_NAMED.findall(text))))
    return any(named & set(re.findall(r"\w+", head)) for head in re.findall(r"__global__[^{;]*", text))


def _structures(root: "Node") -> Iterator[tuple[str, list[_Member]]]:
    """The structures of a file that consist of pointers and numbers alone, by each of their names."""
    for node in cuda_ast.walk(root):
        body = cuda_ast.field(node, "body") if node.type == "struct_specifier" else None
        around = node.parent
        if body is None or around is None or around.type == "template_declaration":
            continue
        names = [cuda_ast.field_text(node, "name")]
        if around.type == "type_definition":
            names += [cuda_ast.node_text(each) for each in around.children_by_field_name("declarator")]
        members = _members(body, names)
        if members and not cuda_ast.child(node, "base_class_clause"):
            yield from ((name, members) for name in names if name)


def _members(body: "Node", names: list[str]) -> list[_Member]:
    """A structure's members in order; none where it has others than pointers and numbers, or a constructor."""
    found = []
    for node in cuda_ast.items(body):
        declarators = node.children_by_field_name("declarator")
        if any(each.type == "function_declarator" for one in declarators for each in cuda_ast.walk(one)):
            declared = next((cuda_ast.field_text(one, "declarator") for one in declarators), "")
            if declared.lstrip("~") in names:
                return []
            continue
        if node.type != "field_declaration" or not declarators:
            return []
        kind = cuda_ast.field(node, "type")
        is_number = kind is not None and (
            kind.type in ("primitive_type", "sized_type_specifier") or _NUMBER.fullmatch(cuda_ast.node_text(kind))
        )
        said = (node.text or b"")[: declarators[0].start_byte - node.start_byte].decode()
        for declarator in declarators:
            name = next(
                (cuda_ast.node_text(each) for each in cuda_ast.walk(declarator) if each.type == "field_identifier"), ""
            )
            stars = cuda_ast.node_text(declarator).replace(name, "", 1)
            if not name or "[" in stars or not (is_number or "*" in stars):
                return []
            found.append(_Member(_one_line(f"{said} {stars}"), name))
    return found


def _takes_structures(node: "Node", structures: _Structures) -> bool:
    """Whether a definition or prototype is of a kernel that gets one of the structures by value."""
    head = (node.text or b"").decode().partition("{")[0]
    declared = cuda_ast.field(node, "declarator")
    if "__global__" not in head or declared is None or declared.type != "function_declarator":
        return False
    return any(_structure(each, structures) for _, each in launch_sites.function_parameters(node))


def _structure(parameter: "Node", structures: _Structures) -> str:
    """The structure that a parameter is of by value; empty where it is of none."""
    declarator, kind = cuda_ast.field(parameter, "declarator"), cuda_ast.field_text(parameter, "type")
    name = kind.removeprefix("struct").strip()
    return name if name in structures and (declarator is None or declarator.type == "identifier") else ""


def _kernel_edits(node: "Node", structures: _Structures) -> list[_Edit]:
    declared, body = cuda_ast.field(node, "declarator"), cuda_ast.field(node, "body")
    name, listed = (cuda_ast.field(declared, each) if declared else None for each in ("declarator", "parameters"))
    if name is None or listed is None:
        raise _UnknownForm
    content = node.text or b""
    head, taken = content[: name.start_byte - node.start_byte].decode(), cuda_ast.node_text(listed)
    if "#" in head + taken:
        raise _UnknownForm
    parameters, given = [], []
    for parameter, declaration in launch_sites.function_parameters(node):
        if body is not None and not parameter:
            raise _UnknownForm
        if structure := _structure(declaration, structures):
            parts = [(member.kind, f"{parameter}_{member.name}") for member in structures[structure]]
            parameters += [f"{kind} {each}" if parameter else kind for kind, each in parts]
            given.append(f"{structure}{{{', '.join(each for _, each in parts)}}}")
        else:
            parameters.append(_one_line(cuda_ast.node_text(declaration)))
            given.append(parameter)
    if body is None:
        return [_Edit(listed.start_byte, listed.end_byte, f"({', '.join(parameters)}){_newlines(taken)}")]
    around = node.parent
    before = ""
    if around is not None and around.type == "template_declaration":
        before = _one_line((around.text or b"")[: node.start_byte - around.start_byte].decode())
    elif around is not None and around.type == "linkage_specification":
        before = 'extern "C"'
    own = cuda_ast.node_text(name)
    chosen = f"<{', '.join(launch_sites.template_parameters(node))}>" if before.startswith("template") else ""
    kernel = (
        f"{before} {_one_line(head)} {own}({', '.join(parameters)}) {{ {own}{_SUFFIX}{chosen}({', '.join(given)}); }}"
    )
    of_device = _OF_KERNELS.sub(lambda found: _newlines(found[0]), head.replace("__global__", "__device__"))
    return [
        _Edit(node.start_byte, name.end_byte, f"{of_device}{own}{_SUFFIX}"),
        _Edit(listed.start_byte, listed.end_byte, taken.replace("__grid_constant__", "")),
        _Edit(node.end_byte, node.end_byte, f" {kernel.strip()}"),
    ]


def _launch_edits(launch: "Node", parameters: "list[tuple[str, Node]]", structures: _Structures) -> Iterator[_Edit]:
    given = cuda_ast.arguments(launch)
    if len(given) != len(parameters):
        raise _UnknownForm
    for node, (_, declaration) in zip(given, parameters, strict=True):
        if not (structure := _structure(declaration, structures)):
            continue
        written, members = cuda_ast.node_text(node), structures[structure]
        if node.type in ("identifier", "field_expression", "subscript_expression"):
            values = [f"{written}.{member.name}" for member in members]
        elif node.type in ("initializer_list", "compound_literal_expression"):
            listed = node if node.type == "initializer_list" else cuda_ast.field(node, "value")
            values = [_one_line(cuda_ast.node_text(each)) for each in cuda_ast.items(listed)]
        else:
            values = []
        if len(values) != len(members):
            raise _UnknownForm
        yield _Edit(node.start_byte, node.end_byte, ", ".join(values) + _newlines(written))


def _one_line(text: str) -> str:
    return " ".join(sources.without_comments(text).split())


def _newlines(text: str) -> str:
    return "\n" * text.count("\n")
