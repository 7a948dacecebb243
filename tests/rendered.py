"""Fixtures: the report of the newest archived run, rendered once: as HTML, as PDF, and as pages that WeasyPrint laid
out; and reports of the small run, as HTML alone."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pypdf import PdfReader

import render_report
from small_run import plan_of
from warpbook.common.quick_yaml import load_yaml
from warpbook.config import settings
from warpbook.report import rendering
from warpbook.report.evidence import Evidence
from warpbook.runs import catalog


@pytest.fixture(scope="session")
def rendered(newest_archive, sharing_tables) -> Callable[..., tuple[str, PdfReader]]:
    """Render (HTML, PDF) of a study, with an archived run in the place of this machine's."""
    # Under the policy that the run was measured with, so that nothing of it is stale.
    measuring = catalog.open_run(newest_archive).record["measuring"]

    def render(folder: Path, study: str = "fa18", **changes) -> tuple[str, PdfReader]:
        values = load_yaml(settings.FILE.read_text()) | {"study": study, "measuring": measuring} | changes
        html, pdf = folder / f"{study}.html", folder / f"{study}.pdf"
        with sharing_tables():
            render_report.render(study, values, newest_archive, html, pdf)
        return html.read_text(), PdfReader(pdf)

    return render


def _documents(run: catalog.Run, study: str, local: catalog.Run | None = None, **changes) -> rendering.Documents:
    """A study's documents under a configuration with other values, of the GPU figures of a run."""
    values = load_yaml(settings.FILE.read_text()) | {"study": study, "measuring": run.record["measuring"]}
    ev = Evidence(plan_of(values | changes), study, local or run)
    if ev.gpu_run:
        ev.gpu_run = run  # whose tables are read once for all studies
    return rendering.Documents(ev, datetime(2026, 1, 1, tzinfo=UTC), "", None)


@pytest.fixture(scope="session")
def documents_with(small_archive, opened, few_variants) -> Callable[..., rendering.Documents]:
    """Make the HTML documents of a study of few variants under other values of some keys, with the small run in the
    place of this machine's, or another."""

    def make(study: str, local: catalog.Run | None = None, **changes) -> rendering.Documents:
        return _documents(opened(small_archive), study, local, **few_variants | changes)

    return make


@pytest.fixture(scope="session")
def documents(newest_archive, opened) -> Callable[[str], rendering.Documents]:
    """Make the HTML documents of a study of the whole newest archive, once for each study."""
    return cache(lambda study: _documents(opened(newest_archive), study))


@pytest.fixture(scope="session")
def small_documents(small_archive, opened) -> Callable[[str], rendering.Documents]:
    """Make those of the small run, which hold what it has of the study's variants: a fifth of the time."""
    return lambda study: _documents(opened(small_archive), study)


@pytest.fixture(scope="session")
def small_document(ev) -> str:
    """The report and the supplement of the small run as one HTML document."""
    return rendering.Documents(ev, datetime(2026, 1, 1, tzinfo=UTC), "", None).whole


@pytest.fixture(scope="session")
def report(tmp_path_factory, rendered) -> SimpleNamespace:
    """The report of fa18: its `html`, its `pdf`, its `supplement`, and both as WeasyPrint `laid_out` them."""
    import weasyprint

    folder, laid_out = tmp_path_factory.mktemp("report"), []
    lay_out = weasyprint.HTML.render

    def kept(*arguments, **options):
        laid_out.append(lay_out(*arguments, **options))
        return laid_out[-1]

    @contextmanager
    def in_turn(_):
        yield SimpleNamespace(submit=lambda work, *arguments: SimpleNamespace(result=lambda: work(*arguments)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weasyprint.HTML, "render", kept)
        patch.setattr(render_report, "process_pool", in_turn)  # what another process lays out is not seen here
        patch.setattr(render_report.layout, "within_limits", lambda work: work())
        html, pdf = rendered(folder)
    pages = dict(zip(("report", "supplement"), laid_out, strict=True))
    return SimpleNamespace(html=html, pdf=pdf, supplement=PdfReader(folder / "fa18-supplement.pdf"), laid_out=pages)


@pytest.fixture(scope="session")
def printed(report) -> SimpleNamespace:
    """What a PDF library reads on the pages of the `report` and of its `supplement`, and in which `sizes`, in points, as
    (size, text)."""
    sizes: list[tuple[float, str]] = []

    def note_size(text: str, outer: list[float], inner: list[float], _: Any, size: float) -> None:
        sizes.append((abs(size) * math.hypot(*inner[2:4]) * math.hypot(*outer[2:4]), text.strip()))

    texts = [
        [page.extract_text(visitor_text=note_size) for page in reader.pages]
        for reader in (report.pdf, report.supplement)
    ]
    return SimpleNamespace(report=texts[0], supplement=texts[1], sizes=sizes)


@pytest.fixture(scope="session")
def document_without_gpu(documents_with) -> str:
    """The report and the supplement of a configuration that asks for no GPU times."""
    return documents_with("fa18", gpu="none").whole


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


@pytest.fixture(scope="session")
def seen() -> SimpleNamespace:
    """What is seen of pages that were laid out: words beyond their margins, and how much of them is empty."""
    names = (boxes, shown, beyond, void, mostly_empty, beyond_margins)
    return SimpleNamespace(AFTER_COVER=AFTER_COVER, **{function.__name__: function for function in names})
