"""Where a file launches its kernels, and where it defines them and what they find in constant memory."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from warpbook.kernels import sources
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
        return unqualified(self.kernel)


@dataclass(frozen=True)
class TemplateParameter:
    """Whether it is a type, and what it is where nothing is given; empty where it has to be given."""

    is_type: bool
    default: str


def kernel_definitions(root: "Node") -> "dict[str, Node]":
    """The kernels that a file defines, by name, templates included, in their order there; not those of macros."""
    return {name: node for node in cuda_ast.walk(root) if (name := _kernel_name(node))}


@cache
def kernel_names(code: str) -> tuple[str, ...]:
    """Names of the kernels in CUDA C++, without templates and what macros define, in their order there."""
    nodes = cuda_ast.walk(cuda_ast.parse(code)) if "__global__" in code else ()
    plain = (node for node in nodes if not node.parent or node.parent.type != "template_declaration")
    return tuple(dict.fromkeys(filter(None, map(_kernel_name, plain))))


def template_parameters(function: "Node") -> dict[str, "TemplateParameter"]:
    """What a function's template takes by name, types and numbers, in order; none of what is no template."""
    around = function.parent
    listed = cuda_ast.field(around, "parameters") if around and around.type == "template_declaration" else None
    texts = (cuda_ast.node_text(each).partition("=") for each in cuda_ast.items(listed))
    return {
        _template_name(text): TemplateParameter(text.lstrip().startswith(("typename", "class")), default.strip())
        for text, _, default in texts
    }


def _template_name(text: str) -> str:
    """The name that a parameter of a template declares, a pointer to a function for one."""
    pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", text)
    return pointer[1] if pointer else re.split(r"\W+", text.strip())[-1]


def without_alias(kind: str, code: str) -> str:
    """What CUDA C++ calls a type by another name: by a macro, `typedef` or `using`."""
    name = re.escape(kind)
    aliases = (
        rf"#\s*define\s+{name}\s+([\w ]+?)\s*$|\btypedef\s+(?:const\s+)?([\w ]+?)[\s*]+{name}\s*;"
        rf"|\busing\s+{name}\s*=\s*(?:const\s+)?([\w ]+?)\s*\*?\s*;"
    )
    found = re.search(aliases, sources.without_comments(code), re.MULTILINE)
    return next(filter(None, found.groups())) if found else kind


def unqualified(kernel: str) -> str:
    """A kernel's name without namespaces and what a template is given."""
    return kernel.partition("<")[0].rpartition("::")[2]


@cache
def parameter_names(code: str) -> dict[str, list[str]]:
    """The names of each kernel's parameters, by the kernel's name."""
    kernels = kernel_definitions(cuda_ast.parse(code))
    return {kernel: [name for name, _ in function_parameters(found)] for kernel, found in kernels.items()}


def defines_kernels_by_macro(code: str) -> bool:
    """Whether a macro of CUDA C++ defines kernels, whose names are then not to be read."""
    macros = (node for node in cuda_ast.walk(cuda_ast.parse(code)) if node.type in _MACROS)
    return any("__global__" in cuda_ast.field_text(node, "value") for node in macros)


def _kernel_name(node: "Node") -> str:
    """The name of the kernel that a node defines; empty for others."""
    if node.type != "function_definition" or "__global__" not in cuda_ast.node_text(node).partition("{")[0]:
        return ""
    declared = cuda_ast.field(node, "declarator")
    return cuda_ast.field_text(declared, "declarator") if declared else ""


def function_parameters(function: "Node") -> "list[tuple[str, Node]]":
    """Names and declarations of a function's parameters, in order; a nameless one's name is empty."""
    declared = cuda_ast.field(function, "declarator")
    while declared is not None and declared.type in ("pointer_declarator", "reference_declarator"):
        declared = declared.named_children[-1]
    listed = cuda_ast.field(declared, "parameters") if declared else None
    found = [
        node
        for node in (listed.named_children if listed else [])
        if node.type in ("parameter_declaration", "optional_parameter_declaration")
    ]
    return [(declared_name(cuda_ast.field(node, "declarator")), node) for node in found]


def is_pointer(declaration: "Node") -> bool:
    """Whether a parameter is a pointer or an array, by its type's name too."""
    declared, kind = (cuda_ast.field(declaration, name) for name in ("declarator", "type"))
    kinds = ("pointer_declarator", "abstract_pointer_declarator", "array_declarator")
    if declared is not None and any(node.type in kinds for node in cuda_ast.walk(declared)):
        return True
    named = kind is not None and kind.type == "type_identifier"
    return named and cuda_ast.node_text(kind) in _pointer_types(cuda_ast.root(declaration))


@lru_cache(8)
def _pointer_types(root: "Node") -> frozenset[str]:
    """Names that a file gives to types of pointers."""
    aliases = r"\busing\s+(\w+)\s*=[\w\s]+\*\s*;|\btypedef\s+[\w\s]+\*\s*(\w+)\s*;"
    return frozenset("".join(found) for found in re.findall(aliases, cuda_ast.node_text(root)))


def declared_name(declarator: "Node | None") -> str:
    """The name that a declarator declares; empty for none."""
    if declarator is None:
        return ""
    return next((cuda_ast.node_text(node) for node in cuda_ast.walk(declarator) if node.type == "identifier"), "")


def constant_array(node: "Node") -> str:
    """The name of an array in constant memory that a node declares, visible from outside; empty for others."""
    said = cuda_ast.node_text(node).split()
    if node.type != "declaration" or "__constant__" not in said or "static" in said:
        return ""
    declarator = cuda_ast.field(node, "declarator")
    names = (each for each in cuda_ast.walk(declarator) if each.type == "identifier") if declarator else iter(())
    return cuda_ast.node_text(next(names, None))


def find_launches(root: "Node") -> Iterator[LaunchSite]:
    """Every launch, one of each kernel where it is through a pointer that the file sets to several."""
    defined = kernel_definitions(root)
    for launch in _written_launches(root):
        known = launch.plain in defined
        kernels = [] if known else _pointed_kernels(launch.kernel, launch.function, root, defined)
        yield from [replace(launch, kernel=kernel) for kernel in kernels] or [launch]


def _pointed_kernels(
    name: str,
    function: "Node",
    root: "Node",
    defined: "dict[str, Node]",
    seen: frozenset[tuple[str, int]] = frozenset(),
) -> list[str]:
    """The kernels that a pointer of a function is set to there, or that those who call the function give it."""
    if (name, function.start_byte) in seen:
        return []
    seen |= {(name, function.start_byte)}
    given: list[tuple[str, Node]] = []
    for node in cuda_ast.walk(function):
        left = cuda_ast.field(node, "left" if node.type == "assignment_expression" else "declarator")
        right = cuda_ast.field(node, "right" if node.type == "assignment_expression" else "value")
        if right is not None and declared_name(left) == name:
            given.append((cuda_ast.node_text(without_casts(right)), function))
    macros = (node for node in cuda_ast.walk(root) if node.type == "preproc_def")
    named = [node for node in macros if cuda_ast.field_text(node, "name") == name]
    given += [(cuda_ast.field_text(node, "value"), function) for node in named]
    names = [parameter for parameter, _ in function_parameters(function)]
    if name in names:
        for arguments, around, _ in calls(function, root):
            given += [(cuda_ast.node_text(without_casts(each)), around) for each in arguments[names.index(name) :][:1]]
    taken = list(template_parameters(function))
    if name in taken:
        for _, around, words in calls(function, root):
            given += [(each, around) for each in words[taken.index(name) :][:1]]
    found: list[str] = []
    for text, around in given:
        kernel = "".join(text.split()).lstrip("&").replace(",", ", ")
        found += [kernel] if unqualified(kernel) in defined else _pointed_kernels(kernel, around, root, defined, seen)
    return list(dict.fromkeys(found))


def without_casts(node: "Node") -> "Node":
    """What is cast to another type, or stands in parentheses."""
    while node.type in ("cast_expression", "parenthesized_expression"):
        node = cuda_ast.field(node, "value") or node.named_children[0]
    return node


def calls(function: "Node", root: "Node") -> "Iterator[tuple[list[Node], Node, list[str]]]":
    """The arguments of each call of a function, the function that calls it, and what its template is given."""
    declared = cuda_ast.field(function, "declarator")
    own = unqualified(cuda_ast.field_text(declared, "declarator")) if declared else ""
    for call in cuda_ast.walk(root):
        called = cuda_ast.field_text(call, "function") if call.type == "call_expression" else ""
        arguments, around = cuda_ast.arguments(call), cuda_ast.enclosing(call, "function_definition")
        if own and re.split(r"\.|->", unqualified(called))[-1] == own and arguments and around:
            given = called.partition("<")[2].rpartition(">")[0]
            yield arguments, around, [word.strip() for word in given.split(",") if word.strip()]


def choices(launch: LaunchSite) -> dict[str, str]:
    """What names equal where a launch is reached, by each `if` and `switch` around it."""
    found: dict[str, str] = {}
    inner, around = launch.node, launch.node.parent
    while around is not None and inner != launch.function:
        if around.type == "if_statement" and inner == cuda_ast.field(around, "consequence"):
            equal = re.fullmatch(r"\(\s*(\w+)\s*==\s*(\w+)\s*\)", cuda_ast.field_text(around, "condition"))
            found |= {equal[1]: equal[2]} if equal else {}
        elif around.type == "case_statement" and (switch := cuda_ast.enclosing(around, "switch_statement")):
            asked, value = cuda_ast.field_text(switch, "condition").strip("() "), cuda_ast.field_text(around, "value")
            found |= {asked: value} if value else {}
        inner, around = around, around.parent
    return found


def _written_launches(root: "Node") -> Iterator[LaunchSite]:
    for node in cuda_ast.walk(root):
        config = cuda_ast.child(node, "kernel_call_syntax") if node.type == "call_expression" else None
        if config is None:
            continue
        function = cuda_ast.enclosing(node, "function_definition")
        if function is not None:
            written = "".join(cuda_ast.field_text(node, "function").split()).replace(",", ", ")
            kernel = _qualified_name(written, root)
            yield LaunchSite(node, cuda_ast.items(config), kernel, function, cuda_ast.arguments(node))


def _qualified_name(kernel: str, root: "Node") -> str:
    """A kernel's name with those of the named namespaces that it is defined in."""
    plain = kernel.partition("<")[0].rpartition("::")[2]
    found = kernel_definitions(root).get(plain)
    names = namespaces(found) if found else []
    return "::".join([*names, kernel.rpartition("::")[2] if names else kernel])


_STORES = re.compile(r"atomic|store_matrix|__st\w\w\b")
"""Functions that write what their first argument points to."""


def written_names(function: "Node", root: "Node", seen: frozenset[str] = frozenset()) -> set[str]:
    """Names of pointers that a function writes through, itself or by a function of the file that it gives them to, and of
    those that these were made of."""
    body = cuda_ast.field(function, "body")
    found: set[str] = set()
    made: list[tuple[str, set[str]]] = []
    for node in cuda_ast.walk(body) if body else ():
        target = cuda_ast.field(node, "left") if node.type == "assignment_expression" else None
        if node.type == "init_declarator" and "*" in cuda_ast.node_text(node).partition("=")[0]:
            made.append((declared_name(node), set(re.findall(r"\w+", cuda_ast.field_text(node, "value")))))
        if node.type == "call_expression":
            called = cuda_ast.field_text(node, "function")
            stores = _STORES.search(called)
            for place, given in enumerate(cuda_ast.arguments(node)):
                wholly = stores and place == 0
                found |= _words(given) if wholly else _written_of(given, unqualified(called), place, root, seen)
        elif target is not None and target.type != "identifier":
            found |= _words(target)
    for name, words in reversed(made):
        found |= words if name in found else set()
    return found


def _words(node: "Node") -> set[str]:
    """Names in what points to memory, but those of an index."""
    return set(re.findall(r"\w+", cuda_ast.node_text(node).partition("[")[0]))


def _written_of(given: "Node", called: str, place: int, root: "Node", seen: frozenset[str]) -> set[str]:
    """Names in what a function of the file gets at a place, a pointer or a structure of pointers, where it writes through
    it: of a structure those of the members that it names."""
    function = None if called in seen else functions(root).get(called)
    parameters = function_parameters(function) if function else []
    if function is None or place >= len(parameters):
        return set()
    name, declared = parameters[place]
    kind = cuda_ast.field(declared, "type")
    is_structure = kind is not None and kind.type in ("type_identifier", "struct_specifier")
    if not (is_structure or is_pointer(declared)):
        return set()
    written = written_names(function, root, seen | {called})
    words = _words(given) if name in written else set()
    if given.type == "compound_literal_expression":
        return {word for word in words if word.rpartition("_")[2] in written} or words
    return words


@lru_cache(8)
def functions(root: "Node") -> "dict[str, Node]":
    """The functions that a file defines, by name."""
    defined = (node for node in cuda_ast.walk(root) if node.type == "function_definition")
    return {declared_name(cuda_ast.field(node, "declarator")): node for node in defined}


def sets_value_of_each_block(kernel: "Node", pointer: str) -> bool:
    """Whether a kernel sets one value of a pointer's for each block."""
    body = cuda_ast.field_text(kernel, "body")
    return bool(
        re.search(rf"\b{pointer}\s*\[\s*(?:blockIdx\.x|bid|block_?[iI]dx?|\w+\.group_index\(\)\.x)\s*\]\s*=[^=]", body)
    )


def namespaces(node: "Node") -> list[str]:
    """Names of the namespaces that a node stands in, from the outermost."""
    names: list[str] = []
    around: Node | None = node
    while around is not None:
        if around.type == "namespace_definition" and (name := cuda_ast.field(around, "name")):
            names = [*cuda_ast.node_text(name).split("::"), *names]
        around = around.parent
    return names
