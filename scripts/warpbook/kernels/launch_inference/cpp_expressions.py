"""C++'s expressions over a layer's extents as those of headers: `(W_out + 15) / 16` is `(W_out + 15) // 16`.

Types decide: `/` of two whole numbers rounds down, and a fraction that becomes an int loses what is behind the point.
What is no such expression raises `UnreadableExpression`, with its line.
"""

import ast
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from warpbook.common import expressions
from warpbook.kernels.launch_inference import cuda_ast

if TYPE_CHECKING:
    from tree_sitter import Node

BYTES = {
    "char": 1, "bool": 1, "unsigned char": 1, "uchar": 1, "int8_t": 1, "uint8_t": 1, "half": 2, "__half": 2, "short": 2, "float": 4, "int": 4, "unsigned": 4, "unsigned int": 4,
    "double": 8, "size_t": 8, "long": 8, "long long": 8, "float2": 8, "float4": 16, "int4": 16,
}  # fmt: skip
_WHOLE = re.compile(
    r"\b(?:int|unsigned|long|short|char|bool|\w*size_t|u?int(?:32|64|16|8)_t|\w*(?:dim|idx|index)_t|uint|ulong|u?int64)\b"
)
_FRACTION = re.compile(r"\b(?:float|double)\b")
_ROUNDS_UP = re.compile(
    r"i?(?:c|ceil|up|round_?up)_?div\w*|ceil|div(?:ide)?_?(?:round_?)?(?:up|ceil)|ceiling_?div\w*", re.IGNORECASE
)
"""Names of a division that rounds up, where a header that is not here defines it."""
_POWER_OF_2 = re.compile(r"(?:next|ceil|round_?up|to|upper)_?(?:pow(?:er)?_?(?:of_?)?(?:2|two))\w*", re.IGNORECASE)
"""Names of a function for the least power of 2 that is not below a number, which no single expression of C++ is."""
_NAME_ALONE = re.compile(r"(?<![\w)>\]])\(\s*([A-Za-z_]\w*)\s*\)(?=\s*[-+*&])")
"""A name in parentheses before a sign."""
_NUMBER = re.compile(r"(0[xX][\da-fA-F]+|\d+)[uUlL]*")
_OPERATORS: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.FloorDiv, "%": ast.Mod,
}  # fmt: skip


class UnreadableExpression(Exception):
    """What cannot be read, in words, and its line in the source."""

    def __init__(self, reason: str, line: int):
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True)
class SymbolicValue:
    """A number: its expression in Python's grammar, whether C++ has it as an integer, and whether it is one anyway."""

    tree: ast.expr
    integer: bool = True
    whole: bool = True
    is_truth: bool = False
    """Whether it is 1 or 0."""
    sides: "tuple[SymbolicValue, ...]" = ()
    """Of a truth, the two values of which the first is the greater one."""

    @property
    def text(self) -> str:
        return ast.unparse(self.tree)

    @property
    def constant(self) -> bool:
        """Whether no extent decides it."""
        return not any(
            isinstance(node, ast.Name) and node.id not in expressions.FUNCTIONS for node in ast.walk(self.tree)
        )

    def as_integer(self) -> "SymbolicValue":
        """What an int holds of it."""
        return self if self.whole else SymbolicValue(ast.BinOp(self.tree, ast.FloorDiv(), ast.Constant(1)))


@dataclass(frozen=True)
class Extents:
    """A dim3."""

    values: tuple[SymbolicValue, ...]

    def component(self, name: str) -> SymbolicValue | None:
        """Its x, y or z."""
        place = "xyz".find(name)
        return None if place < 0 else [*self.values, *[number(1)] * 3][place]


@dataclass(frozen=True)
class Function:
    """A macro with parameters, or a function that returns one expression."""

    parameters: tuple[str, ...]
    body: "Node"
    integer: bool | None = None
    """What it returns; None for a macro, which has no type."""
    types: frozenset[str] = frozenset()
    """Names of types that its template takes: each is that of what it is given."""


Known = SymbolicValue | Extents | Function | UnreadableExpression
Lookup = Callable[[str, int], Known | None]


WORD_BITS = 64  # no power of more is a number of C's


def number(value: int) -> SymbolicValue:
    return SymbolicValue(ast.Constant(value))


def extent(name: str) -> SymbolicValue:
    return SymbolicValue(ast.Name(name, ast.Load()))


def symbolic(text: str) -> SymbolicValue:
    """A whole number by its expression in Python's grammar."""
    return SymbolicValue(ast.parse(text, mode="eval").body)


def is_whole(type_name: str) -> bool:
    """Whether a type's name is of whole numbers."""
    return bool(_WHOLE.search(type_name)) and not _FRACTION.search(type_name)


def is_fraction(type_name: str) -> bool:
    return bool(_FRACTION.search(type_name))


def parse_arguments(text: str) -> "list[Node]":
    """The expressions of a list in parentheses, as `(M * N, 1)`: where a declaration's could be parameters too."""
    root = cuda_ast.parse(f"int made = made{text};")
    listed = next((node for node in cuda_ast.walk(root) if node.type == "argument_list"), None)
    return listed.named_children if listed else []


def parse_expression(text: str) -> "Node | None":
    """The one expression of a macro's text; None where it is none."""
    # To the parser `(WIDTH) - 2` is a type and a number.
    text = _NAME_ALONE.sub(lambda found: found[0] if is_whole(found[1]) or is_fraction(found[1]) else found[1], text)
    root = cuda_ast.parse(f"int made = ({text});")
    made = next((node for node in cuda_ast.walk(root) if node.type == "parenthesized_expression"), None)
    return None if made is None or root.has_error else made


class ExpressionReader:
    """Reads expressions whose names `lookup` knows, by name and the line where they stand."""

    def __init__(self, lookup: Lookup):
        self._lookup = lookup
        self._depth = 0
        self.type_of: Callable[[str], str] = lambda kind: kind
        """What a type is by its name in the file."""
        self.types: frozenset[str] = frozenset()
        """Types that are those of what is cast to them."""
        self.least: Callable[[str], int] = lambda name: 0
        """The least value of an extent or a loop's number."""

    def whole(self, node: "Node", line: int = 0) -> SymbolicValue:
        """The value of an expression that an int holds. `line` is where it stands, if not where its node says."""
        return self.value(node, line).as_integer()

    def value(self, node: "Node", line: int = 0) -> SymbolicValue:
        """The value of an expression. Raises Unread."""
        line = line or cuda_ast.line(node)
        self._depth += 1
        try:
            if self._depth > 50:
                raise UnreadableExpression(f"`{_short(node)}` nests too deep", line)
            return _folded(self._read(node, line))
        finally:
            self._depth -= 1

    def extents(self, node: "Node", line: int = 0) -> Extents:
        """A dim3: by name, as dim3(x, y, z), as {x, y, z} or as one number. Raises Unread."""
        line = line or cuda_ast.line(node)
        while node.type == "parenthesized_expression":
            node = node.named_children[0]
        known = self._lookup(cuda_ast.node_text(node), line) if node.type == "identifier" else None
        if isinstance(known, Extents):
            return known
        kind = cuda_ast.node_text(cuda_ast.field(node, "function") or cuda_ast.field(node, "type"))
        listed = cuda_ast.field(node, "arguments") or cuda_ast.field(node, "value")
        if listed is None or kind not in ("dim3", "::dim3"):
            listed = node if node.type in ("initializer_list", "argument_list") else None
        if listed is None:
            return Extents((self.whole(node, line),))
        return Extents(tuple(self.whole(each, line) for each in cuda_ast.items(listed)))

    def _read(self, node: "Node", line: int) -> SymbolicValue:
        match node.type:
            case "parenthesized_expression":
                return self.value(node.named_children[0], line)
            case "number_literal":
                return _literal(cuda_ast.node_text(node), line)
            case "true" | "false":
                return number(int(node.type == "true"))
            case "conditional_expression":
                return self._choice(node, line)
            case "identifier":
                return self._look_up_value(cuda_ast.node_text(node), line)
            case "qualified_identifier":
                return self._look_up_value(cuda_ast.node_text(node).rpartition("::")[2], line)
            case "subscript_expression":
                return self._look_up_value("".join(cuda_ast.node_text(node).split()), line)
            case "field_expression":
                return self._member(node, line)
            case "unary_expression":
                return self._apply_sign(node, line)
            case "binary_expression":
                return self._combine(node, line)
            case "cast_expression":
                inner = cuda_ast.field(node, "value")
                if inner is not None:
                    return self._cast(inner, cuda_ast.field_text(node, "type"), node, line)
            case "sizeof_expression":
                return self._size(node, line)
            case "call_expression":
                return self._call_value(node, line)
        raise UnreadableExpression(f"`{_short(node)}` is no sum, product or quotient of extents and numbers", line)

    def _look_up_value(self, name: str, line: int) -> SymbolicValue:
        known = self._lookup(name, line)
        if isinstance(known, SymbolicValue):
            return known
        if isinstance(known, UnreadableExpression):
            raise known
        if isinstance(known, Function) and not known.parameters and known.integer is None:
            return self.value(known.body, line)
        raise UnreadableExpression(f"`{name}` is no extent of a layer and no number known before", line)

    def _member(self, node: "Node", line: int) -> SymbolicValue:
        base, name = cuda_ast.field(node, "argument"), cuda_ast.field_text(node, "field")
        known = self._lookup(cuda_ast.node_text(base), line)
        if isinstance(known, Extents) and (value := known.component(name)):
            return value
        member = self._lookup(cuda_ast.node_text(node), line)
        if isinstance(known, UnreadableExpression) and not isinstance(member, SymbolicValue):
            raise known
        return self._look_up_value(cuda_ast.node_text(node), line)

    def _apply_sign(self, node: "Node", line: int) -> SymbolicValue:
        sign, inner = cuda_ast.field_text(node, "operator"), cuda_ast.field(node, "argument")
        if sign not in ("-", "+", "!") or inner is None:
            raise UnreadableExpression(f"`{_short(node)}` is no sum, product or quotient of extents and numbers", line)
        value = self.value(inner, line)
        if sign == "!":
            return negation(_truth(value))
        return SymbolicValue(ast.UnaryOp(ast.USub(), value.tree), value.integer, value.whole) if sign == "-" else value

    def _combine(self, node: "Node", line: int) -> SymbolicValue:
        sign = cuda_ast.field_text(node, "operator")
        operands = cuda_ast.field(node, "left"), cuda_ast.field(node, "right")
        if operands[0] is None or operands[1] is None:
            raise UnreadableExpression(f"`{_short(node)}` cannot be read", line)
        left, right = (self.value(each, line) for each in operands if each)
        if sign in ("<<", ">>"):
            power = ast.BinOp(ast.Constant(2), ast.Pow(), right.tree)
            return SymbolicValue(ast.BinOp(left.tree, ast.Mult() if sign == "<<" else ast.FloorDiv(), power))
        if sign in _CONDITIONS:
            return _CONDITIONS[sign](left, right)
        if sign not in _OPERATORS:
            raise UnreadableExpression(f"`{_short(node)}`: `{sign}` is none of {' '.join(_OPERATORS)} << >>", line)
        integer = left.integer and right.integer
        if sign == "*" and "1" in (left.text, right.text):
            factor = left if right.text == "1" else right
            return SymbolicValue(factor.tree, integer, factor.whole)
        if sign == "/" and not integer:
            return SymbolicValue(ast.BinOp(left.tree, ast.Div(), right.tree), integer=False, whole=False)
        return SymbolicValue(ast.BinOp(left.tree, _OPERATORS[sign](), right.tree), integer, left.whole and right.whole)

    def _choice(self, node: "Node", line: int) -> SymbolicValue:
        """`condition ? a : b`."""
        condition, first, second = (cuda_ast.field(node, name) for name in ("condition", "consequence", "alternative"))
        if condition is None or first is None or second is None:
            raise UnreadableExpression(f"`{_short(node)}` cannot be read", line)
        truth = self.truth(condition, line)
        if truth.constant:  # the other may be no number
            return self.value(first if truth.text == "1" else second, line)
        return choose(truth, self.value(first, line), self.value(second, line))

    def truth(self, node: "Node", line: int = 0) -> SymbolicValue:
        """1 where a condition holds, else 0; a number where it is the same for all extents. Raises Unread."""
        made = _folded(_truth(self.value(node, line)))
        least, most = _bounds(made.tree, self.least)
        return number(int(least)) if least == most else made

    def _size(self, node: "Node", line: int) -> SymbolicValue:
        named = cuda_ast.node_text(cuda_ast.field(node, "type") or cuda_ast.field(node, "value")).strip("() ")
        named = self.type_of(named)
        if named not in BYTES:
            raise UnreadableExpression(f"`{_short(node)}`: the size of {named} is not known here", line)
        return number(BYTES[named])

    def _call_value(self, node: "Node", line: int) -> SymbolicValue:
        function, arguments = cuda_ast.field(node, "function"), cuda_ast.arguments(node)
        name = cuda_ast.node_text(function).removeprefix("::").removeprefix("std::")
        kind = name[12:-1] if name.startswith("static_cast<") else name
        if (is_whole(kind) or is_fraction(kind) or kind in self.types) and len(arguments) == 1:
            return self._cast(arguments[0], kind, node, line)
        if function is not None and function.type == "field_expression":
            return self._look_up_value("".join(cuda_ast.node_text(node).split()), line)
        base = name.partition("<")[0]
        known = self._lookup(base, line)
        if isinstance(known, Function) and len(known.parameters) == len(arguments):
            return self._inline(known, [self.value(each, line) for each in arguments], line)
        if known is None and _ROUNDS_UP.fullmatch(base.rpartition("::")[2]) and len(arguments) == 2:
            count, size = (self.value(each, line).as_integer() for each in arguments)
            return symbolic(f"({count.text} + {size.text} - 1) // ({size.text})")
        if base in ("ceil", "ceilf", "floor", "floorf") and len(arguments) == 1:
            value = self.value(arguments[0], line)
            tree = value.as_integer().tree if value.whole or base.startswith("floor") else _call("ceil", value)
            return SymbolicValue(tree, integer=False)
        if known is None and _POWER_OF_2.fullmatch(base.rpartition("::")[2]) and len(arguments) == 1:
            return SymbolicValue(_call("next_power_of_2", self.value(arguments[0], line).as_integer()))
        if base in ("abs", "fabs", "fabsf") and len(arguments) == 1:
            value = self.value(arguments[0], line)
            negative = SymbolicValue(ast.UnaryOp(ast.USub(), value.tree))
            return SymbolicValue(_call("max", value, negative), value.integer, value.whole)
        if base in ("pow", "powf") and len(arguments) == 2:
            both = [self.value(each, line) for each in arguments]
            if all(each.constant and each.whole for each in both):
                power, by = (expressions.evaluate(each.text, {}) for each in both)
                if 0 <= by <= WORD_BITS:
                    return SymbolicValue(ast.Constant(power**by), integer=False)
        if base in ("min", "max", "fmin", "fmax", "fminf", "fmaxf") and len(arguments) == 2:
            both = [self.value(each, line) for each in arguments]
            made = _call(base.strip("f") if base.startswith("f") else base, *both)
            return SymbolicValue(made, all(each.integer for each in both), all(each.whole for each in both))
        raise UnreadableExpression(f"`{_short(node)}` calls what is not known here", line)

    def _cast(self, inner: "Node", type_name: str, node: "Node", line: int) -> SymbolicValue:
        value = self.value(inner, line)
        if is_whole(type_name):
            return value.as_integer()
        if is_fraction(type_name):
            return SymbolicValue(value.tree, integer=False, whole=value.whole)
        if type_name in self.types:
            return value
        raise UnreadableExpression(f"`{_short(node)}`: the type {type_name} is not known here", line)

    def _inline(self, function: Function, values: list[SymbolicValue], line: int) -> SymbolicValue:
        given = dict(zip(function.parameters, values, strict=True))
        if function.integer:
            given = {name: value.as_integer() for name, value in given.items()}
        inner = ExpressionReader(lambda name, where: given.get(name) or self._lookup(name, where))
        inner._depth, inner.types = self._depth, function.types
        value = inner.value(function.body, line)
        return value.as_integer() if function.integer else value


def _literal(text: str, line: int) -> SymbolicValue:
    text = text.replace("'", "")
    if whole := _NUMBER.fullmatch(text):
        octal = re.fullmatch(r"0\d+", whole[1])
        return number(int(whole[1], 8 if octal else 0))
    try:
        exact = Fraction(text.rstrip("fFlL"))
    except ValueError:
        raise UnreadableExpression(f"`{text}` is no number known here", line) from None
    top: ast.expr = ast.Constant(exact.numerator)
    if exact.denominator != 1:
        top = ast.BinOp(top, ast.Div(), ast.Constant(exact.denominator))
    return SymbolicValue(top, integer=False, whole=exact.denominator == 1)


def _is_counted(tree: ast.AST) -> bool:
    """Whether a number is not below 0 whatever its extents are."""
    if isinstance(tree, ast.BinOp):
        left = isinstance(tree.op, ast.Mod) or (not isinstance(tree.op, ast.Sub) and _is_counted(tree.left))
        return left and _is_counted(tree.right)
    if isinstance(tree, ast.Call):
        return (any if ast.unparse(tree.func) == "max" else all)(map(_is_counted, tree.args))
    return isinstance(tree, ast.Name) or (
        isinstance(tree, ast.Constant) and isinstance(tree.value, int) and tree.value >= 0
    )


def _bounds(tree: ast.AST, least: Callable[[str], int]) -> tuple[float, float]:
    """The least and the largest value of an expression, by the least value that each extent can have."""
    match tree:
        case ast.Constant(value=int() as value):
            return value, value
        case ast.Name(id=name):
            return least(name), math.inf
        case ast.BinOp(left=left, op=ast.Mod(), right=ast.Constant(value=int() as size)) if size > 0:
            return 0, size - 1
        case ast.BinOp(left=left, op=sign, right=right):
            (low, high), (lower, upper) = _bounds(left, least), _bounds(right, least)
            if isinstance(sign, ast.Add):
                return low + lower, high + upper
            if isinstance(sign, ast.Sub):
                return low - upper, high - lower
            if isinstance(sign, ast.Mult) and low >= 0 and lower >= 0:
                return low * lower, high * upper if high and upper else 0
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            low, high = _bounds(operand, least)
            return -high, -low
        case ast.Call(func=ast.Name(id="min" | "max" as function), args=arguments):
            lows, highs = zip(*(_bounds(each, least) for each in arguments), strict=True)
            choose_one = min if function == "min" else max
            return choose_one(lows), choose_one(highs)
    return -math.inf, math.inf


def _as_limit(tree: ast.expr) -> tuple[str, str, int] | None:
    """What a truth says of one extent alone, as its name, the limit and its number; None for another."""
    match tree:
        case ast.BinOp(left=ast.Constant(value=1), op=ast.Sub(), right=ast.Call(args=[inner, ast.Constant(value=1)])):
            is_negated = True
        case ast.Call(func=ast.Name(id="min"), args=[inner, ast.Constant(value=1)]):
            is_negated = False
        case _:
            return None
    match inner:
        case ast.BinOp(left=ast.Name(id=name), op=ast.Mod(), right=ast.Constant(value=int(number))) if is_negated:
            return name, "multiple_of", number
        case ast.Call(
            func=ast.Name(id="max"),
            args=[ast.BinOp(op=ast.Sub()) as difference, ast.UnaryOp() | ast.Constant(value=0) as other],
        ):
            is_equality = isinstance(other, ast.UnaryOp)
        case _:
            return None
    match difference.left, difference.right:
        case ast.Name(id=name), ast.Constant(value=int(number)):
            if is_equality:
                return (name, "is", number) if is_negated else None
            return (name, "at_most", number) if is_negated else (name, "at_least", number + 1)
        case ast.Constant(value=int(number)), ast.Name(id=name) if not is_equality:
            return (name, "at_least", number) if is_negated else (name, "at_most", number - 1)
    return None


def limits_of(truth: SymbolicValue) -> dict[str, dict[str, int]] | None:
    """The limits of single extents that say the same as a truth; None where it says more."""
    match truth.tree:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            parts = [replace(truth, tree=left), replace(truth, tree=right)]
        case ast.BinOp(left=ast.Constant(value=1), right=ast.Call(func=ast.Name(id="max"), args=[first, second])):
            parts = [negation(replace(truth, tree=each)) for each in (first, second)]
        case _:
            parts = []
    if not parts:
        single = _as_limit(truth.tree)
        return {single[0]: {single[1]: single[2]}} if single else None
    made: dict[str, dict[str, int]] = {}
    for one in map(limits_of, parts):
        for name, limit in (one or {"": {}}).items():
            if not limit or made.get(name, {}).keys() & limit.keys():
                return None
            made[name] = made.get(name, {}) | limit
    return made


def _truth(value: SymbolicValue) -> SymbolicValue:
    """1 of what is not 0, else 0."""
    if value.constant:
        return number(int(expressions.fraction(value.text) != 0))
    text = value.text if _is_counted(value.tree) else f"max({value.text}, -({value.text}))"
    return value if value.is_truth else _condition(f"min({text if value.whole else f'ceil({text})'}, 1)")


def _condition(text: str, sides: tuple[SymbolicValue, ...] = ()) -> SymbolicValue:
    return replace(symbolic(text), is_truth=True, sides=sides)


def negation(value: SymbolicValue) -> SymbolicValue:
    """1 where a value is 0, else 0."""
    truth = _truth(value)
    if truth.constant:
        return _truth(symbolic(f"1 - ({truth.text})"))
    match truth.tree:
        case ast.BinOp(left=ast.Constant(value=1), op=ast.Sub(), right=negated):
            text = ast.unparse(negated)
        case _:
            text = f"1 - ({truth.text})"
    return _condition(text, value.sides[::-1])


def _exceeds(left: SymbolicValue, right: SymbolicValue) -> SymbolicValue:
    if left.text == "0" and _is_counted(right.tree):
        return number(0)
    plain = right.text == "0" and _is_counted(left.tree)
    more = left if plain else symbolic(f"max({left.text} - ({right.text}), 0)")
    return replace(_truth(replace(more, whole=left.whole and right.whole)), sides=(left, right))


def _differs(left: SymbolicValue, right: SymbolicValue) -> SymbolicValue:
    if left.text == right.text:
        return number(0)
    return _truth(left if right.text == "0" else symbolic(f"({left.text}) - ({right.text})"))


def both(left: SymbolicValue, right: SymbolicValue) -> SymbolicValue:
    """1 where two truths hold, else 0."""
    if left.constant or right.constant:
        one, other = (left, right) if left.constant else (right, left)
        return number(0) if one.text == "0" else other
    return _condition(f"({left.text}) * ({right.text})")


_CONDITIONS: dict[str, Callable[[SymbolicValue, SymbolicValue], SymbolicValue]] = {
    "!=": _differs,
    "==": lambda left, right: negation(_differs(left, right)),
    ">": _exceeds,
    "<": lambda left, right: _exceeds(right, left),
    "<=": lambda left, right: negation(_exceeds(left, right)),
    ">=": lambda left, right: negation(_exceeds(right, left)),
    "&&": lambda left, right: both(_truth(left), _truth(right)),
    "||": lambda left, right: _condition(f"max({_truth(left).text}, {_truth(right).text})"),
}


def choose(truth: SymbolicValue, first: SymbolicValue, second: SymbolicValue) -> SymbolicValue:
    """The first value where a condition is 1, else the second."""
    if truth.constant:
        return first if truth.text == "1" else second
    integer, whole = first.integer and second.integer, first.whole and second.whole
    more, sides = first.tree, [side.text for side in truth.sides]
    tree: ast.expr
    if sides in ([first.text, second.text], [second.text, first.text]):
        tree = _call("max" if sides[0] == first.text else "min", *sorted((first, second), key=lambda one: one.constant))
    elif isinstance(more, ast.BinOp) and isinstance(more.op, ast.Add) and ast.unparse(more.left) == second.text:
        added = truth.tree if ast.unparse(more.right) == "1" else ast.BinOp(truth.tree, ast.Mult(), more.right)
        tree = ast.BinOp(second.tree, ast.Add(), added)
    else:
        parts = ((truth, first), (negation(truth), second))
        chosen = [ast.BinOp(condition.tree, ast.Mult(), value.tree) for condition, value in parts]
        tree = ast.BinOp(chosen[0], ast.Add(), chosen[1])
    return SymbolicValue(tree, integer, whole)


def _call(name: str, *values: SymbolicValue) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), [value.tree for value in values], [])


def _short(node: "Node") -> str:
    text = " ".join(cuda_ast.node_text(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _folded(value: SymbolicValue) -> SymbolicValue:
    """The value, as a number where no extent decides it."""
    if isinstance(value.tree, ast.Constant) or not value.constant:
        return value
    with suppress(ValueError):
        if (number := expressions.evaluate(value.text, {})) >= 0:
            return SymbolicValue(ast.Constant(number), value.integer)
    return value
