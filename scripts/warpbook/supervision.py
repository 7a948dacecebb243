"""A variant's code runs in a child process, so that whatever it does, what was found before is kept and said.

A kernel that never ends cannot be interrupted from within: the wait for it is inside the driver. One that breaks the
process (a wild write on the CPU, a crash in a library) takes it along.
"""

import multiprocessing
import os
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from warpbook.errors import UserError

Item = TypeVar("Item")


class Failed(Exception):
    """A variant's failure: a status of the tables, and the reason."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status = status

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the tables that say so."""
        return {"status": self.status, "reason": str(self)}


def supervised(produce: Callable[[], Iterator[Item]], timeout_s: float) -> Iterator[Item]:
    """What `produce` yields in a child process, as it comes.

    Raises Failed where the next item takes longer than `timeout_s` or the child dies, and a UserError or another
    exception of the child's as it was. The child is forked: nothing of CUDA may have been touched before.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_produce, args=(produce, sender), daemon=True)
    child.start()
    sender.close()
    try:
        while True:
            if not receiver.poll(timeout_s):
                raise Failed("timed_out", f"still running after {timeout_s:g} s (timeout_s in config.yaml)")
            try:
                kind, content = receiver.recv()
            except EOFError:
                child.join()
                raise Failed("launch_failed", f"its process died: {_death(child.exitcode)}") from None
            if kind == "end":
                return
            if kind == "error":
                raise content
            yield content
    finally:
        if child.is_alive():
            child.kill()
        child.join()
        receiver.close()


def run_to_end(command: Sequence[str | Path], timeout_s: float) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a command. Raises TimeoutExpired; all that it started is then killed too."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout_s)
            return process.returncode, out, err
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _produce(produce: Callable[[], Iterator[Item]], sender: Connection) -> None:
    try:
        for item in produce():
            sender.send(("item", item))
        sender.send(("end", None))
    except UserError as error:
        sender.send(("error", error))
    except Exception as error:
        traceback.print_exc()
        sender.send(("error", RuntimeError(f"{type(error).__name__}: {error}")))


def _death(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit status {exitcode}"
