"""Work done in a process of its own while this one goes on."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from warpbook.common import parent_process


@contextmanager
def run_in_background(work: Callable[..., None], *arguments: Any) -> Iterator[None]:
    """Have `work` done in a forked process during the block, or before it; what either raises is raised."""
    if len(os.sched_getaffinity(0)) == 1:
        work(*arguments)
        yield
        return
    # WeasyPrint leaves folders of that name where it is killed; what is in this one is its too.
    with (
        tempfile.TemporaryDirectory(prefix="weasyprint-") as folder,
        _start(folder, work, arguments) as (process, ours),
    ):
        yield
        try:
            failure = ours.recv()
        except EOFError:
            process.join()
            raise MemoryError(f"a process that rendering began has died with status {process.exitcode}") from None
        if failure is not None:
            raise failure


@contextmanager
def _start(
    folder: str, work: Callable[..., None], arguments: tuple[Any, ...]
) -> Iterator[tuple[multiprocessing.process.BaseProcess, Connection]]:
    """A process and what tells its end; with the block it is over. Its temporary files are in `folder`, from where they
    are taken away however it ended."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_do, args=(theirs, folder, work, arguments))
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()  # of which nothing is left to do, or nothing wanted
        process.join()
        ours.close()


def _do(result: Connection, folder: str, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    parent_process.end_with_snakemake()
    tempfile.tempdir = folder
    try:
        work(*arguments)
    except Exception as error:
        result.send(error)
    else:
        result.send(None)
