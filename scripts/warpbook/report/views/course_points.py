"""Points of a submission: what the term gives, what was claimed, what a rule can confirm and what a person must."""

from dataclasses import dataclass

from warpbook import units
from warpbook.report.evidence import Evidence
from warpbook.report.views import cells
from warpbook.report.views.parts import Table, numbers, words
from warpbook.submissions import FINAL


@dataclass(frozen=True)
class Points:
    """grade: what the final file's times mean for the points of performance, as a sentence; pages: where each
    optimization stands, for the upload."""

    table: Table
    milestones: Table
    grade: str
    pages: Table


def view(ev: Evidence) -> Points:
    """The chapter of a study of a term."""
    return Points(table=_table(ev), milestones=_milestones(ev), grade=_grade(ev), pages=_pages(ev))


def judge(ev: Evidence, name: str) -> str:
    """What a rule finds of an optimization's claim, and what is left to a person."""
    judged = ev.submitted.judged(name)
    if not judged.right:
        return f"{judged.verdict}: no points by rule"
    absent = [shown.word for shown in ev.submitted.shown(name) if not shown.line]
    if absent:
        return f"right, but nothing of {' and '.join(absent)} in its code: a person must look"
    if not ev.submitted.shown(name):
        return "right; whether it is what it is called, a person must say"
    return "right, and its code has what its name says; a person reads the answers"


def _table(ev: Evidence) -> Table:
    term, claimed, rows = ev.submitted.term, ev.submitted.claimed, []
    optional = required = 0
    for name, one in term.optimizations.items():
        worth = ev.submitted.worth(name) if name in claimed else 0
        if name in term.required:
            required += worth
        else:
            optional += worth
        said = judge(ev, name) if name in claimed else "not handed in"
        rows.append((name, one.title, str(one.points), str(worth) if name in claimed else units.MISSING, said))
    possible = sum(one.points for one in term.required.values())
    rows.append(("", "Required", str(possible), str(required), ""))
    beyond = optional - term.optional_points
    said = f"{optional} claimed; {beyond} beyond what counts" if beyond > 0 else ""
    rows.append(("", "Optional, at most", str(term.optional_points), str(min(optional, term.optional_points)), said))
    return Table(
        "course-points-table",
        "Points of the last milestone but those for performance. Claimed is what has a file; a claim is worth less "
        "where the code lacks what full points ask.",
        (*words("Number", "Optimization"), *numbers("Possible", "Claimed"), *words("What a rule can say")),
        tuple(rows),
        "judged",
    )


def _milestones(ev: Evidence) -> Table:
    return Table(
        "course-milestones",
        "Milestones of the term and their points. This report is about the last.",
        (*words("Milestone", "Asks"), *numbers("Points")),
        tuple((str(number), one.asks, str(one.points)) for number, one in enumerate(ev.submitted.term.milestones, 1)),
    )


def _grade(ev: Evidence) -> str:
    line, gpu = ev.submitted.term.performance, ev.submitted.term.gpu
    total = ev.times.total(FINAL, ev.largest) if FINAL in ev.plan.variants else None
    if total is None:
        return "The final file's times were not measured here: nothing is said of these points."
    device, time = ev.device_name("gpu"), units.time(total.value)
    if device != gpu:
        return f"Measured here: {time} on {device}, which is not {gpu}: no points follow from it."
    return f"Measured here: {time} on {gpu}, on the line {units.significant(line.earned(total.value), 3)} points."


def _pages(ev: Evidence) -> Table:
    rows = tuple((name, one.title, cells.pages(f"m3-{name}")) for name, one in ev.submitted.claimed.items())
    return Table(
        "course-pages",
        "Pages of this PDF to assign to each optimization on upload, the cover counted as page 1.",
        (*words("Number", "Optimization"), *numbers("Pages")),
        rows,
    )
