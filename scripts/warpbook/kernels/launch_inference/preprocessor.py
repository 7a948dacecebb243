"""CUDA C++ without what `#if` leaves out: of two branches only the one that is compiled says how a kernel is called."""

import re
from collections.abc import Mapping
from contextlib import suppress

from warpbook.kernels import sources
from warpbook.kernels.launch_inference import cpp_expressions as cpp
from warpbook.kernels.launch_inference.cpp_expressions import Function, Known, UnreadableExpression

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)\b((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
_DEFINED = re.compile(r"\bdefined\s*\(?\s*(\w+)\s*\)?")
_OF_COMPILER = re.compile(r"__CUDA|CUDA|__NV|_?_?GNU|__clang|__cplusplus|_MSC|_?WIN|__linux|__unix|__has_|__x86|NDEBUG")
"""Macros that a compiler or a system defines: whether it does is not known here."""

_BRANCHES = ("if", "ifdef", "ifndef", "elif", "else", "endif")


class _Macros:
    """The macros that are defined at a place of a text, in the order of the text."""

    def __init__(self, defined: Mapping[str, object]):
        self._values: dict[str, str | None] = {name: str(value) for name, value in defined.items()}

    def set(self, directive: str, words: str) -> None:
        found = re.match(r"\s*(\w+)(\(?)\s*(.*)", words)
        if found and directive == "define":
            self._values[found[1]] = None if found[2] else found[3]
        elif found:
            self._values.pop(found[1], None)

    def _look_up(self, name: str, line: int) -> Known | None:
        if _OF_COMPILER.match(name):
            return None
        if name not in self._values:
            return cpp.number(0)
        value = self._values[name]
        body = cpp.parse_expression(value) if value else None
        return Function((), body) if body is not None else None

    def holds(self, directive: str, words: str) -> bool | None:
        """Whether the branch of `#if`, `#ifdef`, `#ifndef` or `#elif` is compiled; None where that is not known."""
        if directive != directive.removesuffix("def"):
            words = f"{'!' if 'n' in directive else ''}defined({words})"
        text = _DEFINED.sub(
            lambda found: found[1] if _OF_COMPILER.match(found[1]) else str(int(found[1] in self._values)), words
        )
        with suppress(UnreadableExpression):
            if (node := cpp.parse_expression(text.replace("\\\n", " "))) is not None:
                value = cpp.ExpressionReader(self._look_up).truth(node)
                return value.text == "1" if value.constant else None
        return None


def active(text: str, defined: Mapping[str, object]) -> str:
    """CUDA C++ with blanks in place of the branches that are not compiled, as far as its own macros and those `defined`
    tell; every line in its place."""
    macros = _Macros(defined)
    branches: list[tuple[bool | None, bool | None]] = []  # (whether this branch is compiled, whether one up to it is)
    kept, end = [], 0
    for found in _DIRECTIVE.finditer(sources.without_comments(text)):
        directive, words = found.groups()
        compiled = all(branch is not False for branch, _ in branches)
        kept += [_kept(text[end : found.start()], compiled)]
        holds: bool | None = True
        if directive in ("if", "ifdef", "ifndef"):
            holds = macros.holds(directive, words) if compiled else False
            branches.append((holds, holds))
        elif directive in ("elif", "else", "endif") and branches:
            _, before = branches.pop()
            holds = directive != "elif" or macros.holds("if", words)
            holds = False if before else None if before is None and holds else holds
            if directive != "endif":
                branches.append(
                    (holds, True if True in (before, holds) else None if None in (before, holds) else False)
                )
        elif directive in ("define", "undef") and compiled:
            macros.set(directive, words)
        kept += [_kept(text[found.start() : found.end()], holds is None or directive not in _BRANCHES)]
        end = found.end()
    return "".join([*kept, text[end:]])


def _kept(text: str, whether: bool) -> str:
    return text if whether else sources.blanked(text)


def missing_macro(text: str) -> str:
    """What to say of a text of which no kernel is compiled."""
    asked = re.findall(r"#\s*ifdef\s+(\w+)|\bdefined\s*\(?\s*(\w+)", sources.without_comments(text))
    names = [name for name in dict.fromkeys(map("".join, asked)) if not _OF_COMPILER.match(name)]
    lines = " or ".join(f"`constants: {{{name}: 1}}`" for name in names)
    remedy = f"say {lines}" if lines else "remove it"
    return f"none of its kernels is compiled: they stand under `#if`, whose condition does not hold; {remedy}"
