"""Numba's CUDA kernels, compiled for an architecture without its GPU, launched by Numba, or simulated on a CPU.

Numba simulates where NUMBA_ENABLE_CUDASIM is set before it is imported.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

if not hasattr(np, "row_stack"):
    np.row_stack = np.vstack  # NumPy 2.5 left the name out, and numba-cuda 0.30 asks for it

from numba import config, cuda

from warpbook.common.supervision import VariantFailure
from warpbook.kernels.languages import Compiled

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small cases are meant to be small
SIMULATED_THREADS = 4096
"""Threads of a grid that are simulated: each is one of Python's, and takes milliseconds."""


class Kernel:
    """A kernel and the types of its arguments. `options` of `cuda.jit` are for a GPU alone."""

    def __init__(self, function: Callable[..., None], signature: str, **options: Any):
        self.function, self.signature, self.options = function, signature, options
        self.jitted = cuda.jit(function) if config.ENABLE_CUDASIM else cuda.jit(**options)(function)

    def load(self, grid: tuple[int, ...], threads: int) -> Callable[..., None]:
        """A call of the kernel with its arrays, compiled for the device in hand."""
        if config.ENABLE_CUDASIM:
            if (count := math.prod(grid) * threads) > SIMULATED_THREADS:
                reason = f"{count} threads exceed the {SIMULATED_THREADS} that are simulated; check it on a GPU"
                raise VariantFailure("unsupported", f"{self.function.__name__}: {reason}")
            return lambda *arrays: self.jitted[grid, threads](*arrays)
        self.jitted.compile(self.signature)
        launch = self.jitted[grid, threads]

        def call(*arrays: Any) -> None:
            # Numba would wait for CuPy's stream, and then launch on the same.
            launch(*(cuda.as_cuda_array(array, sync=False) for array in arrays))

        return call

    def tell(self, arch: str) -> Compiled:
        """What `compiled` of a variant says of it."""
        capability = tuple(map(int, re.fullmatch(r"sm_(\d+)(\d)", arch).groups()))
        ptx, _ = cuda.compile(
            self.function, self.signature, cc=capability, device=False, abi="numba", output="ptx", **self.options
        )
        return Compiled(ptx)


def kernel(signature: str, **options: Any) -> Callable[[Callable[..., None]], Kernel]:
    """A decorator that makes a function a kernel of a signature such as `void(float32[::1])`."""
    return lambda function: Kernel(function, signature, **options)
