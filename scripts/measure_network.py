"""Check and time one implementation of a whole network at every size, interleaved with the one that it builds on."""

import argparse
import gc
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common.errors import UserError, exit_status
from warpbook.common.supervision import VariantFailure, run_supervised
from warpbook.config.settings import Measuring
from warpbook.harness import building, checking, preload, sandbox, timing
from warpbook.harness.checking import Row
from warpbook.kernels import whole_networks
from warpbook.kernels.whole_networks import Implementation
from warpbook.machine import gpu_pool
from warpbook.machine.host import node_and_gpu, require_same, require_target
from warpbook.problems import fashion_mnist, networks, problem, weights
from warpbook.problems.networks import Network
from warpbook.runs import tables

NOT_CHECKED: Row = {"rel_l2_err": None, "tolerance": None, "mismatched_labels": None, "ok": False}
"""Columns of CORRECTNESS for a test that did not come to a comparison."""

SizeResult = tuple[int, list[Row], Row]
"""Images, rows of SAMPLES from `variant` on, and the columns of CORRECTNESS that a comparison gives."""


def failure_rows(implementation: Implementation, images: int, failure: VariantFailure) -> SizeResult:
    """What stands for the samples and the check that there are not."""
    row = {"variant": implementation.name, **timing.failure_columns(failure)}
    return images, [row], {**NOT_CHECKED, **failure.columns}


def least_ms(network: Network, images: int, machine: dict[str, Any]) -> float:
    """The least time in which a GPU reads the images, but for what its L2 cache may hold."""
    gpu = machine["gpu"]
    values = images * network.input.channels * network.image[0] * network.image[1]
    return float(max(0, 4 * values - gpu["l2_bytes"]) / gpu["copy_gb_per_s"] / 1e6)


@cache
def compilable_network(
    network: str, weight_set: str, scores: Path
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The weights by name, the images as they come to a device, and their scores."""
    one = networks.find(network)
    images = fashion_mnist.as_kept(fashion_mnist.load(one)[0], one)
    return weights.load(one, weight_set), images, np.load(scores)


def measure(
    implementation: Implementation,
    baselines: list[Implementation],
    network: Network,
    weight_set: str,
    scores: Path,
    sizes: list[int],
    measuring: Measuring,
    machine: dict[str, Any],
) -> Iterator[SizeResult]:
    """Each size in turn, its samples interleaved with those of the first of `baselines` that computes the network. Raises
    VariantFailure where nothing can be measured."""
    import cupy

    from warpbook.harness import network_bench
    from warpbook.harness.gpu_bench import GpuBench, open_bench

    bench = open_bench(implementation, GpuBench)
    on_host, images, expected = compilable_network(network.name, weight_set, scores)
    parameters = {name: cupy.asarray(array) for name, array in on_host.items()}
    held = network_bench.NetworkBench(bench, network_bench.NetworkData(network, images, expected, parameters))
    gc.disable()  # Python's garbage collector would interrupt one sample in a few dozen; this process is short
    for size in sizes:
        with checking.fault_context(implementation, "imported"):
            reason = implementation.unsupported(network, size)
        if reason:
            yield failure_rows(implementation, size, VariantFailure("unsupported", reason))
            continue
        paired = [one for one in baselines if not one.unsupported(network, size)][:1]
        try:
            # Calls without a pause heat the GPU, which then slows down whatever follows: after the largest size alone.
            energy = size == max(sizes)
            rows, check = held.measure([implementation, *paired], size, measuring.gpu, measuring, energy)
            fastest = min(row["time_ms"] for row in rows if row["variant"] == implementation.name)
            if fastest < (least := least_ms(network, size, machine)):
                raise VariantFailure(
                    "refused",
                    f"{implementation.name}, {size} images: a sample of {fastest:.4g} ms is below the {least:.4g} ms "
                    "in which the device can read them; the call cannot have done its work",
                )
            yield size, rows, check
        except VariantFailure as failure:
            yield failure_rows(implementation, size, failure)


def compile_all(every: list[Implementation], machine: dict[str, Any]) -> None:
    """Compile what is not compiled yet: tens of seconds for some, in which the GPU would stand idle."""
    from warpbook.harness import network_bench

    for one in every:
        with suppress(UserError, VariantFailure):  # whoever loads it says what is wrong with it
            network_bench.compile_cubin(one, machine["gpu"]["arch"])


def measure_in_sandbox(arguments: argparse.Namespace, network: Network, sizes: list[int]) -> Iterator[SizeResult]:
    """What `measure` yields in the sandbox. A stranger may have said it: what does not fit is refused."""
    readable = [
        *problem.FOLDERS,
        *weights.readable(network),
        fashion_mnist.CACHE,
        arguments.machine,
        building.PROJECT_CUBINS,
    ]
    for answer in sandbox.results([*sys.argv, "--in-sandbox"], readable, gpu=True):
        with sandbox.reject_malformed_answers("measurement"):
            images, rows, check = answer
            if images not in sizes:
                raise ValueError
        yield images, rows, check


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--implementation", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--measuring", required=True, help="the measuring policy, as JSON")
    parser.add_argument("--scores", type=Path, required=True, help="float64 scores of the data set's images")
    parser.add_argument("--machine", type=Path, required=True, help="the file that probe_machine wrote")
    parser.add_argument("--sandbox", choices=sandbox.SETTINGS, default="auto", help="as `sandbox` in config.yaml")
    parser.add_argument("--in-sandbox", action="store_true", help=argparse.SUPPRESS)  # inside: to say samples
    parser.add_argument("--samples", type=Path, required=True, help="where the samples are written")
    parser.add_argument("--checks", type=Path, required=True, help="where the checks are written")
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    implementation = whole_networks.read(arguments.implementation)
    baselines = implementation.baselines
    measuring = Measuring.model_validate_json(arguments.measuring)
    machine = json.loads(arguments.machine.read_text())
    sandboxed = not arguments.in_sandbox and sandbox.is_chosen(arguments.sandbox, "gpu")
    sizes = list(arguments.sizes)

    def produce() -> Iterator[SizeResult]:
        if sandboxed:
            return measure_in_sandbox(arguments, network, sizes)
        given = (network, arguments.weights, arguments.scores)
        return measure(implementation, baselines, *given, sizes, measuring, machine)

    if arguments.in_sandbox:
        return sandbox.emit(produce())
    require_target("gpu")
    if not sandboxed:
        preload.import_packages(*(one.header.requires for one in (implementation, *baselines)))
        compile_all([implementation, *baselines], machine)
        compilable_network(network.name, arguments.weights, arguments.scores)
    with gpu_pool.acquire("gpu", arguments.samples) as rows:
        require_same(machine, "gpu")
        measured: list[SizeResult] = []
        try:
            if implementation.read_error:
                raise VariantFailure("compile_failed", f"{implementation.name}: {implementation.read_error}")
            measured.extend(run_supervised(produce, measuring.timeout_s, apart=sandboxed))
        except VariantFailure as failure:
            done = {images for images, _, _ in measured}
            measured += [failure_rows(implementation, images, failure) for images in sizes if images not in done]
        place = {**tables.place(whole_networks.PROBLEM, network.name), "device": "gpu"}
        shared = {**place, "measured_on": node_and_gpu("gpu"), "job": implementation.full_name}
        rows += [
            {**shared, "size": images, **row, "variant": f"{whole_networks.PROBLEM}/{row['variant']}"}
            for images, samples, _ in measured
            for row in samples
        ]
    tested = {**place, "variant": implementation.full_name, "test": "scores", "reference": "NumPy float64"}
    tables.SAMPLES.write(rows, arguments.samples)
    tables.CORRECTNESS.write(
        [
            {**tested, "size": images, "max_abs_err": None, "worst_ratio": None, **check}
            for images, _, check in measured
        ],
        arguments.checks,
    )


if __name__ == "__main__":
    sys.exit(exit_status(main))
