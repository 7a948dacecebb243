"""The rows of a submission in the table over all, and what is left to a person."""

import re
from collections.abc import Iterator
from typing import Any

from warpbook.course import final_submission_rules
from warpbook.course.grades_table import GRADES
from warpbook.course.submissions import FINAL, TITLES
from warpbook.report import student_answers
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.course_times import OP
from warpbook.report.evidence.submission_evidence import JudgedFile

Row = dict[str, Any]


def rows(ev: Evidence, document: str) -> list[Row]:
    """Rows of GRADES: baselines, the final file, each optimization. document: the report's HTML, with pages."""
    pages = dict(re.findall(r'<a class="pages" href="#m3-(\w+)">([^<]+)</a>', document))
    shared = {"submission": ev.submitted.of.name, "term": ev.name}
    return [{**shared, **row, "pages": pages.get(row["number"], "")} for row in _rows(ev)]


def failure_row(name: str, term: str, reason: str) -> Row:
    """The row of a submission of which there is no report; one that trouble of the machine left so is not judged."""
    nothing = {column: None if kind.dtype != "string" else "" for column, kind in GRADES.columns.items()}
    row = {**nothing, "submission": name, "term": term, "verdict": "no report", "words": reason}
    if reason.startswith("not judged: "):
        again = f"{reason.removeprefix('not judged: ')}; grade again"
        row |= {"verdict": "not judged", "rule": "not judged", "person": again}
    return row


def _rows(ev: Evidence) -> Iterator[Row]:
    term = ev.submitted.term
    for name in (*term.earlier, FINAL, *term.optimizations):
        judged, one = ev.submitted.judge_file(name), term.optimizations.get(name)
        rule, person = claim_check(ev, name) if one else final_columns(ev) if name == FINAL else ("", "")
        times = ev.course.total(name, ev.largest, OP) if ev.submitted.variant(name) else None
        yield {
            "number": name,
            "title": one.title if one else TITLES[name],
            "file": judged.file,
            "builds": judged.builds,
            "verdict": judged.verdict,
            "place": judged.place,
            "words": judged.words or judged.note,
            "possible": one.points if one else None,
            "claimed": ev.submitted.worth(name) if one else None,
            "rule": rule,
            "person": person,
            "op_ms": times.value if times else None,
            "printed_op_ms": next(
                (sum(run.op_ms) for run in ev.submitted.program_outputs(name) if run.batch == ev.largest), None
            ),
            "device": ev.device_name("gpu") if times else "",
        }


def claim_check(ev: Evidence, name: str) -> tuple[str, str]:
    """What a rule finds of an optimization's claim, and what is left to a person."""
    judged = ev.submitted.judge_file(name)
    if judged.status == "missing":
        return "not handed in", ""
    if judged.status == "unsupported":
        return "not judged", f"whether it is right: {judged.words}"
    if not judged.right:
        return judged.verdict, _reading(ev, name)
    shown = ev.submitted.code_evidence(name)
    held = [f"{one.word} in line {one.line}" for one in shown if one.line]
    absent = [one.word for one in shown if not one.line]
    left = [f"why its code has no {' and no '.join(absent)}"] if absent else []
    left += ["whether it is what it is called"] if not shown else []
    same = ["why its code is its baseline's"] if ev.submitted.is_baseline(name) else []
    return "; ".join(["right", *held]), "; ".join([*same, *left, _reading(ev, name)])


def _reading(ev: Evidence, name: str) -> str:
    asked = len(ev.submitted.term.questions)
    answered = len(student_answers.read(name, asked, pictures=False).by_question)
    return f"the answers: {answered} of {asked}" if answered else "no answers"


def final_columns(ev: Evidence) -> tuple[str, str]:
    """The same of the final file."""
    judged, variant = ev.submitted.judge_file(FINAL), ev.submitted.variant(FINAL)
    if not judged.right or variant is None:
        return judged.verdict, judged.words if judged.status == "unsupported" else ""
    found = final_submission_rules.final_rules(variant.code)
    broken = [f"not kept: {rule.asks} ({rule.words})" for rule in found if rule.kept is False]
    open_ones = [rule.words for rule in found if rule.kept is None]
    return "; ".join([_batch_words(judged), *broken]), "; ".join([*open_ones, "its times on the course's GPU"])


def _batch_words(judged: JudgedFile) -> str:
    if judged.note.startswith("right for "):
        return f"right, not at any batch size: {judged.note}"
    large = f"some blocks at {judged.sampled}" if judged.sampled else "larger batches were not computed"
    sizes = " and at ".join(map(str, judged.sizes))
    return "; ".join(filter(None, [f"right at {sizes} images", large, judged.note]))
