"""Show what this machine has, and which command installs what it lacks. Exit status 0: a report can be made."""

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from warpbook.common import version
from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import LIBRARY, PROJECT, RUN, from_project
from warpbook.harness import building, clocks, cpp_compiler, nvcc, sandbox
from warpbook.kernels import languages
from warpbook.machine import available_profilers, cuda_devices
from warpbook.machine.cuda_devices import Device
from warpbook.problems import fashion_mnist
from warpbook.report import pdf

PARAMETERS = Path("/proc/driver/nvidia/params")  # what the driver's module was loaded with
COUNTERS = "run as root, or load the driver's module with NVreg_RestrictProfilingToAdminUsers=0"
PROFILERS = {
    "cupti": "pip install cupti-python",
    "nsys": "apt-get install cuda-nsight-systems-13-0, from NVIDIA's package repository",
    "ncu": "apt-get install cuda-nsight-compute-13-0, from NVIDIA's package repository",
}
"""What installs each profiler that CUDA still has."""


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
    compiler = ""
    try:
        compiler = building.compiler()
        yield Finding("CUDA compiler", compiler, needed=True)
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
        yield driver(gpu, compiler)
        for tool, words in available_profilers.NAMES.items():
            missing = available_profilers.missing_reason(tool, gpu)
            missing = PROFILERS.get(tool, missing) if missing else ""
            yield Finding(words, "" if missing else available_profilers.version(tool) or "here", missing)
        yield Finding("Hardware counters", "" if _counters_restricted() else "allowed", COUNTERS)
    reason = sandbox.unavailable_reason()
    yield Finding("Sandbox", "" if reason else "bubblewrap", f"{reason}; without it kernels run with your rights")
    torch = "here" if languages.is_installed("torch") else ""
    yield Finding("PyTorch", torch, "pip install torch, to compare with it and with cuDNN")
    for package, language in languages.LANGUAGES.items():
        version = "" if languages.missing_words(package) else language.version
        yield Finding(language.name, version, f"{language.command}, for kernels in {language.name}")
    remedy = "pip install 'warpbook[course]', for files of the course ECE408"
    yield Finding("nvcc", nvcc.version() if nvcc.find_compiler() else "", remedy)
    folder = next((folder for folder in fashion_mnist.folders() if folder.exists()), None)
    remedy = "apt-get install dataset-fashion-mnist; without it networks download it once"
    yield Finding("Fashion-MNIST", str(folder or ""), remedy)


def driver(gpu: Device, compiler: str) -> Finding:
    """The driver's version, where it loads what this compiler makes."""
    words = f"{clocks.Clock(gpu).facts()['driver'] or 'version unknown'}, for CUDA {gpu.driver_cuda}"
    made_by = re.search(r"\d+", compiler)
    if made_by and int(made_by[0]) > int(gpu.driver_cuda.partition(".")[0]):
        return Finding("Driver", "", f"{words}, older than {compiler}: update it, or pip install 'warpbook[cuda12]'")
    return Finding("Driver", words)


def install_command() -> str:
    """The command that installs into the environment of this program; uv makes environments without pip."""
    pip = Path(sys.executable).with_name("pip")
    if shutil.which("pip") == str(pip):
        return "pip install"
    if pip.exists():
        return f"{shlex.quote(from_project(pip))} install"
    return f"uv pip install --python {shlex.quote(sys.executable)}"


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
    notebook = (PROJECT / "config.yaml").exists()
    print(f"This notebook: {PROJECT if notebook else 'none in this folder'}")
    lacking, install = 0, install_command()
    for one in findings():
        lacking += one.needed and not one.found
        mark = "ok     " if one.found else "MISSING" if one.needed else "-      "
        print(f"{mark} {one.name:20} {one.found or one.remedy.replace('pip install', install)}")
    command = f"{RUN} report" if notebook else "warpbook init mynotes && cd mynotes && warpbook report"
    print("No report can be made yet: install what is MISSING." if lacking else f"A report can be made: {command}")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
