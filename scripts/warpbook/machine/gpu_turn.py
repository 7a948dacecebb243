"""A job's turn at a GPU: the programs that it runs start before the turn and wait for it (`gpu_wait`)."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from warpbook.common.files import scratch_folder
from warpbook.common.supervision import descendants, run_to_end
from warpbook.machine import gpu_pool, gpu_wait, host
from warpbook.runs.schema import Row


class GpuTurn:
    """A job's turn at the GPU: from when its first program is ready for it (`gpu_wait.wait`) to the end of its last."""

    def __init__(self, begin: Callable[[], list[Row]]):
        self._begin = cache(begin)
        self.waited_s = 0.0
        """How long programs waited for it in all."""

    def report_rows(self, rows: Iterable[Row]) -> None:
        """Hand in what the job made, by which its GPU is judged: see `gpu_pool.acquire`."""
        self._begin().extend(rows)

    def run(
        self, command: Sequence[str | Path], timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        """`run_to_end` of a command that the program is part of. Its time counts from the turn on."""
        with (
            # Not in TMPDIR: the address of a socket has 107 characters at most.
            scratch_folder(Path("/tmp")) as folder,
            socket.socket(socket.AF_UNIX) as door,
            ExitStack() as held,
        ):
            address = str(folder / "turn")
            door.bind(address)
            door.listen(1)
            door.setblocking(False)

            def begins() -> bool:
                try:
                    program = held.enter_context(door.accept()[0])
                except BlockingIOError:
                    return False
                asked = time.perf_counter()
                self._begin()
                self.waited_s += time.perf_counter() - asked
                gpu_pool.keep_to_own_cores(descendants(os.getpid()))  # who started the program among them
                seen = {name: os.environ[name] for name in (host.VISIBLE,) if name in os.environ}
                with suppress(BrokenPipeError):  # it ended meanwhile
                    program.sendall(f"{json.dumps(seen)}\n".encode())
                return True

            return run_to_end(command, timeout_s, {**(environment or os.environ), gpu_wait.JOB: address}, ready=begins)


@contextmanager
def hold_turn(out: Path) -> Iterator[GpuTurn]:
    """The turn of the job that makes a part `out` of a run, given back at the end of the block."""
    with ExitStack() as held:
        yield GpuTurn(lambda: held.enter_context(gpu_pool.acquire("gpu", out)))
