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

_COMPILERS = ("RawKernel", "RawModule", "load_inline", "SourceModule")
_NUMBERS = {"int", "int32", "int64", "uint32", "uint64", "c_int", "float32", "float64", "float", "bool_"}
_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Div: "/ (double)", ast.Mod: "%",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
_ENTRIES = ("forward", "solve", "custom_kernel", "run", "launch", "call", "main")


@dataclass(frozen=True)
class PythonSource:
    """The CUDA C++ of a Python file, with its launch, and further facts."""

    text: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """The function of a Python file that computes the result: its name, that of its class if any, and the arrays and extents
    that it takes, in their order."""

    function: str
    owner: str
    arguments: tuple[str, ...]

    def limits(self, names: HostNames) -> dict[str, Any]:
        """The limits of a function that gets some of the extents: the others are 1, or of a product as long as the one."""
        told = [name for name in self.arguments if name not in names.arrays]
        if len(told) == 1 and names.is_product:
            return {"equal": names.base}
        return {name: {"is": 1} for name in names.untold(told)} if told else {}


def usual_facts(code: str) -> dict[str, Any]:
    """The facts of a Python file that says none: it runs on a GPU, and needs PyTorch where it imports that."""
    package = next(
        (name for name in ("torch", "triton", "numba") if re.search(rf"^\s*(?:import|from) {name}\b", code, re.M)), ""
    )
    return {"device": "gpu", **({"requires": package} if package else {})}


def find_entry(code: str, names: HostNames, function: str) -> Entry | None:
    """The function that takes a problem's inputs, and its outputs or not; None where there is none, or it compiles no
    kernel. `function` is the problem's usual name."""
    if not re.search(rf"\b(?:{'|'.join(_COMPILERS)}|cpp_extension)\b|@(?:triton|cuda)\.jit", code):
        return None
    tree = ast.parse(code)
    found: list[Entry] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found += _entry(node, "", names)
        elif isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found += (
                one
                for each in methods
                if each.name in ("forward", "__call__")
                for one in _entry(each, node.name, names)
            )
    order = {name: place for place, name in enumerate((*_ENTRIES, function))}
    # A module's class stands for what its author calls; of functions, those with a usual name, then the last.
    return min(reversed(found), key=lambda one: (order.get(one.function, len(order)), one.owner == ""), default=None)


def _entry(node: ast.FunctionDef, owner: str, names: HostNames) -> Iterator[Entry]:
    listed = [one.arg for one in node.args.args][bool(owner) :]
    required = listed[: len(listed) - len(node.args.defaults)]
    inputs = [name for name in names.arrays if name != names.output]
    by_name: list[str] = []
    for name in required:  # M may be a matrix, and the number of its rows behind it
        array = names.find_array(name)
        by_name.append("" if array in by_name else array)
    numbers = [name for name, array in zip(required, by_name, strict=True) if not array]
    if sorted(filter(None, by_name)) in (sorted(inputs), sorted(names.arrays)) and numbers:
        if extents := _extents(node, numbers, names):
            yield Entry(
                node.name, owner, tuple(array or extents[name] for name, array in zip(required, by_name, strict=True))
            )
        return
    if len(required) not in (len(inputs), len(inputs) + 1):
        return
    usual = [*inputs, names.output][: len(required)]
    if sorted(by_name) == sorted(usual):
        yield Entry(node.name, owner, tuple(by_name))
    elif not any(by_name):
        yield Entry(node.name, owner, tuple(usual))


def _extents(node: ast.FunctionDef, numbers: list[str], names: HostNames) -> dict[str, str]:
    """The extents of a function's numbers; none where they are not told. Those of a product go by their places in the grid,
    since authors call the length of a sum K or N: rows and columns are divided by the sizes of tiles."""
    if names.is_product and len(numbers) == len(names.base):
        divided = {
            each.args[0].id
            for each in ast.walk(node)
            if isinstance(each, ast.Call) and _called_name(each) == "cdiv" and isinstance(each.args[0], ast.Name)
        }
        inner = [name for name in numbers if name not in divided]
        outer = [name for name in numbers if name in divided]
        return dict(zip([*outer, *inner], names.base, strict=True)) if len(inner) == 1 else {}
    found = {name: names.find_extent(name, numbers) for name in numbers}
    if len(numbers) == 1 and len(names.base) == 2 and found[numbers[0]] == names.base[0]:
        found = {numbers[0]: names.base[1]}  # the length of the one row
    return found if all(found.values()) else {}


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
        kind = _called_name(node)
        if kind not in _COMPILERS or not isinstance(node, ast.Call):
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


def _called_name(node: ast.AST) -> str:
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
        case ast.Call(args=[one]) if _called_name(node) in _NUMBERS:
            return _cpp(one)
        case ast.Call(args=arguments) if _called_name(node) in ("min", "max", "ceil", "cdiv"):
            return f"{_called_name(node)}({', '.join(map(_cpp, arguments))})"
    raise UnreadableLaunch(f"`{ast.unparse(node)}` is no extent, no array and no number known before")
