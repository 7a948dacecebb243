"""The process that a variant's code runs in, apart from the one that judges it, in a sandbox where there is one.
Nothing that it answers is believed: an answer is bounded, and whoever asks looks at what there is."""

import contextlib
import json
import math
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common.errors import MachineFault
from warpbook.common.supervision import (
    WATCH_INTERVAL_S,
    Stopwatch,
    VariantFailure,
    children,
    descendants,
    end_with_parent,
    exact_processor_s,
    lower_limit,
    processor_time,
    thread_states,
)
from warpbook.harness import (
    building,
    cpp_compiler,
    ece408_worker,
    emulated_worker,
    recorded_launches,
    sandbox,
    worker,
    worker_protocol,
)
from warpbook.harness.emulator import emulation
from warpbook.kernels.variants import Variant
from warpbook.machine import faults

EXIT_TIMEOUT_S, START_TIMEOUT_S = 10, 120
STOP_INTERVAL_S, STANDING = 1e-4, frozenset("TtZX")  # states of threads
UNINTERRUPTED_S = 5.0
"""A thread inside the kernel, in state D, stops when it leaves it: the driver may free memory first. One waits longer only for a
child that it is starting, and that stands."""

STANDING_S, MOST_AWAKE = 1e-3, 3
"""Processor time that a process may still take once it stands, since its threads stop one after another: 0.7 ms at most of 256
threads on two busy processors. It is refused when it took more so often: a virtual machine's host may stop it in between."""

_KNOWN = set[int]()
"""Children of this process that are no variant's, or a variant's first process. Others fled from one of these."""


class VariantProcess:
    """The process of a variant on the host; emulated, for a GPU variant compiled into `folder` unless its `library` is
    there; or on a GPU (`on_device`, or a file of the course with nvcc's `library`). `races`: look for data races,
    without sanitizers."""

    def __init__(
        self,
        variant: Variant,
        sandboxed: bool,
        folder: Path | None = None,
        library: Path | None = None,
        races: bool = False,
        on_device: bool = False,
    ):
        self.limit_s: float | None = None
        """What all answers together may take, by a Stopwatch."""
        self.ended = False
        self.library = library
        """What it runs, once it is compiled."""
        self.blocks = np.zeros(1, np.uint64)
        """How many blocks an emulated kernel has finished, by which one that is slow is told from one that hangs."""
        self._races = races
        self._variant, self._sandboxed, self._folder = variant, sandboxed, folder
        self._how = worker.HOST
        if folder:
            self._how = worker.EMULATED
        elif variant.course:
            self._how = worker.DRIVEN
        elif on_device:
            self._how = worker.DEVICE
        self._process: subprocess.Popen[bytes] | None = None
        self._started: subprocess.Popen[bytes] | None = None
        self._paused = dict[int, float]()
        """Processes that stand still, and the processor time that each had taken then."""
        self._times_awake = 0
        self.resumed_s = 0.0
        """When it was last let go on, by `perf_counter`: what this process looks at before is no time of a call."""

    def start(self) -> "VariantProcess":
        """Have it load what it needs while this process does something else; itself."""
        self._started = self._start()
        return self

    def close(self) -> None:
        """End it."""
        for process in filter(None, (self._process, self._started)):
            process.kill()
            process.wait()

    @property
    def used_s(self) -> float:
        """What it has had, by a Stopwatch."""
        return self._stopwatch.elapsed_s() if self._process else 0.0

    def processor_s(self) -> float:
        """Processor time that it and what it started have taken."""
        return sum(processor_time(pid)[0] for pid in self.pids())

    def pause(self) -> None:
        """Stop it and all that it started, and wait until they stand. Raises VariantFailure where something fled from a
        variant's process, or does not stop."""
        began = time.monotonic()
        while started := self.pids() - self._paused.keys():  # again, for what they started until they stood
            self._signal(started, signal.SIGSTOP)
            self._paused |= dict.fromkeys(started, math.inf)
            while not self._stand(started, waited_s := time.monotonic() - began):
                if waited_s > EXIT_TIMEOUT_S:
                    raise VariantFailure("refused", f"{self._variant.name} starts a process that cannot be stopped")
                time.sleep(STOP_INTERVAL_S)
        if children(os.getpid()) - _KNOWN:
            raise VariantFailure("refused", f"{self._variant.name} starts a process that leaves its own")

    def _stand(self, pids: set[int], waited_s: float) -> bool:
        """Whether processes stand still, by their threads' states and by their clocks, which are noted."""
        standing = STANDING | {"D"} if waited_s > UNINTERRUPTED_S else STANDING
        if any(thread_states(pid) - standing for pid in pids):
            return False
        before_s = {pid: exact_processor_s(pid) for pid in pids}
        now_s = {pid: exact_processor_s(pid) for pid in pids}
        self._paused |= now_s
        return before_s == now_s

    def resume(self) -> float:
        """Let go on what was stopped; the processor time in s that it took meanwhile. Raises VariantFailure where it did
        not stand still: a signal of the kernel's wakes a process."""
        worked_s = sum(max(0.0, exact_processor_s(pid) - before_s) for pid, before_s in self._paused.items())
        if self._paused:
            self._times_awake += worked_s > STANDING_S or bool(self.pids() - self._paused.keys())
            if self._times_awake >= MOST_AWAKE:
                raise VariantFailure(
                    "refused",
                    f"{self._variant.name} works while it is to stand still: {worked_s * 1e3:.3g} ms of processor time, and "
                    f"{STANDING_S * 1e3:g} ms would pass",
                )
        self.resumed_s = time.perf_counter()
        self._signal(self._paused, signal.SIGCONT)
        self._paused = {}
        return worked_s

    def _signal(self, pids: Iterable[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def pids(self) -> set[int]:
        """The process, and all that it started."""
        return {self._process.pid, *descendants(self._process.pid)} if self._process else set()

    def ask(self, handle: int | None, wait_s: float | None = None, /, **request: Any) -> dict[str, Any]:
        """What the variant's process answers. VariantFailure with its fault, or where it died or takes too long."""
        if self._process is None:
            self._process = self._begin()
            self._stopwatch = Stopwatch(self.pids)
        content = b""
        # Nobody can answer what was not asked yet.
        request["id"] = secrets.token_hex(8)
        with contextlib.suppress(ConnectionError, BlockingIOError):
            socket.send_fds(self._socket, [json.dumps(request).encode()], [] if handle is None else [handle])
            self._wait(self.limit_s if wait_s is None else self.used_s + wait_s)
            content = self._socket.recv(worker_protocol.ANSWER_BYTES, socket.MSG_DONTWAIT)
        if handle is not None:
            os.close(handle)
        if not content:
            raise self._exit_failure()
        try:
            answer = json.loads(content)
            fault = answer.get("fault")
            status, reason = fault or ("", "")
            if answer.pop("id", "") != request["id"]:
                raise ValueError
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise self.invalid_answer() from None
        if fault:
            raise self._fault(status, sandbox.printable(reason))
        assert isinstance(answer, dict)
        return answer

    def _wait(self, limit_s: float | None) -> None:
        """Wait for the process's answer or its end. Raises VariantFailure where it has had its time."""
        moved_s, blocks = 0.0, 0
        # Not the socket alone: what the variant started may hold its end.
        while not wait([self._socket, self._death], None if limit_s is None else WATCH_INTERVAL_S):
            assert limit_s is not None
            spent_s = self._stopwatch.elapsed_s()
            if (now := int(self.blocks[0])) != blocks:
                moved_s, blocks = spent_s, now
            if spent_s > limit_s:
                self.ended = True
                assert self._process is not None
                self._process.kill()
                configured = " (timeout_s in config.yaml)" * (limit_s == self.limit_s)
                words = f"after {limit_s:.0f} s of processor time{configured}"
                if blocks and spent_s - moved_s < limit_s / 10:
                    raise VariantFailure("unsupported", f"too slow for the emulator: it still finishes blocks {words}")
                raise VariantFailure("timed_out", f"still running {words}")

    def _fault(self, status: str, reason: str) -> VariantFailure:
        """A fault as the variant's process tells it. What says nothing of the variant is believed of no file of the
        course, and of a launcher only where its code holds what the emulator lacks."""
        lacking = reason.partition("beyond the emulator: cupy.")[2].rpartition(".")[2]
        if status not in sandbox.STATUSES or (
            status == "unsupported" and (self._variant.course or lacking not in self._variant.launcher_code)
        ):
            status = "launch_failed"
        return VariantFailure(status, reason)

    def _begin(self) -> subprocess.Popen[bytes]:
        """The variant's process, which has said that it is ready. Raises MachineFault where it does not come so far in
        two trials: nothing of the variant is loaded before."""
        for trial in range(2):
            process = self._started or self._start()
            self._started = None
            wait([self._socket, self._death], START_TIMEOUT_S)
            with contextlib.suppress(OSError):
                if self._socket.recv(len(worker_protocol.READY), socket.MSG_DONTWAIT) == worker_protocol.READY:
                    return process
            process.kill()
            ended = sandbox.describe_exit_inside(process.wait(), self._words, self._sandboxed)
            time.sleep(trial)
        lack = faults.little_memory() or faults.full_disk(Path(tempfile.gettempdir())) or ended
        raise MachineFault(f"not judged: the process that a variant runs in does not start here: {lack}")

    def _start(self) -> subprocess.Popen[bytes]:
        self._killed_before = faults.killed_for_memory()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        source = self._variant.files[0].parent.absolute()
        how = self._how
        start = [sys.executable, "-Pm"]  # -P: nothing of the folder that this runs in takes the place of a package
        command = [*start, worker.__name__, str(other.fileno()), how, self._variant.files[0].stem, str(source)]
        readable, extra = [source], {}
        if how == worker.DRIVEN:
            assert self.library
            command.append(str(self.library))
            readable = [source, self.library]
        elif how == worker.DEVICE:
            readable = [source, *(kept for kept in (building.FOLDER, building.PROJECT_CUBINS) if kept.exists())]
        elif self._folder:
            compiled = self.library or emulation.compile_host(self._variant, self._folder, self._sandboxed, self._races)
            self.library = compiled
            if self._variant.course:
                command = [*start, ece408_worker.__name__, str(other.fileno())]
            elif recorded_launches.can_be_recorded(self._variant):
                command = [*start, emulated_worker.__name__, str(other.fileno())]
            command.append(str(compiled))
            readable = [source, self._folder]
            # NumPy would start threads when it is loaded, and nothing here needs them.
            extra = {"OPENBLAS_NUM_THREADS": "1", **({} if self._races else emulation.sanitizer_environment())}
        elif self._variant.cpp_source:
            built = cpp_compiler.library(self._variant, self._sandboxed)
            command.append(str(built))
            readable = [source, built]
        elif self._variant.language:
            extra = dict(self._variant.language.interpreter)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **extra}
        parent = os.getpid()
        gpu, folder = how in worker.ON_A_GPU, Path.cwd() if how == worker.DEVICE else Path("/tmp")

        def prepare() -> None:
            end_with_parent(parent)
            sandbox.limit_files()
            if not gpu:  # no timer, whose signal would wake it where it is to stand still
                lower_limit(resource.RLIMIT_SIGPENDING, 0)

        _KNOWN.update(children(os.getpid()))
        process = subprocess.Popen(
            sandbox.wrap(command, extra, readable, gpu=gpu, folder=folder) if self._sandboxed else command,
            stdout=self._words,
            stderr=self._words,
            env={} if self._sandboxed else environment,
            pass_fds=[other.fileno()],
            preexec_fn=prepare,
        )
        other.close()
        _KNOWN.add(process.pid)
        self._death = os.pidfd_open(process.pid)
        return process

    def invalid_answer(self) -> VariantFailure:
        """That an answer is none."""
        return VariantFailure("launch_failed", f"{self._variant.name}: its process answers what no variant's would")

    def _exit_failure(self) -> VariantFailure:
        """How the variant's process ended, in the sanitizer's words where those say it."""
        assert self._process is not None
        self.ended = True
        try:
            code = self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._words.seek(0)
        text = self._words.read(sandbox.WORDS_BYTES).decode(errors="replace")
        if self._sandboxed and code == -signal.SIGKILL:  # nothing inside can reach the sandbox's first process
            raise MachineFault("not judged: the sandbox was killed from outside; is there too little memory?")
        if abs(code) % 128 == signal.SIGKILL and faults.killed_for_memory() > self._killed_before:
            raise MachineFault("not judged: the machine ran out of memory while the variant ran")
        of_course = self._variant.course is not None
        if self._folder and (words := emulation.unsupported_feature(text, self._variant.text, of_course)):
            return VariantFailure("unsupported", f"{self._variant.name}: {words}")
        if words := emulation.sanitizer_message(text):
            if self._races and self.library:
                words = emulation.with_lines(words, self.library)
            return VariantFailure("wrong_result", f"{self._variant.name}: {words}")
        ended = sandbox.describe_exit_inside(code, self._words, self._sandboxed)
        return VariantFailure("launch_failed", f"its process died: {ended}")
