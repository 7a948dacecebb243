"""Test one variant's correctness on a network's layers, on ragged shapes, and by the labels of the real images."""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from warpbook import checking, data, emulator, exclusive, inference, networks, reference, tables, variants, weights
from warpbook.bench import CPU_CHUNK, Bench, CpuBench
from warpbook.checking import Row
from warpbook.errors import exit_status
from warpbook.supervision import Failed, supervised
from warpbook.variants import Variant


def bench_for(device: str) -> Bench:
    """The bench of a device: cpu or gpu."""
    if device == "cpu":
        return CpuBench()
    from warpbook.gpu import GpuBench

    return GpuBench()


def row_of(layer: str, size: int, test: str, **columns: Any) -> Row:
    """Columns of CORRECTNESS from `layer` on, those of a comparison empty where none was made."""
    return {"layer": layer, "size": size, "test": test, **checking.NOT_COMPARED, **columns}


def check_labels(variant: Variant, network: networks.Network, expected: np.ndarray, sizes: list[int]) -> list[Row]:
    """A row for each size: how many of its images get another label than the float64 reference gives them."""
    try:
        with checking.faults_named(variant, "inferring"):
            images, _ = data.load(network)
            parameters = weights.load(network, network.weight_sets[0])
            predicted, _ = inference.load(variant, network, parameters)(images[: max(sizes)])
    except Failed as failure:
        return [row_of("", size, "labels", ok=False, **failure.columns) for size in sizes]
    rows = []
    for size in sizes:
        mismatched = int((predicted[:size] != expected[:size]).sum())
        allowed = reference.labels_allowed_to_differ(variant, size)
        reason = ""
        if mismatched > allowed:
            reason = f"{variant.name} labels {mismatched} of {size} images unlike the reference; {allowed} may differ"
        compared = {"reference": "NumPy float64", "tolerance": float(allowed), "mismatched_labels": mismatched}
        judged = {"ok": not reason, "status": "wrong_result" if reason else "ok", "reason": reason}
        rows.append(row_of("", size, "labels", **compared, **judged))
    return rows


def check_places(
    bench: Bench, variant: Variant, places: Iterable[tuple[networks.ConvLayer, int]]
) -> Iterator[list[Row]]:
    """The rows of each (layer, images) in turn, up to one that shows that no other can do better."""
    for layer, images in places:
        rows = checking.check_layer(bench, variant, layer, images)
        yield rows
        if rows[-1]["status"] in ("compile_failed", "launch_failed"):
            return  # after a fault the device answers nothing more to this process


def emulate(variant: Variant, network: networks.Network) -> Iterator[list[Row]]:
    """A GPU variant's own source on the CPU: ragged shapes, and then the network's layers with the threads reversed."""
    if reason := emulator.beyond(variant):
        yield [row_of("", 1, "integers", ok=False, status="unsupported", reason=reason)]
        return
    emulator.keep_words()
    bench = emulator.EmulatorBench()
    yield from check_places(bench, variant, checking.RAGGED_LAYERS)
    bench.reversed_order = True
    yield from check_places(bench, variant, ((conv, 1) for conv in network.convs))


def check(
    device: str, variant: Variant, network: networks.Network, sizes: list[int], labels: Path | None
) -> Iterator[list[Row]]:
    """The rows of each layer and size in turn, ragged shapes first, and those of the labels last."""
    if device == "emulator":
        yield from emulate(variant, network)
        return
    bench = bench_for(device)
    # A CPU variant never gets more than a chunk at a time, so that larger sizes would repeat the same call.
    tested = [size for size in sizes if device == "gpu" or size <= CPU_CHUNK] or [CPU_CHUNK]
    sound = True
    places = [*checking.RAGGED_LAYERS, *((conv, size) for conv in network.convs for size in tested)]
    for rows in check_places(bench, variant, places):
        yield rows
        sound &= all(row["ok"] or row["status"] == "unsupported" for row in rows)
    supported = not any(variant.unsupported(conv, max(sizes)) for conv in network.convs)
    if labels and supported and sound:
        yield check_labels(variant, network, np.load(labels), sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu", "emulator"), required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--kernels", type=Path, default=variants.FOLDER, help="folder of the variant's files")
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--labels", type=Path, help="reference labels; without them only the layers are tested")
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    variant = variants.read(arguments.variant, arguments.kernels)
    if arguments.device == "emulator" and not emulator.beyond(variant):
        emulator.under_sanitizer()
    rows: list[Row] = []

    def produce() -> Iterator[list[Row]]:
        return check(arguments.device, variant, network, arguments.sizes, arguments.labels)

    try:
        with exclusive.machine(shared=True):
            for found in supervised(produce, arguments.timeout):
                rows += found
    except Failed as failure:
        words = emulator.sanitizer_words()
        known = Failed("wrong_result", f"{variant.name}: {words}") if words else failure
        rows.append(row_of("", max(arguments.sizes), "labels", ok=False, **known.columns))
    shared = {"variant": variant.name, "network": network.name, "device": arguments.device}
    tables.CORRECTNESS.write(({**shared, **row} for row in rows), arguments.out)
    for row in rows:
        if not row["ok"]:
            print(f"{row['status']}: {row['reason']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
