"""Read hardware counters of one variant with Nsight Compute: a row for each counter of each launch of one call a layer.

The program starts itself again under ncu, with --under-tool, and calls the variant twice on each layer: once to warm
up, unprofiled, and once to count. It prepares all that needs no GPU before it waits for one. A marker kernel, launched
before each layer, shows in ncu's list where the layer begins.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warpbook.common.errors import exit_status
from warpbook.common.files import atomic_write
from warpbook.common.supervision import VariantFailure
from warpbook.kernels import variants
from warpbook.kernels.variants import Variant
from warpbook.machine import cuda_devices, gpu_wait, host
from warpbook.machine.host import require_target
from warpbook.problems import case_sets
from warpbook.problems.problem import Case, numpy_type
from warpbook.profiling import counting
from warpbook.runs import tables

# Of a call that makes more launches than the first number, as many as the second are counted: the rest repeat them.
LAUNCHES_MAX, LAUNCHES_KEPT = 8, 4
RANGE = "layer"  # the NVTX range around what is counted: this and the layer's name


class LaunchCounter:
    """A variant's kernels, which count a call's launches and make the first `at_most`: under ncu there may be 20,000, a
    third of a millisecond each."""

    def __init__(self, kernels: Any):
        self._kernels = kernels
        self.restart(LAUNCHES_MAX)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def function(self, name: str, shared_bytes: int = 0, early: bool = False) -> Callable[..., None]:
        kernel = self._kernels.function(name, shared_bytes, early)

        def launch(*arguments: Any, **options: Any) -> None:
            self.launches += 1
            if self.launches <= self._at_most:
                kernel(*arguments, **options)

        return launch

    def restart(self, at_most: int) -> None:
        self.launches, self._at_most = 0, at_most


def drawn_array(generator: Any, case: Case, name: str) -> Any:
    """Some values for an input."""
    import numpy as np

    array, shape = case.inputs[name], case.shape(name)
    if not array.is_real:
        return generator.integers(array.least, array.most + 1, shape).astype(array.dtype)
    return generator.random(shape, np.float32).astype(numpy_type(array.dtype))


def call_layers(variant: Variant, layers: list[Case], arch: str, launches_file: Path) -> None:
    """Call the variant twice on each layer, the second time for ncu; write each call's launches as JSON."""
    if variant.cuda_source is None:
        _ = variant.module  # PyTorch does not load after NVRTC, which exports clashing C++ symbols
    import cupy
    import numpy as np
    from cupy.cuda import profiler

    from warpbook.harness import gpu_bench

    arch = arch or gpu_bench.require_device().arch  # which says why there is none
    generator = np.random.default_rng(408)
    drawn = [{name: drawn_array(generator, case, name) for name in case.inputs} for case in layers]

    gpu_wait.wait()
    loaded = gpu_bench.load_kernels(variant, arch)
    kernels = LaunchCounter(loaded) if loaded else None
    launches: dict[str, int] = {}
    for layer, arrays in zip(layers, drawn, strict=True):
        outputs = [cupy.empty(layer.shape(name), numpy_type(one.dtype)) for name, one in layer.problem.outputs.items()]
        taken = (*map(cupy.asarray, arrays.values()), *outputs)
        call = variant.prepare(layer, kernels)
        if kernels:
            kernels.restart(LAUNCHES_MAX)
        call(*taken)
        cupy.cuda.runtime.deviceSynchronize()
        if kernels:
            launches[layer.name] = kernels.launches
            with atomic_write(launches_file) as temporary:
                temporary.write_text(json.dumps(launches))
            kernels.restart(LAUNCHES_KEPT if kernels.launches > LAUNCHES_MAX else LAUNCHES_MAX)
        profiler.start()
        with gpu_bench.nvtx_range(f"{RANGE} {layer.name}"):
            call(*taken)
            cupy.cuda.runtime.deviceSynchronize()
        profiler.stop()


def group_by_layer(counted: list[dict[str, Any]], layers: list[str]) -> dict[str, list[dict[str, Any]]]:
    """ncu's rows by the layer whose range they are in, launches numbered from 0."""
    readings: dict[str, list[dict[str, Any]]] = {}
    for layer in layers:
        rows = [row for row in counted if f":{RANGE} {layer}:" in row["ranges"]]
        numbers = {launch: number for number, launch in enumerate(sorted({row["launch"] for row in rows}))}
        if rows:
            readings[layer] = [{**row, "launch": numbers[row["launch"]]} for row in rows]
    return readings


def count_with_ncu(
    run: counting.RunCommand, calling: list[str], layers: list[str], metrics: list[str], timeout_s: float, report: Path
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, int], VariantFailure | None]:
    """(ncu's rows by layer, without counters unknown to it; launches of each call where known; the failure if any).
    `calling` is what this program is started with. ncu's report stays at `report`."""
    with tempfile.TemporaryDirectory() as scratch:
        launches_file = Path(scratch) / "launches.json"
        inside = [sys.executable, __file__, *calling, "--launches", str(launches_file), "--under-tool", *layers]
        counted, failure = counting.run_under_ncu(run, inside, metrics, timeout_s, report)
        launches = json.loads(launches_file.read_text()) if launches_file.exists() else {}
    return group_by_layer(counted, layers), launches, VariantFailure(*failure) if failure else None


def count(
    run: counting.RunCommand,
    variant: Variant,
    network: str,
    images: int,
    metrics: list[str],
    timeout_s: float,
    folder: Path,
) -> list[dict[str, Any]]:
    """Rows of COUNTERS for every layer of a network: its counters, or why there are none."""
    layers = case_sets.find(network).cases
    place = {"tool": "ncu", "variant": variant.name, "size": images}
    failures: dict[str, VariantFailure] = {}
    device = host.gpu()
    arch = device.arch if isinstance(device, cuda_devices.Device) else ""
    for layer in layers:
        if variant.read_error:
            failures[layer.name] = VariantFailure("compile_failed", variant.read_error)
        elif arch and not variant.supports_arch(arch):
            reason = f"{variant.name} {variant.header.architecture_reason(arch)}"
            failures[layer.name] = VariantFailure("unsupported", reason)
        elif reason := variant.unsupported(layer.at(images)):
            failures[layer.name] = VariantFailure("unsupported", reason)
    names = [layer.name for layer in layers if layer.name not in failures]
    calling = ["--variant", variant.name, "--cases", network, "--images", str(images), "--arch", arch]
    readings: dict[str, list[dict[str, Any]]] = {}
    launches: dict[str, int] = {}
    # A layer that fails takes the process down, and with it the other layers: count each alone then.
    for group in [names, *([name] for name in names if len(names) > 1)]:
        left = [name for name in group if name not in readings]
        final = any(failures[name].status != "launch_failed" for name in left if name in failures)
        if left and not final:
            report = folder / f"{network}-{variant.stem}{'' if left == names else f'-{left[0]}'}.ncu-rep"
            counted, made, failure = count_with_ncu(run, calling, left, metrics, timeout_s, report)
            readings |= counted
            launches |= made
            failures |= {
                name: failure or VariantFailure("launch_failed", "ncu counted no launch of it") for name in left
            }
    rows: list[dict[str, Any]] = []
    for layer in layers:
        place |= tables.place(variant.problem.name, network, layer.name)
        rows += counting.counter_rows(place, readings.get(layer.name, []), metrics, launches.get(layer.name))
        if layer.name not in readings:
            rows.append({**place, **counting.NOTHING, **failures[layer.name].columns})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--cases", required=True, help="the network or study whose cases it computes")
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--metrics", nargs="+", help="counters, by ncu's names")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--reports", type=Path, help="folder for ncu's own reports")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--arch", help="architecture of the GPU")
    parser.add_argument("--launches", type=Path, help="where to write the launches of each call, under ncu")
    parser.add_argument("--under-tool", nargs="+", metavar="LAYER", help="call the variant on these layers, under ncu")
    arguments = parser.parse_args()
    variant = variants.read(arguments.variant)
    if arguments.under_tool:
        layers = [case for case in case_sets.find(arguments.cases).cases if case.name in arguments.under_tool]
        call_layers(
            variant,
            [case.at(arguments.images).with_problem(variant.problem) for case in layers],
            arguments.arch,
            arguments.launches,
        )
        return
    require_target(tool="ncu")
    arguments.reports.mkdir(parents=True, exist_ok=True)
    of = (variant, arguments.cases, arguments.images, arguments.metrics, arguments.timeout, arguments.reports)
    counting.write_counters(arguments.out, lambda run: count(run, *of))


if __name__ == "__main__":
    sys.exit(exit_status(main))
