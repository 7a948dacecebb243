"""A stranger's function in Python, with kernels of CuPy, PyTorch, Numba or Triton: which it is, and a call of it on a
case's arrays."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.python_launches import COMPILERS, called_name
from warpbook.problems.problem import Case

_ENTRIES = ("forward", "solve", "custom_kernel", "run", "launch", "call", "main")


@dataclass(frozen=True)
class Entry:
    """The function of a Python file that computes the result: its name, that of its class if any, and the arrays and extents
    that it takes, in their order."""

    function: str
    owner: str
    arguments: tuple[str, ...]
    packed: bool = False
    """Whether it takes them as one tuple, as a submission to GPU MODE does."""

    def limits(self, names: HostNames) -> dict[str, Any]:
        """The limits of a function that gets some of the extents: the others are 1, or of a product as long as the one."""
        told = [name for name in self.arguments if name not in names.arrays and name.isidentifier()]
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
    if not re.search(rf"\b(?:{'|'.join(COMPILERS)}|cpp_extension)\b|@(?:triton|cuda)\.jit", code):
        return None
    tree = ast.parse(code)
    found: list[Entry] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not any("jit" in ast.unparse(one) for one in node.decorator_list):
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
    unpacked = [
        [ast.unparse(name) for name in one.targets[0].elts]
        for one in node.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Tuple) and ast.unparse(one.value) in required
    ]
    if packed := len(required) == len(unpacked) == 1:
        required = unpacked[0]
    inputs = [name for name in names.arrays if name != names.output]
    by_name: list[str] = []
    for name in required:  # M may be a matrix, and the number of its rows behind it
        array = names.find_array(name)
        by_name.append("" if array in by_name else array)
    numbers = [name for name, array in zip(required, by_name, strict=True) if not array]
    if sorted(filter(None, by_name)) in (sorted(inputs), sorted(names.arrays)) and numbers:
        if extents := _extents(node, numbers, names):
            given = tuple(array or extents[name] for name, array in zip(required, by_name, strict=True))
            yield Entry(node.name, owner, given, packed)
        return
    if len(required) not in (len(inputs), len(inputs) + 1):
        return
    usual = [*inputs, names.output][: len(required)]
    if sorted(by_name) == sorted(usual):
        yield Entry(node.name, owner, tuple(by_name), packed)
    elif not any(by_name):
        yield Entry(node.name, owner, tuple(usual), packed)


def _extents(node: ast.FunctionDef, numbers: list[str], names: HostNames) -> dict[str, str]:
    """The extents of a function's numbers; none where they are not told. Those of a product go by their places in the grid,
    since authors call the length of a sum K or N: rows and columns are divided by the sizes of tiles."""
    factors = {name: str(taken) for name in numbers if (taken := names.taken_number(name)) is not None}
    numbers = [name for name in numbers if name not in factors]
    if names.is_product and len(numbers) == len(names.base):
        divided = {
            each.args[0].id
            for each in ast.walk(node)
            if isinstance(each, ast.Call) and called_name(each) == "cdiv" and isinstance(each.args[0], ast.Name)
        }
        inner = [name for name in numbers if name not in divided]
        outer = [name for name in numbers if name in divided]
        return factors | dict(zip([*outer, *inner], names.base, strict=True)) if len(inner) == 1 else {}
    found = {name: names.find_extent(name, numbers) for name in numbers}
    if len(numbers) == 1 and len(names.base) == 2 and found[numbers[0]] == names.base[0]:
        found = {numbers[0]: names.base[1]}  # the length of the one row
    return factors | found if all(found.values()) else {}


def operation(module: ModuleType, entry: Entry, case: Case, with_torch: bool) -> Callable[..., Any]:
    """A call of the function, or of an instance of its class, on CuPy's arrays: as tensors on the same memory where it
    takes PyTorch's. It returns the result where the function does not get the output."""
    owner = getattr(module, entry.owner)() if entry.owner else module
    function = getattr(owner, entry.function)
    names = list(case.arrays)
    given = [name for name in entry.arguments if name not in names]
    writes = next(iter(case.problem.outputs)) in entry.arguments

    def call(*arrays: Any) -> Any:
        by_name = dict(zip(names, arrays, strict=True))
        if with_torch:
            import cupy
            import torch

            by_name = {name: torch.from_dlpack(array) for name, array in by_name.items()}
        numbers = {name: case.extents[name] if name.isidentifier() else float(name) for name in given}
        listed = [by_name[name] if name in by_name else numbers[name] for name in entry.arguments]
        result = function(tuple(listed)) if entry.packed else function(*listed)
        if not with_torch:
            return None if writes else result
        return None if writes else cupy.from_dlpack(result.detach().contiguous())

    return call
