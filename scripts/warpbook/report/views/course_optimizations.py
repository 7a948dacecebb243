"""Each optimization of a submission against its baseline: the course's questions, the student's answers, evidence."""

from dataclasses import dataclass

from markupsafe import Markup

from warpbook import units
from warpbook.report import answers
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.submitted import Judged
from warpbook.report.excerpts import Excerpt, excerpt
from warpbook.report.views import cells
from warpbook.report.views.parts import Table, numbers, words
from warpbook.report.views.resources import Resources, of_main_kernel
from warpbook.submissions import FINAL, TITLES
from warpbook.terms import line_of


@dataclass(frozen=True)
class Answered:
    """A question of the course, and what the student wrote; empty where nothing."""

    number: int
    question: str
    answer: Markup


@dataclass(frozen=True)
class Asked:
    """One optimization. over: its baseline's title, with `over_file`, empty where the submission holds none; worth:
    its points for this code; shows: words that its code ought to hold, each with a line or 0; in_final: those of them
    that the final file holds; why_not_timed: empty where `times` are there."""

    name: str
    title: str
    judged: Judged
    verdict: Markup
    over: str
    over_file: str
    worth: int
    points: int
    change: Excerpt | None
    unchanged: bool
    shows: tuple[tuple[str, int], ...]
    in_final: tuple[str, ...]
    after: Resources | None
    before: Resources | None
    times: Table | None
    why_not_timed: str
    questions: tuple[Answered, ...]
    rest: Markup


@dataclass(frozen=True)
class Optimizations:
    """The chapter: those that the submission holds, and the titles of those that it does not."""

    asked: tuple[Asked, ...]
    absent: tuple[str, ...]
    required_absent: tuple[str, ...]


def view(ev: Evidence) -> Optimizations:
    """The chapter of a study of a term."""
    term, claimed = ev.submitted.term, ev.submitted.claimed
    absent = [name for name in term.optimizations if name not in claimed]
    named = {name: f"{name} {term.optimizations[name].title}" for name in absent}
    return Optimizations(
        asked=tuple(_asked(ev, name) for name in claimed),
        absent=tuple(named[name] for name in absent if name not in term.required),
        required_absent=tuple(named[name] for name in absent if name in term.required),
    )


def _asked(ev: Evidence, name: str) -> Asked:
    one, judged = ev.submitted.term.optimizations[name], ev.submitted.judged(name)
    mine, over = ev.submitted.variant(name), ev.submitted.baseline(name)
    final = ev.submitted.variant(FINAL)
    written = answers.read(name, len(ev.submitted.term.questions))
    times = _times(ev, name, over.name) if over else None
    change = excerpt(mine, over) if mine and over else None
    return Asked(
        name=name,
        title=one.title,
        judged=judged,
        verdict=cells.file_verdict(judged),
        over=TITLES[one.baseline],
        over_file=ev.submitted.of.files.get(one.baseline, ""),
        worth=ev.submitted.worth(name),
        points=one.points,
        change=change,
        unchanged=bool(mine and over and not change),
        shows=tuple((shown.word, shown.line) for shown in ev.submitted.shown(name)),
        in_final=tuple(word for word in one.shows if final and line_of(word, final.code)),
        after=of_main_kernel(ev, name) if mine else None,
        before=of_main_kernel(ev, over.name) if over else None,
        times=times,
        why_not_timed="" if times else _why_not_timed(ev, name),
        questions=tuple(
            Answered(number, question, written.by_question.get(number, Markup("")))
            for number, question in enumerate(ev.submitted.term.questions, 1)
        ),
        rest=written.rest,
    )


def _why_not_timed(ev: Evidence, name: str) -> str:
    if not ev.gpu_run:
        return ev.source.why
    if not ev.submitted.baseline(name):
        return "the submission does not hold the file that it is compared with"
    reasons = list(ev.problems.of(name).reason.unique())
    return "; ".join(reasons) or f"the run {ev.gpu_run.run_id} holds no figure of it"


def _times(ev: Evidence, name: str, over: str) -> Table | None:
    """Times of all layers added, beside the baseline's; None where none was measured."""
    rows = []
    for size in ev.sizes:
        speedup = ev.times.total_speedup(name, size)
        cells_of = [cells.timed(ev.times.total(one, size, kind)) for kind in ("op", "layer") for one in (over, name)]
        if speedup:
            rows.append((units.count(size), *cells_of, cells.sped(speedup), cells.verdict(speedup)))
    if not rows:
        return None
    return Table(
        f"course-times-{name}",
        f"{name} and its baseline, timed in turn on {ev.device_name('gpu')}, both layers added: op time, and layer "
        "time with what prolog and epilog do. Where the work is in the prolog, layer time alone means something.",
        (
            *numbers("Batch", "Baseline, op", "Op time", "Baseline, layer", "Layer time", "Speedup, op"),
            *words("Verdict"),
        ),
        tuple(rows),
    )
