"""Run the whole inference program at each size and record what GNU time reports: a row for each run."""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from warpbook.common import supervision
from warpbook.common.errors import exit_status
from warpbook.common.supervision import VariantFailure
from warpbook.config.settings import Measuring
from warpbook.harness import building, checking, cpp_compiler, sandbox
from warpbook.kernels import variants
from warpbook.kernels.variants import Variant
from warpbook.machine import gpu_pool
from warpbook.machine.host import node_and_gpu, require_target
from warpbook.machine.load import LoadMeter
from warpbook.problems import fashion_mnist, networks, problem, weights
from warpbook.problems.networks import Network
from warpbook.runs import tables
from warpbook.runs.schema import Row

RUNS_WITHIN = 3  # time limits of a run; the first is run twice

PROGRAM = Path(__file__).with_name("infer.py")
_ACCURACY = re.compile(r"(?:Correctness:|'accuracy':) ([0-9.]+)")

NOT_RUN: dict[str, Any] = {
    "user_s": None, "system_s": None, "elapsed_s": None, "max_rss_kib": None, "major_faults": None,
    "minor_faults": None, "input_blocks": None, "output_blocks": None, "accuracy": None, "output": "",
}  # fmt: skip
"""Columns of PROGRAMS for a program that was not run."""


def run_once(command: list[str], timeout_s: float, tolerated_load: float = math.inf) -> dict[str, Any]:
    """Columns of PROGRAMS for one run of a command: its times and peak memory, as the system accounts them. Refused
    where other programs kept more than `tolerated_load` processors busy, and may have slowed it."""
    load = LoadMeter(tolerated_load)
    # In memory: a full disk must not look like a failure of the program.
    with open(os.memfd_create("stdout"), "w+") as out, open(os.memfd_create("stderr"), "w+") as err:
        with supervision.kill_descendants():
            began = time.perf_counter()
            leave = partial(supervision.end_with_parent, os.getpid())
            process = subprocess.Popen(command, stdout=out, stderr=err, preexec_fn=leave)
            killer = threading.Timer(timeout_s, process.kill)
            killer.start()
            _, exit_code, usage = os.wait4(process.pid, 0)
            elapsed = time.perf_counter() - began
            timed_out = not killer.is_alive()
            killer.cancel()
        process.returncode = os.waitstatus_to_exitcode(exit_code)
        out.seek(0)
        err.seek(0)
        output, complaint = out.read(), err.read().strip()
    accuracy = _ACCURACY.search(output)
    status, reason = "ok", ""
    if busy := load.reason(usage.ru_utime + usage.ru_stime):
        status, reason = "refused", busy
    if timed_out:
        status, reason = "timed_out", f"the program was still running after {timeout_s:g} s (timeout_s in config.yaml)"
    elif process.returncode != 0 or not accuracy:
        last = complaint.splitlines()[-1] if complaint else f"exit status {process.returncode}"
        status, reason = "launch_failed", f"the program failed: {last.removeprefix('error: ')}"
    return {
        "user_s": usage.ru_utime,
        "system_s": usage.ru_stime,
        "elapsed_s": elapsed,
        "max_rss_kib": usage.ru_maxrss,
        "major_faults": usage.ru_majflt,
        "minor_faults": usage.ru_minflt,
        "input_blocks": usage.ru_inblock,
        "output_blocks": usage.ru_oublock,
        "accuracy": float(accuracy.group(1)) if accuracy else None,
        "output": output,
        "status": status,
        "reason": reason,
    }


def run_all(arguments: argparse.Namespace, variant: Variant, network: Network) -> Iterator[Row]:
    """The columns of PROGRAMS from `weights` on, but for `device`, of each run in turn."""
    measuring = Measuring.model_validate(json.loads(arguments.measuring))

    def runs_at(weight_set: str, size: int) -> int:
        # On a GPU, start-up dominates small datasets, and the weights do not change the time: one run is enough.
        first = weight_set == arguments.weights[0] and size == max(arguments.sizes)
        return measuring.programs.runs if arguments.repeat and (variant.device == "cpu" or first) else 1

    failure = tables.first_failure(tables.CORRECTNESS.rows(arguments.correctness))
    begun = False
    for weight_set in arguments.weights:
        for size in arguments.sizes:
            place = {"weights": weight_set, "size": size}
            reason = variant.unsupported_in(network, size)
            if not_run := failure or (reason and {"status": "unsupported", "reason": reason}):
                yield {**place, "run": 0, **NOT_RUN, **not_run}
                continue
            options = ["--network", network.name, "--weights", weight_set, "--variant", variant.name]
            command = [sys.executable, str(PROGRAM), *options, "--device", variant.device]
            if arguments.in_sandbox and not begun:
                # Numba compiles; outside, what it compiled for the timing is kept.
                begun = True
                run_once([*command, "1"], measuring.timeout_s)
            runs, spent_s, enough_s = 0, 0.0, measuring.programs.min_samples_timeout_s
            while runs < runs_at(weight_set, size):
                columns = run_once([*command, str(size)], measuring.timeout_s, measuring.tolerated_load)
                spent_s += columns["elapsed_s"]
                if columns["status"] == "refused" and spent_s <= enough_s:
                    continue  # the machine may be quiet the next time
                yield {**place, "run": runs, **columns}
                runs += 1
                if spent_s > enough_s or columns["status"] != "ok":
                    break


def run_in_sandbox(arguments: argparse.Namespace, variant: Variant, network: Network, shared: Row) -> Iterator[Row]:
    """What `run_all` yields in the sandbox, checked. Raises VariantFailure where it dies or answers wrongly."""
    fashion_mnist.load(network)  # what is not there yet cannot be written inside
    if variant.cpp_source:
        with checking.fault_context(variant, "compiled"):
            cpp_compiler.library(variant, sandboxed=True)
    places = {(weight_set, size) for weight_set in arguments.weights for size in arguments.sizes}
    readable = [*problem.FOLDERS, *weights.readable(network), fashion_mnist.cache_path(network)]
    readable += [arguments.correctness, building.FOLDER, building.PROJECT_CUBINS, cpp_compiler.LIBRARIES]
    said = sandbox.results([*sys.argv, "--in-sandbox"], readable, variant.device == "gpu")
    for row in said:
        with sandbox.reject_malformed_answers("run of a program"):
            tables.PROGRAMS.text([{**shared, **row}], "its runs")
            if (row["weights"], row["size"]) not in places:
                raise ValueError
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--weights", nargs="+", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--repeat", action="store_true", help="several runs (on a GPU: at one size)")
    parser.add_argument("--measuring", required=True, help="the measuring policy, as JSON")
    parser.add_argument("--correctness", type=Path, required=True)
    parser.add_argument("--sandbox", choices=sandbox.SETTINGS, default="auto", help="as `sandbox` in config.yaml")
    parser.add_argument("--in-sandbox", action="store_true", help=argparse.SUPPRESS)  # inside: to say runs, not write
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    network, variant = networks.find(arguments.network), variants.read(arguments.variant)
    shared = {"variant": variant.name, "network": network.name, "device": variant.device}
    if arguments.in_sandbox:
        return sandbox.emit(run_all(arguments, variant, network))
    require_target(variant.device)
    failure = tables.first_failure(tables.CORRECTNESS.rows(arguments.correctness))
    with gpu_pool.acquire(variant.device, arguments.out) as rows:
        shared |= {"measured_on": node_and_gpu(variant.device)}
        try:
            if not failure and sandbox.is_chosen(arguments.sandbox, variant.device):
                # Each run ends at its time limit by itself, unless the variant stops who looks.
                patience_s = RUNS_WITHIN * Measuring.model_validate_json(arguments.measuring).timeout_s
                inside = run_in_sandbox(arguments, variant, network, shared)
                said = supervision.run_supervised(lambda: inside, patience_s, apart=True)
            else:
                said = run_all(arguments, variant, network)
            rows.extend({**shared, **row} for row in said)
        except VariantFailure as failed:
            ran = {(row["weights"], row["size"]) for row in rows}
            for weight_set in arguments.weights:
                for size in arguments.sizes:
                    if (weight_set, size) not in ran:
                        place = {"weights": weight_set, "size": size, "run": 0}
                        rows.append({**shared, **place, **NOT_RUN, **failed.columns})
    tables.PROGRAMS.write(rows, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
