"""Cells that need markup: times with intervals, speedups, verdicts, inline pictures, links. All else is escaped."""

import base64
import re
from collections.abc import Iterable
from statistics import median

import numpy as np
from markupsafe import Markup, escape

from warpbook.common import statistics, units
from warpbook.common.statistics import Estimate
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import ABOUT, INCONCLUSIVE, NO_RATIO, Evidence, Speedup
from warpbook.report.evidence.submission_evidence import JudgedFile
from warpbook.report.evidence.time_series import FEWEST, WIDEST

MOST_NAMED = 2  # of more cases a sentence gives the number, not the names
_TIME_CELL = Markup('<span class="nowrap">{}{}</span>')
_INTERVAL = Markup(' <span class="interval">{}</span>')
_VERDICT_CELL = Markup('<span class="{}">{}</span>')
_UNSURE = _VERDICT_CELL.format("ambiguous", INCONCLUSIVE)
_CODE = Markup("<code>{}</code>")
_IN_BACKTICKS = re.compile(r"`([^`]+)`")
# A ratio of times that were not taken in turn.
_UNPAIRED = Markup("<sup>†</sup>")


def data_uri(svg: str) -> str:
    """A picture as the address of an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def code_spans(text: object) -> Markup:
    """Words as they are printed: what stands in backticks as code. Markup is left as it is."""
    if isinstance(text, Markup):
        return text
    parts = _IN_BACKTICKS.split(str(text))  # every other one stood in backticks
    return Markup("").join(_CODE.format(part) if place % 2 else part for place, part in enumerate(parts))


def name_cases(ev: Evidence, names: list[str]) -> str:
    """Cases of a study in words: conv1 and conv2; 7 of the 10 cases; every case."""
    if len(names) == len(ev.layers):
        return f"every {ev.case_word}"
    number = f"{len(names)} of the {len(ev.layers)} {ev.case_word}s"
    return units.join_all(names) if len(names) <= MOST_NAMED else number


def library_words(ev: Evidence, one: Variant) -> str:
    """A variant's name, and of a library's call which other's kernels it runs."""
    same = ev.ranking.repeated(one) if one.header.peer else None
    return f"{one.stem} (kernels of {same.stem})" if same else one.stem


def time_cell(estimate: Estimate | None, counted: bool = True) -> str:
    """A time with half its interval's width and, where `counted`, the number of samples: 3.778 ms ±0.3 % n 300."""
    if estimate is None:
        return MISSING
    spread = units.spread(estimate)
    interval = _INTERVAL.format(f"{spread} {units.sample_size([estimate] * counted)}".rstrip()) if spread else ""
    return _TIME_CELL.format(units.time(estimate.value), interval)


def elapsed_cell(elapsed_s: Iterable[float]) -> str:
    """A program's elapsed time, the median of its runs, with their `run_spread`: 2.26 [1.98, 2.61] n 3."""
    values = list(elapsed_s)
    return _TIME_CELL.format(units.seconds(median(values)), _INTERVAL.format(run_spread(values)))


def run_spread(elapsed_s: Iterable[float]) -> str:
    """How far a program's runs differ, in s: the 95 % interval of three or more, both of two, that there is one."""
    values = sorted(elapsed_s)
    if len(values) < 3:
        return "(one run)" if len(values) == 1 else f"({' and '.join(map(units.seconds, values))})"
    found = statistics.median(np.array(values))
    return f"[{units.seconds(found.low)}, {units.seconds(found.high)}] {units.sample_size([found])}"


def headline_ratio(speedup: Speedup) -> str:
    """A conclusive speedup for a sentence: no more digits than its interval supports, and few."""
    return min(units.ratio(speedup.ratio.value), units.ratio_beside_interval(speedup.ratio), key=len)


def speedup_cell(speedup: Speedup | None) -> str:
    """A speedup with its interval and the number of samples, 1.140× [1.138, 1.142] n 300, or what stands in its place."""
    if speedup is None:
        return MISSING
    if speedup.doubt:
        return escape(speedup.substitute).replace(INCONCLUSIVE, _UNSURE)
    ratio = speedup.ratio
    interval = f"{units.ratio_interval(ratio)} {units.sample_size([ratio])}"
    dagger = Markup("") if speedup.paired else _UNPAIRED
    return _TIME_CELL.format(units.ratio_beside_interval(ratio), dagger + _INTERVAL.format(interval))


def ratio_cell(speedup: Speedup | None) -> str:
    """A speedup without its interval, in its verdict's colour, or what stands in its place: `doubt_note` says why."""
    if speedup is None:
        return MISSING
    if speedup.short_substitute == INCONCLUSIVE:
        return _UNSURE
    number, dagger, _ = speedup.short_text.partition("†")
    return _VERDICT_CELL.format(speedup.verdict, number) + (_UNPAIRED if dagger else "")


def doubt_note(cells: Iterable[str]) -> str:
    """What a caption says where some cell has no number of its own."""
    shown = " ".join(map(str, cells))
    few, wide = f"fewer than {units.number_word(FEWEST)} samples", f"differ by a factor of more than {WIDEST}"
    notes = {
        "× to ": f" Two ratios: the ends of an interval, where they {wide}.",
        ABOUT: f" {ABOUT}: {few}, which give no interval.",
        f">{NO_RATIO}<": f" No ratio: {few}.",
        f">{INCONCLUSIVE}<": f" Inconclusive: {few}, or the interval holds 1 and its ends {wide}.",
    }
    return "".join(words for sign, words in notes.items() if sign in shown)


def verdict_cell(speedup: Speedup | None) -> str:
    """What a speedup and its interval allow to say, in its colour."""
    return _VERDICT_CELL.format(speedup.verdict, speedup.word) if speedup else MISSING


def comparison_cell(speedup: Speedup, other: str) -> Markup:
    """A verdict in its colour with what it is over: faster than tiled."""
    return Markup("{} {} {}").format(verdict_cell(speedup), speedup.compared.partition(" ")[2], other)


def picture(kind: str, svg: str, alt: str) -> Markup:
    """A small picture within a cell. kind: its class in the stylesheet."""
    return Markup('<img class="{}" src="{}" alt="{}">').format(kind, data_uri(svg), alt)


def link(id: str, words: str) -> Markup:
    """Words that lead to another place in the report."""
    return Markup('<a href="#{}">{}</a>').format(id, words)


def companion_link(id: str, words: str) -> Markup:
    """The same to a place that may be in the other document; the stylesheet tells it apart."""
    return Markup('<a class="elsewhere" href="#{}">{}</a>').format(id, words)


def page(id: str) -> Markup:
    """The number of the page on which a place is, as a link; the stylesheet counts pages, where there are any."""
    return Markup('<a class="page" href="#{}"></a>').format(id)


def pages(id: str) -> Markup:
    """The pages of a section that ends at the place `end-<id>`: `pdf.add_page_numbers` fills them in."""
    return Markup('<a class="pages" href="#{}">00\N{EN DASH}00</a>').format(id)


def file_verdict_cell(judged: JudgedFile) -> Markup:
    """The verdict on a file of a submission, in its colour."""
    kind = {"right": "held", "unsupported": "partly", "missing": "not-testable"}.get(judged.status, "refuted")
    return Markup('<span class="nowrap {}">{}</span>').format(kind, judged.verdict)


def claim_verdict_cell(verdict: str) -> Markup:
    """A claim's verdict in its colour."""
    return Markup('<span class="{}">{}</span>').format(verdict.replace(" ", "-"), verdict)


def within_sentence(title: str) -> str:
    """A title as a part of a sentence: its first letter small, unless an abbreviation begins with it."""
    return title if title[1:2].isupper() or title[1:2].isdigit() else title[:1].lower() + title[1:]
