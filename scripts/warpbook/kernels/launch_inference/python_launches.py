"""CUDA C++ that stands as a string in a Python file, and how the file launches it.

What `load_inline` of PyTorch compiles launches itself; a `RawKernel` of CuPy is launched in Python, whose expressions are
those of headers once the names in them are extents.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.inferred_facts import UnreadableLaunch

_COMPILERS = ("RawKernel", "RawModule", "load_inline", "SourceModule")
_NUMBERS = {"int", "int32", "int64", "uint32", "uint64", "c_int", "float32", "float64", "float", "bool_"}
_ENTRIES = ("forward", "solve", "custom_kernel", "run", "launch", "call", "main")


@dataclass(frozen=True)
class PythonSource:
    """The CUDA C++ of a Python file, and the facts of its launch where Python launches it."""

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
        return PythonSource(text, _facts(tree, node, kernel, names))
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


def _facts(tree: ast.Module, compiled: ast.Call, kernel: str, names: HostNames) -> dict[str, Any]:
    """The facts of the one launch of a RawKernel."""
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
                return _launch(function, node, kernel, names, tree)
    raise UnreadableLaunch(f"{kernel or 'its kernel'} is launched in no function as `kernel(grid, block, arguments)`")


def _launch(
    function: ast.FunctionDef, launch: ast.Call, kernel: str, names: HostNames, tree: ast.Module
) -> dict[str, Any]:
    known: dict[str, ast.expr] = {}
    for node in [*tree.body, *ast.walk(function)]:
        if isinstance(node, ast.Assign) and node.lineno < launch.lineno:
            for target in node.targets:
                _bind(target, node.value, known, names)
    grid, block, arguments = launch.args
    shared = next((each.value for each in launch.keywords if each.arg == "shared_mem"), None)
    facts: dict[str, Any] = {
        "kernel": kernel,
        "arguments": [_fact(each, known, names) for each in _items(arguments, known)],
        "threads": [_fact(each, known, names) for each in _items(block, known)],
        "grid": [_fact(each, known, names) for each in _items(grid, known)],
    }
    return {key: value for key, value in facts.items() if value} | (
        {"shared_bytes": _fact(shared, known, names)} if shared else {}
    )


def _bind(target: ast.expr, value: ast.expr, known: dict[str, ast.expr], names: HostNames) -> None:
    """Names that an assignment gives a value; those of a shape are the extents of the array."""
    if isinstance(target, ast.Name):
        known[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List):
        for place, each in enumerate(target.elts):
            part: ast.expr = ast.Subscript(value, ast.Constant(place))
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                part = value.elts[place]
            if isinstance(each, ast.Name):
                known[each.id] = part


def _items(node: ast.expr, known: Mapping[str, ast.expr]) -> list[ast.expr]:
    while isinstance(node, ast.Name) and node.id in known:
        node = known[node.id]
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]


def _fact(node: ast.expr, known: Mapping[str, ast.expr], names: HostNames) -> str | int | float:
    made = ast.unparse(_resolve(node, known, names, 0))
    return int(made) if made.isdigit() else float(made) if re.fullmatch(r"\d+\.\d*", made) else made


def _makes_array(value: ast.expr) -> bool:
    """Whether a value is an array's: what is called gives no number."""
    return isinstance(value, ast.Call) and _called_name(value) not in {*_NUMBERS, "min", "max", "ceil"}


def _resolve(node: ast.expr, known: Mapping[str, ast.expr], names: HostNames, depth: int) -> ast.expr:
    """An expression rewritten in the problem's own names. Raises UnreadableLaunch."""
    if depth > 30:
        raise UnreadableLaunch(f"`{ast.unparse(node)}` nests too deep")

    def inner(each: ast.expr) -> ast.expr:
        return _resolve(each, known, names, depth + 1)

    match node:
        case ast.Constant():
            return node
        case ast.Name(id=name) if name in known and not _makes_array(known[name]):
            return inner(known[name])
        case ast.Name(id=name):
            if found := names.find_array(name) or names.find_extent(name):
                return ast.Name(found)
        case ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=array), attr="shape"), slice=ast.Constant(value=int() as place)
        ):
            if extent := names.extent_at_place(names.find_array(array), place):
                return ast.Name(extent)
        case ast.Attribute(value=ast.Name(id=array), attr="size") if count := names.count_of_array(
            names.find_array(array)
        ):
            return ast.parse(count, mode="eval").body
        case ast.BinOp(left=left, op=sign, right=right):
            return ast.BinOp(inner(left), sign, inner(right))
        case ast.UnaryOp(op=ast.USub() as sign, operand=operand):
            return ast.UnaryOp(sign, inner(operand))
        case ast.Call(args=[one]) if _called_name(node) in _NUMBERS:
            return inner(one)
        case ast.Call(args=arguments) if _called_name(node) in ("min", "max", "ceil"):
            return ast.Call(ast.Name(_called_name(node)), [inner(each) for each in arguments], [])
    raise UnreadableLaunch(f"`{ast.unparse(node)}` is no extent, no array and no number known before")
