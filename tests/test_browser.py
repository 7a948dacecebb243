"""The report in a browser, Chromium without a window: its cover, its widths and its tables."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")

# Chromium makes no window narrower than 500 pixels: the report is shown in a frame, and tells what it measured.
FRAME = """<iframe src="report.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>addEventListener("message", (event) => {{ document.body.dataset.measured = event.data; }});</script>"""
MEASURE = """<script type="module">
const box = (name) => document.querySelector(name).getBoundingClientRect();
const outside = [...document.querySelectorAll("body *")].filter((one) =>
  !one.parentElement.closest("table, pre, .cover")
  && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.tagName + "." + one.className);
const table = document.querySelector("#m4-glance-table, #a-times");
const column = () => [...table.tBodies[0].rows].map((row) => row.cells[2].textContent);
table.tHead.rows[0].cells[2].click();
const ascending = column();
table.tHead.rows[0].cells[2].click();
parent.postMessage(JSON.stringify({ width: innerWidth, outside, ascending, descending: column(),
  rows: [...document.querySelectorAll(".cover dd")].map((row) => row.getBoundingClientRect().bottom),
  words: box(".cover .words").bottom, subtitle: box(".cover .subtitle").bottom, summary: box("#summary").top,
}), "*");
</script>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, report) -> Path:
    """A folder with the report, which measures itself."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "report.html").write_text(report.html.replace("</body>", f"{MEASURE}</body>"))
    return folder


@pytest.fixture(params=[390, 1280])
def measured(folder, request) -> dict:
    """What the report measured of itself at a width."""
    (folder / "frame.html").write_text(FRAME.format(width=request.param))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    command += ["--window-size=1400,1000", f"--user-data-dir={folder / 'profile'}", (folder / "frame.html").as_uri()]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    told = re.search(r'data-measured="([^"]*)"', found)
    assert told, found[:2000]
    values = json.loads(html.unescape(told[1]))
    assert values["width"] == request.param
    return values


def numbers(cells: list[str]) -> list[float]:
    return [float(found[0]) for cell in cells if (found := re.match(r"[\d.]+", cell.replace("\u202f", "")))]


def test_on_a_phone_and_on_a_desk_the_cover_is_whole_nothing_is_cut_and_tables_sort(measured):
    assert len(measured["rows"]) == 6
    assert max(measured["rows"]) <= measured["summary"]
    assert measured["subtitle"] <= measured["words"]
    assert measured["outside"] == []
    ascending, descending = numbers(measured["ascending"]), numbers(measured["descending"])
    assert ascending == sorted(ascending) != descending
    assert descending == sorted(descending, reverse=True)
