"""Triton's kernels, compiled for an architecture without its GPU, launched as CUDA C++ is, or interpreted on a CPU.

Triton interprets where TRITON_INTERPRET is set before it is imported. On a GPU it compiles, and CuPy launches what it
compiled, so that PyTorch is not needed and a call costs the host what one of CUDA C++ costs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource

from warpbook.common.supervision import VariantFailure
from warpbook.kernels.languages import Compiled

INTERPRETED = bool(triton.knobs.runtime.interpret)
SCRATCH = (np.intp(0), np.intp(0))
"""Pointers to memory that Triton adds behind a kernel's arguments, of which these kernels have none."""


def compile_for(
    arch: str, kernel: Any, extents: Mapping[str, int], constants: Mapping[str, Any], **options: int
) -> Any:
    """A kernel compiled for an architecture such as sm_90: arrays of float32 first, then extents, then constants.

    As Triton does it for a call, it assumes that arrays are aligned, and extents that 16 divides remain so.
    """
    names = kernel.arg_names
    kinds = dict.fromkeys(names, "*fp32") | dict.fromkeys(extents, "i32") | dict.fromkeys(constants, "constexpr")
    divisible = [name for name in names if name not in constants and extents.get(name, 16) % 16 == 0]
    assumed = {(names.index(name),): [["tt.divisibility", 16]] for name in divisible}
    source = ASTSource(kernel, kinds, dict(constants), assumed)
    target = GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)
    return triton.compile(source, target, {"enable_fp_fusion": True, **options})


def tell(arch: str, kernel: Any, extents: Mapping[str, int], constants: Mapping[str, Any], **options: int) -> Compiled:
    """What `compiled` of a variant says of a kernel."""
    made = compile_for(arch, kernel, extents, constants, **options)
    return Compiled(made.asm["ptx"], made.metadata.shared, get_ptxas(int(arch.removeprefix("sm_"))).path)


def load(kernel: Any, extents: Mapping[str, int], constants: Mapping[str, Any], **options: int) -> Callable[..., None]:
    """A call of a kernel with its grid and its arrays, compiled for the device in hand."""
    if INTERPRETED:
        old = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7)
        if old and np.lib.NumpyVersion(np.__version__) >= "2.4.0":
            reason = f"Triton {triton.__version__} does not interpret with NumPy {np.__version__}"
            raise VariantFailure("unsupported", f"{reason}: pip install 'triton>=3.7'")

        def interpret(grid: tuple[int, ...], *arrays: Any) -> None:
            kernel[grid](*map(HostTensor, arrays), *extents.values(), **constants)

        return interpret
    import cupy

    from warpbook.harness.gpu_bench import GpuKernels, load_module

    made = compile_for(f"sm_{cupy.cuda.Device().compute_capability}", kernel, extents, constants, **options)
    if getattr(made.metadata, "global_scratch_size", 0):
        raise NotImplementedError(f"{made.metadata.name} takes scratch memory, which kernels here are not given")
    function = GpuKernels(load_module(made.asm["cubin"]), {}).function(made.metadata.name, made.metadata.shared)
    threads, behind = (32 * made.metadata.num_warps,), (*map(np.int32, extents.values()), *SCRATCH)

    def launch(grid: tuple[int, ...], *arrays: Any) -> None:
        function(grid, threads, (*arrays, *behind))

    return launch


class HostTensor:
    """NumPy's memory as the interpreter asks for a tensor, which is its own storage and its own copy on the CPU."""

    def __init__(self, array: Any):
        self.dtype, self.address = str(array.dtype), int(array.ctypes.data)

    def data_ptr(self) -> int:
        return self.address

    def itself(self, *_: Any, **__: Any) -> "HostTensor":
        return self

    untyped_storage = cpu = new_empty = set_ = copy_ = storage_offset = size = stride = itself
