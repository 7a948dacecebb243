"""A stranger's function in Python, with kernels of CuPy, PyTorch, Numba or Triton, as a call on a case's arrays."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from warpbook.kernels.launch_inference.python_launches import Entry
from warpbook.problems.problem import Case


def operation(module: ModuleType, entry: Entry, case: Case, with_torch: bool) -> Callable[..., Any]:
    """A call of the function, or of an instance of its class, on CuPy's arrays: as tensors on the same memory where it
    takes PyTorch's. It returns the result where the function does not get the output."""
    owner = getattr(module, entry.owner)() if entry.owner else module
    function = getattr(owner, entry.function)
    names = list(case.arrays)
    places = [names.index(name) for name in entry.arrays]
    writes = next(iter(case.problem.outputs)) in entry.arrays

    def call(*arrays: Any) -> Any:
        given = [arrays[place] for place in places]
        if not with_torch:
            result = function(*given)
            return None if writes else result
        import cupy
        import torch

        result = function(*map(torch.from_dlpack, given))
        return None if writes else cupy.from_dlpack(result.detach().contiguous())

    return call
