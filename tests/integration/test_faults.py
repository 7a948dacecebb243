"""A disk that fills up or fails at any write of a tiny study's programs: tests/faults.c stands between them and it.

Each program says in a sentence which file could not be written and why, leaves what was there before, and no temporary
file. `make chaos` tries every one of a program's first 200 writes with both errors; in the suite a program's first write
finds the disk full, or its last one finds it broken, by turns.
"""

import errno
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from small_run import shipped
from warpbook.common.files import PROJECT, sha256
from warpbook.config import settings

WRITES = int(os.environ.get("CHAOS_WRITES", "1"))  # of each program
LAST_WRITE = 200
PATIENCE_S = 120

STUDY = {
    "study": "tiny",
    "gpu": "none",
    "architectures": ["sm_90"],
    "report": {"title": "A tiny study", "authors": ["Somebody"]},
    "networks": yaml.safe_load(settings.FILE.read_text())["networks"],
    "measuring": {
        "target_rel_ci": 0.5,
        "tolerated_load": 1000.0,  # other tests run beside
        "equivalence_margin": 0.01,
        "gpu": {"warmup": 0, "min_samples": 2, "max_samples": 3, "max_time_s": 0.01, "min_samples_timeout_s": 1},
        "cpu": {"warmup": 0, "min_samples": 2, "max_samples": 3, "max_time_s": 0.01, "min_samples_timeout_s": 1},
        "programs": {"runs": 1, "min_samples_timeout_s": 1},
        "timeout_s": 60,
    },
    "studies": {
        "tiny": {
            "title": "One variant of each kind",
            "network": "fa17",
            "sizes": [3],
            "variants": ["direct", "im2col_blas"],
            "sections": ["milestone_1"],
        }
    },
}
BUILT, PARTS = "results/builds/direct", "results/parts"
CHECKED = f"{PARTS}/correctness/cpu/fa17/im2col_blas.csv"
TIMED = f"{PARTS}/samples/cpu/fa17/im2col_blas.csv.gz"
RUN_AS_A_WHOLE = f"{PARTS}/programs/cpu/fa17/im2col_blas.csv"
ON_THE_CPU = ["--cases", "fa17", "--variant", "im2col_blas"]
RECORDED = settings.load(STUDY, list(shipped())).recorded_json
POLICY = json.dumps(STUDY["measuring"])

OUTPUTS = ("--out", "--html", "--pdf", "--markdown")
DONE = (0, 3, 4, 5)  # a comparison's verdicts among them

PROGRAMS = {
    "probe_machine": ["--gpu", "no", "--out", f"{PARTS}/machine.json"],
    "prepare_data": ["--network", "fa17", "--out", "results/data/fa17.npz"],
    "build_variant": ["--variant", "direct", "--architectures", "sm_90", "--out", BUILT],
    "check_variant": [
        "--device", "cpu", *ON_THE_CPU, "--sizes", "3", "--timeout", "60", "--out", CHECKED,
    ],
    "measure_variant": [
        "--device", "cpu", *ON_THE_CPU, "--sizes", "3", "--measuring", POLICY, "--correctness", CHECKED,
        "--machine", f"{PARTS}/machine.json", "--out", TIMED,
    ],
    "run_program": [
        "--network", "fa17", "--variant", "im2col_blas", "--weights", "high", "--sizes", "3", "--measuring", POLICY, "--correctness", CHECKED,
        "--out", RUN_AS_A_WHOLE,
    ],
    "assemble_run": [
        "--config", RECORDED, "--sizes", '{"fa17": [3]}', "--machine", f"{PARTS}/machine.json", "--builds", BUILT,
        "--inputs", CHECKED, TIMED, RUN_AS_A_WHOLE, "--out", "results/run",
    ],
    "archive_run": ["--run", "results/run", "--folder", "results/archives", "--out", "results/archived.txt"],
    "render_report": [
        "--study", "tiny", "--config", RECORDED, "--run", "results/run", "--html", "results/out/tiny.html",
        "--pdf", "results/out/tiny.pdf",
    ],
    "compare_runs": [
        "--base", "results/run", "--head", "results/run", "--markdown", "results/out/compare.md",
        "--pdf", "results/out/compare.pdf",
    ],
}  # fmt: skip
"""In the order in which each needs what those before it made."""


def outputs_of(program: str) -> list[str]:
    """The files and folders that a program makes."""
    arguments = PROGRAMS[program]
    named = [path for option, path in pairwise(arguments) if option in OUTPUTS]
    return [*named, "results/archives"] if program == "archive_run" else named


class Disk:
    """A folder with all of a study's results in it, and programs that work there on a disk that fails when told to."""

    def __init__(self, folder: Path, library: Path):
        self.folder, self.library = folder, library

    def run(self, program: str, at: int = 0, cause: int = 0, stays: bool = False):
        """(the ended process, how many writes it began): the write number `at` fails, and later ones where it stays."""
        counted = self.folder / "count"
        counted.write_bytes(bytes(8))
        (self.folder / "results" / "tmp").mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "LD_PRELOAD": str(self.library),
            "FAULTS_UNDER": f"{self.folder.resolve()}/results",
            "FAULTS_AT": str(at),
            "FAULTS_ERRNO": str(cause),
            "FAULTS_COUNT": str(counted),
            **({"FAULTS_STAYS": "1"} if stays else {}),
            "TMPDIR": str(self.folder / "results" / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(
            [sys.executable, f"scripts/{program}.py", *PROGRAMS[program]],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        return done, struct.unpack("l", counted.read_bytes())[0]

    def held(self) -> dict[str, str]:
        """SHA-256 of every file of the results, by its path; folders and what is not to be kept among them."""
        return {
            str(path.relative_to(self.folder)): sha256(path) if path.is_file() else "a folder"
            for path in (self.folder / "results").rglob("*")
            if path.name not in ("sound", "cubins") and path.parent.name not in ("sound", "cubins")
        }

    def without(self, program: str):
        """The same before a program made anything."""
        for path in (self.folder / output for output in outputs_of(program)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def copy(self, folder: Path) -> "Disk":
        shutil.copytree(self.folder, folder, symlinks=True)
        return Disk(folder, self.library)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler here: apt-get install gcc")
    made = tmp_path_factory.mktemp("library") / "faults.so"
    source = PROJECT / "tests" / "faults.c"
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", source, "-o", made, "-ldl"], check=True)
    return made


@pytest.fixture(scope="module")
def made(library, tmp_path_factory) -> tuple[Disk, dict[str, int]]:
    """A disk on which every program did its work, and how many writes each took."""
    folder = tmp_path_factory.mktemp("disk") / "project"
    folder.mkdir()
    for name in ("scripts", "kernels", "weights", "reports", "pyproject.toml"):
        (folder / name).symlink_to(PROJECT / name)
    disk, writes = Disk(folder, library), {}
    for program in PROGRAMS:
        done, writes[program] = disk.run(program)
        assert done.returncode in DONE, done.stderr
    return disk, writes


def spread(writes: int, wanted: int) -> list[int]:
    """So many of the first writes, the first and the last among them where it is more than one."""
    last = min(writes, LAST_WRITE)
    wanted = min(wanted, last)
    return sorted({1 + round(step * (last - 1) / max(1, wanted - 1)) for step in range(wanted)})


def is_whole(path: Path) -> bool:
    """Whether a file of the kinds that a program makes two of, one after the other, reaches to its end."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as packed:
            return packed.testzip() is None
    ends = {".html": b"</html>", ".pdf": b"%%EOF"}
    return path.suffix in ends and path.read_bytes().rstrip().endswith(ends[path.suffix])


def fault(disk: Disk, program: str, at: int, cause: int) -> str:
    """What is wrong with how a program ends whose write number `at` fails; empty where nothing is."""
    disk.without(program)
    before = disk.held()
    done, _ = disk.run(program, at, cause, stays=cause == errno.ENOSPC)
    words, after = done.stderr, disk.held()
    place = f"{program}, write {at}, {errno.errorcode[cause]}: "
    if "Traceback" in words:
        return f"{place}a traceback:\n{words}"
    if done.returncode in DONE:  # what failed can be done without
        missing = [output for output in outputs_of(program) if not (disk.folder / output).exists()]
        return f"{place}nothing said, and missing: {missing}" if missing else ""
    if not re.search(rf"error: (.*results/\S+ cannot be written|not judged: disk full): .*{os.strerror(cause)}", words):
        return f"{place}no sentence with file and cause:\n{words}"
    changed = [name for name in after if after[name] not in (before.get(name), "a folder")]
    if left := [name for name in changed if not is_whole(disk.folder / name)]:
        return f"{place}left half-written: {left}"
    if left := [name for name in after.keys() - before.keys() if Path(name).name.startswith(".") or "/tmp/" in name]:
        return f"{place}left behind: {left}"
    return ""


def test_a_write_that_fails_is_told_and_leaves_nothing_half_written(made, tmp_path, tried):
    whole, writes = made

    def faults(disk: Disk, program: str, cause: int, places: list[int]) -> list[str]:
        return [fault(disk, program, at, cause) for at in places]

    causes, found = (errno.ENOSPC, errno.EIO), []
    for number, program in enumerate(PROGRAMS):
        assert writes[program] > 2, "the program's writes are not seen: nothing was tested"
        disks = [whole.copy(tmp_path / f"{program} {disk}") for disk in range(2)]
        places = spread(writes[program], WRITES)
        shares = [places, places] if WRITES >= LAST_WRITE else [places[::2], places[1::2]]
        if WRITES == 1:
            shares = [[], [min(writes[program], LAST_WRITE)]] if number % 2 else [[1], []]
        with ThreadPoolExecutor(2) as pool:
            parts = pool.map(faults, disks, [program] * 2, causes, shares)
            found += [words for part in parts for words in part if words]
        outcome = "an error with file and cause, or success; earlier files intact, nothing half-written"
        tried(f"a write of `{program}` that fails, disk full or broken", sum(map(len, shares)), outcome)
        if shares[0]:
            done, _ = disks[0].run(program)  # what a full disk stopped is done once there is room
            assert done.returncode in DONE, done.stderr
            assert disks[0].held().keys() == whole.held().keys(), program
    assert not found, "\n".join(found)
