"""Run one variant, or network/<name>, an implementation of whole networks, under each tool of NVIDIA's
compute-sanitizer: a row for each tool.

The program starts itself again under the tool, with --under-tool, and calls the variant on every network's layers and
on ragged shapes, an implementation on every network. Each array is allocated separately there, which shows the tools
its bounds. If a launcher asks for the number of multiprocessors, so that a block takes one image after another, it is
called again with more images than blocks: this shows races between what two images keep in shared memory.

Products by cuBLAS are replaced by zeros, because the tools are to check our own kernels. In cuBLAS's kernels, racecheck
fails, and initcheck calls memory uninitialized that a bulk copy wrote (seen with 2025.3).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from warpbook.common.errors import exit_status
from warpbook.common.supervision import end_with_parent, run_to_end
from warpbook.harness import checking
from warpbook.kernels import variants, whole_networks
from warpbook.kernels.variants import Variant
from warpbook.kernels.whole_networks import Implementation
from warpbook.machine import gpu_pool
from warpbook.machine.host import require_target
from warpbook.problems import networks, weights
from warpbook.problems.problem import numpy_type
from warpbook.runs import tables
from warpbook.runs.run_parts import WHOLE

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
IMAGES = 1
INTERLEAVED_CALLS = 11  # images for the blocks of one multiprocessor: some take three, others two
MANY_IMAGES = 1001  # more than networks have other kernels for
# racecheck needs a microsecond an access: layers with more products than this are left to the other tools, unless
# tensor cores multiply, for which an access serves many products.
RACECHECK_PRODUCTS = 2_000_000
_ERRORS = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")
_TOOL_FAILED = re.compile(r"Internal Sanitizer Error: .*")
_RAISED = re.compile(r"^[\w.]+Error: .*", re.MULTILINE)
_NO_FINDING = ("COMPUTE-SANITIZER", "Program hit", "Target application")
"""How lines of a tool begin that say no more than that something is wrong."""


def device_under_tool() -> Any:
    """CuPy's Device from now on: `asked` is whether somebody asked for its attributes, `processors` how many
    multiprocessors it says that it has, where that is not None."""
    import cupy

    class Watched(cupy.cuda.Device):  # type: ignore[misc]
        asked = False
        processors: int | None = None

        @property
        def attributes(self) -> dict[str, int]:
            Watched.asked = True
            own = super().attributes
            return own if Watched.processors is None else {**own, "MultiProcessorCount": Watched.processors}

    cupy.cuda.Device = Watched
    return Watched


def call_everywhere(variant: Variant, tool: str) -> None:
    """Call the variant on each layer, with inputs of zeros and an uninitialised output."""
    import cupy

    from warpbook.harness import gpu_bench

    cupy.cuda.set_allocator(None)
    kernels = gpu_bench.load_kernels(variant, gpu_bench.require_device().arch)
    device = device_under_tool()
    layers = [conv for network in networks.all_networks().values() for conv in network.convs]
    convs = [conv for conv in layers if conv.problem.folder == variant.problem.folder]
    for case in [*checking.ragged_cases(variant), *convs]:
        device.asked = False
        # A ragged case says its size itself.
        sizes = ((IMAGES, None), (INTERLEAVED_CALLS, 1)) if case.problem.facts.size else ((case.size or 1, None),)
        for images, device.processors in sizes:
            case = case.at(images).with_problem(variant.problem)
            if variant.unsupported(case) or (images > IMAGES and not device.asked):
                continue
            if tool == "racecheck" and not variant.header.split and case.flops / 2 > RACECHECK_PRODUCTS:
                continue
            arrays = {name: cupy.empty(case.shape(name), numpy_type(one.dtype)) for name, one in case.arrays.items()}
            for name in case.inputs:
                cupy.cuda.runtime.memset(arrays[name].data.ptr, 0, arrays[name].nbytes)
            variant.prepare(case, kernels)(*arrays.values())
            cupy.cuda.runtime.deviceSynchronize()


def call_networks(implementation: Implementation, tool: str) -> None:
    """Call the implementation on each network whose weights are here, with images of zeros. Racecheck, which takes
    longest, is spared a single image, which has no next to race with, and many."""
    import cupy

    from warpbook.harness import gpu_bench, network_bench

    cupy.cuda.set_allocator(None)
    kernels = network_bench.load_kernels(implementation, gpu_bench.require_device().arch)
    device = device_under_tool()
    for network in networks.all_networks().values():
        if not (here := weights.available_sets(network)):
            continue
        parameters = {name: cupy.asarray(array) for name, array in weights.load(network, here[0]).items()}
        for images, device.processors in ((IMAGES, None), (INTERLEAVED_CALLS, 1), (MANY_IMAGES, None)):
            if implementation.unsupported(network, images) or (tool == "racecheck" and images != INTERLEAVED_CALLS):
                continue
            x = cupy.empty((images, network.input.channels, *network.image), "f4")
            cupy.cuda.runtime.memset(x.data.ptr, 0, x.nbytes)
            scores, labels = cupy.empty((images, network.classes), "f4"), cupy.empty(images, "i4")
            implementation.prepare(kernels, network, images, parameters)(x, scores, labels)
            if implementation.takes_bytes:
                call = implementation.prepare(kernels, network, images, parameters, of_bytes=True)
                call(cupy.zeros((images, *network.image), "u1"), scores, labels)
            cupy.cuda.runtime.deviceSynchronize()


@contextmanager
def without_library_gemm() -> Iterator[None]:
    """Meanwhile, cuBLAS's gemmEx as CuPy has it multiplies nothing: its result, float32, is zeros."""
    from cupy.cuda import runtime

    try:
        from cupy_backends.cuda.libs import cublas
    except ImportError:  # without the library nobody calls it
        yield
        return

    def zeros(*arguments: Any) -> None:
        # handle, two transpositions, m, n, k, alpha; A, type, leading dimension; B, likewise; beta; C, likewise; ...
        columns, result, pitch = arguments[4], arguments[14], arguments[16]
        runtime.memset(result, 0, 4 * columns * pitch)

    own, cublas.gemmEx = cublas.gemmEx, zeros
    try:
        yield
    finally:
        cublas.gemmEx = own


def sanitize(variant: str, kernels: Path | None, tool: str, timeout_s: float) -> dict[str, Any]:
    """Columns of SANITIZER for one tool."""
    program = shutil.which("compute-sanitizer")
    place: dict[str, Any] = {"variant": variant, "tool": tool, "version": "", "errors": None}
    if not program:
        return {**place, "status": "unsupported", "reason": "compute-sanitizer is not installed on this machine"}
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    place["version"] = (re.findall(r"Version ([\d.]+)", said) or [""])[0]
    inside = [sys.executable, __file__, "--variant", variant, "--under-tool", tool]
    # Calls of CUDA that fail raise, or their caller expects it: Numba asks for devices and contexts that are not there.
    quiet = ["--report-api-errors", "no"] if tool == "memcheck" else []
    command = [program, "--tool", tool, *quiet, *inside, *(["--kernels", str(kernels)] if kernels else [])]
    try:
        status, out, err = run_to_end(command, timeout_s)
    except subprocess.TimeoutExpired:
        return {**place, "status": "timed_out", "reason": f"still running after {timeout_s:g} s (timeout_s)"}
    return {**place, **verdict(out, err, status)}


def verdict(out: str, err: str, status: int) -> dict[str, Any]:
    """errors, status and reason of SANITIZER by what a tool and the program said; a finding comes first."""
    lines = [line.removeprefix("=========").strip() for line in out.splitlines()]
    failed, counted = _TOOL_FAILED.findall(out), _ERRORS.search(out)
    errors = int(counted[1] or counted[2]) if counted else 0
    if errors and not failed:
        found = (line for line in lines if line and not line.startswith(_NO_FINDING))
        return {"errors": errors, "status": "wrong_result", "reason": next(found)}
    if failed or status or not counted:
        words = [line for line in [*reversed(err.splitlines()), *lines] if "rror" in line]
        reasons = [*failed, *_RAISED.findall(err), *words, f"exit status {status}"]
        return {"errors": None, "status": "launch_failed", "reason": reasons[0]}
    return {"errors": 0, "status": "ok", "reason": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True, help="or network/<name>, an implementation of whole networks")
    parser.add_argument("--kernels", type=Path, help="folder of the variant's files, if not its problem's")
    parser.add_argument("--under-tool", choices=TOOLS, help="call the variant, under the tool that started this")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    of_networks = arguments.variant.removeprefix(WHOLE)
    if arguments.under_tool:
        if of_networks != arguments.variant:
            with without_library_gemm():
                return call_networks(whole_networks.read(of_networks), arguments.under_tool)
        return call_everywhere(variants.read(arguments.variant, arguments.kernels), arguments.under_tool)
    require_target()
    run = partial(sanitize, arguments.variant, arguments.kernels, timeout_s=arguments.timeout)
    together = ProcessPoolExecutor(len(TOOLS), initializer=end_with_parent, initargs=(os.getpid(),))
    with gpu_pool.acquire("gpu", arguments.out, shared=True) as rows, together:
        rows += together.map(run, TOOLS)
    tables.SANITIZER.write(rows, arguments.out)
    for row in rows:
        if row["status"] != "ok":
            print(f"{row['variant']}, {row['tool']}: {row['status']}: {row['reason']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
