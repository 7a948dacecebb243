"""The sandbox that a variant's code and its compiler run in: bubblewrap, where it is.

Inside there is no network, no process of outside's, no environment, and of files only the system's programs and
libraries, Python's, the harness's code and what is named, all read-only. Only /tmp and /dev/shm can be written: they
are memory, small, and gone afterwards. With a GPU inside there are its device files and what the driver tells of it.
"""

import contextlib
import functools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from warpbook.common.errors import UserError
from warpbook.common.files import LIBRARY, PACKAGE, PROJECT, PROJECT_VARIABLE, SUBMISSION_VARIABLE
from warpbook.common.supervision import FILE_BYTES, VariantFailure, describe_exit, end_with_parent, lower_limit
from warpbook.kernels import sources
from warpbook.machine import host
from warpbook.problems import networks, problem

SETTINGS = ("auto", "all", "none")  # of `sandbox` in config.yaml
SCRATCH_BYTES = 1 << 30
PROCESSES = 4096  # and threads; the kernel holds root to none, whom `supervised` watches
TRIAL_TIMEOUT_S = 20
ANSWER_BYTES = 64 << 20  # of one answer
WORDS_BYTES = 64 << 10  # of what a variant's process writes to stderr
REASON_CHARACTERS = 2000
STATUSES = ("compile_failed", "launch_failed", "unsupported", "wrong_result", "refused")

_SYSTEM = ("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/sys/devices/system/cpu")
_OF_A_GPU = ("/sys", "/run/nvidia-persistenced")
_LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
# How many threads libraries start is the user's to say, and what the compiler is called; also passed are which GPU the
# job has, and which networks there are.
_PASSED = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "CXX", host.VISIBLE,
    "CUDA_DEVICE_ORDER", networks.CONFIGURATION_VARIABLE, SUBMISSION_VARIABLE,
)  # fmt: skip
_CONFIGURATION = (PROJECT / "config.yaml", LIBRARY / "config.yaml", LIBRARY / "pyproject.toml")


@functools.cache
def unavailable_reason() -> str:
    """Why there is no sandbox here, tried once a process; empty where there is one."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (apt-get install bubblewrap)"
    try:
        tried = subprocess.run(
            wrap(["true"]), capture_output=True, text=True, errors="replace", timeout=TRIAL_TIMEOUT_S, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here ({error})"
    if tried.returncode:
        words = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
        return f"bubblewrap does not work here ({words}); it needs version 0.7 or later and user namespaces"
    return ""


@functools.cache
def gpu_unavailable_reason() -> str:
    """Why the GPU that answers here does not answer in the sandbox, tried once a process; empty where it does."""
    if reason := unavailable_reason():
        return reason
    asks = "from warpbook.machine.cuda_devices import probe; found = probe(); exit(found if type(found) is str else 0)"
    command = wrap([sys.executable, "-c", asks], gpu=True)
    try:
        tried = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TRIAL_TIMEOUT_S, env={}
        )
    except subprocess.TimeoutExpired as error:
        return f"the GPU does not answer in bubblewrap ({error})"
    words = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
    return f"the GPU does not answer in bubblewrap ({words})" if tried.returncode else ""


def why_absent(setting: str, device: str) -> str:
    """Why code for a device (cpu, emulator, gpu) lacks a sandbox that was asked for; empty where it does not."""
    if device != "gpu":
        return unavailable_reason() if setting != "none" else ""
    return gpu_unavailable_reason() if setting == "all" else ""


def is_chosen(setting: str, device: str = "cpu") -> bool:
    """Whether the setting `sandbox` means that code for a device, cpu, emulator or gpu, has a sandbox here: `auto` all
    code but a GPU's, `all` a GPU's too, `none` no code."""
    asked = setting in (("all",) if device == "gpu" else ("auto", "all"))
    return asked and not why_absent(setting, device)


def require_for_untrusted(setting: str, device: str = "cpu") -> bool:
    """`is_chosen` for strangers' code, unsandboxed only where the setting is none. UserError without a sandbox."""
    if setting == "none":
        return False
    if reason := why_absent("all", device):
        raise UserError(
            f"strangers' kernels run in a sandbox, and there is none here: {reason}. "
            "To run them with your rights all the same, on a machine with nothing to lose, set sandbox=none"
        )
    return True


def wrap(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    readable: Iterable[Path] = (),
    writable: Iterable[Path] = (),
    gpu: bool = False,
    folder: Path = Path("/tmp"),
) -> list[str]:
    """The command that runs `command` in a sandbox with `environment` and some files added, from a folder made there.
    Run it with no environment: all inside can read what the first process was given."""
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
    for memory in ("/tmp", "/dev/shm"):
        words += ["--size", str(SCRATCH_BYTES), "--tmpfs", memory]
    for device in sorted(Path("/dev").glob("nvidia*")) if gpu else []:
        words += ["--dev-bind", str(device), str(device)]
    # Root is root inside too, for the files that it owns: /proc/sys sets what the machine runs when a process crashes.
    # What CUDA's driver may write elsewhere in /proc stays.
    words += ["--ro-bind", "/proc/sys", "/proc/sys"] if gpu else ["--remount-ro", "/proc"]
    words += ["--remount-ro", "/dev"]
    for name in (*_SYSTEM, *(_OF_A_GPU if gpu else ())):
        words += ["--ro-bind-try", name, name]
    for name in _LINKED:
        if Path(name).is_symlink():
            words += ["--symlink", str(Path(name).readlink()), name]
        else:
            words += ["--ro-bind-try", name, name]
    for path in [*_python(), *problem.files(), *(path.absolute() for path in readable)]:
        if not path.is_relative_to("/usr"):  # which is there, links in it too, in whose place nothing could be put
            words += ["--ro-bind", str(path), str(path)]
    for path in writable:
        words += ["--bind", str(path), str(path)]
    words += ["--dir", str(folder), "--remount-ro", "/", "--chdir", str(folder), "--clearenv"]
    for name, value in {**_environment(), **(environment or {})}.items():
        words += ["--setenv", name, value]
    return [*words, "--", *map(str, command)]


def results(arguments: Sequence[str | Path], readable: Iterable[Path], gpu: bool = False) -> Iterator[Any]:
    """What one of the project's programs says in the sandbox by `emit`, as it comes: a stranger's answers. `arguments`
    are the program and its own. Raises VariantFailure where it ends otherwise than by its last answer."""
    parent = os.getpid()

    def prepare() -> None:
        end_with_parent(parent)
        limit_files()

    there = [path for path in (*readable, *_CONFIGURATION) if path.exists()]
    known = {networks.CONFIGURATION_VARIABLE: networks.resolved_configuration()}  # it reads no ONNX files inside
    command = wrap([sys.executable, *arguments], known, there, gpu=gpu, folder=Path.cwd())
    with (
        tempfile.TemporaryFile() as words,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words, env={}, preexec_fn=prepare) as process,
    ):
        assert process.stdout is not None
        while line := process.stdout.readline(ANSWER_BYTES):
            try:
                answer = json.loads(line)
                status, reason = answer.get("failed") or ("", "")
            except (ValueError, TypeError, AttributeError, RecursionError):
                raise VariantFailure("launch_failed", "its process answers what no variant's would") from None
            if status:
                raise VariantFailure(status if status in STATUSES else "launch_failed", printable(reason))
            if "end" in answer:
                return
            yield answer.get("item")
        raise VariantFailure("launch_failed", f"its process died: {describe_exit_inside(process.wait(), words)}")


@contextlib.contextmanager
def reject_malformed_answers(what: str) -> Iterator[None]:
    """Raise VariantFailure where reading an answer from the sandbox fails: no honest `what` sends such an answer."""
    try:
        yield
    except (UserError, ValueError, TypeError, KeyError, AttributeError):
        raise VariantFailure("launch_failed", f"its process answers what no {what} would") from None


def emit(items: Iterable[Any]) -> None:
    """Say items that JSON knows, and how they ended, to whoever runs this process in a sandbox (`results`). What a
    variant prints goes to stderr."""
    with os.fdopen(os.dup(1), "w") as judge:
        os.dup2(2, 1)

        def answer(**content: Any) -> None:
            print(json.dumps(content), file=judge, flush=True)

        try:
            for item in items:
                answer(item=item)
            answer(end=True)
        except VariantFailure as failure:
            answer(failed=[failure.status, str(failure)])
        except UserError as error:
            answer(failed=["launch_failed", str(error)])


def printable(words: object) -> str:
    """Words of a stranger's as they may stand in a table."""
    return "".join(filter(str.isprintable, str(words)))[:REASON_CHARACTERS]


def describe_exit_inside(code: int, words: IO[bytes], sandboxed: bool = True) -> str:
    """How a process in the sandbox ended, and the last of what it wrote to a file."""
    if sandboxed and 128 < code <= 128 + signal.SIGRTMAX:
        code = 128 - code  # as bubblewrap tells a signal
    words.seek(0)
    last = printable((words.read(WORDS_BYTES).decode(errors="replace").strip().splitlines() or [""])[-1])
    return f"{describe_exit(code)}{f' ({last})' if last else ''}"


def limit_files() -> None:
    """Let this process write files of FILE_BYTES and start PROCESSES, and no more."""
    lower_limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    lower_limit(resource.RLIMIT_CORE, 0)
    lower_limit(resource.RLIMIT_NPROC, PROCESSES)


def _python() -> list[Path]:
    """Folders that this Python's interpreter, its packages, the harness and what kernels may include are in."""
    packages = [Path(path) for path in _packages()]
    code = (PACKAGE.parent, LIBRARY / "scripts", *sources.INCLUDES)
    folders = [Path(sys.base_prefix), Path(sys.prefix), *packages, *code]
    return [folder.absolute() for folder in dict.fromkeys(folders) if folder.is_dir() and folder != Path("/usr")]


def _packages() -> list[str]:
    """The folders on Python's path that packages are installed in: also those of PYTHONPATH, made by `pip --target`."""
    usual = ("site-packages", "dist-packages")
    return [path for path in sys.path if Path(path).name in usual or any(Path(path).glob("*.dist-info"))]


def _environment() -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *_packages()]),
        PROJECT_VARIABLE: str(PROJECT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": "/tmp/numba",
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
    }
