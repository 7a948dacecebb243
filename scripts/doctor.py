"""Show what this machine has, and which command installs what it lacks. Exit status 0: a report can be made."""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from warpbook.common import version
from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import LIBRARY, PROJECT
from warpbook.harness import building, cpp_compiler, nvcc, sandbox
from warpbook.kernels import languages
from warpbook.machine import available_profilers, cuda_devices
from warpbook.problems import fashion_mnist
from warpbook.report import pdf

PARAMETERS = Path("/proc/driver/nvidia/params")  # what the driver's module was loaded with


class Finding(NamedTuple):
    """A part: what there is of it, or the remedy where it is missing."""

    name: str
    found: str
    remedy: str = ""
    needed: bool = False


def findings() -> Iterator[Finding]:
    """Each part that a report uses, those that it cannot do without first."""
    try:
        pdf.weasyprint()
        yield Finding("WeasyPrint and Pango", "here", needed=True)
    except UserError as error:
        yield Finding("WeasyPrint and Pango", "", str(error).rpartition("install it with: ")[2], needed=True)
    try:
        yield Finding("CUDA compiler", building.compiler(), needed=True)
    except (ImportError, RuntimeError, OSError) as error:
        remedy = f"pip install 'warpbook[cuda13]', or 'warpbook[cuda12]' for a driver below 580 ({error})"
        yield Finding("CUDA compiler", "", remedy, needed=True)
    yield Finding(
        "C++ compiler", cpp_compiler.compiler_version(), "apt-get install g++; without it no kernel is emulated"
    )
    gpu = cuda_devices.probe()
    if isinstance(gpu, str):
        yield Finding("GPU", "", f"{gpu}; GPU times then come from archived runs")
    else:
        yield Finding("GPU", f"{gpu.name}, {gpu.arch}")
        for tool, words in available_profilers.NAMES.items():
            missing = available_profilers.missing_reason(tool, gpu)
            yield Finding(words, "" if missing else available_profilers.version(tool) or "here", missing)
        yield Finding("Hardware counters", "" if _counters_restricted() else "allowed", COUNTERS)
    reason = sandbox.unavailable_reason()
    yield Finding("Sandbox", "" if reason else "bubblewrap", f"{reason}; without it kernels run with your rights")
    torch = "here" if languages.is_installed("torch") else ""
    yield Finding("PyTorch", torch, "pip install torch, to compare with it and with cuDNN")
    for package, language in languages.LANGUAGES.items():
        version = language.version if languages.is_installed(package) else ""
        yield Finding(language.name, version, f"{language.command}, for kernels in {language.name}")
    compiler = nvcc.find_compiler()
    remedy = "pip install 'warpbook[course]', for files of the course ECE408"
    yield Finding("nvcc", nvcc.version() if compiler else "", remedy)
    folder = next((folder for folder in fashion_mnist.folders() if folder.exists()), None)
    remedy = "apt-get install dataset-fashion-mnist; without it networks download it once"
    yield Finding("Fashion-MNIST", str(folder or ""), remedy)


COUNTERS = "run as root, or load the driver's module with NVreg_RestrictProfilingToAdminUsers=0"


def _counters_restricted() -> bool:
    """Whether the driver lets only administrators read counters, and this is none."""
    try:
        parameters = PARAMETERS.read_text()
    except OSError:
        return False
    return os.geteuid() != 0 and "RmProfilingAdminOnly: 1" in parameters


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", action="version", version=f"Warpbook {version.VERSION}")
    parser.parse_args()
    print(f"Warpbook {version.VERSION}: {LIBRARY}")
    print(f"This notebook: {PROJECT}")
    lacking = 0
    for one in findings():
        lacking += one.needed and not one.found
        mark = "ok     " if one.found else "MISSING" if one.needed else "-      "
        print(f"{mark} {one.name:20} {one.found or one.remedy}")
    print("No report can be made yet: install what is MISSING." if lacking else "A report can be made: warpbook report")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
