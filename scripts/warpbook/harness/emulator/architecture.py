"""What nvcc's two passes see of a source: `__CUDA_ARCH__` is a number where device code is compiled, nothing elsewhere.

The emulator compiles both at once. Each conditional that asks for it is decided by the function that it stands in.
"""

import re
from typing import TYPE_CHECKING

from warpbook.kernels import sources
from warpbook.kernels.launch_inference import cuda_ast

if TYPE_CHECKING:
    from tree_sitter import Node

DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b((?:\\\n|[^\n])*)", re.MULTILINE)
_OF_DEVICE = re.compile(r"\b__(?:global|device|constant|shared|managed)__|#[ \t]*(?:define|error|include|pragma)")
"""What device code alone needs, and what either pass sees."""
_OF_NUMBERS = re.compile(r"[ \t\d()<>=!&|+-]{1,200}")
NEWER = ("sm_90", "sm_100")
"""Of architectures, those from which on a source may choose other code."""


def number(arch: str) -> int:
    """The number of an architecture, 90 of sm_90a; 0 of none."""
    return int(re.sub(r"\D", "", arch) or 0)


def settle(source: str, arch: str) -> str:
    """A source whose conditionals no longer ask for `__CUDA_ARCH__`, each line in its place."""
    feature = f"__CUDA_ARCH_FEAT_{arch.upper().replace('_', '').removesuffix('A')}_ALL"
    if not re.search(rf"\b(__CUDA_ARCH__|{feature})\b", source):
        return source
    if arch.endswith("a"):
        source = _replace_conditions(source, feature, "1")
    return _replace_conditions(source, "__CUDA_ARCH__", str(10 * number(arch)))


def others(source: str, arch: str) -> list[str]:
    """Newer architectures on which a source is another program than on this one, each that differs from those before. What
    is compiled for sm_90a runs on no other."""
    if arch.endswith("a"):
        return []
    seen, found = [settle(source, arch)], []
    for newer in NEWER:
        if number(newer) > number(arch) and (made := settle(source, newer)) not in seen:
            seen.append(made)
            found.append(newer)
    return found


def _replace_conditions(source: str, name: str, value: str) -> str:
    root, plain = cuda_ast.parse(source), sources.without_comments(source)
    edits: list[tuple[int, int, str]] = []
    groups: list[tuple[int, list[re.Match[str]]]] = []
    directives: list[tuple[int, int]] = []

    def close(start: int, members: list["re.Match[str]"], end: int) -> None:
        mentions = [member for member in members if re.search(rf"\b{name}\b", member[0])]
        if mentions:
            seen = _sees_device(root, source, plain[start:end], start)
            edits.extend((m.start(), m.end(), _decide(m, name, value if seen else "")) for m in mentions)

    for directive in DIRECTIVE.finditer(plain):
        directives.append(directive.span())
        if directive[1] in ("if", "ifdef", "ifndef"):
            groups.append((directive.start(), [directive]))
        elif groups and directive[1] == "elif":
            groups[-1][1].append(directive)
        elif groups and directive[1] == "endif":
            close(*groups.pop(), directive.end())
    for mention in re.finditer(rf"\b{name}\b", plain):
        if not any(begin <= mention.start() < end for begin, end in directives):
            function = _function_at(root, source, mention.start())
            if function is None or is_of_device(function):
                edits.append((*mention.span(), value))
    for begin, end, made in sorted(edits, reverse=True):
        source = source[:begin] + made + source[end:]
    return source


def _decide(directive: "re.Match[str]", name: str, value: str) -> str:
    """A directive with a macro's value in it; an empty one stands for no such macro."""
    kind, condition = directive[1], directive[2]
    indent = directive[0].partition("#")[0]
    if kind in ("ifdef", "ifndef"):
        return f"{indent}#if {int((kind == 'ifdef') == bool(value))}" + "\n" * condition.count("\n")
    condition = re.sub(rf"\bdefined\s*(\(\s*{name}\s*\)|\b{name}\b)", str(int(bool(value))), condition)
    condition = re.sub(rf"\b{name}\b", value or "0", condition)
    return f"{indent}#{kind}{_evaluated(condition)}"


def _evaluated(condition: str) -> str:
    """A condition of numbers alone as 1 or 0, so that sources in which all are decided alike are equal; another as it is."""
    if not _OF_NUMBERS.fullmatch(condition) or "<<" in condition or ">>" in condition:
        return condition
    python = re.sub(r"!(?!=)", " not ", condition.replace("&&", " and ").replace("||", " or "))
    try:
        return f" {int(bool(eval(python.strip())))}" + "\n" * condition.count("\n")
    except (SyntaxError, TypeError):
        return condition


def _sees_device(root: "Node", source: str, group: str, start: int) -> bool:
    """Whether a conditional is decided as for device code: by its function, outside of all by what it chooses from."""
    function = _function_at(root, source, start)
    return (
        is_of_device(function)
        if function
        else bool(_OF_DEVICE.search(group) or re.search(r"[<>]", group.partition("\n")[0]))
    )


def _function_at(root: "Node", source: str, place: int) -> "Node | None":
    at = len(source[:place].encode())
    return cuda_ast.enclosing(root.descendant_for_byte_range(at, at + 1), "function_definition")


def is_of_device(node: "Node") -> bool:
    """Whether a node stands in a function that runs on the device alone, or on either side."""
    found: Node | None = node
    while found is not None:
        if found.type == "function_definition" and re.search(r"\b__(global|device)__", head(found)):
            return True
        found = found.parent
    return False


def head(function: "Node") -> str:
    """A function's definition before its body."""
    body = cuda_ast.field(function, "body")
    return (function.text or b"")[: body.start_byte - function.start_byte if body else None].decode()
