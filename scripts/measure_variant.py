"""Time one variant on every case at every size, interleaved with the variant that it builds on."""

import argparse
import gc
import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from warpbook.common.errors import exit_status
from warpbook.common.supervision import MEMORY_BYTES, VariantFailure, run_supervised
from warpbook.config.settings import Measuring
from warpbook.harness import checking, preload, sandbox, timing
from warpbook.harness.bench import Bench, CpuBench
from warpbook.harness.timed_variant import TimedVariant
from warpbook.harness.variant_process import VariantProcess
from warpbook.kernels import lower_bounds, variants
from warpbook.kernels.variants import Variant
from warpbook.machine import gpu_pool
from warpbook.machine.host import node_and_gpu, require_same, require_target
from warpbook.problems import case_sets
from warpbook.problems.case_sets import CaseSet
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case
from warpbook.runs import tables

FAR_FASTER, SHORT_S = 5, 1
"""A variant that is so many times as fast as its baseline is not interleaved with it where the fewest samples of the
baseline take longer than so: no drift between their two jobs could change what is said of such a speedup."""


def bound_violation(rows: list[timing.Row], variant: Variant, case: Case, machine: dict[str, Any]) -> str:
    """Why a case's samples cannot be true: one is below the hardware's bound, which leaves out the L2's bytes."""
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
    sandboxed: bool,
    with_energy: bool = False,
    compared_only: bool = False,
) -> Iterator[tuple[Case, list[timing.Row]]]:
    """The samples of each layer and size in turn: of the variant, and of its baseline where that can be timed. They are of
    all kinds, or of those alone that are compared. `with_energy`: in the end, a sample of calls without a pause for each
    layer's largest size."""
    bench: Bench
    compared = [one for one in (variant, baseline) if one]
    with ExitStack() as stack:
        processes = [VariantProcess(one, sandboxed, on_device=device == "gpu") for one in compared]
        for process in processes:
            stack.callback(process.close)
        if device == "gpu":
            from warpbook.harness.gpu_bench import GpuBench, open_bench

            for process in processes:
                process.start()
            bench = open_bench(variant, GpuBench)
        else:
            bench = CpuBench(measuring.tolerated_load)
        timed = [TimedVariant(bench, one, sandboxed, process) for one, process in zip(compared, processes, strict=True)]
        for one in timed:
            one.rivals = [other for other in timed if other is not one]
            stack.callback(one.close)
        yield from _measure(bench, timed, places, measuring, machine, with_energy, compared_only)


def _measure(
    bench: Bench,
    timed: list[TimedVariant],
    places: list[Case],
    measuring: Measuring,
    machine: dict[str, Any],
    with_energy: bool,
    compared_only: bool,
) -> Iterator[tuple[Case, list[timing.Row]]]:
    gc.disable()  # Python's garbage collector would interrupt one sample in a few dozen; this process is short
    variant, baseline = timed[0].variant, timed[1].variant if len(timed) > 1 else None
    bench.watch(timed)
    series = measuring.gpu if bench.on_device else measuring.cpu
    largest = {case.name: case for case in sorted(places, key=lambda case: case.size or 0)}
    op_ms: dict[Case, float] = {}
    ms_for_work: dict[tuple[str, str], float] = {}  # the last time over the case's work, by variant and case
    for case in places:
        assert case.size is not None
        if reason := variant.unsupported(case):
            yield case, [failed_row(variant, case, VariantFailure("unsupported", reason))]
            continue
        paired: list[TimedVariant] = []
        if baseline and not baseline.unsupported(case):
            # With a slow baseline, min_samples_timeout_s would end before there are enough pairs, and the variant would
            # have too few samples as well: such a baseline is timed in its own job alone.
            below_ms = ms_for_work.get((baseline.name, case.name), 0.0) * case.work
            expected_s = series.min_samples * below_ms / 1e3
            far_faster = below_ms >= FAR_FASTER * ms_for_work.get((variant.name, case.name), math.inf) * case.work
            if expected_s < min(series.min_samples_timeout_s, SHORT_S if far_faster else math.inf):
                paired = timed[1:]
        try:
            with checking.device_fault_context(variant):
                rows = timing.measure_case(bench, [timed[0], *paired], case, series, measuring, compared_only)
            if bench.on_device and (
                reason := bound_violation(rows, variant, case.with_problem(variant.problem), machine)
            ):
                raise VariantFailure("refused", reason)
            mine = [row["time_ms"] for row in rows if row["variant"] == variant.name and row["kind"] == "op"]
            op_ms[case] = statistics.median(mine)
        except VariantFailure as failure:
            rows = [failed_row(variant, case, failure)]
        for row in rows:
            if paired and row["time_ms"]:
                ms_for_work[row["variant"], case.name] = row["time_ms"] / case.work
        yield case, rows
    # Calls without a pause heat the GPU, which then slows down whatever follows.
    for case in largest.values() if with_energy else ():
        if case in op_ms:
            with suppress(VariantFailure), checking.device_fault_context(variant):  # its other samples stand
                yield case, timing.steady_rows(timed[0], case, op_ms[case])


def to_sample_row(row: timing.Row, shared: dict[str, str]) -> timing.Row:
    """A row of the table SAMPLES. shared: the problem, the name of its set of cases, the device, and `measured_on`."""
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
        if place in remaining:
            remaining.remove(place)
            times_at[place] += 1
        number = (arguments.gpu or 0) * arguments.aa + times_at[place]
        job = f"aa:{variant.name}:{number}" if arguments.aa else variant.name
        rows.extend(to_sample_row({"job": job, **row}, shared) for row in samples)

    sandboxed = sandbox.is_chosen(arguments.sandbox, arguments.device)

    def produce() -> Iterator[tuple[Case, list[timing.Row]]]:
        with_energy = arguments.device == "gpu" and not arguments.aa
        places = list(remaining)
        return measure(arguments.device, variant, baseline, places, measuring, machine, sandboxed, with_energy)

    try:
        if failure := tables.first_failure(tables.CORRECTNESS.rows(arguments.correctness)):
            raise VariantFailure(**failure)
        # The variant and its baseline hold sets of arrays each. On a GPU, looking at their memory would disturb the times.
        memory_bytes = 3 * MEMORY_BYTES if arguments.device == "cpu" else None
        for place, samples in run_supervised(produce, measuring.timeout_s, memory_bytes, apart=sandboxed):
            keep(place, samples)
    except VariantFailure as failure:
        for case in list(remaining):
            keep(case, [failed_row(variant, case, failure)])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu"), required=True)
    parser.add_argument("--cases", required=True, help="the network or study whose cases it computes")
    parser.add_argument("--variant", required=True)
    parser.add_argument("--kernels", type=Path, help="folder of the variant's files, if not its problem's")
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--measuring", required=True, help="the measuring policy, as JSON")
    parser.add_argument("--correctness", type=Path, required=True)
    parser.add_argument("--baseline-correctness", type=Path, nargs="?")
    parser.add_argument("--aa", type=int, default=0, help="number of A/A tests: the variant interleaved with its copy")
    parser.add_argument("--gpu", type=int, help="number of the GPU, from 0, among those that share the jobs")
    parser.add_argument("--machine", type=Path, required=True, help="the file that probe_machine wrote")
    parser.add_argument("--sandbox", choices=sandbox.SETTINGS, default="auto", help="as `sandbox` in config.yaml")
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
    require_target(arguments.device)
    if arguments.device == "gpu":
        preload.import_packages()
    with gpu_pool.acquire(arguments.device, arguments.out, number=arguments.gpu) as rows:
        require_same(machine, arguments.device)
        rows += time_all(arguments, cases, variant, baseline, remaining, machine)
    tables.SAMPLES.write(rows, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
