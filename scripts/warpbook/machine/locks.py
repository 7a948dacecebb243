"""One measurement at a time on a machine, or on each of several GPUs, whoever starts it and from wherever; one workflow
at a time in a folder.

Two files decide, in a folder that everybody may write to, and each GPU has one more:

- Whoever needs the machine alone (a timing of the CPU, the machine's description, a timing on its one GPU) holds its
  lock alone. All others hold it shared.
- Whoever needs one of several GPUs holds that GPU's lock too: a measurement alone, a check beside its like.
- Builds, and checks on the CPU, hold the lock of every GPU shared: they take every core that they get, and the cores
  are shared out to the GPUs' measurements, of which none runs meanwhile. A build waits for those that run, and those
  behind it wait for the build, which the kernel serves first: they only look in from time to time.
- Who waits for the machine alone keeps the next turn's lock, behind which the next measurements on GPUs stay: they
  follow each other without a gap and would never leave the machine.
"""

import fcntl
import os
import pwd
import random
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from warpbook.common.errors import UserError

ANNOUNCE_AFTER_S = 30
"""Jobs load ahead and wait for the one that measures; a wait as long as one job is normal and not reported."""

# Folders that every user of a machine may write to, Debian's for locks first. TMPDIR is not used: it
# differs between users and jobs of one machine. A container has other folders, and so another lock, unless it is given
# the host's (`--volume /run/lock:/run/lock`).
FOLDERS = (Path("/run/lock"), Path("/dev/shm"), Path("/tmp"))
LOCKS_VARIABLE = "WARPBOOK_LOCKS"
"""The environment variable with a folder in place of these, for whoever's times are no figures: the test suite's two
workers have one each, and do not wait for each other."""
NEXT = "warpbook-next.lock"
DEVICE = "warpbook-gpu-"  # and the first digits of its UUID's hash: it has another index in each container and program
POLL_INTERVAL_S = 0.1

_held: set[int] = set()


def _close_in_child() -> None:
    """Close a lock's descriptor in children: a child that outlives its parent would keep the lock."""
    for handle in _held:
        os.close(handle)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)


def lock_path() -> Path:
    """The machine's lock file, in the first folder here that everybody may write to and nobody may clear."""
    wanted = stat.S_ISVTX | stat.S_IWOTH
    folders = (Path(os.environ[LOCKS_VARIABLE]),) if os.environ.get(LOCKS_VARIABLE) else FOLDERS
    for folder in folders:
        if folder.is_dir() and folder.stat().st_mode & wanted == wanted:
            return folder / "warpbook-measuring.lock"
    named = ", ".join(map(str, folders))
    raise UserError(f"no folder for the measuring lock: none of {named} is writable for all and sticky (chmod 1777)")


@contextmanager
def lock_machine(shared: bool = False, path: Path | None = None) -> Iterator[None]:
    """Hold the machine's measuring lock; wait while another process holds it, and say so when that takes long. A
    measurement holds it alone. What may run beside its like but beside no measurement (builds, checks) holds it
    `shared`. The lock ends with the process, however that ends."""
    path = path or lock_path()
    with ExitStack() as held:
        with _announcing(path):
            if shared:
                _take(held, path, fcntl.LOCK_SH)
                for gpu in sorted(path.parent.glob(f"{DEVICE}*.lock")):
                    _take(held, gpu, fcntl.LOCK_SH)
            else:
                with ExitStack() as turn:
                    _take(turn, path.with_name(NEXT), fcntl.LOCK_EX)
                    _take(held, path, fcntl.LOCK_EX)
        yield


@contextmanager
def lock_gpu(uuids_sha256: Sequence[str], shared: bool = False, path: Path | None = None) -> Iterator[int]:
    """Hold one of several GPUs, whichever is free first, and yield its place among them; wait and say so as
    `lock_machine`. A measurement holds it alone; a check holds it `shared`, beside other checks."""
    path = path or lock_path()
    gpus = [path.with_name(f"{DEVICE}{uuid[:12]}.lock") for uuid in uuids_sha256]
    with ExitStack() as held:
        with _announcing(path):
            with ExitStack() as turn:
                _take(turn, path.with_name(NEXT), fcntl.LOCK_EX)
                if not all(gpu.exists() for gpu in gpus):
                    with ExitStack() as alone:  # a build that listed the GPUs before would not hold these
                        _take(alone, path, fcntl.LOCK_EX)
                        for gpu in gpus:
                            os.close(_open_file(gpu))
                _take(held, path, fcntl.LOCK_SH)
            handles = [held.enter_context(_open(gpu)) for gpu in gpus]
            while (taken := _first_free(handles, shared)) is None:
                time.sleep(POLL_INTERVAL_S)
        yield taken


def _first_free(handles: list[int], shared: bool) -> int | None:
    """The place of a lock that is held from now on; None where all are held by others."""
    for number, handle in enumerate(handles):
        # Checks too look for a GPU that nobody has, and then share it: so they spread.
        if _is_taken(handle, fcntl.LOCK_EX) and (not shared or _is_taken(handle, fcntl.LOCK_SH)):
            return number
    anyhow = random.sample(range(len(handles)), len(handles)) if shared else []
    return next((number for number in anyhow if _is_taken(handles[number], fcntl.LOCK_SH)), None)


def _is_taken(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take(held: ExitStack, path: Path, how: int) -> None:
    fcntl.flock(held.enter_context(_open(path)), how)


@contextmanager
def _open(path: Path) -> Iterator[int]:
    """A lock file's descriptor; who closes it gives the lock back."""
    handle = _open_file(path)
    _held.add(handle)
    try:
        yield handle
    finally:
        if handle in _held:
            _held.remove(handle)
            os.close(handle)


@contextmanager
def _announcing(path: Path) -> Iterator[None]:
    """Say that something is waited for, when that takes long."""
    words = f"another measurement runs on this machine ({path}); waiting for it to end"
    timer = threading.Timer(ANNOUNCE_AFTER_S, print, [words], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _open_file(path: Path) -> int:
    """The lock file, made where it is missing. Another user's serves as well, for nothing is read from it or written.
    Raises UserError where something else stands in its place: a link is not followed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    handle: int | None = None
    while handle is None:
        try:
            # Without O_CREAT: Linux refuses that for another user's file in a sticky folder (fs.protected_regular).
            handle = os.open(path, flags)
        except FileNotFoundError:
            handle = _create_file(path, flags)
        except OSError as error:
            raise UserError(
                f"{path}, the measuring lock, cannot be opened: {_describe_failure(path, error)}"
            ) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError(f"{path}, the measuring lock, is no regular file; remove it")
    return handle


def _create_file(path: Path, flags: int) -> int | None:
    """The lock file, just made and readable for all; None where another process was faster."""
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return None
    except OSError as error:
        raise UserError(f"{path}, the measuring lock, cannot be made: {error.strerror}") from error
    os.fchmod(handle, 0o644)  # whatever the umask
    return handle


def _describe_failure(path: Path, error: OSError) -> str:
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


def lock_folder(path: Path) -> None:
    """Hold a folder's lock, the file `path`, until this process ends. Raises UserError while another process holds it,
    on this machine or, where nodes share the folder, on another. The descriptor is left open on purpose: closing it
    would give the lock back. No program started here inherits it."""
    try:
        path.parent.mkdir(exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # over NFS, what is locked alone must be open for writing
    except OSError as error:
        raise UserError(f"{path.parent}/ cannot be written: {error.strerror}; give yourself the right to") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:  # the latter over NFS
        os.close(handle)
        raise UserError(f"another snakemake works in this folder ({path}); wait for it to end") from error
    except OSError as error:
        words = f"{path}: this filesystem knows no locks ({error.strerror})"
        print(f"{words}; see that no other snakemake works in this folder", file=sys.stderr)
    _held.add(handle)
