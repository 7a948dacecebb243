"""Supervision of a variant's code: it runs in a child process, and whatever it does, earlier results are kept and the
failure is reported.

A kernel that never ends cannot be interrupted from within: the wait for it is inside the driver. One that breaks the
process (a wild write on the CPU, a crash in a library) takes it along. One that starts processes of its own leaves none
behind: they are killed with the child, though they fled into a session of their own.
"""

import contextlib
import ctypes
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeVar

from warpbook.common.errors import MachineFault, UserError

Item = TypeVar("Item")

WATCH_INTERVAL_S = 0.2  # one look takes tens of microseconds: what is timed meanwhile does not feel it
READY_INTERVAL_S = 0.02
EXIT_TIMEOUT_S = 10
FILE_BYTES = 256 << 20
MEMORY_BYTES = 8 << 30  # host memory of a job and its variants; those in kernels/ take 2 GiB at most
PROCESSES = 256  # that a job may have started; the shipped variants and their compiler start fewer than ten
_LIBC = ctypes.CDLL(None)
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 1, 36, 37  # linux/prctl.h


class VariantFailure(Exception):
    """A variant's failure: a status of the tables, and the reason."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status = status

    def __reduce__(self) -> tuple[type["VariantFailure"], tuple[str, str]]:
        return VariantFailure, (self.status, str(self))

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the tables that say so."""
        return {"status": self.status, "reason": str(self)}


class Stopwatch:
    """The time that counts against processes: while one of them could run, the processor time that they got; while none
    could, the time that passed. So a busy machine takes nothing of a limit, and one that sleeps for ever ends all the
    same."""

    def __init__(self, pids: Callable[[], Iterable[int]]):
        self._pids = pids
        self._counted_s = 0.0
        self._at, (self._processor_s, _) = time.monotonic(), self._look()

    def elapsed_s(self) -> float:
        """Seconds that have counted, to be asked often."""
        now, (processor_s, runnable) = time.monotonic(), self._look()
        passed = now - self._at
        self._counted_s += min(passed, max(0.0, processor_s - self._processor_s)) if runnable else passed
        self._at, self._processor_s = now, processor_s
        return self._counted_s

    def _look(self) -> tuple[float, bool]:
        """Processor time of all, and whether one runs or waits for a processor."""
        processor_s, runnable = 0.0, False
        for pid in self._pids():
            spent_s, state = processor_time(pid)
            processor_s += spent_s
            runnable |= state == "R"
        return processor_s, runnable


def processor_time(pid: int) -> tuple[float, str]:
    """Processor time in s of a process and its ended children, and its state in Linux; (0, "") when gone."""
    fields = _stat_fields(Path("/proc", str(pid), "stat"))
    if not fields:
        return 0.0, ""
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"), fields[0].decode()


def thread_states(pid: int) -> set[str]:
    """The states in Linux of a process's threads; none when it is gone."""
    try:
        threads = list(Path("/proc", str(pid), "task").iterdir())
    except OSError:
        return set()
    return {fields[0].decode() for thread in threads if (fields := _stat_fields(thread / "stat"))}


def _stat_fields(stat: Path) -> list[bytes]:
    """What follows the name in a process's or thread's `stat` file, its state first; none when it is gone."""
    try:
        return stat.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []


def exact_processor_s(pid: int) -> float:
    """Processor time in s of a process's threads, to the nanosecond; 0 when it is gone."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # the number of a process's clock, linux/posix-timers.h
    except OSError:
        return 0.0


def run_supervised(
    produce: Callable[[], Iterator[Item]], timeout_s: float, memory_bytes: int | None = None, apart: bool = False
) -> Iterator[Item]:
    """What `produce` yields in a child process, as it comes.

    Raises VariantFailure where the next item takes longer than `timeout_s` (by a Stopwatch where `memory_bytes` has it
    looked at), the child and what it started are more than PROCESSES or hold more than `memory_bytes`, or it dies; and
    an exception of the child's as it was. Where the variant's code runs `apart`, in yet another process, the child's
    death is no failure of the variant's, and a UserError. The child is forked: nothing of CUDA may have been touched
    before, if it is to touch it.
    """
    with kill_descendants():
        receiver, sender = multiprocessing.Pipe()  # sockets: nobody can open a second end of them in /proc
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                receiver.close()
                end_with_parent(parent)
                _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what flees from its children becomes its child
                _produce(produce, sender)
            finally:
                os._exit(1)
        sender.close()
        # Not the end of the pipe alone: what the child started may hold that open after the child's death.
        death = os.pidfd_open(child)
        try:
            while True:
                _wait(receiver, child, death, timeout_s, memory_bytes)
                try:
                    if not receiver.poll():
                        raise EOFError
                    kind, content = receiver.recv()
                except EOFError:
                    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                    if apart:
                        raise UserError(f"the process that watched the variant's died: {describe_exit(code)}") from None
                    raise VariantFailure("launch_failed", f"its process died: {describe_exit(code)}") from None
                if kind == "end":
                    return
                if kind == "error":
                    raise content
                yield content
        finally:
            os.close(death)
            receiver.close()


def run_to_end(
    command: Sequence[str | Path],
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    before: Callable[[], None] = lambda: None,
    ready: Callable[[], bool] = lambda: True,
    by_processor_time: bool = False,
) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a command; `before` prepares its process. Raises TimeoutExpired: the time counts
    anew from when it is `ready`. All that it started is killed with it."""
    parent = os.getpid()

    def prepare() -> None:
        end_with_parent(parent)
        before()

    with (
        kill_descendants(),
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            preexec_fn=prepare,
        ) as process,
    ):
        try:
            until = time.monotonic() + timeout_s
            while not ready():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=READY_INTERVAL_S)
                    return process.returncode, out, err
                if time.monotonic() > until:
                    raise subprocess.TimeoutExpired(command, timeout_s)
            stopwatch = Stopwatch(lambda: {process.pid, *descendants(process.pid)}) if by_processor_time else None
            while stopwatch and stopwatch.elapsed_s() < timeout_s:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=WATCH_INTERVAL_S)
                    return process.returncode, out, err
            out, err = process.communicate(timeout=0 if stopwatch else timeout_s)
            return process.returncode, out, err
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def limit_resources(memory_bytes: int, cpu_s: int) -> None:
    """Let this process take so much more memory and processor time, write files of FILE_BYTES, and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    lower_limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes)
    lower_limit(resource.RLIMIT_CPU, cpu_s)
    lower_limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    lower_limit(resource.RLIMIT_CORE, 0)


def lower_limit(kind: int, most: int) -> None:
    """Let this process have no more of something; a limit that is lower stays."""
    allowed = resource.getrlimit(kind)[1]
    most = most if allowed == resource.RLIM_INFINITY else min(allowed, most)
    resource.setrlimit(kind, (most, most))


@contextlib.contextmanager
def kill_descendants() -> Iterator[None]:
    """Kill what was started inside the block and outlives it: Linux gives orphans to this process meanwhile."""
    asked = ctypes.c_int()
    _LIBC.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(asked), 0, 0, 0)
    _LIBC.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before = children(os.getpid())
    try:
        yield
    finally:
        until = time.monotonic() + EXIT_TIMEOUT_S
        while (left := children(os.getpid()) - before) and time.monotonic() < until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.005)
        _LIBC.prctl(_SET_CHILD_SUBREAPER, asked.value, 0, 0, 0)


def children(pid: int) -> set[int]:
    """Processes whose parent a process is, ended ones that nobody waited for among them."""
    if _LISTS_CHILDREN:
        return set(_listed_children(pid))
    return {child for child, parent in _parents().items() if parent == pid}


def descendants(pid: int) -> set[int]:
    """Processes that a process started, they that those did, and so on."""
    parents = {} if _LISTS_CHILDREN else _parents()
    known, level = {pid}, {pid}
    while level:
        if _LISTS_CHILDREN:  # by far the sooner: this is asked often
            level = {child for each in level for child in _listed_children(each)} - known
        else:
            level = {child for child, parent in parents.items() if parent in level} - known
        known |= level
    return known - {pid}


_LISTS_CHILDREN = Path("/proc/thread-self/children").exists()


def _listed_children(pid: int) -> list[int]:
    """The children of a process as Linux lists them; one may lack while another ends."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it ended meanwhile
        for thread in Path("/proc", str(pid), "task").iterdir():
            found += map(int, (thread / "children").read_bytes().split())
    return found


def _parents() -> dict[int, int]:
    """The parent of every process of this machine, or of this container."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            # The name, in parentheses, may hold anything.
            parents[int(path.name)] = int((path / "stat").read_bytes().rpartition(b")")[2].split()[1])
    return parents


def _memory_bytes(pids: Iterable[int], limit: int) -> int:
    """Memory that processes hold together: what they share is counted once, unless it stays within `limit` anyhow."""
    # The kernel looks at every page to share it out (PSS), milliseconds a process: only where that can decide.
    each = list(pids)
    if (most := sum(map(_resident_bytes, each))) <= limit:
        return most
    return sum(map(_proportional_bytes, each))


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path("/proc", str(pid), "statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:  # it ended meanwhile
        return 0


def _proportional_bytes(pid: int) -> int:
    """Memory of a process where each page counts as one over those who hold it, or in full where nobody may ask."""
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
    except OSError:
        return _resident_bytes(pid)  # nothing where it ended meanwhile
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _tasks() -> int:
    """Processes and threads of this machine, by one short read."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def _wait(receiver: Connection, child: int, death: int, timeout_s: float, memory_bytes: int | None) -> None:
    """Wait for an item or the child's death; VariantFailure where it takes too much time, memory or processes."""
    until = time.monotonic() + timeout_s
    before = _tasks()
    stopwatch = Stopwatch(lambda: {child, *descendants(child)}) if memory_bytes is not None else None
    while (left := timeout_s - stopwatch.elapsed_s() if stopwatch else until - time.monotonic()) > 0:
        if wait([receiver, death], min(left, WATCH_INTERVAL_S)):
            return
        # The processes themselves are looked for where they may be too many, or each look has to ask for their memory.
        if memory_bytes is None and _tasks() - before <= PROCESSES:
            continue
        started = descendants(os.getpid())
        if len(started) > PROCESSES:
            raise VariantFailure(
                "launch_failed", f"it runs {len(started)} processes, more than the {PROCESSES} that it may"
            )
        if memory_bytes is not None and (used := _memory_bytes(started, memory_bytes)) > memory_bytes:
            limit = f"{memory_bytes / 2**30:.3g} GiB that it may"
            raise VariantFailure("launch_failed", f"it holds {used / 2**30:.3g} GiB of memory, more than the {limit}")
    raise VariantFailure("timed_out", f"still running after {timeout_s:g} s (timeout_s in config.yaml)")


def end_with_parent(parent: int) -> None:
    """Have this process killed when its parent dies, in a session of its own and without the terminal."""
    os.setsid()
    _LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def process_pool(workers: int | None = None) -> ProcessPoolExecutor:
    """Forked processes, as many as there are processors unless it is said, which are killed when this one dies: those of
    a plain pool wait for their next work for ever. Raises MachineFault where the system gives them no semaphores."""
    fork = multiprocessing.get_context("fork")
    try:
        return ProcessPoolExecutor(workers, fork, initializer=end_with_parent, initargs=(os.getpid(),))
    except OSError as error:
        reason = f"{error.strerror}: mount /dev/shm (a container: --ipc=private), or chmod 1777 /dev/shm"
        raise MachineFault(f"processes get no semaphores, {reason}") from error


def _produce(produce: Callable[[], Iterator[Item]], sender: Connection) -> None:
    """Send what `produce` yields, and end the process."""
    status = 0
    try:
        for item in produce():
            sender.send(("item", item))
        sys.stdout.flush()
        sys.stderr.flush()
        sender.send(("end", None))
    except (UserError, VariantFailure) as error:
        sender.send(("error", error))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except Exception as error:
        traceback.print_exc()
        sender.send(("error", RuntimeError(f"{type(error).__name__}: {error}")))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def describe_exit(exitcode: int) -> str:
    """How a process ended, by its exit status as Python tells it."""
    if exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit status {exitcode}"
