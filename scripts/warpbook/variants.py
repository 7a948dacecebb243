"""The variants in kernels/: found, their headers read, their launches worked out.

A variant is one file: `kernels/<name>.cu` for a GPU variant, with `kernels/<name>.py` beside it only where one grid
of one kernel is not enough, or `kernels/<name>.py` alone for a CPU variant or a peer library. The first comment (the
docstring of a .py alone) is YAML and the only place where a variant's facts are written; `Header` lists them.
"""

import ast
import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from warpbook.errors import UserError, nearest
from warpbook.networks import ConvLayer

FOLDER = Path(__file__).parents[2] / "kernels"

# Unit roundoff of each precision class: of the accumulation, and of the operands where they are rounded first.
PRECISIONS = {
    "fp32": (2.0**-24, 0.0),
    "tf32": (2.0**-23, 2.0**-11),
    "fp16": (2.0**-23, 2.0**-11),
    "bf16": (2.0**-23, 2.0**-8),
}

Operation = Callable[[Any, Any, Any], Any]
"""Computes y from (x, w, y): writes y, or returns the array that holds the result."""


class OutputsPerBlock(BaseModel):
    """How many outputs along each extent one block computes."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    W: PositiveInt
    H: PositiveInt
    M: PositiveInt = 1
    N: PositiveInt = 1


class Launch(BaseModel):
    """Shape of the launch: grid (tiles across x tiles down, ceil(M / M a block), ceil(N / N a block))."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    threads: tuple[PositiveInt, PositiveInt, PositiveInt]
    outputs_per_block: OutputsPerBlock

    def grid(self, layer: ConvLayer, images: int) -> tuple[int, int, int]:
        """Blocks for one layer and `images` images."""
        block = self.outputs_per_block
        tiles = -(-layer.W_out // block.W) * -(-layer.H_out // block.H)
        return (tiles, -(-layer.M // block.M), -(-images // block.N))


class Header(BaseModel):
    """What a variant says of itself. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    title: str
    idea: str
    expect: str = Field(description="effect expected of the idea, written before measuring")
    builds_on: str = Field("", description="variant that it is compared with; empty for a starting point")
    combines: list[str] = Field(default_factory=list, description="variants whose ideas it joins: compared with each")
    check: str = Field("", description="hardware counter that should move, and how")
    reference: str = ""
    device: Literal["cpu", "gpu"] = "gpu"
    peer: bool = Field(False, description="a library that users would otherwise pick")
    requires: str = Field("", description="Python package that the variant needs beyond the default install")
    precision: Literal["fp32", "tf32", "fp16", "bf16"] = "fp32"
    method: Literal["direct", "any"] = Field("direct", description="direct: does every product; any: may do fewer")
    constants: dict[str, int] = Field(default_factory=dict, description="reach the compiler as -D")
    launch: Launch | None = None
    sweep: dict[str, list[int]] = Field(default_factory=dict, description="constants to tune, and values to try")
    least_arch: str = Field("", pattern=r"^(sm_\d+)?$", description="oldest architecture that it is for, as sm_80")
    beyond_emulator: str = Field("", description="what it uses that the CPU emulation lacks; empty where nothing")
    limits: dict[Literal["N", "C", "H", "W", "M", "K", "weights"], PositiveInt] = Field(default_factory=dict)


@dataclass(frozen=True)
class Variant:
    """One variant: its name, files and header. `problem` says why the header could not be read, if so."""

    name: str
    cuda_source: Path | None
    launcher: Path | None
    header: Header
    code: str
    problem: str = ""

    @property
    def device(self) -> str:
        return self.header.device

    @cached_property
    def launcher_code(self) -> str:
        """The launcher's code without its docstring: prose does not change what runs."""
        return _split_python(self.launcher.read_text())[1] if self.launcher else ""

    @cached_property
    def source_sha256(self) -> str:
        """Identity of what decides the machine code and its launch; the header's prose is no part of it."""
        facts = self.header.model_dump(include={"constants", "launch", "precision", "method"}, mode="json")
        parts = [self.code, self.launcher_code, json.dumps(facts, sort_keys=True)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def files(self) -> list[Path]:
        return [path for path in (self.cuda_source, self.launcher) if path]

    @property
    def defines(self) -> list[str]:
        """The header's constants as compiler options."""
        return [f"-D{name}={value}" for name, value in self.header.constants.items()]

    def made_for(self, arch: str) -> bool:
        """Whether its instructions exist on an architecture such as sm_75."""
        least = self.header.least_arch
        return not least or _generation(arch) >= _generation(least)

    def unsupported(self, layer: ConvLayer, images: int) -> str:
        """Why this variant cannot compute the layer: value, limit and remedy. Empty when it can."""
        extents = {name: getattr(layer, name) for name in "CHWMK"} | {"N": images}
        extents["weights"] = layer.M * layer.accumulation
        for name, limit in self.header.limits.items():
            if extents[name] > limit:
                shown = "M*C*K*K" if name == "weights" else name
                where = f"`limits` in {self.files[0].name}"
                return f"{self.name}: {shown} = {extents[name]} exceeds its limit {limit} ({where})"
        return self.missing

    @cached_property
    def missing(self) -> str:
        """Which required package is not installed here; empty when nothing is missing."""
        package = self.header.requires
        if package and importlib.util.find_spec(package) is None:
            return f"{self.name} needs the Python package {package}, which is not installed here"
        return ""

    @cached_property
    def module(self) -> ModuleType:
        """The launcher, imported. Raises UserError with the exception's words when it does not import."""
        assert self.launcher is not None
        name = f"kernels_{self.name}"
        spec = importlib.util.spec_from_file_location(name, self.launcher)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # Numba's cache looks modules up by name
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # a variant's own code: whatever it raises is its failure, not ours
            raise UserError(f"{self.launcher} does not import: {type(error).__name__}: {error}") from error
        return module

    def prepare(self, layer: ConvLayer, images: int, kernels: Any = None) -> Operation:
        """The variant's operation for one layer and batch size; `kernels` are its own, loaded.

        A launcher's `prepare(kernels, layer, images, launch)` also gets the launch that the header declares, or None.
        Scratch memory, streams and plans are made here, outside any timing.
        """
        if self.cuda_source is None:
            return self.module.prepare(layer, images)
        launch = self._declared_launch(layer, images, kernels) if self.header.launch else None
        if self.launcher is None:
            assert launch is not None
            return launch
        return self.module.prepare(kernels, layer, images, launch)

    def _declared_launch(self, layer: ConvLayer, images: int, kernels: Any) -> Operation:
        assert self.header.launch is not None
        function = kernels.function("conv_forward")
        grid, threads = self.header.launch.grid(layer, images), self.header.launch.threads
        extents = launch_arguments(layer, images)

        def launch(x: Any, w: Any, y: Any) -> None:
            function(grid, threads, (x, w, y, *extents))

        return launch


def _generation(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("af"))


def launch_arguments(layer: ConvLayer, images: int) -> tuple[Any, ...]:
    """N, C, H, W, M, K as 32-bit integers, in the order of conv_forward's parameters."""
    import numpy as np

    return tuple(np.int32(extent) for extent in (images, layer.C, layer.H, layer.W, layer.M, layer.K))


def _split_cuda(text: str) -> tuple[str, str]:
    """(header, code) of CUDA C++ source: its first comment and all that follows."""
    stripped = text.lstrip()
    if not stripped.startswith("/*") or "*/" not in stripped:
        raise ValueError("the file does not begin with a /* ... */ comment that holds its header")
    header, code = stripped[2:].split("*/", 1)
    return header, code


def _split_python(text: str) -> tuple[str, str]:
    """(docstring, code) of Python source."""
    tree = ast.parse(text)
    docstring = ast.get_docstring(tree)
    if docstring is None:
        return "", text
    return docstring, "\n".join(text.splitlines()[tree.body[0].end_lineno :])


def _header(text: str) -> Header:
    content = yaml.safe_load(text)
    if not isinstance(content, dict):
        raise ValueError("the header is not YAML of the form `key: value`")
    return Header.model_validate(content)


def _first_words(error: Exception) -> str:
    if isinstance(error, ValidationError):
        # A misspelt key explains the missing one that it leaves behind.
        first = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            return f"unknown key {key!r}: {nearest(key, list(Header.model_fields))}"
        return f"{key}: {first['msg']}"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return (
            f"header line {error.problem_mark.line + 1}: {error.problem} "
            "(text that holds `: ` or begins with a special character goes between quotes)"
        )
    return str(error)


def read(name: str, folder: Path = FOLDER) -> Variant:
    """One variant. A header that cannot be read makes a variant with a `problem`, so that the others go on."""
    cuda, python = folder / f"{name}.cu", folder / f"{name}.py"
    cuda_source, launcher = cuda if cuda.exists() else None, python if python.exists() else None
    code = ""
    try:
        if cuda_source:
            text, code = _split_cuda(cuda_source.read_text())
        else:
            text, _ = _split_python(python.read_text())
        header = _header(text)
        problem = ""
        if cuda_source and launcher is None and header.launch is None:
            problem = "the header has no `launch`, and there is no launcher beside it"
        if header.device == "cpu" and cuda_source:
            problem = "CUDA C++ runs on the GPU, the header says `device: cpu`"
    except (ValueError, SyntaxError, yaml.YAMLError, UnicodeDecodeError) as error:  # pydantic's errors are ValueErrors
        header = Header.model_construct(
            title=name,
            idea="",
            expect="",
            builds_on="",
            combines=[],
            check="",
            reference="",
            device="gpu",
            peer=False,
            requires="",
            precision="fp32",
            method="direct",
            constants={},
            launch=None,
            sweep={},
            least_arch="",
            beyond_emulator="",
            limits={},
        )
        problem = _first_words(error)
    source = cuda_source or python
    return Variant(name, cuda_source, launcher, header, code, f"{source.name}: {problem}" if problem else "")


def discover(folder: Path = FOLDER) -> dict[str, Variant]:
    """Every variant by name, each after the one that it builds on."""
    names = sorted({path.stem for path in folder.iterdir() if path.suffix in (".cu", ".py")})
    found = {name: read(name, folder) for name in names}
    ordered: dict[str, Variant] = {}

    def place(name: str, path: tuple[str, ...]) -> None:
        baseline = found[name].header.builds_on
        if baseline and baseline in found and baseline not in ordered and baseline not in path:
            place(baseline, (*path, name))
        ordered.setdefault(name, found[name])

    for name in names:
        place(name, ())
    return {name: _checked_baseline(variant, ordered) for name, variant in ordered.items()}


def _checked_baseline(variant: Variant, found: dict[str, Variant]) -> Variant:
    baseline = variant.header.builds_on
    if variant.problem or not baseline:
        return variant
    problem = ""
    if baseline not in found:
        problem = f"builds_on {baseline!r} is no variant: {nearest(baseline, list(found))}"
    elif found[baseline].device != variant.device:
        problem = f"builds_on {baseline!r} runs on another device"
    if not problem:
        return variant
    return Variant(
        variant.name,
        variant.cuda_source,
        variant.launcher,
        variant.header,
        variant.code,
        f"{variant.files[0].name}: {problem}",
    )


def find(name: str, known: dict[str, Variant]) -> Variant:
    """The variant called `name`; UserError with the nearest valid name when there is none."""
    if name not in known:
        raise UserError(f"no variant is called {name!r}: {nearest(name, list(known))}")
    return known[name]
