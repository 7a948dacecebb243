"""One measurement at a time on a machine, whoever starts it and from wherever."""

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def machine() -> Iterator[None]:
    """Hold the machine's measuring lock; wait, and say so, while another process holds it.

    The lock goes with the process however it ends. It also keeps a measurement whose Snakemake was killed, and which
    still runs, from sharing the machine with the one that is started next.
    """
    path = Path(tempfile.gettempdir()) / "warpbook-measuring.lock"
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CREAT, 0o666)
    except PermissionError:  # made by another user whose file we may only read
        handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                f"another measurement runs on this machine ({path}); waiting for it to end", file=sys.stderr, flush=True
            )
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
