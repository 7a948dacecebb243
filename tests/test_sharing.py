"""Several GPUs of a host: who has which, with which cores, in real processes under a simulated driver."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace

import pytest

from warpbook import devices, locks, machine, sharing, tables
from warpbook.errors import UserError
from warpbook.files import PROJECT

SOON_S = 0.4  # several looks of who waits for a GPU
A, B, C = (letter * 64 for letter in "abc")

JOB = """
import json, os, sys, time
from pathlib import Path
from warpbook import devices, machine, sharing

try:
    with sharing.held("gpu", Path(sys.argv[1]), *json.loads(sys.argv[2])):
        seen = devices.visible()
        assert machine.gpu() == seen[0] and len(seen) == (1 if os.environ[sharing.GPUS] != "1" else len(seen))
        cores, described = sorted(os.sched_getaffinity(0)), machine.cpu()["cores"]
        print(json.dumps([os.environ.get(machine.VISIBLE), seen[0].selector, cores, described]), flush=True)
        while not Path(sys.argv[3]).exists():
            time.sleep(0.02)
        time.sleep(float(sys.argv[4]))
except Exception as error:
    print(json.dumps(str(error)))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    """The folder of a driver that describes devices and can do nothing else."""
    folder = tmp_path_factory.mktemp("driver")
    source = PROJECT / "tests" / "simulated_cuda.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", source], check=True)
    return folder


@pytest.fixture
def lock(tmp_path) -> Path:
    """The machine's lock file, in a folder that stands for everybody's."""
    folder = tmp_path / "locks"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder / "warpbook-measuring.lock"


@pytest.fixture
def start(driver, lock, tmp_path):
    """Start a job on a host of simulated GPUs, which lasts so long, and until a file is there; all are ended with the
    test."""
    started = []

    def begin(part="samples/gpu/fa18/direct", gpus=2, here=3, options=(), lasts_s=0.3, until=driver, **environment):
        out = f"results/parts/{part}.csv.gz"
        command = [sys.executable, "-c", JOB, out, json.dumps(options), str(until), str(lasts_s)]
        given = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts"), "LD_LIBRARY_PATH": str(driver)}
        given[locks.GIVEN] = str(lock.parent)
        given |= {sharing.GPUS: str(gpus), "WARPBOOK_SIMULATED": str(here), **environment}
        process = subprocess.Popen(command, cwd=tmp_path, env=given, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def said(process):
    return json.loads(process.stdout.readline())


class Holder:
    """A lock held in a thread until it is let go; `has` is set once it is held."""

    def __init__(self, held):
        self.has, self._ends, self.value = threading.Event(), threading.Event(), None
        self._thread = threading.Thread(target=self._hold, args=(held,), daemon=True)
        self._thread.start()

    def _hold(self, held):
        with held as self.value:
            self.has.set()
            self._ends.wait(60)

    @property
    def soon(self) -> bool:
        """Whether it is held within a moment: of what must wait."""
        return self.has.wait(SOON_S)

    @property
    def at_last(self) -> bool:
        """Whether it is held, however busy the machine is: of what must not wait for long."""
        return self.has.wait(30)

    def end(self):
        self._ends.set()
        self._thread.join(20)


def test_of_several_gpus_each_has_one_measurement_and_the_next_gets_which_is_free_first(lock):
    first, second, third = (Holder(locks.gpu([A, B], path=lock)) for _ in range(3))
    until = time.monotonic() + 5
    while sum(holder.has.is_set() for holder in (first, second, third)) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    held = [holder for holder in (first, second, third) if holder.has.is_set()]
    (waiting,) = [holder for holder in (first, second, third) if holder not in held]
    assert sorted(holder.value for holder in held) == [0, 1]
    assert not waiting.soon
    held[1].end()
    assert waiting.at_last
    assert waiting.value == held[1].value
    for holder in (held[0], waiting):
        holder.end()


def test_two_workflows_that_see_other_gpus_share_only_the_lock_of_the_one_that_both_see(lock):
    with locks.gpu([A, B, C], path=lock):
        pass  # a GPU's first job since the machine started waits until nothing else is measured
    ours = Holder(locks.gpu([A, B], path=lock))
    assert ours.at_last
    assert ours.value == 0
    only = Holder(locks.gpu([A], path=lock))  # where it is the first GPU, or the only one
    assert not only.soon
    theirs = Holder(locks.gpu([C, A], path=lock))
    assert theirs.at_last
    assert theirs.value == 0
    for holder in (ours, only, theirs):
        holder.end()


@pytest.mark.parametrize("of_one_gpu", [False, True])
def test_who_needs_the_machine_alone_waits_for_every_gpu_and_is_not_passed_by(of_one_gpu, lock):
    measuring = Holder(locks.gpu([A, B], path=lock))
    assert measuring.at_last
    alone = Holder(locks.machine(path=lock))
    assert not alone.soon
    later = Holder(locks.gpu([A] if of_one_gpu else [A, B], path=lock))
    assert not later.soon  # though a GPU is free
    measuring.end()
    assert alone.at_last
    assert not later.soon
    alone.end()
    assert later.at_last
    later.end()


def test_a_build_waits_for_the_measurement_on_any_gpu_and_those_that_come_later_for_it(lock, monkeypatch):
    looks = threading.Event()  # until then who only looks in does not, or may be the faster by chance

    def look(seconds: float):
        looks.wait(40)
        time.sleep(seconds)

    monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=look))
    measuring = Holder(locks.gpu([A, B], path=lock))
    assert measuring.at_last
    build = Holder(locks.machine(shared=True, path=lock))
    assert not build.soon
    later = Holder(locks.gpu([A], path=lock))
    assert not later.soon
    measuring.end()
    assert build.at_last
    looks.set()
    assert not later.soon
    another = Holder(locks.machine(shared=True, path=lock))
    assert another.at_last
    for holder in (build, another):
        holder.end()
    assert later.at_last
    later.end()


def test_no_measurement_begins_on_a_gpu_that_was_unknown_when_a_build_began(lock):
    build = Holder(locks.machine(shared=True, path=lock))
    assert build.at_last
    measuring = Holder(locks.gpu([A], path=lock))
    assert not measuring.soon
    build.end()
    assert measuring.at_last
    measuring.end()


def test_checks_share_a_gpu_where_none_is_free_and_keep_measurements_from_it_alone(lock):
    checks = [Holder(locks.gpu([A, B], shared=True, path=lock)) for _ in range(4)]
    assert all(check.at_last for check in checks)
    assert {check.value for check in checks} == {0, 1}
    measuring = Holder(locks.gpu([A, B], path=lock))
    assert not measuring.soon
    for check in checks:
        if check.value == 1:
            check.end()
    assert measuring.at_last
    assert measuring.value == 1
    for holder in (*checks, measuring):
        holder.end()


def test_jobs_in_real_processes_take_turns_on_each_gpu_and_each_sees_its_own_alone(start, tmp_path):
    both = tmp_path / "both GPUs are taken"
    jobs = [start(f"samples/gpu/fa18/job{number}", gpus=2, here=3, lasts_s=0.1, until=both) for number in range(6)]
    begun = set()
    while len(begun) < 2:
        begun |= {*wait([job.stdout for job in jobs if job.stdout not in begun], 60)} or pytest.fail("none begins")
    both.touch()
    for visible, selector, cores, described in map(said, jobs):
        assert visible == selector
        assert described == len(os.sched_getaffinity(0))
        assert set(cores) <= os.sched_getaffinity(0)
    assert [job.wait(60) for job in jobs] == [0] * 6
    rows = [row for path in (tmp_path / sharing.NOTES).rglob("*.csv") for row in tables.JOBS.rows(path)]
    assert {row["part"] for row in rows} == {f"samples/gpu/fa18/job{number}" for number in range(6)}
    on = defaultdict(list)
    for row in rows:
        assert row["alone"]
        on[row["measured_on"]].append(row)
    assert len(on) == 2
    for held in on.values():
        held.sort(key=lambda row: row["began_s"])
        assert all(one["ended_s"] <= other["began_s"] for one, other in pairwise(held))
        assert len({row["cores"] for row in held}) == 1
    first, second = on.values()
    if len(os.sched_getaffinity(0)) > 1:
        assert first[0]["cores"] != second[0]["cores"]
    assert any(a["began_s"] < b["ended_s"] and b["began_s"] < a["ended_s"] for a in first for b in second)


def test_a_killed_job_leaves_its_gpu_to_the_next(start):
    job = start(gpus=2, here=2, options=[False, 1], lasts_s=60)
    visible, *_ = said(job)
    waiting = start(gpus=2, here=2, options=[False, 1], lasts_s=0)
    job.send_signal(signal.SIGKILL)
    assert said(waiting)[0] == visible
    assert visible.endswith("01")


def test_gpus_are_those_that_cuda_visible_devices_leaves(start):
    left = "GPU-ab000000-0000-0000-0000-000000000002,GPU-ab000000-0000-0000-0000-000000000000"
    jobs = [start(gpus=2, here=3, CUDA_VISIBLE_DEVICES=left, lasts_s=60) for _ in range(2)]
    assert {said(job)[0] for job in jobs} == set(left.split(","))


def test_a_gpu_that_is_lost_fails_its_own_jobs_and_no_other(start):
    going_on = start(gpus=3, here=2)
    assert said(going_on)[0].startswith("GPU-")
    assert said(start(gpus=3, here=2, options=[False, 2])).endswith("shows 2 of them: GPU 2 is lost")


def test_which_gpu_made_a_part_is_noted_though_the_job_asked_cuda_itself(start, tmp_path):
    """A process that touched CUDA has no forks that could ask it."""
    job = start("counters/gpu/fa18/direct", gpus=1, here=2, lasts_s=0)
    assert said(job)[1].endswith("00")
    assert job.wait(20) == 0
    (row,) = tables.JOBS.rows(tmp_path / sharing.NOTES / "counters/gpu/fa18/direct.csv")
    assert row["measured_on"].partition("/")[2] == hashlib.sha256(bytes([0xAB, *[0] * 15])).hexdigest()[:12]


IMPORTS_AHEAD = """
import ctypes, os, sys
from warpbook.harness import ahead

ahead.load("no_such_package", "wave")
assert {"wave", "cupy", "warpbook.harness.gpu"} <= set(sys.modules)
child = os.fork()
if not child:
    os._exit(ctypes.CDLL("libcuda.so.1").cuInit(0))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_what_a_job_imports_before_its_turn_leaves_cuda_to_its_forks(driver):
    given = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts"), "LD_LIBRARY_PATH": str(driver)}
    given["WARPBOOK_SIMULATED"] = "1"
    subprocess.run([sys.executable, "-c", IMPORTS_AHEAD], env=given, check=True)


def test_one_gpu_is_the_machine_s_as_ever(start, lock):
    job = start(gpus=1, here=3, lasts_s=60, CUDA_VISIBLE_DEVICES="GPU-ab000000-0000-0000-0000-000000000001,")
    assert said(job)[0].startswith("GPU-ab000000-0000-0000-0000-000000000001")
    several = Holder(locks.gpu([A], path=lock))
    assert not several.soon
    job.kill()
    assert several.at_last
    several.end()


def device(name="NVIDIA H200", number=0):
    return devices.Device(name, "sm_90", f"{number:064}", "13.0", 141 << 30, f"GPU-{number}")


def test_gpus_of_a_run_are_of_one_model_and_as_many_as_are_there():
    alike = [device(number=number) for number in range(3)]
    assert devices.alike(alike, "all") == alike
    mixed = [alike[0], device("NVIDIA A100", 9), alike[1]]
    assert devices.alike(mixed, 2) == alike[:2]
    with pytest.raises(UserError, match=r"gpus: all, and the devices are 2 of NVIDIA H200, sm_90 and 1 of NVIDIA A100"):
        devices.alike(mixed, "all")
    with pytest.raises(UserError, match=r"gpus: 3, .* set gpus to 2 at most"):
        devices.alike(mixed, 3)


EIGHT = dict(enumerate(range(8)))
TWO_EACH = {0: 0, 1: 1, 2: 2, 3: 3, 4: 0, 5: 1, 6: 2, 7: 3}  # threads 0 and 4 are of one core


@pytest.mark.parametrize(
    ("threads", "near", "expected"),
    [
        (EIGHT, ["", ""], [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (TWO_EACH, ["", ""], [[0, 1, 4, 5], [2, 3, 6, 7]]),
        (dict(enumerate(range(7))), ["", "", ""], [[0, 1], [2, 3], [4, 5, 6]]),
        ({0: 0, 1: 0}, ["", ""], [[0, 1], [0, 1]]),  # a core for two
        (EIGHT, ["4-7", "4-7"], [[4, 5], [6, 7]]),  # two of four GPUs, those of the second half
        (EIGHT, ["4-7", "0-3", "4-7"], [[4, 5], [0, 1, 2, 3], [6, 7]]),
        (TWO_EACH, ["0,4", "1-3,5-7"], [[0, 4], [1, 2, 3, 5, 6, 7]]),
        (EIGHT, ["0-5", "4-7"], [[0, 1, 2, 3], [4, 5, 6, 7]]),  # neither apart nor together
        (EIGHT, ["0-3", "8-15"], [[0, 1, 2, 3], [4, 5, 6, 7]]),  # this process was given none beside the second
        (EIGHT, ["0-7", ""], [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ],
)
def test_a_gpu_s_cores_are_neighbours_beside_it_both_threads_or_neither(threads, near, expected, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CORES", frozenset(threads))
    for thread, first in threads.items():
        topology = tmp_path / "cpu" / f"cpu{thread}" / "topology"
        topology.mkdir(parents=True)
        siblings = [str(other) for other, same in threads.items() if same == first]
        (topology / "thread_siblings_list").write_text(",".join(siblings) + "\n")
    monkeypatch.setattr(sharing, "TOPOLOGY", tmp_path / "cpu")
    monkeypatch.setattr(sharing, "PCI", tmp_path)
    gpus = [replace(device(number=number), pci=f"0000:{number:02x}:00.0") for number in range(len(near))]
    for gpu, said in zip(gpus, near, strict=True):
        if said:
            (tmp_path / gpu.pci).mkdir()
            (tmp_path / gpu.pci / "local_cpulist").write_text(f"{said}\n")
    assert sharing.shares(gpus) == expected


def test_snakemake_shares_jobs_out_and_starts_two_for_each_gpu_without_being_told(driver, fresh, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("WARPBOOK_SIMULATED", "3")
    told = ["results/builds/direct", "--config", "gpu=live"]
    done = fresh.snakemake(*told, "gpus=all")
    assert "3 GPUs share the jobs (Simulated GPU, sm_90), --cores 2, --resources measuring=6" in done.stderr
    refused = fresh.snakemake(*told, "gpus=4", check=False)
    assert refused.returncode
    assert "gpus: 4, and the devices here are 3 of Simulated GPU, sm_90" in refused.stdout + refused.stderr
