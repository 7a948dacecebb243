"""The report's pages, by where WeasyPrint sets each word: nothing beyond their margins, none mostly empty."""

from collections.abc import Iterator
from typing import Any

import pytest

from warpbook.report import pdf

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


@pytest.mark.parametrize("part", ["report", "supplement"])
def test_nothing_lies_beyond_a_margin_and_no_page_but_a_last_one_is_mostly_empty(report, part):
    pages = report.laid_out[part].pages
    bleeding = 1 if part == "report" else 0  # the cover has no margins
    assert {place: found for place, page in enumerate(pages, 1) if place > bleeding and (found := beyond(page))} == {}
    empty = {place: f"{void(page):.2f}" for place, page in enumerate(pages, 1) if void(page) > FULLEST_VOID}
    # The deliverables stand on a page of their own, whatever is left of the one before.
    before = {place for place, page in enumerate(pages) if any(mark[1] == "Deliverables" for mark in page.bookmarks)}
    assert part == "supplement" or before
    assert set(empty) <= {len(pages), *before}, empty


def page_of(body: str) -> Any:
    text = f'<html lang="en"><title>T</title><style>@page {{ size: A4; margin: 20mm }}</style><body>{body}'
    return pdf.laid_out(text).pages[0]


def test_a_listing_wider_than_its_page_is_seen():
    assert beyond(page_of(f"<pre>{'x' * 300}</pre>")) != []
    assert beyond(page_of("<pre>short</pre>")) == []


def test_a_page_with_two_lines_is_seen_as_empty():
    assert void(page_of("<p>One</p><p>Two</p>")) > 0.8
    assert void(page_of('<div style="height: 240mm"></div><p>Low</p>')) < 0.1
