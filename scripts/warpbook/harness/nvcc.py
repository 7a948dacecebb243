"""Files of the course compiled by nvcc, host code included: that on PATH, of CUDA_HOME or of NVIDIA's wheels. `Driver`
runs a file's library on a GPU."""

import ctypes
import functools
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from warpbook.common import cuda_toolkit
from warpbook.common.errors import UserError
from warpbook.common.files import atomic_write, scratch_folder
from warpbook.common.supervision import VariantFailure
from warpbook.harness import cpp_compiler
from warpbook.harness.bench import HOT_WITHIN
from warpbook.kernels import ece408
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case

OPTIONS = ("-std=c++17", "-O3", "-lineinfo", "-Xptxas", "-v")
MISSING = "it takes nvcc, and there is none on PATH, in CUDA_HOME or in NVIDIA's wheels (nvidia-cuda-nvcc)"
MATRIX_PRODUCT = Path(__file__).with_name("matmul.h")
DRIVER = Path(__file__).with_name("course_driver.cu")
STEPS = "steps.h"


@functools.cache
def find_compiler() -> Path | None:
    """The compiler; None where there is none."""
    return cuda_toolkit.find_program("nvcc")


@functools.cache
def version() -> str:
    """Its name and version, as `nvcc 13.0`."""
    said = subprocess.run([str(find_compiler()), "--version"], capture_output=True, text=True, errors="replace").stdout
    number = re.search(r"release (\d+\.\d+)", said)
    return f"nvcc {number[1] if number else 'of unknown version'}"


def options(variant: Variant, arch: str) -> list[str]:
    """What a file of the course is compiled with."""
    return [f"-arch={arch}", *OPTIONS, *variant.defines]


def cubin(variant: Variant, arch: str, sandboxed: bool = False) -> tuple[bytes, str]:
    """(cubin, compiler's log) of a file of the course. Raises UserError where it does not compile."""
    with scratch_folder() as folder:
        source, output = _lay_out(variant, folder), folder / "out.cubin"
        words = _compile(variant, arch, [f"-I{folder}", "-cubin", str(source), "-o", str(output)], folder, sandboxed)
        return output.read_bytes(), words


def link(variant: Variant, arch: str, sandboxed: bool) -> Path:
    """The shared library of a file of the course and its driver, kept under the hash of all that decides it. Raises
    UserError with the compiler's words; VariantFailure, unsupported, without a compiler or a header."""
    assert variant.course is not None
    if find_compiler() is None:
        raise VariantFailure("unsupported", f"{variant.name} is a file of the course: {MISSING}")
    steps, driver, product = driver_steps(variant.course), DRIVER.read_text(), MATRIX_PRODUCT.read_text()
    identity = "\0".join([variant.source_sha256, version(), *options(variant, arch), steps, driver, product])
    kept = cpp_compiler.LIBRARIES / f"{variant.stem}-{arch}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    if kept.exists():
        return kept
    with atomic_write(kept) as made, scratch_folder() as folder:
        source, output = _lay_out(variant, folder), folder / "made.so"
        (folder / STEPS).write_text(steps)
        included, libraries = _cublas() if "cublas" in variant.code else ([], [])
        words = ["-shared", "-Xcompiler", "-fPIC", "-cudart", "static", f"-I{folder}", *included]
        words += [str(source), str(_copy(DRIVER, folder)), *libraries, "-o", str(output)]
        try:
            _compile(variant, arch, words, folder, sandboxed)
        except UserError as error:
            if absent := absent_header(error):
                raise VariantFailure(
                    "unsupported", f"{variant.name} includes {absent}, which CUDA here lacks"
                ) from None
            raise
        made.write_bytes(output.read_bytes())
    return kept


def absent_header(error: UserError) -> str:
    """The header that a compiler did not find, by its words; empty where it complains of something else."""
    named = re.search(r"error: ([\w/]+\.h(pp)?): No such file", str(error))
    return named[1] if named else ""


def driver_steps(interface: ece408.Interface) -> str:
    """What the driver includes: the calls of one layer, each followed by a look whether CUDA refused something."""
    named = zip(("prolog", "convolution", "epilog"), interface.steps, strict=True)
    methods = " ".join(f'void {name}() {{ {calls} note("{name}", cudaPeekAtLastError()); }}' for name, calls in named)
    pointers = "float *device_x = nullptr, *device_w = nullptr, *device_y = nullptr;"
    return f"struct Steps : Layer {{ GPUInterface gpu; {pointers} {methods} }};\n"


def _lay_out(variant: Variant, folder: Path) -> Path:
    """A variant's source in a folder, and beside it the headers that it includes of the course."""
    assert variant.cuda_source is not None and variant.course is not None
    source = folder / variant.cuda_source.name
    source.write_text(variant.text)
    (folder / ece408.HEADER).write_text(f"#pragma once\n{variant.course.declaration}\n")
    _copy(MATRIX_PRODUCT, folder)
    return source


def _copy(path: Path, folder: Path) -> Path:
    copy = folder / path.name
    copy.write_text(path.read_text())
    return copy


def _compile(variant: Variant, arch: str, words: list[str], folder: Path, sandboxed: bool) -> str:
    """What the compiler says. Raises UserError where it fails."""
    command = [str(find_compiler()), *options(variant, arch), *words]
    refused = f"{variant.name} does not compile for {arch}"
    return cpp_compiler.run_compiler(command, folder, sandboxed, refused, list(_compiler_folders()))


def _toolkit() -> Path:
    """The folder of the compiler's toolkit, which may lie anywhere."""
    return Path(str(find_compiler())).resolve().parent.parent


def _compiler_folders() -> Iterator[Path]:
    """Folders that the compiler reads."""
    yield _toolkit()
    yield from (
        path for path in (cuda_toolkit.USUAL, cuda_toolkit.USUAL.resolve()) if path.is_dir() and path != _toolkit()
    )


def _cublas() -> tuple[list[str], list[str]]:
    """The compiler's options for cuBLAS's headers, and those for its library: the toolkit's own, or of NVIDIA's wheels;
    none where it is in neither, which the compiler then says."""
    toolkit = _toolkit()
    homes = [
        toolkit,
        cuda_toolkit.USUAL,
        *(Path(path) / "nvidia" / kind for path in sys.path for kind in ("cu13", "cublas")),
    ]
    headers = [home / "include" for home in homes if (home / "include" / "cublas_v2.h").is_file()]
    folders = [home / kind for home in homes for kind in ("lib64", "lib")]
    libraries = [path for folder in folders for path in sorted(folder.glob("libcublas.so*"))]
    included = [f"-I{headers[0]}"] if headers and headers[0].parent != toolkit else []
    if not libraries:
        return included, ["-lcublas"]
    # By its path, whatever the version that ends its name; it finds others of its folder by ours.
    told = (str(libraries[0]), f"-rpath={libraries[0].parent}", "--disable-new-dtags")
    return included, [word for each in told for word in ("-Xlinker", each)]


class Driver:
    """A file of the course with its driver, loaded: it calls the file on arrays of the host's, x, w and y."""

    def __init__(self, path: Path):
        self._library = ctypes.CDLL(str(path))
        self._library.warpbook_said.restype = ctypes.c_char_p

    @property
    def error_message(self) -> str:
        """What CUDA said of an error in the last call; empty where there was none."""
        return bytes(self._library.warpbook_said()).decode(errors="replace")

    def course(self, case: Case, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """Op Time and Layer Time of a layer run as the course's program does, in milliseconds: `op`, `layer`."""
        times = self._call(self._library.warpbook_course, case, x, w, y)
        return {"op": times[0], "layer": times[1]}

    def without(self, case: Case, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """Run one layer without `conv_forward_gpu`, and time nothing. Raises VariantFailure."""
        self._call(self._library.warpbook_without, case, x, w, y)
        return {}

    def device(self, case: Case, x: np.ndarray, w: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """The device's milliseconds for `conv_forward_gpu`: `cold` and, where its data fit, `hot`."""
        times = self._call(self._library.warpbook_device, case, x, w, y, ctypes.c_double(HOT_WITHIN))
        return {state: time_ms for state, time_ms in zip(("cold", "hot"), times, strict=True) if time_ms >= 0}

    def _call(self, function: Callable[..., int], case: Case, *arguments: object) -> list[float]:
        arrays = [argument for argument in arguments if isinstance(argument, np.ndarray)]
        extents = (case.N, case.M, case.C, case.H, case.W, case.K)
        times = (ctypes.c_double * 2)(-1, -1)
        rest = arguments[len(arrays) :]
        if function(*(ctypes.c_void_p(array.ctypes.data) for array in arrays), *extents, *rest, times):
            raise VariantFailure("launch_failed", f"CUDA: {self.error_message}")
        return list(times)
