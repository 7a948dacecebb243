import faulthandler
import fcntl
import gc
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from warpbook.common import parent_process
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.common.supervision import VariantFailure, run_supervised, run_to_end
from warpbook.harness import sandbox
from warpbook.machine import locks


def test_items_arrive_as_they_are_made():
    def produce():
        yield from ("first", ["second"], {"third": 3})

    assert list(run_supervised(produce, 10)) == ["first", ["second"], {"third": 3}]


def test_a_hang_ends_in_a_failure_that_keeps_what_came_before():
    def produce():
        yield 1
        time.sleep(60)

    got = []
    began = time.monotonic()
    with pytest.raises(VariantFailure, match=r"still running after 0\.3 s") as raised:
        got.extend(run_supervised(produce, 0.3))
    assert raised.value.status == "timed_out"
    assert time.monotonic() - began < 30


def test_time_is_counted_anew_for_each_item():
    limit_s, each_s = 1.5, 0.4  # a busy machine may add a second to each

    def produce():
        for number in range(4):
            time.sleep(each_s)
            yield number

    assert 4 * each_s > limit_s
    assert list(run_supervised(produce, limit_s)) == [0, 1, 2, 3]


def test_a_crash_is_named_by_its_signal():
    number = signal.SIGSEGV

    def produce():
        yield "kept"
        faulthandler.disable()
        os.kill(os.getpid(), number)
        yield "never"

    got = []
    with pytest.raises(VariantFailure, match=number.name) as raised:
        for item in run_supervised(produce, 10):
            got.append(item)  # noqa: PERF402
    assert got == ["kept"]
    assert raised.value.status == "launch_failed"


def test_a_death_is_no_failure_of_a_variant_s_whose_code_runs_in_yet_another_process():
    def produce():
        os.kill(os.getpid(), signal.SIGKILL)
        yield

    with pytest.raises(UserError, match="the process that watched the variant's died: SIGKILL"):
        list(run_supervised(produce, 10, apart=True))


def test_an_exit_without_a_word_is_a_failure():
    def produce():
        yield 1
        os._exit(3)

    with pytest.raises(VariantFailure, match="exit status 3"):
        list(run_supervised(produce, 10))


def test_a_user_error_comes_through_as_it_was():
    def produce():
        yield 1
        raise UserError("value, limit, remedy")

    with pytest.raises(UserError, match="value, limit, remedy"):
        list(run_supervised(produce, 10))


def test_another_error_comes_through_with_its_kind(capfd):
    def produce():
        yield 1
        raise KeyError("lost")

    with pytest.raises(RuntimeError, match="KeyError: 'lost'"):
        list(run_supervised(produce, 10))
    assert "Traceback" in capfd.readouterr().err


def alive(pid):
    try:
        return "State:\tZ" not in Path("/proc", str(pid), "status").read_text()
    except FileNotFoundError:
        return False


def fork_away(sessions=0):
    """Fork a process that sleeps, in a session of its own where asked, whose parent is gone; its id."""
    receiver, sender = os.pipe()
    if os.fork() == 0:
        for _ in range(sessions):
            os.setsid()
        if (pid := os.fork()) == 0:
            time.sleep(120)
        os.write(sender, str(pid).encode())
        os._exit(0)
    return int(os.read(receiver, 20))


def test_nothing_that_a_child_started_outlives_it():
    def produce(end, sessions):
        yield fork_away(sessions)
        if end == "hangs":
            time.sleep(60)
        if end == "dies":
            os.kill(os.getpid(), signal.SIGKILL)

    for end, sessions in [("returns", 0), ("returns", 1), ("hangs", 1), ("dies", 1)]:
        started, status = [], ""
        began = time.monotonic()
        try:
            for pid in run_supervised(partial(produce, end, sessions), 2 if end == "hangs" else 30):
                started.append(pid)  # noqa: PERF402
        except VariantFailure as failure:
            status = failure.status
        assert status == {"returns": "", "hangs": "timed_out", "dies": "launch_failed"}[end]
        assert time.monotonic() - began < 30
        (pid,) = started
        assert not alive(pid), (end, sessions)


def test_a_process_in_a_session_of_its_own_ends_with_the_child_that_started_it():
    def produce():
        yield fork_away(sessions=1)
        time.sleep(60)

    stream = run_supervised(produce, 10)
    pid = next(stream)
    assert alive(pid)
    stream.close()
    assert not alive(pid)


def test_a_death_is_told_at_once_though_a_grandchild_holds_the_pipe():
    def produce():
        fork_away(sessions=1)
        os.kill(os.getpid(), signal.SIGKILL)
        yield

    began = time.monotonic()
    with pytest.raises(VariantFailure, match="SIGKILL"):
        list(run_supervised(produce, 60))
    assert time.monotonic() - began < 30


def test_what_a_command_leaves_behind_ends_with_it(tmp_path):
    run_to_end(["sh", "-c", f"setsid sleep 120 >/dev/null 2>&1 & echo $! > {tmp_path}/pid"], 20)
    assert not alive((tmp_path / "pid").read_text().strip())


SUPERVISED = """
from warpbook.common.supervision import run_supervised
def produce():
    yield os.getpid()
    time.sleep(120)
pid = next(run_supervised(produce, 120))
"""
OF_A_POOL = """
from warpbook.common.supervision import process_pool
pool = process_pool(1)
pid = pool.submit(os.getpid).result()
"""


@pytest.mark.parametrize("begin", [SUPERVISED, OF_A_POOL], ids=["supervised", "of a pool"])
def test_a_child_ends_when_its_parent_is_killed(begin):
    program = f"import os, time\n{begin}\nprint(pid, flush=True)\nos.kill(os.getpid(), 9)"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts")}
    begun = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    pid = begun.stdout.readline().strip()
    assert begun.wait() == -signal.SIGKILL
    until = time.monotonic() + 30
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(pid)


def held_here(kind: str = "VmRSS") -> int:
    """Bytes that this process holds, and half of which a fork of it does until one of the two writes to them. Of its
    own (RssAnon): who knows how many others have the same libraries."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"^{kind}:\s+(\d+) kB$", status, re.MULTILINE)[1]) << 10


def touched(mib: int) -> bytearray:
    held = bytearray(mib << 20)
    held[:: 1 << 12] = bytes(len(held) >> 12)
    return held


def test_a_check_that_holds_too_much_memory_is_ended_and_told():
    def produce():
        yield 1
        held = touched(400)
        time.sleep(60)
        yield len(held)

    limit = held_here("RssAnon") // 2 + (200 << 20)
    produced = run_supervised(produce, 50, memory_bytes=limit)
    assert next(produced) == 1
    with pytest.raises(
        VariantFailure, match=r"holds [\d.]+ GiB of memory, more than the [\d.]+ GiB that it may"
    ) as failed:
        next(produced)
    held, allowed = map(float, re.findall(r"([\d.]+) GiB", str(failed.value)))
    assert limit / 2**30 == pytest.approx(allowed, abs=0.01)
    assert allowed < held < allowed + 0.5


def test_orphans_of_later_are_none_of_the_process_that_supervised():
    """It would count them as what a job started."""
    assert list(run_supervised(lambda: iter([1]), 50)) == [1]
    script = "sleep 3 >/dev/null & echo $!"
    orphan = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    parent = int(Path("/proc", orphan, "stat").read_text().rpartition(")")[2].split()[1])
    assert parent != os.getpid()


def test_memory_that_processes_share_is_counted_once():
    def produce():
        held = touched(100)
        gc.disable()  # a collection writes to every object, and each of the twenty would have pages of its own
        for _ in range(20):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        time.sleep(1)  # while the watcher looks a few times
        yield len(held)

    limit = held_here() + (800 << 20)
    assert list(run_supervised(produce, 50, memory_bytes=limit)) == [100 << 20]


def test_a_process_that_ends_while_its_memory_is_asked_for_is_not_counted_in_full():
    def produce():
        held = touched(400)
        gc.disable()
        until = time.monotonic() + 3
        while time.monotonic() < until:
            forked = []
            for _ in range(10):
                if (pid := os.fork()) == 0:
                    time.sleep(0.001 * len(forked))
                    os._exit(0)
                forked.append(pid)
            for each in forked:
                os.waitpid(each, 0)
        yield len(held)

    limit = held_here() + (600 << 20)
    assert list(run_supervised(produce, 50, memory_bytes=limit)) == [400 << 20]


def test_a_child_does_not_keep_the_measuring_lock(tmp_path):
    path = tmp_path / "lock"

    def produce():
        yield fork_away(sessions=1)
        time.sleep(60)

    with locks.lock_machine(path=path):
        stream = run_supervised(produce, 10)
        next(stream)
    handle = os.open(path, os.O_RDONLY)  # while the child and its own still run
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    stream.close()


def test_a_program_ends_with_the_snakemake_that_it_works_for():
    snakemake = subprocess.Popen(["sleep", "120"])
    code = """
import time
from warpbook.common.errors import exit_status
def main():
    print("works", flush=True)
    time.sleep(120)
exit_status(main)
"""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts"), parent_process.SNAKEMAKE: str(snakemake.pid)}
    program = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "works\n"
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.5)
    snakemake.kill()
    snakemake.wait()
    assert program.wait(30) == -signal.SIGKILL


@pytest.mark.skipif(bool(sandbox.unavailable_reason()), reason=sandbox.unavailable_reason())
def test_processes_without_shared_memory_say_what_to_mount():
    program = "from warpbook.common.supervision import process_pool\nprocess_pool(1)"
    command = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/usr", "/dev/shm", sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "MachineFault: processes get no semaphores, Read-only file system: mount /dev/shm" in done.stderr
