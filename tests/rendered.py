"""Fixtures: the report of the archived run, rendered once: as HTML, as PDF, and as pages that WeasyPrint laid out."""

from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pypdf import PdfReader

import render_report
from warpbook import config, plan, runs, variants
from warpbook.report import rendering
from warpbook.report.evidence import Evidence


@pytest.fixture(scope="session")
def rendered(newest_archive, sharing_tables) -> Callable[..., tuple[str, PdfReader]]:
    """Render (HTML, PDF) of a study, with an archived run in the place of this machine's."""
    # Under the policy that the run was measured with, so that nothing of it is stale.
    measuring = runs.open_run(newest_archive).record["measuring"]

    def render(folder: Path, study: str = "fa18", **changes) -> tuple[str, PdfReader]:
        values = yaml.safe_load(config.FILE.read_text()) | {"study": study, "measuring": measuring} | changes
        html, pdf = folder / f"{study}.html", folder / f"{study}.pdf"
        with sharing_tables():
            render_report.render(study, values, newest_archive, html, pdf)
        return html.read_text(), PdfReader(pdf)

    return render


@pytest.fixture(scope="session")
def documents_with(newest_archive, opened) -> Callable[..., rendering.Documents]:
    """Make the HTML documents of a study under other values of some keys, with the archived run in the place of this
    machine's."""
    run = opened(newest_archive)

    def make(study: str, **changes) -> rendering.Documents:
        values = yaml.safe_load(config.FILE.read_text()) | {"study": study, "measuring": run.record["measuring"]}
        ev = Evidence(plan.make(config.load(values | changes, list(variants.discover()))), study, run)
        if ev.gpu_run:
            ev.gpu_run = run  # whose tables are read once for all studies
        return rendering.documents(ev, datetime(2026, 1, 1, tzinfo=UTC), "", None)

    return make


@pytest.fixture(scope="session")
def documents(documents_with) -> Callable[[str], rendering.Documents]:
    """The same under no other values, made once for each study."""
    return cache(documents_with)


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
    def in_turn(work, *arguments):
        yield
        work(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weasyprint.HTML, "render", kept)
        patch.setattr(render_report, "meanwhile", in_turn)  # what another process lays out is not seen here
        html, pdf = rendered(folder)
    pages = dict(zip(("report", "supplement"), laid_out, strict=True))
    return SimpleNamespace(html=html, pdf=pdf, supplement=PdfReader(folder / "fa18-supplement.pdf"), laid_out=pages)


@pytest.fixture(scope="session")
def report_without_gpu(tmp_path_factory, rendered) -> SimpleNamespace:
    """The same of a configuration that asks for no GPU figures."""
    folder = tmp_path_factory.mktemp("without_gpu")
    html, pdf = rendered(folder, gpu="none")
    return SimpleNamespace(html=html, pdf=pdf, supplement=PdfReader(folder / "fa18-supplement.pdf"))
