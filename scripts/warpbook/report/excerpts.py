"""What a variant changes in the source that it builds on: the lines that matter, highlighted."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.c_like import CudaLexer
from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES, Comment, Keyword, Name, Number

from warpbook.kernels.headers import is_unusual
from warpbook.kernels.launch_inference import cuda_ast, launch_sites
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_LINES = 9  # lines of an excerpt, what is left out not counted
MOST_PAIRS = 100_000  # pairs of equal lines; the project's files have hundreds
GAP = "⋯"
ADDED, REMOVED = "+", "\N{MINUS SIGN}"
_NEAR = 1  # unchanged lines that are shown at an end of a longer stretch of them
_SHOWN = (Comment, Keyword, Name.Builtin, Number)
_LEXERS = {".cu": CudaLexer, ".cpp": CppLexer, ".py": PythonLexer}
_WORD = re.compile(r"\w+")
_NUMBERED = re.compile(r"\b[A-Za-z]\w*_\d+\b|(?:, \d+){2,}")  # such as conv_1_28_50_5, or arguments 1, 28, 50, 5
# Such lines tell no idea of a kernel.
_PLUMBING = re.compile(r'.*\basm\b|"|:|(using|template|namespace|static_assert)\b')
_NO_CODE = re.compile(r"\s*(//.*|#.*|[{}\s;]*)")


@dataclass(frozen=True)
class Line:
    """sign: + for one that the variant adds, − for one that it drops, a space for one that stays, ⋯ for a gap."""

    sign: str
    code: Markup

    @property
    def kind(self) -> str:
        """Its class in the stylesheet."""
        return {ADDED: "added", REMOVED: "removed", GAP: "gap"}.get(self.sign, "kept")


@dataclass(frozen=True)
class Excerpt:
    """A difference in short. file, over: the names of the two files; more: lines changed elsewhere; added, removed:
    lines of code in all. Part of a source in short where `over` is empty; more: its other lines."""

    file: str
    over: str
    lines: tuple[Line, ...]
    more: int
    added: int
    removed: int


@dataclass(frozen=True)
class _Entry:
    """A line of the whole difference. number: of the line in its own file; weight: how much it tells."""

    sign: str
    number: int
    weight: float


def excerpt(
    variant: Variant,
    baseline: Variant,
    most_lines: int = MOST_LINES,
    cases: Sequence[Case] = (),
    launched: Mapping[str, set[str]] | None = None,
) -> Excerpt | None:
    """The stretch of at most `most_lines` lines that tells most of what `variant` changes in `baseline`: in kernels,
    else constants, else launchers. None where nothing differs. cases: what it is read for. Code for extents that they do not
    have tells nothing, and kernels for unusual cases alone are left out where none is. launched: by variant its kernels
    that a GPU ran on the cases; what no such kernel calls is left out."""
    usual = bool(cases) and not any(map(is_unusual, cases))
    ran = launched or {}
    extents = {extent for case in cases for extent in case.extents.values()}
    if variant.language != baseline.language:
        ending = ".py" if variant.language else ".cu"
        own = _kernels_of_python(variant.launcher_code) if variant.language else _kernels_code(variant, usual, ran)
        if (found := _stretch("", own, most_lines, extents)) is None:
            return None
        entries, added, _ = found
        lines = tuple(Line(" ", line.code) for line in _highlight(entries, "", own, ending))
        return Excerpt(f"{variant.name}{ending}", "", lines, added - len(lines), added, 0)
    kernels = variant.cuda_source and baseline.cuda_source
    sides = [(_kernels_code(variant, usual, ran), _kernels_code(baseline, usual, ran), ".cu")] if kernels else []
    if variant.code == baseline.code or variant.defines != baseline.defines:
        sides.append(("\n".join(variant.defines), "\n".join(baseline.defines), ".cu"))
    sides.append((variant.launcher_code, baseline.launcher_code, ".py"))
    for after, before, ending in sides:
        found = _stretch(before, after, most_lines, extents)
        if found:
            entries, added, removed = found
            lines = tuple(_highlight(entries, before, after, ending))
            more = added + removed - sum(entry.sign in (ADDED, REMOVED) for entry in entries)
            return Excerpt(f"{variant.name}{ending}", f"{baseline.name}{ending}", lines, more, added, removed)
    return None


def _kernels_code(variant: Variant, usual: bool, launched: Mapping[str, set[str]]) -> str:
    """Its code as it is compiled for a GPU: without that of a program that launches it, if it stands in one, and without
    functions that no launched kernel calls."""
    code = variant.code if variant.course else cuda_ast.device_code(variant.code)
    ran = launched.get(variant.name, set())
    if not ran and not (usual and variant.header.general):
        return code
    root = cuda_ast.parse(code)
    kernels = launch_sites.kernel_definitions(root)
    functions = {**launch_sites.functions(root), **kernels}
    if ran & kernels.keys():
        outside = cuda_ast.blank(code, functions.values())
        called = {*_WORD.findall(outside)} - kernels.keys() | ran
        while more := {word for name in called & functions.keys() for word in _words(functions[name])} - called:
            called |= more
        idle = functions.keys() - called
    else:
        idle = {variant.header.general.kernel} & kernels.keys() if usual and variant.header.general else set()
    return cuda_ast.blank(code, [_with_linkage(functions[name]) for name in idle])


def _words(function: "Node") -> set[str]:
    return {*_WORD.findall(cuda_ast.node_text(function))}


def _with_linkage(function: "Node") -> "Node":
    """A function with what stands before it: `extern "C"`, or the parameters of a template."""
    node = function
    while node.parent and node.parent.type in ("linkage_specification", "template_declaration"):
        node = node.parent
    return node


def _kernels_of_python(code: str) -> str:
    """The functions that a language compiles, which are those with a decorator; all code where none has one."""
    found = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    lines = code.splitlines()
    kernels = [line for node in found for line in lines[node.decorator_list[0].lineno - 1 : node.end_lineno]]
    return "\n".join(kernels) or code


def _stretch(before: str, after: str, most_lines: int, extents: set[int]) -> tuple[list[_Entry], int, int] | None:
    """The entries that are shown, and how many lines are added and removed in all; None where no code differs."""
    entries = _insert_gaps(list(_difference(before, after, _names_for_others(before + after, extents))))
    if not any(entry.weight for entry in entries):
        return None
    # Gaps are free: they are no lines of code.
    ends = [_end(entries, start, most_lines) for start in range(len(entries))]
    weights = [sum(entry.weight for entry in entries[start:end]) for start, end in enumerate(ends)]
    start = max(range(len(entries)), key=lambda place: (weights[place], -place))
    shown = entries[start : ends[start]]
    while not shown[-1].weight and len(shown) > 1 and shown[-1].sign == GAP:
        shown.pop()
    added, removed = (sum(entry.sign == sign for entry in entries) for sign in (ADDED, REMOVED))
    return shown, added, removed


def _end(entries: list[_Entry], start: int, most_lines: int) -> int:
    """Where a stretch from `start` ends that has as many lines as may be."""
    lines = 0
    for place in range(start, len(entries)):
        lines += entries[place].sign != GAP
        if lines > most_lines:
            return place
    return len(entries)


def _names_for_others(code: str, extents: set[int]) -> set[str]:
    """Names, and lists of arguments, that differ from one for these extents by their numbers alone: row_of_7 beside row_of_5."""
    families: dict[str, list[tuple[str, bool]]] = {}
    for name in {*_NUMBERED.findall(code)}:
        suits = {*map(int, re.findall(r"(?<=[_ ])\d+", name))} <= extents
        families.setdefault(re.sub(r"\d+", "", name), []).append((name, suits))
    return {name for alike in families.values() for name, suits in alike if not suits and any(one for _, one in alike)}


def _difference(before: str, after: str, others: set[str]) -> Iterator[_Entry]:
    """Every line of code of both. Comments, brackets alone and empty lines are left out; indentation is no change. others:
    names that tell nothing."""
    old, new = (lines_of_code(text) for text in (before, after))
    known, kept = set(_WORD.findall(before)), set(_WORD.findall(after))
    sides = [text for _, text in old], [text for _, text in new]
    # Lines that repeat themselves thousands of times, a stranger's, would be compared for hours each with each.
    counts = [Counter(side) for side in sides]
    repetitive = sum(times * counts[1][text] for text, times in counts[0].items()) > MOST_PAIRS
    matcher = SequenceMatcher(None, *sides, autojunk=repetitive)
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if kind == "equal":
            yield from (_Entry(" ", number, 0.0) for number, _ in new[new_start:new_end])
            continue
        for number, text in old[old_start:old_end]:
            yield _Entry(REMOVED, number, _weight(text, kept, others))
        for number, text in new[new_start:new_end]:
            yield _Entry(ADDED, number, _weight(text, known, others, 2))


def _weight(text: str, known: set[str], others: set[str], each: int = 1) -> float:
    """How much a changed line tells: `each` for a word that the other side lacks; almost nothing in plumbing, and with a name
    of `others`."""
    dull = _PLUMBING.match(text) or others & {*_NUMBERED.findall(text)}
    return 0.1 if dull else 1 + each * len(set(_WORD.findall(text)) - known)


def lines_of_code(text: str) -> list[tuple[int, str]]:
    """(number, words) of every line that says something to the compiler."""
    lines = enumerate(text.splitlines())
    return [(number, " ".join(line.split())) for number, line in lines if not _NO_CODE.fullmatch(line)]


def _insert_gaps(entries: list[_Entry]) -> list[_Entry]:
    """Long stretches of unchanged lines as a gap between their ends."""
    shown: list[_Entry] = []
    changed = [place for place, entry in enumerate(entries) if entry.sign != " "]
    near = {place + step for place in changed for step in range(-_NEAR, _NEAR + 1)}
    for place, entry in enumerate(entries):
        if place in near:
            shown.append(entry)
        elif shown and shown[-1].sign != GAP:
            shown.append(_Entry(GAP, -1, 0.0))
    return shown


def _highlight(entries: list[_Entry], before: str, after: str, ending: str) -> Iterator[Line]:
    """Lines without the indentation that all share."""
    texts = {REMOVED: before.splitlines()}
    code = {sign: texts.get(sign, after.splitlines()) for sign in (ADDED, REMOVED, " ")}
    marked = {sign: highlight_lines(before if sign == REMOVED else after, ending) for sign in (ADDED, REMOVED)}
    shown = [code[entry.sign][entry.number] for entry in entries if entry.sign != GAP]
    indent = min(len(line) - len(line.lstrip()) for line in shown)
    for entry in entries:
        if entry.sign == GAP:
            yield Line(GAP, Markup(""))
        else:
            yield Line(entry.sign, Markup(marked.get(entry.sign, marked[ADDED])[entry.number][indent:]))


@cache
def highlight_lines(text: str, ending: str) -> tuple[Markup, ...]:
    """Each line of a source as HTML with Pygments' classes; indentation stays before any span."""
    lines = [""]
    for kind, value in _LEXERS[ending](stripnl=False, ensurenl=False).get_tokens(text):
        shown = _token_class(kind)
        for place, piece in enumerate(value.split("\n")):
            if place:
                lines.append("")
            said = piece.lstrip()
            lines[-1] += piece[: len(piece) - len(said)]
            words = str(escape(said))
            lines[-1] += f'<span class="{shown}">{words}</span>' if shown and said else words
    return tuple(map(Markup, lines))


@cache
def _token_class(kind: Any) -> str:
    """Pygments' class of a kind of token; empty where it is shown as any text."""
    return STANDARD_TYPES[kind] if any(kind in shown for shown in _SHOWN) else ""
