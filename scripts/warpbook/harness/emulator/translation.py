"""CUDA C++ as C++ for the host, by its syntax tree: launches become calls, shared variables references to memory.

What is no change of meaning stays as it is, every line in its place.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from warpbook.common.errors import UserError
from warpbook.common.supervision import VariantFailure
from warpbook.kernels import ece408, sources
from warpbook.kernels.launch_inference import cuda_ast

if TYPE_CHECKING:
    from tree_sitter import Node

# What the emulator's own headers hold already.
PROVIDED = {
    ece408.HEADER, "cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "cuda_device_runtime_api.h", "cuda_fp16.h",
    "cuda_fp16.hpp", "mma.h", "cublas_v2.h", "cublas.h", "cooperative_groups.h", "reduce.h", "device_functions.h",
    "device_launch_parameters.h", "vector_types.h", "vector_functions.h", "driver_types.h", "math_functions.h",
    "sm_60_atomic_functions.h", "cuda_profiler_api.h", "host_defines.h", "math_constants.h", "device_types.h",
}  # fmt: skip
PTX = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "cvt.rna.tf32.f32", "mov.u32", "prefetch.global.L1",
    "prefetch.global.L2", "cp.async.cg.shared.global", "cp.async.commit_group", "cp.async.wait_group",
    "cp.async.wait_all", "fence.proxy.async", "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "wgmma.fence.sync.aligned", "wgmma.commit_group.sync.aligned", "wgmma.wait_group.sync.aligned", "bar.sync",
    "bar.arrive", "fence.proxy.async.shared::cta", "cp.async.bulk.global.shared::cta.bulk_group",
    "cp.async.bulk.commit_group", "cp.async.bulk.wait_group", "cp.async.bulk.wait_group.read", "ex2.approx.ftz.f32",
    "rcp.approx.ftz.f32", "mbarrier.init.shared::cta.b64", "mbarrier.arrive.shared::cta.b64",
    "mbarrier.try_wait.parity.shared::cta.b64", "selp.u32",
}  # fmt: skip
"""Instructions that may stand in the source as PTX: functions of these names, `_` for dots and colons, do the same."""
WGMMA = re.compile(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.f16\.f16")
"""Those of any number of columns: one function, which is told its line."""
PREDICATE = re.compile(r"\.reg\s+\.pred\s+(\w+)\s*;")
"""A register for yes or no, that instructions in braces declare for themselves."""
SPECIAL = {f"%%{name}.{axis}": f"{variable}.{axis}" for name, variable in
           (("tid", "threadIdx"), ("ctaid", "blockIdx"), ("ntid", "blockDim"), ("nctaid", "gridDim"))
           for axis in "xyz"}  # fmt: skip
Edit = tuple[int, int, str]


class _Lacking(Exception):
    """What the emulator lacks: it says nothing about a kernel."""

    def __init__(self, what: str, line: int):
        super().__init__(what)
        self.line = line


def unsupported_construct(what: str, line: int) -> Exception:
    """That the emulator lacks something that stands in a line of the text."""
    return _Lacking(what, line)


def to_host(source: str, name: str, own: dict[str, str]) -> str:
    """The source as C++, its lines where they were. `own` are headers that stand for those of the course by name.

    Raises VariantFailure, unsupported, for what cannot be emulated, UserError for what CUDA would refuse.
    """
    try:
        return _to_host(source, name, own)
    except _Lacking as lacking:
        where = sources.own_line(source, lacking.line, name)
        raise VariantFailure("unsupported", f"beyond the emulator: {lacking}, {where}") from None


def _to_host(source: str, name: str, own: dict[str, str]) -> str:
    source = re.sub(r"\b__align__\b", "alignas  ", source)
    # No macro: the host's own headers have the word in attributes.
    source = re.sub(r"(?<!\()\b__noinline__\b", " " * len("__noinline__"), source)
    root, text = cuda_ast.parse(source), source.encode()
    edits: list[Edit] = []
    for node in cuda_ast.walk(root):
        if node.type == "call_expression" and (config := cuda_ast.child(node, "kernel_call_syntax")):
            edits += _launch(node, config)
        elif node.type == "declaration" and _shared(node):
            edits += _shared_declarations(node, name)
        elif node.type in ("while_statement", "do_statement", "for_statement"):
            edits += _loop(node)
        elif node.type == "preproc_include":
            edits += _include_edits(node, own)
        elif node.type == "gnu_asm_expression":
            edits.append((node.start_byte, node.end_byte, _instructions(node)))
    made = _apply_edits(text, edits).decode()
    plain = sources.without_comments(made)
    for left, what in (("<<<", "this launch"), ("__shared__", "this declaration in shared memory")):
        if left in plain:
            raise unsupported_construct(what, plain.count("\n", 0, plain.index(left)) + 1)
    return made


def _apply_edits(text: bytes, edits: list[Edit]) -> bytes:
    """The text with all edits made; of two that overlap the outer one must leave the inner one's bytes alone."""
    for begin, end, replacement in sorted(edits, key=lambda edit: edit[:2], reverse=True):
        lines = text.count(b"\n", begin, end)
        text = text[:begin] + replacement.encode() + b"\n" * lines + text[end:]
    return text


def _launch(call: "Node", config: "Node") -> Iterator[Edit]:
    """`k<<<g, b>>>(x)` as `emulator::launch({line, g, b}, [&] { k(x); })`."""
    line = config.start_point.row + 1
    for node in cuda_ast.walk(call):
        if node.type in ("update_expression", "assignment_expression"):
            raise unsupported_construct("an argument of a launch that changes what it names", node.start_point.row + 1)
    begin, end = config.children[0], config.children[-1]
    kernel, arguments = call.children[0], call.children[-1]
    name = cuda_ast.node_text(kernel)
    yield kernel.start_byte, begin.end_byte, f"emulator::launch(emulator::Config({line}, "
    yield end.start_byte, end.end_byte, f"), [&] {{ {' '.join(name.split())}"
    yield arguments.end_byte, arguments.end_byte, "; })"


def _loop(loop: "Node") -> Iterator[Edit]:
    """A loop that may wait for another thread: each round lets others run."""
    condition = cuda_ast.field(loop, "condition")
    if loop.type == "for_statement":
        body = cuda_ast.field(loop, "body")
        if condition is None and body is not None and body.type == "compound_statement":
            yield body.start_byte + 1, body.start_byte + 1, " emulator::pause();"
        if condition is None or body is None or cuda_ast.node_text(body) not in (";", "{}", "{ }"):
            return
    if condition is None or any(node.type == "declaration" for node in cuda_ast.walk(condition)):
        return
    yield condition.start_byte, condition.start_byte, "(emulator::pause() && "
    yield condition.end_byte, condition.end_byte, ")"


def _shared(declaration: "Node") -> bool:
    return any(
        child.type == "type_qualifier" and cuda_ast.node_text(child) == "__shared__" for child in declaration.children
    )


def _shared_declarations(declaration: "Node", name: str) -> Iterator[Edit]:
    """Each variable of a declaration in shared memory: its type under a name of its own, and a reference to memory."""
    dynamic = False
    for child in declaration.children:
        word = cuda_ast.node_text(child)
        if child.type == "type_qualifier" and word == "__shared__":
            yield child.start_byte, child.end_byte, "typedef"
        elif child.type == "storage_class_specifier" and word in ("extern", "static"):
            dynamic |= word == "extern"
            yield child.start_byte, child.end_byte, ""
        elif child.type == "alignas_qualifier" or cuda_ast.child(child, "alignas_qualifier"):
            yield child.start_byte, child.end_byte, ""  # memory is aligned for anything
    declarators = declaration.children_by_field_name("declarator")
    behind = []
    for declarator in declarators:
        found = [
            node for node in cuda_ast.walk(declarator) if node.type == "identifier" and not _in_extent(node, declarator)
        ]
        if not found or declarator.type == "init_declarator":
            raise unsupported_construct("this declaration in shared memory", declarator.start_point.row + 1)
        variable, called = found[0], cuda_ast.node_text(found[0])
        kind = f"{called}_of_block"
        yield variable.start_byte, variable.end_byte, kind
        if not dynamic:
            behind.append(f'{kind}& {called} = emulator::shared<{kind}, __COUNTER__>("{called}", __LINE__);')
            continue
        array = variable.parent
        if array is None or array.type != "array_declarator" or array.child_by_field_name("size"):
            raise UserError(f"{name}: the size of dynamic shared memory is the launch's; write {called}[]")
        yield array.children[1].start_byte, array.end_byte, ""
        if _in_function(declaration):
            memory = f'emulator::dynamic_shared("{called}", __LINE__)'
            made = f"{kind}* const {called} = reinterpret_cast<{kind}*>({memory});"
        else:
            made = f"static {kind}*& {called} = reinterpret_cast<{kind}*&>(emulator::dynamic_base);"
        behind.append(made)
    yield declaration.end_byte, declaration.end_byte, " " + " ".join(behind)


def _instructions(assembly: "Node") -> str:
    """PTX as calls, an instruction's operands in their order."""
    line = assembly.start_point.row + 1
    pieces = [
        " " if node.type == "escape_sequence" else cuda_ast.node_text(node)  # the ends of its lines
        for node in cuda_ast.walk(cuda_ast.field(assembly, "assembly_code") or assembly)
        if node.type in ("string_content", "escape_sequence")
    ]
    held = [
        cuda_ast.node_text(cuda_ast.field(node, "value"))
        for node in cuda_ast.walk(assembly)
        if node.type in ("gnu_asm_output_operand", "gnu_asm_input_operand")
    ]
    code = "".join(pieces).strip()
    scoped = code.startswith("{") and code.endswith("}")
    code = code[1:-1] if scoped else code
    predicates = PREDICATE.findall(code) if scoped else []
    named = SPECIAL | {f"%{number}": operand for number, operand in enumerate(held)}
    named |= {predicate: predicate for predicate in predicates}
    calls = []
    for instruction in filter(None, map(str.strip, PREDICATE.sub("", code).split(";"))):
        name, _, operands = instruction.partition(" ")
        # What is written to `_` nobody wants.
        words = [word for word in re.split(r"[\s,{}\[\]]+", operands) if word not in ("", "_")]
        wide = WGMMA.fullmatch(name)
        if not (wide or name in PTX) or not all(word in named or word.isdecimal() for word in words):
            raise unsupported_construct(f"inline PTX ({instruction})", line)
        given = [named.get(word, word) for word in words]
        # `__LINE__` and no number: it is the line in the file that the instruction stands in.
        function = f"wgmma<{wide[1]}>" if wide else re.sub(r"[.:]+", "_", name)
        calls.append(f"emulator::ptx::{function}({', '.join(['__LINE__'] * bool(wide) + given)})")
    if predicates:
        return f"[&] {{ bool {', '.join(predicates)}; {'; '.join(calls)}; }}()"
    return f"({', '.join(calls)})" if calls else "((void)0)"


def device_variables(source: str) -> Iterator[tuple[str, int]]:
    """The variables of a source's own in device memory, outside every namespace and class, by name and line."""
    for node in cuda_ast.parse(source).children:
        said = cuda_ast.node_text(node)
        if node.type != "declaration" or "extern" in said or not re.match(r"[^=;(]*__(device|managed)__", said):
            continue
        for declarator in node.children_by_field_name("declarator"):
            found = [one for one in cuda_ast.walk(declarator) if one.type == "identifier"]
            if found and not any(one.type == "function_declarator" for one in cuda_ast.walk(declarator)):
                yield cuda_ast.node_text(found[0]), found[0].start_point.row + 1


def _in_extent(node: "Node", declarator: "Node") -> bool:
    """Whether an identifier stands between the brackets of an array."""
    while node != declarator and node.parent is not None:
        parent = node.parent
        if parent.type == "array_declarator" and parent.children[0] != node:
            return True
        node = parent
    return False


def _in_function(node: "Node") -> bool:
    while node.parent is not None:
        node = node.parent
        if node.type in ("function_definition", "lambda_expression", "compound_statement"):
            return True
    return False


def _include_edits(node: "Node", own: dict[str, str]) -> Iterator[Edit]:
    path = node.child_by_field_name("path")
    if path is None:
        return
    included = PurePosixPath(cuda_ast.node_text(path).strip('<>"')).name
    if included in own:
        yield path.start_byte, path.end_byte, f'"{own[included]}"'
    elif included in PROVIDED:
        yield node.start_byte, path.end_byte, ""
