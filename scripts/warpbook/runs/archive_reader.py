"""The files that a run consists of, in a folder or a zip, read within bounds: a run may be anybody's. Sizes are checked
before anything is unpacked: 3 MB of a zip can hold 3 GB. Every failure is a sentence."""

import json
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

from warpbook.common.errors import UserError

ARCHIVE_BYTES = 64 << 20  # a run's own are 15 MiB at most
MEMBER_BYTES = 128 << 20
RECORD_BYTES = 4 << 20


class MissingMember(UserError):
    """A run lacks a file."""


def read(run: Path, name: str, at_most: int = MEMBER_BYTES) -> bytes:
    """The content of a run's file. Raises Missing where it is not there, and UserError where it cannot be read."""
    try:
        return _from_folder(run, name, at_most) if run.is_dir() else _from_zip(run, name, at_most)
    except FileNotFoundError as error:
        raise MissingMember(f"{error.filename} does not exist") from error
    except KeyError as error:
        raise MissingMember(f"{run} lacks {name}: it is no whole run") from error
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise UserError(f"{run} is damaged at {name} ({error}); fetch it again") from error


def _from_folder(run: Path, name: str, at_most: int) -> bytes:
    path = run / name
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is no regular file")
    _check(path.stat().st_size, at_most, str(path))
    return path.read_bytes()


def _from_zip(run: Path, name: str, at_most: int) -> bytes:
    if run.exists() and not run.is_file():
        raise UserError(f"{run} is no regular file")
    _check(run.stat().st_size, ARCHIVE_BYTES, str(run))
    with zipfile.ZipFile(run) as packed:
        entry = packed.getinfo(name)
        if entry.flag_bits & 1:
            raise UserError(f"{run}:{name} is encrypted; pack the run again without a password")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UserError(f"{run}:{name} is compressed by method {entry.compress_type}; pack the run with deflate")
        _check(entry.file_size, at_most, f"{run}:{name}")
        return packed.read(entry)


def _check(size: int, at_most: int, origin: str) -> None:
    if size > at_most:
        raise UserError(f"{origin} holds {size} bytes, more than the {at_most} that are read; it is no run of Warpbook")


def read_json(run: Path, name: str) -> Any:
    """A JSON file of a run whose numbers are finite and within 64 bits; UserError where it is none."""
    content = read(run, name, RECORD_BYTES)
    try:
        return json.loads(content.decode(), parse_int=_integer, parse_float=_real, parse_constant=_real)
    except (ValueError, RecursionError) as error:
        words = "it nests too deep" if isinstance(error, RecursionError) else str(error)
        raise UserError(f"{run} is damaged at {name} ({words}); fetch it again") from error


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else 1 << 64
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"the number {text[:20]} is beyond 64 bits")
    return value


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is not finite")
    return value
