"""The chapters of a submission's report: baselines, optimizations with the student's answers, and points."""

from dataclasses import replace

from markupsafe import Markup

from warpbook.common import units
from warpbook.common.statistics import Estimate
from warpbook.config.course_term import Performance, first_line_with, sum_points
from warpbook.course import final_submission_rules
from warpbook.course.program_output import ProgramOutput
from warpbook.course.submissions import FINAL, TITLES
from warpbook.report import class_report, student_answers
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.course_times import LAYER, OP
from warpbook.report.excerpts import excerpt
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, Fact, HtmlTable, View, numbers, words

MOST_LINES = 24
"""Of a difference: with short answers a section stays on one page, the first below the chapter's head."""


def course_baseline_view(ev: Evidence) -> View:
    """The chapter of a study of a term."""
    shown = [*ev.submitted.term.earlier, FINAL]
    return View(
        why="" if ev.gpu_run else ev.source.why,
        table=_baseline_times(ev, shown) if ev.gpu_run else None,
        context=None if ev.gpu_run else _context(ev),
        printed=_printed_baseline(ev, shown),
        judged=_verdict_table(ev, shown),
    )


def _printed_baseline(ev: Evidence, shown: list[str]) -> HtmlTable | None:
    """The same of the course's own program, by the outputs that the submission brings; None where it brings none."""
    rows = [
        (
            TITLES[name],
            units.count(run.batch),
            *(units.time(time) for time in run.op_ms),
            _printed_op_times(ev, run),
            f"{units.seconds(run.elapsed_s)}\u202fs" if run.elapsed_s else units.MISSING,
            units.MISSING if run.accuracy is None else units.significant(run.accuracy),
            ev.submitted.of.outputs[name],
        )
        for name in shown
        for run in ev.submitted.program_outputs(name)
    ]
    if not rows:
        return None
    return HtmlTable(
        "course-printed",
        "The same as the course's own program printed it, by the outputs that the submission brings: nothing here "
        f"vouches for them, nor for the GPU.{_mark_legend(ev, rows)}",
        (*words("File"), *numbers("Batch", *_measures(ev)), *words("Output")),
        tuple(rows),
    )


def _printed_op_times(ev: Evidence, run: ProgramOutput) -> Markup:
    """The op times of a run of the course's program, added."""
    mark = Markup("<sup>‡</sup>") if ev.submitted.is_impossibly_fast(run) else ""
    return Markup("{}{}").format(units.time(sum(run.op_ms)), mark)


def _mark_legend(ev: Evidence, rows: list[tuple[Cell, ...]]) -> str:
    """What the mark beside a printed time means, where there is one."""
    least = f" ‡: less than its bytes need on {ev.submitted.term.gpu.name}; not all of the work is in conv_forward_gpu."
    return least if any("‡" in cell for row in rows for cell in row) else ""


def _measures(ev: Evidence) -> tuple[str, ...]:
    return (*_op_time_heads(ev), "Their sum", "Total execution time", "Accuracy")


def _op_time_heads(ev: Evidence) -> tuple[str, ...]:
    return tuple(f"Op\N{NO-BREAK SPACE}time\N{NO-BREAK SPACE}{number}" for number in range(1, len(ev.layers) + 1))


def _baseline_times(ev: Evidence, shown: list[str]) -> HtmlTable:
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
        (*words("Kernel", "What it is"), *numbers(*_op_time_heads(ev), "Their sum", "Layer times, added")),
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
    times = _times_beside_baseline(ev, name, over.name if over else "") if mine else None
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
        shows=ev.submitted.code_evidence(name),
        in_final=tuple(word for word in one.code_must_contain if final and first_line_with(word, final.code)),
        after=ev.builds.main_kernel_resources(name) if mine else None,
        before=ev.builds.main_kernel_resources(over.name) if over else None,
        times=times,
        printed=_printed_beside_baseline(ev, name, one.baseline),
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


def _times_beside_baseline(ev: Evidence, name: str, over: str) -> HtmlTable | None:
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


def _printed_beside_baseline(ev: Evidence, name: str, over: str) -> HtmlTable | None:
    """Op times by the outputs that the submission brings; None where it brings none of this one."""
    before = {run.batch: run for run in ev.submitted.program_outputs(over)}
    rows = []
    for run in ev.submitted.program_outputs(name):
        base, mine = before.get(run.batch), _printed_op_times(ev, run)
        comparable = base and not ev.submitted.is_impossibly_fast(base) and not ev.submitted.is_impossibly_fast(run)
        ratio = units.ratio(sum(base.op_ms) / sum(run.op_ms)) if base and comparable else units.MISSING
        layers = [sum(one.layer_ms) if one and one.layer_ms else None for one in (base, run)]
        by_layer = units.ratio(layers[0] / layers[1]) if layers[0] and layers[1] else units.MISSING
        theirs = _printed_op_times(ev, base) if base else units.MISSING
        accuracy = units.MISSING if run.accuracy is None else units.significant(run.accuracy)
        rows.append((units.count(run.batch), theirs, mine, ratio, *map(units.time, layers), by_layer, accuracy))
    if not rows:
        return None
    return HtmlTable(
        f"course-printed-{name}",
        f"As the course's own program printed it, by {ev.submitted.of.outputs[name]}, both layers added: nothing here "
        f"vouches for it, nor for the GPU.{_mark_legend(ev, rows)}",
        numbers("Batch", "Baseline, op", "Op Time", "Ratio", "Baseline, layer", "Layer Time", "Ratio", "Accuracy"),
        tuple(rows),
    )


def _ratio(ratio: Estimate) -> str:
    words = Markup('{} <span class="interval">{}</span>')
    return words.format(units.ratio_beside_interval(ratio), units.ratio_interval(ratio))


def course_points_view(ev: Evidence) -> View:
    """The summary of a study of a term, and its last chapters."""
    written = student_answers.answers(ev.submitted, FINAL)
    said = [written.rest, *written.by_question.values()]
    return View(
        facts=_facts(ev),
        table=_points_table(ev),
        final=_final(ev),
        milestones=_milestones(ev),
        at_most="all" if ev.submitted.term.performance.points is None else str(ev.submitted.term.performance.points),
        grade=_grade(ev),
        final_answers=Markup("").join(said),
        pages=_pages(ev),
    )


def _facts(ev: Evidence) -> tuple[Fact, ...]:
    claimed = {name: ev.submitted.judge_file(name) for name in ev.submitted.claimed}
    right = [name for name, judged in claimed.items() if judged.right]
    final, total = ev.submitted.judge_file(FINAL), ev.course.total(FINAL, ev.largest, OP)
    points = sum_points(ev.submitted.term, {name: ev.submitted.worth(name) for name in claimed})
    sound = sum_points(ev.submitted.term, {name: ev.submitted.worth(name) for name in right})
    possible = sum(one.points for one in ev.submitted.term.required.values()) + ev.submitted.term.optional_points
    return (
        Fact("Final file", final.verdict, final.where if final.right else final.place or final.file, "name"),
        Fact("Optimizations that are right", f"{len(right)} of {len(claimed)}", "of those handed in"),
        Fact("Points claimed", str(points), f"{sound} of them by a file that is right; {possible} possible"),
        Fact("Op times of the final file", units.time(total.value), f"on {ev.device_name('gpu')}")
        if total
        else Fact("Op times of the final file", "not measured", "there is no valid time here", "name"),
    )


def _final(ev: Evidence) -> HtmlTable:
    """The course's rules for the final file, as far as its code tells."""
    judged, variant = ev.submitted.judge_file(FINAL), ev.submitted.variant(FINAL)
    found = final_submission_rules.final_rules(variant.code) if variant else []
    any_batch = judged.note or f"{judged.tests} tests passed {judged.where}" if judged.right else judged.words
    right = None if judged.status == "unsupported" else judged.right and not judged.note
    kept = {True: "kept", False: "not kept", None: "a person must say"}
    return HtmlTable(
        "course-final",
        "The course's rules for the final file, as far as its tests and its code tell.",
        words("Rule", "Verdict", "Why"),
        (
            ("Right at any batch size", kept[right], any_batch),
            *((rule.asks, kept[rule.kept], rule.words) for rule in found),
        ),
        "judged",
    )


def _points_table(ev: Evidence) -> HtmlTable:
    term, claimed, rows = ev.submitted.term, ev.submitted.claimed, []
    optional = required = 0
    for name, one in term.optimizations.items():
        worth = ev.submitted.worth(name) if name in claimed else 0
        if name in term.required:
            required += worth
        else:
            optional += worth
        said = str(worth) if name in claimed else units.MISSING
        rows.append((name, one.title, str(one.points), said, *class_report.claim_check(ev, name)))
    possible = sum(one.points for one in term.required.values())
    rows.append(("", "Required", str(possible), str(required), "", ""))
    beyond = optional - term.optional_points
    said = f"{optional} claimed; {beyond} beyond what counts" if beyond > 0 else ""
    rows.append(
        ("", "Optional, at most", str(term.optional_points), str(min(optional, term.optional_points)), said, "")
    )
    return HtmlTable(
        "course-points-table",
        "Points of the last milestone but those for performance. Claimed is what has a file; a claim is worth less "
        "where the code lacks what full points ask.",
        (
            *words("Number", "Optimization"),
            *numbers("Possible", "Claimed"),
            *words("What a rule says", "What is left to a person"),
        ),
        tuple(rows),
        "judged",
    )


def _milestones(ev: Evidence) -> HtmlTable:
    return HtmlTable(
        "course-milestones",
        "Milestones of the term and their points. This report is about the last.",
        (*words("Milestone", "Asks"), *numbers("Points")),
        tuple(
            (str(number), one.description, units.MISSING if one.points is None else str(one.points))
            for number, one in enumerate(ev.submitted.term.milestones, 1)
        ),
    )


def _grade(ev: Evidence) -> str:
    line, gpu = ev.submitted.term.performance, ev.submitted.term.gpu.name
    total = ev.course.total(FINAL, ev.largest, OP) if FINAL in ev.plan.variants else None
    if total is None:
        return f"The final file's times were not measured here: nothing is said of these points.{_output_sentence(ev)}"
    device, time = ev.device_name("gpu"), units.time(total.value)
    if device != gpu:
        return f"Measured here: {time} on {device}, which is not {gpu}: no points follow from it."
    return f"Measured here: {time} on {gpu}, on the line {_earned_words(line, total.value)}."


def _earned_words(line: Performance, op_ms: float) -> str:
    """What op times earn, in words."""
    share = line.share(op_ms)
    return (
        f"{share:.0%} of the points" if line.points is None else f"{units.significant(line.points * share, 3)} points"
    )


def _output_sentence(ev: Evidence) -> str:
    """What the submission's own output would mean, as a sentence; empty where it says nothing."""
    found = [run for run in ev.submitted.program_outputs(FINAL) if run.batch == ev.largest]
    if not found:
        return ""
    term, file, time = ev.submitted.term, ev.submitted.of.outputs[FINAL], sum(found[0].op_ms)
    said = f" By the submission's own {file} they are {units.time(time)}"
    if ev.submitted.is_impossibly_fast(found[0]):
        return f"{said}, less than its bytes need on {term.gpu.name}: no points follow."
    return f"{said}; were that {term.gpu.name}, it would be {_earned_words(term.performance, time)}."


def _pages(ev: Evidence) -> HtmlTable:
    rows = tuple((name, one.title, cell_markup.pages(f"m3-{name}")) for name, one in ev.submitted.claimed.items())
    return HtmlTable(
        "course-pages",
        "Pages of this PDF to assign to each optimization on upload, the cover counted as page 1.",
        (*words("Number", "Optimization"), *numbers("Pages")),
        rows,
    )
