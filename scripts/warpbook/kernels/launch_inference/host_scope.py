"""What a launch's names stand for where it stands: constants, macros, parameters and the host's variables in order.

A variable that a loop or a condition changes is not known; nor is one that a call sets.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from warpbook.kernels import sources
from warpbook.kernels.launch_inference import cpp_expressions as cpp
from warpbook.kernels.launch_inference import cuda_ast
from warpbook.kernels.launch_inference.cpp_expressions import (
    Extents,
    Function,
    Known,
    SymbolicValue,
    UnreadableExpression,
)
from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.launch_sites import (
    declared_name,
    function_parameters,
    is_pointer,
    template_parameters,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_FLOW = ("if_statement", "for_statement", "while_statement", "do_statement", "switch_statement", "for_range_loop",
         "try_statement")  # fmt: skip
_OF_SHAPE = re.compile(r"(\w+?)(?:(?:\.|->)\w+(?:\(\))?|_?(?:[dD]ims?|[sS]hape|[sS]izes?))[\[(](-?\d)[\])]")
_OF_BLOCK = re.compile(
    r"(?:n|num)?_?(?:block|threads?|thr|tpb|nthreads)_?(?:size|dim|count|num|per_?block|s)?(?:_?x)?", re.IGNORECASE
)
_OF_TILE = re.compile(r"tile_?(?:size|width|dim|w)?", re.IGNORECASE)
THREADS, TILE = 256, 16
"""Threads of a block, and rows and columns of one that is square, where the host's caller says them."""
_OCCUPANCY = re.compile(
    r"cudaOccupancyMaxActiveBlocksPerMultiprocessor\(\s*&(\w+)|cudaOccupancyMaxPotentialBlockSize\w*\(\s*&(\w+),\s*&(\w+)"
)
_PITCH = re.compile(r"cudaMallocPitch\(\s*[^,]*,\s*&(\w+)\s*,\s*([^,]+),")
"""The bytes from row to row, which are those of a row here."""
_BLOCKS = 8
"""Blocks of 256 threads that a multiprocessor holds."""
_COMMAND_LINE = re.compile(r"\bargc\b")
_NONE: Mapping[str, str] = {}
_COUNT = re.compile(r"(\w+)(?:\.|->)(?:numel|size)\(\)")
_OF_DEVICE = {
    "multiProcessorCount": 132, "maxThreadsPerBlock": 1024, "warpSize": 32, "maxThreadsPerMultiProcessor": 2048,
    "sharedMemPerBlock": 49152, "maxGridSize[0]": 2147483647, "maxGridSize[1]": 65535, "maxThreadsDim[0]": 1024, "cudaDevAttrMultiProcessorCount": 132, "cudaDevAttrMaxThreadsPerBlock": 1024,
}  # fmt: skip
"""What a device says of itself, as an H100 does."""
_ATTRIBUTE = re.compile(rf"cudaDeviceGetAttribute\(\s*&(\w+),\s*({'|'.join(_OF_DEVICE)})\b")
BRANCHES = ("if_statement", "switch_statement", "conditional_expression")
LOOPS = ("for_statement", "while_statement", "do_statement", "for_range_loop")
_LEAVES = re.compile(r"\s*(?:return\b|throw\b|(?:std::)?(?:exit|abort)\s*\()")
ASSERTS = re.compile(r"(?:assert|TORCH_CHECK|AT_ASSERTM?|AT_CHECK)\b")


@dataclass(frozen=True)
class Condition:
    """What a launch stands under: where the statement begins, which of its branches, and whether that is taken; None
    where that is not known."""

    statement: int
    branch: str
    truth: SymbolicValue | None
    words: str
    line: int


class Globals:
    """Macros, constants and functions of one expression, of the whole file."""

    def __init__(self, root: "Node", names: HostNames):
        self.known: dict[str, Known] = {}
        self.lines: dict[str, int] = {}
        self._enumerations: set[str] = set()
        self._text = cuda_ast.node_text(root)
        for node in cuda_ast.walk(root):
            match node.type:
                case "enum_specifier":
                    self._enumerations.add(cuda_ast.field_text(node, "name"))
                case "preproc_def":
                    self._keep(node, _macro_value(node), ())
                case "preproc_function_def":
                    listed = cuda_ast.field(node, "parameters")
                    parameters = tuple(cuda_ast.node_text(each) for each in listed.named_children) if listed else ()
                    self._keep(node, _macro_value(node), parameters)
                case "function_definition":
                    self._function(node)
        scope = HostScope(self, {}, names)
        for node in _top_level_nodes(root):
            if node.type == "declaration" and (
                {"const", "constexpr"} & set(cuda_ast.node_text(node).split()) or self._is_default(node, names)
            ):
                scope.declare(node)
            elif node.type == "enum_specifier":
                scope.enumerate(node)
        self.known |= scope.known
        self.lines |= scope.lines

    def _is_default(self, node: "Node", names: HostNames) -> bool:
        """Whether it declares one number that the command line alone may change, and that is no extent."""
        declared = node.children_by_field_name("declarator")
        name = declared_name(declared[0]) if len(declared) == 1 and declared[0].type == "init_declarator" else ""
        if not name or not cpp.is_whole(cuda_ast.field_text(node, "type")) or names.find_extent(name):
            return False
        changes = re.findall(rf"(?:&\s*|\+\+|--)?\b{name}\b\s*(?:\+\+|--|[-+*/%]?=(?!=)[^;]*;)", self._text)
        others = [words for words in changes[1:] if not re.search(r"\bargv\b|\boptarg\b", words)]
        return not others and not re.search(rf"[(,]\s*&\s*{name}\b", self._text)

    def rank(self, tensor: str) -> int:
        """How many extents the file asks a tensor for, as by `x.size(1)`."""
        asked = re.findall(
            rf"\b{re.escape(tensor)}\s*(?:\.|->)\s*(?:size|shape|sizes\(\))\s*[\[(]\s*(\d)\s*[\])]", self._text
        )
        return 1 + max(map(int, asked), default=-1)

    def is_enumeration(self, declaration: "Node") -> bool:
        """Whether what a declaration declares is one of the file's enumerations."""
        return cuda_ast.field_text(declaration, "type").removeprefix("enum ") in self._enumerations

    def _keep(self, node: "Node", body: "Node | None", parameters: tuple[str, ...]) -> None:
        if body is not None:
            name = cuda_ast.field_text(node, "name")
            self.known[name] = Function(parameters, body)
            self.lines[name] = cuda_ast.line(node)

    def _function(self, node: "Node") -> None:
        body, declared = cuda_ast.field(node, "body"), cuda_ast.field(node, "declarator")
        kind = cuda_ast.field_text(node, "type")
        if body is None or declared is None:
            return
        statements = cuda_ast.items(body)
        if len(statements) == 1 and statements[0].type == "return_statement" and statements[0].named_children:
            names = tuple(name for name, _ in function_parameters(node))
            integer = cpp.is_whole(kind) if cpp.is_whole(kind) or cpp.is_fraction(kind) else None  # a template's
            types = frozenset(name for name, one in template_parameters(node).items() if one.is_type)
            known = Function(names, statements[0].named_children[0], integer, types)
            self.known[cuda_ast.field_text(declared, "declarator")] = known


def _chosen(name: str, truth: SymbolicValue, first: Known, second: Known, line: int) -> Known:
    """What a name stands for behind an `if`, of what either branch makes it."""
    if first == second or truth.constant:
        return second if truth.text == "0" else first
    if isinstance(first, SymbolicValue) and isinstance(second, SymbolicValue):
        return cpp.choose(truth, first, second)
    if isinstance(first, Extents) and isinstance(second, Extents):
        both = ([*each.values, *[cpp.number(1)] * 3][:3] for each in (first, second))
        return Extents(tuple(cpp.choose(truth, *each) for each in zip(*both, strict=True)))
    return UnreadableExpression(f"`{name}` is set under a condition", line)


def _holds(node: "Node", inner: "Node") -> bool:
    """Whether a node is another or stands around it."""
    return node.start_byte <= inner.start_byte and inner.end_byte <= node.end_byte


def _leaves(case: "Node") -> bool:
    """Whether nothing below a case of a `switch` is reached from it."""
    return any(
        each.type == "break_statement" or _LEAVES.match(cuda_ast.node_text(each)) for each in cuda_ast.walk(case)
    )


def _always_leaves(statement: "Node") -> bool:
    """Whether the function ends in an `if` without `else`, or the turn of a loop does: by `break` where what it compares
    grows, so that later turns end there too."""
    body = cuda_ast.field(statement, "consequence")
    inner = body.named_children[-1:] if body and body.type == "compound_statement" else [body]
    last = inner[0] if inner else None
    if last is not None and last.type in ("break_statement", "continue_statement"):
        around: Node | None = statement.parent
        while around is not None and around.type not in (*LOOPS, "switch_statement"):
            around = around.parent
        grows = re.fullmatch(r"\(?[^<>=!&|]+>=?[^<>=!&|]+\)?", cuda_ast.field_text(statement, "condition"))
        ends_turn = around is not None and around.type in LOOPS and not cuda_ast.field(statement, "alternative")
        return ends_turn and (last.type == "continue_statement" or bool(grows))
    return not cuda_ast.field(statement, "alternative") and bool(last and _LEAVES.match(cuda_ast.node_text(last)))


def first_argument(statement: "Node") -> "Node | None":
    """The first argument of a call that is a statement; None where it is none."""
    given = cuda_ast.arguments(statement.named_children[0]) if statement.named_children else []
    return given[0] if given else None


def _macro_value(node: "Node") -> "Node | None":
    """The expression that a macro stands for; None where it is none."""
    return cpp.parse_expression(sources.without_comments(cuda_ast.field_text(node, "value")))


def _top_level_nodes(root: "Node") -> "list[Node]":
    """Nodes that stand in no function."""
    found, ahead = [], [root]
    while ahead:
        node = ahead.pop()
        found.append(node)
        if node.type not in ("function_definition", "class_specifier", "struct_specifier"):
            ahead += reversed(node.named_children)
    return found


class HostScope:
    """Names known at a place of a function, on top of the file's.

    `taken` are names that stand for extents because a kernel gets them: what else gives them a value, a number for one,
    is one layer's alone. `notes` tell of each, as do those of names that are set elsewhere.
    """

    def __init__(
        self, outside: Globals, taken: Mapping[str, str], names: HostNames, tensors: Mapping[str, str] = _NONE
    ):
        self.names = names
        self.known: dict[str, Known] = {}
        self.lines: dict[str, int] = {}
        self.notes: dict[str, str] = {}
        self._outside = outside
        self._tensors = tensors
        self._taken = taken
        self._claimed: set[str] = set()
        self._parameters: set[str] = set()
        self._pointers: set[str] = set()
        self.loops: dict[int, tuple[str, str]] = {}
        """The loops around a launch that count from 0, by where they stand: the number's name, and how many turns."""
        self.renamed: set[str] = set()
        """Names whose numbers go by an extent's name here, or are none's."""
        self.conditions: list[Condition] = []
        """What decides whether a launch is reached."""
        self.squares: set[str] = set()
        """Numbers that are both sides of a block."""
        self.is_first_pass = False
        """Whether the first pass alone of loops around a launch is read."""
        self.reader = cpp.ExpressionReader(self.look_up)
        self.reader.least = lambda name: int(name in names.base)
        for name, extent in taken.items():
            if name in outside.known:
                self._take(name, extent, outside.lines.get(name, 0))

    def look_up(self, name: str, line: int) -> Known | None:
        """What a name stands for. A structure's or a class's, set where nothing is read, is an extent by its name."""
        if known := self.known.get(name) or self._outside.known.get(name):
            return known
        owner, _, member = re.sub(r"^this->", "", name).replace("->", ".").rpartition(".")
        if owner and member in _OF_DEVICE:
            self.notes.setdefault(name, f"{name} (line {line}) for {_OF_DEVICE[member]}, as an H100 has")
            return cpp.number(_OF_DEVICE[member])
        if (counted := _COUNT.fullmatch(name)) and (count := self.names.count_of_array(self._find_array(counted[1]))):
            return cpp.symbolic(count)
        if shape := _OF_SHAPE.fullmatch(name):
            if not (extent := self.names.extent_at_place(self._find_array(shape[1]), int(shape[2]))):
                return None
            self._take(name, extent, line)
            return self.known[name]
        if name in self._taken:
            self._take(name, self._taken[name], line)
            return self.known[name]
        if owner and _OF_BLOCK.fullmatch(member) and self._suppose_size(name, member):
            return self.known[name]
        extent = "" if member in self._pointers else self.names.find_extent(member)
        if owner:
            array = self.names.find_array(owner.partition(".")[0])
            own = self.names.find_extent(f"{array or owner}_{member}")
            extent = own or self.names.extent_of_array(array, extent)
        if not extent or not (owner or extent not in self._claimed):
            return None
        self._take(name, extent, line)
        return self.known[name]

    def _find_array(self, name: str) -> str:
        """The problem's array that a tensor of the host's function stands for."""
        return self._tensors.get(name) or self.names.find_array(name)

    def _take(self, name: str, extent: str, line: int) -> None:
        self.known[name] = cpp.symbolic(extent)
        self.notes.setdefault(name, f"{name} (line {line})" + (f" for {extent}" if name != extent else ""))

    def parameter(self, name: str, declaration: "Node", among: list[str], choice: str | None = None) -> None:
        """A parameter of the host's function; `choice` is the number that it has where a launch is reached."""
        line = cuda_ast.line(declaration)
        if is_pointer(declaration):
            return
        extent = self._taken.get(name) or self.names.find_extent(name, among)
        self._parameters.add(name)
        factor = self.names.taken_number(name)
        if extent:
            self.known[name] = cpp.extent(extent)
            self._claimed.add(extent)
        elif factor is not None:
            self.known[name] = cpp.number(int(factor))
        elif choice and isinstance(chosen := self._read(choice, line), SymbolicValue) and chosen.constant:
            self._suppose(name, int(chosen.text))
        elif not self._suppose_size(name, name):
            self.known[name] = UnreadableExpression(f"`{name}` is a parameter whose name is no extent's", line)

    def template_parameter(self, name: str, default: str, line: int) -> None:
        """A number that the template of the host's function takes."""
        value = cpp.parse_expression(default) if default else None
        if value is not None:
            self._bind(name, value, line)
        else:
            self._suppose_size(name, name)

    def _suppose_size(self, name: str, word: str) -> bool:
        """Take a number that a word calls one of threads or of a tile for what is usual; false of other words."""
        tile = _OF_TILE.fullmatch(word)
        if tile or _OF_BLOCK.fullmatch(word):
            self._suppose(name, TILE if tile or name in self.squares else THREADS)
            return True
        return False

    def _suppose(self, name: str, value: int, of: str = "") -> None:
        self.known[name] = cpp.number(value)
        self.notes[name] = f"{name} for {value}{of}"

    def read_until(self, body: "Node", launch: "Node") -> None:
        """Read a function's statements down to a launch."""
        for statement in body.named_children:
            if statement.start_byte >= launch.start_byte:
                return
            if statement.end_byte > launch.start_byte:
                self._enclosing(statement, launch)
                return
            self._statement(statement)

    def _enclosing(self, statement: "Node", launch: "Node") -> None:
        if statement.type in LOOPS:
            counted = self._counted_loop(statement)
            if not self.is_first_pass:
                self._forget(statement, "in a loop")
            if counted:
                variable, name, turns = counted
                self.known[variable] = cpp.extent(name)
                self.loops[statement.start_byte] = (name, turns)
        self._enter_branch(statement, launch)
        for inner in statement.named_children:
            if inner.start_byte <= launch.start_byte < inner.end_byte:
                if inner.type == "compound_statement":
                    self.read_until(inner, launch)
                else:
                    self._enclosing(inner, launch)
            elif inner.type == "declaration" and (self.is_first_pass or statement.type not in LOOPS):
                self.declare(inner)

    def _enter_branch(self, statement: "Node", launch: "Node") -> None:
        """Keep the condition of the branch of a statement that a launch stands in."""
        condition = cuda_ast.field(statement, "condition")
        if condition is None or statement.type not in BRANCHES:
            return
        inside = next((each for each in statement.named_children if _holds(each, launch)), statement)
        asked, branch, line = cuda_ast.node_text(condition), "then", cuda_ast.line(statement)
        truth = self._truth(asked, line)
        if statement.type == "switch_statement":
            cases = [each for each in inside.named_children if each.type == "case_statement"]
            place = next((number for number, each in enumerate(cases) if _holds(each, launch)), -1)
            truth, branch = self._case_truth(asked, cases, place, line), str(place)
        elif inside == condition:
            return
        elif inside == cuda_ast.field(statement, "alternative"):
            truth, branch = truth and cpp.negation(truth), "else"
        self.conditions.append(Condition(statement.start_byte, branch, truth, " ".join(asked.split()), line))

    def _case_truth(self, asked: str, cases: "list[Node]", place: int, line: int) -> SymbolicValue | None:
        """Whether a case of a `switch` is reached, by its own value or from those above that do not leave."""
        if place < 0 or (place + 1 < len(cases) and not _leaves(cases[place])):
            return None
        first = place
        while first and not _leaves(cases[first - 1]):
            first -= 1
        tests: list[str] = []
        values = [cuda_ast.field_text(each, "value") for each in cases]
        for value in values[first : place + 1]:
            others = " && ".join(f"({asked}) != ({other})" for other in values if other)
            tests.append(f"({asked}) == ({value})" if value else others or "true")
        return self._truth(" || ".join(f"({test})" for test in tests), line)

    def _read(self, text: str, line: int) -> Known:
        """What an expression stands for, or why that is not known."""
        node = cpp.parse_expression(text)
        try:
            return self.reader.value(node, line) if node else UnreadableExpression(f"`{text}` is no expression", line)
        except UnreadableExpression as reason:
            return reason

    def _truth(self, text: str, line: int) -> SymbolicValue | None:
        """Whether a condition holds; None where that is not known."""
        node = cpp.parse_expression(text)
        try:
            return self.reader.truth(node, line) if node else None
        except UnreadableExpression:
            return None

    def _require(self, statement: "Node", truth: SymbolicValue | None) -> None:
        """Keep what must hold behind a statement, where extents decide it."""
        if truth and not truth.constant:
            words = " ".join(cuda_ast.node_text(statement).split())
            self.conditions.append(Condition(statement.start_byte, "on", truth, words, cuda_ast.line(statement)))

    def _counted_loop(self, loop: "Node") -> tuple[str, str, str] | None:
        """(variable, the name that it gets in facts, turns) of `for (int n = 0; n < N; n++)`; None for other loops."""
        head = "".join(cuda_ast.node_text(loop).partition("{")[0].split())
        found = re.match(
            r"for\((?:int|size_t|unsigned|unsignedint|auto|long|int64_t|uint32_t)?(\w+)=0;\1<(?!=).*;(?:\+\+\1|\1\+\+|\1\+=1)\)",
            head,
        )
        condition = cuda_ast.field(loop, "condition")
        bound = cuda_ast.field(condition, "right") if condition else None
        if not found or bound is None:
            return None
        try:
            turns = self.reader.whole(bound).text
        except UnreadableExpression:
            return None
        variable = found[1]
        return variable, f"{variable}_index" if self.names.is_taken(variable) else variable, turns

    def _statement(self, statement: "Node") -> None:
        if statement.type == "if_statement" and _always_leaves(statement):
            truth = self._truth(cuda_ast.field_text(statement, "condition"), cuda_ast.line(statement))
            self._require(statement, truth and cpp.negation(truth))
        elif ASSERTS.match(cuda_ast.node_text(statement)) and (given := first_argument(statement)) is not None:
            self._require(statement, self._truth(cuda_ast.node_text(given), cuda_ast.line(statement)))
        if statement.type == "declaration":
            self.declare(statement)
        elif statement.type == "if_statement" and self._branches(statement):
            return
        elif statement.type == "if_statement" and _COMMAND_LINE.search(cuda_ast.field_text(statement, "condition")):
            before = dict(self.known)
            self._forget(statement, "under a condition")
            for name, value in before.items():
                if isinstance(value, SymbolicValue) and self.known[name] is not value:
                    self.known[name] = value
                    self.notes[name] = f"{name} for {value.text}, as without words on the command line"
        elif statement.type in _FLOW:
            self._forget(statement, "in a loop" if statement.type in LOOPS else "under a condition")
        elif statement.type == "compound_statement":
            self._forget(statement, "in a block of its own")
        elif statement.type == "expression_statement":
            made = statement.named_children[0] if statement.named_children else None
            if made is not None and made.type == "assignment_expression":
                self._assign(made)
            elif made is not None and made.type == "update_expression":
                counted, sign = cuda_ast.field(made, "argument"), cuda_ast.field_text(made, "operator")
                self._change(cuda_ast.node_text(counted), sign, "1", cuda_ast.line(made))
            elif asked := _ATTRIBUTE.search(cuda_ast.node_text(statement)):
                variable, attribute = asked.groups()
                self._suppose(variable, _OF_DEVICE[attribute], ", as an H100 has")
            elif pitch := _PITCH.search(cuda_ast.node_text(statement)):
                self.known[pitch[1]] = self._read(pitch[2], line=cuda_ast.line(statement))
            elif asked := _OCCUPANCY.search(cuda_ast.node_text(statement)):
                numbers = (_BLOCKS, _BLOCKS * _OF_DEVICE["multiProcessorCount"], THREADS)
                for variable, number in zip(asked.groups(""), numbers, strict=True):
                    if variable:
                        self._suppose(variable, number)
            else:
                self._forget(statement, "by a call")

    def _branches(self, statement: "Node") -> bool:
        """Read what either branch of an `if` sets, each name the one value or the other by the condition; false where
        that is not known."""
        before, made, own, taken, required = self.known, [], set(), self._taken, len(self.conditions)
        self._taken = _NONE  # a number that a condition sets is meant
        for branch in ("consequence", "alternative"):
            self.known = dict(before)
            body = cuda_ast.field(statement, branch)
            inner = [body] if body else []
            while len(inner) == 1 and inner[0].type in ("compound_statement", "else_clause"):
                inner = inner[0].named_children
            for each in inner:
                self._statement(each)
                own |= {declared_name(one) for one in each.children_by_field_name("declarator")}
            made.append(self.known)
        self.known, self._taken = before, taken
        del self.conditions[required:]  # what must hold behind one branch need not behind the other
        changed = [name for name in before.keys() - own if made[0][name] != made[1][name]]
        condition = cuda_ast.field(statement, "condition")
        value = cuda_ast.field(condition, "value") if condition and changed else None
        try:
            truth = self.reader.truth(value) if value else cpp.number(1)
        except UnreadableExpression:
            return False
        for name in before.keys() - own:
            before[name] = _chosen(name, truth, made[0][name], made[1][name], cuda_ast.line(statement))
        return True

    def enumerate(self, node: "Node") -> None:
        """Names of an enumeration, those with a value."""
        for each in cuda_ast.walk(node):
            value = cuda_ast.field(each, "value") if each.type == "enumerator" else None
            if value is not None:
                self._bind(cuda_ast.field_text(each, "name"), value, cuda_ast.line(each))

    def declare(self, node: "Node") -> None:
        """A declaration of variables."""
        kind = cuda_ast.field_text(node, "type")
        for declarator in node.children_by_field_name("declarator"):
            name, line = declared_name(declarator), cuda_ast.line(declarator)
            value = cuda_ast.field(declarator, "value")
            inner = cuda_ast.field(declarator, "declarator")
            self.lines[name] = line
            if (
                value is not None
                and value.type == "initializer_list"
                and len(value.named_children) > 1
                and kind != "dim3"
            ):
                for place, each in enumerate(value.named_children):
                    self._bind(f"{name}[{place}]", each, line)
            if kind == "dim3":
                self._keep(name, partial(self._dim3, declarator, value, line))
            elif {"pointer_declarator", "array_declarator"} & {declarator.type, inner.type if inner else ""}:
                self._pointers.add(name)
            elif value is None:
                self.known[name] = UnreadableExpression(f"`{name}` is given no value before the launch", line)
                if name in self._taken:
                    self._take(name, self._taken[name], line)
            else:
                if value.type in ("argument_list", "initializer_list") and len(value.named_children) == 1:
                    value = value.named_children[0]
                self._bind(name, value, line, kind)

    def _dim3(self, declarator: "Node", value: "Node | None", line: int) -> Extents:
        if declarator.type != "function_declarator":
            return self.reader.extents(value) if value is not None else Extents(())
        # `dim3 grid(M, N);` is a prototype to the parser, and to C++ where these are types.
        text = cuda_ast.field_text(declarator, "parameters")
        return Extents(tuple(self.reader.whole(each, line) for each in cpp.parse_arguments(text)))

    def _bind(self, name: str, value: "Node", line: int, kind: str = "int") -> None:
        self.lines[name] = line
        self.notes.pop(name, None)
        if "sizeof" in cuda_ast.node_text(value):
            self.renamed.add(name)  # a number of bytes is no extent, whatever its name
        if shape := _OF_SHAPE.fullmatch("".join(cuda_ast.node_text(value).split())):
            array, place = self._find_array(shape[1]), int(shape[2])
            if self.names.is_at_other_place(name, array, place):
                # An image alone, of one channel, has the last extents of the batch.
                fewer = self.names.rank(array) - self._outside.rank(shape[1])
                extent = self.names.extent_at_place(array, place + fewer) if fewer > 0 <= place else ""
                if extent and extent == self.names.find_extent(name):
                    self._take(name, extent, line)
                    return
                words = f"`{name}` is extent {place} of {shape[1]}, where {array} has {self.names.extent_at_place(array, place)}"
                self.known[name] = UnreadableExpression(f"{words}: its shape is another", line)
                return
        try:
            if kind == "auto" and cuda_ast.node_text(value).startswith("dim3"):
                self.known[name] = self.reader.extents(value)
                return
            made = self.reader.value(value, line)
            if kind != "auto" and not cpp.is_fraction(kind):
                made = made.as_integer()
            elif cpp.is_fraction(kind):
                made = SymbolicValue(made.tree, integer=False, whole=made.whole)
            self.known[name] = made
            # What the kernel does with a number tells more than how the host's caller calls it.
            usual = name in self._taken and (made.constant or cuda_ast.node_text(value) in self._parameters)
        except UnreadableExpression as reason:
            self.known[name] = reason
            extent = self._taken.get(name) or self.names.find_extent(name)
            if extent and (name in self._taken or extent not in self._claimed):
                self._take(name, extent, line)
            return
        if usual:
            self._take(name, self._taken[name], line)
            self.renamed |= set(re.findall(r"\w+", cuda_ast.node_text(value)))

    def _assign(self, node: "Node") -> None:
        left, right = cuda_ast.field(node, "left"), cuda_ast.field(node, "right")
        sign = cuda_ast.field_text(node, "operator") or "="
        if left is None or right is None or cuda_ast.node_text(left) in self._pointers:
            return
        base = left.named_children[0] if left.type == "field_expression" else left
        name, line = cuda_ast.node_text(base), cuda_ast.line(node)
        known = self.known.get(name)
        if left != base:
            self.known.pop(cuda_ast.node_text(left), None)
        if sign != "=":
            self._change(name, sign, cuda_ast.node_text(right), line)
        elif left.type == "field_expression" and not isinstance(known, Extents):
            with suppress(UnreadableExpression):
                if (made := self.reader.value(right, line)).constant:
                    self.known[cuda_ast.node_text(left)] = made
        elif left.type == "field_expression":
            place = "xyz".find(cuda_ast.field_text(left, "field"))
            if isinstance(known, Extents) and place >= 0:
                values = [*known.values, *[cpp.number(1)] * 3][:3]
                self._keep(name, lambda: Extents((*values[:place], self.reader.whole(right), *values[place + 1 :])))
        elif isinstance(known, Extents) or cuda_ast.node_text(right).startswith("dim3"):
            self._keep(name, lambda: self.reader.extents(right))
        elif left.type == "identifier":
            self._bind(name, right, line)

    def _keep(self, name: str, read: Callable[[], Known]) -> None:
        """What a name stands for from here on, or why that is not known."""
        try:
            self.known[name] = read()
        except UnreadableExpression as reason:
            self.known[name] = reason

    def _change(self, name: str, sign: str, by: str, line: int) -> None:
        """`name += by`, or `name++`."""
        value = cpp.parse_expression(f"{name} {sign[0]} ({by})")
        if value is not None and isinstance(self.known.get(name), SymbolicValue):
            self._bind(name, value, line)
        else:
            self.known[name] = UnreadableExpression(f"`{name}` is changed by `{sign}`", line)

    def _forget(self, statement: "Node", where: str) -> None:
        """Every name that a statement may change is not known behind it, nor in it."""
        for node in cuda_ast.walk(statement):
            changed: Node | None = None
            if node.type == "assignment_expression":
                changed = cuda_ast.field(node, "left")
            elif node.type == "update_expression" or cuda_ast.node_text(node).startswith("&"):
                changed = cuda_ast.field(node, "argument")
            elif node.type == "init_declarator" and where != "in a block of its own":
                changed = cuda_ast.field(node, "declarator") if statement.type in LOOPS else None
            while changed is not None and changed.type == "field_expression":
                self.known.pop(cuda_ast.node_text(changed), None)
                changed = cuda_ast.field(changed, "argument")
            if changed is not None and changed.type == "identifier":
                name = cuda_ast.node_text(changed)
                self.known[name] = UnreadableExpression(f"`{name}` is set {where}", cuda_ast.line(node))
                if name in self._taken and where in ("by a call", "under a condition"):
                    self._take(name, self._taken[name], cuda_ast.line(node))
