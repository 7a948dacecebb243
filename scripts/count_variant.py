"""Read hardware counters of one variant with Nsight Compute: a row for each counter of each launch of one call a layer.

The program starts itself again under ncu, with --inside, and calls the variant twice on each layer: once to warm up,
unprofiled, and once to be counted. A marker kernel, launched before each layer, tells in ncu's list where it begins.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warpbook import devices, networks, sharing, tables, variants
from warpbook.errors import UserError, exit_status
from warpbook.files import written_whole
from warpbook.harness.supervision import Failed, run_to_end
from warpbook.machine import require_target
from warpbook.networks import ConvLayer
from warpbook.profiling import ncu, nsight
from warpbook.variants import Variant

# Of a call that makes more launches than the first number, as many as the second are counted: the rest repeat them.
LAUNCHES_MAX, LAUNCHES_KEPT = 8, 4
RETRIES_MAX = 6  # after so many runs without the counters that ncu named, it must be refusing for another reason
MARK = "warpbook_layer"
NO_PERMISSION = (
    "ERR_NVGPUCTRPERM: the driver lets only administrators read hardware counters; "
    "run as root, or load its module with NVreg_RestrictProfilingToAdminUsers=0"
)
_UNKNOWN = re.compile(r"Failed to find metric (?:regex:\^?)?(\w+(?:\.\w+)*)")
_OWN_WORDS = re.compile(r"==ERROR== (?!The application returned an error code)(.*)")


class Counting:
    """A variant's kernels, which count their launches and call `stop` once `at_most` have been made."""

    def __init__(self, kernels: Any):
        self._kernels = kernels
        self.launches = 0
        self._at_most: int | None = None
        self._stop: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def function(self, name: str, shared_bytes: int = 0) -> Callable[..., None]:
        kernel = self._kernels.function(name, shared_bytes)

        def launch(*arguments: Any, **options: Any) -> None:
            if self.launches == self._at_most:
                self._stop()
            self.launches += 1
            kernel(*arguments, **options)

        return launch

    def restart(self, at_most: int | None, stop: Callable[[], None]) -> None:
        self.launches, self._at_most, self._stop = 0, at_most, stop


def call_layers(variant: Variant, layers: list[ConvLayer], images: int, launches_file: Path) -> None:
    """Call the variant twice on each layer, the second time for ncu; write each call's launches to a file, as JSON.

    The launches of peers are not known: they do not go through our kernels.
    """
    if variant.cuda_source is None:
        _ = variant.module  # PyTorch does not load after NVRTC, which exports clashing C++ symbols
    import cupy
    import numpy as np
    from cupy.cuda import profiler

    from warpbook.harness import building, gpu

    arch = gpu.require().arch
    source = f'extern "C" __global__ void {MARK}() {{}}'
    cubin, log = building.compile_source(source, f"{MARK}.cu", building.compiler_options(arch, []))
    if cubin is None:
        raise UserError(f"{MARK} does not compile for {arch}:\n{log}")
    marks = gpu.load_module(cubin)
    mark = marks.get_function(MARK)
    loaded = gpu.kernels_of(variant, arch)
    kernels = Counting(loaded) if loaded else None
    generator = np.random.default_rng(408)
    launches: dict[str, int] = {}
    for layer in layers:
        x = cupy.asarray(generator.random(layer.x_shape(images), np.float32))
        w = cupy.asarray(generator.random(layer.w_shape, np.float32))
        y = cupy.empty(layer.y_shape(images), np.float32)
        call = variant.prepare(layer, images, kernels)
        if kernels:
            kernels.restart(None, profiler.stop)
        call(x, w, y)
        cupy.cuda.runtime.deviceSynchronize()
        if kernels:
            launches[layer.name] = kernels.launches
            with written_whole(launches_file) as temporary:
                temporary.write_text(json.dumps(launches))
            kernels.restart(LAUNCHES_KEPT if kernels.launches > LAUNCHES_MAX else None, profiler.stop)
        profiler.start()
        mark((1,), (1,), ())
        call(x, w, y)
        cupy.cuda.runtime.deviceSynchronize()
        profiler.stop()


def without_unknown(metrics: list[str], said: str) -> list[str]:
    """The counters, without those that ncu says it does not know."""
    unknown = set(_UNKNOWN.findall(said))
    return [metric for metric in metrics if metric not in unknown and metric.split(".")[0] not in unknown]


def by_layer(counted: list[dict[str, Any]], layers: list[str]) -> dict[str, list[dict[str, Any]]]:
    """ncu's rows by layer, launches numbered from 0. The marker kernel begins a layer."""
    readings: dict[str, list[dict[str, Any]]] = {}
    marks, first = 0, 0
    for launch in sorted({row["launch"] for row in counted}):
        rows = [row for row in counted if row["launch"] == launch]
        if rows[0]["kernel"].split("(")[0] == MARK:
            marks, first = marks + 1, launch + 1
        elif 1 <= marks <= len(layers):
            readings.setdefault(layers[marks - 1], []).extend({**row, "launch": launch - first} for row in rows)
    return readings


def why_nothing(status: int, said: str, err: str) -> Failed:
    """The failure in ncu's output: `refused` where ncu names one, else the program's last words."""
    if "NVGPUCTRPERM" in said + err:
        return Failed("refused", NO_PERMISSION)
    if words := _OWN_WORDS.findall(said + "\n" + err):
        return Failed("refused", f"ncu: {words[0].strip()[:300]}")
    lines = [line.strip() for line in err.splitlines() if line.strip() and not line.startswith("==")]
    reason = lines[-1][:300].removeprefix("error: ") if lines else f"ncu counted nothing, exit status {status}"
    return Failed("launch_failed", reason)


def counted_by_ncu(
    variant: str, network: str, layers: list[str], images: int, metrics: list[str], timeout_s: float, report: Path
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, int], Failed | None]:
    """(ncu's rows by layer, launches of each layer's call where known, the failure if any).

    ncu's report stays at `report`. The rows leave out counters that ncu does not know.
    """
    program = shutil.which("ncu")
    if not program:
        return {}, {}, Failed("unsupported", "ncu (Nsight Compute) is not on PATH")
    inside = [sys.executable, __file__, "--variant", variant, "--network", network, "--images", str(images)]
    with tempfile.TemporaryDirectory() as scratch:
        log, launches_file = Path(scratch) / "ncu.csv", Path(scratch) / "launches.json"
        for _ in range(RETRIES_MAX):
            command = [
                program, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
                "--cache-control", "none", "--replay-mode", "kernel", "--profile-from-start", "off",
                "--metrics", ",".join(metrics), "--log-file", str(log), "--export", str(report), "--force-overwrite",
                *inside, "--launches", str(launches_file), "--inside", *layers,
            ]  # fmt: skip
            log.unlink(missing_ok=True)
            report.unlink(missing_ok=True)
            try:
                # One ncu at a time gets at $TMPDIR/nsight-compute-lock, and each of several GPUs may have one.
                status, out, err = run_to_end(command, timeout_s, {**os.environ, "TMPDIR": scratch})
            except subprocess.TimeoutExpired:
                return {}, {}, Failed("timed_out", f"still running under ncu after {timeout_s:g} s (timeout_s)")
            said = log.read_text(errors="replace") if log.exists() else ""
            known = without_unknown(metrics, said + out + err)
            if known == metrics or report.exists():
                break
            metrics = known
        counted: list[dict[str, Any]] = []
        try:
            lines = said.splitlines()
            if not any(map(ncu.is_header, lines)) and report.exists():
                lines = nsight.raw_page(report).splitlines()
            if any(map(ncu.is_header, lines)):
                counted = [row for row in ncu.read_csv(lines, "ncu's raw page").counters if row["metric"] in metrics]
            failure = None if counted and not status else why_nothing(status, said + out, err)
        except UserError as error:
            failure = Failed("launch_failed", str(error))
        launches = json.loads(launches_file.read_text()) if launches_file.exists() else {}
    return by_layer(counted, layers), launches, failure


def count(
    variant: Variant, network: str, images: int, metrics: list[str], timeout_s: float, folder: Path
) -> list[dict[str, Any]]:
    """Rows of COUNTERS for every layer of a network: its counters, or why there are none."""
    layers = networks.find(network).convs
    place = {"tool": "ncu", "variant": variant.name, "network": network, "size": images}
    nothing = {"launch": 0, "kernel": "", "metric": "", "unit": "", "value": None, "launches": None}
    failures: dict[str, Failed] = {}
    device = devices.probe()
    for layer in layers:
        if variant.problem:
            failures[layer.name] = Failed("compile_failed", variant.problem)
        elif isinstance(device, devices.Device) and not variant.made_for(device.arch):
            reason = f"{variant.name} needs {variant.header.least_arch} or later; this GPU is {device.arch}"
            failures[layer.name] = Failed("unsupported", reason)
        elif reason := variant.unsupported(layer, images):
            failures[layer.name] = Failed("unsupported", reason)
    names = [layer.name for layer in layers if layer.name not in failures]
    readings: dict[str, list[dict[str, Any]]] = {}
    launches: dict[str, int] = {}
    # A layer that fails takes the process down, and with it the other layers: count each alone then.
    for group in [names, *([name] for name in names if len(names) > 1)]:
        left = [name for name in group if name not in readings]
        final = any(failures[name].status != "launch_failed" for name in left if name in failures)
        if left and not final:
            report = folder / f"{network}-{variant.name}{'' if left == names else f'-{left[0]}'}.ncu-rep"
            counted, made, failure = counted_by_ncu(variant.name, network, left, images, metrics, timeout_s, report)
            readings |= counted
            launches |= made
            failures |= {name: failure or Failed("launch_failed", "ncu counted no launch of it") for name in left}
    rows: list[dict[str, Any]] = []
    for layer in layers:
        counters = readings.get(layer.name, [])
        if not counters:
            rows.append({**place, "layer": layer.name, **nothing, **failures[layer.name].columns})
        for launch in sorted({counter["launch"] for counter in counters}):
            by_metric = {counter["metric"]: counter for counter in counters if counter["launch"] == launch}
            kernel = next(iter(by_metric.values()))["kernel"]
            rows += [
                {
                    **place, "layer": layer.name, "launch": launch, "kernel": kernel, "metric": metric,
                    "unit": by_metric[metric]["unit"] if metric in by_metric else "",
                    "value": by_metric[metric]["value"] if metric in by_metric else None,
                    "launches": launches.get(layer.name), "status": "ok", "reason": "",
                }
                for metric in metrics
            ]  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--metrics", nargs="+", help="counters under ncu's names")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--reports", type=Path, help="folder for ncu's own reports")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--launches", type=Path, help="where to write the launches of each call, under ncu")
    parser.add_argument("--inside", nargs="+", metavar="LAYER", help="call the variant, under ncu")
    arguments = parser.parse_args()
    variant = variants.read(arguments.variant)
    if arguments.inside:
        layers = [layer for layer in networks.find(arguments.network).convs if layer.name in arguments.inside]
        call_layers(variant, layers, arguments.images, arguments.launches)
        return
    require_target(tool="ncu")
    arguments.reports.mkdir(parents=True, exist_ok=True)
    with sharing.held("gpu", arguments.out) as rows:
        rows += count(
            variant, arguments.network, arguments.images, arguments.metrics, arguments.timeout, arguments.reports
        )
    tables.COUNTERS.write(rows, arguments.out)
    for row in rows:
        if row["status"] != "ok":
            print(f"no counters of {row['variant']} on {row['layer']}: {row['status']}: {row['reason']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
