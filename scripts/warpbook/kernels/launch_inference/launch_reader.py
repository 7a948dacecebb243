"""How a file launches its own kernel, read from its `<<<>>>`: kernel, arguments, threads, grid and shared memory.

Names of the host's function decide which extent of a layer is meant (`layer_names`), and what is made of them is
followed to the launch (`host_scope`). What cannot be followed is not guessed: `UnreadableLaunch` says what, in which
line, and the facts to write instead, as far as they were understood.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpbook.common import units
from warpbook.kernels import ece408, sources
from warpbook.kernels.launch_inference import cpp_expressions as cpp
from warpbook.kernels.launch_inference import cuda_ast
from warpbook.kernels.launch_inference.cpp_expressions import UnreadableExpression
from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.host_scope import LOOPS, Globals, HostScope
from warpbook.kernels.launch_inference.launch_sites import (
    LaunchSite,
    constant_array,
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


def read(text: str, wanted: str = "", names: HostNames | None = None) -> InferredLaunch | None:
    """How CUDA C++ launches its kernel, or the one that is `wanted`; None where it launches none. `names` are those of
    its problem, a convolution's where nothing is said.

    Raises UnreadableLaunch where it does, and how cannot be told; ImportError without tree-sitter.
    """
    if "<<<" not in sources.without_comments(text):
        return None
    root = cuda_ast.parse(text)
    found = list(find_launches(root))
    kernels = kernel_definitions(root)
    if not found:
        raise UnreadableLaunch("its launch stands in a macro or in what could not be parsed")
    named = list(dict.fromkeys(launch.kernel for launch in found))
    chosen = [launch for launch in found if not wanted or wanted in (launch.kernel, launch.plain)]
    if not chosen:
        raise UnreadableLaunch(f"{wanted} is launched nowhere; launched are {', '.join(named)}")
    if len({launch.kernel for launch in chosen}) > 1:
        lines = ", ".join(f"{launch.kernel} in line {launch.line}" for launch in chosen)
        functions = {launch.function.start_byte for launch in chosen}
        remedy = f"say which: `kernel: {named[0]}`"
        if len(functions) == 1:
            remedy += ", or, where the result takes several, write a launcher in Python"
        raise UnreadableLaunch(f"several kernels are launched: {lines}; {remedy}")
    if chosen[0].plain not in kernels:
        raise UnreadableLaunch(f"line {chosen[0].line} launches {chosen[0].plain}, which this file does not define")
    names = names or HostNames(problem.find("conv"))
    outside = Globals(root, names)
    read = [_LaunchInference(launch, kernels[launch.plain], outside, root, names).infer() for launch in chosen]
    others = [each for each in read if each.facts != read[0].facts]
    if others:
        raise UnreadableLaunch(
            f"lines {read[0].line} and {others[0].line} launch {chosen[0].kernel} in different ways", read[0].facts
        )
    return read[0]


def read_file(path: Path, code: str, wanted: str, of: Problem) -> InferredLaunch | None:
    """How a file launches its own kernel; None where it launches none. Raises ValueError with what to write instead."""
    if ece408.interface(code):
        return None
    try:
        return read(sources.read_text(path), wanted, HostNames(of))
    except UnreadableLaunch as unread:
        instead = f"; say it in {path.stem}.yaml:\n{yaml_lines(unread.facts)}" if unread.facts else ""
        raise ValueError(f"{unread}{instead}") from None
    except ImportError:
        remedy = f"install tree-sitter and tree-sitter-cuda, or say in {path.stem}.yaml how its kernel is called"
        raise ValueError(f"it launches its kernel itself, which nothing here can read; {remedy}") from None


def yaml_line(value: Any) -> str:
    """A fact as YAML, on one line."""
    if not isinstance(value, list | tuple):
        return (
            "{" + ", ".join(f"{k}: {yaml_line(v)}" for k, v in value.items()) + "}"
            if isinstance(value, dict)
            else str(value)
        )
    return "[" + ", ".join(f'"{item}"' if "," in str(item) else str(item) for item in value) + "]"


def yaml_lines(facts: dict[str, Any]) -> str:
    """Facts as lines of a YAML file."""
    return "\n".join(f"{key}: {yaml_line(value)}" for key, value in facts.items())


class _LaunchInference:
    """One launch being read: what is understood so far is kept for who has to write the rest."""

    def __init__(self, launch: LaunchSite, kernel: "Node", outside: Globals, root: "Node", names: HostNames):
        self._names = names
        self._launch, self._kernel, self._outside, self._root = launch, kernel, outside, root
        self._host = function_parameters(launch.function)
        self._takes = function_parameters(kernel)
        self._among = [name for name, _ in self._host]
        taken = self._extent_parameters()
        strided = bool(
            {"S", "P"} & {*taken.values(), *(self._names.find_extent(each, self._among) for each in self._among)}
        )
        self._scope = HostScope(outside, taken, strided, names)
        for name, declaration in self._host:
            self._scope.parameter(name, declaration, self._among)
        body = cuda_ast.field(launch.function, "body")
        if body is not None:
            self._scope.read_until(body, launch.node)
        self._reasons: list[str] = []
        self._to_be_launched = False
        self._copied: dict[str, Any] = {}

    def infer(self) -> InferredLaunch:
        """The facts. Raises UnreadableLaunch with those that are known."""
        launch = self._launch
        facts = dict(zip(_KEYS, (launch.kernel, self._arguments(), *self._shape()), strict=True))
        if not facts["shared_bytes"]:
            del facts["shared_bytes"]
        self._check_unconditional()
        if self._reasons:
            said = {} if self._to_be_launched else facts | self._copied
            raise UnreadableLaunch(f"{'; '.join(self._reasons)} (launch in line {launch.line})", said)
        limits = self._limits(facts) | self._copied.pop("limits", {})
        facts |= self._copied | ({"limits": limits} if limits else {})
        return InferredLaunch(facts, launch.line, tuple(self._scope.notes.values()))

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
        return taken

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

    def _arguments(self) -> list[str | int]:
        given, takes = self._launch.arguments, self._takes
        if len(given) != len(takes):
            words = f"{self._launch.plain} takes {len(takes)} arguments, and the launch gives {len(given)}"
            self._fail(words, self._launch.line)
            return [UNKNOWN]
        arrays = self._arrays()
        made: list[str | int] = []
        for place, ((name, declaration), node) in enumerate(zip(takes, given, strict=True)):
            if is_pointer(declaration):
                made.append(arrays[place])
            elif not cpp.is_whole(cuda_ast.node_text(cuda_ast.field(declaration, "type"))):
                kind = cuda_ast.node_text(cuda_ast.field(declaration, "type"))
                made.append(
                    self._fail(
                        f"`{name}` is of type {kind}, and a kernel gets pointers and ints", cuda_ast.line(declaration)
                    )
                )
            else:
                made.append(self._extent(name, node))
        return made

    def _extent(self, parameter: str, node: "Node") -> str | int:
        extent = self._names.find_extent(parameter, [name for name, _ in self._takes])
        value = self._number(node)
        if isinstance(value, int) and extent:
            self._scope.notes[parameter] = f"the {value} given for {parameter} for {extent}"
            return extent
        return value

    def _arrays(self) -> dict[int, str]:
        """The arrays by the place of the kernel's pointers."""
        output = self._names.output
        places = [place for place, (_, declaration) in enumerate(self._takes) if is_pointer(declaration)]
        names = {place: self._array(place) for place in places}
        const = {place: "const" in cuda_ast.node_text(self._takes[place][1]).split() for place in places}
        written = [place for place in places if not const[place]]
        if len(written) == 1 and not names[written[0]] and output not in names.values():
            names[written[0]] = output
        missing = [array for array in self._names.arrays if array not in names.values()]
        unnamed = [place for place in places if not names[place]]
        if len(missing) == len(unnamed) == 1 and (missing == [output]) <= (not const[unnamed[0]]):
            names[unnamed[0]] = missing[0]
            missing, unnamed = [], []
        line = self._launch.line
        for place in places:
            name, declaration = self._takes[place]
            kinds = C_TYPES[self._names.dtypes.get(names[place], "float32")]
            if cuda_ast.node_text(cuda_ast.field(declaration, "type")) not in kinds:
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
            self._fail(f"no pointer is {' or '.join(missing)}", line)
            self._to_be_launched = True
        return names

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
            self._fail("no pointer is w, and none is copied to one array in constant memory", self._launch.line)
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

    def _array(self, place: int) -> str:
        """By its name where the kernel is launched, else by the kernel's."""
        node = self._launch.arguments[place]
        while node.type in ("cast_expression", "parenthesized_expression"):
            node = cuda_ast.field(node, "value") or node.named_children[0]
        base = node
        while base.type in ("field_expression", "call_expression", "template_method"):
            inner = cuda_ast.field(base, "argument") or cuda_ast.field(base, "function")
            if inner is None:
                break
            base = inner
        if base.type != "identifier":
            self._fail(f"`{cuda_ast.node_text(node)}` is no array from its beginning", cuda_ast.line(node))
            return ""
        return self._names.find_array(cuda_ast.node_text(base)) or self._names.find_array(self._takes[place][0])

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

    def _find_node(self, name: str) -> "Node":
        node = cpp.parse_expression(name)
        assert node is not None
        return node


def _fact(text: str) -> str | int:
    return int(text) if text.isdigit() else text
