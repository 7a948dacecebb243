"""Files of the course: their Op and Layer Times, beside the op times of the variants that are built in."""

import itertools
import math

from warpbook.common import units
from warpbook.harness import ece408_gpu
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.course_times import COLD, HOT, LAYER, OP
from warpbook.report.views import cell_markup
from warpbook.report.views.components import HtmlTable, View, numbers, words


def course_files_view(ev: Evidence) -> View | None:
    """The section of a study; None where no file of the course is here."""
    files = ev.course.files
    if not files:
        return None
    timed = [file for file in files if not ev.course.samples[ev.course.samples.variant == file.name].empty]
    problems = [(file.name, reason) for file in files for reason in ev.course.problems(file)]
    return View(
        warmups=ece408_gpu.WARMUPS,
        rounds=ece408_gpu.ROUNDS,
        comparison=_comparison_table(ev, timed) if timed else None,
        times=_times(ev, timed) if timed else None,
        problems=tuple(problems),
    )


def _comparison_table(ev: Evidence, files: list[Variant]) -> HtmlTable:
    """Everything at the largest size, the least sum of op times first, what has none last."""
    largest, timed = ev.largest, []
    for file in files:
        ops = [ev.course.time(file.name, layer, largest, OP) for layer in ev.layer_names]
        sums = (ev.course.total(file.name, largest, which) for which in (OP, LAYER))
        timed.append((file.name, "file of the course", [*ops, *sums]))
    for variant in ev.ranking.fastest_first:
        ops = [ev.times.op(variant.name, layer, largest) for layer in ev.layer_names]
        sums = (ev.times.total(variant.name, largest, kind) for kind in ("op", "layer"))
        timed.append((variant.name, "library" if variant.header.peer else "built in", [*ops, *sums]))
    timed.sort(key=lambda row: [time.value if time else math.inf for time in row[2][-2:]])
    return HtmlTable(
        "course-beside",
        f"Files of the course beside the variants of this study at {units.count(largest)} images on "
        f"{ev.device_name('gpu')}: medians with half the 95 % interval and the number of samples. A file has Op "
        "Time and Layer Time as the course takes them. The others have the call with the L2 cache flushed before, "
        "and the call with copies from page-locked memory.",
        (
            *words("Variant", "What it is"),
            *numbers(*(f"Op Time, {layer}" for layer in ev.layer_names)),
            *numbers("Op Times, added" if len(ev.layers) > 1 else "Op Time, added", "Layer Times, added"),
        ),
        tuple((name, kind, *map(cell_markup.time_cell, times)) for name, kind, times in timed),
        "named",
    )


def _times(ev: Evidence, files: list[Variant]) -> HtmlTable:
    return HtmlTable(
        "course-times",
        "Every time of the files of the course. GPU: CUDA events around conv_forward_gpu, the L2 cache flushed "
        "before (cold), or right after the same call (hot).",
        (*words("File", "Layer"), *numbers("Images", "Op Time", "Layer Time", "GPU, cold", "GPU, hot")),
        tuple(
            (
                file.name,
                layer,
                units.count(size),
                *(cell_markup.time_cell(ev.course.time(file.name, layer, size, of)) for of in (OP, LAYER, COLD, HOT)),
            )
            for file, layer, size in itertools.product(files, ev.layer_names, ev.sizes)
        ),
        "named",
    )
