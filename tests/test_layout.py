"""The report's pages, by where WeasyPrint sets each word: nothing beyond their margins, none mostly empty."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from warpbook import config
from warpbook.files import PROJECT
from warpbook.report import pdf, rendering

VALUES = yaml.safe_load(config.FILE.read_text())
OTHERS = [name for name, study in VALUES["studies"].items() if name != "fa18" and "course" not in study]

FULLEST_VOID = 1 / 3
"""The most of a page's height that may be empty; figures and short tables, which stay whole, are made to leave less."""

ROUNDING_PX = 1.0


def boxes(box: Any) -> Iterator[Any]:
    """A box and all within it."""
    yield box
    for child in getattr(box, "children", ()):
        yield from boxes(child)


def shown(page: Any) -> list[Any]:
    """Words and pictures of a page, running heads left out."""
    inside = [child for child in page._page_box.children if "Margin" not in type(child).__name__]
    found = [box for child in inside for box in boxes(child)]
    words = [box for box in found if hasattr(box, "text") and box.text.strip() and box.style["visibility"] == "visible"]
    return words + [box for box in found if "Replaced" in type(box).__name__]


def beyond(page: Any) -> list[str]:
    """What lies beyond a page's left or right margin, and by how many pixels."""
    left = page._page_box.content_box_x()
    right = left + page._page_box.width
    reach = {box: max(box.position_x + box.width - right, left - box.position_x) for box in shown(page)}
    return [f"{getattr(box, 'text', 'a picture')}: {far:.0f}" for box, far in reach.items() if far > ROUNDING_PX]


def void(page: Any) -> float:
    """The share of a page's height below its last word or picture."""
    top, height = page._page_box.content_box_y(), page._page_box.height
    return 1 - (max((box.position_y + box.height for box in shown(page)), default=top) - top) / height


def mostly_empty(pages: list[Any]) -> dict[int, str]:
    """Pages of which more is empty than may be, by number, with how much; a last one may be."""
    shares = {place: void(page) for place, page in enumerate(pages, 1)}
    return {place: f"{share:.2f}" for place, share in shares.items() if share > FULLEST_VOID and place < len(pages)}


def beyond_margins(pages: list[Any], first: int) -> dict[int, list[str]]:
    """What lies beyond the margins of pages from the first on."""
    return {place: found for place, page in enumerate(pages, 1) if place >= first and (found := beyond(page))}


AFTER_COVER = 2  # which has no margins


@pytest.mark.parametrize("part", ["report", "supplement"])
def test_nothing_lies_beyond_a_margin_and_no_page_but_a_last_one_is_mostly_empty(report, part):
    pages = report.laid_out[part].pages
    assert beyond_margins(pages, AFTER_COVER if part == "report" else 1) == {}
    assert mostly_empty(pages) == {}


@pytest.mark.parametrize("study", OTHERS)
def test_no_page_of_another_study_s_report_is_mostly_empty_and_nothing_lies_beyond_a_margin(study, documents):
    pages = pdf.laid_out(documents(study).report).pages
    assert beyond_margins(pages, AFTER_COVER) == {}
    assert mostly_empty(pages) == {}


def test_contents_are_split_where_their_columns_are_about_as_high():
    short = [{"level": 2, "title": "Op times"}] * 6
    long = [{"level": 2, "title": "Kernels that together take more than 90 % of the GPU time"}] * 3
    left, right = rendering.in_columns((rendering.Part("", "", [*long, *short]),))
    assert (len(left), len(right)) == (3, 6)


def page_of(body: str) -> Any:
    text = f'<html lang="en"><title>T</title><style>@page {{ size: A4; margin: 20mm }}</style><body>{body}'
    return pdf.laid_out(text).pages[0]


def test_a_listing_wider_than_its_page_is_seen():
    assert beyond(page_of(f"<pre>{'x' * 300}</pre>")) != []
    assert beyond(page_of("<pre>short</pre>")) == []


def test_a_page_with_two_lines_is_seen_as_empty():
    assert void(page_of("<p>One</p><p>Two</p>")) > 0.8
    assert void(page_of('<div style="height: 240mm"></div><p>Low</p>')) < 0.1


@pytest.mark.parametrize("room_mm", [12, 18, 24, 30])
def test_of_a_table_that_is_broken_no_page_has_the_head_with_a_row_or_two_or_the_last_row_alone(room_mm):
    sheet = (PROJECT / "reports" / "style" / "page.css").read_text()
    rows = "".join(f"<tr><td>Row</td><td>{number}</td></tr>" for number in range(43))
    table = f'<table class="data"><thead><tr><th>Head</th><th>Place</th></tr></thead><tbody>{rows}</tbody></table>'
    body = f'<div style="height: {259 - room_mm}mm"></div>{table}'
    document = f'<html lang="en"><title>T</title><style>{sheet}</style><body style="margin: 0">{body}'
    held = [sum(getattr(box, "text", "") == "Row" for box in shown(page)) for page in pdf.laid_out(document).pages]
    assert sum(held) == 43
    assert not {1, 2} & set(held), held
