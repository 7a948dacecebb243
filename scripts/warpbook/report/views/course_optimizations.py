"""Each optimization of a submission against its baseline: the course's questions, the student's answers, evidence."""

from dataclasses import replace

from markupsafe import Markup

from warpbook.common import units
from warpbook.common.statistics import Estimate
from warpbook.config.course_term import first_line_with
from warpbook.course.submissions import FINAL, TITLES
from warpbook.report import student_answers
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.course_times import LAYER, OP
from warpbook.report.excerpts import excerpt
from warpbook.report.views import cell_markup
from warpbook.report.views.components import HtmlTable, View, numbers

MOST_LINES = 24
"""Of a difference: with short answers a section stays on one page, the first below the chapter's head."""


def course_optimizations_view(ev: Evidence) -> View:
    """The chapter of a study of a term."""
    term, claimed = ev.submitted.term, ev.submitted.claimed
    return View(
        asked=tuple(_review(ev, name) for name in claimed),
        required_absent=tuple(f"{name} {one.title}" for name, one in term.required.items() if name not in claimed),
    )


def _review(ev: Evidence, name: str) -> View:
    one, judged = ev.submitted.term.optimizations[name], ev.submitted.judge_file(name)
    mine, over = ev.submitted.variant(name), ev.submitted.baseline(name)
    final = ev.submitted.variant(FINAL)
    written = student_answers.answers(ev.submitted, name)
    times = _times(ev, name, over.name if over else "") if mine else None
    change = excerpt(mine, over, MOST_LINES) if mine and over else None
    return View(
        name=name,
        title=one.title,
        judged=judged,
        verdict=cell_markup.file_verdict_cell(judged),
        over=TITLES[one.baseline],
        over_file=ev.submitted.of.files.get(one.baseline, ""),
        worth=ev.submitted.worth(name),
        points=one.points,
        change=change and replace(change, file=ev.submitted.of.files[name], over=ev.submitted.of.files[one.baseline]),
        unchanged=ev.submitted.is_baseline(name),
        shows=tuple((shown.word, shown.line) for shown in ev.submitted.code_evidence(name)),
        in_final=tuple(word for word in one.code_must_contain if final and first_line_with(word, final.code)),
        after=ev.builds.main_kernel_resources(name) if mine else None,
        before=ev.builds.main_kernel_resources(over.name) if over else None,
        times=times,
        printed=_printed_table(ev, name, one.baseline),
        why_not_timed=_why_not_timed(ev, name, times),
        questions=tuple(
            View(number=number, question=question, answer=written.by_question.get(number, Markup("")))
            for number, question in enumerate(ev.submitted.term.questions, 1)
        ),
        rest=written.rest,
    )


def _why_not_timed(ev: Evidence, name: str, times: HtmlTable | None) -> str:
    """Why some or all of its times are no figures; empty where all are."""
    mine = ev.submitted.variant(name)
    judged = ev.submitted.judge_file(name)
    if mine is None:
        return "there is no file"
    if not judged.right and judged.status != "unsupported":
        what = "is wrong" if judged.status == "wrong_result" else judged.verdict
        return f"a file is timed where it is right, and this one {what}"
    return "; ".join(ev.course.problems(mine)) or ("" if times else "no time of it is sound")


def _times(ev: Evidence, name: str, over: str) -> HtmlTable | None:
    """Times of all layers added, beside the baseline's; None where none of its own was measured."""
    rows = []
    for size in ev.sizes:
        times = [ev.course.total(one, size, which) for which in (OP, LAYER) for one in (over, name)]
        ratios = [ev.course.ratio(name, over, size, which) if over else None for which in (OP, LAYER)]
        if times[1] or times[3]:
            before_op, op, before_layer, layer = map(cell_markup.time_cell, times)
            by_op, by_layer = (units.MISSING if ratio is None else _ratio(ratio) for ratio in ratios)
            rows.append((units.count(size), before_op, op, by_op, before_layer, layer, by_layer))
    if not rows:
        return None
    return HtmlTable(
        f"course-times-{name}",
        f"{name} and its baseline on {ev.device_name('gpu')}, both layers added: the course's Op Time, and its Layer "
        "Time, which holds what prolog and epilog do, with the baseline's over each. Where the work is in the prolog, "
        f"Layer Time alone means something. The two were timed one after the other; {units.MISSING}: no valid time.",
        numbers("Batch", "Baseline, op", "Op Time", "Ratio", "Baseline, layer", "Layer Time", "Ratio"),
        tuple(rows),
    )


def _printed_table(ev: Evidence, name: str, over: str) -> HtmlTable | None:
    """Op times by the outputs that the submission brings; None where it brings none of this one."""
    before = {run.batch: run for run in ev.submitted.program_outputs(over)}
    rows = []
    for run in ev.submitted.program_outputs(name):
        base, mine = before.get(run.batch), cell_markup.printed_op_times(run, ev.submitted.is_impossibly_fast(run))
        comparable = base and not ev.submitted.is_impossibly_fast(base) and not ev.submitted.is_impossibly_fast(run)
        ratio = units.ratio(sum(base.op_ms) / sum(run.op_ms)) if base and comparable else units.MISSING
        layers = [sum(one.layer_ms) if one and one.layer_ms else None for one in (base, run)]
        by_layer = units.ratio(layers[0] / layers[1]) if layers[0] and layers[1] else units.MISSING
        theirs = cell_markup.printed_op_times(base, ev.submitted.is_impossibly_fast(base)) if base else units.MISSING
        accuracy = units.MISSING if run.accuracy is None else units.significant(run.accuracy)
        rows.append((units.count(run.batch), theirs, mine, ratio, *map(units.time, layers), by_layer, accuracy))
    if not rows:
        return None
    marked = any(map(ev.submitted.is_impossibly_fast, (*before.values(), *ev.submitted.program_outputs(name))))
    return HtmlTable(
        f"course-printed-{name}",
        f"As the course's own program printed it, by {ev.submitted.of.outputs[name]}, both layers added: nothing here "
        f"vouches for it, nor for the GPU.{cell_markup.mark_legend(marked, ev.submitted.term.gpu.name)}",
        numbers("Batch", "Baseline, op", "Op Time", "Ratio", "Baseline, layer", "Layer Time", "Ratio", "Accuracy"),
        tuple(rows),
    )


def _ratio(ratio: Estimate) -> str:
    words = Markup('{} <span class="interval">{}</span>')
    return words.format(units.ratio_beside_interval(ratio), units.ratio_interval(ratio))
