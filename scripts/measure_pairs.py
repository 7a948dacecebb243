"""Compare kernels whose difference is known, again and again in fresh processes: a row for each comparison. They show how
often a verdict of the harness is false, and how small a difference it finds."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from measure_variant import measure
from warpbook.common import statistics
from warpbook.common.errors import exit_status
from warpbook.common.files import scratch_folder
from warpbook.common.supervision import VariantFailure, run_supervised
from warpbook.config.settings import Measuring
from warpbook.harness import preload, sandbox
from warpbook.kernels import variants
from warpbook.kernels.variants import Variant
from warpbook.machine import gpu_pool
from warpbook.machine.host import node_and_gpu, require_same, require_target
from warpbook.problems import case_sets, problem
from warpbook.problems.problem import Case
from warpbook.runs import tables
from warpbook.runs.schema import Row

PROBLEM = '''"""
title:   Values after so many additions of one
extents: {n: values, rounds: additions}
inputs:  {x: [n]}
outputs: {y: [n]}
flops:   n * rounds
sums:    rounds
"""


def reference(x, rounds):
    return x + rounds
'''

# Each addition waits for the one before, so that a kernel takes as much longer as it has more of them. One up and one
# down change no result.
ADDITIONS = """/*
title: Additions, {percent} % more than are needed
{launch}*/
{function} additions(const float* x, float* y, int n, int rounds)
{{
    const int more = rounds / 100 * {percent};
    {each} {{
        float sum = x[i];
        for (int round = 0; round < rounds; ++round) sum += 1.0f;
        for (int round = 0; round < more; round += 2) {{
            sum += 1.0f;
            sum -= 1.0f;
        }}
        y[i] = sum;
    }}
}}
"""
ON_GPU = {
    "launch": "threads: [128]\ngrid: [ceil(n / 128)]\n",
    "function": 'extern "C" __global__ void',
    "each": "for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += 128 * gridDim.x)",
}
ON_CPU = {"launch": "", "function": 'extern "C" void', "each": "for (int i = 0; i < n; ++i)"}
VALUES, ROUNDS = {"gpu": 8192, "cpu": 8}, 200_000
"""A GPU has a multiprocessor for each of their blocks. A few tenths of a millisecond there, a few milliseconds on a CPU."""

SLOWER = (0, 1, 2, 5)
"""Percent more additions."""

COPIES = {
    "gpu": (
        ("fa18", "direct", 1000),
        ("fa18", "fp16x3_mma", 1000),
        ("gemm", "gemm/warp_tile", 1024),
        ("softmax", "softmax/online", 4096),
        ("reduce", "reduce/one_pass", 2097152),
    ),
    "cpu": (("fa18", "register_blocked", 10), ("reduce", "reduce/loop", 2097152)),
}
"""Real kernels that are compared with their own copies: the first case of a network or study, a variant, a size."""

NO_RATIO: Row = {"speedup": None, "ci_low": None, "ci_high": None}
NO_PAIRS: Row = {"kind": "op", "n": 0, **NO_RATIO}
"""Of the row that stands for a comparison that failed."""

Pair = tuple[int, Variant, Variant, str, Case]


def pairs(device: str, folder: Path) -> Iterator[Pair]:
    """By how many percent a variant is slower, the variant, what it is compared with, the name of a set of cases, and a
    case of it; the `folder`'s name is that of the function."""
    of_device, ending = (ON_GPU, "cu") if device == "gpu" else (ON_CPU, "cpp")
    Path(folder, problem.FILE).write_text(PROBLEM)
    for percent in SLOWER:
        Path(folder, f"slower_{percent}.{ending}").write_text(ADDITIONS.format(percent=percent, **of_device))
    base = variants.read("slower_0", folder)
    case = base.problem.case("additions", {"n": VALUES[device], "rounds": "size"}).at(ROUNDS)
    for percent in SLOWER:
        one = variants.read(f"slower_{percent}", folder)
        yield percent, one, base if percent else _copy(base), "known", case
    for cases, name, size in COPIES[device]:
        one = variants.read(name)
        yield 0, one, _copy(one), cases, case_sets.find(cases).cases[0].at(size)


def _copy(variant: Variant) -> Variant:
    return replace(variant, name=f"{variant.name}:aa")


def compare(
    device: str, pair: Pair, tests: int, measuring: Measuring, machine: dict[str, Any], sandboxed: bool
) -> Iterator[list[Row]]:
    """The rows of one comparison after another, in one process for each of the two: columns of PAIRS from `kind` on."""
    _, one, other, _, case = pair
    for _, rows in measure(device, one, other, [case] * tests, measuring, machine, sandboxed, compared_only=True):
        if rows[0]["status"] != "ok":
            yield [{**NO_PAIRS, "status": rows[0]["status"], "reason": rows[0]["reason"]}]
            continue
        found = []
        for kind in dict.fromkeys(row["kind"] for row in rows):
            by_sample: dict[int, dict[str, float]] = {}
            for row in rows:
                if row["kind"] == kind and not row["throttled"]:
                    by_sample.setdefault(row["sample"], {})[row["variant"]] = row["time_ms"]
            both = [times for times in by_sample.values() if len(times) == 2]
            times = [np.array([taken[name] for taken in both]) for name in (other.name, one.name)]
            ratio = statistics.paired_ratio(*times)
            known = {"speedup": ratio.value, "ci_low": ratio.low, "ci_high": ratio.high}
            told = known if np.isfinite(ratio.low) else NO_RATIO
            found.append({"kind": kind, "n": ratio.n, **told, "status": "ok", "reason": ""})
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), required=True)
    parser.add_argument("--gpu", type=int, help="number of the GPU, from 0, among those that share the jobs")
    parser.add_argument("--processes", type=int, required=True, help="how often each pair gets new processes")
    parser.add_argument("--tests", type=int, required=True, help="comparisons in each process")
    parser.add_argument("--measuring", required=True, help="the measuring policy, as JSON")
    parser.add_argument("--machine", type=Path, required=True, help="the file that probe_machine wrote")
    parser.add_argument("--sandbox", choices=sandbox.SETTINGS, default="auto", help="as `sandbox` in config.yaml")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = arguments.device
    measuring, machine = Measuring.model_validate_json(arguments.measuring), json.loads(arguments.machine.read_text())
    sandboxed = sandbox.is_chosen(arguments.sandbox, device)
    require_target(device)
    if device == "gpu":
        preload.import_packages()
    with (
        scratch_folder() as scratch,
        gpu_pool.acquire(device, arguments.out, number=arguments.gpu) as rows,
    ):
        require_same(machine, device)
        folder = scratch / "additions"
        folder.mkdir()
        for pair in list(pairs(device, folder)):
            percent, one, _, cases, case = pair
            shared = {**tables.place(one.problem.name, cases, case.name), "variant": one.name, "size": case.size}
            shared |= {"device": device, "slower_percent": percent, "measured_on": node_and_gpu(device)}
            for process in range(arguments.processes):
                done: list[Row] = []
                produce = partial(compare, device, pair, arguments.tests, measuring, machine, sandboxed)
                try:
                    for number, found in enumerate(run_supervised(produce, measuring.timeout_s, apart=sandboxed)):
                        done += [{"process": process, "number": number, **row} for row in found]
                except VariantFailure as failure:
                    done.append({"process": process, "number": arguments.tests, **NO_PAIRS, **failure.columns})
                rows += [{**shared, **row} for row in done]
    tables.PAIRS.write(rows, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
