"""Programs that jobs start ahead of their turn at a GPU, in real processes under a simulated driver."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from warpbook.common.files import PROJECT
from warpbook.machine import gpu_pool, gpu_wait, locks
from warpbook.runs import tables

SOON_S = 0.4  # in which a program that need not wait has gone on

JOB = """
import json, subprocess, sys
from pathlib import Path
from warpbook.machine import gpu_turn

out, timeout_s, programs = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
ended = []
with gpu_turn.hold_turn(out) as turn:
    for program in programs:
        # As under ncu: the program is a child of what the job starts.
        command = ["sh", "-c", '"$@"; exit $?', "ncu", sys.executable, "-c", program, out.name]
        try:
            status, said, words = turn.run(command, timeout_s)
            ended.append([status, said.split(), *words.splitlines()[-3:]])
        except subprocess.TimeoutExpired:
            ended.append("timed out")
    turn.report_rows([{"status": "ok" if one[0] == 0 else "launch_failed"} for one in ended])
print(json.dumps(ended + [turn.waited_s]), flush=True)
"""

PROGRAM = """
import os, sys, time
from pathlib import Path
from warpbook.machine import cuda_devices, gpu_wait

def tell(what):
    Path(f"{sys.argv[1]}.{what}").write_text(f"{os.getpid()}\\n")

BEFORE
tell("ready")
gpu_wait.wait()
seen = cuda_devices.visible_devices()
tell("begun")
print(seen[0].selector, sorted(os.sched_getaffinity(0)), sep="\\n", flush=True)
WORK
"""


def program(work: str = "", before: str = "") -> str:
    return PROGRAM.replace("WORK", work).replace("BEFORE", before)


@pytest.fixture
def start(driver, lock, tmp_path):
    """Start a job that runs programs ahead of its turn, on a host of simulated GPUs; all are ended with the test."""
    started = []

    def begin(*programs: str, name="direct", timeout_s=30.0, gpus=1) -> subprocess.Popen:
        given = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts"), "LD_LIBRARY_PATH": str(driver)}
        given |= {locks.LOCKS_VARIABLE: str(lock.parent), gpu_pool.GPUS: str(gpus), "WARPBOOK_SIMULATED": "2"}
        given["WARPBOOK_SICK"] = str(tmp_path)  # a file there, called like a GPU's number, is what is wrong with it
        part = f"results/parts/counters/gpu/fa18/{name}"
        command = [sys.executable, "-c", JOB, part, str(timeout_s), *programs]
        process = subprocess.Popen(command, cwd=tmp_path, env=given, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def told(tmp_path):
    """Wait until a program told something of itself; its process id."""

    def wait(what: str, name="direct") -> int:
        path = tmp_path / f"{name}.{what}"
        until = time.monotonic() + 60
        while not (path.exists() and path.read_text().endswith("\n")):
            assert time.monotonic() < until, f"{name} is never {what}"
            time.sleep(0.01)
        return int(path.read_text())

    return wait


@pytest.fixture
def noted(tmp_path):
    """The rows of JOBS of each job that had its turn."""
    return lambda: [row for path in (tmp_path / gpu_pool.NOTES).rglob("*.csv") for row in tables.JOBS.rows(path)]


def ended(job: subprocess.Popen):
    *outcomes, waited_s = json.loads(job.stdout.readline())
    return outcomes, waited_s


def gone(pid: int) -> bool:
    """Whether a process has ended, whoever has to take note of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_program_starts_while_another_measures_and_goes_on_when_its_job_has_the_gpu(start, told, lock, tmp_path):
    with locks.lock_machine(path=lock):
        job = start(program())
        told("ready")
        time.sleep(SOON_S)
        assert not (tmp_path / "direct.begun").exists()
    told("begun")
    ((status, _),), waited_s = ended(job)
    assert status == 0
    assert waited_s > SOON_S / 2


def test_a_program_sees_the_gpu_of_its_job_alone_and_is_kept_to_its_cores(start, noted, tmp_path):
    first = start(program("time.sleep(1)"), name="one", gpus=2)
    second = start(program("time.sleep(1)"), name="two", gpus=2)
    seen = [outcome[1] for job in (first, second) for outcome in ended(job)[0]]
    assert {selector for selector, *_ in seen} == {f"GPU-ab000000-0000-0000-0000-00000000000{n}" for n in (0, 1)}
    kept_to = {row["part"].rpartition("/")[2]: row["cores"] for row in noted()}
    for name, (_, *cores) in zip(("one", "two"), seen, strict=True):
        ends = [[int(end) for end in part.split("-")] for part in kept_to[name].split(",")]
        assert json.loads("".join(cores)) == [
            core for first, *last in ends for core in range(first, [first, *last][-1] + 1)
        ]


def test_programs_of_several_jobs_never_have_the_gpu_at_once(start, noted, tmp_path):
    held = (tmp_path / "held").as_posix()
    alone = f"os.mkdir({held!r}); time.sleep(0.2); os.rmdir({held!r})"
    sweeping = (
        "from warpbook.common import files\nwith files.scratch_folder(Path('/tmp')): pass"  # removes what nobody holds
    )
    jobs = [start(program(alone, sweeping), program(alone), name=f"job{number}") for number in range(3)]
    assert [[outcome[0] and outcome for outcome in ended(job)[0]] for job in jobs] == [[0, 0]] * 3
    rows = sorted(noted(), key=lambda row: row["began_s"])
    assert len(rows) == 3
    assert all(one["ended_s"] <= other["began_s"] for one, other in pairwise(rows))


def test_a_job_killed_in_its_turn_leaves_the_gpu_to_the_next_and_takes_its_program_along(start, told):
    job = start(program("time.sleep(60)"), name="killed")
    running = told("begun", "killed")
    waiting = start(program(), name="next")
    told("ready", "next")
    job.send_signal(signal.SIGKILL)
    told("begun", "next")
    assert ended(waiting)[0][0][0] == 0
    until = time.monotonic() + 10
    while not gone(running) and time.monotonic() < until:
        time.sleep(0.01)
    assert gone(running)


def test_a_job_killed_while_it_waits_takes_its_program_along_which_touches_nothing(start, told, lock, tmp_path):
    with locks.lock_machine(path=lock):
        job = start(program())
        waiting = told("ready")
        time.sleep(SOON_S)
        job.send_signal(signal.SIGKILL)
        until = time.monotonic() + 10
        while not gone(waiting) and time.monotonic() < until:
            time.sleep(0.01)
        assert gone(waiting)
    assert not (tmp_path / "direct.begun").exists()


def test_a_program_that_crashes_ends_no_job_and_its_gpu_goes_to_the_next(start, noted):
    """Before its turn or in it."""
    job = start(program(before="os.abort()"), program("os.abort()"), program(), name="first")
    (early, late, sound), _ = ended(job)
    assert early[0] != 0
    assert late[0] != 0
    assert sound[0] == 0
    assert ended(start(program(), name="second"))[0][0][0] == 0
    assert len(noted()) == 2


def test_a_job_whose_program_fails_on_a_gpu_that_does_begins_again_on_another(start, noted, tmp_path):
    (tmp_path / "0").write_text("214")
    (outcome,), _ = ended(start(program("sys.exit(cuda_devices.self_test() or 0)"), gpus=2))
    assert outcome[:1] == [0]
    assert outcome[1][0].endswith("01")
    assert len(noted()) == 1


def test_a_program_s_time_counts_from_its_turn(start, told, lock):
    with locks.lock_machine(path=lock):
        job = start(program("time.sleep(1)"), timeout_s=4)
        told("ready")
        time.sleep(4)
    (((status, _),), waited_s) = ended(job)
    assert status == 0
    assert waited_s > 3


def test_a_program_that_hangs_is_ended_before_its_turn_too(start, noted):
    for number, hanging in enumerate([program(before="time.sleep(60)"), program("time.sleep(60)")], start=1):
        outcomes, waited_s = ended(start(hanging, name=f"job{number}", timeout_s=2))
        assert outcomes == ["timed out"]
        assert len(noted()) == number
        assert waited_s < 2


def test_a_program_that_nobody_started_ahead_waits_for_nothing(monkeypatch):
    monkeypatch.delenv(gpu_wait.JOB, raising=False)
    gpu_wait.wait()


# --- the project's own programs -------------------------------------------------------------------------------------

PLACE = ["--network", "fa18", "--variant", "direct"]
PROGRAMS = {
    "infer.py": [*PLACE, "10"],
    "count_variant.py": ["--cases", "fa18", "--variant", "direct", "--images", "10", "--arch", "sm_90", "--launches", "no.json", "--under-tool", "conv1"],
    "count_network.py": ["--network", "fa18", "--weights", "trained", "--implementation", "fused_mma", "--images", "10",
                         "--arch", "sm_90", "--under-tool"],
    "trace_with_cupti.py": [*PLACE, "--size", "10", "--at-most", "9", "--out", "out.csv", "--sums", "sums.csv", "--count", "count.txt",
                            str(PROJECT / "scripts" / "infer.py"), *PLACE, "10"],
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_asks_for_its_turn_with_all_loaded_and_touches_cuda_after_it_alone(name, driver, tmp_path):
    """The simulated driver has no more than devices: the programs end soon after they have found theirs."""
    pytest.importorskip("cupy")
    if "cupti" in name:
        pytest.importorskip("cupti")
    asked = tmp_path / "asked"
    given = {**os.environ, "LD_LIBRARY_PATH": str(driver), "WARPBOOK_SIMULATED": "2", "WARPBOOK_ASKED": str(asked)}
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "turn"))
        door.listen(1)
        door.settimeout(120)
        given[gpu_wait.JOB] = str(tmp_path / "turn")
        command = [sys.executable, PROJECT / "scripts" / name, *PROGRAMS[name]]
        process = subprocess.Popen(command, cwd=PROJECT, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with process, contextlib.ExitStack() as ending:
            ending.callback(process.kill)  # one that never had its turn would wait for it
            job = ending.enter_context(door.accept()[0])
            loaded = Path(f"/proc/{process.pid}/maps").read_text()
            assert "/cupy/" in loaded
            assert ("libnvrtc" in loaded) == (name == "count_network.py")  # a variant's kernels were built before
            assert "libcupti" not in loaded
            assert not asked.exists()
            selector = "GPU-ab000000-0000-0000-0000-000000000001"
            job.sendall(json.dumps({"CUDA_VISIBLE_DEVICES": selector}).encode() + b"\n")
            said = process.stdout.read().decode()
    if "cupti" in name:  # CUPTI knows this driver for none, and asks it nothing
        asked.touch()
    else:
        assert asked.exists(), said
    assert set(asked.read_text().split()) <= {selector}


@pytest.mark.parametrize("name", ["check_variant.py", "measure_precision.py"])
def test_a_job_that_measures_itself_has_all_loaded_before_its_turn(name, driver, lock, tmp_path):
    pytest.importorskip("cupy")
    command = [sys.executable, PROJECT / "scripts" / name, "--variant", "direct", "--timeout", "30", "--out", "out.csv"]
    if name == "check_variant.py":
        command += ["--device", "gpu", "--cases", "fa18", "--sizes", "10"]
    given = {
        **os.environ,
        "LD_LIBRARY_PATH": str(driver),
        "WARPBOOK_SIMULATED": "1",
        locks.LOCKS_VARIABLE: str(lock.parent),
    }
    with locks.lock_machine(path=lock):
        process = subprocess.Popen(command, cwd=tmp_path, env=given, stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while "/cupy/" not in Path(f"/proc/{process.pid}/maps").read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
    assert process.wait(60) == 0


NSYS = """#!{python}
import sys
from pathlib import Path

sys.path.insert(0, {scripts!r})
from warpbook.machine import gpu_wait

Path("direct.ready").write_text("0\\n")
gpu_wait.wait()
sys.exit("nothing was profiled")
"""


def test_a_profiler_s_time_is_without_the_wait_for_the_turn(driver, lock, told, noted, tmp_path):
    nsys = tmp_path / "bin" / "nsys"
    nsys.parent.mkdir()
    nsys.write_text(NSYS.format(python=sys.executable, scripts=str(PROJECT / "scripts")))
    nsys.chmod(0o755)
    tables.CORRECTNESS.write([], tmp_path / "correctness.csv")
    given = {
        **os.environ,
        "LD_LIBRARY_PATH": str(driver),
        "WARPBOOK_SIMULATED": "1",
        locks.LOCKS_VARIABLE: str(lock.parent),
    }
    given["PATH"] = f"{nsys.parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, PROJECT / "scripts" / "trace_program.py", "--tool", "nsys", *PLACE, "--sizes", "10"]
    command += ["--timeout", "30", "--correctness", "correctness.csv", "--profiles", "profiles.csv"]
    command += ["--sums", "sums.csv"]
    command += ["--out", "results/parts/activities/nsys/gpu/fa18/direct.csv.gz", "--reports", "reports"]
    with locks.lock_machine(path=lock):
        process = subprocess.Popen(command, cwd=tmp_path, env=given)
        told("ready")
        time.sleep(5)
    assert process.wait(60) == 0
    (row,) = tables.PROFILES.rows(tmp_path / "profiles.csv")
    assert (row["status"], row["reason"]) == ("launch_failed", "profiling failed: nothing was profiled")
    assert row["elapsed_s"] < 5
    (job,) = noted()
    assert job["ended_s"] - job["began_s"] < 5
