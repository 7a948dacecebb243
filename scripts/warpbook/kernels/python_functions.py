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
    writes = next(iter(case.problem.outputs)) in entry.arguments

    def call(*arrays: Any) -> Any:
        by_name = dict(zip(names, arrays, strict=True))
        if with_torch:
            import cupy
            import torch

            by_name = {name: torch.from_dlpack(array) for name, array in by_name.items()}
        result = function(*(by_name[name] if name in by_name else case.extents[name] for name in entry.arguments))
        if not with_torch:
            return None if writes else result
        return None if writes else cupy.from_dlpack(result.detach().contiguous())

    return call
