"""What tests share: the GPU mark, variants written for a test, and archived runs, whole or changed."""

import gc
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml

# As Snakemake has it for a job of one core: the threads of products too small to share only wait for each other, and
# take half of the processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.kernels import variants, whole_networks
from warpbook.kernels.variants import Variant
from warpbook.machine import cuda_devices, host, locks
from warpbook.report.evidence import Evidence
from warpbook.runs import catalog
from warpbook.runs.catalog import Run
from warpbook.workflow import plan
from warpbook.workflow.plan import Plan

pytest_plugins = ["databases", "rendered", "workspaces"]

# Runs and reports are read once for many tests and stay: looking for garbage among them would take a fifth of the time.
gc.set_threshold(100_000)

HEADER = """\
title: A variant made for a test
idea: None.
expect: Nothing.
"""


BEGIN, END = "<!-- tried -->\n", "<!-- end of tried -->\n"
TRIED = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser):
    parser.addoption("--require-gpu", action="store_true", help="fail GPU tests where there is no GPU")
    parser.addoption(
        "--update-doc", type=Path, help="page whose table of what was tried is written anew where all passed"
    )


@pytest.fixture(scope="session", autouse=True)
def measuring_lock(tmp_path_factory):
    """A measuring lock of this worker's own: what tests time on a CPU is no figure, so workers take no turns.
    On a GPU they do: its figures are refused where another process computes there."""
    if isinstance(host.gpu(), cuda_devices.Device):
        return
    folder = tmp_path_factory.mktemp("locks")
    folder.chmod(0o1777)
    os.environ[locks.GIVEN] = str(folder)


@pytest.fixture(scope="session")
def tried(pytestconfig) -> Callable[[str, int, str], None]:
    """Say what a test tried, how often, and what came of it: a row of the table in the documentation."""
    rows = pytestconfig.stash.setdefault(TRIED, {})

    def say(what: str, times: int, outcome: str) -> None:
        rows[what] = f"| {what} | {times:,} | {outcome} |\n"

    return say


def pytest_sessionfinish(session, exitstatus):
    page = session.config.getoption("--update-doc")
    if page and not exitstatus:
        before, rest = page.read_text().split(BEGIN)
        table, after = rest.split(END)
        head, kept = table.splitlines(keepends=True)[:2], table.splitlines(keepends=True)[2:]
        rows = {line.split(" | ")[0].removeprefix("| "): line for line in kept} | session.config.stash.get(TRIED, {})
        page.write_text(before + BEGIN + "".join([*head, *rows.values()]) + END + after)


# Files that take longest, in that order. Two workers take a file each: one begun last would be waited for.
LONGEST = (
    "test_slurm",
    "test_workflow",
    "test_report",
    "test_attacks",
    "test_emulator",
    "test_tensor_cores_emulated",
    "test_submissions",
    "test_faults",
    "test_kills",
    "test_sandbox",
    "test_building",
    "test_streaming",
    "test_older_runs",
    "test_section_views",
    "test_networks_emulated",
    "test_course_files",
    "test_strangers_texts",
    "test_runs",
)
# Files that look at the same report: one worker takes them together, and renders it once.
TOGETHER = dict.fromkeys(("test_browser", "test_deliverables", "test_layout"), "test_report")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            stem = Path(super()._split_scope(nodeid)).stem
            return TOGETHER.get(stem, stem)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config, items):
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(TOGETHER.get(item.path.stem, item.path.stem), len(LONGEST)))
    device = host.gpu()  # not asked here: tests fork processes that use CUDA
    if isinstance(device, cuda_devices.Device) or config.getoption("--require-gpu"):
        return
    skip = pytest.mark.skip(reason=f"no CUDA device: {device}")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder beside the project with material that is not the project's: reports of the course, a trained model."""
    return PROJECT.parent / "shared"


@pytest.fixture(scope="session")
def driver(tmp_path_factory) -> Path:
    """The folder of a driver, and its NVML, that describe devices and fill their memory."""
    folder = tmp_path_factory.mktemp("driver")
    source = PROJECT / "tests" / "simulated_cuda.c"
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / library, source], check=True)
    return folder


@pytest.fixture
def lock(tmp_path) -> Path:
    """The machine's lock file, in a folder that stands for everybody's."""
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder / "warpbook-measuring.lock"


@pytest.fixture
def reference_model(shared_folder) -> Path:
    """The trained model that nobody here made, beside the project where there is one."""
    path = shared_folder / "reference" / "ece408-sp19" / "ece408-0002.params"
    if not path.exists():
        pytest.skip(f"{path} is not here: it stands beside the project, not in it")
    return path


@pytest.fixture
def course_weights(shared_folder) -> Path:
    """The weights that the course hands out since 2020, beside the project where they are."""
    path = shared_folder / "reference" / "ece408-today" / "weights-86.bin"
    if not path.exists():
        pytest.skip(f"{path} is not here: it stands beside the project, not in it")
    return path


@pytest.fixture
def cpu_variant(tmp_path):
    """Make a CPU variant of the body of its call, which gets x, w, y and `convolve`, a right convolution."""

    def make(body: str, before: str = "", header: str = "") -> Variant:
        source = f'"""\n{HEADER}device: cpu\n{header}"""\n'
        source += "import numpy as np\nfrom warpbook.harness.reference import convolve\n\n"
        source += "def prepare(layer, images):\n" + _indented(before or "pass", 1)
        source += "    def call(x, w, y):\n" + _indented(body, 2) + "    return call\n"
        (tmp_path / "mine.py").write_text(source)
        return variants.read("mine", tmp_path)

    return make


@pytest.fixture
def cuda_variant(tmp_path):
    """Make a GPU variant of CUDA C++ code, one thread an output unless the header says otherwise."""

    def make(code: str, header: str = "", name: str = "mine", folder: Path = tmp_path) -> Variant:
        launch = "launch: {threads: [16, 16, 1], outputs_per_block: {W: 16, H: 16}}\n"
        text = f"/*\n{HEADER}{header}{'' if 'launch:' in header else launch}*/\n{dedent(code)}"
        (folder / f"{name}.cu").write_text(text)
        return variants.read(name, folder)

    return make


@pytest.fixture(scope="session")
def newest_archive() -> Path:
    """The newest archived run with a GPU that holds every network measured so far: committed, not to be changed."""
    archived = catalog.gpu_runs(PROJECT / catalog.ARCHIVES)
    every = {network for run in archived for network in run.record["networks"]}
    return [run for run in archived if every == set(run.record["networks"])][-1].path


@pytest.fixture
def archive(newest_archive, tmp_path) -> Path:
    """A copy of the newest archived run."""
    return Path(shutil.copy(newest_archive, tmp_path / newest_archive.name))


@pytest.fixture(scope="session")
def rewritten() -> Callable[..., Path]:
    """Change the bytes of one member of a zip; None leaves the member out."""

    def rewrite(path: Path, name: str, change: Callable[[bytes], bytes | None]) -> Path:
        with zipfile.ZipFile(path) as packed:
            members = {entry: packed.read(entry) for entry in packed.namelist()}
        members[name] = change(members[name])
        with zipfile.ZipFile(path, "w") as packed:
            for entry, content in members.items():
                if content is not None:
                    packed.writestr(entry, content)
        return path

    return rewrite


@pytest.fixture(scope="session")
def planned() -> Callable[..., Plan]:
    """Make the plan of the project's configuration with other values of some keys."""

    def make(**changes) -> Plan:
        content = yaml.safe_load(settings.FILE.read_text()) | changes
        return plan.build(settings.load(content, list(variants.discover())))

    return make


@pytest.fixture(scope="session")
def sharing_tables(newest_archive) -> Callable[[], AbstractContextManager[None]]:
    """Within the context, tables of runs that are the newest archive's are read once for all tests, which are not to
    change them."""

    def checksums(path: Path) -> dict[str, int]:
        if not path.is_file():
            return {}
        with zipfile.ZipFile(path) as packed:
            return {entry.filename: entry.CRC for entry in packed.infolist() if ".csv" in entry.filename}

    newest, its = catalog.open_run(newest_archive), checksums(newest_archive)

    def sharing(run: Run) -> Run:
        if run.loaded or run.record["format"] != newest.record["format"]:
            return run
        held = checksums(run.path)
        if held == its:
            return replace(run, loaded=newest.loaded)
        same = {name: read for name, read in newest.loaded.items() if held.get(name) == its.get(name)}
        return replace(run, loaded=same)

    @contextmanager
    def context() -> Iterator[None]:
        open_run = catalog.open_run
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(catalog, "open_run", lambda path: sharing(open_run(path)))
            yield

    return context


@pytest.fixture(scope="session")
def opened(sharing_tables) -> Callable[[Path], Run]:
    """Open a run, its tables shared where they are the newest archive's."""

    def open_run(path: Path) -> Run:
        with sharing_tables():
            return catalog.open_run(path)

    return open_run


@pytest.fixture(scope="session")
def evidence_of(planned, opened) -> Callable[..., Evidence]:
    """Make the evidence whose CPU and GPU figures are those of one run, under the policy that it was measured with."""

    def make(run_path: Path, **changes) -> Evidence:
        run = opened(run_path)
        made = planned(**{"gpu": "auto", "measuring": run.record["measuring"], **changes})
        made = plan.Plan(made.config, made.variants, "no device, for the test")
        evidence = Evidence(made, "fa18", run)
        evidence.gpu_run = run
        return evidence

    return make


@pytest.fixture(scope="session")
def few_variants() -> dict[str, Any]:
    """A change of the configuration after which fa18 compares few variants, where their number does not matter."""
    studies = yaml.safe_load(settings.FILE.read_text())["studies"]
    chain = ["direct", "constant_weights", "shared_input", "constant_weights_shared_input"]
    few = [*chain, "unroll_gemm", "unroll_gemm_streams", "cudnn_fp32", "loop_nest", "simd"]
    return {"studies": {**studies, "fa18": {**studies["fa18"], "variants": few}}}


@pytest.fixture(scope="session")
def ev(evidence_of, newest_archive) -> Evidence:
    """The evidence of the newest archived run, for tests that change nothing of it."""
    return evidence_of(newest_archive)


@pytest.fixture(scope="session")
def chapter(ev):
    """Its chapter on optimizations."""
    from warpbook.report.views import milestone_4

    return milestone_4.milestone_4_view(ev)


@pytest.fixture(scope="session")
def sections(ev, chapter):
    """The sections of all its optimizations: the chapter's, and those in the supplement."""
    from warpbook.report.views import milestone_4

    return [*chapter.optimizations, *milestone_4.remaining_optimizations(ev)]


def _indented(code: str, levels: int) -> str:
    return "".join("    " * levels + line + "\n" for line in dedent(code).strip("\n").splitlines())


@pytest.fixture
def copied_networks(tmp_path, monkeypatch):
    """The folder of a copy of the implementations, which are read from there."""
    kernels = tmp_path / "kernels"
    shutil.copytree(variants.FOLDER, kernels, ignore=shutil.ignore_patterns("__pycache__"))
    folder = kernels / "networks"
    monkeypatch.setattr(whole_networks, "FOLDER", folder)
    monkeypatch.setattr(whole_networks, "INCLUDED_FROM", (folder, kernels, whole_networks.INCLUDED_FROM[-1]))
    monkeypatch.setattr(whole_networks, "IMPORTED_FROM", (folder, kernels))
    return folder
