"""Describe this machine and measure its GPU's peak rates, for the lower bounds."""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common.errors import exit_status
from warpbook.common.files import atomic_write
from warpbook.harness import building
from warpbook.kernels import occupancy
from warpbook.machine import available_profilers, cuda_devices, gpu_pool, host

PACKAGES = (
    "snakemake", "cupy-cuda13x", "cupy-cuda12x", "numpy", "pandas", "numba", "numba-cuda", "triton", "onnxruntime", "torch",
    "cupti-python", "nvidia-ml-py", "cuda-bindings", "matplotlib", "jinja2", "weasyprint",
)  # fmt: skip
COPY_BYTES = 1 << 30
MULTIPLY_ADD_ROUNDS = 200  # about 4 ms on an H200


def versions() -> dict[str, str]:
    """Versions of the installed packages that decide or show figures."""
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def library_versions() -> dict[str, str]:
    """Versions of the cuDNN that PyTorch brings and the cuBLAS that CuPy calls, of those that load here."""
    found = {}
    with suppress(ImportError, OSError, RuntimeError):
        import torch

        if number := torch.backends.cudnn.version():
            found["cuDNN"] = dotted_version(number)
    with suppress(ImportError, OSError, RuntimeError):
        from cupy.cuda import device
        from cupy_backends.cuda.libs import cublas

        found["cuBLAS"] = dotted_version(cublas.getVersion(device.get_cublas_handle()))
    return found


def dotted_version(number: int) -> str:
    """A library's number as its version: 91002 is 9.10.2, and of cuDNN before 9, 8907 is 8.9.7."""
    thousands = 10_000 if number >= 10_000 else 1000
    major, rest = divmod(number, thousands)
    return f"{major}.{rest // 100}.{rest % 100}"


def gpu(device: cuda_devices.Device) -> dict[str, Any]:
    """The GPU's properties, the rates at which it copies and writes memory, and its peak rates."""
    import cupy

    from warpbook.common import statistics
    from warpbook.harness.gpu_bench import GpuBench

    bench = GpuBench()
    source, target = (cupy.empty(COPY_BYTES, cupy.uint8) for _ in range(2))
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()

    def median_time(work: Callable[[], object]) -> statistics.Estimate:
        """Median time in ms of 20 repetitions after three to warm up."""
        times = []
        for number in range(23):
            start.record()
            work()
            stop.record()
            stop.synchronize()
            if number >= 3:
                times.append(cupy.cuda.get_elapsed_time(start, stop))
        return statistics.median(np.array(times))

    copy = median_time(lambda: target.data.copy_from_device_async(source.data, COPY_BYTES))
    write = median_time(lambda: target.data.memset_async(0, COPY_BYTES))
    multiply_adds = bench.multiply_add(MULTIPLY_ADD_ROUNDS)
    multiplied = median_time(lambda: bench.multiply_add(MULTIPLY_ADD_ROUNDS))
    facts = bench.clock.facts()
    clock_ghz = (facts["sm_clock_max_mhz"] or cupy.cuda.runtime.deviceGetAttribute(13, 0) / 1e3) / 1e3
    limits = occupancy.SM_LIMITS.get(device.arch)
    rates = {
        "fp32": limits and limits.fp32_flop_per_cycle,
        "tf32": limits and limits.tf32_flop_per_cycle,
        "fp16": limits and limits.fp16_flop_per_cycle,
        "bf16": limits and limits.fp16_flop_per_cycle,
    }
    return {
        "name": device.name,
        "arch": device.arch,
        "uuid_sha256": device.uuid_sha256,
        "driver_cuda": device.driver_cuda,
        "runtime_cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "multiprocessors": bench.multiprocessors,
        "memory_bytes": bench.memory_bytes,
        "l2_bytes": bench.l2_bytes,
        # Bytes read and bytes written.
        "copy_gb_per_s": 2 * COPY_BYTES / copy.value / 1e6,
        "copy_gb_per_s_ci": [2 * COPY_BYTES / copy.high / 1e6, 2 * COPY_BYTES / copy.low / 1e6],
        "write_gb_per_s": COPY_BYTES / write.value / 1e6,
        # Multiply-adds in registers, each of two operations.
        "fp32_gflop_per_s": 2 * multiply_adds / multiplied.value / 1e6,
        "fp32_gflop_per_s_ci": [2 * multiply_adds / multiplied.high / 1e6, 2 * multiply_adds / multiplied.low / 1e6],
        "peak_gflop_per_s": {name: rate and rate * bench.multiprocessors * clock_ghz for name, rate in rates.items()},
        **facts,
    }


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", choices=("yes", "no"), required=True, help="whether to measure a GPU")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    host.require_target("gpu" if arguments.gpu == "yes" else "")
    described: dict[str, Any] = {
        "node": host.node(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": versions(),
        "compiler": building.compiler(),
        "cpu": host.cpu(),
        "gpu": None,
        "profilers": {},
    }
    if arguments.gpu == "yes":
        from warpbook.harness.gpu_bench import require_device

        with gpu_pool.acquire("gpu", arguments.out, whole=True):
            described["gpu"] = gpu(require_device())
            described["packages"] |= library_versions()
        described["profilers"] = available_profilers.describe(require_device())
    with atomic_write(arguments.out) as temporary:
        temporary.write_text(json.dumps(described, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(exit_status(main))
