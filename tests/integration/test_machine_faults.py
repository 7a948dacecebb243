"""Trouble of the machine is no verdict: a check that it stops is tried again, has no output, and is made good later."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from warpbook.common.errors import MachineFault
from warpbook.common.files import PROJECT
from warpbook.common.supervision import Stopwatch, VariantFailure, run_supervised
from warpbook.harness import cpp_compiler, sandbox
from warpbook.harness.emulator import emulation
from warpbook.harness.isolated import IsolatedBench
from warpbook.kernels import ece408, variants
from warpbook.runs import tables
from workspaces import working_beside

FILE = PROJECT / "tests" / "data" / "course" / "one_call.cu"
COMPILER = emulation.compiler()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler here to emulate with")


class Check:
    """check_variant.py on a file of the course."""

    def __init__(self, folder: Path):
        self.folder, self.out = folder, folder / "out.csv"
        emulation.build_emulator(folder)
        (folder / "kernels").mkdir()
        shutil.copy(FILE, folder / "kernels" / "mine.cu")

    def run(self, before: str = "", code: str = "", **environment: str) -> subprocess.CompletedProcess:
        if code:
            (self.folder / "kernels" / "mine.cu").write_text(code)
        self.out.unlink(missing_ok=True)
        program = [sys.executable, "scripts/check_variant.py", "--device", "emulator", "--cases", "ece408"]
        program += ["--variant", "mine", "--kernels", str(self.folder / "kernels"), "--sizes", "100"]
        program += ["--timeout", "100", "--sandbox", "none", "--out", str(self.out)]
        return subprocess.run(
            ["bash", "-c", f"{before} exec {shlex.join(program)}"],
            cwd=PROJECT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=500,
        )  # fmt: skip

    def statuses(self) -> set[str]:
        return {row["status"] for row in tables.CORRECTNESS.rows(self.out)}

    def assert_not_judged(self, done: subprocess.CompletedProcess, words: str) -> None:
        assert done.returncode == 2, done.stdout + done.stderr
        assert done.stderr.strip().splitlines()[-1].startswith("error: not judged: ")
        assert words in done.stderr and "Traceback" not in done.stderr
        assert not self.out.exists()


@pytest.fixture
def check(tmp_path) -> Check:
    return Check(tmp_path)


@needs_compiler
def test_a_full_tmpdir_is_no_verdict_and_with_room_there_is_one(check, tmp_path):
    library = tmp_path / "faults.so"
    source = PROJECT / "tests" / "faults.c"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    (tmp_path / "count").write_bytes(bytes(8))
    (tmp_path / "tmp").mkdir()
    full = {
        "LD_PRELOAD": library, "FAULTS_UNDER": tmp_path / "tmp" / "warp", "FAULTS_AT": "6", "FAULTS_ERRNO": "28",
        "FAULTS_COUNT": tmp_path / "count", "FAULTS_STAYS": "1", "TMPDIR": tmp_path / "tmp",
    }  # fmt: skip
    done = check.run(**{name: str(value) for name, value in full.items()})
    check.assert_not_judged(done, "No space left on device")
    assert check.run(TMPDIR=str(tmp_path / "tmp")).returncode == 0
    assert check.statuses() == {"ok"}


@needs_compiler
def test_a_limit_on_memory_is_no_verdict(check):
    check.assert_not_judged(check.run("ulimit -v 1500000;"), "ulimit -v unlimited")


@needs_compiler
@pytest.mark.parametrize("kib", [200, 8000])  # less than a compiler writes; than the arrays of 10,000 images take
def test_a_limit_on_the_size_of_files_is_no_verdict_and_no_full_disk(check, kib):
    done = check.run(f"ulimit -f {kib};")
    check.assert_not_judged(done, f"the limit on a file's size is {kib} KiB (ulimit -f unlimited)")
    assert "disk" not in done.stderr


KILLED = "g++: fatal error: Killed signal terminated program cc1plus"


def compiler_that_fails(folder: Path, times: int) -> str:
    """A compiler that is killed on its first trials of a source."""
    program = folder / "compiler"
    program.write_text(f"""#!/bin/bash
case "$*" in *-shared*)
    echo >> {folder}/trials
    [ $(wc -l < {folder}/trials) -gt {times} ] || {{ echo '{KILLED}' >&2; exit 1; }}
esac
exec {COMPILER} "$@"
""")
    program.chmod(0o755)
    return str(program)


@needs_compiler
def test_a_compiler_that_was_killed_is_tried_again(check, tmp_path):
    assert check.run(CXX=compiler_that_fails(tmp_path, 1)).returncode == 0
    assert check.statuses() == {"ok"}
    assert len((tmp_path / "trials").read_text().splitlines()) >= 2  # the build for data races may come between


@needs_compiler
def test_a_compiler_that_is_killed_each_time_is_no_verdict(check, tmp_path):
    done = check.run(CXX=compiler_that_fails(tmp_path, 99))
    check.assert_not_judged(done, "the compiler was killed")
    assert len((tmp_path / "trials").read_text().splitlines()) == cpp_compiler.TRIALS


@needs_compiler
def test_a_source_that_says_what_a_machine_in_trouble_says_does_not_compile(check):
    for words in ["No space left on device", "out of memory", KILLED]:
        assert check.run(code=f"{FILE.read_text()}\n#error {words}\n").returncode == 0
        assert check.statuses() == {"compile_failed"}


@needs_compiler
@pytest.mark.skipif(bool(sandbox.unavailable_reason()), reason="there is no sandbox here")
def test_a_sandbox_killed_from_outside_is_no_verdict(tmp_path):
    code = FILE.read_text().replace("    float *y, *x, *k;\n", "    float *y, *x, *k; sleep(600);\n")
    (tmp_path / "mine.cu").write_text(f"#include <unistd.h>\n{code}")
    built = tmp_path / "built"
    built.mkdir()
    variant = variants.read("mine", tmp_path)
    case = ece408.LAYERS[0].at(1)
    with IsolatedBench(variant, True, built) as bench:
        operation = bench.prepare(variant, case)
        threading.Timer(1, lambda: os.kill(min(bench.process.pids()), signal.SIGKILL)).start()
        arrays = [bench.allocate_guarded(case.shape(name)).values for name in case.arrays]
        with pytest.raises(MachineFault, match="not judged: the sandbox was killed"):
            operation(*arrays)


def test_time_is_the_processor_s_where_a_process_could_run_and_the_wall_s_where_none_could():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as asleep:
        stopwatch, began = Stopwatch(lambda: [asleep.pid]), time.monotonic()
        time.sleep(1)
        assert stopwatch.elapsed_s() == pytest.approx(time.monotonic() - began, abs=0.3)
        asleep.kill()
    with working_beside(4 * len(os.sched_getaffinity(0))) as busy:
        time.sleep(0.5)
        stopwatch, began = Stopwatch(lambda: [busy[0].pid]), time.monotonic()
        counted = 0.0
        while time.monotonic() - began < 2:
            time.sleep(0.1)
            counted = stopwatch.elapsed_s()
        assert 0.05 < counted < 1.25  # a quarter of a processor


def test_a_check_on_a_busy_machine_is_not_ended_early():
    """One second of work, with a limit of two, among many that work too."""

    def produce():
        began = time.process_time()
        while time.process_time() - began < 1:
            np.zeros(1000).sum()
        yield "done"

    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # all share one, whatever a scheduler makes of more
    try:
        with working_beside(4):
            began = time.monotonic()
            assert list(run_supervised(produce, 2, 8 << 30)) == ["done"]
            assert time.monotonic() - began > 2, "the machine was not busy enough to show anything"
    finally:
        os.sched_setaffinity(0, cores)


def test_a_check_that_sleeps_for_ever_ends():
    with pytest.raises(VariantFailure, match="still running after 1 s"):
        list(run_supervised(lambda: iter([time.sleep(600)]), 1, 8 << 30))
