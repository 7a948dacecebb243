"""CUDA C++ variants emulated on the CPU: the system's C++ compiler compiles a kernel's source, sanitizers on.

For machines without a GPU, CI's among them: a wrong kernel is caught there too, and a wrong file of the course, whose
host code runs with it. What a source uses of CUDA that is not here is beyond the emulator, which says nothing about the
source. No maintained library does this for plain CUDA C++ (HIP-CPU, which came nearest, is no longer developed), so files
beside this module supply CUDA: `emulator.h` and `.cpp` have blocks and their threads, `emulator_types.h`, `_math.h`,
`_half.h`, `_device.h` and `_groups.h` what device code calls, `emulator_host.h` and `_runtime.h` the runtime. They are
compiled once, and each source with them: under the sanitizers, and once more with each access to memory reported to
`races.cpp`.
"""

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from warpbook.common.errors import UserError
from warpbook.common.files import LIBRARY, atomic_write
from warpbook.common.supervision import VariantFailure
from warpbook.harness import building, cpp_compiler, ece408_worker, emulated_worker, nvcc
from warpbook.harness.emulator import architecture, cuda_names, translation
from warpbook.kernels import ece408, occupancy, sources, variants
from warpbook.kernels.launch_inference import cuda_ast, inferred_facts, launch_sites, python_launches
from warpbook.kernels.launch_inference.extent_names import HostNames
from warpbook.kernels.launch_inference.inferred_facts import UnreadableLaunch
from warpbook.kernels.variants import Variant
from warpbook.problems import problem

HEADER = Path(__file__).with_name("emulator_runtime.h")
INCLUDED = (
    "emulator.h", "emulator_device.h", "emulator_groups.h", "emulator_half.h",
    "emulator_host.h", "emulator_math.h", "emulator_runtime.h", "emulator_types.h",
)  # fmt: skip
"""All that a translated source includes of ours."""
OWN = ("emulator.cpp", "emulator_device.cpp", "emulator_host.cpp", "emulator_runtime.cpp")
"""All that it is linked with of ours."""
RACES, RACE = "races.cpp", "a data race on "
"""And where data races are looked for; how it reports one."""
CODE = LIBRARY
"""Where projects that share this code keep what is the same for all."""
FLAGS = (
    "-std=gnu++17", "-O1", "-g1", "-fPIC", "-w", "-fno-omit-frame-pointer",
    "-ftrack-macro-expansion=0",  # an error in one of our macros stands where a source uses it
)  # fmt: skip
SANITIZERS = (
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
    # What the address sanitizer finds too, or what no access follows from.
    "-fno-sanitize=vptr,null,object-size,pointer-overflow,nonnull-attribute,returns-nonnull-attribute",
    "-fno-sanitize=shift-base",  # negative numbers shifted left: defined since C++20, and by CUDA's compiler before
    "-ftrivial-auto-var-init=pattern",  # variables without an initializer: a result that depends on them is wrong
)  # fmt: skip
ACCESSES = (
    # The compiler calls functions of races.cpp at each access; ThreadSanitizer's own library is left out.
    "-fsanitize=thread", "--param=tsan-distinguish-volatile=1", "--param=tsan-instrument-func-entry-exit=0",
)  # fmt: skip


def compiler() -> str | None:
    """The C++ compiler; None where there is none."""
    return shutil.which(os.environ.get("CXX", "g++"))


def unsupported_reason(variant: Variant) -> str:
    """Why a variant cannot be emulated or interpreted here; empty when it can."""
    if variant.language:
        alone = f"{variant.name} cannot be checked without a GPU: {variant.language.name} has no interpreter"
        return variant.missing or ("" if variant.language.interpreter else alone)
    if variant.cuda_source is None and not variant.entry:
        return f"{variant.name} is no CUDA C++ of ours"
    if compiler() is None:
        return "the emulator needs a C++ compiler, and there is no g++ here (apt-get install g++)"
    return ""


def cuda_of_python(variant: Variant, folder: Path) -> Variant:
    """The CUDA C++ that stands in a variant's Python file, as a variant in `folder`. Raises VariantFailure where there is
    none, or its launch cannot be read."""
    assert variant.launcher is not None
    names = HostNames(variant.problem)
    try:
        found = python_launches.read(sources.read_text(variant.launcher), names)
    except UnreadableLaunch as reason:
        raise VariantFailure(
            "unsupported", f"{variant.launcher.name}: {reason}; {variant.missing or 'it runs on a GPU'}"
        ) from None
    if found is None:
        raise VariantFailure(
            "unsupported", variant.missing or f"{variant.name} is no CUDA C++, and runs on a GPU alone"
        )
    made = folder / "cuda" / variant.problem.name
    made.mkdir(parents=True)
    (made / problem.FILE).write_text(variant.problem.path.read_text())
    (made / f"{variant.stem}.cu").write_text(found.text)
    if found.facts:
        (made / f"{variant.stem}.yaml").write_text(inferred_facts.yaml_lines(found.facts))
    extracted = variants.read(variant.stem, made)
    if extracted.read_error:  # of the text in it; the file itself may be sound
        needed = variant.missing or f"{variant.name} runs on a GPU"
        raise VariantFailure("unsupported", f"{needed}; of the CUDA C++ in it: {extracted.read_error}")
    return extracted


LEAST_ARCH = "sm_80"


def emulated_arch(variant: Variant) -> str:
    """The architecture whose code of a variant is emulated."""
    arch = variant.header.least_arch
    return arch if architecture.number(arch) >= architecture.number(LEAST_ARCH) else LEAST_ARCH


def for_other_architectures(variant: Variant) -> dict[str, Variant]:
    """A variant as newer architectures see it that see another program, by their names."""
    found = architecture.others(building.device_source(variant), emulated_arch(variant))
    return {arch: replace(variant, header=variant.header.model_copy(update={"least_arch": arch})) for arch in found}


def to_host(variant: Variant, kernels: Sequence[str], own: dict[str, str]) -> str:
    """A variant's source as C++ for the host, to be compiled behind HEADER.

    The kernels, by their names in the source, get a C entry each; a file of the course gets a driver instead. `own` are
    headers that stand for the course's, by name.
    """
    assert variant.cuda_source is not None
    name = variant.cuda_source.name
    source = building.device_source(variant)
    body = translation.to_host(source, name, own, emulated_arch(variant))
    declared = ""
    if variant.course and not ece408.declares_class(source):
        declared = variant.course.declaration
    if not variant.course:  # what headers of CUDA's and of frameworks bring with them
        declared = "".join(
            f"#include <{header}>\n" for header in ("cfloat", "climits", "cstdint", "stdexcept", "vector")
        )
    if variant.course:
        entries = _driver(variant.course)
    else:
        parameters = launch_sites.parameter_names(variant.code)
        entries = "".join(_entry(kernel, parameters.get(sources.plain_name(kernel), ())) for kernel in kernels)
    symbols = "".join(
        f'emulator::races::watch((const void*)&{variable}, sizeof {variable}, "{variable}", {line}, false); '
        for variable, line in translation.device_variables(source)
    )
    watched = f"static const bool emulator_symbols_watched = [] {{ {symbols}return true; }}();\n"
    # Not as options: they would change what the emulator's own header means.
    defined = "".join(f"#define {name} {value}\n" for name, value in variant.header.constants.items())
    return (
        f'EMULATOR_SEE_C_LIBRARY\n{declared}\n{defined}#line 1 "{name}"\n{body}\n#line 1 "driver"\n{watched}{entries}'
    )


def _entry(kernel: str, parameters: Sequence[str]) -> str:
    names = ", ".join([*(f'"{name}"' for name in parameters), "nullptr"])
    return (
        f'extern "C" void {entry_name(kernel)}(const unsigned* grid, const unsigned* block, unsigned shared, '
        "void** arguments, void** arrays, const size_t* bytes, int count, int reversed)"
        f"{{ static const char* const names[] = {{{names}}}; emulator::launch_untyped("
        f"{kernel}, names, grid, block, shared, arguments, arrays, bytes, count, reversed); }}\n"
    )


def _driver(interface: ece408.Interface) -> str:
    prepare, convolve, finish = interface.steps
    return f"""
extern "C" void {ece408_worker.ENTRY}(
    float* x, float* w, float* y, int B, int M, int C, int H, int W, int K, int reversed, int without, int whole,
    unsigned long* blocks)
{{
    const bool idle = without == {ece408_worker.KERNELS}, others = without == {ece408_worker.INPUTS};
    emulator::begin_course(reversed, idle, others, whole, blocks);
    const size_t y_bytes = sizeof(float) * B * M * (H - K + 1) * (W - K + 1);
    emulator::host_array(x, sizeof(float) * B * C * H * W, "the host's x");
    emulator::host_array(w, sizeof(float) * M * C * K * K, "the host's w");
    emulator::host_array(y, y_bytes, "the host's y");
    {{
        GPUInterface gpu;
        float *device_x = nullptr, *device_w = nullptr, *device_y = nullptr;
        {prepare}
        const auto before = emulator::races::enqueued();
        if (without != {ece408_worker.CONVOLUTION}) {{ {convolve} }}
        // The course's program waits here for what conv_forward_gpu began; no file can count on more.
        emulator::races::wait_for_later(before);
        {finish}
    }}
    emulator::races::access(y, y_bytes, false, 0);  // the program goes on with it
    emulator::forget_host_arrays();
    if (emulator::other_inputs && !emulator::inputs_were_copied()) y[0] = __builtin_nanf("");  // a right result would tell nothing
    if (!emulator::sampled) emulator::explain(y, size_t(B) * M * (H - K + 1) * (W - K + 1));
}}
extern "C" const char* {ece408_worker.NOTED}() {{ return emulator::noted.c_str(); }}
extern "C" unsigned long {ece408_worker.LEFT_OUT}() {{ return emulator::left_out; }}
"""


def entry_name(kernel: str) -> str:
    """The name of a kernel's C entry; those of templates too."""
    return "launch_" + re.sub(r"\W", "_", kernel)


def compile_host(variant: Variant, folder: Path, sandboxed: bool, races: bool = False) -> Path:
    """The variant's shared library; UserError with the compiler's words where it is no C++.

    It runs under the sanitizers, or looks for data `races`. `sandboxed`, a source can include nothing of its author's choice but the system's headers.
    """
    assert variant.cuda_source is not None
    stem = f"{variant.stem}-races" if races else variant.stem
    path = folder / f"{stem}.cpp"
    # A launcher may want any of the kernels; without one the header's is enough.
    there = launch_sites.kernel_names(variant.code) if variant.launcher else ()
    kernels = dict.fromkeys([*there, *(kernel for kernel in variant.kernels if "<" in kernel or not there)])
    product = folder / ece408.MATRIX_HEADER
    product.write_text(translation.to_host(nvcc.MATRIX_PRODUCT.read_text(), product.name, {}))
    path.write_text(to_host(variant, list(kernels), {product.name: str(product)}))
    library = folder / f"{stem}.so"
    own = build_emulator(folder, races)
    # Ours first: memory that its own variables begin with is there before the source's.
    files = ["-include", own / HEADER.name, *(own / f"{name}.o" for name in own_sources(races)), path, "-o", library]
    command = [str(compiler()), "-shared", *_options(races), *map(str, files)]
    if races:
        command += ["-nodefaultlibs", "-lstdc++", "-lm", "-lgcc_s", "-lgcc", "-lc"]
    try:
        cpp_compiler.run_compiler(
            command, folder, sandboxed, f"{variant.name} does not compile for the emulator", [own]
        )
    except cpp_compiler.CompileRefusal as error:
        if absent := building.absent_headers(variant):
            raise VariantFailure(
                "unsupported", f"{variant.name}: it needs what is not here: {'; '.join(absent)}"
            ) from None
        names = [path.name for path in (variant.cuda_source, *variant.included)]
        if reason := missing_feature(error.words, *names):
            raise VariantFailure("unsupported", f"{variant.name}: {reason}") from None
        raise
    return library


def own_sources(races: bool) -> tuple[str, ...]:
    return (*OWN, RACES) if races else OWN


def build_emulator(scratch: Path, races: bool = False) -> Path:
    """The folder of what is the same for every source: HEADER, read by the compiler already, and OWN compiled.

    Kept under the hash of all that decides it. Nothing of a variant goes into it, and no variant's process can write
    there. Where nothing can be kept, it is made in `scratch`.
    """
    texts = [HEADER.with_name(name).read_text() for name in (*INCLUDED, *own_sources(races))]
    said = subprocess.run([str(compiler()), "--version"], capture_output=True, text=True, errors="replace").stdout
    # By what it calls itself, not where it lies: a wrapper of a compiler makes the same.
    identity = hashlib.sha256("\0".join([*texts, *_options(races), said or str(compiler())]).encode())
    name = f"emulator-{identity.hexdigest()[:16]}"
    for folder in (CODE / "results" / "libraries", cpp_compiler.LIBRARIES, scratch):
        try:
            with _exclusive_lock(folder / f".{name}.lock"):
                if not (folder / name).exists():
                    with atomic_write(folder / name) as made:
                        _make(made, races)
            return (folder / name).resolve()
        except cpp_compiler.CompileRefusal:
            raise
        except (UserError, OSError):
            if folder == scratch:
                raise
    raise AssertionError


@contextlib.contextmanager
def _exclusive_lock(lock: Path) -> Iterator[None]:
    """Hold a lock's file: of several processes that want the same made, one makes it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _make(folder: Path, races: bool) -> None:
    """Copy our headers and sources, so that what is kept is valid wherever the project lies, and compile them."""
    folder.mkdir()
    for name in (*INCLUDED, *own_sources(races)):
        shutil.copy(HEADER.with_name(name), folder)
    header = folder / HEADER.name
    jobs = [(*_options(races), "-x", "c++-header", str(header), "-o", f"{header}.gch")]
    # Our own accesses are none of a kernel's.
    options = (*FLAGS, *_f16c_options(), "-O2", "-DEMULATOR_RACES") if races else _options(races)
    jobs += [(*options, "-c", str(folder / name), "-o", str(folder / f"{name}.o")) for name in own_sources(races)]
    for job in jobs:
        cpp_compiler.run_compiler([str(compiler()), *job], folder, False, "the emulator does not compile")


def _options(races: bool) -> tuple[str, ...]:
    """What sources are compiled with, and with sanitizers on what they are linked with."""
    return (*FLAGS, *_f16c_options(), *((*ACCESSES, "-DEMULATOR_RACES") if races else SANITIZERS))


@functools.cache
def _f16c_options() -> tuple[str, ...]:
    """The option for instructions that convert half precision, where this processor has them."""
    with contextlib.suppress(OSError):
        if re.search(r"^flags\b.*\bf16c\b", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return ("-mf16c",)
    return ()


_NO_CPP = (
    "expected", "was not declared in this scope", "redefinition", "redeclar", "stray", "#error",
    translation.CONSTANT_LIMIT,
)  # fmt: skip
"""The C++ compiler's words for what CUDA's would refuse too."""


_VECTOR = re.compile(r"u?(char|short|int|long|longlong)[1-4]|(float|double)[1-4]|dim3")


def _is_lacking(name: str) -> bool:
    """Whether CUDA has a name that the emulator has not."""
    return cuda_names.is_of_cuda(name) and not (
        _VECTOR.fullmatch(name) or re.search(rf"\b{re.escape(name)}\b", _own_text())
    )


@functools.cache
def _own_text() -> str:
    return "\n".join(HEADER.with_name(name).read_text() for name in INCLUDED)


def missing_feature(words: str, *names: str) -> str:
    """What of CUDA the emulator lacks, by the C++ compiler's words on a source's files; empty where it is no C++.

    A name that CUDA declares and the emulator has not excuses all errors: others follow from it.
    """
    own = rf"(?:.*/)?(?:{'|'.join(map(re.escape, names))}):(\d+):\d+: (?:fatal )?error: (.*)"
    errors = [found.groups() for line in words.splitlines() if (found := re.match(own, line))]
    for number, error in errors:
        if "No such file" in error:
            return f"beyond the emulator: #include {error.partition(':')[0]}, line {number}"
        named = re.findall(r"[‘']([^’']+)[’']", error.partition("; did you mean")[0])
        if any(map(_is_lacking, named)) or "beyond the emulator" in error:
            return f"beyond the emulator: {error.rpartition('beyond the emulator: ')[2]}, line {number}"
    in_ours = next((line for line in words.splitlines() if re.match(r"\S*emulator\S*:\d+:\d+: error: ", line)), "")
    if assembled := re.search(r":(\d+): Error: (.*)", words):  # PTX that a macro holds reaches the host's assembler
        return f"beyond the emulator: PTX in a macro, line {assembled[1]}"
    if in_ours:
        return f"beyond the emulator: {in_ours.partition('error: ')[2]}"
    if errors and not any(kind in errors[0][1] for kind in _NO_CPP):
        return f"beyond the emulator: {errors[0][1]}, line {errors[0][0]}"
    return ""


class EmulatedKernels:
    """A variant's kernels as its launcher sees them: the host's stand-in for `gpu_bench.GpuKernels`."""

    def __init__(self, library: Path, constants: Mapping[str, int], reversed_order: bool = False):
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            if not (reason := emulated_worker.undefined_symbol(error)):
                raise
            raise UserError(reason) from None
        self.constants = constants
        self._reversed = reversed_order

    def function(self, name: str, shared_bytes: int = 0, early: bool = False) -> Callable[..., None]:
        """A kernel: call it with grid, threads and arguments; a stream, if given, is the order of the calls."""
        entry = getattr(self._library, entry_name(name))

        def call(
            grid: tuple[int, ...], threads: tuple[int, ...], arguments: tuple[Any, ...], stream: Any = None
        ) -> None:
            if reason := occupancy.launch_limit_reason(grid, threads, shared_bytes):
                raise VariantFailure("launch_failed", f"{name}: {reason}")
            held, wholes = [_argument(value) for value in arguments], [_allocation(value) for value in arguments]
            emulated_worker.launch(entry, grid, threads, shared_bytes, held, wholes, self._reversed)

        return call

    def explain(self, output: np.ndarray) -> str:
        """What may explain that an output of the last call is wrong; empty where nothing is known."""
        if output.dtype != np.float32:
            return ""
        explain = self._library.emulator_explain
        explain.restype = ctypes.c_char_p
        words: bytes = explain(ctypes.c_void_p(output.ctypes.data), ctypes.c_size_t(output.size))
        return words.decode(errors="replace")

    def fill_large(self, number: int) -> str:
        """As `emulated_worker.fill_large`."""
        return emulated_worker.fill_large(self._library, number)

    def sample(self, blocks: int, images: int) -> None:
        """From now on run so many blocks of each launch of a call on a batch; of thousands of launches, some."""
        self._library.emulator_sample(blocks, images)

    @property
    def launches(self) -> int:
        """Launches since `sample`; -1 where their blocks met by atomic operations."""
        return int(self._library.emulator_launches())

    def has(self, name: str) -> bool:
        """Whether there is a kernel of that name."""
        return hasattr(self._library, entry_name(name))

    def symbol(self, name: str) -> "EmulatedSymbol":
        return EmulatedSymbol(ctypes.addressof(ctypes.c_char.in_dll(self._library, name)))

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        return allocate(shape, dtype)

    def streams(self, count: int) -> list[None]:
        return [None] * count


class EmulatedCuPy(types.ModuleType):
    """What a launcher may ask of CuPy where there is no GPU: how large the device is."""

    class Device:
        attributes: ClassVar = {
            "MultiProcessorCount": 2, "MaxSharedMemoryPerBlock": 48 << 10, "WarpSize": 32,
            "MaxSharedMemoryPerBlockOptin": occupancy.SHARED_MAX,
        }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks for some that a module need not have
            raise AttributeError(name)
        raise VariantFailure("unsupported", f"beyond the emulator: {self.__name__}.{name}")

    @classmethod
    def install(cls) -> None:
        """Stand in for CuPy in this process."""
        cupy, cuda = cls("cupy"), cls("cupy.cuda")
        vars(cuda)["Device"] = cls.Device
        vars(cupy)["cuda"] = cuda
        sys.modules |= {"cupy": cupy, "cupy.cuda": cuda}


class EmulatedSymbol:
    """A variable in constant or device memory."""

    def __init__(self, address: int):
        self._address = address

    def copy(self, values: np.ndarray) -> None:
        """Copy an array over it."""
        ctypes.memmove(self._address, values.ctypes.data, values.nbytes)


def _argument(value: Any) -> Any:
    """What a kernel gets: an array's address; a number, or a struct as numpy.void, by value."""
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return (ctypes.c_char * value.nbytes).from_buffer_copy(value.tobytes())


def _allocation(value: Any) -> tuple[int, int]:
    """Where the memory begins that an argument lies in, and its bytes; 0 for a number."""
    if not isinstance(value, np.ndarray):
        return 0, 0
    while isinstance(value.base, np.ndarray):
        value = value.base
    return value.ctypes.data, value.nbytes


def allocate(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """An array in an allocation of exactly its size, so that the sanitizer knows its ends; never freed."""
    count = int(np.prod(shape))
    size = max(1, count * np.dtype(dtype).itemsize)
    memory = (ctypes.c_char * size).from_address(emulated_worker.allocate(size))
    return np.frombuffer(memory, dtype, count).reshape(shape)


def with_lines(words: str, library: Path) -> str:
    """What races.cpp says, each place of an instruction in the library, `@` and a hexadecimal number, as a line of the
    source."""
    return re.sub(r"@([0-9a-f]+)", lambda place: _source_line(library, place[1]), words)


def _source_line(library: Path, place: str) -> str:
    program = shutil.which("addr2line")
    if program is None:
        return "a line that addr2line would tell (apt-get install binutils)"
    asked = [program, "-i", "-e", str(library), f"0x{place}"]
    said = subprocess.run(asked, capture_output=True, text=True, errors="replace").stdout
    lines = [line.partition(" ")[0].rpartition("/")[2] for line in said.splitlines()]
    own = [line for line in lines if not line.startswith(("emulator", "driver", "?"))]
    return f"line {own[0].rpartition(':')[2]}" if own else "an unknown line"


def sanitizer_environment() -> dict[str, str]:
    """The environment of a process that loads emulated kernels: the sanitizer's library must be loaded first."""
    asked = [str(compiler()), "-print-file-name=libasan.so"]
    return {
        "LD_PRELOAD": subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip(),
        # What a host or a launcher allocates and nobody writes is NaN.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:handle_segv=1:color=never:malloc_fill_byte=255"
        f":max_malloc_fill_size={1 << 24}",
        "UBSAN_OPTIONS": "print_stacktrace=1:color=never",
    }


RUN_TIME_LIMITS = {
    "cp.async.cg of other than 16 bytes": r"cp\.async\.cg",
    "cp.async of other than 4, 8 or 16 bytes": r"cp\.async|memcpy_async",
    "a descriptor of swizzled shared memory": "wgmma",
    "wgmma that negates or transposes": "wgmma",
    "a graph that records a product of cuBLAS": "BeginCapture",
    "a product of matrices of this type": "cublas",
    "a texture that converts what it reads": "cudaCreateTextureObject",
    "a texture of this kind of memory": "cudaCreateTextureObject",
    "blocks that wait for each other": r"atomic|volatile|\bld\.",
}
"""What the emulator finds beyond it only as a kernel runs, and the words of code, a pattern, that ask for it."""


_ASSERTED = re.compile(r":(\d+): .*: Assertion `(.*)' failed\.$", re.MULTILINE)
_OF_VALUES = re.compile(r"\[|\w *\(|\d\.|\.\d")
"""What a condition on more than extents has: an array's element, a call, a real number."""


def unsupported_feature(text: str, source: str, course: bool = False) -> str:
    """What an emulated source used that is not here, or asserts and does not have, by what its process wrote; empty where
    nothing. A file of the course is to be right on all its layers, and a kernel for all values: there an assertion that
    fails is a fault.

    A process can write what it likes, so its code must hold what it names; an abort is a fault otherwise.
    """
    if (asserted := _ASSERTED.search(text)) and not course:
        line, condition = asserted.groups()
        is_there = f"assert({condition})".replace(" ", "") in re.sub(r"\s", "", sources.without_comments(source))
        if is_there and not _OF_VALUES.search(condition):
            return f"what it asserts in line {line} does not hold here: {condition}"
    found = re.search(r"^beyond the emulator: (.*), line \d+$", text, re.MULTILINE)
    words = RUN_TIME_LIMITS.get(found[1]) if found else None
    if not found or not words:
        return ""
    instructions = (node for node in cuda_ast.walk(cuda_ast.parse(source)) if node.type == "gnu_asm_expression")
    code = [sources.without_comments(source), *map(cuda_ast.node_text, instructions)]
    return found[0] if any(re.search(words, each) for each in code) else ""


def sanitizer_message(text: str) -> str:
    """The sanitizer's error that ended a process, and its place in the kernel, of what it wrote; empty without one."""
    if words := re.search(r"^emulator: (.*)", text, re.MULTILINE):
        return words.group(1)
    if undefined := re.search(r"[^\s:]+:\d+:\d+: runtime error: (.*)", text):
        # Where a function of ours meets it, the source's line that called it.
        place = re.search(r"([\w.]+\.cuh?:\d+)", text[undefined.start() :])
        return f"undefined behaviour at {place[1] if place else 'an unknown line'}: {undefined[1]}"
    if address := re.search(r"ERROR: AddressSanitizer: ([\w-]+)", text):
        place = re.search(r"#\d+ 0x\w+ in (?:void )?([\w:]+).*?([\w.]+\.cuh?:\d+)", text)
        return (
            f"{address.group(1)}{f' in {place.group(1)} at {place.group(2)}' if place else ''}{_describe_access(text)}"
        )
    return ""


def _describe_access(text: str) -> str:
    """What a bad access was of, by the sanitizer's report: which side of how much memory, and where that was allocated,
    to stand behind its place; empty where the report does not say."""
    if "points to the zero page" in text:
        return ", through a null pointer"
    region = re.search(r"is located (\d+) bytes (to the right of|after|to the left of|before) (\d+)-byte region", text)
    if not region:
        return ""
    access = "write" if re.search(r"^WRITE of size", text, re.MULTILINE) else "read"
    side = "after" if region[2] in ("to the right of", "after") else "before"
    made = re.search(r"[\w.]+\.cuh?:(\d+)", text.partition("allocated by")[2].partition("SUMMARY:")[0])
    return (
        f": a {access} {region[1]} bytes {side} the {region[3]} bytes{f' allocated at line {made[1]}' if made else ''}"
    )
