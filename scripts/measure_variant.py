"""Time one variant on every convolution of a network at every size, in turn with the variant that it builds on."""

import argparse
import gc
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from warpbook import exclusive, networks, tables, timing, variants
from warpbook.config import Measuring
from warpbook.errors import exit_status
from warpbook.networks import ConvLayer
from warpbook.supervision import Failed, supervised
from warpbook.variants import Variant

Place = tuple[ConvLayer, int]

AGAIN = 4  # times that a variant is held against its own copy at each place


def below_bound(
    rows: list[timing.Row], variant: Variant, layer: ConvLayer, images: int, machine: dict[str, Any]
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


def measure(
    device: str,
    variant: Variant,
    baseline: Variant | None,
    places: list[Place],
    measuring: Measuring,
    machine: dict[str, Any],
) -> Iterator[tuple[Place, list[timing.Row]]]:
    """Each place's samples in turn: of the variant, and where they can be had of its baseline beside it."""
    if device == "gpu":
        from warpbook.gpu import GpuBench as bench_type
    else:
        from warpbook.bench import CpuBench as bench_type
    gc.disable()  # Python's collector would fall into a sample every few dozen; this process is short
    bench = bench_type()
    series = measuring.gpu if device == "gpu" else measuring.cpu
    last_ms: dict[str, float] = {}  # the baseline's last time an image, by layer
    for layer, images in places:
        if reason := variant.unsupported(layer, images):
            yield (layer, images), [failed_row(variant, layer, images, Failed("unsupported", reason))]
            continue
        paired = []
        # A baseline so slow that patience ends before there are pairs enough would cost the variant its own
        # precision: it is then measured in its own job alone.
        expected_s = last_ms.get(layer.name, 0.0) * images / 1e3
        if baseline and not baseline.unsupported(layer, images) and series.min_samples * expected_s < series.patience_s:
            paired = [baseline]
        try:
            rows = timing.measure_layer(bench, [variant, *paired], layer, images, series, measuring)
            if device == "gpu" and (reason := below_bound(rows, variant, layer, images, machine)):
                raise Failed("refused", reason)
        except Failed as failure:
            rows = [failed_row(variant, layer, images, failure)]
        for row in rows:
            if paired and row["variant"] == paired[0].name:
                last_ms[layer.name] = row["time_ms"] / images
        yield (layer, images), rows


def failed_row(variant: Variant, layer: ConvLayer, images: int, failure: Failed) -> timing.Row:
    """One row in place of a layer's samples."""
    nothing = {"state": "", "kind": "", "sample": 0, "time_ms": None, "sm_clock_mhz": None, "throttled": False}
    place = {"variant": variant.name, "layer": layer.name, "size": images}
    return {**place, **nothing, "stop_reason": "", **failure.columns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--measuring", required=True, help="the measuring policy, as JSON")
    parser.add_argument("--correctness", type=Path, required=True)
    parser.add_argument("--baseline-correctness", type=Path)
    parser.add_argument("--again", action="store_true", help="time the variant in turn with its own copy")
    parser.add_argument("--machine", type=Path, required=True, help="what probe_machine wrote")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    variant = variants.read(arguments.variant)
    measuring = Measuring.model_validate(json.loads(arguments.measuring))
    machine = json.loads(arguments.machine.read_text())
    baseline = variants.read(variant.header.builds_on) if variant.header.builds_on else None
    if arguments.again:
        baseline = replace(variant, name=f"{variant.name}:again")
    elif arguments.baseline_correctness and tables.failure(tables.CORRECTNESS.rows(arguments.baseline_correctness)):
        baseline = None  # nothing sound to compare with; the variant is still timed

    remaining: list[Place] = [(layer, size) for layer in network.convs for size in arguments.sizes]
    if arguments.again:
        remaining *= AGAIN
    times_at: Counter[Place] = Counter()
    rows: list[timing.Row] = []

    def keep(place: Place, found: list[timing.Row]) -> None:
        remaining.remove(place)
        times_at[place] += 1
        job = f"again:{variant.name}:{times_at[place]}" if arguments.again else variant.name
        rows.extend({"job": job, **row} for row in found)

    def produce() -> Iterator[tuple[Place, list[timing.Row]]]:
        return measure(arguments.device, variant, baseline, list(remaining), measuring, machine)

    try:
        if failure := tables.failure(tables.CORRECTNESS.rows(arguments.correctness)):
            raise Failed(**failure)
        with exclusive.machine():
            for place, found in supervised(produce, measuring.timeout_s):
                keep(place, found)
    except Failed as failure:
        for layer, images in list(remaining):
            keep((layer, images), [failed_row(variant, layer, images, failure)])
    shared = {"network": network.name, "device": arguments.device}
    tables.SAMPLES.write(({**shared, **row} for row in rows), arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
