"""Variants built: CUDA C++ to cubins with NVRTC, which needs no GPU; C++ to a library of the host's; PTX of other
languages assembled for its resources."""

import base64
import contextlib
import functools
import hashlib
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpbook.common.errors import MachineFault, UserError
from warpbook.common.files import PROJECT, atomic_write, scratch_folder
from warpbook.common.supervision import VariantFailure, limit_resources, run_supervised
from warpbook.harness import cpp_compiler, nvcc, sandbox
from warpbook.harness.cpp_compiler import COMPILE_BYTES, COMPILE_S
from warpbook.kernels import occupancy, sources, variants
from warpbook.kernels.languages import Compiled
from warpbook.kernels.launch_inference import cuda_ast
from warpbook.kernels.variants import Variant
from warpbook.machine import faults
from warpbook.runs import tables

FOLDER = Path("results/builds")
PROJECT_CUBINS = PROJECT / "results" / "cubins"
OPTIONS = ("--std=c++17", "-lineinfo")
LANGUAGE_BYTES = 16 << 30
"""Address space of compilers in Python: LLVM and CUDA's libraries map gigabytes that they do not touch."""


@dataclass(frozen=True)
class Build:
    """One variant built for one architecture: rows of BUILDS, the compiler's words in them, and the cubin; None where
    it does not compile, or is not CUDA C++. `ptx` of kernels in another language, by name."""

    variant: str
    arch: str
    cubin: bytes | None
    rows: tuple[dict[str, Any], ...]
    ptx: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return bool(self.rows[0]["ok"])

    @property
    def log(self) -> str:
        return str(self.rows[0]["log"])


def compiler_options(arch: str, defines: list[str]) -> list[str]:
    """NVRTC's options, without the path of this machine's CUDA headers."""
    return [f"--gpu-architecture={arch}", *OPTIONS, *defines]


def recorded_options(variant: Variant, arch: str) -> str:
    """The options that a variant is compiled with for an architecture, as BUILDS holds them."""
    if variant.course:
        return " ".join(nvcc.options(variant, arch))
    if variant.language:
        return ""
    made = compiler_options(variant.header.compile_target(arch), variant.defines)
    return " ".join(cpp_compiler.options(variant) if variant.cpp_source else made)


def _version() -> tuple[int, int]:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


def compiler() -> str:
    """The compiler's name and version, as `NVRTC 13.0`."""
    return "NVRTC {}.{}".format(*_version())


def supports(arch: str) -> bool:
    """Whether this NVRTC makes code for an architecture such as sm_90."""
    from cuda.bindings import nvrtc

    return int(arch.removeprefix("sm_").rstrip("af")) in _check_result(nvrtc.nvrtcGetSupportedArchs())


def _standard(name: str) -> str:
    opened = "namespace cuda { namespace std {} }\nnamespace std { using namespace cuda::std; }\n"
    return f"#include <cuda/std/{name}>\n{opened}"


_FLOATS = """namespace std {}
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
"""
_OF_HOST = (
    "cctype", "cerrno", "chrono", "cstdio", "cstring", "ctime", "ctype.h", "deque", "errno.h", "exception",
    "fcntl.h", "fstream", "functional", "future", "inttypes.h", "iomanip", "iostream", "list", "map", "memory",
    "mutex", "numeric", "omp.h", "pthread.h", "queue", "random", "set", "signal.h", "sstream", "stdexcept",
    "stdio.h", "string", "string.h", "sys/mman.h", "sys/stat.h", "sys/time.h", "sys/types.h", "thread", "time.h",
    "unistd.h", "unordered_map", "vector",
)  # fmt: skip
STANDARD = {
    **dict.fromkeys(_OF_HOST, "namespace std {}\n"),
    **{name: _standard(name) for name in ("cmath", "cstdint", "cstdlib", "cstddef", "cassert", "limits", "climits")},
    **{name: _standard(name) for name in ("array", "tuple", "type_traits", "utility")},
    "algorithm": _standard("__algorithm/max.h") + _standard("__algorithm/min.h"),
    **{f"{name}.h": _standard(f"c{name}") for name in ("math", "stdlib", "assert", "stdint", "stddef", "limits")},
    **dict.fromkeys(("cfloat", "float.h"), _FLOATS),
}
PRELUDE = "warpbook_prelude.h"
STANDARD[PRELUDE] = Path(__file__).with_name(PRELUDE).read_text()
"""C++'s headers that kernels include, and NVRTC has not: CUDA's own of the same names, or nothing device code could
call."""

_OF_HOST_CUDA = re.compile(
    r"cuda(_runtime(_api)?|_profiler_api|Profiler|_gl_interop)?\.h|cu(blas|dnn|fft|sparse|solver|pti|tensor)\w*\.h"
    r"|curand(_precalc)?\.h|(device_launch_parameters|device_functions|driver_types|vector_types|vector_functions"
    r"|host_defines|builtin_types|nvml|nccl|nvToolsExt)\.h|nvtx3/.*|bits/stdc\+\+\.h|helper_\w+\.h|exception\.h|(\.\./)*common/inc/.*"
)
"""Headers of the host's CUDA, and what NVRTC knows without them."""
_NAMED = {
    **{name: rf"\b{name}\s*::" for name in ("thrust", "cub", "cuda")},
    "cuda_bf16.h": "bf16|bfloat", "cuda_bf16.hpp": "bf16|bfloat", "cuda_fp8.h": "fp8", "cuda_pipeline.h": "pipeline",
    "curand_kernel.h": "curand", "cuComplex.h": "cu\\w*Complex",
}  # fmt: skip
"""Libraries and headers for host and device: what a device's code has to name where it uses them."""


@functools.cache
def _header_folders() -> tuple[Path, ...]:
    """Folders of the headers that CUDA brings here."""
    from cuda.pathfinder import find_nvidia_header_directory

    return tuple(Path(folder) for name in ("cudart", "cccl") if (folder := find_nvidia_header_directory(name)))


def without_host_headers(text: str) -> tuple[str, list[str]]:
    """CUDA C++ of the device without the includes that are the host's or that are not here, every line in its place;
    and those that are not here, each with its line, which may explain what does not compile without them."""
    plain, absent = sources.without_comments(text), []
    without_includes = sources.without_comments(sources.INCLUDE_LINE.sub("", text))

    def keep_for_device(match: re.Match[str]) -> str:
        name, library = match[2].strip(), match[2].partition("/")[0]
        if "include" not in plain[match.start() : match.end()] or name in STANDARD:
            return match[0]
        if (used := _NAMED.get(library)) and not re.search(used, without_includes):
            return ""
        if _OF_HOST_CUDA.fullmatch(name):
            return ""
        if sources.find_within(_header_folders(), name):
            return match[0]
        absent.append((name, text.count("\n", 0, match.start()) + 1))
        return ""

    made = sources.INCLUDE_LINE.sub(keep_for_device, text)
    return made, [f"line {line}: there is no {name} here" for name, line in absent]


def device_source(variant: Variant) -> str:
    """A variant's CUDA C++ without the host's code in it. Where it is said how its kernel is called, what stands behind
    it does not compile unless the kernel takes what it is passed: a driver would take anything."""
    text = variant.text
    if not variant.course:
        text, _ = without_host_headers(cuda_ast.device_code(text))
    asserted = ""
    for kernel, listed in variant.launched:
        kinds = variant.passed_kinds(kernel, listed)
        words = f"{kernel} takes others than the {len(listed)} `arguments` of its header: pointers and numbers"
        asserted += f'static_assert(warpbook_takes({kernel}, "{kinds}"), "{words}");\n'
    taken = Path(__file__).with_name("kernel_arguments.cuh")
    return f"{text}\n\n{taken.read_text()}{asserted}" if asserted else text


def absent_headers(variant: Variant) -> list[str]:
    """Headers that a variant's device code is built without, since they are not here, each with its line."""
    return [] if variant.course else without_host_headers(cuda_ast.device_code(variant.text))[1]


def compile_with_limits(
    source: str, name: str, options: list[str], kernels: Sequence[str] = ()
) -> tuple[bytes | None, str]:
    """`compile_source` in a process of its own with bounds on its time and memory; the log tells where they end it."""

    def produce() -> Iterator[tuple[bytes | None, str]]:
        limit_resources(COMPILE_BYTES, COMPILE_S)
        yield compile_source(source, name, options, kernels)

    try:
        (made,) = run_supervised(produce, COMPILE_S)
    except (VariantFailure, RuntimeError) as error:
        if lack := faults.little_memory():
            raise MachineFault(f"not judged: {lack}") from error
        return None, f"{name}: the compiler failed ({error}); it may take {COMPILE_BYTES >> 30} GiB and {COMPILE_S} s"
    return made


def compile_source(source: str, name: str, options: list[str], kernels: Sequence[str] = ()) -> tuple[bytes | None, str]:
    """(cubin, compiler's log) of CUDA C++ source; the cubin is None when it does not compile. `kernels` are those of
    templates, as conv<16>. A second try is as nvcc takes it: C's types without a header, constexpr functions in
    kernels."""
    cubin, log = _compile_once(source, name, options, kernels)
    if cubin is None and re.search(r"without execution space annotations|undefined|has no member", log):
        asked = [*options, "-default-device", f"--pre-include={PRELUDE}"]
        return _compile_once(source, name, asked, kernels)
    return cubin, log


def _compile_once(source: str, name: str, options: list[str], kernels: Sequence[str]) -> tuple[bytes | None, str]:
    from cuda.bindings import nvrtc

    folders = _header_folders()
    includes = [f"--include-path={folder}" for folder in folders]
    headers = STANDARD if any((folder / "cuda" / "std").is_dir() for folder in folders) else dict.fromkeys(STANDARD, "")
    # A program that CUDA 13's NVRTC takes from its cache has no log, and the log is where the kernels' resources are.
    cached = ["--no-cache"] if _version() >= (13, 0) else []
    options = [*options, *cached, "--ptxas-options=-v", *includes]
    texts, names = ([each.encode() for each in listed] for listed in (headers.values(), headers))
    program = _check_result(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), len(names), texts, names))
    try:
        encoded = [option.encode() for option in options]
        for kernel in kernels:
            _check_result(nvrtc.nvrtcAddNameExpression(program, kernel.encode()))
        status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        log = _buffer(_check_result(nvrtc.nvrtcGetProgramLogSize(program)))
        _check_result(nvrtc.nvrtcGetProgramLog(program, log))
        text = log.rstrip(b"\0 ").decode(errors="replace").strip()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return None, text or str(status)
        cubin = _buffer(_check_result(nvrtc.nvrtcGetCUBINSize(program)))
        _check_result(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin, text
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _buffer(size: int) -> bytes:
    """A bytes object for NVRTC to write into. Never of one byte: Python shares those, and all would change at once."""
    return b" " * max(size, 2)


def _check_result(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if int(status) != 0:
        raise UserError(f"NVRTC failed: {status.name}")
    return values[0] if values else None


def symbols(cubin: bytes) -> list[str]:
    """Names of a cubin's kernels as the compiler gave them: each has a section of its own."""
    return sorted({name.decode() for name in re.findall(rb"\.text\.([\w$]+)\0", cubin)})


_FUNCTION = re.compile(r"Compiling entry function '(\w+)'.*?(?=Compiling entry function|\Z)", re.DOTALL)


def resource_usage(log: str) -> list[dict[str, Any]]:
    """Registers, shared and local memory and spills of each kernel, from ptxas's verbose log."""

    def number(pattern: str, text: str) -> int:
        match = re.search(pattern, text)
        return int(match.group(1)) if match else 0

    return [
        {
            "kernel": match.group(1),
            "registers": number(r"Used (\d+) registers", match.group(0)),
            "shared_bytes": number(r"(\d+) bytes smem", match.group(0)),
            "local_bytes": number(r"(\d+) bytes stack frame", match.group(0)),
            "spill_bytes": number(r"(\d+) bytes spill stores", match.group(0))
            + number(r"(\d+) bytes spill loads", match.group(0)),
        }
        for match in _FUNCTION.finditer(log)
    ]


def compiler_messages(log: str) -> str:
    """A compiler's log without ptxas's lines on resources."""
    lines = [line.lstrip("\0") for line in log.splitlines()]
    kept = (line for line in lines if line.strip() and re.match("(?!ptxas)|ptxas error|.*Performance Loss", line))
    return "\n".join(kept)


def build(variant: Variant, arch: str) -> Build:
    """Compile one variant for one architecture. A variant that does not compile gives a row that says why."""
    if variant.language and not variant.read_error:
        return _build_in_language(variant, arch)
    cubin, log = None, variant.read_error
    if not variant.read_error:
        if not supports(arch):
            log = f"{compiler()} makes no code for {arch}; take it out of `architectures`, or install the other CUDA"
        else:
            templated = [kernel for kernel in variant.kernels if "<" in kernel]
            options = compiler_options(variant.header.compile_target(arch), variant.defines)
            cubin, log = compile_with_limits(device_source(variant), variant.files[0].name, options, templated)
            if cubin is None and (absent := absent_headers(variant)):
                log = f"{variant.files[0].name}, {'; '.join(absent)}\n{log}"
    kernels = resource_usage(log) if cubin else []
    main = sources.find_symbol(variant.kernel, (kernel["kernel"] for kernel in kernels))
    if cubin and main is None:
        there = ", ".join(sources.plain_name(kernel["kernel"]) for kernel in kernels) or "none"
        cubin, log = None, f"{variant.files[0].name} has no kernel {variant.kernel}, or several of that name: {there}"
    if cubin and variant.header.block and variant.launcher is None:
        (kernel,) = (kernel for kernel in kernels if kernel["kernel"] == main)
        threads = math.prod(variant.header.block)
        if reason := occupancy.register_limit_reason(arch, threads, kernel["registers"], kernel["shared_bytes"]):
            cubin, log = None, f"{variant.files[0].name}: {reason}"
    if cubin is None:
        return _failed_build(variant, arch, log)
    names = [kernel["kernel"] for kernel in kernels]
    for kernel in kernels:
        plain = sources.plain_name(kernel["kernel"])
        if sources.find_symbol(plain, names) == kernel["kernel"]:
            kernel["kernel"] = plain
    return Build(variant.name, arch, cubin, _rows(variant, arch, compiler(), True, compiler_messages(log), kernels))


def not_compiled_reason(variant: Variant) -> str:
    """Why nothing is known of what a variant in another language is compiled to; empty where it can be."""
    said = "def compiled(" in variant.launcher_code
    return variant.missing or ("" if said else f"{variant.name} does not say what it is compiled to: `compiled(arch)`")


def _build_in_language(variant: Variant, arch: str) -> Build:
    """Compile the kernels of a variant in another language than CUDA C++, as its `compiled` does it."""

    def produce() -> Iterator[tuple[dict[str, str], list[dict[str, Any]]]]:
        limit_resources(LANGUAGE_BYTES, COMPILE_S)
        made: dict[str, Compiled] = variant.module.compiled(arch)
        yield {name: one.ptx for name, one in made.items()}, [_assemble(name, *one) for name, one in made.items()]

    assert variant.language
    compiler = variant.language.version
    try:
        ((ptx, kernels),) = run_supervised(produce, COMPILE_S)
    except MachineFault:
        raise
    except (VariantFailure, RuntimeError, UserError) as error:
        return Build(variant.name, arch, None, _rows(variant, arch, compiler, False, str(error), [{"kernel": ""}]))
    return Build(variant.name, arch, None, _rows(variant, arch, compiler, True, "", kernels), ptx)


def _assemble(name: str, ptx: str, shared_bytes: int, assembler: str) -> dict[str, Any]:
    """What the assembler tells of a kernel by its PTX, with its language's shared memory; else its name alone."""
    program = assembler or ptxas()
    target = re.search(r"^\.target (sm_\w+)", ptx, re.MULTILINE)
    if program is None or target is None:
        return {"kernel": name}
    with scratch_folder() as folder:
        (folder / "kernel.ptx").write_text(ptx)
        command = [program, "-v", f"-arch={target[1]}", "kernel.ptx", "-o", "kernel.cubin"]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if said.returncode:
        raise UserError(f"{name}: {said.stderr.strip()}")
    (usage,) = resource_usage(said.stdout + said.stderr)
    return {**usage, "kernel": name, "shared_bytes": usage["shared_bytes"] + shared_bytes}


def ptxas() -> str | None:
    """The assembler of the CUDA toolkit that nvcc is of, or on PATH; None where there is none."""
    compiler = nvcc.find_compiler()
    beside = compiler.with_name("ptxas") if compiler else None
    return str(beside) if beside and beside.exists() else shutil.which("ptxas")


def _failed_build(variant: Variant, arch: str, log: str) -> Build:
    return Build(
        variant.name, arch, None, _rows(variant, arch, compiler(), False, compiler_messages(log), [{"kernel": ""}])
    )


def _rows(
    variant: Variant, arch: str, compiler: str, ok: bool, log: str, kernels: list[dict[str, Any]]
) -> tuple[dict[str, Any], ...]:
    """Rows of BUILDS, one for each kernel, without a value where its compiler tells none."""
    shared = {
        "variant": variant.name,
        "arch": arch,
        "source_sha256": variant.source_sha256,
        "options": recorded_options(variant, arch),
        "compiler": compiler,
        "ok": ok,
        "log": log,
    }
    return tuple({name: {**kernel, **shared}.get(name) for name in tables.BUILDS.columns} for kernel in kernels)


def build_course(variant: Variant, arch: str, sandboxed: bool) -> Build | None:
    """Compile the kernels of a file of the course with nvcc. One that does not compile gives a row that says why; None
    where this machine lacks a header of CUDA's that it includes."""
    try:
        cubin, log = nvcc.cubin(variant, arch, sandboxed)
    except MachineFault:
        raise
    except UserError as error:
        if nvcc.absent_header(error):
            return None
        rows = _rows(variant, arch, nvcc.version(), False, str(error), [{"kernel": ""}])
        return Build(variant.name, arch, None, rows)
    kernels = [{**kernel, "kernel": sources.plain_name(kernel["kernel"])} for kernel in resource_usage(log)]
    return Build(variant.name, arch, cubin, _rows(variant, arch, nvcc.version(), True, "", kernels))


def build_host(variant: Variant, sandboxed: bool) -> Build:
    """Compile a C++ variant for this machine. One that does not compile gives a row that says why."""
    log, arch = variant.read_error, cpp_compiler.architecture()
    if not log:
        try:
            cpp_compiler.library(variant, sandboxed)
        except MachineFault:
            raise
        except UserError as error:
            log = str(error)
    kernel = "" if log else variant.problem.function
    rows = _rows(variant, arch, cpp_compiler.compiler_version(), not log, log, [{"kernel": kernel}])
    return Build(variant.name, arch, None, rows)


def build_all(variant: Variant, architectures: list[str], folder: Path, sandboxed: bool = False) -> list[Build]:
    """Build a variant for every architecture that it is for into `folder`: `<arch>.cubin` for each that compiles, and
    builds.csv. C++ is for this machine's alone. `sandboxed`, a source can include no file of its user's."""
    wanted = [arch for arch in architectures if variant.supports_arch(arch)]
    if variant.cpp_source:
        builds = [build_host(variant, sandboxed)]
    elif variant.course and not variant.read_error:
        # Not NVRTC's: it takes no host code. Without nvcc there is nothing to say of the builds.
        tried = [build_course(variant, arch, sandboxed) for arch in wanted] if nvcc.find_compiler() else []
        builds = [made for made in tried if made]
    elif variant.language and not variant.read_error and not_compiled_reason(variant):
        builds = []
    else:
        builds = list(_build_in_sandbox(variant, wanted)) if sandboxed else [build(variant, arch) for arch in wanted]
    with atomic_write(folder) as temporary:
        temporary.mkdir()
        for made in builds:
            if made.cubin:
                (temporary / f"{made.arch}.cubin").write_bytes(made.cubin)
            for kernel, text in made.ptx.items():
                (temporary / f"{made.arch}.{kernel}.ptx").write_text(text)
        tables.BUILDS.write([row for made in builds for row in made.rows], temporary / "builds.csv")
    return builds


def _build_in_sandbox(variant: Variant, architectures: list[str]) -> Iterator[Build]:
    """`build` for each architecture, in the sandbox. What comes from there may be a stranger's words."""
    left = list(architectures)
    command = ["-m", __name__, variant.name, str(variant.files[0].parent.absolute()), *architectures]
    try:
        for answer in run_supervised(lambda: sandbox.results(command, variant.files), COMPILE_S, apart=True):
            yield _read(variant, left.pop(0), answer)
    except (VariantFailure, IndexError) as failure:
        yield from (_failed_build(variant, arch, f"{variant.name}: {failure}") for arch in left)


def _read(variant: Variant, arch: str, answer: Any) -> Build:
    """A build as `main` says it. Raises VariantFailure where it is none."""
    with sandbox.reject_malformed_answers("compiler"):
        cubin = None if answer["cubin"] is None else base64.b64decode(answer["cubin"])
        ptx = {str(name): str(text) for name, text in answer["ptx"].items()}
        made_by = str(answer["kernels"][0]["compiler"]) if variant.language else compiler()
        ok = bool(ptx if variant.language else cubin)
        rows = _rows(variant, arch, made_by, ok, str(answer["log"]), answer["kernels"])
        tables.BUILDS.text(rows, "its build")
        if not rows:
            raise ValueError
        if any(not re.fullmatch(r"\w+", name) for name in ptx):  # they name files
            raise ValueError
    return Build(variant.name, arch, cubin, rows, ptx)


def main() -> None:
    """Build in the sandbox, and say it. Arguments: the variant, its folder, architectures."""
    name, folder, *architectures = sys.argv[1:]
    variant = variants.read(name, Path(folder))

    def builds() -> Iterator[dict[str, Any]]:
        for arch in architectures:
            made = build(variant, arch)
            cubin = made.cubin and base64.b64encode(made.cubin).decode()
            yield {"cubin": cubin, "log": made.log, "kernels": made.rows, "ptx": made.ptx}

    sandbox.emit(builds())


def cubin_for(variant: Variant, arch: str, folder: Path = FOLDER) -> bytes:
    """The variant's cubin for this architecture: the stored one of this source, else built. Raises UserError."""
    stored = folder / variant.name
    if (stored / f"{arch}.cubin").exists():
        identity = (True, variant.source_sha256, recorded_options(variant, arch))
        rows = [row for row in tables.BUILDS.rows(stored / "builds.csv") if row["arch"] == arch]
        if rows and all((row["ok"], row["source_sha256"], row["options"]) == identity for row in rows):
            return (stored / f"{arch}.cubin").read_bytes()
    if (made := build(variant, arch)).cubin is None:
        raise UserError(f"{variant.name} does not compile for {arch}:\n{made.log}")
    return made.cubin


def project_cubin(
    source: Path, arch: str, folder: Path = PROJECT_CUBINS, text: str = "", defines: Sequence[str] = ()
) -> bytes:
    """The cubin of one of the project's .cu files, or of `text`, kept under its hash. Raises UserError."""
    options, text = compiler_options(arch, [*defines]), text or source.read_text()
    identity = hashlib.sha256("\0".join([text, *options, compiler()]).encode()).hexdigest()
    kept = folder / f"{source.stem}-{identity[:16]}.cubin"
    if kept.exists():
        return kept.read_bytes()
    cubin, log = compile_source(text, source.name, options)
    if cubin is None:
        raise UserError(f"{source.name} does not compile for {arch}:\n{log}")
    with contextlib.suppress(UserError), atomic_write(kept) as temporary:  # where nothing can be kept, nothing is
        temporary.write_bytes(cubin)
    return cubin


if __name__ == "__main__":
    main()
