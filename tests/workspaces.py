"""Fixtures: copies of the project in which a tiny study is made, by real Snakemake."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml
from pypdf import PdfReader

from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.harness.emulator import emulation
from warpbook.machine import locks
from warpbook.runs import catalog

FOLDERS = ("kernels", "profiles", "reports", "requirements", "rules", "scripts", "weights")
IGNORED = shutil.ignore_patterns("__pycache__", "out", ".*")
UNARCHIVED = shutil.ignore_patterns("__pycache__", "out", "runs", ".*")
UNFINISHED = shutil.ignore_patterns("*.pyc.*", ".*")
"""Of the programs: compiled modules are copied too, since they hold wherever their sources do."""
VARIANTS = ["direct", "im2col_blas", "loop_nest"]  # two on the CPU: how far two runs differ takes two to tell
KERNELS = {*VARIANTS, "shared_input"}  # every kernel of the folder is built, and one more shows it

SERIES = {"warmup": 0, "min_samples": 2, "max_samples": 5, "max_time_s": 0.05, "min_samples_timeout_s": 1}
TINY = {
    "study": "tiny",
    "gpu": "none",
    "architectures": ["sm_90"],
    "report": {"title": "A tiny study", "authors": ["Somebody"]},
    "networks": yaml.safe_load(settings.FILE.read_text())["networks"],
    "measuring": {
        "target_rel_ci": 0.5,
        "tolerated_load": 1000.0,  # other tests run beside
        "equivalence_margin": 0.01,
        "gpu": SERIES,
        "cpu": SERIES,
        "programs": {"runs": 1, "min_samples_timeout_s": 5},
        "timeout_s": 20,
    },
    "studies": {
        "tiny": {
            "title": "One size, three variants",
            "network": "fa18",
            "sizes": [3],
            "variants": VARIANTS,
            "sections": ["milestone_1", "milestone_2", "milestone_3", "milestone_4"],
        }
    },
}

# Nothing on the way to the project may trip over its path, the interpreter's included.
ODD_PATH = "l'été & größe/畳み込み project"


class Workspace:
    """A copy of the project with a configuration of its own."""

    program = "-m", "snakemake"  # what Python is called with for Snakemake

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def python(self) -> Path:
        return self.folder / ".venv" / "bin" / "python"

    def configure(self, **changes):
        (self.folder / "config.yaml").write_text(yaml.safe_dump({**TINY, **changes}, sort_keys=False))

    def compare_too(self, *names: str, **measuring):
        """Have the study compare variants besides its own, perhaps under another measuring policy."""
        study = {**TINY["studies"]["tiny"], "variants": [*VARIANTS, *names]}
        self.configure(studies={"tiny": study}, measuring={**TINY["measuring"], **measuring})

    def copy(self, folder: Path) -> "Workspace":
        shutil.copytree(self.folder, folder, symlinks=True)
        return Workspace(folder)

    @property
    def environment(self) -> dict[str, str]:
        """With a measuring lock of the workspace's own: its figures are looked at by nobody, and need not wait."""
        return {**os.environ, locks.LOCKS_VARIABLE: str(self.folder / "lock")}

    def start(self, *arguments, cores=2, **environment: str) -> subprocess.Popen:
        """Snakemake, begun; what it says comes through a pipe."""
        command = [self.python, *self.program, "--cores", str(cores), *arguments]
        return subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**self.environment, **environment},
        )  # fmt: skip

    def snakemake(self, *arguments, check=True, cores=2):
        command = [self.python, *self.program, "--cores", str(cores), *arguments]
        before = set(self.logs())
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=600, env=self.environment
        )
        done.log = "".join(path.read_text() for path in self.logs() if path not in before)
        if check and done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        return done

    def logs(self) -> list[Path]:
        """Snakemake's own, which hold what the console leaves out."""
        return sorted((self.folder / ".snakemake" / "log").glob("*.snakemake.log"))

    def jobs(self, done) -> set[str]:
        """Rules of the jobs that a Snakemake call ran."""
        return set(re.findall(r"Finished jobid: \d+ \(Rule: (\w+)\)", done.log))

    def planned(self, *arguments) -> set[str]:
        """Rules of the jobs that a Snakemake call would run."""
        done = self.snakemake("--dry-run", *arguments)
        return set(re.findall(r"^(\w+) +\d+$", done.stdout + done.stderr, re.MULTILINE)) - {"total"}

    def finished(self, done) -> list[str]:
        """What each job said that it does."""
        return re.findall(r"Job \d+: (.*)", done.log)

    def pdf_text(self, study="tiny") -> str:
        """Of a report and its supplement, or of a comparison."""
        files = sorted((self.folder / "reports" / "out").glob(f"{study}*.pdf"))
        pages = [page for file in files for page in PdfReader(file).pages]
        return re.sub(r"\s+", " ", " ".join(page.extract_text() for page in pages))

    def leftovers(self) -> list[Path]:
        """Temporary files that a job should have taken away."""
        hidden = (self.folder / "results").rglob(".*")
        return [path for path in hidden if not path.name.endswith((".lock", ".snakemake_timestamp"))]


def copy_of_project(folder: Path) -> Workspace:
    """A workspace in which nothing was made yet, with few of the kernels."""
    folder.mkdir(parents=True)
    for name in ("Snakefile", "pyproject.toml"):
        shutil.copy(PROJECT / name, folder)
    for name in FOLDERS:
        ignored = {"reports": UNARCHIVED, "scripts": UNFINISHED}.get(name, IGNORED)
        shutil.copytree(PROJECT / name, folder / name, ignore=ignored)
    for path in (folder / "kernels").iterdir():  # other problems, and implementations of whole networks
        if path.is_dir() and path.name not in ("conv", "include"):
            shutil.rmtree(path)
    for path in (folder / "kernels" / "conv").iterdir():
        if path.stem not in {*KERNELS, "problem", "reference", "__pycache__"}:
            path.unlink()
    keep_emulator(folder)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "lock").mkdir()
    (folder / "lock").chmod(0o1777)
    workspace = Workspace(folder)
    workspace.configure()
    return workspace


def keep_emulator(folder: Path) -> None:
    """Link what the project keeps of its emulator, so that no test waits for its compiler."""
    if emulation.compiler():
        kept = folder / "results" / "libraries"
        kept.mkdir(parents=True)
        for races in (False, True):
            made = emulation.build_emulator(kept, races)
            (kept / made.name).symlink_to(made)


def link_project(folder: Path) -> None:
    """Make a folder a project whose code is links to this one's, with results of its own."""
    for name in ("Snakefile", "pyproject.toml", *FOLDERS):
        if name != "reports":
            (folder / name).symlink_to(PROJECT / name)
    (folder / "reports").mkdir()
    for path in (PROJECT / "reports").iterdir():
        if path.name not in ("out", "runs"):
            (folder / "reports" / path.name).symlink_to(path)
    if not (folder / "results").exists():
        share_sound_marks(folder)


def share_sound_marks(folder: Path) -> None:
    """Have a project know which archived runs this one has found sound: to read them takes seconds of each test."""
    marks = PROJECT / catalog.SOUND
    marks.mkdir(parents=True, exist_ok=True)
    (folder / "results").mkdir()
    (folder / catalog.SOUND).symlink_to(marks)


@contextmanager
def working_beside(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many programs, each of which keeps a processor busy. Linux shares that out among sessions: each has its own."""
    command = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield programs
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextmanager
def once_for_all_workers(tmp_path_factory) -> Iterator[Path]:
    """The folder that all of pytest-xdist's workers see, and one of them at a time is in."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with open(folder / "tiny.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture
def fresh(tmp_path) -> Workspace:
    """A workspace in which nothing was made yet."""
    return copy_of_project(tmp_path / "project")


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Workspace:
    """A workspace in which the report was made once. Tests copy it."""
    with once_for_all_workers(tmp_path_factory) as shared:
        folder = shared / ODD_PATH
        if not (folder / "reports" / "out" / "tiny.pdf").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker whose report failed
            copy_of_project(folder).snakemake("report")
    return Workspace(folder)


@pytest.fixture
def workspace(made, tmp_path) -> Workspace:
    """A copy of `made`, to be changed."""
    return made.copy(tmp_path / "project")


@pytest.fixture(scope="module")
def workspace_for_all(made, tmp_path_factory) -> Workspace:
    """The same, one for all tests of a module."""
    return made.copy(tmp_path_factory.mktemp("workspace") / "project")


_EMULATING = """
import sys
import numpy as np
from warpbook.harness.emulator import emulation

emulation.EmulatedCuPy.install()
library, arrays, out, *arguments = sys.argv[1:]
given = np.load(arrays)

def on_device(array):
    placed = emulation.allocate(array.shape, array.dtype)
    placed[...] = array
    return placed
"""


@pytest.fixture
def run_emulated(tmp_path):
    """A function of a script, a library of emulated kernels, arguments and arrays: what the script saved to `out`. It
    finds them as `library`, `arguments` and `given`."""

    def call(script, library, *arguments, **arrays):
        np.savez(tmp_path / "given.npz", **arrays)
        places = [library, tmp_path / "given.npz", tmp_path / "made.npz", *map(str, arguments)]
        environment = {**os.environ, **emulation.sanitizer_environment(), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", _EMULATING + script, *places]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, emulation.sanitizer_message(ended.stderr) or ended.stderr
        return np.load(tmp_path / "made.npz")

    return call
