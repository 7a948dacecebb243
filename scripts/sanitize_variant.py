"""Run one variant under each tool of NVIDIA's compute-sanitizer: a row for each tool.

The program starts itself again under the tool, with --inside, and calls the variant on every network's layers and on
ragged shapes. Each array is allocated separately there, which shows the tools its bounds.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from warpbook import networks, sharing, tables, variants
from warpbook.errors import exit_status
from warpbook.harness import checking
from warpbook.harness.supervision import run_to_end
from warpbook.machine import require_target
from warpbook.variants import Variant

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
IMAGES = 1
# racecheck needs a microsecond an access: layers with more products than this are left to the other tools.
RACECHECK_PRODUCTS = 2_000_000
_ERRORS = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


def call_everywhere(variant: Variant, tool: str) -> None:
    """Call the variant once on each layer, with inputs of zeros and an uninitialised output."""
    import cupy

    from warpbook.harness import gpu

    cupy.cuda.set_allocator(None)
    kernels = gpu.kernels_of(variant, gpu.require().arch)
    layers = [conv for network in networks.known().values() for conv in network.convs]
    for layer in [*(layer for layer, _ in checking.ragged_places(variant)), *layers]:
        if variant.unsupported(layer, IMAGES):
            continue
        if tool == "racecheck" and layer.flops(IMAGES) / 2 > RACECHECK_PRODUCTS:
            continue
        x, w, y = (cupy.empty(shape, "f4") for shape in (layer.x_shape(IMAGES), layer.w_shape, layer.y_shape(IMAGES)))
        for array in (x, w):
            cupy.cuda.runtime.memset(array.data.ptr, 0, array.nbytes)
        variant.prepare(layer, IMAGES, kernels)(x, w, y)
        cupy.cuda.runtime.deviceSynchronize()


def sanitize(variant: str, tool: str, timeout_s: float) -> dict[str, Any]:
    """Columns of SANITIZER for one tool."""
    program = shutil.which("compute-sanitizer")
    place: dict[str, Any] = {"variant": variant, "tool": tool, "version": "", "errors": None}
    if not program:
        return {**place, "status": "unsupported", "reason": "compute-sanitizer is not installed on this machine"}
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    place["version"] = (re.findall(r"Version ([\d.]+)", said) or [""])[0]
    command = [program, "--tool", tool, sys.executable, __file__, "--variant", variant, "--inside", tool]
    try:
        status, out, err = run_to_end(command, timeout_s)
    except subprocess.TimeoutExpired:
        return {**place, "status": "timed_out", "reason": f"still running after {timeout_s:g} s (timeout_s)"}
    lines = [line.removeprefix("=========").strip() for line in out.splitlines()]
    counted = _ERRORS.search(out)
    if not counted or status:
        words = [line for line in [*lines, *err.splitlines()] if re.search(r"rror", line)]
        reason = words[0] if words else f"exit status {status}"
        return {**place, "status": "launch_failed", "reason": reason}
    place["errors"] = int(counted.group(1) or counted.group(2))
    if place["errors"]:
        return {**place, "status": "wrong_result", "reason": next((line for line in lines[1:] if line), "")}
    return {**place, "status": "ok", "reason": ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--inside", choices=TOOLS, help="call the variant, under the tool that started this")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    variant = variants.read(arguments.variant)
    if arguments.inside:
        call_everywhere(variant, arguments.inside)
        return
    require_target()
    with sharing.held("gpu", arguments.out, shared=True) as rows:
        rows += [sanitize(variant.name, tool, arguments.timeout) for tool in TOOLS]
    tables.SANITIZER.write(rows, arguments.out)
    for row in rows:
        if row["status"] != "ok":
            print(f"{row['variant']}, {row['tool']}: {row['status']}: {row['reason']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
