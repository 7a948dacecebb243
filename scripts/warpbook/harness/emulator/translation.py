"""CUDA C++ as C++ for the host, by its syntax tree: launches become calls, shared variables references to memory.

What is no change of meaning stays as it is, every line in its place.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from warpbook.common.errors import UserError
from warpbook.common.supervision import VariantFailure
from warpbook.harness.emulator import architecture, ptx
from warpbook.kernels import ece408, sources
from warpbook.kernels.launch_inference import cuda_ast

if TYPE_CHECKING:
    from tree_sitter import Node

_HEADERS = re.compile(
    r"(cub|thrust|cuda|cooperative_groups|crt|nvtx3|nv)/.+|(cublas|cudnn|cufft|curand|cusparse|cusolver|nvToolsExt)\w*\.h"
    r"|cuda_((device_)?runtime(_api)?|fp\d+|bf16|(pipeline|awbarrier)\w*|occupancy|profiler_api|stdint|\w+_(types|interop))\.hp*"
    r"|(cuda|cudaProfiler|cuComplex|cooperative_groups|mma|builtin_types|channel_descriptor|common_functions)\.hp*"
    r"|(device|driver|library|surface|texture|vector)_(types|functions)\.hp*|sm_\d+_\w+\.hp*|host_(config|defines)\.h"
    r"|device_(\w+_functions|launch_parameters)\.hp*|math_(constants|functions)\.hp*|(nvrtc|nvml)\.h"
)
"""CUDA's headers: what the emulator has of them is there already, and what it lacks is named where it is used."""
_SENSING = re.compile(r"\b(__(?:SANITIZE|asan|lsan|tsan|ubsan|sanitizer)_\w+|EMULATOR_\w+)\b")
_OF_OPTIONS = re.compile(
    r"__has_\w+|__(OPTIMIZE|PIC|pic|PIE|pie|F16C|EDG|COUNTER|INCLUDE_LEVEL)__|_FORTIFY_SOURCE|_GLIBCXX_\w+"
)
"""Macros that another compiler than the emulator's, or other options, decide otherwise."""
_DEFINITION = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.MULTILINE)
_MACROS_OF_CUDA = re.compile(r"__\w+__|(CUDA|CUDART|NVTX)_\w+|cudaStream\w+")
_NO_MACROS = {"__inline__", "__restrict__"}  # of CUDA's
Edit = tuple[int, int, str]


class _Lacking(Exception):
    """What the emulator lacks: it says nothing about a kernel."""

    def __init__(self, what: str, line: int):
        super().__init__(what)
        self.line = line


def unsupported_construct(what: str, line: int) -> Exception:
    """That the emulator lacks something that stands in a line of the text."""
    return _Lacking(what, line)


def to_host(source: str, name: str, own: dict[str, str], arch: str = "sm_80") -> str:
    """The source as C++, its lines where they were. `own` are headers that stand for those of the course by name.

    Device code sees the macros of an architecture; only those of a newer GPU than the emulator stands for name another.
    Raises VariantFailure, unsupported, for what cannot be emulated, UserError for what CUDA would refuse.
    """
    try:
        return _to_host(architecture.settle(source, arch), name, own)
    except _Lacking as lacking:
        where = sources.own_line(source, lacking.line, name)
        raise VariantFailure("unsupported", f"beyond the emulator: {lacking}, {where}") from None


def _to_host(source: str, name: str, own: dict[str, str]) -> str:
    _refuse_sensing(source)
    source = re.sub(r"\b__align__\b", "alignas  ", source)
    # No macro: the host's own headers have the word in attributes.
    source = re.sub(r"(?<!\()\b__noinline__\b", " " * len("__noinline__"), source)
    source = cuda_ast.join_brackets(source)
    root, text = cuda_ast.parse(source), source.encode()
    edits: list[Edit] = [*_cluster_dims(source, root)]
    known = _Known(root)
    for node in cuda_ast.walk(root):
        if node.type == "call_expression" and (config := cuda_ast.child(node, "kernel_call_syntax")):
            edits += _launch(node, config, known)
        elif node.type == "call_expression":
            edits += _call_edits(node, known)
        elif node.type == "cast_expression" and _VOID_POINTER.fullmatch(
            cuda_ast.node_text(cuda_ast.field(node, "type"))
        ):
            edits += _address_edits(cuda_ast.field(node, "value"), known)
        elif node.type in ("preproc_def", "preproc_function_def"):
            edits += _macro_edits(node)
        elif node.type == "declaration" and _is_shared(node):
            edits += _shared_declarations(node, name)
        elif node.type == "declaration":
            edits += _unset_variables(node)
            edits += _constant_memory(node)
        elif node.type == "function_definition":
            edits += _launch_bounds(node)
        elif node.type in ("while_statement", "do_statement", "for_statement"):
            edits += _loop(node)
        elif node.type == "preproc_include":
            edits += _include_edits(node, own)
        elif node.type == "gnu_asm_expression":
            try:
                edits.append((node.start_byte, node.end_byte, ptx.to_calls(node)))
            except ptx.UnknownInstructionError as unknown:
                raise unsupported_construct(f"inline PTX ({unknown})", node.start_point.row + 1) from None
    made = _apply_edits(text, edits).decode()
    plain = sources.without_comments(made)
    for left, what in (("<<<", "this launch"), ("__shared__", "this declaration in shared memory")):
        if left in plain:
            raise unsupported_construct(what, plain.count("\n", 0, plain.index(left)) + 1)
    return made


def _refuse_sensing(source: str) -> None:
    """Raise unsupported_construct where a source asks for what tells the emulator from a GPU."""
    plain = sources.without_comments(source)
    for name, place in _sensing(plain):
        raise unsupported_construct(
            f"the code asks for {name}, which tells the emulator from a GPU", plain.count("\n", 0, place) + 1
        )


def _sensing(plain: str) -> Iterator[tuple[str, int]]:
    """The names by which code tells the emulator from a GPU, and where they stand."""
    yield from ((one[0], one.start()) for one in _SENSING.finditer(plain))
    defined: dict[str, set[str]] = {}
    for macro, text in _DEFINITION.findall(plain):
        defined.setdefault(macro, set()).update(re.findall(r"\w+", text))
    for directive in architecture.DIRECTIVE.finditer(plain):
        words, waiting = set[str](), set(re.findall(r"\w+", directive[2]))
        while waiting:
            words |= waiting
            waiting = set[str]().union(*(defined.get(word, ()) for word in waiting)) - words
        for word in sorted(words):
            if word in _macros_alone() or _OF_OPTIONS.fullmatch(word):
                yield word, directive.start()


@functools.cache
def _macros_alone() -> frozenset[str]:
    """Macros of the emulator that are none of CUDA's: functions there, or nothing."""
    folder = Path(__file__).parent
    defined = {
        name
        for header in folder.glob("*.h")
        for name in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", header.read_text(), re.MULTILINE)
    }
    return frozenset(name for name in defined if not _MACROS_OF_CUDA.fullmatch(name)) | _NO_MACROS


def _apply_edits(text: bytes, edits: list[Edit]) -> bytes:
    """The text with all edits made; of two that overlap the outer one must leave the inner one's bytes alone."""
    for begin, end, replacement in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        lines = text.count(b"\n", begin, end) - replacement.count("\n")
        text = text[:begin] + replacement.encode() + b"\n" * lines + text[end:]
    return text


class _Known:
    """What a source defines: its kernels, all its macros, and those that launch."""

    def __init__(self, root: "Node"):
        self.kernels: set[str] = set()
        self.macros: set[str] = set()
        self.launching: set[str] = set()
        self.records = "cudaStreamBeginCapture" in cuda_ast.node_text(root)
        """Whether a launch may happen later than its arguments are there."""
        for node in cuda_ast.walk(root):
            if node.type == "function_definition" and "__global__" in architecture.head(node):
                called = next((n for n in cuda_ast.walk(node) if n.type == "function_declarator"), None)
                self.kernels.add(cuda_ast.node_text(cuda_ast.field(called, "declarator")) if called else "")
            elif node.type in ("preproc_def", "preproc_function_def"):
                self.macros.add(macro := cuda_ast.node_text(cuda_ast.field(node, "name")))
                if "<<<" in cuda_ast.node_text(cuda_ast.field(node, "value")):
                    self.launching.add(macro)


_CHANGES = ("update_expression", "assignment_expression")


def _launch(call: "Node", config: "Node", known: _Known) -> Iterator[Edit]:
    """`k<<<g, b>>>(x)` as `emulator::launch({line, g, b}, [&] { k(x); })`. What changes something is evaluated once."""
    line = config.start_point.row + 1
    if architecture.is_of_device(call):
        raise unsupported_construct("a kernel that device code launches", line)
    begin, end = config.children[0], config.children[-1]
    kernel, arguments = call.children[0], call.children[-1]
    captured = []
    for number, argument in enumerate(arguments.named_children):
        later = known.records and argument.type not in ("null", "number_literal", "initializer_list")
        if later or _has_effect(argument, known):
            given = f"given_{number}"
            captured.append(f", {given} = {' '.join(cuda_ast.node_text(argument).split())}")
            yield argument.start_byte, argument.end_byte, given
    name = cuda_ast.node_text(kernel)
    yield kernel.start_byte, begin.end_byte, f"emulator::launch(emulator::Config({line}, "
    plain = _kernel_name(kernel, known)
    of = f'.of("{plain}")' if plain else ""
    yield end.start_byte, end.end_byte, f"){of}, [&{''.join(captured)}] {{ {' '.join(name.split())}"
    yield arguments.end_byte, arguments.end_byte, "; })"


CONSTANT_BYTES = 64 << 10
CONSTANT_LIMIT = f"constant memory has {CONSTANT_BYTES} bytes"
"""What the C++ compiler says of an array that is too long for it."""
_CONSTANT = re.compile(r"\s*(?:static\s+)?__constant__\s+[^;=(]*?(\w+)\s*(?:\[[^\]]+\]\s*)+;\s*")


def _constant_memory(node: "Node") -> Iterator[Edit]:
    """A check behind an array in constant memory, so that one too long does not compile. nvcc refuses it too."""
    if found := _CONSTANT.fullmatch(cuda_ast.node_text(node)):
        words = f"{found[1]} is too long: {CONSTANT_LIMIT}"
        yield node.end_byte, node.end_byte, f' static_assert(sizeof({found[1]}) <= {CONSTANT_BYTES}, "{words}");'


def _has_effect(argument: "Node", known: _Known) -> bool:
    """Whether evaluating an argument for each thread could differ from once: it changes a variable or calls a function."""
    for node in cuda_ast.walk(argument):
        if node.type in _CHANGES:
            return True
        function = cuda_ast.field(node, "function") if node.type == "call_expression" else None
        if function and function.type in ("identifier", "field_expression"):
            word = cuda_ast.node_text(function)
            return argument.type != "initializer_list" and word not in known.macros and not word.isupper()
    return False


def _call_edits(call: "Node", known: _Known) -> Iterator[Edit]:
    function, arguments = call.children[0], call.children[-1]
    word = cuda_ast.node_text(function)
    line = call.start_point.row + 1
    if word in known.launching and known.records:
        raise unsupported_construct(f"{word}, which launches, in a file that records a graph", line)
    if word in known.launching and any(node.type in _CHANGES for node in cuda_ast.walk(arguments)):
        raise unsupported_construct(f"an argument of {word}, which launches, that changes what it names", line)
    if word == "cudaFuncSetAttribute" and (plain := _kernel_name(arguments.named_children[0], known)):
        yield arguments.start_byte, arguments.start_byte + 1, f'("{plain}", '
    if _VOID_CAST.fullmatch(word) and len(arguments.named_children) == 1:
        yield from _address_edits(arguments.named_children[0], known)


_VOID_POINTER = re.compile(r"(const\s+)?void\s*(const\s*)?\*")
_VOID_CAST = re.compile(rf"reinterpret_cast\s*<\s*{_VOID_POINTER.pattern}\s*>")


def _kernel_name(value: "Node", known: _Known) -> str:
    """The kernel of the file that an expression names, or its address; empty for another."""
    while value.type in ("pointer_expression", "parenthesized_expression", "cast_expression"):
        value = value.named_children[-1]
    name = cuda_ast.node_text(value).partition("<")[0].split("::")[-1].strip()
    return name if name in known.kernels else ""


def _address_edits(value: "Node | None", known: _Known) -> Iterator[Edit]:
    """A kernel's address, cast to a pointer that tells nothing of its parameters: the emulator remembers them."""
    if value is None or not _kernel_name(value, known):
        return
    yield value.start_byte, value.start_byte, "emulator::address_of_kernel("
    yield value.end_byte, value.end_byte, ")"


_MACRO_LAUNCH = re.compile(
    # From the beginning of a word, and nothing is given back: else a long text takes for ever. By atomic groups: `)++` of
    # a group that tries several ways finds nothing in Python before 3.11.5 (github.com/python/cpython/issues/106052).
    r"(?<![\w:#])(?P<kernel>(?>(?:[\w:#]++|\([^()]*\)|\s*##\s*|<(?!<)[^<>;]*>)+))(?>(?:\s|\\\n)*)"
    r"<<<(?P<config>.*?)>>>(?>(?:\s|\\\n)*)(?P<arguments>\w+|\()",
    re.DOTALL,
)


def _macro_edits(node: "Node") -> Iterator[Edit]:
    """Launches in a macro's text, which the syntax tree does not hold."""
    value = cuda_ast.field(node, "value")
    text = cuda_ast.node_text(value)
    for found in _MACRO_LAUNCH.finditer(text):
        end, depth = found.end(), int(found["arguments"] == "(")
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        assert value is not None
        begins = value.start_byte + len(text[: found.start()].encode())
        arguments = text[found.start("arguments") : end]
        pieces = (found["kernel"].strip(), found["config"], arguments)
        kernel, config, arguments = (re.sub(r"\\\s*\n", " ", piece) for piece in pieces)
        made = f"emulator::launch(emulator::Config(__LINE__, {config}), [&] {{ {kernel} {arguments}; }})"
        lost = "\\\n" * text.count("\n", found.start(), end)
        yield begins, begins + len(text[found.start() : end].encode()), made + " " + lost


def _loop(loop: "Node") -> Iterator[Edit]:
    """A loop that may wait for another thread: each round lets others run."""
    condition, body = cuda_ast.field(loop, "condition"), cuda_ast.field(loop, "body")
    if loop.type == "for_statement":
        if condition is None and body is not None and body.type == "compound_statement":
            yield body.start_byte + 1, body.start_byte + 1, " emulator::pause();"
        if condition is None or body is None or cuda_ast.node_text(body) not in (";", "{}", "{ }"):
            return
    if loop.type == "do_statement" and body is not None and body.type == "compound_statement":
        yield body.start_byte + 1, body.start_byte + 1, " emulator::pause();"
    if condition is None or any(node.type == "declaration" for node in cuda_ast.walk(condition)):
        return
    yield condition.start_byte, condition.start_byte, "(emulator::pause() && "
    yield condition.end_byte, condition.end_byte, ")"


def _is_shared(declaration: "Node") -> bool:
    return any(
        child.type == "type_qualifier" and cuda_ast.node_text(child) == "__shared__" for child in declaration.children
    )


def _shared_declarations(declaration: "Node", name: str) -> Iterator[Edit]:
    """Each variable of a declaration in shared memory: its type under a name of its own, and a reference to memory."""
    dynamic = False
    for child in declaration.children:
        word = cuda_ast.node_text(child)
        if child.type == "type_qualifier" and word == "__shared__":
            yield child.start_byte, child.end_byte, "typedef"
        elif child.type == "storage_class_specifier" and word in ("extern", "static"):
            dynamic |= word == "extern"
            yield child.start_byte, child.end_byte, ""
        elif child.type == "alignas_qualifier" or cuda_ast.child(child, "alignas_qualifier"):
            yield child.start_byte, child.end_byte, ""  # memory is aligned for anything
    declarators = declaration.children_by_field_name("declarator")
    behind = []
    for declarator in declarators:
        found = [
            node for node in cuda_ast.walk(declarator) if node.type == "identifier" and not _in_extent(node, declarator)
        ]
        if not found or declarator.type == "init_declarator":
            raise unsupported_construct("this declaration in shared memory", declarator.start_point.row + 1)
        variable, called = found[0], cuda_ast.node_text(found[0])
        kind = f"{called}_of_block"
        yield variable.start_byte, variable.end_byte, kind
        if not dynamic:
            behind.append(f'{kind}& {called} = emulator::shared<{kind}, __COUNTER__>("{called}", __LINE__);')
            continue
        array = variable.parent
        if array is None or array.type != "array_declarator" or array.child_by_field_name("size"):
            raise UserError(f"{name}: the size of dynamic shared memory is the launch's; write {called}[]")
        yield array.children[1].start_byte, array.end_byte, ""
        if _in_function(declaration):
            memory = f'emulator::dynamic_shared("{called}", __LINE__)'
            made = f"{kind}* const {called} = reinterpret_cast<{kind}*>({memory});"
        else:
            made = f"static {kind}*& {called} = reinterpret_cast<{kind}*&>(emulator::dynamic_base);"
        behind.append(made)
    yield declaration.end_byte, declaration.end_byte, " " + " ".join(behind)


def _unset_variables(declaration: "Node") -> Iterator[Edit]:
    """Fill each local float variable that has no initializer with a NaN that names it."""
    kind = cuda_ast.field(declaration, "type")
    if kind is None or cuda_ast.node_text(kind) != "float" or cuda_ast.child(declaration, "storage_class_specifier"):
        return
    if (
        declaration.parent is None
        or declaration.parent.type != "compound_statement"
        or not _in_device_code(declaration)
    ):
        return
    names = []
    for declarator in declaration.children_by_field_name("declarator"):
        while declarator.type == "array_declarator":
            declarator = declarator.children[0]
        if declarator.type == "identifier":
            names.append(f" EMULATOR_UNSET({cuda_ast.node_text(declarator)});")
    yield declaration.end_byte, declaration.end_byte, "".join(names)


def _launch_bounds(function: "Node") -> Iterator[Edit]:
    """At the beginning of a kernel, what it says of the threads of its blocks: CUDA refuses to launch more."""
    body, bounds = cuda_ast.field(function, "body"), cuda_ast.child(function, "launch_bounds")
    if body is not None and bounds is not None:
        listed = cuda_ast.node_text(bounds).partition("(")[2].rpartition(")")[0]
        yield body.start_byte + 1, body.start_byte + 1, f" EMULATOR_LAUNCH_BOUNDS({' '.join(listed.split())});"


def _cluster_dims(source: str, root: "Node") -> Iterator[Edit]:
    """From a kernel's head to the beginning of its body, the blocks of its clusters: CUDA launches whole ones alone."""
    functions = (node for node in cuda_ast.walk(root) if node.type == "function_definition")
    bodies = [body.start_byte for node in functions if (body := cuda_ast.field(node, "body"))]
    for dims in cuda_ast.CLUSTER_DIMS.finditer(sources.without_comments(source)):
        begin, end = (len(source[:place].encode()) for place in dims.span())
        yield begin, end, ""
        behind = next((start for start in bodies if start > end), end)
        between = source.encode()[end:behind].decode()
        if behind > end and ";" not in sources.without_comments(between):  # of this function, not a declaration
            yield behind + 1, behind + 1, f" EMULATOR_CLUSTER_DIMS({' '.join(dims[1].split())});"


def _in_device_code(node: "Node") -> bool:
    while node.parent is not None:
        node = node.parent
        if node.type == "function_definition":
            head = architecture.head(node)
            return "__global__" in head or "__device__" in head
    return False


def device_variables(source: str) -> Iterator[tuple[str, int]]:
    """The variables of a source's own in device or constant memory, outside every namespace and class, by name and line."""
    for node in cuda_ast.parse(source).children:
        said = cuda_ast.node_text(node)
        of_device = re.match(r"[^=;(]*__(constant|device|managed)__", said)
        if node.type != "declaration" or "extern" in said or not of_device:
            continue
        for declarator in node.children_by_field_name("declarator"):
            found = [one for one in cuda_ast.walk(declarator) if one.type == "identifier"]
            if found and not any(one.type == "function_declarator" for one in cuda_ast.walk(declarator)):
                yield cuda_ast.node_text(found[0]), found[0].start_point.row + 1


def _in_extent(node: "Node", declarator: "Node") -> bool:
    """Whether an identifier stands between the brackets of an array."""
    while node != declarator and node.parent is not None:
        parent = node.parent
        if parent.type == "array_declarator" and parent.children[0] != node:
            return True
        node = parent
    return False


def _in_function(node: "Node") -> bool:
    while node.parent is not None:
        node = node.parent
        if node.type in ("function_definition", "lambda_expression", "compound_statement"):
            return True
    return False


def _include_edits(node: "Node", own: dict[str, str]) -> Iterator[Edit]:
    path = node.child_by_field_name("path")
    if path is None:
        return
    included = cuda_ast.node_text(path).strip('<>"')
    name = PurePosixPath(included).name
    if name in own:
        yield path.start_byte, path.end_byte, f'"{own[name]}"'
    elif included.startswith("cuda/std/"):
        yield path.start_byte, path.end_byte, f"<{name}>"
    elif name == ece408.HEADER or _HEADERS.fullmatch(included):
        yield node.start_byte, path.end_byte, ""
