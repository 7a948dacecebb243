"""Time one variant on every convolution of a network at every size, in turn with the variant that it builds on."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from warpbook import checking, exclusive, networks, tables, timing, variants
from warpbook.config import Measuring
from warpbook.errors import exit_status
from warpbook.variants import Variant

PAIRS = 10


def below_bound(
    rows: list[timing.Row], variant: Variant, layer: networks.ConvLayer, images: int, machine: dict[str, Any]
) -> str:
    """Why a layer's samples cannot be true: a time below what the hardware can do. Empty when they can.

    What the L2 cache holds need not come from or go to memory within a call, so that much is left out of the bytes.
    """
    gpu = machine["gpu"]
    peak = gpu["peak_gflop_per_s"][variant.header.precision] if variant.header.method == "direct" else None
    bound = timing.lower_bound_ms(layer, images, gpu["copy_gb_per_s"], peak, kept_bytes=gpu["l2_bytes"])
    fastest = min(row["time_ms"] for row in rows if row["variant"] == variant.name)
    if fastest >= bound:
        return ""
    return (
        f"{variant.name}, {layer.name}, {images} images: a sample of {fastest:.4g} ms is below the hardware's lower "
        f"bound of {bound:.4g} ms; the call cannot have done its work"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--measuring", required=True, help="the measuring policy, as JSON")
    parser.add_argument("--correctness", type=Path, required=True)
    parser.add_argument("--baseline-correctness", type=Path)
    parser.add_argument("--machine", type=Path, required=True, help="what probe_machine wrote")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    variant = variants.read(arguments.variant)
    measuring = Measuring.model_validate(json.loads(arguments.measuring))
    series = measuring.gpu if arguments.device == "gpu" else measuring.cpu
    machine = json.loads(arguments.machine.read_text())
    baseline = variants.read(variant.header.builds_on) if variant.header.builds_on else None
    if arguments.baseline_correctness and tables.failure(tables.CORRECTNESS.read(arguments.baseline_correctness)):
        baseline = None  # nothing sound to compare with; the variant is still timed

    rows: list[timing.Row] = []

    def fail(layer: networks.ConvLayer, images: int, failure: dict[str, str]) -> None:
        """Put one row in place of a layer's samples."""
        rows[:] = [row for row in rows if (row["layer"], row["size"]) != (layer.name, images)]
        nothing = {"state": "", "kind": "", "sample": 0, "time_ms": None, "sm_clock_mhz": None, "throttled": False}
        rows.append(
            {"variant": variant.name, "layer": layer.name, "size": images, **nothing, "stop_reason": "", **failure}
        )

    def write() -> None:
        shared = {"job": variant.name, "network": network.name, "device": arguments.device}
        tables.SAMPLES.write(({**shared, **row} for row in rows), arguments.out)

    places = [(layer, size) for layer in network.convs for size in arguments.sizes]
    doing = places[0]

    def hung() -> None:
        reason = f"{variant.name} was still running after {measuring.timeout_s:g} s (timeout_s in config.yaml)"
        for layer, images in places[places.index(doing) :]:
            fail(layer, images, {"status": "timed_out", "reason": reason})
        write()

    if failure := tables.failure(tables.CORRECTNESS.read(arguments.correctness)):
        for layer, images in places:
            fail(layer, images, failure)
        return write()
    if arguments.device == "gpu":
        from warpbook.gpu import GpuBench as bench_type
    else:
        from warpbook.bench import CpuBench as bench_type
    with exclusive.machine():
        bench = bench_type()
        for doing in places:
            layer, images = doing
            if reason := variant.unsupported(layer, images):
                fail(layer, images, {"status": "unsupported", "reason": reason})
                continue
            paired = []
            if baseline and not baseline.unsupported(layer, images):
                # A baseline so slow that few pairs fit the budget would cost the variant its own precision: it is
                # then measured in its own job alone.
                last = [row for row in rows if row["variant"] == baseline.name and row["layer"] == layer.name]
                expected_s = last[-1]["time_ms"] / 1e3 * images / last[-1]["size"] if last else 0.0
                if PAIRS * expected_s < series.budget_s:
                    paired = [baseline]
            try:
                with checking.deadline(measuring.timeout_s, hung):
                    taken = timing.measure_layer(bench, [variant, *paired], layer, images, series, measuring)
            except checking.Failed as error:
                fail(layer, images, {"status": error.status, "reason": str(error)})
                continue
            rows += taken
            if arguments.device == "gpu" and (reason := below_bound(taken, variant, layer, images, machine)):
                fail(layer, images, {"status": "refused", "reason": reason})
    write()


if __name__ == "__main__":
    sys.exit(exit_status(main))
