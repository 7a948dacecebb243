"""The report, rendered from an archived run and opened with a PDF library."""

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
from markupsafe import Markup
from pypdf import PdfReader

from warpbook.common import version
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.kernels import variants
from warpbook.report import evidence, pdf, rendering
from warpbook.report.views import profile_tables
from warpbook.runs import catalog
from warpbook.workflow import plan

KNOWN = variants.discover()


@pytest.fixture(scope="module")
def pages(report):
    return [page.extract_text() for page in report.pdf.pages]


@pytest.fixture(scope="module")
def more_pages(report):
    return [page.extract_text() for page in report.supplement.pages]


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
        Kernels that together take more than 90 % of the GPU time
        CUDA API calls that together take more than 90 % of the API time
        Kernels and API calls
        Milestone 2: convolution on the CPU
        Whole-program execution times
        Op times
        Milestone 3: a first GPU kernel
        Profile at each size
        Op times: CPU against GPU
        Milestone 4: optimizations
        Weights in constant memory
        Input tile in shared memory
        How times were taken
        What is not in the figures
"""
SUPPLEMENT = """
        Contents
        Builds
        Correctness
        Profiles in full
        Machines, software and provenance
        Data dictionary
        References
"""


@pytest.mark.parametrize(("part", "headings"), [("pages", REPORT), ("more_pages", SUPPLEMENT)])
def test_report_and_supplement_have_the_parts_of_a_milestone_report_in_order(part, headings, request):
    texts = request.getfixturevalue(part)
    lines = [line for text in texts for line in text.splitlines() if ". . ." not in line]  # without the contents' own
    whole = re.sub(r"\s+", " ", "\n".join(lines))
    place = 0
    for heading in headings.split("\n")[1:-1]:
        if heading.strip() == "Contents":
            assert any("Contents" in text[:400] for text in texts[:3])
            continue
        begin = whole.find(heading.strip(), place)
        assert begin >= 0, heading
        place = begin


def test_page_numbers_of_the_contents_are_those_of_the_headings(report, pages):
    contents = next(page for page in pages if page.strip().splitlines()[2:] and "Contents" in page[:400])
    entries = re.findall(r"(?:^|\n)(?:[0-9A-Z][0-9.]*)?\s*([A-Z][^\n]*?)\s*(?:\.\s*){3,}\s*(\d+)", contents)
    assert len(entries) >= 20
    for title, number in entries:
        page = re.sub(r"\s+", " ", pages[int(number) - 1])
        assert re.sub(r"\s+", " ", title.strip()) in page, (title, number)


def test_cover_names_title_authors_devices_and_commit(pages, newest_archive):
    chosen = settings.read(list(KNOWN))
    cover = re.sub(r"\s+", "", pages[0])  # a run's id may go over two lines
    for words in (chosen.report.title, *chosen.report.authors, "NVIDIA", newest_archive.stem, "commit"):
        assert words.replace(" ", "") in cover


def test_cover_bears_the_date_of_the_run(pages, newest_archive):
    ended = datetime.fromisoformat(catalog.open_run(newest_archive).record["ended"])
    assert f"{ended:%-d %B %Y}" in pages[0]


def test_pdf_is_tagged_titled_and_bookmarked(report):
    reader = report.pdf
    assert reader.root_object["/MarkInfo"]["/Marked"]
    assert "Convolution kernels" in reader.metadata.title
    assert reader.metadata.creator == f"Warpbook {version.VERSION}"
    assert len(reader.outline) >= 10


def broken_rules(pdf: PdfReader, profile: str) -> list[str]:
    """What an independent validator finds wrong in a PDF."""
    judged = page.validate_pdf_bytes(pdf.stream.getvalue(), profile=profile)
    return [f"{failure.rule_id}: {failure.message}" for failure in judged.failures]


@pytest.mark.parametrize("profile", ["ua1", "3a"])
def test_pdf_keeps_every_rule_of_pdf_ua_1_and_pdf_a_3a(report, profile):
    assert broken_rules(report.pdf, profile) == []
    assert broken_rules(report.supplement, profile) == []


def test_the_summary_is_the_second_page(pages):
    assert "Summary" in pages[1][:400]


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


def test_each_object_of_a_pdf_is_made_once(tmp_path, monkeypatch):
    compress, made = zlib.compressobj, []

    class Kept:
        def __init__(self, **options):
            self.kept = compress(**options)

        def compress(self, content):
            made.append(content)
            return self.kept.compress(content)

        def flush(self):
            return self.kept.flush()

    monkeypatch.setattr(zlib, "compressobj", Kept)
    pdf.write_pdf("<html lang=en><title>Once</title><p>Text", tmp_path / "once.pdf")
    assert any(b"/StructElem" in content for content in made)
    assert len(made) == len(set(made))


def test_pdf_holds_its_run_s_record_and_plain_tables(report, newest_archive):
    held = {file.name: file for file in report.pdf.attachment_list}
    with zipfile.ZipFile(newest_archive) as packed:
        for name in ("run.json", "op_times.csv", "correctness.csv", "builds.csv", "counters.csv"):
            file = held[f"{newest_archive.stem}_{name}"]
            assert file.content == packed.read(name)
            assert file.subtype == ("/application/json" if name == "run.json" else "/text/csv")
            assert file.associated_file_relationship == "/Data"
    assert list(held) == sorted(held)


def test_every_figure_has_words_for_those_who_do_not_see_it(report):
    images = Outline(report.html).images
    assert len(images) >= 8 and "<svg role=" in report.html
    assert all(len(words) > 20 for words in images)


def test_every_table_head_says_what_it_heads(report):
    assert set(Outline(report.html).scopes) == {"col", "row"}


def test_every_reference_within_the_report_leads_somewhere(report):
    outline = Outline(report.html)
    assert len(set(outline.ids)) == len(outline.ids)
    within = [link.removeprefix("#") for link in outline.links if link.startswith("#")]
    assert set(within) <= set(outline.ids)


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


def test_profile_tables_are_those_of_nvprof(more_pages):
    whole = "\n".join(more_pages)
    assert re.search(r"GPU activities:\s+\d+\.\d\d%\s+[\d.]+(ms|us|s)\s+\d+\s+[\d.]+(ms|us|s)", whole)
    assert "[CUDA memcpy HtoD]" in whole
    assert "cuLaunchKernel" in whole


def test_course_s_time_line_is_printed_with_the_program_s_output(pages):
    whole = "\n".join(pages)
    assert re.search(r"\d+\.\d\duser \d+\.\d\dsystem \d:\d\d\.\d\delapsed \d+%CPU", whole)
    assert "Correctness: 0.897 Model: fa18" in whole
    assert "EvalMetric: {'accuracy': 0.897}" in whole


def test_html_can_be_sent_alone(report):
    assert 'url("../' not in report.html
    assert "http-equiv" not in report.html
    assert report.html.count("data:font/ttf;base64,") >= 5


def test_without_gpu_figures_the_report_keeps_its_sections_and_says_why(report_without_gpu):
    reader, supplement = report_without_gpu.pdf, report_without_gpu.supplement
    whole = re.sub(r"\s+", " ", "\n".join(page.extract_text() for page in reader.pages))
    assert "Milestone 3: a first GPU kernel" in whole
    assert "Not measured: the configuration asks for no GPU figures (gpu: none)" in whole
    assert "conv_forward" in "".join(page.extract_text() for page in supplement.pages)  # builds need no GPU
    assert "Vectorised rows, all cores" in whole
    assert broken_rules(reader, "ua1") == broken_rules(supplement, "ua1") == []


LOST = {
    "the first": lambda names: ["direct"],
    "one": lambda names: ["constant_weights"],
    "a peer": lambda names: ["cudnn_fp32"],
    "all but one": lambda names: [name for name in names if name != "shared_input"],
    "all": lambda names: names,
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
def test_whatever_variant_has_lost_its_figures_the_report_is_rendered_without_it(
    lost, few_variants, evidence_of, rewritten, archive
):
    recorded = catalog.open_run(archive).record["variants"]
    few = few_variants["studies"]["fa18"]["variants"]
    measured = lost([name for name in few if name in recorded and KNOWN[name].device == "gpu"])
    assert measured and set(measured) <= set(recorded)

    def change(content):
        record = json.loads(content)
        for name in measured:
            record["variants"][name]["source_sha256"] = "0" * 64
        return json.dumps(record).encode()

    path = rewritten(archive, "run.json", change)
    document = rendering.to_html(evidence_of(path, **few_variants), datetime.now(), "", None)
    rows = re.findall(r"<th[^>]*>([^<]*)</th><td[^>]*>gpu</td>(?:<td[^>]*>all</td>)*<td[^>]*>stale</td>", document)
    assert {name for row in rows for name in row.split(", ")} >= {*measured}


@pytest.fixture(scope="module")
def copies(tmp_path_factory, newest_archive) -> list[Path]:
    """Two copies of the project, each with the report of milestone 1 that another process rendered there."""
    measuring = catalog.open_run(newest_archive).record["measuring"]
    values = yaml.safe_load(settings.FILE.read_text()) | {"study": "fa18-m1", "measuring": measuring}

    def started(copy: Path, seed: str) -> subprocess.Popen:
        for name in ("config.yaml", "pyproject.toml"):
            shutil.copy(PROJECT / name, copy)
        for name in ("kernels", "reports", "scripts", "weights"):
            shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("out", "__pycache__"))
        command = [sys.executable, copy / "scripts" / "render_report.py", "--study", "fa18-m1"]
        command += ["--config", json.dumps(values), "--run", newest_archive, "--html", "a.html", "--pdf", "a.pdf"]
        (copy / "tmp").mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TMPDIR": str(copy / "tmp")}
        return subprocess.Popen(command, cwd=copy, env=environment)

    copies = [tmp_path_factory.mktemp("copy") for _ in range(2)]
    processes = [started(copy, seed) for copy, seed in zip(copies, "12", strict=True)]
    assert [process.wait(300) for process in processes] == [0, 0]
    return copies


def test_the_same_run_makes_the_same_bytes_in_every_process_and_copy_of_the_project(copies):
    for name in ("a.html", "a.pdf", "a-supplement.pdf"):
        assert (copies[0] / name).read_bytes() == (copies[1] / name).read_bytes()


def test_rendering_leaves_no_temporary_file(copies):
    assert [list((copy / "tmp").iterdir()) for copy in copies] == [[], []]


def test_a_study_of_one_milestone_has_that_milestone_alone(copies):
    reader = PdfReader(copies[0] / "a.pdf")
    whole = "\n".join(page.extract_text() for page in reader.pages)
    assert "Milestone 1: the framework" in whole
    assert "Milestone 2" not in whole
    assert broken_rules(reader, "ua1") == []


def test_a_name_that_the_templates_do_not_know_fails_the_rendering(newest_archive, opened):
    values = yaml.safe_load(settings.FILE.read_text())
    made = plan.build(settings.load(values, list(KNOWN)))
    env = rendering.environment(evidence.load(made, "fa18", opened(newest_archive)), rendering.Headings())
    with pytest.raises(Exception, match="'speedpu' is undefined"):
        env.from_string("{{ speedpu }}").render()


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("[CUDA memcpy HtoD]", "[CUDA memcpy HtoD]"),
        ("conv_forward", "conv_forward"),
        ("void cudnn::detail::f<float, int=3>(float const*, g<int>)", "cudnn::detail::f<…>"),
        ("void (anonymous namespace)::pool<float, (int)2>(const T1 *, T1 *, int)", "pool<…>"),
        ("void at::native::k<4, g<h(int)>>(int)", "at::native::k<…>"),
    ],
)
def test_long_kernel_names_lose_their_arguments(name, short):
    assert profile_tables.short_name(name) == short


def test_the_chart_of_whole_networks_stands_before_its_table(report):
    chart, table = (report.html.index(f'id="networks-{name}"') for name in ("by-size", "beside"))
    assert chart < table
