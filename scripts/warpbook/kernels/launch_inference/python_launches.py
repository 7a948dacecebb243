"""CUDA C++ that stands as a string in a Python file, and how the file launches it.

What `load_inline` of PyTorch compiles launches itself; a `RawKernel` of CuPy is launched in Python: the function that does is
written in C++, and its launch is read as any other.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.inferred_facts import UnreadableLaunch

COMPILERS = ("RawKernel", "RawModule", "load_inline", "SourceModule")
_NUMBERS = {"int", "int32", "int64", "uint32", "uint64", "c_int", "float32", "float64", "float", "bool_"}
_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Div: "/ (double)", ast.Mod: "%",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip


@dataclass(frozen=True)
class PythonSource:
    """The CUDA C++ of a Python file, with its launch, and further facts."""

    text: str
    facts: dict[str, Any]


def read(code: str, names: HostNames) -> PythonSource | None:
    """The CUDA C++ of a Python file; None where it compiles none. Raises UnreadableLaunch."""
    tree = ast.parse(code)
    strings = {
        target.id: text
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and (text := _text(node.value, {}))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        kind = called_name(node)
        if kind not in COMPILERS or not isinstance(node, ast.Call):
            continue
        keywords = {each.arg: each.value for each in node.keywords}
        place = keywords.get("cuda_sources") or keywords.get("code") or next(iter(node.args), None)
        text = _text(place, strings) if place else ""
        if not text or "__global__" not in text:
            raise UnreadableLaunch(f"line {node.lineno}: the source that {kind} compiles is no text of this file")
        if kind == "load_inline":
            return PythonSource(text, {})
        named = keywords.get("name") or (node.args[1] if len(node.args) > 1 else None)
        kernel = _text(named, strings) if named and kind == "RawKernel" else ""
        kernel = kernel or next(iter(re.findall(r"__global__\s+void\s+(\w+)", text)), "")
        return PythonSource(f"{text}\n{_host_function(tree, node, kernel, names)}\n", {})
    return None


def called_name(node: ast.AST) -> str:
    """The last name of the function that a call calls; empty for other nodes."""
    function = node.func if isinstance(node, ast.Call) else None
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _text(node: ast.expr | None, strings: Mapping[str, str]) -> str:
    """The text of an expression of strings; empty where it is none."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return strings.get(name, "")
        case ast.List(elts=[one]) | ast.Tuple(elts=[one]):
            return _text(one, strings)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, strings) + _text(right, strings)
    return ""


def _host_function(tree: ast.Module, compiled: ast.Call, kernel: str, names: HostNames) -> str:
    """The Python function that launches a RawKernel, as one of C++ that launches it alike."""
    held = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(each is compiled for each in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            called = node.func if isinstance(node, ast.Call) and len(node.args) == 3 else None
            if isinstance(node, ast.Call) and isinstance(called, ast.Name) and called.id in held:
                before = [one for one in [*tree.body, *ast.walk(function)] if isinstance(one, ast.Assign)]
                tuples: dict[str, list[ast.expr]] = {}
                made = [text for one in before if one.lineno < node.lineno for text in _statements(one, tuples)]
                shared = next((each.value for each in node.keywords if each.arg == "shared_mem"), ast.Constant(0))
                grid, block, given = (", ".join(map(_cpp, _items(each, tuples))) for each in node.args)
                taken = (f"{'float *' if names.find_array(one.arg) else 'int '}{one.arg}" for one in function.args.args)
                launch = f"{kernel}<<<dim3({grid}), dim3({block}), {_cpp(shared)}>>>({given});"
                return f"void {function.name}({', '.join(taken)}) {{ {' '.join(made)} {launch} }}"
    raise UnreadableLaunch(f"{kernel or 'its kernel'} is launched in no function as `kernel(grid, block, arguments)`")


def _items(node: ast.expr, tuples: Mapping[str, list[ast.expr]]) -> list[ast.expr]:
    if isinstance(node, ast.Name):
        return tuples.get(node.id, [node])
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]


def _statements(node: ast.Assign, tuples: dict[str, list[ast.expr]]) -> Iterator[str]:
    """What an assignment says in C++: the numbers that names stand for; those of a shape are the array's extents."""
    for target in node.targets:
        names = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        values = [node.value]
        if len(names) > 1 and isinstance(node.value, ast.Attribute):
            values = [ast.Subscript(node.value, ast.Constant(place)) for place in range(len(names))]
        elif isinstance(node.value, ast.Tuple | ast.List):
            values = list(node.value.elts)
            if isinstance(target, ast.Name):
                tuples[target.id] = values
        for name, value in zip(names, values, strict=False):
            with suppress(UnreadableLaunch):
                if isinstance(name, ast.Name):
                    yield f"auto {name.id} = {_cpp(value)};"


def _cpp(node: ast.expr) -> str:
    """An expression in C++. Raises UnreadableLaunch where it is none of numbers."""
    match node:
        case ast.Constant(value=bool() | None as value):
            return {True: "true", False: "false", None: "nullptr"}[value]
        case ast.Constant(value=int() | float()) | ast.Name():
            return ast.unparse(node)
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=array), attr="shape"), slice=ast.Constant(value=int() as place)
        ):
            return f"{array}.size({place})"
        case ast.Attribute(value=ast.Name(id=array), attr="size"):
            return f"{array}.numel()"
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SIGNS:
            return f"({_cpp(left)} {_SIGNS[type(sign)]} {_cpp(right)})"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-({_cpp(operand)})"
        case ast.Call(args=[one]) if called_name(node) in _NUMBERS:
            return _cpp(one)
        case ast.Call(args=arguments) if called_name(node) in ("min", "max", "ceil", "cdiv"):
            return f"{called_name(node)}({', '.join(map(_cpp, arguments))})"
    raise UnreadableLaunch(f"`{ast.unparse(node)}` is no extent, no array and no number known before")
