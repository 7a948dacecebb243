"""Several GPUs of a host: who has which, with which cores, in real processes under a simulated driver."""

import ast
import hashlib
import json
import os
import re
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
from unittest.mock import ANY

import pytest

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.machine import cuda_devices, gpu_pool, gpu_quarantine, host, locks
from warpbook.runs import tables

SOON_S = 0.4  # several looks of who waits for a GPU
A, B, C = (letter * 64 for letter in "abc")

JOB = """
import json, os, sys, time
from pathlib import Path
from warpbook.machine import cuda_devices, gpu_pool, host

try:
    with gpu_pool.acquire("gpu", Path(sys.argv[1]), *json.loads(sys.argv[2])):
        seen = cuda_devices.visible_devices()
        assert host.gpu() == seen[0] and len(seen) == (1 if os.environ[gpu_pool.GPUS] != "1" else len(seen))
        cores, described = sorted(os.sched_getaffinity(0)), host.cpu()["cores"]
        print(json.dumps([os.environ.get(host.VISIBLE), seen[0].selector, cores, described]), flush=True)
        while not Path(sys.argv[3]).exists():
            time.sleep(0.02)
        time.sleep(float(sys.argv[4]))
except Exception as error:
    print(json.dumps(str(error)))
"""


WORK = """
import json, os, sys, time
from pathlib import Path
from warpbook.machine import cuda_devices, gpu_pool, gpu_quarantine, host

def launch():
    error = cuda_devices.self_test()  # as launches of the job's own
    time.sleep(0 if error else 0.3)
    return error

def ail(number, ending, said):
    Path(os.environ["WARPBOOK_SICK"], f"{number}{ending}").write_text(said)
    return "it failed"

try:
    with gpu_pool.acquire("gpu", Path(sys.argv[1]), *json.loads(sys.argv[2])) as rows:
        on = int(os.environ[host.VISIBLE][-2:], 16)
        reason = eval(sys.argv[3])
        rows.append({"status": "launch_failed" if reason else "ok", "reason": reason})
    print(json.dumps([on, reason, gpu_quarantine.RESTART_COUNT_VARIABLE in os.environ]))
except Exception as error:
    print(json.dumps(str(error)))
"""
"""A job whose third argument is Python that does its work and says why that failed, or nothing."""


@pytest.fixture
def sick(tmp_path) -> Path:
    """The folder that says what is wrong with simulated GPUs."""
    folder = tmp_path / "sick"
    folder.mkdir()
    return folder


@pytest.fixture
def start(driver, lock, sick, tmp_path):
    """Start a job on a host of simulated GPUs, which does some work, or lasts so long, and until a file is there; all
    are ended with the test."""
    started = []

    def begin(
        part="samples/gpu/fa18/direct", gpus=2, here=3, options=(), lasts_s=0.3, until=driver, work="", **environment
    ):
        given_to = [
            f"results/parts/{part}.csv.gz",
            json.dumps(options),
            *([work] if work else [str(until), str(lasts_s)]),
        ]
        command = [sys.executable, "-c", WORK if work else JOB, *given_to]
        given = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts"), "LD_LIBRARY_PATH": str(driver)}
        given[locks.LOCKS_VARIABLE] = str(lock.parent)
        given |= {gpu_pool.GPUS: str(gpus), "WARPBOOK_SIMULATED": str(here), "WARPBOOK_SICK": str(sick), **environment}
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
    first, second, third = (Holder(locks.lock_gpu([A, B], path=lock)) for _ in range(3))
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
    with locks.lock_gpu([A, B, C], path=lock):
        pass  # a GPU's first job since the machine started waits until nothing else is measured
    ours = Holder(locks.lock_gpu([A, B], path=lock))
    assert ours.at_last
    assert ours.value == 0
    only = Holder(locks.lock_gpu([A], path=lock))  # where it is the first GPU, or the only one
    assert not only.soon
    theirs = Holder(locks.lock_gpu([C, A], path=lock))
    assert theirs.at_last
    assert theirs.value == 0
    for holder in (ours, only, theirs):
        holder.end()


def test_who_needs_the_machine_alone_waits_for_every_gpu_and_is_not_passed_by(lock):
    measuring = Holder(locks.lock_gpu([A, B], path=lock))
    assert measuring.at_last
    alone = Holder(locks.lock_machine(path=lock))
    assert not alone.soon
    later = Holder(locks.lock_gpu([A, B], path=lock))
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
    measuring = Holder(locks.lock_gpu([A, B], path=lock))
    assert measuring.at_last
    build = Holder(locks.lock_machine(shared=True, path=lock))
    assert not build.soon
    later = Holder(locks.lock_gpu([A], path=lock))
    assert not later.soon
    measuring.end()
    assert build.at_last
    looks.set()
    assert not later.soon
    another = Holder(locks.lock_machine(shared=True, path=lock))
    assert another.at_last
    for holder in (build, another):
        holder.end()
    assert later.at_last
    later.end()


def test_no_measurement_begins_on_a_gpu_that_was_unknown_when_a_build_began(lock):
    build = Holder(locks.lock_machine(shared=True, path=lock))
    assert build.at_last
    measuring = Holder(locks.lock_gpu([A], path=lock))
    assert not measuring.soon
    build.end()
    assert measuring.at_last
    measuring.end()


def test_checks_share_a_gpu_where_none_is_free_and_keep_measurements_from_it_alone(lock):
    checks = [Holder(locks.lock_gpu([A, B], shared=True, path=lock)) for _ in range(4)]
    assert all(check.at_last for check in checks)
    assert {check.value for check in checks} == {0, 1}
    measuring = Holder(locks.lock_gpu([A, B], path=lock))
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
    rows = [row for path in (tmp_path / gpu_pool.NOTES).rglob("*.csv") for row in tables.JOBS.rows(path)]
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


def test_a_job_that_is_told_of_a_gpu_which_was_lost_since_begins_again_on_another(start, monkeypatch):
    names = [f"GPU-ab000000-0000-0000-0000-0000000000{number:02x}" for number in range(3)]
    identities = [hashlib.sha256(bytes([0xAB, *[0] * 14, number])).hexdigest() for number in range(3)]
    found = [replace(device(), uuid_sha256=one, selector=name) for one, name in zip(identities, names, strict=True)]
    monkeypatch.setenv(host.DEVICES_VARIABLE, "null")
    host.share_with_jobs(found)
    on, reason, again = said(start(gpus=3, here=2, options=[False, 2], work=LAUNCH))
    assert (on in (0, 1), reason, again) == (True, "", True)


def test_which_gpu_made_a_part_is_noted_though_the_job_asked_cuda_itself(start, tmp_path):
    """A process that touched CUDA has no forks that could ask it."""
    job = start("counters/gpu/fa18/direct", gpus=1, here=2, lasts_s=0)
    assert said(job)[1].endswith("00")
    assert job.wait(20) == 0
    (row,) = tables.JOBS.rows(tmp_path / gpu_pool.NOTES / "counters/gpu/fa18/direct.csv")
    assert row["measured_on"].partition("/")[2] == hashlib.sha256(bytes([0xAB, *[0] * 15])).hexdigest()[:12]


RAISE = {"probe_machine.py", "stream_shard.py"}
"""Programs without rows: where their GPU fails, they end with an exception."""


def test_a_program_that_holds_a_gpu_says_which_of_its_rows_failed():
    held, turns = {}, {}
    for path in sorted(PROJECT.glob("scripts/*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        withs = [item for node in nodes for item in getattr(node, "items", ()) if isinstance(node, ast.With)]
        words = [(ast.unparse(item.context_expr), bool(item.optional_vars)) for item in withs]
        if found := [named for call, named in words if call.startswith("gpu_pool.acquire(")]:
            held[path.name] = all(found)
        if any(call.startswith("gpu_turn.hold_turn(") for call, _ in words):
            calls = [ast.unparse(node) for node in nodes if isinstance(node, ast.Call)]
            turns[path.name] = any(call.startswith("turn.report_rows(") for call in calls)
    assert len(held) > 3 and {name for name, named in held.items() if not named} <= RAISE
    assert turns and all(turns.values())


LAUNCH = "launch()"
ECC = "CUDA_ERROR_ECC_UNCORRECTABLE of cuMemsetD8_v2"


@pytest.fixture
def put_aside(tmp_path, monkeypatch):
    """What is put aside: number of the GPU, reason, part, in order of number."""
    monkeypatch.chdir(tmp_path)
    numbers = {hashlib.sha256(bytes([0xAB, *[0] * 14, number])).hexdigest()[:12]: number for number in range(8)}

    def found():
        words = [
            re.fullmatch(r"[^/]+/(\w{12}), found by (\S+) at \S+: (.+)", each).groups()
            for each in gpu_quarantine.quarantined_since("")
        ]
        return sorted((numbers[gpu], reason, part) for gpu, part, reason in words)

    return found


@pytest.mark.parametrize("shared", [False, True])
def test_a_gpu_that_fails_every_job_is_put_aside_and_another_does_them(shared, start, sick, put_aside):
    (sick / "0").write_text("214")
    jobs = [start(f"samples/gpu/fa18/job{number}", work=LAUNCH, options=[shared]) for number in range(6)]
    outcomes = [said(job) for job in jobs]
    assert [(on, reason) for on, reason, _ in outcomes] == [(1, "")] * 6
    ((number, reason, part),) = put_aside()
    assert (number, reason) == (0, ECC)
    assert part in {f"samples/gpu/fa18/job{job}" for job, (*_, again) in enumerate(outcomes) if again}
    (row,) = tables.JOBS.rows(gpu_pool.NOTES / f"{part}.csv")
    assert row["measured_on"].partition("/")[2] == hashlib.sha256(bytes([0xAB, *[0] * 14, 1])).hexdigest()[:12]


def test_a_variant_s_own_failure_stands_and_puts_no_gpu_aside_whatever_it_says(start, put_aside):
    said_of_itself = "'CUDARuntimeError: cudaErrorECCUncorrectable: uncorrectable ECC error encountered'"
    assert said(start(work=said_of_itself)) == [0, ANY, False]
    assert said(start(work="1 / 0")) == "division by zero"
    assert put_aside() == []


def test_a_job_in_which_memory_had_errors_begins_again_and_those_of_before_are_none_of_it(start, sick, put_aside):
    (sick / "0.ecc").write_text("2")
    assert said(start(work="'it failed'")) == [0, "it failed", False]
    assert said(start(work="ail(0, '.ecc', '3') if on == 0 else launch()")) == [1, "", True]
    assert put_aside() == [(0, "its uncorrected memory (ECC) errors were 2 and are 3", "samples/gpu/fa18/direct")]


def test_a_job_that_raises_on_a_gpu_that_fails_begins_again(start, sick):
    (sick / "0").write_text("999")
    assert said(start(work="1 / 0 if on == 0 else launch()")) == [1, "", True]


def test_a_job_under_which_two_gpus_fail_is_done_on_no_third(start, put_aside):
    assert said(start(gpus=3, work="ail(on, '', '214')")) == [1, "it failed", True]
    assert [number for number, *_ in put_aside()] == [0, 1]
    assert said(start(gpus=3, work=LAUNCH)) == [2, "", False]


def test_gpus_that_failed_before_a_job_do_not_count_against_it(start, sick, put_aside):
    for number in (0, 1):
        (sick / str(number)).write_text("214")
    assert said(start(gpus=3, work=LAUNCH)) == [2, "", True]
    assert [number for number, *_ in put_aside()] == [0, 1]


def test_where_every_gpu_is_put_aside_a_sentence_says_why_and_what_to_do(start, sick):
    for number in (0, 1):
        (sick / str(number)).write_text("214")
    for _ in range(2):
        words = said(start(here=2, work=LAUNCH))
        assert words.startswith("gpus: 2, and none of them is left: GPU-ab000000-0000-0000-0000-000000000000: ")
        assert words.count(ECC) == 2
        assert "reset them (nvidia-smi --gpu-reset)" in words


def test_what_a_gpu_put_aside_was_to_make_itself_another_makes(start, sick):
    (sick / "1").write_text("214")
    assert said(start(work=LAUNCH, options=[False, 1])) == [0, "", True]
    assert said(start(work=LAUNCH, options=[False, 1])) == [0, "", False]


def test_the_machine_is_described_with_its_first_gpu_that_works_while_no_other_does_anything(start, sick, put_aside):
    (sick / "0").write_text("214")
    measuring = start(gpus=3, options=[False, 2], lasts_s=60)
    assert said(measuring)
    describing = start("machine", gpus=3, work=LAUNCH, options=[False, None, True])
    time.sleep(2 * SOON_S)
    assert put_aside() == []
    measuring.kill()
    assert said(describing) == [1, "", True]
    assert [number for number, *_ in put_aside()] == [0]


def test_the_next_snakemake_tries_a_gpu_again_that_was_put_aside(start, sick, put_aside):
    (sick / "0").write_text("214")
    assert said(start(work=LAUNCH, WARPBOOK_SNAKEMAKE="1")) == [1, "", True]
    (sick / "0").unlink()
    assert said(start(work=LAUNCH, WARPBOOK_SNAKEMAKE="1")) == [1, "", False]
    assert said(start(work=LAUNCH, WARPBOOK_SNAKEMAKE="2")) == [0, "", False]
    assert put_aside() == [(0, ECC, "samples/gpu/fa18/direct")]  # and the run's record keeps it


def test_what_others_do_with_a_gpu_is_no_fault_of_it(driver, sick, monkeypatch):
    for name, value in [("LD_LIBRARY_PATH", driver), ("WARPBOOK_SICK", sick), ("WARPBOOK_SIMULATED", 1)]:
        monkeypatch.setenv(name, str(value))
    for error, mode, expected in [
        (0, 0, ""),
        (1, 0, ""),  # our own mistake
        (2, 0, ""),  # others hold its memory
        (46, 3, ""),  # another has it to itself
        (46, 0, "CUDA_ERROR_DEVICE_UNAVAILABLE of cuMemsetD8_v2"),
        (719, 0, "CUDA_ERROR_LAUNCH_FAILED of cuMemsetD8_v2"),
        (-1, 0, "it did not fill memory within 1 s"),
    ]:
        (sick / "0").write_text(str(error))
        (sick / "0.mode").write_text(str(mode))
        monkeypatch.setattr(gpu_quarantine, "ANSWER_TIMEOUT_S", 1 if error < 0 else 60)
        assert gpu_quarantine.diagnose(device(), None) == expected, error


IMPORTS_AHEAD = """
import ctypes, os, sys
from warpbook.harness import preload

preload.import_packages("no_such_package", "wave")
assert {"wave", "cupy", "warpbook.harness.gpu_bench"} <= set(sys.modules)
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
    several = Holder(locks.lock_gpu([A], path=lock))
    assert not several.soon
    job.kill()
    assert several.at_last
    several.end()


def device(name="NVIDIA H200", number=0):
    return cuda_devices.Device(name, "sm_90", f"{number:064}", "13.0", 141 << 30, f"GPU-{number}")


def test_gpus_of_a_run_are_of_one_model_and_as_many_as_are_there():
    alike = [device(number=number) for number in range(3)]
    assert cuda_devices.select_alike(alike, "all") == alike
    mixed = [alike[0], device("NVIDIA A100", 9), alike[1]]
    assert cuda_devices.select_alike(mixed, 2) == alike[:2]
    with pytest.raises(UserError, match=r"gpus: all, and the devices are 2 of NVIDIA H200, sm_90 and 1 of NVIDIA A100"):
        cuda_devices.select_alike(mixed, "all")
    with pytest.raises(UserError, match=r"gpus: 3, .* set gpus to 2 at most"):
        cuda_devices.select_alike(mixed, 3)


EIGHT = dict(enumerate(range(8)))
TWO_EACH = {0: 0, 1: 1, 2: 2, 3: 3, 4: 0, 5: 1, 6: 2, 7: 3}  # threads 0 and 4 are of one core


def test_a_gpu_s_cores_are_neighbours_beside_it_both_threads_or_neither(monkeypatch, tmp_path):
    cases = [
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
    ]
    for number, (threads, near, expected) in enumerate(cases):
        folder = tmp_path / str(number)
        monkeypatch.setattr(host, "CORES", frozenset(threads))
        for thread, first in threads.items():
            topology = folder / "cpu" / f"cpu{thread}" / "topology"
            topology.mkdir(parents=True)
            siblings = [str(other) for other, same in threads.items() if same == first]
            (topology / "thread_siblings_list").write_text(",".join(siblings) + "\n")
        monkeypatch.setattr(gpu_pool, "TOPOLOGY", folder / "cpu")
        monkeypatch.setattr(gpu_pool, "PCI", folder)
        gpus = [replace(device(number=number), pci=f"0000:{number:02x}:00.0") for number in range(len(near))]
        for gpu, said in zip(gpus, near, strict=True):
            if said:
                (folder / gpu.pci).mkdir()
                (folder / gpu.pci / "local_cpulist").write_text(f"{said}\n")
        assert gpu_pool.core_shares(gpus) == expected, (threads, near)


def test_snakemake_shares_jobs_out_and_starts_two_for_each_gpu_without_being_told(driver, fresh, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("WARPBOOK_SIMULATED", "3")
    told = ["results/builds/direct", "--config", "gpu=live"]
    done = fresh.snakemake(*told, "gpus=all")
    assert "3 GPUs share the jobs (Simulated GPU, sm_90), --cores 2, --resources measuring=6" in done.stderr
    refused = fresh.snakemake(*told, "gpus=4", check=False)
    assert refused.returncode
    assert "gpus: 4, and the devices here are 3 of Simulated GPU, sm_90" in refused.stdout + refused.stderr


def test_a_job_of_snakemake_s_begins_again_on_another_gpu_and_what_fails_there_stands(driver, fresh, sick, monkeypatch):
    """On simulated GPUs nothing can be checked: the row says so on each, and stays on the one that works."""
    pytest.importorskip("cupy")
    (sick / "0").write_text("214")
    asked = sick / "asked"
    for name, value in [("LD_LIBRARY_PATH", driver), ("WARPBOOK_SICK", sick), ("WARPBOOK_SIMULATED", 2)]:
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("WARPBOOK_ASKED", str(asked))
    out = Path("results/parts/correctness/gpu/fa18/direct.csv")
    done = fresh.snakemake(out, "--config", "gpu=live", "gpus=2")
    assert asked.read_text().splitlines().count("") == 1  # by Snakemake: jobs ask for the GPU that they hold alone
    assert done.stderr.count(f"is put aside: {ECC}") == 1
    monkeypatch.chdir(fresh.folder)
    (row,) = tables.CORRECTNESS.rows(out)
    assert row["status"] == "launch_failed"
    (job,) = tables.JOBS.rows(gpu_pool.note_path(out))
    assert job["measured_on"].endswith(hashlib.sha256(bytes([0xAB, *[0] * 14, 1])).hexdigest()[:12])
