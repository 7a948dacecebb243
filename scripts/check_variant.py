"""Test one variant on a network's layers, on ragged shapes, and by the labels of the real images."""

import argparse
import copy
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warpbook.common import units
from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import scratch_folder
from warpbook.common.supervision import MEMORY_BYTES, VariantFailure, process_pool, run_supervised
from warpbook.harness import (
    checking,
    cpp_compiler,
    data_races,
    ece408_check,
    ece408_gpu,
    error_diagnosis,
    full_size,
    preload,
    reference,
    sandbox,
)
from warpbook.harness.bench import CPU_CHUNK, Bench
from warpbook.harness.checking import Row
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import ece408, variants
from warpbook.kernels.launch_inference.inferred_facts import yaml_lines
from warpbook.kernels.variants import Variant
from warpbook.machine import gpu_pool
from warpbook.machine.host import require_target
from warpbook.problems import case_sets, fashion_mnist, weights
from warpbook.problems.case_sets import CaseSet
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case
from warpbook.runs import tables

if TYPE_CHECKING:
    from warpbook.harness.isolated_gpu import IsolatedGpuBench

SEVERAL_IMAGES = 7  # three or four of each block, where there are as many blocks as the emulator has multiprocessors
LEAST_LIMIT_S = 20  # of a file whose submission has spent its time on others; files of the course take 4 s


def bench_for(device: str, variant: Variant, sandboxed: bool) -> "IsolatedBench | IsolatedGpuBench":
    """The bench of a device, cpu or gpu, for a variant. Raises VariantFailure where the device does not answer."""
    if device == "cpu":
        return IsolatedBench(variant, sandboxed)
    from warpbook.harness.gpu_bench import open_bench
    from warpbook.harness.isolated_gpu import IsolatedGpuBench

    return open_bench(variant, lambda: IsolatedGpuBench(sandboxed))


def correctness_row(case: str, size: int, test: str, **columns: Any) -> Row:
    """Columns of CORRECTNESS from `size` on, and `case`, those of a comparison empty where none was made."""
    return {"case": case, "size": size, "test": test, **checking.NOT_COMPARED, **columns}


def size_words(row: Row, cases: Network | CaseSet) -> str:
    """The size that a row is about, for whoever reads its reason; empty where there is one size, or it is said."""
    name = cases.problem.facts.size
    said = f"{name} = {row['size']}"
    return f" (at {said})" if name and row["case"] and said not in row["reason"] else ""


def check_labels(
    bench: "IsolatedBench | IsolatedGpuBench",
    variant: Variant,
    network: Network,
    expected: np.ndarray,
    sizes: list[int],
) -> list[Row]:
    """A row for each size: how many images are labelled differently from the float64 reference."""
    try:
        with checking.fault_context(variant, "inferring"):
            images, _ = fashion_mnist.load(network)
            parameters = weights.load(network, network.weight_sets[0])
            predicted = bench.labels(variant, network, parameters, images[: max(sizes)])
    except VariantFailure as failure:
        return [correctness_row("", size, "labels", ok=False, **failure.columns) for size in sizes]
    rows = []
    for size in sizes:
        mismatched = int((predicted[:size] != expected[:size]).sum())
        allowed = reference.max_label_differences(variant.header.precision, size)
        reason = ""
        if mismatched > allowed:
            reason = f"{variant.name} labels {mismatched} of {size} images unlike the reference; {allowed} may differ"
        compared = {"reference": "NumPy float64", "tolerance": float(allowed), "mismatched_labels": mismatched}
        judged = {"ok": not reason, "status": "wrong_result" if reason else "ok", "reason": reason}
        rows.append(correctness_row("", size, "labels", **compared, **judged))
    return rows


def check_places(
    bench: Bench, variant: Variant, cases: Iterable[Case], tests: Sequence[str] = (), brief: Sequence[Case] = ()
) -> Iterator[list[Row]]:
    """The rows of one case after another, those of `brief` ones, which come last, of their first test or few. A failure
    that each later case would repeat ends them; of the first alone the cause is looked for, which takes far longer than
    a test."""
    right, called_often = True, bool(tests)
    for case, chosen in [*((case, tests) for case in cases), *((case, checking.brief_tests(case)) for case in brief)]:
        more = not called_often and case.sums >= checking.LEAST_SUM
        called_often |= more
        rows = checking.check_case(bench, variant, case, chosen, diagnose=right, more=more)
        yield rows
        right &= rows[-1]["status"] != "wrong_result"
        if rows[-1]["status"] in ("compile_failed", "launch_failed"):
            return  # after a fault, no CUDA call of this process succeeds
        if isinstance(bench, IsolatedBench) and bench.ended:
            return


def emulate(
    variant: Variant,
    network: Network | CaseSet,
    sandboxed: bool,
    folder: Path,
    size: int = 1,
    limit_s: float = float("inf"),
) -> Iterator[list[Row]]:
    """A GPU variant's source emulated on the CPU, its library in `folder`: a look for data races, ragged shapes, then the
    network's layers, the threads reversed, and some blocks of each at the largest `size` that is measured. `limit_s` is
    for all calls of a file of the course on a layer. A kernel in another language is interpreted on ragged shapes."""
    if reason := emulation.unsupported_reason(variant):
        yield [correctness_row("", 1, "integers", ok=False, status="unsupported", reason=reason)]
        return
    if variant.language:
        with IsolatedBench(variant, sandboxed) as bench:
            yield from check_places(bench, variant, checking.ragged_cases(variant))
        reason = (
            f"data races were not looked for: {variant.language.name} is interpreted, a thread or block after another"
        )
        yield [correctness_row("", 1, data_races.TEST, ok=False, status="unsupported", reason=reason)]
        return
    if variant.entry and not variant.read_error:
        variant = emulation.cuda_of_python(variant, folder)
    newer = {} if variant.read_error else emulation.for_other_architectures(variant)
    for arch in newer:
        (folder / arch).mkdir(exist_ok=True)
    if variant.course and not variant.read_error:
        yield from ece408_check.check(variant, sandboxed, folder, limit_s)
        for arch, other in newer.items():
            yield from faults_on(arch, ece408_check.check(other, sandboxed, folder / arch, limit_s))
        return
    ragged = checking.ragged_cases(variant)
    small = ragged or [conv.at(SEVERAL_IMAGES) for conv in network.cases if network.problem.facts.size]
    # Beside the rest, since compiling for it takes most of its time and only this process is busy.
    with process_pool(1) as beside:
        # Copies: a thread of the pool writes them out while this one works with the variant, which keeps what it works out.
        races = beside.submit(data_races.find, *copy.deepcopy((variant, small)), sandboxed, folder)
        yield from emulate_cases(variant, network, ragged, sandboxed, folder, size)
        yield [races.result()]
    for arch, other in newer.items():
        with IsolatedBench(other, sandboxed, folder / arch) as bench:
            yield from faults_on(arch, check_places(bench, other, small))


def faults_on(arch: str, checked: Iterable[list[Row]]) -> Iterator[list[Row]]:
    """Of the checks of what a source is on another architecture, what is not right."""
    for rows in checked:
        if wrong := [row | {"reason": f"on {arch}: {row['reason']}"} for row in rows if not row["ok"]]:
            yield wrong


def limits_tried(variant: Variant) -> Iterator[tuple[str, dict[str, Any]]]:
    """Limits that a stranger's file may have and not say, in words and as bounds: whole tiles, one image, and a convolution
    whose output is as large as its input."""
    facts, bounds = variant.problem.facts, variant.header.limits.bounds
    if "P" in facts.extents:
        told = re.findall(r"\w+", str(variant.header.model_dump(include={"arguments", "grid", "loop", "steps"})))
        # No argument, grid or loop has them: it may compute one image, or one of one channel.
        unnamed = [name for name in (facts.batch, "C", "M") if name not in {*told, *bounds}]
        single = {name: {"is": 1} for name in unnamed}
        words = f"{units.join_all(unnamed)} {'is' if len(unnamed) == 1 else 'are'} 1"
        if single:
            yield words, single
        padded = next(case for case in variant.problem.ragged if "P" in case.unusual)
        if "P" not in variant.missing_arguments(padded):  # it is told of the padding, and computes another
            return
        taps = (bounds["K"].exactly if "K" in bounds else None) or 3
        kept = {"K": {"is": taps}, "P": {"is": taps // 2}}
        yield "the padding keeps H and W" + (f", and {words}" if single else ""), kept | single
        return
    free = [name for name in facts.extents if name not in bounds or bounds[name].is_least_alone]
    if len(facts.extents) == 2 and free:  # a row with a value for each thread of a block
        for least in (32, 256, 1024):
            yield f"{free[-1]} is {least} or more", {free[-1]: {"at_least": least}}
    tiles = (32, 128, 256) if len(facts.extents) > 2 else (32, 128, 256, 1024)
    for multiple in tiles if len(free) > 1 else (1024, 4096):
        for names in (free[-1:], free) if len(facts.extents) == 2 else (free,):
            words = f"{units.join_all(names)} {'is a multiple' if len(names) == 1 else 'are multiples'} of {multiple}"
            yield words, {name: {"multiple_of": multiple} for name in names}
    if len(facts.extents) == len(free) == 1:  # as many values as one block adds up
        for number in (32, 64, 128, 256, 512, 1024, 2048):
            yield f"{free[0]} is {number}", {free[0]: {"is": number}}
    if len(free) == 3:
        equal = {"equal": free, free[1]: {"multiple_of": 32}}
        yield f"{units.join_all(free)} are equal, and a multiple of 32", equal


def limit_remedy(variant: Variant, ragged: list[Case], sandboxed: bool, folder: Path, library: Path | None) -> str:
    """Limits under which a stranger's kernel that is wrong is right, as the end of a reason; empty where none are found."""
    if not (variant.inferred_launch or variant.facts):
        return ""
    for words, bounds in limits_tried(variant):
        limits = variant.header.limits.narrowed(bounds)
        limited = replace(variant, header=variant.header.model_copy(update={"limits": limits}))
        cases = dict.fromkeys(limits.nearest(case) for case in ragged if not limited.missing_arguments(case))
        allowed = sorted((case for case in cases if not limited.unsupported(case)), key=lambda case: case.flops)
        small = [case for case in allowed if case.flops <= data_races.FLOPS] or allowed[:1]
        with IsolatedBench(limited, sandboxed, folder, library) as bench:
            right = all(checking.check_case(bench, limited, case, diagnose=False)[-1]["ok"] for case in small)
        if small and right:
            return f"; it is right where {words}: if it is for these alone, say `{yaml_lines({'limits': bounds})}`"
    return ""


def emulate_cases(
    variant: Variant, network: Network | CaseSet, ragged: list[Case], sandboxed: bool, folder: Path, size: int
) -> Iterator[list[Row]]:
    """Of `emulate`, all but the look for data races."""
    large = [case.at(size) for case in network.cases]
    with IsolatedBench(variant, sandboxed, folder) as bench:
        told = False
        for rows in check_places(bench, variant, ragged, brief=checking.drawn_cases(variant, large)):
            if rows[-1]["status"] == "wrong_result" and not told:
                told = True
                if error_diagnosis.COLUMN_MAJOR in rows[-1]["reason"]:  # another layout, and no wrong product
                    reason = rows[-1]["reason"].partition(f"; {variant.name} ")[0]
                    rows[-1] |= {"status": "unsupported", "reason": reason}
                    yield rows
                    return
                # One that is right on whole numbers of the same shape is wrong on values, and on no shape.
                of_values = any(row["ok"] for row in rows)
                remedy = "" if of_values else limit_remedy(variant, ragged, sandboxed, folder, bench.process.library)
                if remedy and "P" in variant.problem.facts.extents:  # another convolution, and no wrong one
                    rows[-1] |= {"status": "unsupported", "reason": f"{variant.name}: {remedy[2:]}"}
                    yield rows
                    return
                rows[-1]["reason"] += remedy
            yield rows
        if not network.problem.facts.size:  # its cases are too large to emulate, and no extent makes them smaller
            for case in large:
                if reason := variant.unsupported(case):
                    yield [correctness_row(case.name, size, "integers", ok=False, status="unsupported", reason=reason)]
            places = (bench, variant, checking.excerpts(variant, large), checking.tests_for(large[0])[:1])
            large = full_size.widest(variant, large)
        else:
            bench.reversed_order = True
            # Ragged shapes come in several images. Without them a layer gets so many that a block takes several.
            few = 1 if ragged else SEVERAL_IMAGES
            places = (bench, variant, [conv.at(few) for conv in network.cases], ())
        sound = True
        for rows in check_places(*places):
            sound &= all(row["ok"] or row["status"] == "unsupported" for row in rows)
            yield rows
        if sound and size > SEVERAL_IMAGES:
            yield [
                full_size.check(variant, case, sandboxed, folder, bench.process.library, None if number else bench)
                for number, case in enumerate(large)
            ]


def check(
    bench: "IsolatedBench | IsolatedGpuBench",
    device: str,
    variant: Variant,
    network: Network | CaseSet,
    sizes: list[int],
    labels: Path | None,
) -> Iterator[list[Row]]:
    """The rows of each layer and size in turn: ragged shapes first, labels last."""
    # A CPU variant gets one chunk of a batch at a time: a larger size would only repeat the call.
    chunked = device != "gpu" and network.problem.facts.batch
    tested = [size for size in sizes if not chunked or size <= CPU_CHUNK] or [CPU_CHUNK]
    sound = True
    drawn = checking.drawn_cases(variant, [case.at(max(sizes)) for case in network.cases])
    places = [*checking.ragged_cases(variant), *(conv.at(size) for conv in network.cases for size in tested)]
    for rows in check_places(bench, variant, places, brief=drawn):
        yield rows
        sound &= all(row["ok"] or row["status"] == "unsupported" for row in rows)
    supported = not any(variant.unsupported(conv.at(max(sizes))) for conv in network.cases)
    if labels and supported and sound and isinstance(network, Network):
        yield check_labels(bench, variant, network, np.load(labels), sizes)


def drop_apparent_races(rows: Iterable[Row]) -> None:
    """Take back the race of a kernel whose accesses leave their arrays, as on other shapes than it is right on: an access
    may meet another array there."""
    rows = list(rows)
    if any(re.search("-overflow|-after-free|; it is right where ", row["reason"]) for row in rows):
        for row in rows:
            if row["test"] == data_races.TEST and not row["ok"]:
                row |= {"status": "unsupported", "reason": "data races were not looked for: an access leaves its array"}


def each_once(rows: Iterable[Row]) -> list[Row]:
    """Each test once: a fault on another architecture in place of what is right on the first."""
    kept: dict[tuple[str, int, str], Row] = {}
    for row in rows:
        test = row["case"], row["size"], row["test"]
        if test not in kept or (kept[test]["ok"] and not row["ok"]):
            kept[test] = row
    return list(kept.values())


def time_left(timeout_s: float, spent: Path | None) -> float:
    """What a file may take of its submission's time on files that do not end; `spent`: what others took."""
    taken_s = sum(map(float, spent.read_text().split())) if spent and spent.exists() else 0.0
    return max(timeout_s - taken_s, min(timeout_s, LEAST_LIMIT_S))


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "gpu", "emulator"), required=True)
    parser.add_argument("--cases", required=True, help="the network or study whose cases it computes")
    parser.add_argument("--variant", required=True)
    parser.add_argument("--kernels", type=Path, help="folder of the variant's files, if not its problem's")
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument(
        "--labels", type=Path, nargs="?", help="reference labels; without them only the layers are tested"
    )
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--spent", type=Path, help="file of the time that this submission's files have spent of it")
    parser.add_argument("--sandbox", choices=sandbox.SETTINGS, default="auto", help="as `sandbox` in config.yaml")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    require_target(arguments.device)
    network = case_sets.find(arguments.cases)
    variant = variants.read(arguments.variant, arguments.kernels)
    if variant.problem.name != network.problem.name:
        raise UserError(
            f"{variant.name} is a kernel of {variant.problem.name}, and the cases of {network.name} are of "
            f"{network.problem.name}: name cases of {variant.problem.name}, or a folder of {network.problem.name}'s kernels"
        )
    sandboxed = sandbox.is_chosen(arguments.sandbox, arguments.device)
    shared = {"variant": variant.name, "device": arguments.device}
    limit_s = time_left(arguments.timeout, arguments.spent)
    # A file of the course has limits of its own, a layer each.
    item_s = len(ece408.LAYERS) * limit_s + cpp_compiler.COMPILE_S if variant.course else limit_s
    if arguments.device == "gpu" and not variant.course:
        preload.import_packages()

    try:
        with gpu_pool.acquire(arguments.device, arguments.out, shared=True) as rows, scratch_folder() as folder:
            if arguments.device == "emulator" and not (variant.language or emulation.unsupported_reason(variant)):
                with suppress(UserError):  # raised again where the variant needs it
                    for races in (False, True):  # first, because the time that it takes is not the variant's
                        emulation.build_emulator(folder, races)

            def produce() -> Iterator[list[Row]]:
                if arguments.device == "emulator":
                    return emulate(variant, network, sandboxed, folder, max(arguments.sizes), limit_s)
                if variant.course and not variant.read_error:
                    return ece408_gpu.check(variant, network.cases, sandboxed)
                bench = bench_for(arguments.device, variant, sandboxed)
                return check(bench, arguments.device, variant, network, arguments.sizes, arguments.labels)

            for checked in run_supervised(produce, item_s, MEMORY_BYTES, apart=sandboxed):
                rows += checked
    except VariantFailure as failure:
        columns = failure.columns
        if arguments.device == "emulator" and variant.language and failure.status == "timed_out":
            columns = {"status": "unsupported", "reason": f"too slow to interpret on a CPU: {failure}"}
        rows.append(correctness_row("", max(arguments.sizes), "labels", ok=False, **columns))
    if arguments.spent and any(row["status"] == "timed_out" for row in rows):
        arguments.spent.parent.mkdir(parents=True, exist_ok=True)
        with arguments.spent.open("a", encoding="utf-8") as spent:
            print(limit_s, file=spent)
    rows = each_once(rows)
    drop_apparent_races(rows)
    # A data race explains the other failures, so it comes first.
    rows.sort(key=lambda row: (row["test"], row["status"]) != (data_races.TEST, "wrong_result"))
    placed = ({**shared, **row, **tables.place(network.problem.name, network.name, row["case"])} for row in rows)
    tables.CORRECTNESS.write(placed, arguments.out)
    if variant.inferred_launch:
        print(f"{variant.name}: {variant.inferred_launch.sentence}")
    if types := variant.element_types:
        print(f"{variant.name}: its arrays are of {types}, as its kernels take them")
    if remark := variant.shared_memory_remark(network.cases):
        print(remark)
    said: dict[str, list[Row]] = {}
    for row in rows:
        if not row["ok"]:
            said.setdefault(f"{row['status']}: {row['reason']}", []).append(row)
    wrong = [words for words, of in said.items() if of[0]["status"] == "wrong_result"]
    for words, of in said.items():
        if words not in wrong[1:]:
            print(f"{words}{size_words(of[0], network)}" if len(of) == 1 else words)
    if wrong[1:]:  # one says what is to be mended
        print(f"wrong_result: also in {len(wrong) - 1} other {'cases' if wrong[2:] else 'case'}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
