"""The sandbox that a variant's code and its compiler run in: bubblewrap, where it is.

Inside there is no network, no process of outside's, no environment, and of files only the system's programs and
libraries, Python's, the harness's code and what is named, all read-only. Only /tmp and /dev/shm can be written: they
are memory, small, and gone afterwards.
"""

import functools
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from warpbook.errors import UserError
from warpbook.files import PROJECT
from warpbook.harness.supervision import FILE_BYTES

SCRATCH_BYTES = 1 << 30
PROCESSES = 4096  # and threads; the kernel holds root to none, whom `supervised` watches
TRIED_FOR_S = 20

_SYSTEM = ("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/sys/devices/system/cpu")
_LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
# How many threads libraries start is the user's to say.
_PASSED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@functools.cache
def unavailable() -> str:
    """Why there is no sandbox here, tried once a process; empty where there is one."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (apt-get install bubblewrap)"
    try:
        tried = subprocess.run(
            wrapped(["true"]), capture_output=True, text=True, errors="replace", timeout=TRIED_FOR_S, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here ({error})"
    if tried.returncode:
        words = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
        return f"bubblewrap does not work here ({words}); it needs version 0.7 or later and user namespaces"
    return ""


def chosen(setting: str) -> bool:
    """Whether the setting `sandbox`, auto or none, means that there is a sandbox."""
    return setting == "auto" and not unavailable()


def for_strangers(setting: str) -> bool:
    """`chosen` for code of strangers, which runs outside a sandbox only where that is asked for.

    Raises UserError where the setting is auto and there is no sandbox.
    """
    if setting == "auto" and (reason := unavailable()):
        raise UserError(
            f"strangers' kernels run in a sandbox, and there is none here: {reason}. "
            "To run them with your rights all the same, on a machine with nothing to lose, set sandbox=none"
        )
    return chosen(setting)


def wrapped(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    readable: Iterable[Path] = (),
    writable: Iterable[Path] = (),
) -> list[str]:
    """The command that runs `command` in a sandbox where `environment` and some folders are added.

    To be run with no environment: the first process inside is bubblewrap's, and all inside can read what it was given.
    """
    words = [
        shutil.which("bwrap") or "bwrap",
        "--unshare-user",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
    ]
    words += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--uid", "65534", "--gid", "65534", "--proc", "/proc", "--dev", "/dev"]
    for folder in ("/tmp", "/dev/shm"):
        words += ["--size", str(SCRATCH_BYTES), "--tmpfs", folder]
    words += ["--remount-ro", "/dev"]
    for name in _SYSTEM:
        words += ["--ro-bind-try", name, name]
    for name in _LINKED:
        if Path(name).is_symlink():
            words += ["--symlink", str(Path(name).readlink()), name]
        else:
            words += ["--ro-bind-try", name, name]
    for path in [*_python(), *readable]:
        words += ["--ro-bind", str(path), str(path)]
    for path in writable:
        words += ["--bind", str(path), str(path)]
    words += ["--remount-ro", "/", "--chdir", "/tmp", "--clearenv"]
    for name, value in {**_environment(), **(environment or {})}.items():
        words += ["--setenv", name, value]
    return [*words, "--", *map(str, command)]


def bound_files() -> None:
    """Let this process write files of FILE_BYTES and start PROCESSES, and no more."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    allowed = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = PROCESSES if allowed == resource.RLIM_INFINITY else min(allowed, PROCESSES)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _python() -> list[Path]:
    """Folders that this Python's interpreter, its packages and the harness are in."""
    packages = [Path(path) for path in _packages()]
    folders = [Path(sys.base_prefix), Path(sys.prefix), *packages, PROJECT / "scripts"]
    return [folder.absolute() for folder in dict.fromkeys(folders) if folder.is_dir() and folder != Path("/usr")]


def _packages() -> list[str]:
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def _environment() -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "scripts"), *_packages()]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": "/tmp/numba",
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
    }
