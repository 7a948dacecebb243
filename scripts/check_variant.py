"""Test one variant's correctness on a network's layers, on ragged shapes, and by the labels of the real images."""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from warpbook import checking, data, inference, networks, reference, tables, variants, weights
from warpbook.bench import CPU_CHUNK, Bench, CpuBench
from warpbook.checking import Row
from warpbook.errors import exit_status
from warpbook.variants import Variant


def bench_for(device: str) -> Bench:
    """The bench of a device: cpu or gpu."""
    if device == "cpu":
        return CpuBench()
    from warpbook.gpu import GpuBench

    return GpuBench()


def check_labels(variant: Variant, network: networks.Network, expected: np.ndarray, sizes: list[int]) -> list[Row]:
    """A row for each size: how many of its images get another label than the float64 reference gives them."""

    def row(size: int, **columns: Any) -> Row:
        return {"layer": "", "size": size, "test": "labels", **checking.NOT_COMPARED, **columns}

    try:
        with checking.faults_named(variant, "inferring"):
            images, _ = data.load(network)
            parameters = weights.load(network, network.weight_sets[0])
            predicted, _ = inference.load(variant, network, parameters)(images[: max(sizes)])
    except checking.Failed as failure:
        return [row(size, ok=False, status=failure.status, reason=str(failure)) for size in sizes]
    rows = []
    for size in sizes:
        mismatched = int((predicted[:size] != expected[:size]).sum())
        allowed = reference.labels_allowed_to_differ(variant, size)
        reason = ""
        if mismatched > allowed:
            reason = f"{variant.name} labels {mismatched} of {size} images unlike the reference; {allowed} may differ"
        judged = {"ok": not reason, "status": "wrong_result" if reason else "ok", "reason": reason}
        rows.append(
            row(size, **judged, reference="NumPy float64", tolerance=float(allowed), mismatched_labels=mismatched)
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--labels", type=Path, help="reference labels; without them only the layers are tested")
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    variant = variants.read(arguments.variant)
    largest = max(arguments.sizes)
    rows: list[Row] = []

    def write() -> None:
        shared = {"variant": variant.name, "network": network.name, "device": arguments.device}
        tables.CORRECTNESS.write(({**shared, **row} for row in rows), arguments.out)

    def hung() -> None:
        reason = f"{variant.name} was still running after {arguments.timeout:g} s (timeout_s in config.yaml)"
        failure = {"ok": False, "status": "timed_out", "reason": reason}
        rows.append({"layer": "", "size": largest, "test": "labels", **checking.NOT_COMPARED, **failure})
        write()

    with checking.deadline(arguments.timeout, hung):
        bench = bench_for(arguments.device)
        # A CPU variant never gets more than a chunk at a time, so that larger sizes would repeat the same call.
        sizes = [size for size in arguments.sizes if arguments.device == "gpu" or size <= CPU_CHUNK] or [CPU_CHUNK]
        cases = [*checking.RAGGED_LAYERS, *((conv, size) for conv in network.convs for size in sizes)]
        for layer, images in cases:
            rows += checking.check_layer(bench, variant, layer, images)
            if rows[-1]["status"] == "launch_failed":
                break  # after a fault the device answers nothing more to this process
        supported = not variant.problem and not any(variant.unsupported(conv, largest) for conv in network.convs)
        sound = all(row["ok"] or row["status"] == "unsupported" for row in rows)
        if arguments.labels and supported and sound:
            rows += check_labels(variant, network, np.load(arguments.labels), arguments.sizes)
    write()
    for row in rows:
        if not row["ok"]:
            print(f"{row['status']}: {row['reason']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
