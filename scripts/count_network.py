"""Read hardware counters of one implementation of a whole network with Nsight Compute: a row for each counter of each
kernel of one call.

The program starts itself again under ncu, with --under-tool, and calls the implementation twice: once to warm up,
unprofiled, and once to count. It prepares all that needs no GPU before it waits for one.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from warpbook.common.errors import exit_status
from warpbook.common.supervision import VariantFailure
from warpbook.harness import preload
from warpbook.kernels import whole_networks
from warpbook.kernels.whole_networks import Implementation
from warpbook.machine import cuda_devices, gpu_wait, host
from warpbook.machine.host import require_target
from warpbook.problems import fashion_mnist, networks, weights
from warpbook.problems.networks import Network
from warpbook.profiling import counting
from warpbook.runs import tables
from warpbook.runs.schema import Row


def call_network(implementation: Implementation, network: Network, weight_set: str, images: int, arch: str) -> None:
    """Call the implementation twice on images of the data set, the second time for ncu."""
    preload.import_packages(implementation.header.requires)
    import cupy
    import numpy as np
    from cupy.cuda import profiler

    from warpbook.harness import gpu_bench, network_bench

    arch = arch or gpu_bench.require_device().arch  # which says why there is none
    network_bench.compile_cubin(implementation, arch)  # compiled, and kept
    loaded = weights.load(network, weight_set)
    entering = fashion_mnist.normalize(fashion_mnist.load(network)[0][:images], network, np.float32)

    gpu_wait.wait()
    kernels = network_bench.load_kernels(implementation, arch)
    parameters = {name: cupy.asarray(array) for name, array in loaded.items()}
    x = cupy.asarray(entering)
    scores = cupy.empty((images, network.classes), np.float32)
    labels = cupy.empty(images, np.int32)
    call = implementation.prepare(kernels, network, images, parameters)
    call(x, scores, labels)
    cupy.cuda.runtime.deviceSynchronize()
    profiler.start()
    call(x, scores, labels)
    cupy.cuda.runtime.deviceSynchronize()
    profiler.stop()


def count(
    run: counting.RunCommand,
    implementation: Implementation,
    network: Network,
    weight_set: str,
    images: int,
    metrics: list[str],
    timeout_s: float,
) -> list[Row]:
    """Rows of COUNTERS for one call: its counters, or one row that says why there are none."""
    where = tables.place(whole_networks.PROBLEM, network.name)
    place = {"tool": "ncu", "variant": implementation.full_name, **where, "size": images}
    device = host.gpu()
    arch = device.arch if isinstance(device, cuda_devices.Device) else ""
    if implementation.read_error:
        failure: counting.Failure | None = ("compile_failed", f"{implementation.name}: {implementation.read_error}")
    elif reason := implementation.unsupported(network, images):
        failure = ("unsupported", reason)
    elif arch and (reason := implementation.header.architecture_reason(arch)):
        failure = ("unsupported", f"{implementation.name} {reason}")
    else:
        inside = [sys.executable, __file__, "--implementation", implementation.name, "--network", network.name]
        inside += ["--weights", weight_set, "--images", str(images), "--arch", arch, "--under-tool"]
        with tempfile.TemporaryDirectory() as scratch:
            report = Path(scratch) / "counted.ncu-rep"
            counted, failure = counting.run_under_ncu(run, inside, metrics, timeout_s, report)
        if counted and not failure:
            return counting.counter_rows(place, counted, metrics, len({row["launch"] for row in counted}))
    assert failure
    return [{**place, **counting.NOTHING, **VariantFailure(*failure).columns}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--implementation", required=True)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--metrics", nargs="+", help="counters, by ncu's names")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--arch", help="architecture of the GPU")
    parser.add_argument("--under-tool", action="store_true", help="call the implementation, under ncu")
    arguments = parser.parse_args()
    implementation = whole_networks.read(arguments.implementation)
    network = networks.find(arguments.network)
    if arguments.under_tool:
        return call_network(implementation, network, arguments.weights, arguments.images, arguments.arch)
    require_target(tool="ncu")
    of = (implementation, network, arguments.weights, arguments.images, arguments.metrics, arguments.timeout)
    counting.write_counters(arguments.out, lambda run: count(run, *of))


if __name__ == "__main__":
    sys.exit(exit_status(main))
