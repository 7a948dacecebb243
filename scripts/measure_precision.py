"""Measure how far one GPU variant is from float64, over the length of its sums and the range of its inputs: a row for
each layer and kind of inputs, with the direct convolution's error on the same."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from warpbook.common.errors import exit_status
from warpbook.common.supervision import MEMORY_BYTES, VariantFailure, run_supervised
from warpbook.harness import precision, preload, sandbox
from warpbook.harness.checking import Row
from warpbook.kernels import variants
from warpbook.machine import gpu_pool
from warpbook.machine.host import require_target
from warpbook.problems import networks
from warpbook.runs import tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--kernels", type=Path, help="folder of the variant's files, if not its problem's")
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--sandbox", choices=sandbox.SETTINGS, default="auto", help="as `sandbox` in config.yaml")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    require_target("gpu")
    variant = variants.read(arguments.variant, arguments.kernels)
    direct = variants.read(variants.full_name(variant.problem, variant.problem.facts.baseline), arguments.kernels)
    convs = [conv for network in networks.all_networks().values() for conv in network.convs]
    others = [conv for conv in convs if conv.problem == variant.problem]

    sandboxed = sandbox.is_chosen(arguments.sandbox, "gpu")
    preload.import_packages()
    try:
        with gpu_pool.acquire("gpu", arguments.out, shared=True) as rows:

            def produce() -> Iterator[list[Row]]:
                from warpbook.harness.gpu_bench import open_bench
                from warpbook.harness.isolated_gpu import IsolatedGpuBench

                bench = open_bench(variant, lambda: IsolatedGpuBench(sandboxed))
                return precision.measure(bench, variant, direct, others)

            for of_layer in run_supervised(produce, arguments.timeout, MEMORY_BYTES, apart=sandboxed):
                rows += of_layer
    except VariantFailure as failure:
        rows.append(precision.precision_row(variant, None, "", failure.columns))
    tables.PRECISION.write(({"variant": variant.name, **row} for row in rows), arguments.out)
    for row in rows:
        if row["status"] != "ok":
            print(f"{row['status']}: {row['reason']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
