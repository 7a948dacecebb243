"""The Snakemake, or the job of it, that a program works for: the program ends with it, however that ends."""

import os
import select
import signal
import threading

SNAKEMAKE = "WARPBOOK_SNAKEMAKE"
"""The environment variable with its process id, which the Snakefile sets for its jobs."""


def end_with_snakemake() -> None:
    """Have this process killed when its Snakemake dies, past the shell between them, if it has one."""
    pid = os.environ.get(SNAKEMAKE)
    if not pid:
        return
    try:
        snakemake = os.pidfd_open(int(pid))
    except ProcessLookupError:  # it died before
        os._exit(1)
    end_with_process(snakemake)


def end_with_process(other: int) -> None:
    """Have this process killed when another ends, whose pidfd `other` is, or a connection with nothing more to say."""
    threading.Thread(target=_wait_for, args=(other,), daemon=True).start()


def _wait_for(other: int) -> None:
    select.select([other], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
