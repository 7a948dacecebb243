"""One measurement at a time on a machine, whoever starts it and from wherever; one workflow at a time in a folder."""

import fcntl
import os
import pwd
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warpbook.errors import UserError

SAID_AFTER_S = 30
"""Jobs load ahead and wait for the one that measures; a wait as long as one job is normal and not reported."""

# Folders that every user of a machine may write to, Debian's for locks first. TMPDIR is not used: it
# differs between users and jobs of one machine. A container has other folders, and so another lock, unless it is given
# the host's (`--volume /run/lock:/run/lock`).
FOLDERS = (Path("/run/lock"), Path("/dev/shm"), Path("/tmp"))

_held: set[int] = set()


def _forget() -> None:
    """Close a lock's descriptor in children: a child that outlives its parent would keep the lock."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_forget)


def place() -> Path:
    """The machine's lock file, in the first folder here that everybody may write to and nobody may clear."""
    wanted = stat.S_ISVTX | stat.S_IWOTH
    for folder in FOLDERS:
        if folder.is_dir() and folder.stat().st_mode & wanted == wanted:
            return folder / "warpbook-measuring.lock"
    named = ", ".join(map(str, FOLDERS))
    raise UserError(f"no folder for the measuring lock: none of {named} is writable for all and sticky (chmod 1777)")


@contextmanager
def machine(shared: bool = False, path: Path | None = None) -> Iterator[None]:
    """Hold the machine's measuring lock; wait while another process holds it, and say so when that takes long.

    A measurement holds it alone. What may run beside its like but beside no measurement (builds, checks) holds it
    `shared`. The lock ends with the process, however that ends.
    """
    path = path or place()
    handle = _opened(path)
    words = f"another measurement runs on this machine ({path}); waiting for it to end"
    timer = threading.Timer(SAID_AFTER_S, print, [words], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    _held.add(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        timer.cancel()
        yield
    finally:
        timer.cancel()
        if handle in _held:
            _held.remove(handle)
            os.close(handle)


def _opened(path: Path) -> int:
    """The lock file, made where it is missing. Another user's serves as well, for nothing is read from it or written.

    Raises UserError where something else stands in its place: a link is not followed.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    handle: int | None = None
    while handle is None:
        try:
            # Without O_CREAT: Linux refuses that for another user's file in a sticky folder (fs.protected_regular).
            handle = os.open(path, flags)
        except FileNotFoundError:
            handle = _made(path, flags)
        except OSError as error:
            raise UserError(f"{path}, the measuring lock, cannot be opened: {_what(path, error)}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError(f"{path}, the measuring lock, is no regular file; remove it")
    return handle


def _made(path: Path, flags: int) -> int | None:
    """The lock file, just made and readable for all; None where another process was faster."""
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return None
    except OSError as error:
        raise UserError(f"{path}, the measuring lock, cannot be made: {error.strerror}") from error
    os.fchmod(handle, 0o644)  # whatever the umask
    return handle


def _what(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return "it is a symbolic link, which is not followed; remove it"
    if isinstance(error, PermissionError):
        number = path.stat().st_uid
        try:
            owner = pwd.getpwuid(number).pw_name
        except KeyError:
            owner = f"user {number}"
        return f"it belongs to {owner} and may not be read; have {owner} run chmod a+r {path}, or remove it"
    return f"{error.strerror}; remove it"


def folder(path: Path) -> None:
    """Hold a folder's lock, the file `path`, until this process ends. Raises UserError while another process holds it,
    on this machine or, where nodes share the folder, on another.

    The descriptor is left open on purpose: closing it would give the lock back. No program started here inherits it.
    """
    path.parent.mkdir(exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # over NFS, what is locked alone must be open for writing
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:  # the latter over NFS
        os.close(handle)
        raise UserError(f"another snakemake works in this folder ({path}); wait for it to end") from error
    except OSError as error:
        words = f"{path}: this filesystem knows no locks ({error.strerror})"
        print(f"{words}; see that no other snakemake works in this folder", file=sys.stderr)
    _held.add(handle)
