"""The documentation: the site builds, its links resolve, it fetches nothing, and its reference misses nothing."""

import importlib.util
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from warpbook.common.files import PROJECT
from warpbook.config.settings import Config
from warpbook.kernels.headers import Header
from warpbook.runs import catalog, tables

README = PROJECT / "README.md"
OWN_PROGRAMS = sorted((PROJECT / "scripts").glob("*.py"))


# mkdocs, which leaves the Markdown of each page that it generates in a folder.
BUILD = """
import sys
from pathlib import Path

from mkdocs.__main__ import cli
from mkdocs_gen_files import editor

kept, open_page = Path(sys.argv.pop(1)), editor.FilesEditor.open

class Kept:
    def __init__(self, name, page):
        self.path, self.page = kept / name, page

    def __enter__(self):
        self.page.__enter__()
        return self

    def write(self, text):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)
        self.page.write(text)

    def __exit__(self, *error):
        return self.page.__exit__(*error)

def open_and_keep(self, name, mode, *more, **options):
    page = open_page(self, name, mode, *more, **options)
    return Kept(name, page) if mode == "w" else page

editor.FilesEditor.open = open_and_keep
cli()
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; beside it, in `generated`, the Markdown that was written for it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    kept = folder.with_name("generated")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(kept), "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def generator() -> ModuleType:
    """docs/generate_reference.py as a module."""
    specification = importlib.util.spec_from_file_location("reference", PROJECT / "docs" / "generate_reference.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def pages(site: Path) -> dict[str, str]:
    """The generated pages by their place in the site."""
    kept = site.with_name("generated")
    return {path.relative_to(kept).as_posix(): path.read_text() for path in kept.rglob("*.md")}


class Requests(HTMLParser):
    """Addresses that a browser fetches when it opens a page."""

    FETCHED: ClassVar = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name == self.FETCHED.get(tag)]


def test_the_site_builds_and_its_pages_fetch_nothing_from_other_hosts(site):
    built = list(site.rglob("*.html"))
    assert len(built) > 25
    for page in built:
        requests = Requests()
        requests.feed(page.read_text())
        foreign = [address for address in requests.found if re.match(r"(https?:)?//", address)]
        assert not foreign, f"{page.relative_to(site)}: {foreign}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text()), style


def test_every_relative_link_at_the_top_leads_to_a_file():
    for page in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        text = (PROJECT / page).read_text()
        links = [*re.findall(r"\]\(([^)#\s]+)[^)]*\)", text), *re.findall(r'src="([^"]+)"', text)]
        missing = [link for link in links if not link.startswith("http") and not (PROJECT / link).exists()]
        assert links and missing == [], page


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 130


def test_every_option_of_a_program_is_in_the_reference(pages):
    commands = pages["reference/commands.md"]
    for path in OWN_PROGRAMS:
        its = re.search(rf"^### {path.stem}$.*?(?=^##|\Z)", commands, re.MULTILINE | re.DOTALL)[0]
        declared = re.findall(r'add_argument\(\s*"([^"]+)"', path.read_text())
        assert declared or "parse_args()" in path.read_text(), path
        assert [option for option in set(declared) - {"--version"} if f"`{option}`" not in its] == [], path


def keys(schema: dict[str, Any]) -> Iterator[str]:
    for model in [schema, *schema["$defs"].values()]:
        yield from model.get("properties", ())


def test_every_key_of_a_model_is_in_the_reference(pages):
    for page, model in (("configuration", Config), ("kernel-header", Header)):
        text = pages[f"reference/{page}.md"]
        assert [key for key in keys(model.model_json_schema(by_alias=True)) if f"| `{key}` |" not in text] == [], page


def test_every_column_and_every_rule_is_in_the_reference(pages):
    text = pages["reference/tables.md"]
    for table in tables.RUN_TABLES:
        its = text[text.index(f"## {table.name}") :].partition("\n## ")[0]
        assert all(f"| `{column}` |" in its for column in table.columns)
    named = re.findall(
        r"^rule (\w+):",
        "\n".join(path.read_text() for path in [PROJECT / "Snakefile", *(PROJECT / "rules").glob("*.smk")]),
        re.MULTILINE,
    )
    assert all(f"| `{name}` |" in pages["reference/targets.md"] for name in named)


def test_the_page_on_performance_has_the_newest_run_of_each_network_on_each_gpu(generator, pages):
    archived = [catalog.open_run(path) for path in catalog.archived_paths(PROJECT / catalog.ARCHIVES)]
    newest = {
        (run.device_name("gpu"), network): run.run_id
        for run in sorted(archived, key=lambda run: run.record["ended"])
        if run.gpu
        for network in set(run.record["networks"]) & set(run.record["config"]["networks"])
    }
    assert len(set(newest.values())) > 1
    for (model, network), run_id in newest.items():
        section = pages["performance.md"].split(f"\n## {model}\n")[1].split("\n## ")[0]
        assert re.search(rf"^- run `{run_id}`.*: .*\b{network}\b", section, re.MULTILINE), (model, network)


# The README's one table.


def quoted_rows() -> dict[str, list[str]]:
    """By layer the README's times of it: three on each GPU."""
    text = README.read_text()
    lines = text[text.index("| layer |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {layer: times for layer, *times in cells}


@pytest.fixture(scope="module")
def quoted_runs() -> list[list[catalog.Run]]:
    """The runs that the README names below its table, for each GPU in the order of the table."""
    (line,) = re.findall(r"^Runs: (H200 .+?), (H100 .+?)\. ", README.read_text(), re.MULTILINE)
    folder = PROJECT / catalog.ARCHIVES
    return [[catalog.open_run(folder / f"{name}.zip") for name in re.findall("`(.+?)`", of_gpu)] for of_gpu in line]


def test_the_readme_s_times_are_those_of_the_runs(generator, quoted_runs):
    quoted = quoted_rows()
    assert quoted == {layer: times_in(generator, quoted_runs, *layer.split()) for layer in quoted} != {}


def times_in(generator, runs: list[list[catalog.Run]], network: str, name: str) -> list[str]:
    """A layer's times in each GPU's run of its network, as the README has them."""
    expected = []
    for of_gpu in runs:
        (run,) = (one for one in of_gpu if network in one.record["networks"])
        frame = run.table(tables.OP_TIMES)
        chosen = (frame.network == network) & (frame.layer == name) & (frame["size"] == generator.IMAGES)
        chosen &= (frame.state == "cold") & (frame.kind == "gpu") & (frame.status == "ok")
        median = frame[chosen].set_index("variant").median_ms
        peers = [variant for variant, header in run.record["variants"].items() if header["peer"]]
        cudnn = [[one for one in peers if one.startswith(f"cudnn_{p}") and one in median] for p in ("fp32", "tf32")]
        expected += [median[~median.index.isin(peers)].min(), *(median[ours].min() for ours in cudnn)]
    return ["not measured" if math.isnan(value) else generator.milliseconds(value) for value in expected]


def test_the_readme_s_range_over_padded_layers_is_the_run_s():
    low, high, name = re.search(r"padding (\S+) to (\S+) times .+? in FP32 .+?`(.+?)`", README.read_text()).groups()
    frame = catalog.open_run(PROJECT / catalog.ARCHIVES / f"{name}.zip").table(tables.OP_TIMES)
    chosen = frame.layer.str.fullmatch(r"3x3 of \d+") & frame["size"].isin([32, 128])
    chosen &= (frame.state == "cold") & (frame.kind == "gpu")
    median = frame[chosen].pivot(index=["layer", "size"], columns="variant", values="median_ms")
    ratio = median[["cudnn_fp32", "cudnn_fp32_nhwc"]].min(axis=1) / median.implicit_gemm
    assert (low, high) == (f"{ratio.min():.1f}", f"{ratio.max():.1f}")


def test_the_readme_s_times_of_a_whole_network_are_the_run_s(generator):
    found = re.search(
        r"takes (\S+ ms) for 10,000 images and (\S+ µs) for ten; PyTorch takes (\S+ ms) and (\S+ µs) at best \(run `(.+?)`",
        README.read_text(),
    )
    *quoted, name = found.groups()
    run = catalog.open_run(PROJECT / catalog.ARCHIVES / f"{name}.zip")
    frame = run.table(tables.OP_TIMES)
    chosen = (frame.problem == "network") & (frame.case == "fa18") & (frame.status == "ok")
    chosen &= (frame.state == "cold") & (frame.kind == "gpu")
    peer = frame.variant.map({variant: header["peer"] for variant, header in run.record["variants"].items()})
    best = frame[chosen].groupby([peer, "size"]).median_ms.min()
    times = [
        (f"{generator.milliseconds(best[peer, 10000])} ms", f"{best[peer, 10] * 1e3:.1f} µs") for peer in (False, True)
    ]
    assert quoted == [*times[0], *times[1]]


def test_the_readme_s_times_of_a_matrix_product_are_the_run_s():
    ours, library, name = re.search(
        r"takes (\S+) ms; the best FP32 library takes (\S+) ms \(run `(.+?)`\)", README.read_text()
    ).groups()
    run = catalog.open_run(PROJECT / catalog.ARCHIVES / f"{name}.zip")
    frame = run.table(tables.OP_TIMES)
    chosen = (frame.layer == "square") & (frame["size"] == 4096) & (frame.state == "cold") & (frame.kind == "gpu")
    median = frame[chosen].set_index("variant").median_ms
    peers = {variant: header["precision"] for variant, header in run.record["variants"].items() if header["peer"]}
    best = median[[variant for variant, precision in peers.items() if precision == "fp32" and variant in median]].min()
    assert (ours, library) == (f"{median['gemm/fp16x3_tma']:.3f}", f"{best:.2f}")
