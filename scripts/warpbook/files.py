"""Writing files so that they appear whole or not at all, and hashing them."""

import errno
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warpbook.errors import UserError


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`, moved onto it when the block ends well and removed when it does not.

    The temporary name keeps the suffix, because writers choose a format by it. Raises UserError, naming the
    file, when the disk is full or the folder cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        temporary = scratch / path.name
        yield temporary
        if temporary.is_dir() and path.is_dir():
            shutil.rmtree(path)
        temporary.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES):
            raise _unwritable(path, error) from error
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unwritable(path: Path, error: OSError) -> UserError:
    folder = next((parent for parent in path.parents if parent.exists()), Path())
    try:
        free = f"{shutil.disk_usage(folder).free / 2**20:.0f} MiB free there; "
    except OSError:
        free = ""
    return UserError(f"{path} cannot be written: {error.strerror} ({free}nothing was left half-written)")


def sha256(path: str | Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
