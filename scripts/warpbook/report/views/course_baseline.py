"""The baseline table of a submission: the course's op times, whole programs and accuracy, batch by batch."""

from warpbook.common import units
from warpbook.course.submissions import FINAL, TITLES
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.course_times import OP
from warpbook.report.views import cell_markup
from warpbook.report.views.components import HtmlTable, View, numbers, words


def course_baseline_view(ev: Evidence) -> View:
    """The chapter of a study of a term."""
    shown = [*ev.submitted.term.earlier, FINAL]
    return View(
        why="" if ev.gpu_run else ev.source.why,
        table=_table(ev, shown) if ev.gpu_run else None,
        context=None if ev.gpu_run else _context(ev),
        printed=_printed_table(ev, shown),
        judged=_verdict_table(ev, shown),
    )


def _printed_table(ev: Evidence, shown: list[str]) -> HtmlTable | None:
    """The same of the course's own program, by the outputs that the submission brings; None where it brings none."""
    rows = [
        (
            TITLES[name],
            units.count(run.batch),
            *(units.time(time) for time in run.op_ms),
            cell_markup.printed_op_times(run, ev.submitted.is_impossibly_fast(run)),
            f"{units.seconds(run.elapsed_s)}\u202fs" if run.elapsed_s else units.MISSING,
            units.MISSING if run.accuracy is None else units.significant(run.accuracy),
            ev.submitted.of.outputs[name],
        )
        for name in shown
        for run in ev.submitted.program_outputs(name)
    ]
    if not rows:
        return None
    marked = any(ev.submitted.is_impossibly_fast(run) for name in shown for run in ev.submitted.program_outputs(name))
    return HtmlTable(
        "course-printed",
        "The same as the course's own program printed it, by the outputs that the submission brings: nothing here "
        f"vouches for them, nor for the GPU.{cell_markup.mark_legend(marked, ev.submitted.term.gpu.name)}",
        (*words("File"), *numbers("Batch", *_measures(ev)), *words("Output")),
        tuple(rows),
    )


def _measures(ev: Evidence) -> tuple[str, ...]:
    return (*_op_times(ev), "Their sum", "Total execution time", "Accuracy")


def _op_times(ev: Evidence) -> tuple[str, ...]:
    return tuple(f"Op\N{NO-BREAK SPACE}time\N{NO-BREAK SPACE}{number}" for number in range(1, len(ev.layers) + 1))


def _table(ev: Evidence, shown: list[str]) -> HtmlTable:
    rows = []
    for name in shown:
        for size in ev.sizes if ev.submitted.variant(name) else ():
            runs = ev.programs.runs(name, size)
            times = [ev.course.time(name, layer, size, OP) for layer in ev.layer_names]
            rows.append(
                (
                    TITLES[name],
                    units.count(size),
                    *(cell_markup.time_cell(time) for time in times),
                    cell_markup.time_cell(ev.course.total(name, size, OP)),
                    units.MISSING if runs.empty else f"{units.seconds(runs.elapsed_s.median())}\u202fs",
                    units.MISSING if runs.empty else units.significant(runs.accuracy.iloc[0]),
                )
            )
    return HtmlTable(
        "course-baseline-table",
        "Op times of the two convolutions, the whole program's time, and accuracy. Op time: the host's clock around "
        f"conv_forward_gpu and a wait for the device, median with a 95 % interval; {units.MISSING}: not measured. The "
        "whole program is the course's own, which is not run here.",
        (*words("File"), *numbers("Batch", *_measures(ev))),
        tuple(rows),
    )


def _context(ev: Evidence) -> HtmlTable | None:
    context = ev.submitted.of.context
    if context is None:
        return None
    return HtmlTable(
        "course-context",
        f"For comparison: times of kernels that are built into Warpbook, at {units.count(context.images)} images on {context.gpu}, "
        f"which is not the course's GPU (archived run {context.run_id}). Op time: the call, the L2 cache flushed before. Layer "
        "times: with copies from and to page-locked memory. Medians.",
        (*words("Kernel", "What it is"), *numbers(*_op_times(ev), "Their sum", "Layer times, added")),
        tuple(
            (one.name, one.title, *map(units.time, one.op_ms), units.time(sum(one.op_ms)), units.time(one.layer_ms))
            for one in context.kernels
        ),
    )


def _verdict_table(ev: Evidence, shown: list[str]) -> HtmlTable:
    term, rows = ev.submitted.term, []
    bounds = {FINAL: term.performance.full_ms, **{str(name): ms for name, ms in term.bounds_ms.items()}}
    for name in shown:
        one, bound = ev.submitted.judge_file(name), bounds.get(name)
        rows.append(
            (
                TITLES[name],
                one.file or units.MISSING,
                cell_markup.file_verdict_cell(one),
                one.words or one.note or f"{one.tests} tests passed {one.where}",
                units.MISSING if bound is None else f"{units.significant(bound, 3)}\u202fms",
            )
        )
    return HtmlTable(
        "course-files",
        "The files that others are compared with, and the final one. Bound: what the course asks of the sum of op "
        f"times at {units.count(ev.largest)} images on {term.gpu.name}; of the final file for full points.",
        (*words("What", "File", "Verdict", "Why"), *numbers("Bound")),
        tuple(rows),
        "judged",
    )
