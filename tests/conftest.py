"""What tests share: the GPU mark, variants written for a test, and archived runs, whole or changed."""

import gc
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from textwrap import dedent

import hypothesis
import pytest

# As Snakemake has it for a job of one core: the threads of products too small to share only wait for each other, and
# take half of the processor.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from warpbook.common.files import PROJECT
from warpbook.harness import building
from warpbook.kernels import ece408, variants, whole_networks
from warpbook.kernels.variants import Variant
from warpbook.machine import cuda_devices, host, locks
from warpbook.problems.networks import ConvLayer

pytest_plugins = ["databases", "small_run", "rendered", "workspaces"]

# The suite draws the same examples each time, however busy the machine is; `make chaos` draws others.
hypothesis.settings.register_profile("suite", derandomize="CHAOS_EXAMPLES" not in os.environ, deadline=None)
hypothesis.settings.load_profile("suite")

# Runs and reports are read once for many tests and stay: looking for garbage among them would take a fifth of the time.
gc.set_threshold(100_000)

HEADER = """\
title: A variant made for a test
idea: None.
expect: Nothing.
"""


BEGIN, END = "<!-- tried -->\n", "<!-- end of tried -->\n"
TRIED = pytest.StashKey[dict[str, str]]()

READS_ITS_HEADER = """\
import numpy as np

def prepare(kernels, layer, images, launch):
    assert kernels.has("conv_forward") and not kernels.has("conv_backward")
    side = kernels.constants["TILE"]
    grid = (-(-layer.W_out // side) * -(-layer.H_out // side), layer.M, images)
    extents = [np.int32(extent) for extent in (images, layer.C, layer.H, layer.W, layer.M, layer.K)]
    return lambda x, w, y: kernels.function("conv_forward")(grid, (side, side), (x, w, y, *extents))
"""


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
    os.environ[locks.LOCKS_VARIABLE] = str(folder)


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


# Files that take longest, in that order. Three workers take a file each: one begun last would be waited for.
LONGEST = (
    "test_report",
    "test_slurm",
    "test_emulator",
    "test_workflow",
    "test_submissions",
    "test_attacks",
    "test_tensor_cores_emulated",
    "test_package",
    "test_building",
    "test_kills",
    "test_course_verdicts",
    "test_streaming",
    "test_faults",
    "test_general_kernels",
    "test_sandbox",
    "test_strangers_kernels",
    "test_machine_faults",
    "test_course_files",
    "test_counters",
    "test_sharing",
    "test_runs",
    "test_section_views",
    "test_networks_emulated",
    "test_older_runs",
    "test_one_sentence",
)
# Files that look at the same report or at the same builds: one worker takes them together, and makes those once.
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
def small_layers(monkeypatch) -> None:
    """Small convolutions in place of the course's, for files that assume nothing of them: the judge does the same."""
    small = ConvLayer("conv1", 1, 30, 30, 4, 7), ConvLayer("conv2", 4, 20, 20, 16, 7)
    monkeypatch.setattr(ece408, "LAYERS", small)


@pytest.fixture
def cpu_variant(tmp_path):
    """Make a CPU variant of the body of its call, which gets x, w, y and `convolve`, a right convolution."""

    def make(body: str, before: str = "", header: str = "", arrays: str = "x, w, y") -> Variant:
        source = f'"""\n{HEADER}device: cpu\n{header}"""\n'
        source += "import numpy as np\nfrom warpbook.harness.reference import convolve\n\n"
        source += "def prepare(layer, images):\n" + _indented(before or "pass", 1)
        source += f"    def call({arrays}):\n" + _indented(body, 2) + "    return call\n"
        (tmp_path / "mine.py").write_text(source)
        return variants.read("mine", tmp_path)

    return make


@pytest.fixture
def general_cpu_variant(cpu_variant):
    """A CPU variant of every convolution: with bias, strides, padding, dilation and groups."""
    body = """\
        arrays = dict(zip(layer.inputs, (x, w, *rest), strict=False))
        rest[-1][...] = problem.compute(layer, arrays, np)["y"]
    """
    told = "every_case: true\n"
    return cpu_variant(body, before="from warpbook.problems import problem", header=told, arrays="x, w, *rest")


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
def built() -> Callable[[str, str], building.Build]:
    """Build one of the project's variants for an architecture, once for all tests."""
    return cache(lambda name, arch: building.build(variants.read(name), arch))


@pytest.fixture(scope="session")
def plain_direct() -> str:
    """The source of direct, for launchers that know no bias, strides, padding or groups."""
    plain, count = re.subn(r"general:\n(  .*\n)+", "", (variants.FOLDER / "direct.cu").read_text())
    assert count == 1
    return plain


@pytest.fixture
def header_reader(tmp_path, plain_direct) -> Path:
    """The folder of `mine`: direct with tiles of 8, and a launcher that reads their side from its header."""
    (tmp_path / "mine.cu").write_text(plain_direct.replace("TILE: 16", "TILE: 8"))
    (tmp_path / "mine.py").write_text(READS_ITS_HEADER)
    return tmp_path


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


def _indented(code: str, levels: int) -> str:
    return "".join("    " * levels + line + "\n" for line in dedent(code).strip("\n").splitlines())


@pytest.fixture
def copied_networks(tmp_path, monkeypatch):
    """The folder of a copy of the implementations, which are read from there."""
    kernels = tmp_path / "kernels"
    shutil.copytree(PROJECT / "kernels", kernels, ignore=shutil.ignore_patterns("__pycache__"))
    folder, convolutions = kernels / "network", kernels / "conv"
    monkeypatch.setattr(whole_networks, "FOLDERS", (folder,))
    for name in ("INCLUDED_FROM", "IMPORTED_FROM"):
        monkeypatch.setattr(whole_networks, name, (folder, convolutions, *getattr(whole_networks, name)[2:]))
    return folder
