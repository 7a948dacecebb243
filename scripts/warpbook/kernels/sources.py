"""A variant's files as text, header and code apart. A problem names the file and line that cannot be read."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from warpbook.kernels import headers

# The docstring of a file whose code does not parse: its header may be sound all the same.
_DOCSTRING = re.compile(r'\s*(?:#[^\n]*\n\s*)*[rR]?("""|\'\'\')(.*?)\1', re.DOTALL)


_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_BOUNDS = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?"
_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\[\s\S])*", re.MULTILINE)
_KERNEL = re.compile(
    rf"(template\s*<[^;{{}}]*>\s*)?(?:\b(?:static|inline|extern)\s+)*"
    rf"(?:\bvoid\s+__global__|__global__\s+{_BOUNDS}(?:(?:static|inline)\s+)*void)\s+{_BOUNDS}(\w+)\s*\("
)
_MANGLED = re.compile(r"_ZN?(\d.*)")
_LENGTH = re.compile(r"\d+")


@dataclass(frozen=True)
class Source:
    """One source file: its header (the first comment, or the docstring), the code after it, and why it cannot be
    used, if so."""

    header: str
    code: str
    problem: str = ""


def text_of(path: Path) -> str:
    """A source file's text. Raises UnicodeDecodeError where it is not UTF-8."""
    return path.read_text(encoding="utf-8-sig")


def read_cuda(path: Path) -> Source:
    """C++, CUDA's or the host's: its first comment is its header where it holds facts, else it is part of the code."""
    text, problem = _decoded(path)
    stripped = text.lstrip()
    if stripped.startswith("/*") and "*/" in stripped:
        header, code = stripped[2:].split("*/", 1)
        if headers.is_header(header):
            return Source(header, code, problem)
    return Source("", text, problem)


def read_facts(path: Path) -> Source:
    """A variant's facts beside its source: a header alone."""
    text, problem = _decoded(path)
    return Source(text, "", problem)


def read_python(path: Path) -> Source:
    """Python source: its docstring is its header. Code that does not parse is kept whole."""
    text, problem = _decoded(path)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # NUL bytes raise ValueError, too deep nesting one of the last two.
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        words = error.msg if isinstance(error, SyntaxError) else str(error) or "too deeply nested"
        opening = _DOCSTRING.match(text)
        return Source(opening[2] if opening else "", text, problem or f"{path.name}{line}: {words}")
    docstring = ast.get_docstring(tree)
    if docstring is None:
        return Source("", text, problem)
    return Source(docstring, "\n".join(text.splitlines()[tree.body[0].end_lineno :]), problem)


def without_comments(code: str) -> str:
    """C++ with its comments and what is quoted blanked, every character in its place."""
    return _NO_CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code)


def kernels(code: str) -> list[str]:
    """Names of the kernels in CUDA C++, without those of templates and macros, in their order there."""
    matches = _KERNEL.finditer(_MACRO.sub("", without_comments(code)))
    return list(dict.fromkeys(match[2] for match in matches if not match[1]))


def plain_name(symbol: str) -> str:
    """A function's name in the source, from the name that the compiler gave it, without its namespaces; as it is where
    it cannot be told."""
    mangled = _MANGLED.match(symbol)
    name, rest = symbol, mangled[1] if mangled else ""
    while length := _LENGTH.match(rest):
        end = length.end() + int(length[0])
        name, rest = rest[length.end() : end], rest[end:] if symbol.startswith("_ZN") else ""
    return name


def symbol_of_variable(name: str) -> str:
    """The name that compilers give to a variable, its namespaces written before it."""
    parts = name.split("::")
    return f"_ZN{''.join(f'{len(part)}{part}' for part in parts)}E" if len(parts) > 1 else name


def symbol_of(kernel: str, symbols: Iterable[str]) -> str | None:
    """The one symbol that a kernel's name in the source, template arguments included, is of; None without just one."""
    known = list(dict.fromkeys(symbols))
    plain = kernel.partition("<")[0].rpartition("::")[2]
    named = [kernel] if kernel in known else [symbol for symbol in known if plain_name(symbol) == plain]
    return named[0] if len(named) == 1 else None


def _decoded(path: Path) -> tuple[str, str]:
    """(text, problem) of a file. The text of one that is not UTF-8 has marks in place of what could not be read, so
    that its header still tells what it is of."""
    try:
        content = path.read_bytes()
    except OSError as error:
        return "", f"{path.name} cannot be read: {error.strerror}"
    try:
        text, problem = content.decode("utf-8-sig"), ""
    except UnicodeDecodeError as error:
        text = content.decode("utf-8-sig", errors="replace")
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"{path.name}, line {line}: byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
    if b"\0" in content and not problem:
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        problem = f"{path.name}, line {line}: a NUL byte; remove it"
    return text.replace("\r\n", "\n").replace("\r", "\n"), problem
