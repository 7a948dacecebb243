"""Time one variant on every case at every size, in turn with the variant that it builds on."""

import argparse
import gc
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from warpbook.common.errors import exit_status
from warpbook.common.supervision import VariantFailure, run_supervised
from warpbook.config.settings import Measuring
from warpbook.harness import building, checking, cpp_compiler, preload, sandbox, timing
from warpbook.harness.bench import Bench, CpuBench
from warpbook.kernels import lower_bounds, variants
from warpbook.kernels.variants import Variant
from warpbook.machine import gpu_pool
from warpbook.machine.host import node_and_gpu, require_same, require_target
from warpbook.problems import case_sets, problem
from warpbook.problems.case_sets import CaseSet
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case
from warpbook.runs import tables


def bound_violation(rows: list[timing.Row], variant: Variant, case: Case, machine: dict[str, Any]) -> str:
    """Why a case's samples cannot be true: one is below the hardware's lower bound. Empty when none is.

    Bytes that stay in the L2 cache need not cross the memory bus within a call; the bound leaves them out.
    """
    gpu = machine["gpu"]
    bound = lower_bounds.method_bound_ms(case, variant.header, gpu, kept_bytes=gpu["l2_bytes"])
    fastest = min(row["time_ms"] for row in rows if row["variant"] == variant.name)
    if fastest >= bound:
        return ""
    return (
        f"{variant.name}, {case.name}, size {case.size}: a sample of {fastest:.4g} ms is below the hardware's lower "
        f"bound of {bound:.4g} ms; the call cannot have done its work"
    )


def measure(
    device: str,
    variant: Variant,
    baseline: Variant | None,
    places: list[Case],
    measuring: Measuring,
    machine: dict[str, Any],
) -> Iterator[tuple[Case, list[timing.Row]]]:
    """The samples of each layer and size in turn: of the variant, and of its baseline where that can be timed."""
    bench: Bench
    if device == "gpu":
        from warpbook.harness.gpu_bench import open_bench

        bench = open_bench(variant)
    else:
        bench = CpuBench(measuring.tolerated_load)
    gc.disable()  # Python's garbage collector would interrupt one sample in a few dozen; this process is short
    series = measuring.gpu if device == "gpu" else measuring.cpu
    last_ms: dict[str, float] = {}  # the baseline's last time for a unit of its size, by case
    for case in places:
        assert case.size is not None
        if reason := variant.unsupported(case):
            yield case, [failed_row(variant, case, VariantFailure("unsupported", reason))]
            continue
        paired = []
        # With a slow baseline, min_samples_timeout_s would end before there are enough pairs, and the variant would
        # have too few samples as well: such a baseline is timed in its own job alone.
        expected_s = last_ms.get(case.name, 0.0) * case.size / 1e3
        if (
            baseline
            and not baseline.unsupported(case)
            and series.min_samples * expected_s < series.min_samples_timeout_s
        ):
            paired = [baseline]
        try:
            with checking.device_fault_context(variant):
                rows = timing.measure_case(bench, [variant, *paired], case, series, measuring)
            if device == "gpu" and (reason := bound_violation(rows, variant, case, machine)):
                raise VariantFailure("refused", reason)
        except VariantFailure as failure:
            rows = [failed_row(variant, case, failure)]
        for row in rows:
            if paired and row["variant"] == paired[0].name:
                last_ms[case.name] = row["time_ms"] / case.size
        yield case, rows


def measure_in_sandbox(
    arguments: argparse.Namespace, timed: list[Variant], places: list[Case], shared: dict[str, str]
) -> Iterator[tuple[Case, list[timing.Row]]]:
    """What `measure` yields for these places in the sandbox. A stranger may have said it: what does not fit is refused.

    Raises VariantFailure where the process inside dies or says what no measurement does.
    """
    for variant in timed:
        if variant.cpp_source:
            with checking.fault_context(variant, "compiled"):
                cpp_compiler.library(variant, sandboxed=True)  # what is not kept yet cannot be kept inside
    by_place = {(case.name, case.size): case for case in places}
    names = {variant.name for variant in timed}
    given = [arguments.kernels, problem.FOLDER, arguments.machine, arguments.baseline_correctness]
    readable = [*(path for path in given if path), building.FOLDER, building.PROJECT_CUBINS, cpp_compiler.LIBRARIES]
    for answer in sandbox.results([*sys.argv, "--in-sandbox"], readable, gpu=arguments.device == "gpu"):
        with sandbox.untrusted("measurement"):
            layer, images, rows = answer
            place = by_place[layer, images]
            places.remove(place)
            rows = [{**row, "case": layer, "size": images} for row in rows]
            tables.SAMPLES.text((placed({"job": "", **row}, shared) for row in rows), "its samples")
            if not {row["variant"] for row in rows} <= names:
                raise ValueError
        yield place, rows


def placed(row: timing.Row, shared: dict[str, str]) -> timing.Row:
    """A row of SAMPLES: what was computed said in full. shared: its problem, name of its set of cases, and device."""
    where = tables.place(shared["problem"], shared["cases"], row["case"])
    return {**row, **where, "device": shared["device"], "measured_on": shared["measured_on"]}


def failed_row(variant: Variant, case: Case, failure: VariantFailure) -> timing.Row:
    """One row in place of a case's samples."""
    place = {"variant": variant.name, "case": case.name, "size": case.size}
    return {**place, **timing.failure_columns(failure)}


def time_all(
    arguments: argparse.Namespace,
    cases: Network | CaseSet,
    variant: Variant,
    baseline: Variant | None,
    remaining: list[Case],
    machine: dict[str, Any],
) -> list[timing.Row]:
    """The rows of SAMPLES of all `remaining` places: those that nothing was heard of have the reason."""
    measuring = Measuring.model_validate_json(arguments.measuring)
    times_at: Counter[Case] = Counter()
    rows: list[timing.Row] = []
    shared = {
        "problem": variant.problem.name,
        "cases": cases.name,
        "device": arguments.device,
        "measured_on": node_and_gpu(arguments.device),
    }

    def keep(place: Case, samples: list[timing.Row]) -> None:
        remaining.remove(place)
        times_at[place] += 1
        number = (arguments.gpu or 0) * arguments.aa + times_at[place]
        job = f"aa:{variant.name}:{number}" if arguments.aa else variant.name
        rows.extend(placed({"job": job, **row}, shared) for row in samples)

    sandboxed = sandbox.is_chosen(arguments.sandbox, arguments.device)

    def produce() -> Iterator[tuple[Case, list[timing.Row]]]:
        if sandboxed:
            return measure_in_sandbox(arguments, [variant, *([baseline] if baseline else [])], list(remaining), shared)
        return measure(arguments.device, variant, baseline, list(remaining), measuring, machine)

    try:
        if failure := tables.first_failure(tables.CORRECTNESS.rows(arguments.correctness)):
            raise VariantFailure(**failure)
        for place, samples in run_supervised(produce, measuring.timeout_s, apart=sandboxed):
            keep(place, samples)
    except VariantFailure as failure:
        for case in list(remaining):
            keep(case, [failed_row(variant, case, failure)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), required=True)
    parser.add_argument("--cases", required=True, help="the network, or study, whose cases it is called on")
    parser.add_argument("--variant", required=True)
    parser.add_argument("--kernels", type=Path, help="folder of the variant's files, where not its problem's")
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--measuring", required=True, help="the measuring policy, as JSON")
    parser.add_argument("--correctness", type=Path, required=True)
    parser.add_argument("--baseline-correctness", type=Path, nargs="?")
    parser.add_argument("--aa", type=int, default=0, help="so many A/A tests, the variant in turn with its copy")
    parser.add_argument("--gpu", type=int, help="on the GPU of this number, from 0, among those that share the jobs")
    parser.add_argument("--machine", type=Path, required=True, help="what probe_machine wrote")
    parser.add_argument("--sandbox", choices=sandbox.SETTINGS, default="auto", help="where it runs: config.yaml")
    parser.add_argument(
        "--in-sandbox", action="store_true", help=argparse.SUPPRESS
    )  # inside: to say samples, not write
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    cases = case_sets.find(arguments.cases)
    variant = variants.read(arguments.variant, arguments.kernels)
    machine = json.loads(arguments.machine.read_text())
    baseline = variants.read(variant.header.builds_on, arguments.kernels) if variant.header.builds_on else None
    checked = tables.CORRECTNESS.rows(arguments.baseline_correctness) if arguments.baseline_correctness else []
    if arguments.aa:
        baseline = replace(variant, name=f"{variant.name}:aa")
    elif tables.first_failure(checked):
        baseline = None  # nothing sound to compare with; the variant is still timed

    remaining: list[Case] = [case.at(size) for case in cases.cases for size in arguments.sizes]
    if arguments.aa:
        remaining *= arguments.aa
    if arguments.in_sandbox:
        measuring = Measuring.model_validate_json(arguments.measuring)
        measured = measure(arguments.device, variant, baseline, remaining, measuring, machine)
        return sandbox.emit([case.name, case.size, samples] for case, samples in measured)
    require_target(arguments.device)
    if arguments.device == "gpu" and not sandbox.is_chosen(arguments.sandbox, "gpu"):
        preload.import_packages(variant.header.requires, baseline.header.requires if baseline else "")
    with gpu_pool.acquire(arguments.device, arguments.out, number=arguments.gpu) as rows:
        require_same(machine, arguments.device)
        rows += time_all(arguments, cases, variant, baseline, remaining, machine)
    tables.SAMPLES.write(rows, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
