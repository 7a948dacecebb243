"""The report in a browser, Chromium without a window: its cover, its widths, its tables and its timelines."""

import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from warpbook.common.files import PROJECT
from warpbook.report import rendering

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")

PANZOOM_4_6_2 = "3ce354ef7b493efb62a4d4acaaf86fa2d6027eb629857a4e144041de1a112c1e"

# Chromium makes no window narrower than 500 pixels: the report is shown in a frame, and tells what it measured.
FRAME = """<iframe src="report.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>addEventListener("message", (event) => {{ document.body.dataset.measured = event.data; }});</script>"""
MEASURE = """<script type="module">
const box = (name) => document.querySelector(name).getBoundingClientRect();
const outside = [...document.querySelectorAll("body *")].filter((one) =>
  !one.parentElement.closest("table, pre, .cover, figure")
  && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.tagName + "." + one.className);
const table = document.querySelector("#ladder-gpu, #a-times");
const column = () => [...table.tBodies[0].rows].map((row) => row.cells[2].textContent);
table.tHead.rows[0].cells[2].click();
const ascending = column();
table.tHead.rows[0].cells[2].click();
const sorted = column();
const stage = document.querySelector("#m3-timeline-figure .stage"), picture = stage.querySelector("svg");
const place = stage.getBoundingClientRect();
const [x, y] = [place.left + place.width / 2, place.top + place.height / 2];
const zooms = {};
globalThis.requestAnimationFrame = (draw) => setTimeout(draw, 1);  // where no window is, frames are seldom drawn
async function after(name, act) {
  act();
  await new Promise((done) => setTimeout(done, 300));
  const shown = picture.getBoundingClientRect();
  zooms[name] = { scale: shown.width / place.width, left: place.left - shown.left, right: shown.right - place.right,
    told: stage.nextElementSibling.querySelector("output").textContent };
}
const point = (kind, pointerId, clientX, clientY) => (kind === "pointerdown" ? picture : document).dispatchEvent(
  new PointerEvent(kind, { pointerId, clientX, clientY, bubbles: true, cancelable: true }));
const wheel = (deltaY, ctrlKey) => picture.dispatchEvent(
  new WheelEvent("wheel", { deltaY, ctrlKey, clientX: x, clientY: y, bubbles: true, cancelable: true }));
const press = (key) => stage.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const buttons = [...stage.nextElementSibling.querySelectorAll("button")];
await after("a wheel that passes", () => { zooms.scrolls = wheel(-100, false); });
await after("a wheel with Ctrl", () => wheel(-100, true));
await after("a drag", () => {
  point("pointerdown", 1, x, y); point("pointermove", 1, x + 20, y); point("pointerup", 1, x + 20, y);
});
await after("all", () => buttons[2].click());
await after("two fingers", () => {
  point("pointerdown", 1, x - 20, y); point("pointerdown", 2, x + 20, y); point("pointermove", 2, x + 80, y);
  point("pointerup", 1, x, y); point("pointerup", 2, x, y);
});
await after("zero", () => press("0"));
await after("+", () => press("+"));
await after("an arrow", () => press("ArrowLeft"));
await after("a button", () => buttons[0].click());
await after("zoomed out", () => { for (let n = 0; n < 9; n++) press("-"); });
zooms.names = buttons.map((button) => button.ariaLabel);
parent.postMessage(JSON.stringify({ width: innerWidth, outside, ascending, descending: sorted, zooms,
  rows: [...document.querySelectorAll(".cover dd")].map((row) => row.getBoundingClientRect().bottom),
  chart: box("#summary-times svg").width, contents: box(".contents"), text: box(".executive"),
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


SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds(cells: list[str]) -> list[float]:
    """The times that cells begin with."""
    found = [re.match(r"([\d.]+)([nµm]?s)\b", cell.replace("\u202f", "")) for cell in cells]
    return [float(time[1]) * SECONDS[time[2]] for time in found if time]


def test_on_a_phone_and_on_a_desk_nothing_is_cut_tables_sort_and_timelines_zoom(measured):
    assert len(measured["rows"]) == 6
    assert max(measured["rows"]) <= measured["summary"]
    assert measured["subtitle"] <= measured["words"]
    assert measured["outside"] == []
    assert measured["chart"] > 500
    beside = measured["contents"]["left"] == 0 and measured["contents"]["right"] <= measured["text"]["left"]
    assert beside == (measured["width"] > 1200)
    ascending, descending = seconds(measured["ascending"]), seconds(measured["descending"])
    assert ascending == sorted(ascending) != descending
    assert descending == sorted(descending, reverse=True)

    zooms = measured["zooms"]
    assert zooms.pop("names") == ["Zoom in", "Zoom out", "Show all"]
    assert zooms.pop("scrolls")  # nobody took the wheel from the page
    for act in zooms.values():
        assert float(act["told"].removesuffix("\N{MULTIPLICATION SIGN}")) == pytest.approx(act["scale"], abs=0.06)
        assert min(act["left"], act["right"]) > -1
    whole = [name for name, act in zooms.items() if act["scale"] == pytest.approx(1, abs=1e-5)]
    assert whole == ["a wheel that passes", "all", "zero", "zoomed out"]
    assert zooms["a drag"]["scale"] == zooms["a wheel with Ctrl"]["scale"]
    assert zooms["a drag"]["left"] == pytest.approx(zooms["a wheel with Ctrl"]["left"] - 20, abs=1)
    assert zooms["an arrow"]["left"] < zooms["+"]["left"] - 20
    assert zooms["a button"]["scale"] == pytest.approx(zooms["+"]["scale"] * 1.5)


def test_the_page_holds_what_zooms_its_timelines_with_its_licence_and_without_a_timeline_neither(report):
    upstream = (PROJECT / "reports" / "panzoom" / "panzoom.min.js").read_bytes()
    assert hashlib.sha256(upstream).hexdigest() == PANZOOM_4_6_2
    assert upstream.decode() in report.html
    assert "Permission is hereby granted, free of charge" in report.html
    assert 'class="credits"' in report.html
    assert "Panzoom" not in rendering.embed_assets("<html><body><p>Text</p>\n</body>\n</html>")
    unscripted = re.sub(r"<script.*?</script>", "", report.html, flags=re.DOTALL)
    assert '<figure id="m3-timeline-figure" class="timeline"><svg ' in unscripted and "<button" not in unscripted
