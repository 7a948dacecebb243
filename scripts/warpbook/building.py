"""CUDA C++ to cubins with NVRTC, which needs no GPU: what the compiler made, and what it said."""

import contextlib
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpbook import tables
from warpbook.errors import UserError
from warpbook.files import written_whole
from warpbook.variants import Variant

FOLDER = Path("results/builds")
OWN = Path(__file__).parents[2] / "results" / "own"
OPTIONS = ("--std=c++17", "-lineinfo")


@dataclass(frozen=True)
class Build:
    """One variant built for one architecture: the cubin, or None with the compiler's words, and rows of BUILDS."""

    variant: str
    arch: str
    cubin: bytes | None
    rows: tuple[dict[str, Any], ...]

    @property
    def log(self) -> str:
        return self.rows[0]["log"]


def options(arch: str, defines: list[str]) -> list[str]:
    """Everything that NVRTC is told, but for where this machine keeps the CUDA headers."""
    return [f"--gpu-architecture={arch}", *OPTIONS, *defines]


def _version() -> tuple[int, int]:
    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


def compiler() -> str:
    """The compiler's name and version, as `NVRTC 13.0`."""
    return "NVRTC {}.{}".format(*_version())


def supported(arch: str) -> bool:
    """Whether this NVRTC makes code for an architecture such as sm_90."""
    from cuda.bindings import nvrtc

    return int(arch.removeprefix("sm_").rstrip("af")) in _checked(nvrtc.nvrtcGetSupportedArchs())


def compile_source(source: str, name: str, told: list[str]) -> tuple[bytes | None, str]:
    """(cubin, compiler's log) of CUDA C++ source; the cubin is None when it does not compile."""
    from cuda.bindings import nvrtc
    from cuda.pathfinder import find_nvidia_header_directory

    include = find_nvidia_header_directory("cudart")
    # A program that CUDA 13's NVRTC takes from its cache has no log, and the log is where the kernels' resources are.
    cached = ["--no-cache"] if _version() >= (13, 0) else []
    told = [*told, *cached, "--ptxas-options=-v", *([f"--include-path={include}"] if include else [])]
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    try:
        encoded = [option.encode() for option in told]
        status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
        log = _buffer(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        text = log.rstrip(b"\0 ").decode(errors="replace").strip()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return None, text or str(status)
        cubin = _buffer(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin, text
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _buffer(size: int) -> bytes:
    """A bytes object for NVRTC to write into. Never of one byte: Python shares those, and all would change at once."""
    return b" " * max(size, 2)


def _checked(result: tuple) -> Any:
    status, *values = result
    if int(status) != 0:
        raise UserError(f"NVRTC failed: {status.name}")
    return values[0] if values else None


_FUNCTION = re.compile(r"Compiling entry function '(\w+)'.*?(?=Compiling entry function|\Z)", re.DOTALL)


def resources(log: str) -> list[dict[str, Any]]:
    """Registers, shared and local memory and spills of each kernel, from ptxas's verbose log."""

    def number(pattern: str, text: str) -> int:
        found = re.search(pattern, text)
        return int(found.group(1)) if found else 0

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


def complaints(log: str) -> str:
    """What of a compiler's log a reader needs: all but ptxas's resource lines."""
    return "\n".join(line for line in log.splitlines() if line.strip() and not line.startswith("ptxas"))


def build(variant: Variant, arch: str) -> Build:
    """Compile one variant for one architecture. A variant that does not compile gives a row that says why."""
    shared = {
        "variant": variant.name,
        "arch": arch,
        "source_sha256": variant.source_sha256,
        "options": " ".join(options(arch, variant.defines)),
        "compiler": compiler(),
    }
    cubin, log = None, variant.problem
    if not variant.problem:
        if not supported(arch):
            log = f"{compiler()} makes no code for {arch}; take it out of `architectures`, or install the other CUDA"
        else:
            assert variant.cuda_source is not None
            source = variant.cuda_source
            cubin, log = compile_source(source.read_text(), source.name, options(arch, variant.defines))
    kernels = resources(log) if cubin else []
    if cubin and not any(kernel["kernel"] == "conv_forward" for kernel in kernels):
        cubin, log = None, f'{variant.files[0].name} exports no extern "C" __global__ conv_forward'
    if cubin is None:
        nothing = dict.fromkeys(("registers", "shared_bytes", "local_bytes", "spill_bytes"))
        kernels = [{"kernel": "", **nothing}]
    rows = tuple({**shared, **kernel, "ok": cubin is not None, "log": complaints(log)} for kernel in kernels)
    ordered = tuple({name: row[name] for name in tables.BUILDS.columns} for row in rows)
    return Build(variant.name, arch, cubin, ordered)


def build_all(variant: Variant, architectures: list[str], folder: Path) -> list[Build]:
    """Build a variant for every architecture that it is for into `folder`: `<arch>.cubin` for each that compiles, and
    builds.csv."""
    builds = [build(variant, arch) for arch in architectures if variant.made_for(arch)]
    with written_whole(folder) as temporary:
        temporary.mkdir()
        for made in builds:
            if made.cubin:
                (temporary / f"{made.arch}.cubin").write_bytes(made.cubin)
        tables.BUILDS.write([row for made in builds for row in made.rows], temporary / "builds.csv")
    return builds


def cubin_for(variant: Variant, arch: str, folder: Path = FOLDER) -> bytes:
    """The variant's cubin for exactly this architecture: the stored one if it is of this very source, else built now.

    Raises UserError with the compiler's words when the variant does not compile.
    """
    stored = folder / variant.name
    if (stored / f"{arch}.cubin").exists():
        identity = (True, variant.source_sha256, " ".join(options(arch, variant.defines)))
        rows = [row for row in tables.BUILDS.rows(stored / "builds.csv") if row["arch"] == arch]
        if rows and all((row["ok"], row["source_sha256"], row["options"]) == identity for row in rows):
            return (stored / f"{arch}.cubin").read_bytes()
    made = build(variant, arch)
    if made.cubin is None:
        raise UserError(f"{variant.name} does not compile for {arch}:\n{made.log}")
    return made.cubin


def own_cubin(source: Path, arch: str, folder: Path = OWN) -> bytes:
    """The cubin of one of the project's own .cu files, compiled once and kept under its content's hash.

    Raises UserError with the compiler's words when it does not compile.
    """
    told = options(arch, [])
    text = source.read_text()
    identity = hashlib.sha256("\0".join([text, *told, compiler()]).encode()).hexdigest()
    kept = folder / f"{source.stem}-{identity[:16]}.cubin"
    if kept.exists():
        return kept.read_bytes()
    cubin, log = compile_source(text, source.name, told)
    if cubin is None:
        raise UserError(f"{source.name} does not compile for {arch}:\n{log}")
    with contextlib.suppress(UserError), written_whole(kept) as temporary:  # where nothing can be kept, nothing is
        temporary.write_bytes(cubin)
    return cubin
