"""The launches that a header says, as one call on a case's arrays."""

import math
import operator
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from warpbook.kernels import kernel_parameters, launches, sources
from warpbook.kernels.launches import Argument, Call, Slice
from warpbook.problems.problem import Case, Dtype, Problem, element_type, itemsize

if TYPE_CHECKING:
    from warpbook.kernels.headers import Header

_FILLED_MAX = 1 << 26
"""Scratch memory beyond so many values is left as it is: pages that no launch touches cost nothing."""
_Launch = Callable[[tuple[Any, ...]], None]


def passed_kinds(code: str, kernel: str, arguments: Sequence[Argument], arrays: Collection[str]) -> str:
    """What each argument of a kernel is passed as: p, a pointer; f, a float; d, a double; i, a whole number of 32 bits;
    l, one of 64, of which a kernel reads as many bytes as its parameter has."""
    takes = kernel_parameters.kernel_parameters(code, kernel)
    kinds = ""
    for place, argument in enumerate(arguments):
        known = takes[place] if place < len(takes) else None
        pointer = argument in (launches.NULL, launches.ZEROS) or launches.find_array(argument, arrays)
        if pointer or (known and known.pointer and argument == 0):
            kinds += "p"
        elif isinstance(argument, float):
            kinds += "d" if known and known.number == "d" else "f"
        else:
            kinds += known.number if known else "l"
    return kinds


def element_types(
    launched: Sequence[tuple[str, Sequence[Argument]]], header: "Header", code: str, problem: Problem
) -> dict[str, Dtype]:
    """The type of the values of each array, scratch memory too, by the parameters of kernels that get it, where they tell.

    Raises ValueError where kernels take an array of the problem as different types."""
    found: dict[str, Dtype] = {}
    for kernel, arguments in launched:
        for parameter, argument in zip(kernel_parameters.kernel_parameters(code, kernel), arguments, strict=False):
            name = launches.find_array(argument, header.arrays(problem))
            dtype = element_type(parameter.kind) if name and parameter.pointer else None
            if name and parameter.pointer and not (dtype or parameter.kind in kernel_parameters.UNTYPED):
                raise ValueError(
                    f"{kernel}: `{parameter.name}` points to {parameter.kind}, which is no type of numbers here"
                )
            if dtype and found.setdefault(name, dtype) != dtype and name not in header.scratch:
                raise ValueError(f"{kernel} takes {name} as {dtype}, and a launch before it as {found[name]}")
    for step in header.steps:
        found |= {str(value): found[held] for held, value in step.fill.items() if held in found}
    sums = [step.sum for step in header.steps if step.sum in found]
    found |= {name: found[sums[-1]] for name in problem.outputs if sums}
    if header.constant_memory and (dtype := kernel_parameters.constant_type(code, header.constant_memory)):
        found[problem.arrays[1]] = dtype
    return found


def check_numbers(code: str, call: Call) -> None:
    """Raises ValueError where a call passes a whole number that its kernel's parameter does not hold."""
    for value, parameter in zip(call.arguments, kernel_parameters.kernel_parameters(code, call.kernel), strict=False):
        least, most = parameter.range
        if isinstance(value, int) and not least <= value < most:
            raise ValueError(f"arguments: {parameter.name}: {value} is beyond the 32 bits of an int")


def operation(calls: Sequence[Call], case: Case, header: "Header", code: str, kernels: Any) -> Callable[..., None]:
    """The calls on the case's arrays. Scratch memory is allocated here; constants are filled before each."""
    bind = _Binding(case, header, code, kernels)
    bound = [bind.call(call) for call in calls]
    if variable := header.constant_memory:
        held = kernels.symbol(sources.find_variable_symbol(variable))
        bound.insert(0, lambda arrays: held.copy(arrays[1]))
    if len(bound) == 1:
        (only,) = bound
        return lambda *arrays: only(arrays)

    def launch(*arrays: Any) -> None:
        for each in bound:
            each(arrays)

    return launch


class _Binding:
    """Calls of a case bound to a variant's kernels and to what they get besides the case's arrays."""

    def __init__(self, case: Case, header: "Header", code: str, kernels: Any):
        self._case, self._code, self._kernels = case, code, kernels
        self._names = list(case.arrays)
        self._arrays = header.arrays(case.problem)
        names = case.extents | header.constants
        launched = [(step.kernel, step.arguments) for step in header.steps if step.kernel]
        types = element_types(launched, header, code, case.problem)
        self._scratch: dict[str, Any] = {}
        for name, size in header.scratch_bytes(names).items():
            dtype = types.get(name, "float32")
            whole = -(-size // itemsize(dtype)) * itemsize(dtype)  # no byte is behind the last value
            self._scratch[name] = self._memory(whole).view(dtype)
        self._functions: dict[tuple[str, int], Callable[..., None]] = {}

    def _memory(self, size: int, value: float = math.nan) -> Any:
        """Memory of so many bytes, as float32; what nobody wrote is NaN."""
        count = max(-(-size // 4), 1)
        memory = self._kernels.empty((count,))
        if not math.isnan(value) or count <= _FILLED_MAX:
            memory.fill(value)
        return memory

    def call(self, call: Call) -> _Launch:
        if not call.kernel:
            name, other = (*call.arguments, 0)[:2]
            number = other if isinstance(other, int | float) else 0

            def memory(arrays: tuple[Any, ...], of: Any) -> Any:
                return self._scratch[of] if of in self._scratch else arrays[self._names.index(of)].reshape(-1)

            def add_up(arrays: tuple[Any, ...]) -> None:
                memory(arrays, other)[...] = memory(arrays, name).sum()

            def copy(arrays: tuple[Any, ...]) -> None:
                memory(arrays, name)[: self._case.count(str(other))] = memory(arrays, other)

            if other in self._names:
                return add_up if other in self._case.problem.outputs else copy
            return lambda arrays: memory(arrays, name).fill(number)
        kernel, arguments, shape = call
        if (kernel, shape.shared_bytes) not in self._functions:
            shared = [shape.shared_bytes] if shape.shared_bytes else []
            self._functions[kernel, shape.shared_bytes] = self._kernels.function(kernel, *shared)
        function = self._functions[kernel, shape.shared_bytes]
        slices = {
            place: (self._names.index(value.array), value.offset)
            for place, value in enumerate(arguments)
            if isinstance(value, Slice) and value.array in self._names
        }
        listed = [
            value.array if isinstance(value, Slice) and value.array in self._names else value for value in arguments
        ]
        kinds = passed_kinds(
            self._code, kernel, [0 if isinstance(value, Slice) else value for value in listed], self._arrays
        )
        others = [
            self._other(kernel, place, value, kinds[place])
            for place, value in enumerate(listed)
            if value not in self._names
        ]
        behind = iter(range(len(self._names), len(self._names) + len(others)))
        order = [self._names.index(value) if value in self._names else next(behind) for value in listed]
        in_order = operator.itemgetter(*order) if len(order) > 1 else lambda given: (given[order[0]],)
        if not slices:
            return lambda arrays: function(shape.grid, shape.threads, in_order((*arrays, *others)))

        def launch_on_parts(arrays: tuple[Any, ...]) -> None:
            given = list(in_order((*arrays, *others)))
            for place, (array, offset) in slices.items():
                given[place] = arrays[array].reshape(-1)[offset:]
            function(shape.grid, shape.threads, tuple(given))

        return launch_on_parts

    def _other(self, kernel: str, place: int, value: Slice | str | float, kind: str) -> Any:
        """What a kernel gets that is none of the case's arrays."""
        import numpy as np

        if isinstance(value, Slice):
            return self._scratch[value.array][value.offset :]
        if not isinstance(value, str):
            types: dict[str, Any] = {"p": np.intp, "f": np.float32, "d": np.float64, "i": np.int32, "l": np.int64}
            number: Any = types[kind](value)
            return number
        if value in self._scratch:
            return self._scratch[value]
        if value == launches.ZEROS:
            return self._memory(max(self._case.nbytes(name) for name in self._names), 0)
        if value == launches.NULL or kernel_parameters.tests_pointer(self._code, kernel, place):
            return np.intp(0)
        # An optional input that the case does not have, and that the kernel reads all the same.
        absent = self._case.problem.inputs[value]
        return self._memory(math.prod(map(self._case.value, absent.shape)) * itemsize(absent.dtype), 0)
