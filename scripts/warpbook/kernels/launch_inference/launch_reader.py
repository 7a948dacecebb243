"""How a file launches its own kernel, read from its `<<<>>>`: kernel, arguments, threads, grid and shared memory.

Names of the host's function decide which extent of a layer is meant (`layer_names`), and what is made of them is
followed to the launch (`host_scope`). What cannot be followed is not guessed: `UnreadableLaunch` says what, in which
line, and the facts to write instead, as far as they were understood.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpbook.kernels import ece408, sources
from warpbook.kernels.launch_inference import cuda_ast, launch_rewriting, launch_sites, preprocessor, struct_parameters
from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.host_scope import Globals
from warpbook.kernels.launch_inference.inferred_facts import (
    UNKNOWN,
    InferredLaunch,
    UnreadableLaunch,
    yaml_line,
    yaml_lines,
)
from warpbook.kernels.launch_inference.launch_paths import find_paths, infer_paths, without_repeated
from warpbook.kernels.launch_inference.launch_sites import (
    find_launches,
    function_parameters,
    kernel_definitions,
    template_parameters,
    unqualified,
)
from warpbook.kernels.launch_inference.single_launch import LaunchInference
from warpbook.problems import problem
from warpbook.problems.problem import Problem

if TYPE_CHECKING:
    from tree_sitter import Node

_LISTED_MAX = 8
_IN_A_ROW_MAX = 6
"""So many kernels compute one result; more are a program's that computes others too."""


def read(text: str, wanted: "str | Sequence[str]" = "", names: HostNames | None = None) -> InferredLaunch | None:
    """How CUDA C++ launches its kernel, or the one that is `wanted`, or several that are, in their order there; None
    where it launches none. `names` are those of its problem, a convolution's where nothing is said.

    Raises UnreadableLaunch where it does, and how cannot be told; ImportError without tree-sitter.
    """
    text = struct_parameters.flatten(cuda_ast.join_brackets(text))
    if not re.search(r"<<<|\bcudaLaunchKernel\b", sources.without_comments(text)):
        return None
    root = cuda_ast.parse(launch_rewriting.rewrite(text))
    found = list(find_launches(root))
    kernels = kernel_definitions(root)
    if not found:
        raise UnreadableLaunch("its launch stands in a macro or in what could not be parsed")
    named = list(dict.fromkeys(launch.kernel for launch in found))
    several = [wanted] if isinstance(wanted, str) and wanted else list(wanted)
    chosen = [launch for launch in found if not several or launch.plain in map(unqualified, several)]
    for launch in chosen:
        if launch.plain not in kernels:
            raise UnreadableLaunch(
                f"line {launch.line} launches {launch.plain}, which this file does not define{_absent_headers(text)}"
            )
    names = names or HostNames(problem.find("conv"))
    outside = Globals(root, names)
    groups: dict[int, list[LaunchInference]] = {}
    for launch in chosen:
        what = (launch, kernels[launch.plain], outside, root, names)
        choices = launch_sites.choices(launch) if several and len(chosen) == 1 else {}
        made = LaunchInference(*what, is_asked_for=bool(several), choices=choices)
        # What its template is given may stand there as the source says it, or as the numbers that these are.
        if several and not {launch.kernel, launch.plain, made.kernel} & set(several):
            continue
        groups.setdefault(launch.function.start_byte, []).append(made)
    for group in groups.values():
        group[:] = without_repeated(group)
        beside = {name: extent for one in group for name, extent in one.own_extents.items()}
        if len(group) > 1:
            group[:] = [one.with_sibling_extents(beside) for one in group]
    if len(several) > 1:
        together = [
            group for group in groups.values() if {one.plain for one in group} >= {unqualified(one) for one in several}
        ]
        if not together:
            raise UnreadableLaunch(f"no function launches {' and '.join(several)}")
        return infer_paths(find_paths(together[0]))
    paths = {key: find_paths(group) for key, group in groups.items()}
    groups |= {key: list(first.parts) for key, (first, *further) in paths.items() if not further}
    wrappers = [key for key, (first, *_) in paths.items() if first.parts[0].function_name != "main"]
    if len(groups) > 1 == len(wrappers) and all(path.is_whole for path in paths[wrappers[0]]):
        with suppress(UnreadableLaunch):  # else a benchmark beside it may tell
            return infer_paths(paths[wrappers[0]])
    whole = [each for each in paths.values() if all(path.is_whole and not path.is_single for path in each)]
    if whole and len(groups) == 1:
        try:
            return infer_paths(whole[0])
        except UnreadableLaunch as unread:
            ((_, group),) = groups.items()
            first = group[0].first_pass() if len({one.kernel for one in group}) == 1 else {}
            if "scratch" in first and not unread.facts:  # passes behind the first add up what it left
                raise UnreadableLaunch(str(unread), first) from None
            if len(group) <= _IN_A_ROW_MAX or not any(one.has_all_arrays for one in group):
                raise
    if not groups:
        raise UnreadableLaunch(f"{' and '.join(several)} is launched nowhere; launched are {', '.join(named)}")
    if len({one.kernel for group in groups.values() for one in group}) > 1:
        raise UnreadableLaunch(_which(list(groups.values())))
    if whole:
        read = [infer_paths(each) for each in paths.values()]
    else:
        single = [one for group in groups.values() for one in group]
        read = _readable([one for one in single if one.is_complete] or single)
    others = [each for each in read if each.facts != read[0].facts]
    adds_up = any("sum" in step for step in read[0].facts.get("steps", ()))
    if others and not (adds_up and len(groups) == 1):  # else passes behind the first, which add up the rest
        raise UnreadableLaunch(
            f"lines {read[0].line} and {others[0].line} launch {chosen[0].kernel} in different ways", read[0].facts
        )
    return read[0]


def _readable(launches: Sequence[LaunchInference]) -> list[InferredLaunch]:
    """The launches of one kernel that can be read, as beside one that a benchmark is given; raises what the first lacks
    where none can."""
    read: list[InferredLaunch] = []
    unread: list[UnreadableLaunch] = []
    for launch in launches:
        try:
            read.append(infer_paths(find_paths([launch])))
        except UnreadableLaunch as reason:
            unread.append(reason)
    if not read:
        raise unread[0]
    return read


def _which(groups: "list[list[LaunchInference]]") -> str:
    """The question which kernel, or which in a row, computes the result: each answer is a line of YAML."""
    launched = {one.kernel: one.line for group in reversed(groups) for one in reversed(group)}
    lines = [f"{kernel} in line {line}" for kernel, line in sorted(launched.items(), key=lambda one: one[1])]
    answers: list[str] = []
    for group in groups:
        kernels = list(dict.fromkeys(one.kernel for one in group))
        alone = [one for one in group if one.has_all_arrays]
        in_a_row = len(kernels) > 1 and not all(one.is_complete for one in group)
        if together := group[0].given_together(kernels):
            answers += [yaml_lines({"kernel": row}) for row in together]
            continue
        # A pointer to one of several kernels, or launches on the same arrays, are ways to compute one result.
        ways = len({one.line for one in group}) < len(group)
        ways |= len({tuple(name for name, _ in one.pointers if name) for one in group}) == 1
        in_a_row &= not ways
        if in_a_row and (not alone or len(kernels) <= _IN_A_ROW_MAX):
            answers.append(yaml_lines({"kernel": kernels}))
        answers += [yaml_lines({"kernel": one.kernel}) for one in (alone if in_a_row else group)]
    listed = [f"`{answer}`" for answer in dict.fromkeys(answers)]
    more = f" and {len(lines) - _LISTED_MAX} more" if lines[_LISTED_MAX:] else ""
    other = " or another of them" if listed[_LISTED_MAX:] else ""
    few = f"{', '.join(lines[:_LISTED_MAX])}{more}; say which: {' or '.join(listed[:_LISTED_MAX])}{other}"
    return f"several kernels are launched: {few}"


def _absent_headers(code: str) -> str:
    """The headers of a file's own that are not beside it, as the end of a sentence; empty where it has none."""
    absent = re.findall(r'^\s*#\s*include\s*"([^"]+\.(?:cuh?|h|hpp))"', code, re.MULTILINE)
    return f"; copy to it what does, of {', '.join(dict.fromkeys(absent))}" if absent else ""


def missing_launch(stem: str, code: str, of: Problem, kernel: str = "") -> str:
    """What to say of a kernel that its file launches nowhere: YAML to complete, as far as its parameters' names tell, or
    the question which kernel is meant."""
    kernels = kernel_definitions(cuda_ast.parse(code))
    if not kernels and not launch_sites.defines_kernels_by_macro(code):
        return f"it defines no kernel, no function that is `__global__`{_absent_headers(code)}"
    plain = unqualified(kernel) or next(iter(kernels), "")
    if plain not in kernels or (len(kernels) > 1 and not kernel):
        return (
            "the header has no `launch`, nor `threads` and `grid`, and no launcher is beside it "
            f"(facts may stand in {stem}.yaml)"
            + (
                f"; it holds the kernels {', '.join(kernels)}: say which, `kernel: {next(iter(kernels))}`"
                if kernels
                else ""
            )
        )
    facts = _draft(kernel or plain, kernels[plain], code, HostNames(of))
    name = facts.get("kernel") or next(step["kernel"] for step in facts["steps"] if "kernel" in step)
    return f"nothing says how {name} is launched; say it in {stem}.yaml:\n{yaml_lines(facts)}"


def _draft(kernel: str, definition: "Node", code: str, names: HostNames) -> dict[str, Any]:
    """The facts of a kernel's launch as far as a host tells that calls everything as the kernel does."""
    declared = cuda_ast.field(definition, "declarator")
    listed = cuda_ast.field_text(declared, "parameters") if declared else "()"
    takes = {} if "<" in kernel else template_parameters(definition)
    required = [name for name, parameter in takes.items() if not parameter.default]
    given = ", ".join(name for name, _ in function_parameters(definition))
    root = cuda_ast.parse(f"{code}\nvoid launched_by{listed} {{ {kernel}<<<unknown, unknown>>>({given}); }}\n")
    launch = list(find_launches(root))[-1]
    made = LaunchInference(launch, kernel_definitions(root)[unqualified(kernel)], Globals(root, names), root, names)
    try:
        facts = infer_paths(find_paths([made])).facts
    except UnreadableLaunch as unread:
        facts = unread.facts
    template = f"<{', '.join([UNKNOWN] * len(required))}>" if required else ""
    for step in facts.get("steps", [facts]):
        if step.get("kernel"):
            step["kernel"] = kernel + template
    return facts


def _completed(facts: Mapping[str, Any], given: Mapping[str, Any], kernel: "Node") -> InferredLaunch | None:
    """Facts that were read in part of a kernel's launch, where those that are given complete them; None elsewhere."""
    rest = {key: value for key, value in facts.items() if key not in given}
    if rest.get("shared_bytes") == UNKNOWN and "extern" not in cuda_ast.node_text(kernel):
        del rest["shared_bytes"]
    is_complete = {"arguments", "threads", "grid"} <= {*rest, *given} and UNKNOWN not in yaml_lines(rest)
    return InferredLaunch(rest, cuda_ast.line(kernel)) if given and is_complete else None


def read_file(
    path: Path,
    code: str,
    wanted: "str | Sequence[str]",
    names: HostNames,
    included: Sequence[Path],
    defined: Mapping[str, object],
    given: Mapping[str, Any],
) -> InferredLaunch | None:
    """How a file, with what it includes of its own and the macros that are `defined`, launches its own kernel, completed by
    facts that are `given`; None where it launches none. Raises ValueError with what to write instead."""
    if ece408.interface(code):
        return None
    kernels = kernel_definitions(cuda_ast.parse(code))
    asked = wanted if isinstance(wanted, str) else ""
    one = unqualified(asked) if asked else next(iter(kernels), "")
    drafted = one in kernels and (asked or len(kernels) == 1)
    try:
        own = sources.read_text(path)
        text = preprocessor.active("\n".join([*map(sources.read_text, included), own]), defined)
        # What it includes stands behind it, so that its lines keep their numbers.
        made = "\n".join(f"#define {name} {value}" for name, value in defined.items())
        launch = read(f"{text[len(text) - len(own) :]}\n{text[: len(text) - len(own)]}\n{made}", wanted, names)
        if launch or not given or not drafted:
            return launch
        facts = _draft(asked or one, kernels[one], code, names)
        return _completed(facts, given, kernels[one])
    except UnreadableLaunch as unread:
        facts = unread.facts
        if not facts and drafted and not unread.is_final:
            facts = _draft(asked or one, kernels[one], code, names)
        if drafted and (completed := _completed(facts, given, kernels[one])):
            return completed
        macros = dict.fromkeys(re.findall(r"`([A-Z][A-Z\d_]+)` is no extent", str(unread)), UNKNOWN)
        told = f"; macros that the compiler gets go into `constants: {yaml_line(macros)}`" if macros else ""
        instead = (
            f"{told}{',' if str(unread).endswith('for them') else ';'} say it in {path.stem}.yaml:\n{yaml_lines(facts)}"
            if facts
            else told
        )
        raise ValueError(f"{unread}{instead}") from None
    except ImportError:
        remedy = f"install tree-sitter and tree-sitter-cuda, or say in {path.stem}.yaml how its kernel is called"
        raise ValueError(f"it launches its kernel itself, which nothing here can read; {remedy}") from None
