"""Files of the course compiled by nvcc, their host code included: that on PATH, of CUDA_HOME or of NVIDIA's wheels."""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from warpbook import course, sources
from warpbook.files import scratch_folder
from warpbook.harness import host
from warpbook.variants import Variant

OPTIONS = ("-std=c++17", "-O3", "-lineinfo", "-Xptxas", "-v")
MISSING = "it takes nvcc, and there is none on PATH, in CUDA_HOME or in NVIDIA's wheels (nvidia-cuda-nvcc)"
MATRIX_PRODUCT = Path(__file__).with_name("matmul.h")


@functools.cache
def found() -> Path | None:
    """The compiler; None where there is none."""
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    wheels = [Path(path) / "nvidia" / kind for path in sys.path for kind in ("cu13", "cuda_nvcc")]
    on_path = shutil.which("nvcc")
    candidates = [*([Path(on_path)] if on_path else []), *(home / "bin" / "nvcc" for home in [*homes, *wheels])]
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


@functools.cache
def version() -> str:
    """Its name and version, as `nvcc 13.0`."""
    said = subprocess.run([str(found()), "--version"], capture_output=True, text=True, errors="replace").stdout
    number = re.search(r"release (\d+\.\d+)", said)
    return f"nvcc {number[1] if number else 'of unknown version'}"


def options(variant: Variant, arch: str) -> list[str]:
    """What a file of the course is compiled with."""
    return [f"-arch={arch}", *OPTIONS, *variant.defines]


def cubin(variant: Variant, arch: str, sandboxed: bool = False) -> tuple[bytes, str]:
    """(cubin, compiler's log) of a file of the course. Raises UserError where it does not compile."""
    assert variant.cuda_source is not None and variant.course is not None
    with scratch_folder() as folder:
        source, output = folder / variant.cuda_source.name, folder / "out.cubin"
        source.write_text(sources.text_of(variant.cuda_source))
        (folder / course.HEADER).write_text(f"#pragma once\n{variant.course.declaration}\n")
        (folder / course.MATRIX_HEADER).write_text(MATRIX_PRODUCT.read_text())
        command = [str(found()), *options(variant, arch), f"-I{folder}", "-cubin", str(source), "-o", str(output)]
        toolkit = Path(command[0]).resolve().parent.parent
        refused = f"{variant.name} does not compile for {arch}"
        words = host.compiled(command, folder, sandboxed, refused, [toolkit])
        return output.read_bytes(), words
