"""How a file launches its own kernel, read from its `<<<>>>`: kernel, arguments, threads, grid and shared memory.

Names of the host's function decide which extent of a layer is meant (`layer_names`), and what is made of them is
followed to the launch (`host_scope`). What cannot be followed is not guessed: `UnreadableLaunch` says what, in which
line, and the facts to write instead, as far as they were understood.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from warpbook.common import expressions, units
from warpbook.kernels import ece408, launches, sources
from warpbook.kernels.launch_inference import cpp_expressions as cpp
from warpbook.kernels.launch_inference import cuda_ast, launch_rewriting
from warpbook.kernels.launch_inference.cpp_expressions import UnreadableExpression
from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.host_scope import LOOPS, Globals, HostScope
from warpbook.kernels.launch_inference.launch_sites import (
    LaunchSite,
    constant_array,
    declared_name,
    find_launches,
    function_parameters,
    is_pointer,
    kernel_definitions,
    namespaces,
)
from warpbook.problems import problem
from warpbook.problems.problem import C_TYPES, Problem

if TYPE_CHECKING:
    from tree_sitter import Node

UNKNOWN = "?"
_MADE = re.compile(r"(?:torch|at)::(?:empty|zeros|ones)")
_SCALARS = ("scalar_t", "T", "DType", "dtype")
_CASTS = ("reinterpret_cast<", "static_cast<", "const_cast<")
_ALLOCATIONS = ("cudaMalloc", "cudaMallocManaged", "cudaMallocAsync")
_FILL = re.compile(r"(?:cudaMemset|cudaMemsetAsync|cudaMemcpy|cudaMemcpyAsync)\((?:\(void\*+\))?&?(\w+),")
_SET = re.compile(r"\*(\w+)=[^=]|(\w+)\[0\]=[^=]")
_ZEROED = re.compile(r"(\w+)=(?:torch|at)::zeros")
_KEYS = ("kernel", "arguments", "threads", "grid", "shared_bytes")
_CONDITIONS = ("if_statement", "switch_statement", "else_clause", "conditional_expression", "case_statement")


@dataclass(frozen=True)
class InferredLaunch:
    """What a launch says: the header's facts, its line, and what was taken for what."""

    facts: dict[str, Any]
    line: int
    taken: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """It in words, to be seen by who wrote it."""
        facts = ", ".join(f"{key} {yaml_line(value)}" for key, value in self.facts.items())
        taken = f"; taken for the layer's by name: {', '.join(self.taken)}" if self.taken else ""
        return f"launch read from line {self.line}: {facts}{taken}"


class UnreadableLaunch(Exception):
    """Why a launch was not read: a sentence. `facts` are the lines to write instead, what is not known marked."""

    def __init__(self, reason: str, facts: dict[str, Any] | None = None):
        super().__init__(reason)
        self.facts = facts or {}


def read(text: str, wanted: "str | Sequence[str]" = "", names: HostNames | None = None) -> InferredLaunch | None:
    """How CUDA C++ launches its kernel, or the one that is `wanted`, or several that are, in their order there; None
    where it launches none. `names` are those of its problem, a convolution's where nothing is said.

    Raises UnreadableLaunch where it does, and how cannot be told; ImportError without tree-sitter.
    """
    if not re.search(r"<<<|\bcudaLaunchKernel\b", sources.without_comments(text)):
        return None
    root = cuda_ast.parse(launch_rewriting.rewrite(text))
    found = list(find_launches(root))
    kernels = kernel_definitions(root)
    if not found:
        raise UnreadableLaunch("its launch stands in a macro or in what could not be parsed")
    named = list(dict.fromkeys(launch.kernel for launch in found))
    several = [wanted] if isinstance(wanted, str) and wanted else list(wanted)
    for each in several:
        if not any(each in (launch.kernel, launch.plain) for launch in found):
            raise UnreadableLaunch(f"{each} is launched nowhere; launched are {', '.join(named)}")
    chosen = [launch for launch in found if not several or {launch.kernel, launch.plain} & set(several)]
    for launch in chosen:
        if launch.plain not in kernels:
            raise UnreadableLaunch(f"line {launch.line} launches {launch.plain}, which this file does not define")
    names = names or HostNames(problem.find("conv"))
    outside = Globals(root, names)
    groups: dict[int, list[_LaunchInference]] = {}
    for launch in chosen:
        made = _LaunchInference(launch, kernels[launch.plain], outside, root, names)
        groups.setdefault(launch.function.start_byte, []).append(made)
    for group in groups.values():
        beside = {name: extent for one in group for name, extent in one.own_extents.items()}
        group[:] = [one.beside(beside) for one in group] if len(group) > 1 else group
    if len(several) > 1:
        together = [
            group for group in groups.values() if {one.plain for one in group} >= {_plain(one) for one in several}
        ]
        if not together:
            raise UnreadableLaunch(f"no function launches {' and '.join(several)}")
        return LaunchSequence(together[0]).infer()
    sequences = [group for group in groups.values() if len(group) > 1 and not all(one.is_complete for one in group)]
    if sequences and len(groups) == 1:
        return LaunchSequence(sequences[0]).infer()
    if len({launch.kernel for launch in chosen}) > 1:
        raise UnreadableLaunch(_which(list(groups.values())))
    if sequences:
        read = [LaunchSequence(group).infer() for group in groups.values()]
    else:
        read = [one.infer() for group in groups.values() for one in group]
    others = [each for each in read if each.facts != read[0].facts]
    if others:
        raise UnreadableLaunch(
            f"lines {read[0].line} and {others[0].line} launch {chosen[0].kernel} in different ways", read[0].facts
        )
    return read[0]


def _plain(kernel: str) -> str:
    return kernel.partition("<")[0].rpartition("::")[2]


def _which(groups: "list[list[_LaunchInference]]") -> str:
    """The question which kernel, or which in a row, computes the result: each answer is a line of YAML."""
    lines = ", ".join(f"{one.kernel} in line {one.line}" for group in groups for one in group)
    answers: list[str] = []
    for group in groups:
        kernels = list(dict.fromkeys(one.kernel for one in group))
        in_a_row = len(kernels) > 1 and not all(one.is_complete for one in group)
        answers += [yaml_lines({"kernel": kernels})] if in_a_row else []
        answers += [yaml_lines({"kernel": one.kernel}) for one in group if one.is_complete or not in_a_row]
    listed = " or ".join(f"`{answer}`" for answer in dict.fromkeys(answers))
    return f"several kernels are launched: {lines}; say which: {listed}"


def read_file(
    path: Path, code: str, wanted: "str | Sequence[str]", of: Problem, included: Sequence[Path] = ()
) -> InferredLaunch | None:
    """How a file, with what it includes of its own, launches its own kernel; None where it launches none. Raises
    ValueError with what to write instead."""
    if ece408.interface(code):
        return None
    try:
        # What it includes stands behind it, so that its lines keep their numbers.
        texts = [sources.read_text(each) for each in (path, *included)]
        return read("\n".join(texts), wanted, HostNames(of))
    except UnreadableLaunch as unread:
        instead = f"; say it in {path.stem}.yaml:\n{yaml_lines(unread.facts)}" if unread.facts else ""
        raise ValueError(f"{unread}{instead}") from None
    except ImportError:
        remedy = f"install tree-sitter and tree-sitter-cuda, or say in {path.stem}.yaml how its kernel is called"
        raise ValueError(f"it launches its kernel itself, which nothing here can read; {remedy}") from None


_PLAIN = re.compile(r"[A-Za-z_?][\w .+*/()<>%-]*")


def yaml_line(value: Any) -> str:
    """A fact as YAML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml_line(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(yaml_line, value)) + "]"
    plain = not isinstance(value, str) or _PLAIN.fullmatch(value) or re.fullmatch(r"\([\w .+*/()%-]*", value)
    return str(value) if plain else f'"{value}"'


def yaml_lines(facts: dict[str, Any]) -> str:
    """Facts as lines of a YAML file."""
    return "\n".join(f"{key}: {yaml_line(value)}" for key, value in facts.items())


class _LaunchInference:
    """One launch being read: what is understood so far is kept for who has to write the rest."""

    def __init__(
        self,
        launch: LaunchSite,
        kernel: "Node",
        outside: Globals,
        root: "Node",
        names: HostNames,
        beside: Mapping[str, str] = MappingProxyType({}),
    ):
        """`beside` are the host's extents that launches beside this one get."""
        self._names = names
        self._launch, self._kernel, self._outside, self._root = launch, kernel, outside, root
        self._host = function_parameters(launch.function)
        self._takes = function_parameters(kernel)
        self._among = [name for name, _ in self._host]
        self._by_place: dict[int, str] = {}
        self._beside = beside
        self.is_square = False
        self.pointers = [self._pointer(node) for node in launch.arguments]
        """(variable, what is added to it) of each argument that may be one."""
        known = {place: name for place, name in self._roles().items() if name}
        tensors = {self.pointers[place][0]: name for place, name in known.items()}
        taken = self._extent_parameters()
        self.own_extents = {name: extent for name, extent in taken.items() if names.find_extent(name) == extent}
        # A kernel's n is another number where the host's n is given beside it.
        taken = {name: one for name, one in taken.items() if name in beside or one not in beside.values()} | dict(
            beside
        )
        strided = bool(
            {"S", "P"} & {*taken.values(), *(self._names.find_extent(each, self._among) for each in self._among)}
        )
        self._scope = HostScope(outside, taken, strided, names, tensors)
        for name, declaration in self._host:
            self._scope.parameter(name, declaration, self._among)
        body = cuda_ast.field(launch.function, "body")
        if body is not None:
            self._scope.read_until(body, launch.node)
        self._reasons: list[str] = []
        self._to_be_launched = False
        self._copied: dict[str, Any] = {}
        self._arrays_found: dict[int, str] = {}
        self.plain, self.line = launch.plain, launch.line
        self.kernel = self._template_arguments(launch.kernel)

    def beside(self, extents: Mapping[str, str]) -> "_LaunchInference":
        """It, among launches that get extents by these names of the host's."""
        return _LaunchInference(self._launch, self._kernel, self._outside, self._root, self._names, extents)

    @property
    def is_complete(self) -> bool:
        """Whether it may compute the result alone: it gets every array by its name."""
        host = {name for name, _ in self.pointers}
        known = {self._names.find_array(name) for name in host if name}
        return known >= set(self._names.arrays)

    def infer(self) -> InferredLaunch:
        """The facts. Raises UnreadableLaunch with those that are known."""
        launch = self._launch
        facts = self.facts(self._arrays())
        self._check_unconditional()
        cleared = [self._names.output] if self._fills_output() else []
        if self._reasons:
            said = {} if self._to_be_launched else facts | self._copied
            raise UnreadableLaunch(f"{'; '.join(self._reasons)} (launch in line {launch.line})", said)
        limits = self._limits(facts) | self._copied.pop("limits", {})
        limits |= {"equal": self._names.base} if self.is_square else {}
        limits = self._limits_unnamed({**facts, **limits}) | limits
        facts |= self._copied | ({"limits": limits} if limits else {}) | ({"clear": cleared} if cleared else {})
        return InferredLaunch(facts, launch.line, tuple(self._scope.notes.values()))

    def facts(self, arrays: dict[int, str]) -> dict[str, Any]:
        """Kernel, arguments, threads, grid, shared memory and loop, the arrays as they are given by their places."""
        arguments = self._arguments(arrays)
        facts: dict[str, Any] = dict(zip(_KEYS, (self.kernel, arguments, *self._shape()), strict=True))
        if not facts["shared_bytes"]:
            del facts["shared_bytes"]
        used = set(re.findall(r"\w+", " ".join(map(str, facts.values()))))
        if loop := {name: _fact(turns) for name, turns in self._scope.loops.values() if name in used}:
            facts["loop"] = loop
        return facts

    def reasons(self) -> list[str]:
        """What could not be read so far."""
        self._check_unconditional()
        return self._reasons

    def notes(self) -> dict[str, str]:
        """What was taken for what."""
        return self._scope.notes

    def _pointer(self, node: "Node") -> tuple[str, "Node | None"]:
        """The variable that a pointer begins at, and what is added to it, if anything; no name for what is none."""
        while node.type in ("cast_expression", "parenthesized_expression"):
            node = cuda_ast.field(node, "value") or node.named_children[0]
        if node.type == "conditional_expression":  # bias.defined() ? bias.data_ptr<float>() : nullptr
            other = cuda_ast.field(node, "alternative")
            chosen = cuda_ast.field(node, "consequence")
            if chosen is not None and cuda_ast.node_text(other) in ("nullptr", "NULL", "0"):
                return self._pointer(chosen)
            return "", None
        called = cuda_ast.node_text(cuda_ast.field(node, "function")) if node.type == "call_expression" else ""
        if called.startswith(_CASTS) or called.endswith("raw_pointer_cast"):
            listed = cuda_ast.field(node, "arguments")
            return self._pointer(listed.named_children[0]) if listed and listed.named_children else ("", None)
        if node.type == "binary_expression" and cuda_ast.node_text(cuda_ast.field(node, "operator")) == "+":
            left, right = cuda_ast.field(node, "left"), cuda_ast.field(node, "right")
            if left is None or right is None:
                return "", None
            name, further = self._pointer(left)
            return (name, right) if further is None else ("", None)
        if node.type == "pointer_expression" and cuda_ast.node_text(node).startswith("&"):
            inner = cuda_ast.field(node, "argument")
            indices = cuda_ast.field(inner, "indices") if inner and inner.type == "subscript_expression" else None
            argument = cuda_ast.field(inner, "argument") if inner else None
            if argument is None or indices is None or len(indices.named_children) != 1:
                return "", None
            return cuda_ast.node_text(argument), indices.named_children[0]
        base = node
        while base.type in ("field_expression", "call_expression", "template_method"):
            inner = cuda_ast.field(base, "argument") or cuda_ast.field(base, "function")
            if inner is None:
                break
            base = inner
        return (cuda_ast.node_text(base), None) if base.type in ("identifier", "this") else ("", None)

    def offset(self, place: int) -> str:
        """What is added to a pointer, as ` + n * C`; empty where nothing is."""
        added = self.pointers[place][1]
        if added is None:
            return ""
        text = str(self._number(added))
        return "" if text == "0" else f" + {text}"

    @property
    def pointer_places(self) -> list[int]:
        """Places of the kernel's pointers."""
        return [place for place, (_, declaration) in enumerate(self._takes) if is_pointer(declaration)]

    def is_constant(self, place: int) -> bool:
        """Whether a kernel only reads what it gets at a place."""
        return "const" in cuda_ast.node_text(self._takes[place][1]).partition("*")[0].split()

    def only_reads(self, place: int) -> bool:
        """Whether a kernel does not write what it gets at a place, as far as its body tells."""
        return self.is_constant(place) or bool(self._written and self._takes[place][0] not in self._written)

    def is_null(self, place: int) -> bool:
        """Whether a launch gives no memory at a place."""
        return cuda_ast.node_text(self._launch.arguments[place]) in ("nullptr", "NULL", "0")

    def named_array(self, place: int) -> str:
        """The problem's array that a pointer is by the host's name for it; empty where it is none's."""
        return self._names.find_array(self.pointers[place][0]) if self.pointers[place][0] else ""

    def bytes_of(self, variable: str) -> str | int:
        """Bytes that the host allocates for a pointer; empty where it does not, or they are not known."""
        body = cuda_ast.field(self._launch.function, "body")
        for node in cuda_ast.walk(body) if body else ():
            function, listed = cuda_ast.field(node, "function"), cuda_ast.field(node, "arguments")
            if node.type != "call_expression" or not listed or not listed.named_children:
                continue
            name = cuda_ast.node_text(function).partition("<")[0]
            parent = node.parent
            if _MADE.fullmatch(name) and parent is not None and declared_name(parent) == variable:
                shape = next((each for each in cuda_ast.walk(listed) if each.type == "initializer_list"), None)
                try:
                    extents = [self._scope.reader.whole(each).text for each in shape.named_children] if shape else []
                except UnreadableExpression as reason:
                    return self._fail(str(reason), reason.line)
                return " * ".join(["4", *(f"({text})" for text in extents)]) if extents else ""
            first, second = [*listed.named_children, *listed.named_children][:2]
            if name in _ALLOCATIONS and re.search(rf"&\s*{re.escape(variable)}$", cuda_ast.node_text(first)):
                try:
                    return _fact(self._scope.reader.whole(second).text)
                except UnreadableExpression as reason:
                    return self._fail(str(reason), reason.line)
        return ""

    def fills(self) -> "Iterator[tuple[int, str]]":
        """Where the host fills memory with zeros, or with values of its own, before this launch, and of which variable."""
        body = cuda_ast.field(self._launch.function, "body")
        for node in cuda_ast.walk(body) if body else ():
            if node.start_byte > self._launch.node.start_byte:
                return
            said = _FILL.match("".join(cuda_ast.node_text(node).split())) if node.type == "call_expression" else None
            if said and ("cudaMemset" in said[0] or "HostToDevice" in cuda_ast.node_text(node)):
                yield node.start_byte, said[1]
            set_by_host = _SET.match("".join(cuda_ast.node_text(node).split()))
            if node.type == "assignment_expression" and set_by_host:
                yield node.start_byte, set_by_host[1] or set_by_host[2]
            zeroed = (
                _ZEROED.match("".join(cuda_ast.node_text(node).split())) if node.type == "init_declarator" else None
            )
            if zeroed:
                yield node.start_byte, zeroed[1]

    def _fills_output(self) -> bool:
        """Whether the host gives its output a value before the launch, which the kernel may add to; so of a factor beta,
        which the output is multiplied with."""
        if any(name == "beta" for name, _ in self._takes):
            self._scope.notes["beta"] = f"beta for 0, {self._names.output} for zeros"
            return True
        places = [place for place in self.pointer_places if place < len(self.pointers)]
        outputs = {self.pointers[place][0] for place in places if self._arrays_found.get(place) == self._names.output}
        lines = [name for _, name in self.fills() if name in outputs]
        if lines:
            self._scope.notes[f"filled {lines[0]}"] = f"{lines[0]}, which the host fills before, for zeros"
        return bool(lines)

    def _extent_parameters(self) -> dict[str, str]:
        """Names that the kernel gets which are an extent's, or whose parameter's name is."""
        among = [*self._among, *(name for name, _ in self._takes)]
        taken = {}
        for (parameter, declaration), node in zip(self._takes, self._launch.arguments, strict=False):
            name = cuda_ast.node_text(node)
            if node.type == "identifier" and not is_pointer(declaration):
                extent = self._names.find_extent(name, among) or self._names.find_extent(parameter, among)
                if extent:
                    taken[name] = extent
        for (parameter, _), node in zip(self._takes, self._launch.arguments, strict=False):
            if node.type == "identifier" and parameter in self._by_index:
                taken[cuda_ast.node_text(node)] = self._by_index[parameter]
        numbers = [
            (node, declaration)
            for (_, declaration), node in zip(self._takes, self._launch.arguments, strict=False)
            if not is_pointer(declaration)
        ]
        if self._names.has_matrices and len(self._names.base) > 2 and len(numbers) == 1:
            # A kernel that gets one number is for square matrices.
            name = cuda_ast.node_text(numbers[0][0])
            if re.fullmatch(r"\w+", name) and cpp.is_whole(cuda_ast.node_text(cuda_ast.field(numbers[0][1], "type"))):
                taken[name] = taken.get(name) or self._names.base[0]
                self.is_square = True
        return taken

    @cached_property
    def _by_index(self) -> dict[str, str]:
        """The kernel's extents of a product of matrices by how it indexes them: what rows of `a` are as long as is k, those
        of `b` and `c` n, whatever they are called. Empty where that is not told."""
        if not self._names.has_matrices or len(self._names.base) != 3 or len(self._names.arrays) != 3:
            return {}
        numbers = [name for name, declaration in self._takes if not is_pointer(declaration)]
        pointers = {array: self._takes[place][0] for place, array in self._roles().items() if array}
        body = cuda_ast.node_text(cuda_ast.field(self._kernel, "body"))
        pitches = []
        for array in self._names.arrays:
            indices = (
                re.findall(rf"\b{re.escape(pointers.get(array, ''))}\s*\[([^\]]*)\]", body) if array in pointers else []
            )
            found = {word for index in indices for word in re.findall(r"\*\s*(\w+)", index) if word in numbers}
            pitches.append(found.pop() if len(found) == 1 else "")
        inner, *columns = pitches
        outer = set(columns) - {""}
        if not inner or len(outer) != 1 or inner in outer or len(numbers) != 3:
            return {}
        rows = next(name for name in numbers if name not in {inner, *outer})
        return dict(zip((rows, outer.pop(), inner), self._names.base, strict=True))

    def _fail(self, reason: str, line: int) -> str:
        words = f"{reason}, line {line}"
        if words not in self._reasons:
            self._reasons.append(words)
        return UNKNOWN

    def _shape(self) -> tuple[list[str | int], list[str | int], str | int]:
        parts = self._launch.configuration
        if len(parts) < 2:
            self._fail("the launch gives no grid and block", self._launch.line)
            return [UNKNOWN], [UNKNOWN], 0
        grid, threads = (self._extents(part) for part in parts[:2])
        return threads, grid, self._number(parts[2]) if len(parts) > 2 else 0

    def _extents(self, node: "Node") -> list[str | int]:
        try:
            made = self._scope.reader.extents(node)
        except UnreadableExpression as reason:
            return [self._fail(str(reason), reason.line)]
        return [_fact(value.text) for value in made.values] or [1]

    def _number(self, node: "Node") -> str | int:
        try:
            return _fact(self._scope.reader.whole(node).text)
        except UnreadableExpression as reason:
            return self._fail(str(reason), reason.line)

    def _arguments(self, arrays: dict[int, str]) -> list[str | int | float]:
        given, takes = self._launch.arguments, self._takes
        if len(given) != len(takes):
            words = f"{self._launch.plain} takes {len(takes)} arguments, and the launch gives {len(given)}"
            self._fail(words, self._launch.line)
            return [UNKNOWN]
        made: list[str | int | float] = []
        for place, ((name, declaration), node) in enumerate(zip(takes, given, strict=True)):
            kind = cuda_ast.node_text(cuda_ast.field(declaration, "type"))
            if is_pointer(declaration):
                made.append(arrays[place])
            elif cpp.is_fraction(kind) or self._names.taken_number(name) is not None:
                made.append(self._fraction(name, node))
            elif re.search(r"Texture|Surface|Tensor|Stream|Map\b|^(?:__)?half|bfloat", kind) or self._is_structure(
                kind
            ):
                words = f"`{name}` is of type {kind}, and a kernel gets pointers and numbers"
                made.append(self._fail(words, cuda_ast.line(declaration)))
            else:
                made.append(self._extent(name, node))
        return made

    def _is_structure(self, kind: str) -> bool:
        """Whether the file defines a type of that name as a structure."""
        text = cuda_ast.node_text(self._root)
        name = re.escape(kind)
        return bool(re.search(rf"\b(?:struct|class)\s+(?:\w+\([^)]*\)\s*)?{name}\b|\}}\s*{name}\s*;", text))

    def _fraction(self, parameter: str, node: "Node") -> float | str:
        """The number of a float: one that the source gives, else of a factor that the problem has not."""
        try:
            value = self._scope.reader.value(node)
            if value.constant:
                return float(expressions.fraction(value.text))
        except (UnreadableExpression, ValueError):
            pass
        for name in (cuda_ast.node_text(node), parameter):
            if (taken := self._names.taken_number(name)) is not None:
                self._scope.notes[parameter] = f"{parameter} for {taken:g}"
                return taken
        return self._fail(f"the number given for `{parameter}` is not known", cuda_ast.line(node))

    def _extent(self, parameter: str, node: "Node") -> str | int:
        extent = self._names.find_extent(parameter, [name for name, _ in self._takes])
        value = self._number(node)
        if isinstance(value, int) and extent and extent not in self._beside.values():
            self._scope.notes[parameter] = f"the {value} given for {parameter} for {extent}"
            return extent
        return value

    def _arrays(self) -> dict[int, str]:
        """The arrays by the place of the kernel's pointers."""
        output = self._names.output
        if len(self._launch.arguments) != len(self._takes):
            return {}
        absent = [place for place in self.pointer_places if self.is_null(place)]
        places = [place for place in self.pointer_places if place not in absent]
        names, const = self._roles(), {place: self.is_constant(place) for place in places}
        for place in places:
            if not self.pointers[place][0]:
                node = self._launch.arguments[place]
                self._fail(f"`{cuda_ast.node_text(node)}` is no array, nor one and a number", cuda_ast.line(node))
        missing = [array for array in self._names.arrays if array not in names.values()]
        unnamed = [place for place in places if not names[place]]
        line = self._launch.line
        for place in places:
            name, declaration = self._takes[place]
            kinds = C_TYPES[self._names.dtypes.get(names[place], "float32")]
            allowed = {*kinds, "void", *(f"{kinds[0]}{width}" for width in (2, 3, 4)), *self._type_names}
            if cuda_ast.node_text(cuda_ast.field(declaration, "type")) not in allowed:
                self._fail(f"`{name}` points to other than {kinds[0]}", cuda_ast.line(declaration))
            elif not names[place]:
                names[place] = self._fail(
                    f"`{cuda_ast.node_text(self._launch.arguments[place])}` is none of {units.join_all(self._names.arrays)} by its name",
                    line,
                )
            elif list(names.values()).count(names[place]) > 1:
                self._fail(f"two pointers are {names[place]} by their names", line)
            elif names[place] == output and const[place]:
                self._fail(f"`{name}` is {output} by its name, and const", cuda_ast.line(declaration))
        if missing == [self._names.arrays[1]] and not unnamed:
            self._constant_memory()
        elif missing and not unnamed:
            self._fail(f"no pointer is {' or '.join(missing)}{self._library}", line)
            self._to_be_launched = True
        self._arrays_found = dict(names)
        self._scope.notes.update({f"place {place}": words for place, words in self._by_place.items()})
        names = {place: name if name == UNKNOWN else name + self.offset(place) for place, name in names.items()}
        return names | dict.fromkeys(absent, launches.NULL)

    @property
    def _library(self) -> str:
        """That the host computes with a library besides its kernel, as the end of a sentence; empty where it does not."""
        said = cuda_ast.node_text(self._launch.function)
        found = re.search(r"\b(?:cublas|cudnn)\w*(?:[Gg]emm|Forward|Reduce)\w*", said)
        return f"; the host calls {found[0]} too: write a launcher in Python" if found else ""

    def _constant_memory(self) -> None:
        """The variable that w is copied to, where the kernel gets no such pointer, and how many weights it holds."""
        copies = [
            (cuda_ast.node_text(listed.named_children[0]).lstrip("&"), cuda_ast.line(node))
            for node in cuda_ast.walk(self._root)
            if cuda_ast.node_text(cuda_ast.field(node, "function")) == "cudaMemcpyToSymbol"
            and (listed := cuda_ast.field(node, "arguments"))
            and len(listed.named_children) in (3, 5)
        ]
        names = {name for name, _ in copies}
        array = next((node for node in cuda_ast.walk(self._root) if constant_array(node) in names), None)
        if len(names) != 1 or array is None:
            words = f"no pointer is w, and none is copied to one array in constant memory{self._library}"
            self._fail(words, self._launch.line)
            self._to_be_launched = True
            return
        held, sizes = (
            1,
            (cuda_ast.field(node, "size") for node in cuda_ast.walk(array) if node.type == "array_declarator"),
        )
        for size in sizes:
            number = self._number(size) if size else UNKNOWN
            held *= number if isinstance(number, int) else 0
        name, line = copies[0]
        self._copied = {"constant_memory": "::".join([*namespaces(array), name]), "limits": {"weights": held}}
        if not held:
            self._fail(f"how many weights {name} holds is not known", cuda_ast.line(array))
        self._scope.notes[name] = f"{name} (filled in line {line}) for w"

    def _roles(self) -> dict[int, str]:
        """The array of each pointer by its place, empty where nothing tells: by the host's name for it, else the kernel's;
        the output by what the kernel writes; and what is left by its place, where inputs are matrices."""
        output = self._names.output
        places = [p for p in self.pointer_places if p < len(self.pointers) and not self.is_null(p)]
        names = {
            place: (self._names.find_array(self.pointers[place][0]) or self._names.find_array(self._takes[place][0]))
            if self.pointers[place][0]
            else ""
            for place in places
        }
        written = [place for place in places if not self.is_constant(place)]
        if len(written) > 1:
            written = [place for place in written if self._takes[place][0] in self._written] or written
        if len(written) == 1 and not names[written[0]] and output not in names.values():
            names[written[0]] = output
        missing = [array for array in self._names.arrays if array not in names.values()]
        unnamed = [place for place in places if not names[place] and self.pointers[place][0]]
        if len(missing) == len(unnamed) == 1 and (missing == [output]) <= (not self.is_constant(unnamed[0])):
            names[unnamed[0]] = missing[0]
        elif len(missing) == len(unnamed) and output not in missing and self._names.has_matrices:
            for place, array in zip(unnamed, missing, strict=True):
                names[place] = array
                self._by_place[place] = f"{self.pointers[place][0]} for {array} by its place"
        return names

    @cached_property
    def _written(self) -> set[str]:
        """Names of pointers that the kernel writes through, and of those that these were made of."""
        body = cuda_ast.field(self._kernel, "body")
        found: set[str] = set()
        made: list[tuple[str, set[str]]] = []
        for node in cuda_ast.walk(body) if body else ():
            target = cuda_ast.field(node, "left") if node.type == "assignment_expression" else None
            if node.type == "init_declarator" and "*" in cuda_ast.node_text(node).partition("=")[0]:
                value = cuda_ast.node_text(cuda_ast.field(node, "value"))
                made.append((declared_name(node), set(re.findall(r"\w+", value))))
            if node.type == "call_expression" and "atomic" in cuda_ast.node_text(cuda_ast.field(node, "function")):
                listed = cuda_ast.field(node, "arguments")
                target = listed.named_children[0] if listed and listed.named_children else None
            if target is not None and target.type != "identifier":
                found |= set(re.findall(r"\w+", cuda_ast.node_text(target).partition("[")[0]))
            elif target is not None and node.type == "call_expression":
                found.add(cuda_ast.node_text(target))
        for name, words in reversed(made):
            found |= words if name in found else set()
        return found

    @cached_property
    def _type_names(self) -> set[str]:
        """Names of types that the kernel, a template, is given."""
        around = self._kernel.parent
        listed = cuda_ast.field(around, "parameters") if around and around.type == "template_declaration" else None
        declared = listed.named_children if listed else []
        return {cuda_ast.node_text(each).split()[-1] for each in declared if each.type == "type_parameter_declaration"}

    def _template_arguments(self, kernel: str) -> str:
        """A kernel's name, what its template is given in numbers."""
        name, opened, given = kernel.partition("<")
        if not opened:
            return kernel
        made = []
        for word in given.removesuffix(">").split(","):
            text = word.strip()
            if text in _SCALARS:  # a type that PyTorch chooses by the tensors
                text = C_TYPES[self._names.dtypes[self._names.output]][0]
            try:
                node = cpp.parse_expression(text)
                fixed = cpp.is_whole(text) or text in ("true", "false")
                value = _fact(self._scope.reader.whole(node).text) if node and not fixed else text
            except UnreadableExpression:
                value = text
            made.append(str(value) if isinstance(value, int) else text)
        return f"{name}<{', '.join(made)}>"

    def _check_unconditional(self) -> None:
        """Complain of a launch under a condition."""
        node, function = self._launch.node, self._launch.function
        while node.parent is not None and node != function:
            parent = node.parent
            condition = cuda_ast.field(parent, "condition")
            if parent.type in _CONDITIONS and parent.type not in LOOPS and node != condition:
                words = " ".join(cuda_ast.node_text(condition).split()) if condition else "else"
                self._fail(f"the launch stands under a condition, {words}", cuda_ast.line(parent))
                return
            node = parent

    def _limits(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Extents that the kernel has as a number of the file's, and is not told."""
        given = " ".join(map(str, facts["arguments"]))
        used = set(re.findall(r"\w+", cuda_ast.node_text(cuda_ast.field(self._kernel, "body"))))
        bounds: dict[str, dict[str, int]] = {}
        for name in sorted(used & self._outside.known.keys()):
            extent = self._names.find_extent(name)
            if extent not in ("C", "H", "W", "M", "K") or re.search(rf"\b{extent}\b", given):
                continue
            try:
                value = _fact(self._scope.reader.whole(self._find_node(name)).text)
            except UnreadableExpression:
                continue
            if isinstance(value, int):
                bounds[extent] = {"is": value}
                self._scope.notes[name] = (
                    f"{name} (line {self._outside.lines.get(name, 0)}) for the one {extent} that it is for"
                )
        return bounds

    def _limits_unnamed(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Extents that the launch names nowhere: the host's number for one, if it has one, else 1 of channels of an image."""
        words = set(re.findall(r"\w+", str(facts)))
        unnamed = [name for name in self._names.base if name not in words]
        if self.is_square:
            return {}
        bounds: dict[str, Any] = {}
        for name, known in self._scope.known.items():
            extent = self._names.find_extent(name)
            if extent in unnamed and isinstance(known, cpp.SymbolicValue) and isinstance(_fact(known.text), int):
                bounds[extent] = {"is": _fact(known.text)}
                self._scope.notes[name] = f"{name}, {known.text}, for the one {extent} that it is for"
        single = {"N", "C", "M"} & set(unnamed) if {"C", "M"} <= set(unnamed) and not words & {"C", "M"} else set()
        return {name: {"is": 1} for name in sorted(single)} | bounds

    def _find_node(self, name: str) -> "Node":
        node = cpp.parse_expression(name)
        assert node is not None
        return node


def _fact(text: str) -> str | int:
    return int(text) if text.isdigit() else text


class LaunchSequence:
    """Several launches of one function that compute a result together, in their order there."""

    def __init__(self, parts: list[_LaunchInference]):
        self._parts = parts
        self._names = parts[0]._names
        self._known = {*self._names.arrays, *self._names.optional}

    def infer(self) -> InferredLaunch:
        """The facts. Raises UnreadableLaunch."""
        variables = self._variables()
        arrays = self._roles(variables)
        scratch: dict[str, str | int] = {}
        for part in self._parts:
            for place in part.pointer_places:
                name = part.pointers[place][0]
                if name in arrays and arrays[name] not in self._known and arrays[name] not in scratch:
                    scratch[arrays[name]] = part.bytes_of(name)
        lines = ", ".join(f"{part.kernel} in line {part.line}" for part in self._parts)
        for name, size in scratch.items():
            if not size:
                raise UnreadableLaunch(f"{lines}: nothing tells which array `{name}` is, nor how many bytes it has")
        steps: list[dict[str, Any]] = []
        done: set[int] = set()
        for part in self._parts:
            for place, name in part.fills():
                if place not in done and arrays.get(name) in {self._names.output, *scratch}:
                    steps.append({"clear": arrays[name]})
                done.add(place)
            given = {
                place: launches.NULL
                if part.is_null(place)
                else arrays.get(part.pointers[place][0], UNKNOWN) + part.offset(place)
                for place in part.pointer_places
            }
            steps.append(part.facts(given))
        if reasons := list(dict.fromkeys(reason for part in self._parts for reason in part.reasons())):
            raise UnreadableLaunch(f"{'; '.join(reasons)} (launches of {lines})")
        self._share_loops(steps)
        notes = {name: words for part in self._parts for name, words in part.notes().items()}
        facts: dict[str, Any] = {"steps": steps} | ({"scratch": scratch} if scratch else {})
        return InferredLaunch(facts, self._parts[0].line, tuple(notes.values()))

    def _variables(self) -> "dict[str, list[tuple[int, bool]]]":
        """The host's pointers in their order: the launches that get each, and whether that only reads it."""
        found: dict[str, list[tuple[int, bool]]] = {}
        for number, part in enumerate(self._parts):
            if len(part.pointers) != len(part._takes):
                raise UnreadableLaunch(f"{part.kernel} takes {len(part._takes)} arguments, line {part.line}")
            for place in part.pointer_places:
                if part.is_null(place):
                    continue
                name = part.pointers[place][0]
                if not name:
                    raise UnreadableLaunch(
                        f"an argument of {part.kernel} is no array, nor one and a number, line {part.line}"
                    )
                found.setdefault(name, []).append((number, part.only_reads(place)))
        return found

    def _roles(self, variables: "dict[str, list[tuple[int, bool]]]") -> dict[str, str]:
        """What each of the host's pointers is: an array of the problem's by its name, else scratch memory of its own.

        Of what goes by no array's name, what is first read is the missing input, and what is last written the output.
        """
        arrays = {name: self._names.find_array(name) for name in variables}
        missing = [name for name in self._names.arrays if name not in arrays.values()]
        if self._names.output in missing:
            last = len(self._parts) - 1
            written = [
                n for n, uses in variables.items() if not arrays[n] and any(use == (last, False) for use in uses)
            ]
            if len(written) == 1:
                arrays[written[0]] = self._names.output
        inputs = [name for name in missing if name != self._names.output]
        unwritten = [n for n, uses in variables.items() if not arrays[n] and all(constant for _, constant in uses)]
        if len(inputs) == len(unwritten) == 1:
            arrays[unwritten[0]] = inputs[0]
        missing = [name for name in self._names.arrays if name not in arrays.values()]
        if missing:
            names = " and ".join(part.kernel for part in self._parts)
            raise UnreadableLaunch(
                f"{names} are launched in a row, and no pointer is {' or '.join(missing)} by its name"
            )
        # Memory of the host's own may be called as an extent is.
        return {n: array or (f"{n}_memory" if self._names.is_taken(n) else n) for n, array in arrays.items()}

    def _share_loops(self, steps: list[dict[str, Any]]) -> None:
        """Give launches of one loop the same `loop`, whichever of them use its number."""
        loops = [step["loop"] for step in steps if step.get("loop")]
        if loops and all(loop == loops[0] for loop in loops):
            inside = [number for number, step in enumerate(steps) if step.get("loop")]
            for step in steps[inside[0] : inside[-1] + 1]:
                step["loop"] = loops[0]
