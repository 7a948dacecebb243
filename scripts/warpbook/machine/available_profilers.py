"""The profilers: which are installed here, and why the others are not used."""

import importlib.util
import re
import shutil
import subprocess
from importlib import metadata

from warpbook.machine.cuda_devices import Device

TRACERS = ("cupti", "nsys", "nvprof")
"""Those that trace whole programs. Charts show the first of these that has a trace."""

NAMES = {"cupti": "CUPTI in process", "nsys": "Nsight Systems", "nvprof": "nvprof", "ncu": "Nsight Compute"}
NVPROF_BELOW = 80  # compute capability, times ten


def missing_reason(tool: str, device: Device) -> str:
    """Why a profiler cannot watch the programs of a device here; empty where it can."""
    if tool == "cupti":
        return "" if importlib.util.find_spec("cupti") else "cupti-python is not installed"
    if tool == "nvprof" and int(device.arch.removeprefix("sm_")) >= NVPROF_BELOW:
        capability = f"{int(device.arch.removeprefix('sm_')) / 10}"
        return (
            f"nvprof does not support devices of compute capability 8.0 and later, and {device.name} has {capability}: "
            "CUPTI and Nsight Systems trace in its place, Nsight Compute counts"
        )
    return "" if shutil.which(tool) else f"{tool} ({NAMES[tool]}) is not on PATH"


def version(tool: str) -> str:
    """A profiler's version in its own words; empty where it does not say."""
    if tool == "cupti":
        return f"cupti-python {metadata.version('cupti-python')}"
    try:
        said = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    versions = re.findall(r"(?:[Vv]ersion|release) ?:? ?(\d[\w.-]*)", said)
    return versions[-1] if versions else ""


def describe(device: Device) -> dict[str, dict[str, str]]:
    """{profiler: its version, or why it is not used on this machine}."""
    described = {}
    for tool in NAMES:
        reason = missing_reason(tool, device)
        described[tool] = {"version": "" if reason else version(tool), "missing": reason}
    return described
