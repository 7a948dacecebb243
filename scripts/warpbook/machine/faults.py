"""What this machine lacks: room on a disk, memory. Its own state says so, for a variant's code can print any words."""

import os
import re
import resource
import tempfile
from pathlib import Path

from warpbook.common.files import size_limit

ROOM_BYTES = 64 << 20  # a compiler's files of one variant take a tenth
MEMORY_BYTES = 1 << 30  # that a compiler and a check should find free


def full_disk(folder: Path) -> str:
    """Why a folder cannot hold ROOM_BYTES more, as a sentence; empty where it can."""
    if limit := size_limit(ROOM_BYTES):
        return limit
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
            file.write(bytes(1 << 20))
            file.flush()
    except OSError as error:
        return (
            f"disk full: {folder} cannot hold {ROOM_BYTES >> 20} MiB more ({error.strerror}); make room, or set TMPDIR"
        )
    return ""


def little_memory() -> str:
    """Why programs get too little memory here, as a sentence; empty where they do not."""
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY and allowed < 2 * MEMORY_BYTES:
        return f"too little memory: the limit on it is {allowed >> 20} MiB (ulimit -v unlimited)"
    found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    if found and int(found[1]) << 10 < MEMORY_BYTES:
        return f"too little memory: {int(found[1]) >> 10} MiB are free; a check needs {MEMORY_BYTES >> 20}"
    return ""


def killed_for_memory() -> int:
    """How many processes this machine has killed because it had no memory left."""
    found = re.search(r"^oom_kill (\d+)", Path("/proc/vmstat").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
