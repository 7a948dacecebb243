"""What a job on a GPU does before its turn, so that the GPU does not wait for it: imports, and programs' start.

None of the modules imported here touches CUDA when it is imported, which would not survive the fork of the process that
measures.
"""

import importlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from warpbook import machine, sharing, turns
from warpbook.files import scratch_folder
from warpbook.harness.supervision import descendants, run_to_end
from warpbook.table import Row


def load(*packages: str) -> None:
    """Import packages that variants require, those that are here, and then the harness for GPUs.

    PyTorch does not load after NVRTC, which exports clashing C++ symbols: hence the order.
    """
    for package in filter(None, packages):
        with suppress(Exception):  # who needs it imports it again, and says what is wrong with it
            importlib.import_module(package)
    import numpy.ma  # noqa: F401  # which numpy.median imports when it is first called

    from warpbook.harness import gpu  # noqa: F401


class Turn:
    """A job's turn at the GPU: it begins when the first program that the job runs is ready for it (`turns.wait`), and
    lasts for all that the job runs."""

    def __init__(self, begin: Callable[[], list[Row]]):
        self._begin = cache(begin)
        self.waited_s = 0.0
        """How long programs waited for it in all."""

    def keep(self, rows: Iterable[Row]) -> None:
        """Hand in what the job made, by which its GPU is judged: see `sharing.held`."""
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
                sharing.keep_to_own_cores(descendants(os.getpid()))  # who started the program among them
                seen = {name: os.environ[name] for name in (machine.VISIBLE,) if name in os.environ}
                with suppress(BrokenPipeError):  # it ended meanwhile
                    program.sendall(f"{json.dumps(seen)}\n".encode())
                return True

            return run_to_end(command, timeout_s, {**(environment or os.environ), turns.JOB: address}, ready=begins)


@contextmanager
def turn(out: Path) -> Iterator[Turn]:
    """The turn of the job that makes a part `out` of a run, given back at the end of the block."""
    with ExitStack() as held:
        yield Turn(lambda: held.enter_context(sharing.held("gpu", out)))
