"""A variant's files as text, header and code apart. A problem names the file and line that cannot be read."""

import ast
import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpbook.common.files import SUBMISSION_VARIABLE, both_folders, display_path, twin
from warpbook.kernels import headers

# The docstring of a file whose code does not parse: its header may be sound all the same.
_DOCSTRING = re.compile(r'\s*(?:#[^\n]*\n\s*)*[rR]?("""|\'\'\')(.*?)\1', re.DOTALL)

_LIBRARY_TOO = not os.environ.get(SUBMISSION_VARIABLE)
INCLUDES = both_folders("kernels/include")[: 2 if _LIBRARY_TOO else 1]
"""Folders of device code that several kernels include."""

INCLUDE_LINE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">][^\n]*$', re.MULTILINE)
"""An include, its quote or bracket, and what it names."""

_OWN_ENDINGS = (".cu", ".cuh", ".h", ".hpp", ".hxx", ".hh", ".inl", ".inc")
_OF_COURSE = ("gpu-new-forward.h", "matmul.h")
"""Headers that the course's driver supplies, whatever lies beside a file."""

_LINE = re.compile(r'#line (\d+) "([^"]+)"')

# What nobody closes ends with the line, or the file: looked for again and again, its end would take hours to be missed.
_NO_CODE = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|'(?:\\[^\n]|[^'\\\n])'|"(?:\\.|[^"\\\n])*"?""", re.DOTALL)
_MANGLED = re.compile(r"_ZN?(\d.*)")
_LENGTH = re.compile(r"\d+")
_UNNAMED = re.compile(r"(?:\(anonymous namespace\)|<unnamed>)::")


@dataclass(frozen=True)
class Source:
    """One source file: its header (first comment, or docstring), the code after it, and why it cannot be used."""

    header: str
    code: str
    problem: str = ""


def read_text(path: Path) -> str:
    """The text of a C++ file: UTF-8, or else Latin-1, which editors wrote before and compilers take. What a notebook says of a
    cell in its first line, `%%cuda`, is left out."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return re.sub(r"\A%%[^\n]*", "", text.replace("\r\n", "\n").replace("\r", "\n"))


def read_cuda(path: Path) -> Source:
    """C++, CUDA's or the host's: its first comment is its header where it holds facts, else it is part of the code."""
    text, problem = _decode_cpp(path)
    stripped = text.lstrip()
    if stripped.startswith("/*") and "*/" in stripped:
        header, code = stripped[2:].split("*/", 1)
        if headers.is_header(header):
            return Source(header, code, problem)
    return Source("", text, problem)


@dataclass(frozen=True)
class Inlined:
    """CUDA C++ with the project's files that it includes in place of the lines that include them, each once. text: for
    a compiler, with `#line` directives that name each line's own file; code: without these and without headers; files:
    what is included, in order; problem: which `.cu` or `.cuh` in quotes is no file, if so."""

    text: str
    code: str
    files: tuple[Path, ...]
    problem: str


def inline_includes(path: Path, folders: Sequence[Path] = ()) -> Inlined:
    """A source with its includes, from its own folder (or the library's of its problem), `folders`, INCLUDES."""
    searched = list(dict.fromkeys([path.parent, *(twin(path.parent) if _LIBRARY_TOO else []), *folders, *INCLUDES]))
    files: dict[Path, None] = {}
    problems: list[str] = []

    def expand(file: Path, for_compiler: bool, seen: set[Path]) -> str:
        source = _decode_cpp(file)[0]
        text = source if for_compiler else read_cuda(file).code
        plain, parts, end = without_comments(text), [], 0
        for match in INCLUDE_LINE.finditer(text):
            if "include" not in plain[match.start() : match.end()] or match[2] in _OF_COURSE:
                continue  # within a comment
            line = text.count("\n", 0, match.start()) + 1
            found = _own_file(match[2], [file.parent, *searched])
            if found is None:
                if match[1] == '"' and re.fullmatch(r"[\w-][\w.-]*\.cuh?", match[2]):
                    looked = " or ".join(f"{display_path(folder)}/" for folder in searched)
                    problems.append(
                        f'{file.name}, line {line}: #include "{match[2]}": there is no such file in {looked}'
                    )
                continue
            parts.append(text[end : match.start()])
            end = match.end()
            if found in seen:
                parts.append("" if for_compiler else f"// {match[0].strip()}")
            else:
                seen.add(found)
                files[found] = None
                body = expand(found, for_compiler, seen)
                if for_compiler:
                    parts.append(f'#line 1 "{found.name}"\n{body}\n#line {line + 1} "{file.name}"')
                else:
                    parts.append(f"// {match[0].strip()}\n{body.strip()}\n// end of {found.name}")
        return "".join([*parts, text[end:]])

    text = expand(path, True, {path})
    problem = problems[0] if problems else ""
    return Inlined(text, expand(path, False, {path}), tuple(files), problem)


def find_within(folders: Sequence[Path], name: str) -> Path | None:
    """The file of that name in some folders; None where its path or a link leads out of them all."""
    for folder in folders:
        place = folder / name
        if place.is_file() and any(place.resolve().is_relative_to(each.resolve()) for each in folders):
            return place
    return None


def _own_file(named: str, folders: Sequence[Path]) -> Path | None:
    """The file that an include names: where it says, or beside the source by its last name alone. None where it is not
    in one of the folders, for what lies elsewhere is not the source's own."""
    if not named.endswith(_OWN_ENDINGS):
        return None
    return find_within(folders, named) or find_within(folders, named.rpartition("/")[2])


def own_line(text: str, line: int, name: str) -> str:
    """Where a line of the inlined text of `name` stands: `line 7`, or `line 7 of mma.cuh` in an included file."""
    file, number = name, 0
    for each in text.split("\n")[: line - 1]:
        named = _LINE.match(each)
        file, number = (named[2], int(named[1]) - 1) if named else (file, number + 1)
    return f"line {number + 1}" if file == name else f"line {number + 1} of {file}"


def read_facts(path: Path) -> Source:
    """A variant's facts beside its source: a header alone."""
    text, problem = _decode(path)
    return Source(text, "", problem)


def read_python(path: Path) -> Source:
    """Python source: its docstring is its header. Code that does not parse is kept whole."""
    text, problem = _decode(path)
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


def with_imports(launcher: Path, folders: Sequence[Path] = INCLUDES) -> Iterator[Path]:
    """A launcher, and the files of some folders that it imports, directly or not."""
    found: dict[Path, None] = {}
    ahead = [launcher]
    while ahead:
        path = ahead.pop(0)
        if path in found:
            continue
        found[path] = None
        try:
            names = _imported_names(path.read_text(encoding="utf-8-sig"))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue  # which whoever reads it says
        places = (next((p for folder in folders if (p := folder / f"{name}.py").is_file()), None) for name in names)
        ahead += filter(None, places)
    yield from found


@functools.lru_cache(256)
def _imported_names(text: str) -> list[str]:
    """Modules that a text imports. A report asks for those of a launcher many times."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return names + [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]


def without_comments(code: str) -> str:
    """C++ with its comments and what is quoted blanked, every character in its place."""
    return _NO_CODE.sub(lambda match: blanked(match[0]), code)


def blanked(code: str) -> str:
    """As many spaces and line ends."""
    return re.sub(r"[^\n]", " ", code)


def plain_name(kernel: str) -> str:
    """A kernel's name in the source, without type, namespaces, template arguments and parameters, from the name that
    the compiler or a profiler gave it; a mangled name that cannot be read is returned as it is."""
    mangled = _MANGLED.match(kernel)
    if mangled is None:
        words = re.split(r"[<(]", _UNNAMED.sub("", kernel), maxsplit=1)[0].split()
        return words[-1].rpartition("::")[2] if words else ""
    name, rest = kernel, mangled[1]
    while length := _LENGTH.match(rest):
        end = length.end() + int(length[0])
        name, rest = rest[length.end() : end], rest[end:] if kernel.startswith("_ZN") else ""
    return name


def find_variable_symbol(name: str) -> str:
    """The name that compilers give to a variable, its namespaces written before it."""
    parts = name.split("::")
    return f"_ZN{''.join(f'{len(part)}{part}' for part in parts)}E" if len(parts) > 1 else name


def find_symbol(kernel: str, symbols: Iterable[str]) -> str | None:
    """The one symbol that a kernel's name in the source, template arguments included, is of; None without just one."""
    known = list(dict.fromkeys(symbols))
    plain = plain_name(kernel)
    named = [kernel] if kernel in known else [symbol for symbol in known if plain_name(symbol) == plain]
    return named[0] if len(named) == 1 else None


def _decode_cpp(path: Path) -> tuple[str, str]:
    """(text, problem) of a C++ file, whose encoding `read_text` finds."""
    try:
        text = read_text(path)
    except OSError as error:
        return "", f"{path.name} cannot be read: {error.strerror}"
    return text, _nul(path, text)


def _nul(path: Path, text: str) -> str:
    """Where a text has a NUL, which no compiler takes; empty where it has none."""
    line = text.count("\n", 0, text.find("\0")) + 1
    return f"{path.name}, line {line}: a NUL byte; remove it" if "\0" in text else ""


def _decode(path: Path) -> tuple[str, str]:
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
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, problem or _nul(path, text)
