"""Expressions in headers and problems: whole numbers made of extents and constants, as `ceil(m / 16) * ceil(n / 16)`.
Python's own parser reads them; of its language these are allowed: names, whole numbers, + - * / // % **, and ceil, min,
max and next_power_of_2, which is the least power of 2 that is not below its value. Values are exact fractions, so that ceil(a / b) is too. Nothing here runs what a header says."""

import ast
import functools
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction

from warpbook.common.errors import nearest_name

Expression = int | str

LENGTH_MAX = 300
VALUE_MAX = 2**63 - 1
EXPONENT_MAX = 63

_OPERATORS: dict[type[ast.operator], Callable[[Fraction | int, Fraction | int], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: Fraction,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
FUNCTIONS: dict[str, Callable[..., Fraction | int]] = {
    "ceil": math.ceil, "min": min, "max": max,
    "next_power_of_2": lambda value: 1 << max(math.ceil(value) - 1, 0).bit_length(),
}  # fmt: skip


def evaluate(text: Expression, names: Mapping[str, int]) -> int:
    """The value of an expression. Raises ValueError with the reason where it has none."""
    if isinstance(text, int):
        return text
    value = _value(_parse(text), names)
    if value.denominator != 1:
        raise ValueError(f"{value} is no whole number; write ceil(a / b), or a // b to round down")
    return value.numerator


def fraction(text: Expression) -> Fraction:
    """The value of an expression of numbers alone. Raises ValueError with the reason where it has none."""
    return Fraction(text if isinstance(text, int) else _value(_parse(text), {}))


@functools.lru_cache(4096)
def used_names(text: Expression) -> frozenset[str]:
    """The names that an expression uses, those of functions left out. Raises ValueError where it is none."""
    if isinstance(text, int):
        return frozenset()
    nodes = list(ast.walk(_parse(text)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called)


def check(key: str, listed: Sequence[Expression], known: Collection[str]) -> None:
    """Raise ValueError where an expression of a key is none, or names what is not known."""
    for text in listed:
        try:
            unknown = sorted(used_names(text) - set(known))
        except ValueError as error:
            raise ValueError(f"{key}: `{text}`: {error}") from None
        if unknown:
            reason = f"{unknown[0]!r} is no extent or constant: {nearest_name(unknown[0], list(known))}"
            raise ValueError(f"{key}: `{text}`: {reason}")


def values(key: str, listed: Sequence[Expression], names: Mapping[str, int]) -> tuple[int, ...]:
    """Values of a key's expressions. Raises ValueError naming key, expression and reason."""
    known = []
    for text in listed:
        try:
            known.append(evaluate(text, names))
        except ValueError as error:
            raise ValueError(f"{key}: `{text}`: {error}") from None
    return tuple(known)


@functools.lru_cache(4096)
def _parse(text: str) -> ast.expr:
    if len(text) > LENGTH_MAX:
        raise ValueError(f"{len(text)} characters exceed the limit {LENGTH_MAX}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or "too deeply nested"
        hint = "; in a list, one that holds a comma goes between quotes" if text.count("(") != text.count(")") else ""
        raise ValueError(f"no expression: {reason}{hint}") from None


def _value(node: ast.expr, names: Mapping[str, int]) -> Fraction | int:
    """The exact value of a node: a report asks for hundreds of thousands, and nearly all are whole."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            value: Fraction | int = number
        case ast.Constant():
            raise ValueError(f"{node.value!r} is no whole number")
        case ast.Name(id=name):
            if name not in names:
                raise ValueError(f"{name!r} is no extent or constant: {nearest_name(name, list(names))}")
            value = names[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _value(operand, names) * (-1 if isinstance(sign, ast.USub) else 1)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            value = _combine(sign, _value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in FUNCTIONS:
            values = [_value(argument, names) for argument in arguments]
            several = function in ("min", "max")
            if (len(values) == 1) == several or not values:
                raise ValueError(f"{function} takes {'two values or more' if several else 'one value'}")
            value = FUNCTIONS[function](*values)
        case _:
            shown = ast.unparse(node)
            raise ValueError(f"{shown!r} is none of names, whole numbers, + - * / // % ** and {', '.join(FUNCTIONS)}")
    if max(abs(value.numerator), value.denominator) > VALUE_MAX:
        raise ValueError(f"{ast.unparse(node)} goes beyond 64 bits")
    return value


def _combine(sign: ast.operator, left: Fraction | int, right: Fraction | int) -> Fraction | int:
    if isinstance(sign, ast.Div | ast.FloorDiv | ast.Mod) and not right:
        raise ValueError("a division by 0")
    if isinstance(sign, ast.Pow) and (right.denominator != 1 or not 0 <= right.numerator <= EXPONENT_MAX):
        raise ValueError(f"the exponent {right} is none of 0 to {EXPONENT_MAX}")
    return _OPERATORS[type(sign)](left, right)
