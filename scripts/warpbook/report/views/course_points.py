"""Points of a submission: what the term gives, what was claimed, what a rule can confirm and what a person must."""

from markupsafe import Markup

from warpbook.common import units
from warpbook.config.course_term import Performance, sum_points
from warpbook.course import final_submission_rules
from warpbook.course.submissions import FINAL
from warpbook.report import class_report, student_answers
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.course_times import OP
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Fact, HtmlTable, View, numbers, words


def course_points_view(ev: Evidence) -> View:
    """The summary of a study of a term, and its last chapters."""
    written = student_answers.answers(ev.submitted, FINAL)
    said = [written.rest, *written.by_question.values()]
    return View(
        facts=_facts(ev),
        table=_table(ev),
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


def _table(ev: Evidence) -> HtmlTable:
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
