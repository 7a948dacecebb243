"""The verdict on a file of the course, emulated: at the batch that the course runs, and what it assumes of others."""

import functools
import multiprocessing
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from warpbook.common.supervision import VariantFailure
from warpbook.harness import checking, data_races
from warpbook.harness.checking import Row
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import ece408
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case

LONG_S = 1.1
"""Of a processor, for one layer: where the course's batch is expected to take longer, one that most tilings divide as
well is computed instead, and the course's where that is not right."""
TESTS = ("integers", "reals")
RACE_BATCHES = (ece408.LESSER_BATCH, ece408.ODD_BATCH)
"""Images of each layer's call that data races are looked for in: one batch that files divide among streams."""
BACKWARDS = "the threads run from the last to the first"


def check(variant: Variant, sandboxed: bool, folder: Path) -> Iterator[list[Row]]:
    """The rows of each of the course's layers, its two processes side by side.

    A layer is computed first at an odd batch, from the last thread to the first, then as the course does. A failure at
    the odd batch alone is `unsupported`, unless the order of the threads decides: the course runs no such batch.
    """
    try:
        with checking.fault_context(variant, "prepared"):
            library = emulation.compile_host(variant, folder, sandboxed)
    except VariantFailure as failure:
        place = {"case": ece408.LAYERS[0].name, "size": ece408.BATCH, "test": "integers"}
        yield [{**place, **checking.NOT_COMPARED, "ok": False, **failure.columns}]
        return
    layer_checked = functools.partial(_layer, variant, sandboxed, folder, library)
    small = [layer.at(images) for layer, images in zip(ece408.LAYERS, RACE_BATCHES, strict=True)]
    with ProcessPoolExecutor(len(ece408.LAYERS), multiprocessing.get_context("fork")) as pool:
        races = pool.submit(data_races.find, variant, small, sandboxed, folder)
        yield from pool.map(layer_checked, ece408.LAYERS)
        yield [races.result()]


def _layer(variant: Variant, sandboxed: bool, folder: Path, library: Path, layer: Case) -> list[Row]:
    def tested(bench: IsolatedBench, images: int, reverse: bool, tests: tuple[str, ...]) -> list[Row]:
        bench.reversed_order = reverse
        return note(bench, checking.check_case(bench, variant, layer.at(images), tests))

    def afresh(images: int, reverse: bool, tests: tuple[str, ...]) -> list[Row]:
        with IsolatedBench(variant, sandboxed, folder, library) as bench:
            return tested(bench, images, reverse, tests)

    usual: list[Row] = []
    with IsolatedBench(variant, sandboxed, folder, library) as bench:
        odd = tested(bench, ece408.ODD_BATCH, True, TESTS)
        if odd[-1]["status"] == "unsupported":
            return odd
        if odd[-1]["ok"]:
            # Twice: the odd batch was computed for each test.
            expected_s = bench.spent_s * ece408.BATCH / (2 * ece408.ODD_BATCH)
            images = ece408.LESSER_BATCH if expected_s > LONG_S else ece408.BATCH
            usual = tested(bench, images, False, ("integers",))
    if not odd[-1]["ok"]:
        with IsolatedBench(variant, sandboxed, folder, library) as bench:
            lesser = tested(bench, ece408.LESSER_BATCH, False, ("integers",))
            if lesser[-1]["ok"] and bench.spent_s * ece408.BATCH / ece408.LESSER_BATCH > LONG_S:
                usual = lesser
    # What a file keeps from call to call was made for the odd batch there, so a failure counts in a process of its own.
    if not usual or not usual[-1]["ok"]:
        usual = afresh(ece408.BATCH, False, ("integers",))
    if not usual[-1]["ok"]:
        return [*usual[:-1], _append_reason(usual[-1], f"the batch has {ece408.BATCH} images")]
    if odd[-1]["ok"]:
        return odd + usual
    forward = afresh(ece408.ODD_BATCH, False, TESTS)
    if forward[-1]["ok"]:
        return [*usual, _append_reason(odd[-1], BACKWARDS)]
    images = usual[-1]["size"]
    reverse = afresh(images, True, ("integers",))
    if not reverse[-1]["ok"]:
        return [*usual, _append_reason(reverse[-1], BACKWARDS)]
    return [*usual, assumptions(forward[-1], images)]


def assumptions(row: Row, images: int = ece408.BATCH) -> Row:
    """The row of a failure at the odd batch of a file that is right at the course's, or at another."""
    reason = f"right for {images} images, not for {ece408.ODD_BATCH}: {row['reason']}"
    return {**row, "status": "unsupported", "reason": reason}


_REMEDIES = (
    (
        r"from (dynamic )?shared memory",
        "is a __syncthreads() missing before it is read, or is part of it never loaded?",
    ),
    (r"from memory allocated", "is each output some thread's to write, and is each array filled before it is read?"),
    (r"leaves (\d+) of \1 outputs unwritten$", "is the result copied back to the host (cudaMemcpyDeviceToHost)?"),
)
"""What to look at first, by what a reason says."""


def note(bench: IsolatedBench, rows: list[Row]) -> list[Row]:
    """Rows, with what may explain a wrong result as the variant's process says it, and what to look at first."""
    return [row if row["ok"] else _explain(row, bench.noted) for row in rows]


def _append_reason(row: Row, why: str) -> Row:
    return {**row, "reason": f"{row['reason']} (in {row['case']}, where {why})"}


def _explain(row: Row, noted: str) -> Row:
    reason = f"{row['reason']}; {noted}" if noted else row["reason"]
    remedy = next((words for pattern, words in _REMEDIES if re.search(pattern, reason)), "")
    return {**row, "reason": f"{reason}; {remedy}" if remedy else reason}
