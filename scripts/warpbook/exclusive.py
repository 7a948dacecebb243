"""One measurement at a time on a machine, whoever starts it and from wherever."""

import fcntl
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAID_AFTER_S = 30
"""A wait as long as one job's is what jobs that load ahead are made for, and not worth a word."""


@contextmanager
def machine(shared: bool = False) -> Iterator[None]:
    """Hold the machine's measuring lock; wait while another process holds it, and say so when that takes long.

    A measurement holds it alone. What may run beside its like but beside no measurement (builds, checks) holds it
    `shared`. The lock goes with the process however it ends. It also keeps a measurement whose Snakemake was killed,
    and which still runs, from sharing the machine with the one that is started next.
    """
    path = Path(tempfile.gettempdir()) / "warpbook-measuring.lock"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    except PermissionError:  # made by another user whose file we may only read
        handle = os.open(path, os.O_RDONLY)
    words = f"another measurement runs on this machine ({path}); waiting for it to end"
    timer = threading.Timer(SAID_AFTER_S, print, [words], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        timer.cancel()
        yield
    finally:
        timer.cancel()
        os.close(handle)
