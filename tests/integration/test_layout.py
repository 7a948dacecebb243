"""The report's pages, by where WeasyPrint sets each word: nothing beyond their margins, none mostly empty."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import yaml

from small_run import as_of_today
from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.report import pdf, rendering
from warpbook.runs import catalog

VALUES = yaml.safe_load(settings.FILE.read_text())
OTHERS = ("ece408", "fa17-checkpoints", "gemm")
"""With fa18 they have every section that a study has."""
OF_KERNELS = [name for name in ("fa18", *OTHERS) if "milestone_3" in VALUES["studies"][name]["sections"]]


@pytest.fixture(scope="module")
def pages_of(report, documents) -> Callable[[str], list[Any]]:
    """The pages of a study's report."""
    return cache(
        lambda study: (report.laid_out["report"] if study == "fa18" else pdf.lay_out(documents(study).report)).pages
    )


LEAST_TYPE_PT = 6.5


def test_no_type_is_smaller_than_six_and_a_half_points_and_the_report_has_twenty_pages_at_most(report, printed):
    small = [f"{points:.1f} pt: {text}" for points, text in printed.sizes if text and round(points, 1) < LEAST_TYPE_PT]
    assert len(printed.sizes) > 1000 and small == []
    assert len(report.pdf.pages) <= 20 and len(report.supplement.pages) <= 50


def test_the_longest_ladder_has_twelve_pages_at_most(pages_of):
    assert len(pages_of("gemm")) <= 12


def words_on(page: Any, seen: Any) -> str:
    return " ".join(getattr(box, "text", "") for box in seen.shown(page))


def test_the_studies_that_are_laid_out_have_every_section():
    plain = {name: {*study["sections"]} for name, study in VALUES["studies"].items() if "course" not in study}
    assert set().union(*(plain[name] for name in ("fa18", *OTHERS))) == set().union(*plain.values())


def test_nothing_lies_beyond_a_margin_and_no_page_but_a_last_one_is_mostly_empty(report, pages_of, seen):
    pages = report.laid_out["supplement"].pages
    assert (seen.beyond_margins(pages, 1), seen.mostly_empty(pages)) == ({}, {})
    for study in ("fa18", *OTHERS):
        pages = pages_of(study)
        assert (seen.beyond_margins(pages, seen.AFTER_COVER), seen.mostly_empty(pages)) == ({}, {}), study


def test_the_summary_and_its_chart_are_one_page(pages_of, documents_with, few_variants, opened, seen, tmp_path):
    for study in OF_KERNELS:
        words = words_on(pages_of(study)[1], seen)
        assert words.startswith("Summary ") and "Figure 1. " in words, study
    # With figures of a CPU too, on another machine: of a report that is short otherwise.
    archived = [opened(path) for path in catalog.archived_paths(PROJECT / catalog.ARCHIVES)]
    measured = catalog.open_run(
        as_of_today([run for run in archived if run.gpu is None and "fa18" in run.record["studies"]][-1].path, tmp_path)
    )
    short = few_variants["studies"]["fa18"] | {"sections": ["milestone_3"], "deliverables": {}, "show_profile_of": []}
    made = documents_with("fa18", measured, studies=few_variants["studies"] | {"fa18": short})
    words = words_on(pdf.lay_out(made.report).pages[1], seen)
    assert "; CPU times from " in words and "Figure 1. " in words


def test_contents_are_split_where_their_columns_are_about_as_high():
    short = [{"level": 2, "title": "Op times"}] * 6
    long = [{"level": 2, "title": "Kernels that together take more than 90 % of the GPU time"}] * 3
    columns = rendering.split_columns((rendering.DocumentPart("", "", [*long, *short]),))
    assert [*map(len, columns)] == [2, 3, 4]


def test_no_page_after_the_contents_is_laid_out_again_once_their_numbers_are_known(caplog):
    style = PROJECT / "reports" / "style"
    sheets = "".join((style / f"{name}.css").read_text() for name in ("tokens", "type", "parts"))
    # Each title is longer than the one before by less than a digit: some fit a line with one digit and not with two.
    entries = "".join(f'<li class="level-1"><a href="#end">{"l" * letters}</a></li>' for letters in range(70, 100))
    contents = f'<nav class="contents"><div class="columns"><ol>{entries}</ol></div></nav>'
    body = f'{contents}{"<p>Row</p>" * 500}<h1 id="end">End</h1>'
    with caplog.at_level(logging.INFO, "weasyprint.progress"):
        pages = pdf.lay_out(f'<html lang="en"><title>T</title><style>{sheets}</style><body>{body}').pages
    layouts = [line for line in caplog.messages if "Page" in line and "up-to-date" not in line]
    assert len(layouts) >= len(pages) > 9
    assert {line for line in layouts if layouts.count(line) > 1} == {"Step 5 - Creating layout - Page 1"}


def page_of(body: str) -> Any:
    text = f'<html lang="en"><title>T</title><style>@page {{ size: A4; margin: 20mm }}</style><body>{body}'
    return pdf.lay_out(text).pages[0]


def test_words_beyond_a_margin_and_empty_pages_are_seen(seen):
    assert seen.beyond(page_of(f"<pre>{'x' * 300}</pre>")) != []
    assert seen.beyond(page_of("<pre>short</pre>")) == []

    assert seen.void(page_of("<p>One</p><p>Two</p>")) > 0.8
    assert seen.void(page_of('<div style="height: 240mm"></div><p>Low</p>')) < 0.1


def test_a_heading_with_a_sentence_stays_with_its_table(seen):
    sheet = (PROJECT / "reports" / "style" / "page.css").read_text()
    rows = "".join(f"<tr><td>Row</td><td>{number}</td></tr>" for number in range(6))
    table = (
        f'<table class="data short"><thead><tr><th>Head</th><th>Place</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    for sentence, first_page in (
        ("<p>Sentence</p>", "Before"),
        ("", "Before"),
        ("<p>A</p><p>B</p>", "Before Heading A B"),
    ):
        body = f'<div style="height: 215mm">Before</div><h2>Heading</h2>{sentence}{table}'
        document = f'<html lang="en"><title>T</title><style>{sheet}</style><body>{body}'
        pages = pdf.lay_out(document).pages
        assert words_on(pages[0], seen) == first_page


def test_of_a_table_that_is_broken_no_page_has_the_head_with_a_row_or_two_or_the_last_row_alone(seen):
    for room_mm in [12, 18, 24, 30]:
        sheet = (PROJECT / "reports" / "style" / "page.css").read_text()
        rows = "".join(f"<tr><td>Row</td><td>{number}</td></tr>" for number in range(43))
        table = f'<table class="data"><thead><tr><th>Head</th><th>Place</th></tr></thead><tbody>{rows}</tbody></table>'
        body = f'<div style="height: {259 - room_mm}mm"></div>{table}'
        document = f'<html lang="en"><title>T</title><style>{sheet}</style><body style="margin: 0">{body}'
        held = [
            sum(getattr(box, "text", "") == "Row" for box in seen.shown(page)) for page in pdf.lay_out(document).pages
        ]
        assert sum(held) == 43
        assert not {1, 2} & set(held), held


def test_a_machine_without_fonts_prints_no_warning_for_pages_that_bring_their_own(tmp_path):
    bare = tmp_path / "fonts.conf"
    bare.write_text("<fontconfig></fontconfig>")
    command = [sys.executable, "-c", "from warpbook.report import pdf; pdf.weasyprint()"]
    environment = {**os.environ, "FONTCONFIG_FILE": str(bare), "PYTHONPATH": str(PROJECT / "scripts")}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stderr == b""
