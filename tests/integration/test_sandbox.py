"""What a variant's code can do to the machine and to its verdict while it is checked, seen from outside."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from warpbook.common.errors import UserError
from warpbook.common.files import LIBRARY
from warpbook.harness import sandbox
from warpbook.harness.attacks import attack_registry
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants
from warpbook.runs import tables

needs_sandbox = pytest.mark.skipif(bool(sandbox.unavailable_reason()), reason=sandbox.unavailable_reason())
needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)
# Each attack is made outside the sandbox too, where it does its harm: one that never could shows nothing.
either = pytest.mark.parametrize("setting", [pytest.param("auto", marks=needs_sandbox), "none"])

RIGHT = "y[...] = convolve(x, w)"


def checked(folder: Path, setting: str = "auto", device: str = "cpu"):
    """The rows of checking the variant `mine` of a folder."""
    out = folder.parent / f"{folder.name}.csv"
    command = [sys.executable, attack_registry.CHECK, "--device", device, "--kernels", folder, "--variant", "mine"]
    command += ["--cases", "fa17", "--sizes", "1", "--timeout", "60", "--sandbox", setting, "--out", out]
    subprocess.run(command, check=True, capture_output=True)
    return tables.CORRECTNESS.rows(out)


def failure(rows) -> dict[str, str]:
    first = tables.first_failure(rows)
    assert first, "it passed"
    return first


@needs_sandbox
def test_a_folder_that_is_a_link_among_the_system_s_can_be_named_as_readable():
    link = next(path for path in Path("/usr").glob("*/*") if path.is_symlink() and path.is_dir())
    done = subprocess.run(sandbox.wrap(["ls", link], readable=[link]), capture_output=True, text=True, env={})
    assert (done.returncode, done.stderr) == (0, "")


@needs_sandbox
@pytest.mark.skipif(os.geteuid() != 0, reason="only root owns files of /proc")
@pytest.mark.parametrize("gpu", [False, True])
def test_nothing_of_the_machine_s_settings_can_be_written_where_root_runs_a_variant(gpu):
    attempt = ["sh", "-c", "find /proc/sys -writable -type f; true >> /proc/sys/kernel/core_pattern"]
    done = subprocess.run(sandbox.wrap(attempt, gpu=gpu), capture_output=True, text=True, env={})
    assert (done.stdout, done.returncode != 0) == ("", True), done.stdout[:200]


@either
@needs_compiler
def test_a_kernel_that_calls_system_reaches_no_file_outside(setting, tmp_path):
    kernels, mark = tmp_path / "kernels", tmp_path / "mark"
    kernels.mkdir()
    text = (variants.FOLDER / "direct.cu").read_text()
    first = "blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x + threadIdx.y + threadIdx.z == 0"
    call = f'if ({first}) {{ system("echo from $(id -u) > {mark}"); system("rm -r {kernels}/*"); }}'
    text = text.replace("*/", "*/\n#include <stdlib.h>\n", 1).replace(
        attack_registry.STORE, f"{call} {attack_registry.STORE}"
    )
    (kernels / "mine.cu").write_text(text)
    rows = checked(kernels, setting, "emulator")
    assert mark.exists() == (setting == "none")
    assert (kernels / "mine.cu").exists() == (setting == "auto")
    assert rows


def test_no_file_of_a_notebook_folder_takes_the_place_of_a_package(cpu_variant, tmp_path, monkeypatch):
    program, notebook, kernels = LIBRARY / "scripts" / "new.py", tmp_path / "notebook", tmp_path / "kernels"
    subprocess.run(
        [sys.executable, program, "notebook", notebook, "--problem", "gemm"], check=True, capture_output=True
    )
    (notebook / "numpy.py").write_text("open('mark', 'w')\nraise SystemExit(1)\n")
    kernels.mkdir()
    (kernels / "mine.py").write_text(cpu_variant(RIGHT).launcher.read_text())
    monkeypatch.chdir(notebook)
    assert all(row["ok"] for row in checked(kernels, "none"))
    command = ["-P", "-c", "from warpbook.command_line import app; app()", "check", "--dry-run"]
    environment = {**os.environ, "PYTHONPATH": str(LIBRARY / "scripts")}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    assert (done.returncode, (notebook / "mark").exists()) == (0, False), done.stderr


def test_the_begin_of_a_long_reason_is_told(cpu_variant, tmp_path):
    cpu_variant("raise ValueError('long' * 10**6)")
    assert "ValueError: longlong" in failure(checked(tmp_path, "none"))["reason"]


REACHES = """
import glob, os, socket

def attempt(act):
    try:
        return act()
    except OSError as error:
        return type(error).__name__

def secrets():
    seen = set()
    for path in glob.glob("/proc/*/environ"):
        try:
            seen |= {word for word in open(path).read().split("\\0") if word.startswith("WARPBOOK_SECRET=")}
        except OSError:
            pass
    return sorted(seen)

def write():
    open(MARK, "w").close()

def connect():
    socket.create_connection(("127.0.0.1", PORT), 5).close()

done = [attempt(write), attempt(connect), attempt(lambda: os.kill(BYSTANDER, 9)), secrets(), os.path.exists(LETTER)]
raise RuntimeError(f"reached {done}")
"""


@either
def test_a_launcher_reaches_no_file_network_process_or_environment_of_its_user(
    setting, cpu_variant, tmp_path, monkeypatch
):
    monkeypatch.setenv("WARPBOOK_SECRET", "a")
    mark, letter, folder = tmp_path / "mark", tmp_path / "letter", tmp_path / "kernels"
    letter.touch()
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server, subprocess.Popen(["sleep", "60"]) as bystander:
        names = {"MARK": mark, "LETTER": letter, "PORT": server.getsockname()[1], "BYSTANDER": bystander.pid}
        given = "".join(
            f"{name} = {value if isinstance(value, int) else str(value)!r}\n" for name, value in names.items()
        )
        (folder / "mine.py").write_text(cpu_variant(RIGHT, before=given + REACHES).launcher.read_text())
        reason = failure(checked(folder, setting))["reason"]
        server.settimeout(0.5)
        try:
            server.accept()[0].close()
            connected = True
        except TimeoutError:
            connected = False
        alive = bystander.poll() is None
        bystander.kill()
    harmed = setting == "none"
    assert (mark.exists(), connected, not alive) == (harmed,) * 3
    assert ("reached [None, None, None, ['WARPBOOK_SECRET=a'], True]" in reason) == harmed
    assert bool(re.search(r"reached \[.+, '\w+', 'ProcessLookupError', \[\], False\]", reason)) != harmed


@either
def test_a_launcher_that_kills_its_parent_is_a_failure_that_is_told_or_none(setting, cpu_variant, tmp_path):
    cpu_variant(RIGHT, before="import os\nos.kill(os.getppid(), 9)")
    rows = checked(tmp_path, setting)
    if setting == "none":
        assert "its process died: SIGKILL" in failure(rows)["reason"]
    else:
        assert all(row["ok"] for row in rows)  # its parent is the first process inside, which no process inside kills


FORKS = """
import os, time
for _ in range(600):
    if os.fork() == 0:
        time.sleep(50)
        os._exit(0)
time.sleep(50)
"""


@either
def test_a_launcher_that_forks_without_end_is_stopped_and_leaves_nothing(setting, cpu_variant, tmp_path):
    cpu_variant(RIGHT, before=FORKS)
    assert "processes, more than the 256" in failure(checked(tmp_path, setting))["reason"]
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)]
    assert not left


# Each child forks the next, and nine that wait: so slowly that many looks are taken before they stop by themselves, and
# of a depth that Linux still forks at once from.
BOMB = """
import os, time
for _ in range(100):
    for _ in range(9):
        if os.fork() == 0:
            time.sleep(50)
            os._exit(0)
    if os.fork():
        break
    time.sleep(0.04)
time.sleep(50)
"""


@needs_sandbox
def test_a_launcher_whose_children_fork_too_is_stopped_before_they_are_thousands(cpu_variant, tmp_path):
    cpu_variant(RIGHT, before=BOMB)
    reason = failure(checked(tmp_path))["reason"]
    told = re.search(r"it runs (\d+) processes, more than the 256", reason)
    assert told, reason
    assert int(told[1]) < 1000, "they stopped by themselves: nothing was tested"
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(path)]
    assert not left


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


JUDGES = """
from warpbook.harness import reference
from warpbook.harness import checking
row = dict(max_abs_err=0.0, rel_l2_err=0.0, tolerance=0.0, worst_ratio=0.0, mismatched_labels=None)
checking.comparison_columns = lambda *_: {**row, "ok": True, "status": "ok", "reason": ""}
checking.reject_replaced_functions = lambda *_: None
checking.guarded_call = lambda bench, variant, operation, buffers, *_: buffers.output_values
reference.difference = lambda *_: reference.Difference(0, 0, 0, 0, 0)
"""
NO_ANSWER = "answers what no variant's would"
ANSWERS = """
import os, socket
def answer():
    for number in range(3, 64):
        try:
            socket.socket(fileno=os.dup(number)).send(ANSWER)
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    ("setting", "before", "body", "words"),
    [
        pytest.param("auto", JUDGES, "y[...] = 0", "must be exact on small integers", marks=needs_sandbox),
        ("none", JUDGES, "y[...] = 0", "must be exact on small integers"),
        ("none", ANSWERS.replace("ANSWER", 'b"{}"'), "answer(); import time; time.sleep(0.3)", NO_ANSWER),
        ("none", ANSWERS.replace("ANSWER", "b'{\"ok\": true}'"), "answer(); import os; os._exit(0)", NO_ANSWER),
        ("none", ANSWERS.replace("ANSWER", 'b"[" * 90000'), "answer()", NO_ANSWER),
    ],
    ids=["patches the judge, inside", "patches the judge", "answers early", "answers and leaves", "nests"],
)
def test_a_launcher_cannot_write_its_verdict(setting, before, body, words, cpu_variant, tmp_path):
    cpu_variant(body, before=before)
    assert words in failure(checked(tmp_path, setting))["reason"]


@either
@needs_compiler
def test_a_source_includes_no_file_of_its_user(setting, tmp_path):
    (tmp_path / "letter").write_text("secret words\n")
    folder = tmp_path / "kernels"
    folder.mkdir()
    text = (variants.FOLDER / "direct.cu").read_text()
    (folder / "mine.cu").write_text(text.replace("*/", f'*/\n#include "{tmp_path}/letter"\n', 1))
    rows = checked(folder, setting, "emulator")
    assert {row["status"] for row in rows} == {"ok"}  # what is no header of CUDA's or beside the source is left out


def test_code_of_strangers_is_refused_without_a_sandbox_unless_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(sandbox, "unavailable_reason", lambda: "there is none")
    with pytest.raises(UserError, match=r"there is none here: there is none\. .* set sandbox=none"):
        sandbox.require_for_untrusted("auto")
    assert sandbox.require_for_untrusted("none") is False
    monkeypatch.setattr(sandbox, "unavailable_reason", lambda: "")
    assert sandbox.require_for_untrusted("auto") is True


def test_why_there_is_no_sandbox_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install bubblewrap" in sandbox.unavailable_reason.__wrapped__()
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    assert "(bwrap: No permissions to create new namespace)" in sandbox.unavailable_reason.__wrapped__()


def test_a_job_s_gpu_is_the_one_that_is_seen_in_its_sandbox(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5")
    words = sandbox.wrap(["true"], gpu=True)
    assert words[words.index("CUDA_VISIBLE_DEVICES") - 1 :][:3] == ["--setenv", "CUDA_VISIBLE_DEVICES", "GPU-5"]


@needs_sandbox
def test_packages_that_pythonpath_names_are_in_the_sandbox_and_no_other_folder_of_it(monkeypatch, tmp_path):
    (tmp_path / "mine.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    def found_beside(name: str) -> bool:
        (tmp_path / name).mkdir()
        command = sandbox.wrap([sys.executable, "-c", "import mine"])
        return subprocess.run(command, env={}, stderr=subprocess.DEVNULL).returncode == 0

    assert not found_beside("papers")
    assert found_beside("mine-1.0.dist-info")
