"""The bench of a variant whose code runs in a process of its own, in a sandbox where there is one.

This process draws the inputs, guards and poisons the buffers and compares; the other (`worker.py`) only computes. They
share memory, and both copy: what is judged lies where the other cannot reach it.
"""

import contextlib
import fcntl
import json
import math
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warpbook.common.errors import MachineFault
from warpbook.common.supervision import (
    WATCH_INTERVAL_S,
    Stopwatch,
    VariantFailure,
    descendants,
    end_with_parent,
    processor_time,
)
from warpbook.harness import cpp_compiler, ece408_worker, sandbox, worker, worker_protocol
from warpbook.harness.bench import CpuBench
from warpbook.harness.emulator import emulation
from warpbook.kernels.variants import Operation, Variant
from warpbook.machine import faults
from warpbook.problems.networks import Network
from warpbook.problems.problem import Case

if TYPE_CHECKING:
    from warpbook.harness.full_size import Sparse

EXIT_TIMEOUT_S, START_TIMEOUT_S = 10, 120


class IsolatedBench(CpuBench):
    """The host, for a CPU variant or, emulated, for a GPU variant compiled into `folder` unless its `library` is there;
    without a folder a file of the course runs on the GPU, its `library` made by nvcc.

    `reversed_order` runs an emulated kernel's blocks and threads from the last to the first: what happens to work in
    one order only is found in the other. With `races` each access of an emulated kernel is looked at for data races, and no
    sanitizer is on. `without_convolution` leaves out a file's `conv_forward_gpu`, `without_kernels` the work of its kernels,
    emulated. `limit_s` is what all calls of a process may take together, by a Stopwatch.
    """

    reference_name = "NumPy float64"

    def __init__(
        self,
        variant: Variant,
        sandboxed: bool,
        folder: Path | None = None,
        library: Path | None = None,
        races: bool = False,
    ):
        self.reversed_order = False
        self.without_convolution = False
        self.without_kernels = False
        self.limit_s: float | None = None
        self.ended = False
        self.noted = ""
        """What may explain a wrong result of the last call, as its process says."""
        self.spent_s = 0.0
        """Processor time of the calls, by this process's own look at the other."""
        self.library = library
        """What it runs, once it is compiled."""
        self._races = races
        self._blocks = np.zeros(1, np.uint64)
        self._variant, self._sandboxed, self._folder = variant, sandboxed, folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "IsolatedBench":
        return self

    def __exit__(self, *_: object) -> None:
        """End the variant's process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def prepare(self, variant: Variant, case: Case) -> Operation:
        arrays = [(case.shape(name), one.dtype) for name, one in case.arrays.items()]
        outputs = len(case.problem.outputs)
        shapes = [list(shape) for shape, _ in arrays[len(arrays) - outputs :]]
        places, returned, size = worker_protocol.layout(arrays, outputs)
        # Behind the arrays, a count of finished blocks, by which one that is slow is told from one that hangs.
        handle, memory = _shared_memory(size + worker_protocol.PAGE_BYTES)
        self._blocks = np.frombuffer(memory, np.uint64, 1, size)
        described = {"case": case.describe(), "arrays": arrays, "outputs": outputs}
        self._ask(handle, None, do="prepare", **described, reverse=self.reversed_order)

        def operation(*values: np.ndarray) -> Any:
            buffers = [_with_margins(array) for array in values]
            regions = [
                np.frombuffer(memory, words.dtype, len(words), place)
                for words, place in zip(buffers, places, strict=True)
            ]
            for region, words in zip(regions, buffers, strict=True):
                region[...] = words
            before_s = self._processor_s()
            answer = self._ask(None, do="call", **self._left_out)
            self.spent_s += self._processor_s() - before_s
            for region, words in zip(regions, buffers, strict=True):
                words[...] = region
            if not all(np.array_equal(region, words) for region, words in zip(regions, buffers, strict=True)):
                raise VariantFailure("wrong_result", f"{variant.name} goes on writing after its call is over")
            self.noted = sandbox.printable(str(answer.get("noted", "")))
            if "shapes" not in answer:
                return None
            if answer["shapes"] != shapes:
                said, expected = str(answer["shapes"])[1:-1][:100], str(shapes)[1:-1]
                raise VariantFailure("wrong_result", f"{variant.name} returns shape {said}, expected {expected}")
            results = tuple(
                np.frombuffer(memory, np.float64, math.prod(shape), place).reshape(shape).copy()
                for shape, place in zip(shapes, returned, strict=True)
            )
            return results if outputs > 1 else results[0]

        return operation

    @property
    def _left_out(self) -> dict[str, Any]:
        """What a request for a call says of what it leaves out."""
        if self._folder and (self.without_kernels or self.without_convolution):
            return {"without": ece408_worker.KERNELS if self.without_kernels else ece408_worker.CONVOLUTION}
        return {"how": "without"} if self.without_convolution else {}

    @property
    def used_s(self) -> float:
        """What its process has had, by a Stopwatch."""
        return self._stopwatch.elapsed_s() if self._process else 0.0

    def _processes(self) -> set[int]:
        """The variant's process, and all that it started."""
        return {self._process.pid, *descendants(self._process.pid)} if self._process else set()

    def _processor_s(self) -> float:
        return sum(processor_time(pid)[0] for pid in self._processes())

    def sample(
        self, sparse: "Sparse", inputs: Mapping[str, np.ndarray], blocks: int, timeout_s: float
    ) -> tuple[int, int]:
        """Run some blocks of each launch of an emulated variant on memory laid out as `sparse` says: a descriptor of that
        memory, to be closed, and how many launches there were."""
        handle, memory = _shared_memory(sparse.size)
        kept = os.dup(handle)
        for name, values in inputs.items():
            place, count = sparse.places[name]
            memory[place : place + count] = np.ascontiguousarray(values).tobytes()
        arrays = [
            [*sparse.places[name], sparse.case.shape(name), one.dtype, name in inputs and sparse.of_batch(name)]
            for name, one in sparse.case.arrays.items()
        ]
        described = {"case": sparse.case.describe(), "arrays": arrays, "outputs": len(sparse.case.problem.outputs)}
        try:
            answer = self._ask(handle, timeout_s, do="sample", blocks=blocks, **described)
            if type(answer.get("launches")) is not int:
                raise self._invalid_answer()
        except VariantFailure:
            os.close(kept)
            raise
        return kept, answer["launches"]

    def round_ms(self, how: str) -> dict[str, float]:
        """Milliseconds of one round of a file of the course, on the arrays of the last call: `course` or `device`, as
        `nvcc.Driver` takes them."""
        times = self._ask(None, do="time", how=how).get("times")
        if not isinstance(times, dict) or not times or not times.keys() <= {"op", "layer", "cold", "hot"}:
            raise self._invalid_answer()
        if not all(type(each) is float and 0 < each < float("inf") for each in times.values()):
            raise self._invalid_answer()
        return dict(times)

    def labels(self, network: Network, parameters: dict[str, np.ndarray], images: np.ndarray) -> np.ndarray:
        """What the variant's inference labels images as."""
        arrays = {"images": images, **parameters}
        begins = np.cumsum([0, *(-(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE for array in arrays.values())])
        handle, memory = _shared_memory(int(begins[-1]))
        facts = []
        for (name, array), begin in zip(arrays.items(), begins.tolist(), strict=False):
            memory[begin : begin + array.nbytes] = np.ascontiguousarray(array).tobytes()
            facts.append([name, array.dtype.str, array.shape, begin])
        answer = self._ask(
            handle, None, do="infer", name=network.name, described=network.description.model_dump(), arrays=facts
        )
        labels = answer.get("labels")
        if not isinstance(labels, list) or len(labels) != len(images) or not all(type(each) is int for each in labels):
            raise self._invalid_answer()
        return np.array([each if 0 <= each < network.classes else -1 for each in labels])

    def _ask(self, handle: int | None, wait_s: float | None = None, /, **request: Any) -> dict[str, Any]:
        """What the variant's process answers. Raises VariantFailure with the fault that it names, or where it is no
        more, or still computes after so many seconds."""
        if self._process is None:
            self._process = self._begin()
            self._stopwatch = Stopwatch(self._processes)
        content = b""
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
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise self._invalid_answer() from None
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
            if (now := int(self._blocks[0])) != blocks:
                moved_s, blocks = spent_s, now
            if spent_s > limit_s:
                self.ended = True
                assert self._process is not None
                self._process.kill()
                words = f"after {limit_s:.0f} s of processor time (timeout_s in config.yaml)"
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
            process = self._start()
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
        how = worker.EMULATED if self._folder else worker.DRIVEN if self._variant.course else worker.HOST
        command = [sys.executable, "-m", worker.__name__, str(other.fileno()), how, self._variant.name, str(source)]
        readable, extra = [source], {}
        if how == worker.DRIVEN:
            assert self.library
            command.append(str(self.library))
            readable = [source, self.library]
        elif self._folder:
            compiled = self.library or emulation.compile_host(self._variant, self._folder, self._sandboxed, self._races)
            self.library = compiled
            if self._variant.course:
                command = [sys.executable, "-m", ece408_worker.__name__, str(other.fileno())]
            command.append(str(compiled))
            readable = [source, self._folder]
            extra = {} if self._races else emulation.sanitizer_environment()
        elif self._variant.cpp_source:
            built = cpp_compiler.library(self._variant, self._sandboxed)
            command.append(str(built))
            readable = [source, built]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **extra}
        parent = os.getpid()

        def prepare() -> None:
            end_with_parent(parent)
            sandbox.limit_files()

        process = subprocess.Popen(
            sandbox.wrap(command, extra, readable, gpu=how == worker.DRIVEN) if self._sandboxed else command,
            stdout=self._words,
            stderr=self._words,
            env={} if self._sandboxed else environment,
            pass_fds=[other.fileno()],
            preexec_fn=prepare,
        )
        other.close()
        self._death = os.pidfd_open(process.pid)
        return process

    def _invalid_answer(self) -> VariantFailure:
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
        if self._folder and (words := emulation.unsupported_feature(text, self._variant.text)):
            return VariantFailure("unsupported", f"{self._variant.name}: {words}")
        if words := emulation.sanitizer_message(text):
            if self._races and self.library:
                words = emulation.with_lines(words, self.library)
            return VariantFailure("wrong_result", f"{self._variant.name}: {words}")
        ended = sandbox.describe_exit_inside(code, self._words, self._sandboxed)
        return VariantFailure("launch_failed", f"its process died: {ended}")


def _with_margins(values: np.ndarray) -> np.ndarray:
    """The words that an array of `allocate_guarded` lies in, with its margins."""
    assert values.base is not None
    return values.base


def _shared_memory(size: int) -> tuple[int, mmap.mmap]:
    """Memory that another process can map, and neither grow nor shrink, which would fault whoever reads it."""
    handle = os.memfd_create("warpbook", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(handle, size)
    fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return handle, mmap.mmap(handle, size)
