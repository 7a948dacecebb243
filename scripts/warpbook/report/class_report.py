"""A submission's rows in the table over all of a term, that table, and what is left to a person."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from markupsafe import Markup

from warpbook.common import units
from warpbook.config.course_term import Term, sum_points
from warpbook.course import final_submission_rules
from warpbook.course.grades_table import GRADES
from warpbook.course.submissions import FINAL, TITLES
from warpbook.report import student_answers
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.course_times import OP
from warpbook.report.evidence.submission_evidence import JudgedFile
from warpbook.report.views.components import Cell, HtmlTable, TableColumn, View, numbers, words

Row = dict[str, Any]


def rows(ev: Evidence, document: str) -> list[Row]:
    """Rows of GRADES: baselines, the final file, each optimization. document: the report's HTML, with pages."""
    pages = dict(re.findall(r'<a class="pages" href="#m3-(\w+)">([^<]+)</a>', document))
    return [{**row, "pages": pages.get(row["number"], "")} for row in _rows(ev)]


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
            "submission": ev.submitted.of.name,
            "term": ev.name,
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
    held = [f"{word} in line {line}" for word, line in shown if line]
    absent = [word for word, line in shown if not line]
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


MOST_CHARACTERS = 500

MARKS = {
    "right": ("✓", "held"),
    "wrong": ("wrong", "refuted"),
    "fails": ("fails", "refuted"),
    "does not end": ("hangs", "refuted"),
    "does not compile": ("no build", "refuted"),
    "not taken": ("not taken", "refuted"),
    "not judged": ("?", "partly"),
    "no file": (units.MISSING, "not-testable"),
}
"""How a verdict stands in the table, and its class in the stylesheet."""


def class_table_view(title: str, term: Term, images: int, rows: list[Row]) -> View:
    """Rows of GRADES, those of a submission together."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row["submission"], []).append(row)
    performance = term.performance
    points = "all" if performance.points is None else performance.points
    return View(
        title=title,
        count=len(by_name),
        gpu=term.gpu.name,
        line=f"{points} points at {performance.full_ms:g}\u202fms or less, none above {performance.none_ms:g}\u202fms",
        overview=_overview(term, images, by_name),
        faults=_faults(rows),
        open=_open(rows),
    )


def _overview(term: Term, images: int, by_name: dict[str, list[Row]]) -> HtmlTable:
    columns = [FINAL, *term.optimizations]
    possible = sum(one.points for one in term.required.values()) + term.optional_points
    return HtmlTable(
        "grades-overview",
        f"Each submission's files. ✓: builds and is right; {units.MISSING}: no file; ?: could not be judged; faults "
        f"are in the next table. Claimed: points of the {possible} possible for the code that is there, optional ones "
        "up to what counts; right: of them those whose file is right. Op time: of the final file, all layers at "
        f"{units.count(images)} images, on the GPU named; {units.MISSING}: not measured.",
        (
            *words("Submission"),
            *(TableColumn(name.replace("_", "_\N{ZERO WIDTH SPACE}")) for name in columns),
            *numbers("Claimed", "Right"),
            *words("Op time"),
        ),
        tuple(_row(name, rows, columns, term) for name, rows in by_name.items()),
        "graded",
    )


def _row(name: str, rows: list[Row], columns: list[str], term: Term) -> tuple[Cell, ...]:
    by_number = {row["number"]: row for row in rows}
    if "" in by_number:  # there is no report
        verdict = by_number[""]["verdict"]
        return (name, *([Markup('<span class="refuted">{}</span>').format(verdict)] + [""] * (len(columns) + 2)))
    claimed = {row["number"]: row["claimed"] for row in rows if row["claimed"]}
    right = {number: points for number, points in claimed.items() if by_number[number]["verdict"] == "right"}
    final = by_number[FINAL]
    time = f"{units.time(final['op_ms'])}, {final['device']}" if final["op_ms"] else units.MISSING
    cells = (_mark(by_number[number]["verdict"]) for number in columns)
    return (name, *cells, str(sum_points(term, claimed)), str(sum_points(term, right)), time)


def _mark(verdict: str) -> Markup:
    said, kind = MARKS[verdict]
    return Markup('<span class="{}">{}</span>').format(kind, said)


def _faults(rows: Iterable[Row]) -> HtmlTable | None:
    return _table(
        "grades-faults",
        "Faults, each with the file and line where there is one.",
        ("Submission", "Number", "Verdict", "Where", "Why"),
        [
            (row["submission"], row["number"], row["verdict"], row["place"] or row["file"], _cut(row["words"]))
            for row in rows
            if row["verdict"] not in ("right", "no file", "not judged")
        ],
    )


def _open(rows: Iterable[Row]) -> HtmlTable | None:
    return _table(
        "grades-open",
        "What a person has to look at besides the answers and times.",
        ("Submission", "Number", "What a rule says", "What it leaves"),
        [
            (row["submission"], row["number"], row["rule"], _cut(left))
            for row in rows
            if (left := _beyond_answers(row["person"]))
        ],
    )


def _cut(words: str) -> str:
    """The beginning of strangers' words: one of them must not fill the class's pages."""
    return words if len(words) <= MOST_CHARACTERS else f"{words[:MOST_CHARACTERS]}…"


def _beyond_answers(person: str) -> str:
    parts = [part for part in person.split("; ") if not part.startswith(("the answers:", "no answers", "its times on"))]
    return "; ".join(parts)


def _table(id: str, caption: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> HtmlTable | None:
    return HtmlTable(id, caption, words(*head), tuple(rows), "judged") if rows else None
