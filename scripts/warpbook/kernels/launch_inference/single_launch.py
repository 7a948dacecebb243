"""One launch of a file as the facts of a header: its kernel, arguments, threads, grid and shared memory."""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from warpbook.common import expressions, units
from warpbook.kernels import launches
from warpbook.kernels.launch_inference import cpp_expressions as cpp
from warpbook.kernels.launch_inference import cuda_ast, launch_sites
from warpbook.kernels.launch_inference.cpp_expressions import Known, SymbolicValue, UnreadableExpression
from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.host_scope import ASSERTS, Condition, Globals, HostScope, first_argument
from warpbook.kernels.launch_inference.inferred_facts import (
    LAUNCH_KEYS,
    UNKNOWN,
    InferredLaunch,
    UnreadableLaunch,
    fact_value,
    sum_of_blocks,
)
from warpbook.kernels.launch_inference.launch_sites import (
    LaunchSite,
    constant_array,
    declared_name,
    function_parameters,
    is_pointer,
    namespaces,
    sets_value_of_each_block,
    template_parameters,
    without_alias,
)
from warpbook.problems.problem import C_TYPES, element_type

if TYPE_CHECKING:
    from tree_sitter import Node

_MADE = re.compile(r"(?:torch|at)::(?:empty|zeros|ones|full)(?:_like)?")
_SCALARS = ("scalar_t", "T", "DType", "dtype")
_CASTS = ("reinterpret_cast<", "static_cast<", "const_cast<")
_ALLOCATIONS = ("cudaMalloc", "cudaMallocManaged", "cudaMallocAsync")
_FILL = re.compile(r"(?:cudaMemset|cudaMemsetAsync|cudaMemcpy|cudaMemcpyAsync)\((?:\(void\*+\))?&?(\w+),&?(\w*)")
FLOAT_MIN = -3.4028234663852886e38
_LEAST = re.compile(
    r"-\s*\(?(?:std::numeric_limits<\w+>::)?(?:FLT_MAX|DBL_MAX|INFINITY|HUGE_VALF?|max\(\)|infinity\(\))"
)
"""A number that every other one exceeds, as a maximum begins with."""
_HOST_FILL = re.compile(r"(?:std::)?(?:fill(?:_n)?\((\w+).*,([^,]+)\)|memset\((\w+),(?:0|0x0+)\b)")
_HOST_MEMORY = re.compile(r"(?:\([\w*]+\))?(?:malloc\(|new\w|nullptr|NULL)")
_FIRST_VALUE = re.compile(r"\w+(\+0)?|&\(?(\w+|\w+\[0\]|\*\w+)\)?")
_ZERO = re.compile(
    r"(?:\(?(?:float|double|int)?\)?)?[{(]*(?:.*,)?[+-]?0*\.?0*[fF]?[})]*|\([^,]*\)|.*calloc\(.*|.*::zeros.*"
)
"""A value, an initializer or an allocation of zeros."""
_SET = re.compile(r"\*(\w+)=[^=]|(\w+)\[0\]=[^=]")
_MADE_AS = re.compile(r"(\w+)=(?:torch|at)::(?:zeros|full)")
_CONSTANTS = re.compile(r"\bconst(?:expr)?\s+(?:unsigned\s+)?int\s+([^;]*);")
"""What a kernel declares of constants, as `const int R = 3, S = 3;`."""
_WHOLE = ("identifier", "field_expression")
"""A variable, or a structure's, not what a pointer points to."""
_FACTOR = r"\w+(?=\s*\*)|(?<=\*)\w+|(?<=\* )\w+"


def _is_assigned(node: "Node") -> bool:
    """Whether a node names an array of which an element is set, and no more is done with it."""
    element = node.parent
    around = element.parent if element else None
    is_element = element is not None and element.type in ("subscript_expression", "pointer_expression")
    sets = around is not None and cuda_ast.field_text(around, "operator") == "="
    return is_element and sets and around is not None and cuda_ast.field(around, "left") == element


def _is_added_to(node: "Node", one_value: bool) -> bool:
    """Whether a node stands in the first argument of atomicAdd. one_value: which must be the array's first value."""
    inner, around = node, node.parent
    while around is not None and around.type != "argument_list":
        inner, around = around, around.parent
    called = cuda_ast.field_text(around.parent, "function") if around else ""
    if around is None or not called.startswith("atomicAdd") or around.named_children[0] != inner:
        return False
    return not one_value or bool(_FIRST_VALUE.fullmatch("".join(cuda_ast.node_text(inner).split())))


def _filled_with(text: str) -> float | None:
    """The value that an expression fills memory with, FLOAT_MIN for the least number and 0; None for any other."""
    least = _LEAST.search(text) or re.search(r"numeric_limits<\w+>::lowest", text)
    return FLOAT_MIN if least else 0 if _ZERO.fullmatch(text) else None


class LaunchInference:
    """One launch being read: what is understood so far is kept for who has to write the rest."""

    def __init__(
        self,
        launch: LaunchSite,
        kernel: "Node",
        outside: Globals,
        root: "Node",
        names: HostNames,
        beside: Mapping[str, str] = MappingProxyType({}),
        first_pass: bool = False,
        is_asked_for: bool = False,
        choices: Mapping[str, str] = MappingProxyType({}),
    ):
        """`beside` are the host's extents that launches beside this one get; `first_pass`, whether the first pass of a loop
        around it is read; `is_asked_for`, whether somebody named the kernel: a choice that the host makes, not by an
        extent, is made; `choices`, what the host's parameters are then."""
        self.names = names
        self._launch, self._kernel, self._outside, self._root = launch, kernel, outside, root
        self._host = function_parameters(launch.function)
        self.parameters = function_parameters(kernel)
        own = " ".join(_CONSTANTS.findall(cuda_ast.field_text(kernel, "body")))
        self._among = [name for name, declaration in self._host if not is_pointer(declaration)]
        self._among += re.findall(r"(\w+)\s*=\s*\d", own)
        self._by_place: dict[int, str] = {}
        self._beside = beside
        self.is_square = False
        self.is_asked_for, self._choices = is_asked_for, choices
        self.settled: set[int] = set()
        """Statements whose conditions decide nothing."""
        self.is_of_path = False
        """Whether the facts that it is read for tell in which cases it is done."""
        self.fixed: dict[str, dict[str, int]] = {}
        """Extents that nothing tells the kernel, and that are the same in every case of it."""
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
        self._taken = taken
        self._scope = HostScope(outside, taken, names, tensors)
        self._scope.reader.type_of = self._element
        self._scope.is_first_pass = first_pass
        self._scope.squares = set(re.findall(r"\(\s*(\w+)\s*,\s*\1\b", cuda_ast.field_text(launch.function, "body")))
        for name, declaration in self._host:
            self._scope.parameter(name, declaration, self._among, choices.get(name))
        self._read_callers()
        for place, (name, parameter) in enumerate(template_parameters(launch.function).items()):
            if not parameter.is_type:
                given = {words[place] for words in self._template_words if place < len(words)}
                value = given.pop() if len(given) == 1 else parameter.default
                self._scope.template_parameter(name, value, cuda_ast.line(launch.function))
        body = cuda_ast.field(launch.function, "body")
        if body is not None:
            self._scope.read_until(body, launch.node)
        self._reasons: list[str] = []
        self._leaves_partial_sums = self._rewrites = False
        self._copied: dict[str, Any] = {}
        self._arrays_found: dict[int, str] = {}
        self.plain, self.line = launch.plain, launch.line
        self.kernel = self._template_arguments(launch.kernel)

    def with_sibling_extents(self, extents: Mapping[str, str]) -> "LaunchInference":
        """It, among launches that get extents by these names of the host's."""
        made = self._again(extents)
        made.is_of_path, made.settled = self.is_of_path, self.settled
        return made

    def _again(self, beside: Mapping[str, str], first_pass: bool = False) -> "LaunchInference":
        what = (self._launch, self._kernel, self._outside, self._root, self.names)
        return LaunchInference(*what, beside, first_pass, self.is_asked_for, self._choices)

    def _read_callers(self) -> None:
        """Parameters of the host's function that nothing else tells, as a grid, by what those who call it give."""
        known = self._scope.known
        types = [cuda_ast.field_text(declared, "type") for _, declared in self._host]
        unread = {
            name: place
            for place, (name, _) in enumerate(self._host)
            if (isinstance(known.get(name), UnreadableExpression) or types[place] == "dim3")
            and not self.names.find_extent(f"{name}_x")
        }
        given: dict[str, list[Known]] = {name: [] for name in unread}
        self._template_words: list[list[str]] = []
        for arguments, around, words in launch_sites.calls(self._launch.function, self._root):
            if len(arguments) < len(self._host) or not self._gives_kernel(arguments):
                continue
            self._template_words.append(words)
            if not unread:
                continue
            pairs = zip(self._host, arguments, strict=False)
            named = {cuda_ast.node_text(each): known.get(name) for (name, _), each in pairs if name in known}
            taken = {
                name: value.text
                for name, value in named.items()
                if isinstance(value, SymbolicValue) and value.text in self.names.base
            }
            scope = HostScope(self._outside, taken, self.names)
            scope.reader.type_of = self._element
            for name, declaration in function_parameters(around):
                scope.parameter(name, declaration, [])
            if (body := cuda_ast.field(around, "body")) is not None:
                scope.read_until(body, arguments[0])
            for name, place in unread.items():
                read = scope.reader.extents if types[place] == "dim3" else scope.reader.whole
                with suppress(UnreadableExpression):
                    given[name].append(read(arguments[place]))
        known |= {
            name: values[0] for name, values in given.items() if values and values.count(values[0]) == len(values)
        }

    def given_together(self, kernels: list[str]) -> list[list[str]]:
        """Those of some kernels that each caller of the host's function gives it, where one gives several."""
        calls = [arguments for arguments, _, _ in launch_sites.calls(self._launch.function, self._root)]
        given = [{word for each in call for word in re.findall(r"\w+", cuda_ast.node_text(each))} for call in calls]
        rows = [[kernel for kernel in kernels if launch_sites.unqualified(kernel) in words] for words in given]
        return [row for row in rows if row] if any(len(row) > 1 for row in rows) else []

    def _gives_kernel(self, arguments: "list[Node]") -> bool:
        """Whether a call of the host's function gives it the kernel of this launch, or no kernel."""
        pointer = cuda_ast.field_text(self._launch.node, "function")
        places = [place for place, (name, _) in enumerate(self._host) if name == pointer]
        return all(re.search(rf"\b{self._launch.plain}\b", cuda_ast.node_text(arguments[place])) for place in places)

    @property
    def is_complete(self) -> bool:
        """Whether it may compute the result alone: it gets every array by its name, or finds one in constant memory."""
        known = {self.names.find_array(name) for name, _ in self.pointers if name}
        return known | self._held >= set(self.names.arrays)

    @cached_property
    def _held(self) -> set[str]:
        """The array that the kernel may find in constant memory."""
        return {self.names.arrays[1]} if self._symbols else set()

    @property
    def has_all_arrays(self) -> bool:
        """Whether it may compute the result alone, by what its kernel calls its arrays too."""
        return self.is_complete or set(self._roles().values()) >= set(self.names.arrays)

    def infer(self) -> InferredLaunch:
        """The facts of a path that is this launch alone. Raises UnreadableLaunch with those that are known."""
        facts = self.facts(self._arrays())
        self._check_unconditional()
        limits = self.limits(facts, facts)
        known = UNKNOWN not in facts["arguments"]  # else what is not known may be the rows
        flat = self.of_one_row(self.lengths) if known and self.untold({**facts, **limits}) else None
        if flat:
            return flat.infer()
        facts |= self._copied | ({"limits": limits} if limits else {})
        facts |= {"clear": [self.names.output]} if self._fills_output() else {}
        facts = self._with_copies(self._with_sum(facts))
        if self._reasons:
            if self._leaves_partial_sums and not self._scope.is_first_pass:
                facts = self.first_pass() or facts
            raise UnreadableLaunch(f"{'; '.join(self._reasons)} (launch in line {self.line})", facts)
        self.require_extents({**facts, **limits})
        return InferredLaunch(facts, self.line, tuple(self._scope.notes.values()))

    def first_pass(self) -> dict[str, Any]:
        """The facts of the first pass of a loop of which each adds up what the one before left, and of the sum of what it
        leaves; none where they are not known."""
        one = self._again(self._beside, first_pass=True)
        one.is_of_path = True
        try:
            return one.infer().facts
        except UnreadableLaunch as unread:
            return unread.facts

    @property
    def lengths(self) -> set[str]:
        """The host's names of the extents that the kernel gets."""
        named = {name for name, extent in self.own_extents.items() if extent in self.names.base}
        given = {} if self._beside else self._taken
        return named or {name for name, extent in given.items() if extent in self.names.base}

    def of_one_row(self, lengths: set[str]) -> "LaunchInference | None":
        """It where the one number of the host's is the length of a row, and there is one row; None where there are more,
        or where it is that already."""
        first, *others = self.names.base
        rows = {name for name, extent in self._beside.items() if extent == first}
        if len(others) != 1 or len(lengths) != 1 or self.fixed or rows - lengths:
            return None
        one = self.with_sibling_extents(dict.fromkeys(lengths, others[0]))
        one.fixed = {first: {"is": one._rows_allocated(others[0])}}
        return one

    def _rows_allocated(self, length: str) -> int:
        """How many rows of a length the host's memory for the first array has room for; 1 where it does not tell."""
        variable = next((name for name, _ in self.pointers if self.names.find_array(name)), "")
        size = self._known_bytes(variable) if variable else ""
        with suppress(ValueError):
            counts = (
                {expressions.evaluate(size, {length: each}) / (4 * each) for each in (1000, 1237)} if size else set()
            )
            if len(counts) == 1 and (rows := counts.pop()) >= 1 and rows == int(rows):
                return int(rows)
        return 1

    def facts(self, arrays: dict[int, str]) -> dict[str, Any]:
        """Kernel, arguments, threads, grid, shared memory and loop, the arrays as they are given by their places."""
        arguments = self._arguments(arrays)
        facts: dict[str, Any] = dict(zip(LAUNCH_KEYS, (self.kernel, arguments, *self._shape()), strict=True))
        if not facts["shared_bytes"]:
            del facts["shared_bytes"]
        used = set(re.findall(r"\w+", " ".join(map(str, facts.values()))))
        if loop := {name: fact_value(turns) for name, turns in self._scope.loops.values() if name in used}:
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
        node = launch_sites.without_casts(node)
        if node.type == "conditional_expression":  # bias.defined() ? bias.data_ptr<float>() : nullptr
            chosen, other = node.named_children[-2:]
            return self._pointer(chosen) if cuda_ast.node_text(other) in ("nullptr", "NULL", "0") else ("", None)
        called = cuda_ast.field_text(node, "function") if node.type == "call_expression" else ""
        if called.startswith(_CASTS) or called.endswith("raw_pointer_cast"):
            given = cuda_ast.arguments(node)
            return self._pointer(given[0]) if given else ("", None)
        if node.type == "binary_expression" and cuda_ast.field_text(node, "operator") == "+":
            left, right = node.named_children[0], node.named_children[-1]
            name, further = self._pointer(left)
            both = f"({cuda_ast.node_text(further)}) + ({cuda_ast.node_text(right)})"
            return (name, cpp.parse_expression(both) if further is not None else right)
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
        name = cuda_ast.node_text(base) if base.type in ("identifier", "this") else ""
        member = cuda_ast.node_text(node) if name and node.type == "field_expression" else ""
        of = self._pointer_values.get(member or name) if member or base == node else None
        if of is not None:
            return self._pointer(of)
        # d_A.elements is d_A's, and params.a is a.
        return (member if not self.names.find_array(name) and self.names.find_array(member) else name, None)

    @cached_property
    def _pointer_values(self) -> "dict[str, Node]":
        """What pointers of the host's function are made of others, as by `float *sums = scratch + blocks`."""
        found: dict[str, list[Node]] = {}
        for node in cuda_ast.walk(self._launch.function):
            kind = {"init_declarator": ("declarator", "value"), "assignment_expression": ("left", "right")}.get(
                node.type
            )
            target, value = (cuda_ast.field(node, each) for each in kind) if kind else (None, None)
            is_whole = node.type == "init_declarator" or (target is not None and target.type in _WHOLE)
            if target is not None and value is not None and is_whole:
                is_pointer_of = "*" in cuda_ast.node_text(target) or node.type == "assignment_expression"
                name = cuda_ast.node_text(target) if target.type == "field_expression" else declared_name(target)
                found.setdefault(name, []).append(value if is_pointer_of else node)
        kinds = ("binary_expression", "pointer_expression", "identifier")
        made = {name: values[0] for name, values in found.items() if len(values) == 1 and values[0].type in kinds}
        begins = {name: next(iter(re.findall(r"\w+", cuda_ast.node_text(value))), "") for name, value in made.items()}

        def ends(name: str) -> bool:  # pointers that a loop swaps are each made of the other
            for _ in range(len(begins) + 1):
                name = begins.get(name, "")
            return not name

        return {name: value for name, value in made.items() if ends(name)}

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
        return [place for place, (_, declaration) in enumerate(self.parameters) if is_pointer(declaration)]

    def is_constant(self, place: int) -> bool:
        """Whether a kernel only reads what it gets at a place."""
        return "const" in cuda_ast.node_text(self.parameters[place][1]).partition("*")[0].split()

    def only_reads(self, place: int) -> bool:
        """Whether a kernel does not write what it gets at a place, as far as its body tells."""
        return self.is_constant(place) or bool(self._written and self.parameters[place][0] not in self._written)

    def _uses(self, place: int) -> "list[Node]":
        """Where a kernel names what it gets at a place."""
        body, name = cuda_ast.field(self._kernel, "body"), self.parameters[place][0]
        nodes = cuda_ast.walk(body) if body else ()
        return [node for node in nodes if node.type == "identifier" and cuda_ast.node_text(node) == name]

    def reads(self, place: int) -> bool:
        """Whether a kernel may read what it gets at a place: it does more than to assign to its elements."""
        return not all(map(_is_assigned, self._uses(place)))

    def is_null(self, place: int) -> bool:
        """Whether a launch gives no memory at a place."""
        return cuda_ast.node_text(self._launch.arguments[place]) in ("nullptr", "NULL", "0")

    def allocated_bytes(self, variable: str) -> str | int:
        """Bytes that the host allocates for a pointer; empty where it allocates none or their number is unknown."""
        body = cuda_ast.field(self._launch.function, "body")
        for node in cuda_ast.walk(body) if body else ():
            given = cuda_ast.arguments(node) if node.type == "call_expression" else []
            if not given:
                continue
            name, first = cuda_ast.field_text(node, "function").partition("<")[0], cuda_ast.node_text(given[0])
            sizes: list[Node] = []
            if _MADE.fullmatch(name) and node.parent is not None and declared_name(node.parent) == variable:
                count = self.names.count_of_array(self.names.find_array(first)) if name.endswith("_like") else ""
                shape = next((each for each in cuda_ast.walk(node) if each.type == "initializer_list"), None)
                sizes = shape.named_children if shape and not count else []
                if count or not sizes:
                    return f"4 * {count}" if count else ""
            elif name in _ALLOCATIONS and re.search(rf"&\s*{re.escape(variable)}$", first):
                sizes = given[1:2] or given
            elif name.startswith("cudaMemset") and first == variable:
                sizes = given[2:3]
            if sizes:
                try:
                    texts = [self._scope.reader.whole(each).text for each in sizes]
                except UnreadableExpression as reason:
                    return self._fail(str(reason), reason.line)
                made = _MADE.fullmatch(name)
                return " * ".join(["4", *(f"({text})" for text in texts)]) if made else fact_value(texts[0])
        return ""

    def _known_bytes(self, variable: str) -> str | int:
        """The same for what can do without it: that it cannot be read is no reason against the launch."""
        reasons = list(self._reasons)
        size = self.allocated_bytes(variable)
        self._reasons[:] = reasons
        return size

    def fills(self) -> "Iterator[tuple[int, str, float | None]]":
        """Each place before this launch where the host fills memory: the place, the variable, and the value, which is
        FLOAT_MIN for the least number; None where it is not known."""
        body = cuda_ast.field(self._launch.function, "body")
        held: dict[str, set[float | None]] = {}
        for node in cuda_ast.walk(body) if body else ():
            if node.start_byte > self._launch.node.start_byte:
                return
            text = "".join(cuda_ast.node_text(node).split())
            if node.type == "call_expression" and (copied := _FILL.match(text)):
                if "cudaMemset" in copied[0]:
                    yield node.start_byte, copied[1], 0
                elif "HostToDevice" in text or "cudaMemcpyDefault" in text:
                    values = held.get(copied[2], {None})
                    yield node.start_byte, copied[1], next(iter(values)) if len(values) == 1 else None
            elif node.type == "call_expression" and (filled := _HOST_FILL.match(text)):
                held.setdefault(filled[1], set()).add(_filled_with(filled[2] or filled[3]))
            elif node.type in ("assignment_expression", "init_declarator"):
                right = "".join(cuda_ast.field_text(node, "right" if node.type[0] == "a" else "value").split())
                name = next(iter(re.findall(r"\w+", cuda_ast.field_text(node, "left") or declared_name(node))), "")
                if (_MADE_AS if node.type == "init_declarator" else _SET).match(text):
                    yield node.start_byte, name, _filled_with(right)
                if not _HOST_MEMORY.match(right):
                    held.setdefault(name, set()).add(_filled_with(right))

    def _fills_output(self) -> bool:
        """Whether the host gives its output a value before the launch, which the kernel may add to; so of a factor beta,
        which the output is multiplied with."""
        added = launches.ZEROS in self._arrays_found.values()
        if not added and any(self.names.taken_number(name) == 0 for name, _ in self.parameters):
            self._scope.notes["beta"] = f"beta for 0, {self.names.output} for zeros"
            return True
        given = [place for place, array in self._arrays_found.items() if array == self.names.output]
        outputs = {self.pointers[place][0] for place in given}
        lines = [name for _, name, _ in self.fills() if name in outputs]
        adds = all((self._is_of_caller(place) or self._is_vector(place)) and self._uses(place) for place in given)
        if lines:
            self._scope.notes[f"filled {lines[0]}"] = f"{lines[0]}, which the host fills before, for zeros"
            return True
        # Of a caller's array where each thread has its own value, what lies there before is the kernel's to set.
        of_caller = bool(given) and self._is_of_caller(given[0])
        if given and adds and all(_is_added_to(node, of_caller) for place in given for node in self._uses(place)):
            name = self.pointers[given[0]][0]
            whose = "its caller gives" if of_caller else "is a vector of the host's"
            self._scope.notes[f"added to {name}"] = f"{name}, which {whose} and the kernel adds to, for zeros"
            return True
        return False

    def _is_vector(self, place: int) -> bool:
        """Whether a launch gives the memory of an object, which sets its elements as it is made."""
        given = cuda_ast.node_text(self._launch.arguments[place])
        return bool(re.search(r"\.data\(\)|raw_pointer_cast\(", given))

    def _is_of_caller(self, place: int) -> bool:
        """Whether the host's function gets what it gives at a place from callers, each of which fills it first or is in
        another file."""
        variable, taken = self.pointers[place][0], [name for name, _ in self._host]
        if variable not in taken:
            return False
        for arguments, around, _ in launch_sites.calls(self._launch.function, self._root):
            before = (around.text or b"")[: arguments[0].start_byte - around.start_byte].decode()
            given = arguments[taken.index(variable)] if len(arguments) == len(taken) else around
            name = re.escape(next(iter(re.findall(r"\w+", cuda_ast.node_text(given))), ""))
            if not re.search(rf"cudaMem(?:set|cpy)\w*\s*\(\s*{name}\b|device_vector\s*<[^>]*>\s*{name}\b", before):
                return False
        return True

    def _extent_parameters(self) -> dict[str, str]:
        """Names that the kernel gets which are an extent's, or whose parameter's name is."""
        pairs = zip(self.parameters, self._launch.arguments, strict=False)
        numbers = [(name, declared, node) for (name, declared), node in pairs if not is_pointer(declared)]
        among = [*self._among, *(name for name, _, _ in numbers)]
        given = {name: cuda_ast.node_text(node) for name, _, node in numbers if node.type == "identifier"}
        taken = {}
        for parameter, name in given.items():
            # `M` may be of rows where the kernel calls it `input_rows`: the longer name tells more.
            called = sorted((name, parameter), key=len, reverse=True)
            if extent := next(filter(None, (self.names.find_extent(each, among) for each in called)), ""):
                taken[name] = extent
        taken |= {given[parameter]: extent for parameter, extent in self._by_index.items() if parameter in given}
        taken |= {name: "1" for name in given.values() if self.names.is_further_batch(name, taken)}
        by_extent = {
            extent: name for parameter, name in given.items() if (extent := self.names.find_extent(parameter, among))
        }
        if self.names.is_product and set(by_extent) == set(self.names.base) and len({*by_extent.values()}) == 1:
            taken |= dict.fromkeys(by_extent.values(), self.names.base[0])  # one number for all three
            self.is_square = True
        sides = [(declared, node) for name, declared, node in numbers if self.names.taken_number(name) is None]
        if (self.names.is_product or len(self.names.base) == 1) and len(sides) == 1:
            # A kernel that gets one number is for square matrices, or for as many values.
            declared, node = sides[0]
            name = cuda_ast.node_text(node)
            if re.fullmatch(r"\w+(?:(?:\.|->)\w+)?", name) and cpp.is_whole(cuda_ast.field_text(declared, "type")):
                taken[name] = taken.get(name) or self.names.base[0]
                self.is_square = self.names.is_product
        return taken

    @cached_property
    def _by_index(self) -> dict[str, str]:
        """The kernel's extents of matrices by how it indexes them, whatever they are called: what rows of `a` are as long
        as is k, those of `b` and `c` n; in a problem of rows, of one matrix, columns; W of the one image that a kernel with
        two numbers gets. Empty where that is not told."""
        numbers = [name for name, declaration in self.parameters if not is_pointer(declaration)]
        image = {"H", "W"} <= set(self.names.base)
        if image and len(numbers) == 3:  # one of them is of the kernel
            numbers = [name for name in numbers if self.names.find_extent(name, numbers) != "K"]
        image &= len(numbers) == 2
        body = cuda_ast.field_text(self._kernel, "body")
        if len(numbers) > len(self.names.base):  # factors and sizes of tiles are among them
            named = [name for name in numbers if self.names.find_extent(name, numbers)]
            used = [name for name in numbers if self._names_in_code(name)]
            numbers = used if len(named) < len(self.names.base) == len(used) else named
        if not image and (not self.names.has_matrices or len(self.names.base) != len(self.names.arrays)):
            return {}
        pointers = {array: self.parameters[place][0] for place, array in self._roles().items() if array}
        pitches: list[set[str]] = []
        for array in self.names.arrays:
            name = re.escape(pointers.get(array, ""))
            indices = re.findall(rf"\b{name}\s*(?:\[([^\]]*)\]|\+([^;,\[]*))", body) if name else []
            pitches.append({word for word in re.findall(_FACTOR, str(indices)) if word in numbers})
        if len(self.names.base) == 2 or image:
            order = ["H", "W"] if image else self.names.base
            # An index may be computed before it is used.
            columns = set().union(*pitches) or {one for one in re.findall(_FACTOR, body) if one in numbers}
            rest = [name for name in numbers if name not in columns]
            return dict(zip((rest[0], columns.pop()), order, strict=True)) if len(columns) == len(rest) == 1 else {}
        inner, *outers = (found.copy().pop() if len(found) == 1 else "" for found in pitches)
        outer = set(outers) - {""}
        if not inner or len(outer) != 1 or inner in outer or len(numbers) != 3:
            return {}
        rows = next(name for name in numbers if name not in {inner, *outer})
        return dict(zip((rows, outer.pop(), inner), self.names.base, strict=True))

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
        return [fact_value(value.text) for value in made.values] or [1]

    def _number(self, node: "Node") -> str | int:
        try:
            return fact_value(self._scope.reader.whole(node).text)
        except UnreadableExpression as reason:
            return self._fail(str(reason), reason.line)

    def _arguments(self, arrays: dict[int, str]) -> list[str | int | float]:
        given, takes = self._launch.arguments, self.parameters
        if len(given) != len(takes):
            words = f"{self._launch.plain} takes {len(takes)} arguments, and the launch gives {len(given)}"
            self._fail(words, self._launch.line)
            return [UNKNOWN]
        made: list[str | int | float] = []
        numbers = (node for (_, declared), node in zip(takes, given, strict=True) if not is_pointer(declared))
        names = {cuda_ast.node_text(node) for node in numbers if node.type == "identifier"}
        twins = {name for name in names if name.swapcase() in names and self.names.find_extent(name)}
        for name in sorted(twins & set(map(str.upper, twins))):
            both = f"`{name}` and `{name.swapcase()}` are both {self.names.find_extent(name)} by their names"
            self._fail(both, self._launch.line)
        for place, ((name, declaration), node) in enumerate(zip(takes, given, strict=True)):
            kind = cuda_ast.field_text(declaration, "type")
            if is_pointer(declaration):
                made.append(arrays[place])
            elif cuda_ast.node_text(node) in twins:
                made.append(UNKNOWN)
            elif cpp.is_fraction(kind) or self.names.taken_number(name) is not None:
                made.append(self._fraction(name, node))
            elif not cpp.is_whole(self._element(kind)) and kind not in template_parameters(self._kernel):
                words = f"`{name}` is of type {kind}, and a kernel gets pointers and numbers"
                made.append(self._fail(words, cuda_ast.line(declaration)))
            else:
                made.append(self._extent(name, node))
        return made

    def _element(self, kind: str) -> str:
        """The type of values by its name in the file, which may be another's alias or a template's parameter; of the
        latter that of the output."""
        taken = template_parameters(self._launch.function).get(kind)
        if kind in _SCALARS or (taken and taken.is_type):
            return C_TYPES[self.names.dtypes[self.names.output]][0]
        return without_alias(kind, cuda_ast.node_text(self._root))

    def _host_type(self, variable: str) -> str:
        """The type of values that a pointer of the host's points to, by its declaration; empty without one."""
        for around in (self._launch.function, self._root):
            for node in cuda_ast.walk(around):
                if node.type in ("declaration", "parameter_declaration") and any(
                    declared_name(each) == variable for each in node.children_by_field_name("declarator")
                ):
                    written = cuda_ast.field_text(node, "type")
                    held = re.search(r"vector<\s*([\w ]+?)\s*>", written)
                    kind = self._element(held[1] if held else written)
                    return kind if element_type(kind) else ""
        return ""

    def _fraction(self, parameter: str, node: "Node") -> float | str:
        """The number of a float: one that the source gives, else of a factor that the problem has not."""
        written = cuda_ast.node_text(node)
        factors = map(self.names.taken_number, (written, written.rpartition(".")[2], parameter))
        taken = next((factor for factor in factors if factor is not None), None)
        given = None
        with suppress(UnreadableExpression, ValueError):
            value = self._scope.reader.value(node)
            given = float(expressions.fraction(value.text)) if value.constant else None
        if taken is not None:
            if given != taken:
                self._scope.notes[parameter] = f"{parameter} for {taken:g}"
            return taken
        if given is not None:
            return given
        return self._fail(f"the number given for `{parameter}` is not known", cuda_ast.line(node))

    def _extent(self, parameter: str, node: "Node") -> str | int:
        extent = self.names.find_extent(parameter, [name for name, _ in self.parameters])
        value = self._number(node)
        further = self._taken.get(cuda_ast.node_text(node)) == "1"
        if isinstance(value, int) and extent and not further and extent not in self._beside.values():
            self._scope.notes[parameter] = f"the {value} given for {parameter} for {extent}"
            return extent
        return value

    def _arrays(self) -> dict[int, str]:
        """The arrays by the place of the kernel's pointers."""
        output = self.names.output
        if len(self._launch.arguments) != len(self.parameters):
            return {}
        absent = [place for place in self.pointer_places if self.is_null(place)]
        places = [place for place in self.pointer_places if place not in absent]
        names, const = self._roles(), {place: self.is_constant(place) for place in places}
        for place in places:
            if not self.pointers[place][0]:
                node = self._launch.arguments[place]
                self._fail(f"`{cuda_ast.node_text(node)}` is no array, nor one and a number", cuda_ast.line(node))
        self._rewrites = len(places) == 1 and names[places[0]] == output and bool(self.names.rewritten)
        known = [*names.values(), *([self.names.rewritten] if self._rewrites else [])]
        missing = [array for array in self.names.arrays if array not in known]
        unnamed = [place for place in places if not names[place]]
        line = self._launch.line
        self._check_sums(names)
        for place in places:
            name, declaration = self.parameters[place]
            if not self.check_type(place, names[place]):
                names[place] = names[place] or UNKNOWN
            elif not names[place]:
                names[place] = self._fail(
                    f"`{cuda_ast.node_text(self._launch.arguments[place])}` is none of {units.join_all(self.names.arrays)} by its name",
                    line,
                )
            elif names[place] != launches.ZEROS and list(names.values()).count(names[place]) > 1:
                self._fail(f"two pointers are {names[place]} by their names", line)
            elif names[place] == output and const[place]:
                self._fail(f"`{name}` is {output} by its name, and const", cuda_ast.line(declaration))
        weights = self.names.arrays[1]
        unused = [place for place in places if names[place] == weights and not self._uses(place)]
        reads = [name for name in self._symbols if self._names_in_code(name)]
        if reads and unused:
            names = {place: name for place, name in names.items() if place not in unused}
            absent += unused
        elif reads and weights in names.values():
            self._fail(f"the kernel reads `{reads[0]}` in constant memory, which only the host fills", line)
        if (missing == [weights] and not unnamed) or (reads and unused):
            self._constant_memory()
        elif missing and not unnamed:
            self._fail(f"no pointer is {' or '.join(missing)}", line)
        self._arrays_found = dict(names)
        self._scope.notes.update({f"place {place}": words for place, words in self._by_place.items()})
        names = {
            place: UNKNOWN if name in ("", UNKNOWN) else name + self.offset(place) for place, name in names.items()
        }
        return names | dict.fromkeys(absent, launches.NULL)

    def _with_sum(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts, of a launch that leaves a value of each block as steps that end with the sum of these."""
        if not self._leaves_partial_sums or facts["grid"] in ([1], UNKNOWN):
            return facts
        output = self.names.output
        place = next(place for place, name in self._arrays_found.items() if name == output)
        size = cpp.BYTES.get(self._host_type(self.pointers[place][0]), 4)
        return sum_of_blocks({key: value for key, value in facts.items() if key != "clear"}, output, size)

    def _with_copies(self, facts: dict[str, Any]) -> dict[str, Any]:
        """The facts, inputs that the kernel writes copied to memory of its own before each launch."""
        output, scratch = self.names.output, dict(facts.get("scratch", {}))
        fills: list[dict[str, Any]] = []
        step = {key: facts[key] for key in (*LAUNCH_KEYS, "loop") if key in facts}
        steps: list[dict[str, Any]] = [dict(each) for each in facts.get("steps") or [step]]
        rest = {key: value for key, value in facts.items() if key not in (*LAUNCH_KEYS, "loop", "steps", "scratch")}
        if self._rewrites:
            name = self.names.rewritten
            self._scope.notes[f"copy of {name}"] = f"a copy of {name}, which the kernel rewrites, for {output}"
            fills.append({"fill": {output: name}})
            rest.pop("clear", None)
        zeroed = {variable for _, variable, _ in self.fills()}
        for place, name in self._arrays_found.items():
            longer = self._longer_bytes(name, place, facts) if name in self.names.arrays else ""
            overwritten = name in self.names.arrays and self.parameters[place][0] in self._written
            if name == output or not (longer or overwritten):
                continue
            held, variable = f"{name}_memory", self.pointers[place][0]
            usual = f"{cpp.BYTES.get(self._host_type(variable), 4)} * {self.names.count_of_array(name)}"
            scratch[held] = longer or usual
            fills += [{"clear": held}] if longer and variable in zeroed else []
            fills.append({"fill": {held: name}})
            for each in steps:
                given = each.get("arguments", ())
                words = [re.sub(rf"^{name}\b", held, one) if isinstance(one, str) else one for one in given]
                each |= {"arguments": words} if words else {}
            why = "which the kernel overwrites" if overwritten else f"of which the host allocates {longer} bytes"
            self._scope.notes[f"copy of {name}"] = f"a copy made before each launch for {name}, {why}"
        made = {"steps": [*fills, *steps], **rest}
        return (made | ({"scratch": scratch} if scratch else {})) if fills else facts

    def _longer_bytes(self, array: str, place: int, facts: dict[str, Any]) -> str | int:
        """Bytes of the host's memory for an array where they are more than it has, as of whole tiles; else empty. Raises
        UnreadableLaunch where there are several values for each, as of an image of three colours."""
        variable = self.pointers[place][0]
        size, count = self._known_bytes(variable), self.names.count_of_array(array)
        kind, limits = cpp.BYTES.get(self._host_type(variable)), facts.get("limits", {})
        if not size or count == "1":
            return ""
        ratios: list[Fraction] = []
        with suppress(ValueError):
            for sample in (1000, 1024, 1237):
                fixed = {name: limits[name]["is"] for name in self.names.base if "is" in limits.get(name, {})}
                one = next((value for name, value in fixed.items() if name in limits.get("equal", ())), sample)
                known = dict.fromkeys(self.names.base, sample) | dict.fromkeys(limits.get("equal", ()), one) | fixed
                usual = (kind or 4) * expressions.evaluate(count, known)
                ratios.append(Fraction(expressions.evaluate(size, known), usual))
        if kind and len(ratios) > 2 and len({*ratios}) == 1 and ratios[0] > 1 and ratios[0].denominator == 1:
            words = f"`{variable}` holds {ratios[0]} values for each of {array}: the kernel computes something else"
            raise UnreadableLaunch(f"{words} (launch in line {self.line})", is_final=True)
        return size if any(ratio > 1 for ratio in ratios) else ""

    def _host_adds_up(self, variable: str) -> bool:
        """Whether the host copies a device's array back and adds up what it copied, there or in a function of the file, or adds
        up managed memory."""
        text = cuda_ast.node_text(self._root)
        copied = re.findall(rf"cudaMemcpy(?:Async)?\s*\(\s*&?(\w+)[^,;]*,\s*{re.escape(variable)}\b", text)
        names = set(copied)
        for node in cuda_ast.walk(self._root):
            own = declared_name(cuda_ast.field(node, "declarator")) if node.type == "function_definition" else ""
            for given in re.findall(rf"\b{own}\s*\(([^();]*)\)", text) if own else ():
                listed = zip(function_parameters(node), given.split(","), strict=False)
                names |= {name for (name, _), each in listed if each.strip() in copied}
        adds = r"\+=\s*{0}\s*\[|\b\w*(?:accumulate|reduc|sum)\w*\s*\(\s*{0}\b"
        managed = re.search(rf"\bcudaMallocManaged\s*\([^;]*&\s*{re.escape(variable)}\b", text)
        host = cuda_ast.node_text(self._launch.function) if managed else ""
        sums = any(re.search(adds.format(each), text, re.IGNORECASE) for each in names if each)
        return sums or bool(re.search(adds.format(re.escape(variable)), host, re.IGNORECASE))

    def _check_sums(self, names: Mapping[int, str]) -> None:
        """Notice an output of one value that is one for each block; complain where the host does not add them up."""
        place = next((place for place, name in names.items() if name == self.names.output), None)
        if place is None or self.names.count_of_array(self.names.output) != "1":
            return
        if sets_value_of_each_block(self._kernel, self.parameters[place][0]):
            self._leaves_partial_sums = True
            name = self.parameters[place][0]
            if self._scope.is_first_pass or self._host_adds_up(self.pointers[place][0]):
                self._scope.notes["sum"] = (
                    f"the sum of what each block leaves in `{name}`, which the host takes, for {self.names.output}"
                )
            else:
                self._fail(f"`{name}` gets a value of each block, and {self.names.output} has one", self._launch.line)

    def check_type(self, place: int, array: str) -> bool:
        """Whether the kernel's pointer at a place may be that array by its type; complains where not."""
        name, declaration = self.parameters[place]
        written = cuda_ast.field_text(declaration, "type")
        if written == "void" or written in template_parameters(self._kernel) or element_type(self._element(written)):
            return True
        self._fail(f"`{name}` points to {written}, and {array or 'an array'} holds numbers", cuda_ast.line(declaration))
        return False

    @property
    def function_name(self) -> str:
        """The host's function that it stands in."""
        return declared_name(cuda_ast.field(self._launch.function, "declarator"))

    @cached_property
    def device_variables(self) -> set[str]:
        """Variables of the device's that the kernel names, by which it may hand on what it computes."""
        declared = (node for node in self._root.children if node.type == "declaration")
        names = {
            declared_name(cuda_ast.field(node, "declarator"))
            for node in declared
            if "__device__" in cuda_ast.node_text(node)
        }
        return {name for name in names if name and self._names_in_code(name)}

    @cached_property
    def _symbols(self) -> dict[str, int]:
        """The variables in constant memory that the host copies to, and the line of each copy."""
        return {
            cuda_ast.node_text(given[0]).lstrip("&"): cuda_ast.line(node)
            for node in reversed(list(cuda_ast.walk(self._root)))
            if cuda_ast.field_text(node, "function") == "cudaMemcpyToSymbol"
            and len(given := cuda_ast.arguments(node)) in (3, 5)
        }

    def _names_in_code(self, name: str) -> bool:
        """Whether the kernel's body names a variable."""
        return bool(re.search(rf"\b{re.escape(name)}\b", cuda_ast.field_text(self._kernel, "body")))

    def _constant_memory(self) -> None:
        """The variable that w is copied to, where the kernel gets no such pointer, and how many weights it holds."""
        names = set(self._symbols)
        array = next((node for node in cuda_ast.walk(self._root) if constant_array(node) in names), None)
        if len(names) != 1 or array is None:
            words = "no pointer is w, and none is copied to one array in constant memory"
            self._fail(words, self._launch.line)
            return
        nodes = (cuda_ast.field(node, "size") for node in cuda_ast.walk(array) if node.type == "array_declarator")
        sizes = [self._number(size) if size else UNKNOWN for size in nodes]
        held = math.prod(size if isinstance(size, int) else 0 for size in sizes)
        ((name, line),) = self._symbols.items()
        self._copied = {"constant_memory": "::".join([*namespaces(array), name]), "limits": {"weights": held}}
        if not held:
            self._fail(f"how many weights {name} holds is not known", cuda_ast.line(array))
        self._scope.notes[name] = f"{name} (filled in line {line}) for w"

    def _roles(self) -> dict[int, str]:
        """The array of each pointer by its place, empty where nothing tells: by the host's name for it, else the kernel's;
        the output by what the kernel writes; and what is left by its place, where inputs are matrices."""
        output = self.names.output
        places = [p for p in self.pointer_places if p < len(self.pointers) and not self.is_null(p)]
        names = {place: self._array(place) if self.pointers[place][0] else "" for place in places}
        # What the kernel writes is no optional input, as `b` of C = conv(A, B) would be by its name.
        own = {place for place in places if self.parameters[place][0] in self._written and not self.is_constant(place)}
        names |= {place: "" for place in own if names[place] in self.names.optional}
        written = [place for place in places if not self.is_constant(place)]
        if len(written) > 1:
            written = [place for place in written if self.parameters[place][0] in self._written] or written
        others = [place for place in places if place not in written]
        called = [place for place in others if names[place] == output and self.only_reads(place)]
        if len(written) == 1 and called and names[written[0]] and len(places) == len(self.names.arrays):
            # A = B C: what is written is the output, whatever it is called.
            inputs = [array for array in self.names.arrays if array != output]
            names = {written[0]: output, **dict(zip(others, inputs, strict=True))}
            self._by_place |= {p: f"{self.pointers[p][0]} for {array} by what is written" for p, array in names.items()}
        if len(written) == 1 and not names[written[0]]:
            read = [place for place in places if names[place] == output and self.only_reads(place)]
            if len(read) == 1 and len(places) == len(self.names.arrays) + 1:
                # D = A B + C: the product alone is what is asked for.
                names[read[0]] = launches.ZEROS
                self._by_place[read[0]] = f"{self.pointers[read[0]][0]} for zeros, which are added"
            if output not in names.values():
                names[written[0]] = output
        if len(places) == 1 and self.names.rewritten and written and self.reads(places[0]):
            names = {places[0]: output}
        held = self._held if len(places) < len(self.names.arrays) else set()
        missing = [array for array in self.names.arrays if array not in {*names.values(), *held}]
        unnamed = [place for place in places if not names[place] and self.pointers[place][0]]
        if len(missing) == len(unnamed) == 1 and (missing == [output]) <= (not self.is_constant(unnamed[0])):
            names[unnamed[0]] = missing[0]
        elif len(missing) == len(unnamed) and output not in missing and self.names.has_matrices:
            for place, array in zip(unnamed, missing, strict=True):
                names[place] = array
                self._by_place[place] = f"{self.pointers[place][0]} for {array} by its place"
        return names

    def _array(self, place: int) -> str:
        """The array that a pointer is by the host's name for it or the kernel's: the longer one tells more."""
        called = sorted((self.pointers[place][0], self.parameters[place][0]), key=len, reverse=True)
        return next(filter(None, map(self.names.find_array, called)), "")

    @cached_property
    def _written(self) -> set[str]:
        """Names of pointers that the kernel writes through, and of those that these were made of."""
        return launch_sites.written_names(self._kernel, self._root)

    def _template_arguments(self, kernel: str) -> str:
        """A kernel's name, what its template is given in numbers; types that the compiler deduces are those of the
        host's pointers."""
        name, _, given = kernel.partition("<")
        words = [word.strip() for word in given.removesuffix(">").split(",") if word.strip()]
        for parameter in list(template_parameters(self._kernel))[len(words) :]:
            kinds = [cuda_ast.field_text(declaration, "type") for _, declaration in self.parameters]
            pointers = [self.pointers[place][0] for place in self.pointer_places if kinds[place] == parameter]
            if parameter not in kinds:  # a default stands for it, and for those behind it
                break
            words.append(next(filter(None, map(self._host_type, pointers)), self._element(_SCALARS[0])))
        if not words:
            return kernel
        made = []
        for word in words:
            text = self._element(word)
            try:
                node = cpp.parse_expression(text)
                fixed = cpp.is_whole(text) or text in ("true", "false")
                value = fact_value(self._scope.reader.whole(node).text) if node and not fixed else text
            except UnreadableExpression:
                value = text
            if value in template_parameters(self._launch.function):
                value = self._fail(f"nothing tells the template's `{value}`", self._launch.line)
            elif not isinstance(value, int) and value != text:
                asked = f"the template's `{text}` is {value}, and a template is for one number: say it in `kernel`"
                value = self._fail(asked, self._launch.line)
            made.append(str(value))
        return f"{name}<{', '.join(made)}>"

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """What decides whether the host reaches it. Where its kernel is asked for, a choice that no extent decides is
        made."""
        conditions = [*self._scope.conditions, *self._asserted]
        asked = [one for one in conditions if one.statement not in self.settled]
        return tuple(one for one in asked if not (self.is_asked_for and self._is_choice(one)))

    def launches_as(self, other: "LaunchInference") -> bool:
        """Whether another launch is the same but for its stream."""
        shapes = [[*map(cuda_ast.node_text, one._launch.configuration[:3]), "0"][:3] for one in (self, other)]
        given = [list(map(cuda_ast.node_text, one._launch.arguments)) for one in (self, other)]
        return self.kernel == other.kernel and shapes[0] == shapes[1] and given[0] == given[1]

    @cached_property
    def _asserted(self) -> list[Condition]:
        """What the kernel asserts of numbers that it gets, first of all."""
        pairs = zip(self.parameters, self._launch.arguments, strict=False)
        given = {name: node for (name, declared), node in pairs if not is_pointer(declared)}

        def look_up(name: str, line: int) -> Known | None:
            return self._scope.reader.whole(given[name]) if name in given else self._outside.known.get(name)

        reader = cpp.ExpressionReader(look_up)
        reader.least = self._scope.reader.least
        body = cuda_ast.field(self._kernel, "body")
        found = []
        for statement in body.named_children if body else ():
            asserted = first_argument(statement) if ASSERTS.match(cuda_ast.node_text(statement)) else None
            with suppress(UnreadableExpression):
                if asserted is not None and not (truth := reader.truth(asserted)).constant:
                    words, line = cuda_ast.node_text(asserted), cuda_ast.line(statement)
                    found.append(Condition(statement.start_byte, "on", truth, words, line))
        return found

    def _is_choice(self, condition: Condition) -> bool:
        if condition.truth:
            return condition.truth.constant
        choices = {name for name, declared in self._host if self._outside.is_enumeration(declared)}
        named = set(re.findall(r"\w+", condition.words)) - choices
        return condition.branch == "else" or not any(map(self.names.find_extent, named))

    def _check_unconditional(self) -> None:
        """Fail where the launch stands under a condition that cannot be read, or that the facts would not hold."""
        for one in self.conditions:
            if one.truth is None or not (self.is_of_path or one.truth.constant):
                words = "else" if one.branch == "else" else one.words
                self._fail(f"the launch stands under a condition, {words}", one.line)

    def limits(self, facts: dict[str, Any], together: dict[str, Any]) -> dict[str, Any]:
        """The header's limits: of this launch's `facts`, and those of all that compute the result `together`."""
        limits: dict[str, Any] = self._numbers_of_file(facts, together) | self._copied.pop("limits", {})
        words = set(re.findall(r"\w+", f"{facts} {limits}"))
        side = math.isqrt(limits.get("weights", 0))
        if side and not {"K", "C", "M"} & words and side**2 == limits["weights"]:
            limits["K"] = {"is": side}  # one kernel, of which nothing tells how large it is
        limits |= ({"equal": self.names.base} if self.is_square else {}) | self.fixed
        words = set(re.findall(r"\w+", f"{together} {limits}"))
        image = {"C", "M"} if not {"C", "M"} & words else set()  # the host has no channels: there is one of each
        single = [name for name in sorted({self.names.batch, *image}) if name in self.names.base and name not in words]
        pairs = zip(self.parameters, facts["arguments"], strict=False)
        if any(one == UNKNOWN and cpp.is_whole(cuda_ast.field_text(declared, "type")) for (_, declared), one in pairs):
            single = []  # a number that is not known may be one of them
        limits = {name: {"is": 1} for name in single} | limits
        if all(one.truth and one.truth.constant for one in self.conditions):
            for extent in facts["grid"]:  # `n / 256` has no block where n is less
                rounded = re.fullmatch(r"(\w+) // (\d+)", str(extent))
                if rounded and rounded[1] in set(self.names.base) - limits.keys():
                    limits[rounded[1]] = {"at_least": int(rounded[2])}
        # One number of the file's, and none that the kernel gets: it is for square matrices of that size.
        numbers = any(not is_pointer(declaration) for _, declaration in self.parameters)
        if self.names.has_matrices and len(limits) == 1 < len(self.names.base) and not numbers:
            self.is_square = True
            limits["equal"] = self.names.base
        return limits

    def untold(self, facts: dict[str, Any]) -> list[str]:
        """Extents that are nowhere: the kernel's number is another's then, whatever its name is, or it has its own."""
        limits = [cpp.limits_of(one.truth) or {} for one in self._scope.conditions if one.truth]
        settled = {name for each in limits for name, limit in each.items() if "is" in limit}
        return [] if self.is_square else self.names.untold({*re.findall(r"\w+", str(facts)), *settled})

    def require_extents(self, facts: dict[str, Any]) -> None:
        """Raise UnreadableLaunch where an extent is nowhere."""
        if absent := self.untold(facts):
            own: dict[str, Any] = {"limits": {name: {"is": UNKNOWN} for name in absent}}
            another = f": {self.names.without[absent[0]]}" if absent[0] in self.names.without else ""
            raise UnreadableLaunch(
                f"nothing tells the kernel {units.join_all(absent)} (launch in line {self.line}){another}; if it has numbers"
                " of its own for them",
                {"kernel": self.kernel, **own} if self.is_asked_for else own,
            )

    def _numbers_of_file(self, facts: dict[str, Any], together: dict[str, Any]) -> dict[str, Any]:
        """Extents that are a number of the file's: what the kernel has of its own and is not told, or what the host has
        and the launch names nowhere."""
        told = set(re.findall(r"\w+", str(facts["arguments"])))
        named = {*re.findall(r"\w+", str(together)), *(self.names.base if self.is_square else ())}
        body, host = (cuda_ast.field_text(one, "body") for one in (self._kernel, self._launch.function))
        # Of other problems, what it counts to or multiplies with: a tile in shared memory may be called SIZE.
        own = set(re.findall(r"\w+" if self.names.batch else r"\w+(?=\s*\*)|(?<=[*<=])\w+|(?<=[*<=] )\w+", body))
        # The kernel names the number that it gets under another name: it is for that number alone.
        given = own & self._outside.known.keys() & set(map(cuda_ast.node_text, self._launch.arguments))
        given -= {name for name, _ in self.parameters}
        bounds: dict[str, Any] = {}
        of_file = cpp.ExpressionReader(lambda each, line: self._outside.known.get(each))
        known = {*self._outside.known, *self._scope.known} - self._scope.renamed
        for name in sorted(known & {*own, *re.findall(r"\w+", f"{body} {host}")}):
            extent = (name in given and self._taken.get(name)) or self.names.find_extent(name)
            has_own = name in own & self._outside.known.keys() and extent not in {*told, self.names.batch}
            if extent not in self.names.base or (extent in named and not has_own and name not in given):
                continue
            node = cpp.parse_expression(name)
            with suppress(UnreadableExpression):
                value = fact_value((of_file if name in given else self._scope.reader).whole(node).text) if node else ""
                if isinstance(value, int):
                    bounds[extent] = {"is": value}
                    self._scope.notes[name] = f"{name}, {value}, for the one {extent} that it is for"
        return bounds
