"""The report, rendered from an archived run and opened with a PDF library."""

import base64
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
import zlib
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import page
import pytest
import yaml
from fontTools.ttLib import TTFont
from markupsafe import Markup
from pypdf import PdfReader

from small_run import shipped
from warpbook.common import version
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.report import evidence, pdf, rendering
from warpbook.report.views import profile_tables
from warpbook.runs import catalog, schema
from warpbook.workflow import plan
from workspaces import share_sound_marks

KNOWN = shipped()


@pytest.fixture
def pages(printed):
    return printed.report


@pytest.fixture
def more_pages(printed):
    return printed.supplement


class Outline(HTMLParser):
    """Words of images, table heads, identifiers and the words of headings of a document."""

    def __init__(self, text):
        super().__init__()
        self.images, self.ids, self.links, self.scopes = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if tag == "img" or named.get("role") == "img":
            self.images.append(named.get("alt") or named["aria-label"])
        if tag == "th":
            self.scopes.append(named.get("scope"))
        if "id" in named:
            self.ids.append(named["id"])
        if tag == "a":
            self.links.append(named["href"])


REPORT = """
        Summary
        Contents
        Milestone 1: the framework
        Kernels over 90 % of the GPU time
        API calls over 90 % of the API time
        Kernels and API calls
        Milestone 2: convolution on the CPU
        Milestone 3: a first GPU kernel
        Profile by size
        Op times
        Milestone 4: optimizations
        Weights in constant memory
        Input tile in shared memory
        How times were taken
        What is left out
"""
SUPPLEMENT = """
        Contents
        Builds
        Correctness
        Profiles in full
        Machines, software and provenance
        References
"""


def test_report_and_supplement_have_the_parts_of_a_milestone_report_in_order(pages, more_pages):
    for texts, headings in ((pages, REPORT), (more_pages, SUPPLEMENT)):
        lines = [line for text in texts for line in text.splitlines() if ". . ." not in line]  # not the contents' own
        whole = re.sub(r"\s+", " ", "\n".join(lines))
        place = 0
        for heading in headings.split("\n")[1:-1]:
            if heading.strip() == "Contents":
                assert any("Contents" in text for text in texts[:3])
                continue
            begin = whole.find(heading.strip(), place)
            assert begin >= 0, heading
            place = begin


def test_page_numbers_of_the_contents_are_those_of_the_headings(report, pages):
    contents = next(page for page in pages if "Contents" in page and ". . ." in page)
    entries = re.findall(r"(?:^|\n)(?:[0-9A-Z][0-9.]*)?\s*([A-Z][^\n]*?)\s*(?:\.\s*){3,}\s*(\d+)", contents)
    assert len(entries) >= 20
    for title, number in entries:
        page = re.sub(r"\s+", " ", pages[int(number) - 1])
        assert re.sub(r"\s+", " ", title.strip()) in page, (title, number)


def test_the_cover_names_title_authors_devices_commit_and_the_date_of_the_run(pages, newest_archive):
    chosen = settings.read(list(KNOWN))
    cover = re.sub(r"\s+", "", pages[0])  # a run's id may go over two lines
    cited = catalog.find_newest("fa18", PROJECT / catalog.ARCHIVES)[0].run_id
    for words in (chosen.report.title, *chosen.report.authors, "NVIDIA", cited, "commit"):
        assert words.replace(" ", "") in cover

    ended = datetime.fromisoformat(catalog.open_run(newest_archive).record["ended"])
    assert f"{ended:%-d %B %Y}" in pages[0]


def broken_rules(pdf: PdfReader, profile: str) -> list[str]:
    """What an independent validator finds wrong in a PDF."""
    judged = page.validate_pdf_bytes(pdf.stream.getvalue(), profile=profile)
    return [f"{failure.rule_id}: {failure.message}" for failure in judged.failures]


def test_pdf_is_tagged_titled_bookmarked_and_keeps_every_rule_of_pdf_ua_1_and_pdf_a_3a(report):
    reader = report.pdf
    assert reader.root_object["/MarkInfo"]["/Marked"]
    assert "CUDA kernels" in reader.metadata.title
    assert reader.metadata.creator == f"Warpbook {version.VERSION}"
    assert len(reader.outline) >= 10

    for profile in ["ua1", "3a"]:
        assert broken_rules(report.pdf, profile) == []
        assert broken_rules(report.supplement, profile) == []


def test_every_link_between_report_and_supplement_leads_to_a_place_there(report):
    files = {"fa18.pdf": report.pdf, "fa18-supplement.pdf": report.supplement}
    places = {name: set(reader.named_destinations) for name, reader in files.items()}
    for name, reader in files.items():
        other = next(file for file in files if file != name)
        actions = [note["/A"] for page in reader.pages for note in page.get("/Annots", []) if "/A" in note]
        across = [action for action in actions if action["/S"] == "/GoToR"]
        assert {(action["/F"], action["/D"] in places[other]) for action in across} <= {(other, True)}
        assert across or name != "fa18.pdf"
        assert all(action["/URI"].startswith("https://") for action in actions if action["/S"] == "/URI")


def test_a_stream_that_ends_in_a_carriage_return_keeps_its_length(tmp_path):
    written = ('{"ended": "2026-01-01T00:00:00+00:00", "note": "' + "a" * n + '"}' for n in range(256))
    # The compressed data end with their checksum.
    record = next(record for record in written if zlib.compress(record.encode(), 9).endswith(b"\r"))
    (tmp_path / "run.json").write_text(record)
    cited = catalog.Run(tmp_path, json.loads(record) | {"run_id": "run"})
    pdf.write_pdf("<html lang=en><title>Run</title><p>Text", tmp_path / "run.pdf", [cited])
    reader = PdfReader(tmp_path / "run.pdf")
    assert reader.attachments["run_run.json"] == [record.encode()]
    assert not [rule for rule in broken_rules(reader, "3a") if "STREAM-LENGTH" in rule]


def test_pdf_holds_its_run_s_record_and_plain_tables(report, newest_archive):
    held = {file.name: file for file in report.pdf.attachment_list}
    with zipfile.ZipFile(newest_archive) as packed:
        for name in ("run.json", "op_times.csv", "correctness.csv", "builds.csv", "counters.csv"):
            file = held[f"{newest_archive.stem}_{name}"]
            content = packed.read(name)
            assert file.content == (content if name == "run.json" else schema.for_spreadsheets(content))
            assert file.subtype == ("/application/json" if name == "run.json" else "/text/csv")
            assert file.associated_file_relationship == "/Data"
    assert list(held) == sorted(held)


def test_html_has_words_for_its_figures_says_what_its_heads_head_and_can_be_sent_alone(report):
    images = Outline(report.html).images
    assert len(images) >= 8 and "<svg role=" in report.html
    assert all(len(words) > 20 for words in images)

    assert set(Outline(report.html).scopes) == {"col", "row"}

    outline = Outline(report.html)
    assert len(set(outline.ids)) == len(outline.ids)
    within = [link.removeprefix("#") for link in outline.links if link.startswith("#")]
    assert set(within) <= set(outline.ids)

    assert 'url("../' not in report.html
    assert "http-equiv" not in report.html
    assert report.html.count("data:font/woff2;base64,") == 6 and len(report.html) < 2_000_000
    fonts = re.findall(r'font-family: "IBM Plex Sans"; src: url\("data:font/woff2;base64,([^"]+)"', report.html)
    held, whole = (
        {*map(chr, TTFont(font).getBestCmap())}
        for font in (io.BytesIO(base64.b64decode(fonts[0])), PROJECT / "reports" / "fonts" / "IBMPlexSans-Regular.ttf")
    )
    words = html.unescape(re.sub(r"<(style|script).*?</\1>|<[^>]+>", "", report.html, flags=re.DOTALL))
    assert {*words} & whole <= held  # each that the font has is in what was embedded of it


def test_a_link_that_leads_nowhere_fails_the_rendering(documents_with, monkeypatch):
    sound = rendering.environment

    def misled(ev, headings):
        env = sound(ev, headings)
        env.globals["heading"] = lambda *words, **more: (
            headings(*words, **more) + Markup('<a href="#nowhere">there</a>')
        )
        return env

    monkeypatch.setattr(rendering, "environment", misled)
    made = documents_with("fa18-m1")
    assert 'href="companion:fa18-m1.pdf#nowhere"' in made.supplement  # which is made first, and cannot know
    with pytest.raises(UserError, match="links of the report lead nowhere: nowhere"):
        _ = made.whole


def test_no_value_is_printed_that_nobody_formatted(pages, more_pages):
    whole = "\n".join(pages + more_pages)
    for bad in ("nan", "None", "NaN×", "<NA>", "Estimate(", "{{", "inf×"):
        assert not re.search(rf"(?<![A-Za-z_]){re.escape(bad)}(?![A-Za-z_])", whole.replace("filled with NaN", "")), bad


def test_profiles_and_times_are_printed_as_nvprof_and_the_course_s_programs_print_them(more_pages, pages):
    whole = "\n".join(more_pages)
    assert re.search(r"GPU activities:\s+\d+\.\d\d%\s+[\d.]+(ms|us|s)\s+\d+\s+[\d.]+(ms|us|s)", whole)
    assert "[CUDA memcpy HtoD]" in whole
    assert "cuLaunchKernel" in whole

    whole = "\n".join(pages)
    assert re.search(r"\d+\.\d\duser \d+\.\d\dsystem \d:\d\d\.\d\delapsed \d+%CPU", whole)
    assert "Correctness: 0.897 Model: fa18" in whole
    assert "EvalMetric: {'accuracy': 0.897}" in whole


def test_without_gpu_figures_the_report_keeps_its_sections_and_says_why(document_without_gpu):
    assert "Milestone 3: a first GPU kernel" in document_without_gpu
    assert "the configuration asks for no GPU times (gpu: none)" in document_without_gpu
    front, _, supplement = document_without_gpu.partition('<h1 id="supplement-')
    assert "no CPU variant has a valid time on every layer" in front
    assert "conv_forward" in supplement  # builds need no GPU


def test_whatever_variant_has_lost_its_figures_the_report_is_rendered_without_it(evidence_of, rewritten, archive):
    measured = [name for name, one in catalog.open_run(archive).record["variants"].items() if one["device"] == "gpu"]
    cases = (["direct", "cudnn_fp32"], [name for name in measured if name != "shared_input"], measured)
    for lost in cases:

        def change(content, lost=lost):
            record = json.loads(content)
            for name in lost:
                record["variants"][name]["source_sha256"] = "0" * 64
            return json.dumps(record).encode()

        changed = rewritten(Path(shutil.copy(archive, archive.with_name("changed.zip"))), "run.json", change)
        document = rendering.Documents(evidence_of(changed), datetime.now(), "", None).whole
        rows = re.findall(r"<th[^>]*>([^<]*)</th><td[^>]*>gpu</td>(?:<td[^>]*>all</td>)*<td[^>]*>stale</td>", document)
        assert {name for row in rows for name in row.split(", ")} >= {*lost}


@pytest.fixture(scope="module")
def copies(tmp_path_factory, small_archive) -> list[Path]:
    """Two copies of the project, each with the report of milestone 1 that another process rendered there."""
    measuring = catalog.open_run(small_archive).record["measuring"]
    values = yaml.safe_load(settings.FILE.read_text()) | {"study": "fa18-m1", "measuring": measuring}

    def started(copy: Path, seed: str) -> subprocess.Popen:
        for name in ("config.yaml", "pyproject.toml"):
            shutil.copy(PROJECT / name, copy)
        for name in ("kernels", "reports", "scripts", "weights"):
            shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("out", "*.pyc.*"))
        command = [sys.executable, copy / "scripts" / "render_report.py", "--study", "fa18-m1"]
        command += ["--config", json.dumps(values), "--run", small_archive, "--html", "a.html", "--pdf", "a.pdf"]
        (copy / "tmp").mkdir()
        share_sound_marks(copy)
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TMPDIR": str(copy / "tmp")}
        return subprocess.Popen(command, cwd=copy, env=environment)

    copies = [tmp_path_factory.mktemp("copy") for _ in range(2)]
    processes = [started(copy, seed) for copy, seed in zip(copies, "12", strict=True)]
    assert [process.wait(300) for process in processes] == [0, 0]
    return copies


def test_the_same_run_makes_the_same_bytes_in_every_process_and_leaves_no_temporary_file(copies):
    for name in ("a.html", "a.pdf", "a-supplement.pdf"):
        assert (copies[0] / name).read_bytes() == (copies[1] / name).read_bytes()

    assert [list((copy / "tmp").iterdir()) for copy in copies] == [[], []]

    reader = PdfReader(copies[0] / "a.pdf")
    whole = "\n".join(page.extract_text() for page in reader.pages)
    assert "Milestone 1: the framework" in whole
    assert "Milestone 2" not in whole
    assert broken_rules(reader, "ua1") == []


def test_a_name_that_the_templates_do_not_know_fails_the_rendering(small_archive, opened):
    values = yaml.safe_load(settings.FILE.read_text())
    made = plan.build(settings.load(values, list(KNOWN)))
    env = rendering.environment(evidence.load(made, "fa18", opened(small_archive)), rendering.Headings())
    with pytest.raises(Exception, match="'speedpu' is undefined"):
        env.from_string("{{ speedpu }}").render()


def test_long_kernel_names_lose_their_arguments():
    for name, short in [
        ("[CUDA memcpy HtoD]", "[CUDA memcpy HtoD]"),
        ("conv_forward", "conv_forward"),
        ("void cudnn::detail::f<float, int=3>(float const*, g<int>)", "cudnn::detail::f<…>"),
        ("void (anonymous namespace)::pool<float, (int)2>(const T1 *, T1 *, int)", "pool<…>"),
        ("void at::native::k<4, g<h(int)>>(int)", "at::native::k<…>"),
    ]:
        assert profile_tables.short_name(name) == short
