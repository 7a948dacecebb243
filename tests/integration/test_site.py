"""Pages over all archived runs: history, devices beside each other, every variant; in files and in a browser."""

import copy
import csv
import gzip
import html
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
import yaml
from markupsafe import Markup

import render_site
from warpbook.common import units
from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.report import rendering
from warpbook.report.figures import history_plots
from warpbook.report.run_history import History
from warpbook.report.views import run_archive
from warpbook.runs import catalog, tables

RUNS = PROJECT / "tests" / "data" / "runs"
VALUES = yaml.safe_load(settings.FILE.read_text())
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = '"><script>alert(1)</script><img src=http://x.invalid/y>'


def older_and_newer() -> list[Path]:
    """Two runs of one GPU model."""
    return sorted(catalog.archived_paths(RUNS), key=lambda path: catalog.open_run(path).record["ended"])


@pytest.fixture(scope="module")
def changed(tmp_path_factory, rewritten) -> Callable[..., Path]:
    """Make another run of one: its record and its times changed."""

    def make(name: str, record: Callable[[dict], None], factor: Callable[[dict], float]) -> Path:
        path = tmp_path_factory.mktemp("runs") / f"{name}.zip"
        shutil.copy(older_and_newer()[-1], path)

        def other_record(content: bytes) -> bytes:
            told = json.loads(content)
            told["run_id"] = name
            record(told)
            return json.dumps(told).encode()

        def other_times(content: bytes) -> bytes:
            rows = list(csv.DictReader(io.StringIO(content.decode())))
            for row in rows:
                for column in ("time_ms", "median_ms", "ci_low_ms", "ci_high_ms"):
                    if row.get(column):
                        row[column] = repr(float(row[column]) * factor(row))
            text = io.StringIO()
            writer = csv.DictWriter(text, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            return text.getvalue().encode()

        rewritten(path, "run.json", other_record)
        rewritten(path, "op_times.csv", other_times)
        return rewritten(path, "samples.csv.gz", lambda content: gzip.compress(other_times(gzip.decompress(content))))

    return make


@pytest.fixture(scope="module")
def second_device(changed) -> Path:
    """A run of a GPU that there is not, twice as slow, on which staging the input pays."""

    def record(told: dict):
        told["ended"] = "2026-11-23T07:00:57+00:00"
        told["machine"]["gpu"] |= {"name": f"Other GPU {HOSTILE}", "arch": "sm_80", "copy_gb_per_s": 1400.0}

    return changed("other", record, lambda row: 0.5 if row["variant"] == "shared_input" else 2)


def pages(folder: Path, archived: list[Path], reports: Path | None = None) -> dict[str, str]:
    """The pages over runs, rendered into a folder, by name."""
    render_site.render(archived, reports or folder / "none", VALUES, folder / "site")
    return {path.name: path.read_text() for path in (folder / "site").glob("*.*") if path.suffix in (".html", ".css")}


@pytest.fixture(scope="module")
def site(tmp_path_factory, second_device) -> Path:
    """The folder of pages over runs of two devices, with a report beside that has a name like one of ours."""
    folder = tmp_path_factory.mktemp("site")
    reports = folder / "reports"
    reports.mkdir()
    (reports / "fa18.pdf").write_bytes(b"%PDF-1.7 a report")
    (reports / "stranger.pdf").write_bytes(b"of no study")
    pages(folder, [*older_and_newer(), second_device], reports)
    return folder / "site"


@pytest.fixture(scope="module")
def history(second_device) -> History:
    return History([catalog.open_run(path) for path in [second_device, *older_and_newer()]], 0.02)


def test_runs_stand_in_order_of_time_and_steps_are_between_runs_of_one_device(history):
    assert [run.record["ended"] for run in history.runs] == sorted(run.record["ended"] for run in history.runs)
    other, ours = history.models
    assert ours.name == "NVIDIA H200"
    assert len(history.for_network("fa18", ours)) == 2
    mine, theirs = history.newest("fa18", ours), history.newest("fa18", other)
    assert mine.best == theirs.best == "layer_specialised"
    assert theirs.time.value == pytest.approx(2 * mine.time.value)
    assert theirs.over[1].ratio.value == pytest.approx(mine.over[1].ratio.value)  # both are twice as slow

    other, ours = history.models
    first, second = history.for_network("fa18", ours)
    assert first.step is None
    assert second.step.speedup.ratio.value == pytest.approx(1.016, abs=0.002)
    assert history.newest("fa18", other).step is None

    limits, *networks = run_archive.comparison_tables(history)
    assert [row[1] for row in limits.rows] == ["sm_80", "sm_90"]
    rows = {Markup(row[0]).striptags(): row for row in networks[0].rows}
    assert str(rows["shared_input"][4]) == '<strong><span class="faster">faster</span></strong>'
    assert str(rows["shared_input"][8]) == '<strong><span class="slower">slower</span></strong>'
    assert "<strong>" not in str(rows["fft"][4])
    tables = [networks[0], run_archive._variants(history, history.newest("fa18", ours), 1)]
    for table in tables:  # what its words stand for is said where they stand
        assert "Its bound: the least time of the direct method" in table.caption
        assert [column.label.lower() for column in table.head].count("against what it builds on") in (1, 2)


def test_in_the_history_each_device_has_a_chart_of_its_own(history):
    lines = {model: history.for_network("fa18", model) for model in history.models}
    both = history_plots.op_times([line for its in lines.values() for line in its])
    heights = [
        float(re.findall(r'viewBox="0 0 \S+ (\S+)"', chart)[0]) for chart in map(history_plots.op_times, lines.values())
    ]
    assert float(re.findall(r'viewBox="0 0 \S+ (\S+)"', both)[0]) == pytest.approx(sum(heights))
    assert len(re.findall(">0</text>", both)) == len(lines) == 2  # each axis begins with zero


def test_a_faster_kernel_is_a_step_and_what_cannot_be_compared_says_why(changed):
    def faster(told: dict):
        told |= {"ended": "2026-11-24T00:00:00+00:00", "commit": "f" * 40}
        told["variants"]["layer_specialised"]["source_sha256"] = "1" * 64

    def of_other_protocol(told: dict):
        told |= {"ended": "2026-11-25T00:00:00+00:00", "protocol": told["protocol"] + 1}

    half = changed("half", faster, lambda row: 0.5 if row["variant"] == "layer_specialised" else 1)
    apart = changed("apart", of_other_protocol, lambda row: 1)
    told = History([catalog.open_run(path) for path in (older_and_newer()[-1], half, apart)], 0.02)
    _, second, third = told.for_network("fa18")
    assert second.step.speedup.verdict == "faster"
    assert second.step.speedup.ratio.value == pytest.approx(2, rel=0.01)
    assert third.step.speedup is None
    assert "protocol" in third.step.why
    page = run_archive.overview(told).networks[0]
    assert "not compared: base was timed under protocol" in " ".join(page.history.rows[0])


@pytest.fixture(scope="module")
def elsewhere(ev) -> catalog.Run:
    """The run of the report's figures as another GPU might have made it: twice as slow, but for `shared_input`."""
    record = copy.deepcopy(ev.gpu_run.record)
    record["run_id"] = "elsewhere"
    record["machine"]["gpu"] |= {"name": "NVIDIA Other", "arch": "sm_80"}
    record["variants"]["fft"]["source_sha256"] = "0" * 64
    loaded = {table.name: ev.gpu_run.table(table) for table in (tables.SAMPLES, tables.BUILDS, tables.OP_TIMES)}
    samples = loaded[tables.SAMPLES.name]
    factor = samples.variant.map(lambda name: 0.5 if name == "shared_input" else 2.0)
    loaded[tables.SAMPLES.name] = samples.assign(time_ms=samples.time_ms * factor)
    return catalog.Run(ev.gpu_run.path, record, loaded)


def test_a_report_has_another_gpu_beside_its_own_for_variants_whose_sources_are_today_s(ev, elsewhere):
    view = run_archive.times_on_other_gpus(ev, [elsewhere])
    ours = ev.gpu_run.gpu["name"]
    assert (view.ours, view.others) == (ours, ("NVIDIA Other",))
    assert [row[0] for row in view.limits.rows] == [ours, "NVIDIA Other"]
    (pair,) = view.pairs
    rows = {Markup(row[0]).striptags(): row for row in pair.rows}
    assert "fft" not in rows  # which was another there
    assert "constant_<wbr>weights" in [row[0] for row in pair.rows]  # not in the middle of a word
    assert [str(cell) for cell in rows["shared_input"][4::4]] == [
        '<strong><span class="slower">slower</span></strong>',
        '<strong><span class="faster">faster</span></strong>',
    ]
    # shared_input is slower there, so that what builds on it has another verdict too.
    measured = {one.name for one in ev.ranking.measured_variants("gpu") if one.header.builds_on != "shared_input"}
    alike = measured - {"fft", "shared_input", *(one.name for one in ev.ranking.headliners)}
    assert alike and not alike & {*rows}  # the same verdict on both
    assert " variants with the same verdict on each" in pair.caption
    direct = ev.times.total("direct", ev.largest)
    assert rows["direct"][1] == units.time(direct.value)
    assert rows["direct"][5] == units.time(2 * direct.value)


def test_the_section_on_devices_stands_where_there_are_two_models_and_nowhere_else(
    evidence_of, small_archive, few_variants, elsewhere, monkeypatch
):
    study = few_variants["studies"]["fa18"] | {"sections": ["division_of_labour"], "deliverables": {}}
    ev = evidence_of(small_archive, studies={"fa18": study})

    def body() -> str:
        return rendering.environment(ev, rendering.Headings()).get_template("sections/devices.html.j2").render()

    monkeypatch.setattr(run_archive.catalog, "runs_of_other_models", lambda run, network: [])
    assert 'id="devices"' not in body()
    monkeypatch.setattr(run_archive.catalog, "runs_of_other_models", lambda run, network: [elsewhere])
    assert 'id="devices"' in body()
    assert "NVIDIA Other: op time" in body()


def test_another_model_s_run_is_the_newest_sound_one_of_the_same_shapes_and_protocol(tmp_path, second_device, changed):
    def older(told: dict):
        told["started"] = told["ended"] = "2026-11-01T00:00:00+00:00"
        told["machine"]["gpu"]["name"] = f"Other GPU {HOSTILE}"

    def of_other_shapes(told: dict):
        told["machine"]["gpu"]["name"] = "Of other shapes"
        told["networks"]["fa18"]["shapes_sha256"] = "0" * 64

    def of_other_protocol(told: dict):
        told["machine"]["gpu"]["name"] = "Of another protocol"
        told["protocol"] += 1

    made = [changed(change.__name__, change, lambda row: 1) for change in (older, of_other_shapes, of_other_protocol)]
    for path in [*older_and_newer(), second_device, *made]:
        shutil.copy(path, tmp_path)
    found = catalog.runs_of_other_models(catalog.open_run(older_and_newer()[0]), "fa18", tmp_path)
    assert [run.run_id for run in found] == ["other"]


def test_with_one_run_none_or_a_broken_one_the_page_says_so(tmp_path):
    made = pages(tmp_path, older_and_newer()[-1:])
    assert "Every archived run with a GPU is of one model, NVIDIA H200" in made["index.html"]
    page = made["network-1-fa18.html"]
    assert "<svg" not in page
    assert "One run of each device so far" in page
    assert "the first" in page

    assert "No archived run has a time yet" in pages(tmp_path, [])["index.html"]

    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"no zip")
    made = pages(tmp_path, [broken, *older_and_newer()])
    assert "Passed over" in made["index.html"]
    assert "broken.zip" in made["index.html"]


def test_reports_of_studies_are_copied_and_led_to(site):
    assert (site / "fa18.pdf").read_bytes() == b"%PDF-1.7 a report"
    assert 'href="fa18.pdf"' in (site / "index.html").read_text()
    assert not (site / "stranger.pdf").exists()


class Addresses(HTMLParser):
    """What a page leads to or loads, and the names of its elements."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):
        self.tags.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("href", "src", "action", "data", "srcset")]


def test_no_page_loads_anything_from_elsewhere_or_takes_a_stranger_s_words_for_its_own(site):
    for path in site.glob("*.html"):
        page = Addresses(path.read_text())
        assert page.tags.count("script") == 1, path
        for address in page.found:
            assert re.fullmatch(r"[\w./-]*(#[\w-]+)?", address), (path, address)
            assert not address.partition("#")[0] or (site / address.partition("#")[0]).exists(), (path, address)
        assert "<script>alert" not in path.read_text()
    assert HOSTILE in html.unescape((site / "index.html").read_text())  # shown, as words
    sheet = (site / "site.css").read_text()
    for address in re.findall(r'url\("?([^")]+)', sheet):
        assert (site / address).exists(), address
    assert "@import" not in sheet


def test_a_page_s_name_stays_in_its_folder_whatever_a_network_is_called():
    for network in ["../../up", HOSTILE, "a/b", "."]:
        assert re.fullmatch(r"network-1-[a-z0-9-]*\.html", run_archive.network_page_name(network, [network]))


def test_traces_of_profiled_programs_are_written_and_led_to_but_for_names_that_would_leave_the_folder(tmp_path):
    run = catalog.open_run(older_and_newer()[-1])
    row = {name: "" if column.dtype == "string" else 0 for name, column in tables.ACTIVITIES.columns.items()}
    row |= {"network": "fa18", "tool": "cupti", "kind": "kernel", "name": "conv", "size": 10, "end_ns": 5}
    rows = [row | {"variant": name} for name in ("direct", "../../../up", "a/b")]
    run.loaded[tables.ACTIVITIES.name] = pd.DataFrame(rows)
    links = render_site.write_traces(History([run], 0.02), tmp_path / "site")
    assert [link.file for link in links["fa18"]] == [f"traces/{run.run_id}/fa18-direct-10-cupti.json.gz"]
    assert [path.relative_to(tmp_path / "site").as_posix() for path in tmp_path.rglob("*.gz")] == [
        links["fa18"][0].file
    ]


# Chromium makes no window narrower than 500 pixels: a page is shown in a frame, and tells what it measured.
FRAME = """<iframe src="{page}" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>addEventListener("message", (event) => {{ document.body.dataset.measured = event.data; }});</script>"""
MEASURE = """<script type="module">
const outside = [...document.querySelectorAll("body *")].filter((one) => !one.parentElement.closest("table")
  && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.tagName + "." + one.className);
const captions = [...document.querySelectorAll("caption")].map((one) => one.getBoundingClientRect().right);
const table = document.querySelector("#variants-1, #on-1");
const column = () => [...table.tBodies[0].rows].map((row) => row.cells[1].textContent);
table.tHead.rows[0].cells[1].click();
const ascending = column();
table.tHead.rows[0].cells[1].click();
await document.fonts.ready;
const scale = (svg) => svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
const text = [...document.querySelectorAll("p, td, svg text")].map((one) => parseFloat(getComputedStyle(one).fontSize)
  * scale(one.closest("svg")));
parent.postMessage(JSON.stringify({ width: innerWidth, outside, captions, ascending, descending: column(),
  least: Math.min(...text), font: document.fonts.check('15px "IBM Plex Sans"') }), "*");
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_on_a_phone_and_on_a_desk_nothing_is_cut_words_can_be_read_and_tables_sort(site, tmp_path):
    for width in [390, 1280]:
        for page in ["index.html", "network-1-fa18.html"]:
            folder = tmp_path / "site"
            shutil.copytree(site, folder, dirs_exist_ok=True)
            (folder / page).write_text((folder / page).read_text().replace("</body>", f"{MEASURE}</body>"))
            (folder / "frame.html").write_text(FRAME.format(page=page, width=width))
            command = [
                CHROMIUM,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--virtual-time-budget=20000",
                "--dump-dom",
            ]
            command += [
                "--window-size=1400,1000",
                f"--user-data-dir={tmp_path / 'profile'}",
                (folder / "frame.html").as_uri(),
            ]
            found = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
            told = re.search(r'data-measured="([^"]*)"', found)
            assert told, found[:2000]
            measured = json.loads(html.unescape(told[1]))
            assert measured["width"] == width
            assert measured["outside"] == []
            assert max(measured["captions"]) <= width
            assert measured["least"] >= 9
            assert measured["font"]
            assert measured["ascending"] == measured["descending"][::-1] != measured["descending"]
