"""The verdict on a file of the course, emulated: at the batch that the course runs, and what it assumes of others."""

import functools
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from warpbook.common.errors import MachineFault
from warpbook.common.supervision import VariantFailure, process_pool
from warpbook.harness import checking, data_races, ece408_worker, full_size
from warpbook.harness.checking import Row
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import ece408
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case

LONG_S = 0.3
"""Of a processor, for one layer: where the course's batch is expected to take longer, one that most tilings divide as
well is computed instead, and the course's where that is not right."""
SLOW_S, MANY_BLOCKS_S = 5, 1
"""Of a processor, for the tests of the odd batch of one layer: where one takes longer, it is the last, and of larger
batches only some blocks are computed."""
ODD_SHARE = 1 / 3  # of a layer's time, for the odd batch, of whose end the course asks nothing
ELSEWHERE_S = 5
"""Of a processor, for the host's code of one layer alone: more than one that leaves the work to kernels needs."""
TESTS = ("integers", "reals")
RACE_BATCHES = (10, 2)
"""Images of each layer's call that data races are looked for in, an access at a time: one batch that files divide among
streams."""
Ask = Callable[[IsolatedBench, int], None]
_ELSEWHERE = {
    ece408_worker.KERNELS: "the result is right although no kernel computes it: the host does",
    ece408_worker.CONVOLUTION: "the result is right although conv_forward_gpu is not called: the prolog or the epilog "
    "computes it",
    ece408_worker.INPUTS: "the result is that of the host's inputs although the device has others: the host computes it",
}
LARGEST_BATCH = 10_000  # images that the course's program runs at most
LEFT_OUT = "most of the blocks that write nothing were not run"
BACKWARDS = "the threads run from the last to the first"


def check(variant: Variant, sandboxed: bool, folder: Path, limit_s: float = float("inf")) -> Iterator[list[Row]]:
    """The rows of each of the course's layers, its two processes side by side: at an odd batch from the last thread to
    the first, then as the course does.

    A failure at the odd batch alone is `unsupported`, unless the order of threads decides. A right result is wrong
    where no kernel computes it, or `conv_forward_gpu` does not. `limit_s` is for all calls on a layer, by a Stopwatch.
    """
    try:
        with checking.fault_context(variant, "prepared"):
            library = emulation.compile_host(variant, folder, sandboxed)
    except VariantFailure as failure:
        place = {"case": ece408.LAYERS[0].name, "size": ece408.BATCH, "test": "integers"}
        yield [{**place, **checking.NOT_COMPARED, "ok": False, **failure.columns}]
        return
    layer_checked = functools.partial(_layer, variant, sandboxed, folder, library, limit_s)
    small = [layer.at(images) for layer, images in zip(ece408.LAYERS, RACE_BATCHES, strict=True)]
    with process_pool(len(ece408.LAYERS)) as pool:
        races = pool.submit(data_races.find, variant, small, sandboxed, folder, limit_s)
        sound, right = True, list[set[int]]()
        try:
            for rows in pool.map(layer_checked, ece408.LAYERS):
                sound &= all(row["ok"] for row in rows)
                right.append({row["size"] for row in rows if row["ok"]})
                yield rows
            again = functools.partial(_one_after_other, variant, sandboxed, folder, library, limit_s)
            # The smallest batch that is right on both layers; one image where larger ones than the odd batch take long.
            is_slow = max(max(sizes, default=0) for sizes in right) <= ece408.ODD_BATCH
            if all(right) and (rows := pool.submit(again, 1 if is_slow else max(map(min, right))).result()):
                sound = False
                yield rows
            yield [races.result()]
            if sound:
                large = [layer.at(LARGEST_BATCH) for layer in ece408.LAYERS]
                full = functools.partial(full_size.check, variant, sandboxed=sandboxed, folder=folder, library=library)
                yield list(pool.map(full, large))
        except BrokenProcessPool:
            raise MachineFault("not judged: a process of the judge was killed; is there too little memory?") from None


def _layer(variant: Variant, sandboxed: bool, folder: Path, library: Path, limit_s: float, layer: Case) -> list[Row]:
    asked: list[str] = []

    def ask(bench: IsolatedBench, images: int) -> None:
        bench.process.limit_s = bench.process.used_s + ELSEWHERE_S
        asked.append(_computed_elsewhere(bench, variant, layer.at(images)))

    rows = _results(variant, sandboxed, folder, library, limit_s, ask, layer)
    right = [row for row in rows if row["ok"]]
    if not right or any(not row["ok"] and row["status"] != "unsupported" for row in rows):
        return rows
    if not asked:
        with IsolatedBench(variant, sandboxed, folder, library) as bench:
            ask(bench, min(row["size"] for row in right))
    failure = {"ok": False, "status": "wrong_result", "reason": f"{variant.name}, {layer.name}: {asked[0]}"}
    return [*rows[:-1], {**right[-1], **failure}] if asked[0] else rows


def _check_case(bench: IsolatedBench, variant: Variant, case: Case, *given: Any, **how: Any) -> list[Row]:
    """As `checking.check_case`. Where a result is wrong and blocks were left out, it is computed again by all blocks."""
    rows = checking.check_case(bench, variant, case, *given, **how)
    if not rows[-1]["ok"] and bench.left_out and not bench.ended:
        bench.whole = True
        rows = checking.check_case(bench, variant, case, *given, **how)
    if rows[-1]["ok"] and bench.left_out:
        rows[-1]["reason"] = LEFT_OUT
    return rows


def _is_slow(bench: IsolatedBench) -> bool:
    """Whether more than an odd batch would take long. Where even few of the blocks do, it takes far too many."""
    return bench.spent_s > (MANY_BLOCKS_S if bench.left_out else SLOW_S)


def _one_after_other(
    variant: Variant, sandboxed: bool, folder: Path, library: Path, limit_s: float, images: int
) -> list[Row]:
    """The row of a layer that is wrong or fails when it is called again on other values, or behind another one in a
    process, as the course's program calls them; none where all are right."""
    with IsolatedBench(variant, sandboxed, folder, library) as bench:
        bench.process.limit_s = limit_s
        for layer in (ece408.LAYERS[0], *ece408.LAYERS):
            row = _check_case(bench, variant, layer.at(images), TESTS[:1], diagnose=False)[-1]
            if not row["ok"]:
                return [{**_append_reason(row, "another call came before it in the same process"), "test": "layers"}]
    return []


def _results(
    variant: Variant, sandboxed: bool, folder: Path, library: Path, limit_s: float, ask: Ask, layer: Case
) -> list[Row]:
    """The rows of a layer by its results alone. `ask` gets a process with a right file, if any, and a batch."""

    def check_batch(bench: IsolatedBench, images: int, reverse: bool, tests: tuple[str, ...]) -> list[Row]:
        bench.reversed_order = reverse
        bench.process.limit_s = limit_s * (ODD_SHARE if images == ece408.ODD_BATCH else 1 - ODD_SHARE)
        return _check_case(bench, variant, layer.at(images), tests, lambda: _is_slow(bench))

    def check_in_new_process(images: int, reverse: bool, tests: tuple[str, ...]) -> list[Row]:
        with IsolatedBench(variant, sandboxed, folder, library) as bench:
            return check_batch(bench, images, reverse, tests)

    usual: list[Row] = []
    with IsolatedBench(variant, sandboxed, folder, library) as bench:
        odd = check_batch(bench, ece408.ODD_BATCH, True, TESTS)
        if odd[-1]["status"] == "unsupported":
            return odd
        if odd[-1]["ok"] and _is_slow(bench):
            ask(bench, 1)
            return odd
        if odd[-1]["ok"]:
            # Twice: the odd batch was computed for each test.
            expected_s = bench.spent_s * ece408.BATCH / (2 * ece408.ODD_BATCH)
            images = ece408.LESSER_BATCH if expected_s > LONG_S else ece408.BATCH
            usual = check_batch(bench, images, False, ("integers",))
            if usual[-1]["ok"]:
                ask(bench, ece408.ODD_BATCH)
    if not odd[-1]["ok"] and odd[-1]["status"] != "timed_out":
        with IsolatedBench(variant, sandboxed, folder, library) as bench:
            lesser = check_batch(bench, ece408.LESSER_BATCH, False, ("integers",))
            if lesser[-1]["ok"] and bench.spent_s * ece408.BATCH / ece408.LESSER_BATCH > LONG_S:
                usual = lesser
    # What a file keeps from call to call was made for the odd batch there, so a failure counts in a process of its own.
    if not usual or not usual[-1]["ok"]:
        usual = check_in_new_process(ece408.BATCH, False, ("integers",))
    if not usual[-1]["ok"]:
        return [*usual[:-1], _append_reason(usual[-1], f"the batch has {ece408.BATCH} images")]
    if odd[-1]["ok"]:
        return odd + usual
    if odd[-1]["status"] == "timed_out":
        return [*usual, assumptions(odd[-1], usual[-1]["size"])]
    forward = check_in_new_process(ece408.ODD_BATCH, False, TESTS)
    if forward[-1]["ok"]:
        return [*usual, _append_reason(odd[-1], BACKWARDS)]
    images = usual[-1]["size"]
    reverse = check_in_new_process(images, True, ("integers",))
    if not reverse[-1]["ok"]:
        return [*usual, _append_reason(reverse[-1], BACKWARDS)]
    return [*usual, assumptions(forward[-1], images)]


def _computed_elsewhere(bench: IsolatedBench, variant: Variant, case: Case) -> str:
    """Why a right result is none of the file's convolution: it is right too where no kernel works, without
    `conv_forward_gpu`, or where the device has other inputs than the host. Empty where it is wrong then or fails. A file with
    streams may do all in its prolog."""
    assert variant.course
    may_be_elsewhere = variant.course.is_one_call or ece408.makes_streams(variant.code)
    for without, reason in _ELSEWHERE.items():
        bench.without = without
        if bench.ended or (without == ece408_worker.CONVOLUTION and may_be_elsewhere):
            continue
        if checking.check_case(bench, variant, case, TESTS[:1], diagnose=False)[-1]["ok"]:
            return reason
    return ""


def assumptions(row: Row, images: int = ece408.BATCH) -> Row:
    """The row of a failure at the odd batch of a file that is right at the course's, or at another."""
    reason = f"right for {images} images, not for {ece408.ODD_BATCH}: {row['reason']}"
    return {**row, "status": "unsupported", "reason": reason}


def _append_reason(row: Row, why: str) -> Row:
    return {**row, "reason": f"{row['reason']} (in {row['case']}, where {why})"}
