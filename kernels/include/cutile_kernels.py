"""cuTile's kernels, launched on CuPy's current stream. The first call of a kernel compiles it."""

from collections.abc import Callable
from typing import Any

import cuda.tile as ct


def load(kernel: Any, grid: tuple[int, ...], *constants: int) -> Callable[..., None]:
    """A call of a kernel with its arrays."""
    import cupy

    def call(*arrays: Any) -> None:
        ct.launch(cupy.cuda.get_current_stream(), grid, kernel, (*arrays, *constants))

    return call
