"""All submissions of a term on one table: what each file came to, the faults, and what a person has to look at."""

from collections.abc import Iterable
from typing import Any

from markupsafe import Markup

from warpbook.common import units
from warpbook.config.course_term import Term, sum_points
from warpbook.course.submissions import FINAL
from warpbook.report.views.components import Cell, HtmlTable, TableColumn, View, numbers, words

ClassRow = dict[str, Any]
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


def class_table_view(title: str, term: Term, images: int, rows: list[ClassRow]) -> View:
    """Rows of GRADES, those of a submission together."""
    by_name: dict[str, list[ClassRow]] = {}
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


def _overview(term: Term, images: int, by_name: dict[str, list[ClassRow]]) -> HtmlTable:
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


def _row(name: str, rows: list[ClassRow], columns: list[str], term: Term) -> tuple[Cell, ...]:
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


def _faults(rows: Iterable[ClassRow]) -> HtmlTable | None:
    broken = [row for row in rows if row["verdict"] not in ("right", "no file", "not judged")]
    return _table(
        "grades-faults",
        "Faults, each with the file and line where there is one.",
        ("Submission", "Number", "Verdict", "Where", "Why"),
        [
            (row["submission"], row["number"], row["verdict"], row["place"] or row["file"], _cut(row["words"]))
            for row in broken
        ],
    )


def _open(rows: Iterable[ClassRow]) -> HtmlTable | None:
    shown = [row for row in rows if _beyond_answers(row["person"])]
    return _table(
        "grades-open",
        "What a person has to look at besides the answers and times.",
        ("Submission", "Number", "What a rule says", "What it leaves"),
        [(row["submission"], row["number"], row["rule"], _cut(_beyond_answers(row["person"]))) for row in shown],
    )


def _cut(words: str) -> str:
    """The beginning of strangers' words: one of them must not fill the class's pages."""
    return words if len(words) <= MOST_CHARACTERS else f"{words[:MOST_CHARACTERS]}…"


def _beyond_answers(person: str) -> str:
    parts = [part for part in person.split("; ") if not part.startswith(("the answers:", "no answers", "its times on"))]
    return "; ".join(parts)


def _table(id: str, caption: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> HtmlTable | None:
    return HtmlTable(id, caption, words(*head), tuple(rows), "judged") if rows else None
