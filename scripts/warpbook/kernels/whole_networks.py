"""Whole networks as `kernels/network/` computes them: from images on the device to scores and labels there.

An implementation is `<name>.py`, with `<name>.cu` beside it where it has kernels of its own, and a header as a variant
has one. `prepare(kernels, network, images, parameters)` gives `call(x, scores, labels)`: x (N, C, H, W) float32 as it
enters the network, scores (N, classes) float32, labels (N,) int32, all on the device and contiguous; `parameters` are
the weights by name, there too. Whatever depends on the weights alone may be prepared. A launcher may say by
`unsupported(network)` why it does not compute a network; one whose first layer takes the images as the host has them
has `prepare_bytes` too, alike, whose x is the images (N, H, W), uint8, not yet times the network's `input.scale`.

A .cu may include another of kernels/ or kernels/network/, files of kernels/include/, and layers.cu of the harness; a
launcher may import another.
Constants of a variant whose .cu is included are known, the implementation's own above them; a launcher without a .cu
has the kernels of the implementation that it imports.
"""

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from warpbook.common.errors import UserError
from warpbook.common.files import PACKAGE, both_folders, find_file
from warpbook.kernels import headers, sources
from warpbook.kernels.headers import Header
from warpbook.problems.networks import Network

PROBLEM = "network"  # the problem that a whole network is a case of
FOLDERS = both_folders(f"kernels/{PROBLEM}")
IMPORTED_FROM = (*FOLDERS, *both_folders(f"kernels/{headers.DEFAULT_PROBLEM}"), *sources.INCLUDES)
INCLUDED_FROM = (*IMPORTED_FROM, PACKAGE / "harness")

Call = Callable[[Any, Any, Any], None]


@dataclass(frozen=True)
class Implementation:
    """One implementation: its name, launcher and header. `read_error` says why it cannot be used, if so."""

    name: str
    launcher: Path
    header: Header
    read_error: str = ""

    @property
    def full_name(self) -> str:
        """Its name among the variants of all problems."""
        return f"{PROBLEM}/{self.name}"

    @property
    def title(self) -> str:
        return self.header.title.strip() or self.name

    @cached_property
    def files(self) -> list[Path]:
        """Its own files, those that they include, and launchers that they import."""
        found = list(sources.with_imports(self.launcher, IMPORTED_FROM))
        kernels = [
            path.with_suffix(".cu") for path in found if path.parent in FOLDERS and path.with_suffix(".cu").exists()
        ]
        included = [each for path in kernels for each in (path, *_inline_includes(path).files)]
        return list(dict.fromkeys([*found, *included]))

    @cached_property
    def cuda_source(self) -> Path | None:
        """The .cu that its kernels are compiled from; None for a library's user."""
        return next((path for path in self.files if path.suffix == ".cu" and path.parent in FOLDERS), None)

    @cached_property
    def constants(self) -> dict[str, int]:
        """Constants of every source of its kernels, the including one's above the included one's."""
        joined: dict[str, int] = {}
        for path in reversed([path for path in self.files if path.suffix == ".cu"]):
            joined |= _read_header(path).constants
        return joined | self.header.constants

    @property
    def text(self) -> str:
        """The source of its kernels, includes put in."""
        assert self.cuda_source is not None
        return _inline_includes(self.cuda_source).text

    @cached_property
    def source_sha256(self) -> str:
        """Identity of what runs: the code of all its files, without the words of their headers, and its constants."""
        codes = [(sources.read_python if path.suffix == ".py" else sources.read_cuda)(path).code for path in self.files]
        return hashlib.sha256("\0".join([*codes, json.dumps(self.constants, sort_keys=True)]).encode()).hexdigest()

    @cached_property
    def module(self) -> Any:
        """The launcher, imported; UserError with the exception's words where it does not import."""
        before = list(sys.path)
        # Behind libraries, and for this import alone: kernels/ has an onnxruntime.py.
        sys.path.extend(map(str, IMPORTED_FROM))
        try:
            return importlib.import_module(self.name)
        except Exception as error:  # its code runs here: any exception is its own failure
            words = f"{type(error).__name__}: {error}"
            raise UserError(f"{self.launcher.name}: the launcher does not import: {words}") from error
        finally:
            sys.path[:] = before

    @property
    def missing(self) -> str:
        """Which required package is not installed here; empty when nothing is missing."""
        return self.header.missing(self.name)

    def beyond_limits(self, network: Network, images: int) -> str:
        """Why its header says that it is for no such network or number of images; empty where it does not."""
        reasons = (self.header.limits.violation(conv.at(images)) for conv in network.convs)
        reason = next(filter(None, reasons), "")
        headed = self.launcher.with_suffix(".cu" if self.launcher.with_suffix(".cu").exists() else ".py")
        return f"{self.name}: {reason} (`limits` in {headed.name})" if reason else ""

    def unsupported(self, network: Network, images: int) -> str:
        """Why it does not compute a network for so many images; empty where it does."""
        if reason := self.beyond_limits(network, images) or self.missing:
            return reason
        tell = getattr(self.module, "unsupported", None)
        reason = tell(network) if tell else ""
        return f"{self.name}: {reason}" if reason else ""

    @cached_property
    def baselines(self) -> list["Implementation"]:
        """What it builds on, what that builds on, and so on. The first that computes a network is its baseline there."""
        found: dict[str, Implementation] = {}
        below = self.header.builds_on
        while below and below not in found:
            found[below] = read(below)
            below = found[below].header.builds_on
        return [*found.values()]

    @property
    def takes_bytes(self) -> bool:
        return hasattr(self.module, "prepare_bytes")

    def prepare(
        self, kernels: Any, network: Network, images: int, parameters: dict[str, Any], of_bytes: bool = False
    ) -> Call:
        prepare = self.module.prepare_bytes if of_bytes else self.module.prepare
        call: Call = prepare(kernels, network, images, parameters)
        return call


def names() -> list[str]:
    """Names of the implementations that are here."""
    return sorted({path.stem for folder in FOLDERS for path in folder.glob("*.py") if not path.name.startswith(".")})


def read(name: str) -> Implementation:
    """One implementation. What cannot be read makes one with a `read_error`, so that the others go on."""
    launcher = find_file(f"{name}.py", FOLDERS)
    kernels = launcher.with_suffix(".cu")
    python = sources.read_python(launcher)
    described = sources.read_cuda(kernels) if kernels.exists() else python
    problem = python.problem or described.problem
    if kernels.exists():
        problem = problem or _inline_includes(kernels).problem
    try:
        header = Header.model_validate(headers.parse_facts(described.header) if described.header.strip() else {})
    except (ValueError, yaml.YAMLError) as error:  # pydantic's errors are ValueErrors
        header, problem = Header.model_validate({"title": name}), problem or headers.first_problem(error)
    return Implementation(name, launcher, header, problem)


def discover() -> dict[str, Implementation]:
    """Every implementation by name, each after what it builds on."""
    every = {name: read(name) for name in names()}

    def depth(name: str) -> int:
        below, steps = every[name].header.builds_on, 0
        while below in every and steps < len(every):
            below, steps = every[below].header.builds_on, steps + 1
        return steps

    return {name: every[name] for name in sorted(every, key=lambda name: (every[name].header.peer, depth(name), name))}


def _inline_includes(path: Path) -> sources.Inlined:
    return sources.inline_includes(path, INCLUDED_FROM)


def _read_header(path: Path) -> Header:
    content = sources.read_cuda(path).header
    return Header.model_validate(headers.parse_facts(content) if content.strip() else {})
