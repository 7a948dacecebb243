"""Files written whole or not at all, and their hashes."""

import errno
import fcntl
import hashlib
import os
import re
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType

from warpbook.common.errors import MachineFault, UserError

PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = PACKAGE / "_library"
LIBRARY = _INSTALLED if _INSTALLED.is_dir() else PACKAGE.parents[1]
"""Folder of what Warpbook brings: Snakefile, rules, programs, kernels, templates, weights, runs. A clone, or the data of
the installed package."""

PROJECT_VARIABLE = "WARPBOOK_PROJECT"
"""The environment variable with the project's folder, where that is not the clone."""

PROJECT = Path(os.environ.get(PROJECT_VARIABLE) or (Path.cwd() if LIBRARY == _INSTALLED else LIBRARY))
"""Folder of the user's kernels, configuration, results and reports: a notebook folder, or the clone itself."""

SUBMISSION_VARIABLE = "WARPBOOK_SUBMISSION"
"""The environment variable that is set where the project is a submission's, whose code includes none of the library's."""

IN_CLONE = LIBRARY == PROJECT
COMMAND = "snakemake --cores 1" if IN_CLONE else "warpbook"
"""How a command that people may type next begins: one of the clone's Snakemake, or of the installed Warpbook."""
RUN = f".venv/bin/{COMMAND}" if IN_CLONE else COMMAND
"""The same with the program's path, to be pasted."""
OF_STUDY = "--config study=" if IN_CLONE else "--study "
"""What stands in such a command before a study's name."""

_DISK_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)


class _AsItIs(SourceFileLoader):
    """Compiles a file at every import. Python's cached bytecode counts as current while the file's size and its time of
    change in whole seconds are the same, and it would stand in the user's folder."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def new_module(name: str, path: Path) -> tuple[ModuleType, Callable[[ModuleType], None]]:
    """A user's Python file as a module, and what executes it."""
    loader = _AsItIs(name, str(path))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    return module_from_spec(spec), loader.exec_module


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """A temporary path with the suffix of `path`, moved onto it when the block ends well and removed when it does not.
    Raises UserError, naming the file, when it cannot be written."""
    path = Path(path)
    with disk_failures_named(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # whatever it is: in /proc, that there is no such folder
            raise _unwritable(path, error) from error
        with _scratch_folder(f".{path.name}.", path.parent) as scratch:
            temporary = scratch / path.name
            yield temporary
            _sync_to_disk(temporary)
            if temporary.is_dir() and path.is_dir():
                shutil.rmtree(path)
            temporary.replace(path)


@contextmanager
def disk_failures_named(path: Path) -> Iterator[None]:
    """Have a disk's refusal in the block be a UserError that names what cannot be written."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if cause := disk_failure(error):
            raise _unwritable(path, cause) from error
        raise


def _sync_to_disk(written: Path) -> None:
    """Have the disk hold a file, or all files of a folder, before it gets its name: a machine that loses its power
    keeps the name and not what is still in memory."""
    for path in [written, *written.rglob("*")]:
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A temporary folder, in TMPDIR or `parent`, gone when the block ends. UserError where none can be made."""
    parent = parent or Path(tempfile.gettempdir())
    with ExitStack() as held:
        try:
            folder = held.enter_context(_scratch_folder("warpbook-", parent))
        except OSError as error:
            raise _unwritable(parent / "warpbook-...", error) from error
        yield folder


@contextmanager
def _scratch_folder(prefix: str, parent: Path) -> Iterator[Path]:
    """A folder in `parent` for temporary files, removed with those of killed processes when the block ends."""
    _sweep(prefix, parent)
    with ExitStack() as held:
        while True:
            scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            held.callback(shutil.rmtree, scratch, ignore_errors=True)
            try:
                held.callback(os.close, _lock_folder(scratch))
            except (FileNotFoundError, BlockingIOError):
                continue  # another process swept it, just made and not yet locked
            except OSError:
                break  # this file system knows no locks: nobody sweeps here
            if scratch.exists():
                break
        yield scratch


def _sweep(prefix: str, parent: Path) -> None:
    name = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}(\.swept)?")  # as mkdtemp ends it
    for left in parent.iterdir():
        if name.fullmatch(left.name):
            with suppress(OSError):  # in use, another user's, or gone meanwhile
                lock = _lock_folder(left)
                # Over NFS no open file can be removed; a process that just made the folder must not find it unlocked.
                swept = left.rename(left.with_name(left.name.removesuffix(".swept") + ".swept"))
                os.close(lock)
                shutil.rmtree(swept, ignore_errors=True)


def _lock_folder(folder: Path) -> int:
    """The descriptor of a folder's locked lock file (NFS locks no folder). BlockingIOError if another holds it."""
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        handle = os.open(".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=inside)
    finally:
        os.close(inside)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except PermissionError as error:  # over NFS
        os.close(handle)
        raise BlockingIOError(error.errno, error.strerror) from error
    except OSError:
        os.close(handle)
        raise
    return handle


def disk_failure(error: BaseException | None) -> OSError | None:
    """The disk's refusal to be written to that an exception is, or, as writers raise more on top, came of."""
    while error:
        if isinstance(error, OSError) and error.errno in _DISK_FAILURES:
            return error
        error = error.__context__
    return None


def size_limit(wanted_bytes: int | None = None) -> str:
    """The limit that this process has on the size of a file, as a sentence; empty where it has none below what is wanted."""
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if allowed == resource.RLIM_INFINITY or (wanted_bytes and allowed >= wanted_bytes):
        return ""
    return f"the limit on a file's size is {allowed >> 10} KiB (ulimit -f unlimited)"


def _unwritable(path: Path, error: OSError) -> MachineFault:
    folder = next((parent for parent in path.parents if parent.exists()), Path())
    try:
        free = f"{shutil.disk_usage(folder).free / 2**20:.0f} MiB free there; "
    except OSError:
        free = ""
    if error.errno == errno.EFBIG:
        free = f"{size_limit()}; "
    return MachineFault(f"{path} cannot be written: {error.strerror} ({free}nothing was left half-written)")


def both_folders(name: str) -> tuple[Path, ...]:
    """A folder by its path in the project: the project's own, then the library's where that is another."""
    return tuple(dict.fromkeys((PROJECT / name, LIBRARY / name)))


def find_file(name: str, folders: Iterable[Path] = both_folders("")) -> Path:
    """A file by its path in one of some folders, the project's own before the library's; else in the first."""
    paths = [folder / name for folder in folders]
    return next((path for path in paths if path.exists()), paths[0])


def twin(folder: Path) -> list[Path]:
    """The library's folder of the same path as one of the project's; none where there is no other."""
    there = LIBRARY / folder.relative_to(PROJECT) if folder.is_relative_to(PROJECT) else folder
    return [there] if there != folder and there.is_dir() else []


def from_project(path: Path) -> str:
    """A path as commands name it: from the project's folder where it lies within."""
    return str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path)


def display_path(path: Path) -> str:
    """A path for people: from the project's folder, or the library's, where it lies within."""
    return str(path.relative_to(LIBRARY)) if path.is_relative_to(LIBRARY) else from_project(path)


def sha256(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
