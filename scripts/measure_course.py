"""Time files of the course on a network's layers at every size: their op time, layer time and GPU time."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from warpbook.common import statistics
from warpbook.common.errors import exit_status
from warpbook.common.supervision import VariantFailure, run_supervised
from warpbook.harness import ece408_gpu, sandbox, timing
from warpbook.harness.checking import Row
from warpbook.harness.clocks import Clock
from warpbook.kernels import variants
from warpbook.kernels.variants import Variant
from warpbook.machine import gpu_pool
from warpbook.machine.host import node_and_gpu, require_target
from warpbook.problems import networks
from warpbook.problems.problem import Case
from warpbook.runs import tables

MEMORY_BYTES = 24 << 30  # host memory of a timing: a layer of 10,000 images is 1.3 GB, held several times


def failed_row(case: Case, failure: VariantFailure) -> Row:
    """One row in place of a case's samples."""
    return {"case": case.name, "size": case.size, **timing.NOT_TIMED, **failure.columns}


def measure(variant: Variant, places: list[Case], sandboxed: bool) -> Iterator[tuple[Case, list[Row]]]:
    """Each layer's and size's samples in turn, or why there are none. VariantFailure where it does not compile."""
    clock = Clock(ece408_gpu.device())
    built = ece408_gpu.link(variant, sandboxed)
    elsewhere: dict[str, str] = {}
    for case in places:
        if case.name not in elsewhere:
            elsewhere[case.name] = ece408_gpu.misplaced_work(variant, sandboxed, built, case)
        try:
            if reason := clock.distrust_reason():
                raise VariantFailure("refused", reason)
            rows = ece408_gpu.time_layer(variant, sandboxed, built, case, clock.read, elsewhere[case.name])
            if reason := clock.distrust_reason():
                raise VariantFailure("refused", reason)
        except VariantFailure as failure:
            rows = [failed_row(case, failure)]
        yield case, rows


def time_all(
    variant: Variant, places: list[Case], failure: dict[str, str] | None, sandboxed: bool, timeout_s: float
) -> list[Row]:
    """The rows of all places, those that nothing was heard of with the reason."""
    remaining = [place for place in places if not variant.unsupported(place)]
    rows = [
        failed_row(place, VariantFailure("unsupported", reason))
        for place in places
        if (reason := variant.unsupported(place))
    ]
    try:
        if failure:
            raise VariantFailure(**failure)
        produce = lambda: measure(variant, list(remaining), sandboxed)  # noqa: E731
        for place, samples in run_supervised(produce, timeout_s, MEMORY_BYTES, apart=True):
            remaining.remove(place)
            rows += samples
    except VariantFailure as failed:
        rows += [failed_row(place, failed) for place in remaining]
    return rows


def summary_lines(variant: Variant, rows: list[Row]) -> Iterator[str]:
    """A line for each layer, size and kind of time: its median, 95 % interval and number of samples; or the reason."""
    series: dict[tuple[str, int, str], list[float]] = {}
    for row in rows:
        place = f"{variant.name}, {row['case']}, {row['size']} images"
        if row["status"] != "ok":
            if not row["sample"] and row["kind"] in ("", "op"):
                yield f"{place}: {row['status']}: {row['reason']}"
        else:
            key = (place, row["size"], f"{row['kind']} {row['state']}".strip())
            series.setdefault(key, []).append(row["time_ms"])
    for (place, _, kind), times in series.items():
        found = statistics.median(np.array(times))
        yield f"{place}: {kind} {found.value:.4g} ms ({found.low:.4g} to {found.high:.4g}, n = {found.n})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="ece408")
    parser.add_argument("--variant", required=True, nargs="+")
    parser.add_argument("--kernels", type=Path, default=variants.FOLDER, help="folder of the files")
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--correctness", type=Path, nargs="?", help="what check_variant wrote about the variant")
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--sandbox", choices=sandbox.SETTINGS, default="auto", help="as `sandbox` in config.yaml")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    require_target()
    network = networks.find(arguments.network)
    sandboxed = sandbox.is_chosen(arguments.sandbox, "gpu")
    places = [layer.at(size) for layer in network.convs for size in arguments.sizes]
    checked = tables.CORRECTNESS.rows(arguments.correctness) if arguments.correctness else []
    every: list[Row] = []
    for name in arguments.variant:
        variant = variants.read(name, arguments.kernels)
        with gpu_pool.acquire("gpu", arguments.out) as rows:
            rows += time_all(variant, places, tables.first_failure(checked), sandboxed, arguments.timeout)
            shared = {"job": name, "variant": name, "device": "gpu", "measured_on": node_and_gpu("gpu")}
        shared["stop_reason"] = "samples"
        every += [{**shared, **row, **tables.place(network.problem.name, network.name, row["case"])} for row in rows]
        for line in summary_lines(variant, rows):
            print(line, flush=True)
    tables.SAMPLES.write(every, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
