"""What a variant's code can do to the machine and to its verdict while it is checked, seen from outside."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from warpbook.common.errors import UserError
from warpbook.harness import sandbox
from warpbook.harness.attacks import catalog
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants
from warpbook.runs import tables

needs_sandbox = pytest.mark.skipif(bool(sandbox.unavailable()), reason=sandbox.unavailable())
needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)
# Each attack is made outside the sandbox too, where it does its harm: one that never could shows nothing.
either = pytest.mark.parametrize("setting", [pytest.param("auto", marks=needs_sandbox), "none"])

RIGHT = "y[...] = convolve(x, w)"


def checked(folder: Path, setting: str = "auto", device: str = "cpu"):
    """The rows of checking the variant `mine` of a folder."""
    out = folder.parent / f"{folder.name}.csv"
    command = [sys.executable, catalog.CHECK, "--device", device, "--kernels", folder, "--variant", "mine"]
    command += ["--network", "fa17", "--sizes", "1", "--timeout", "60", "--sandbox", setting, "--out", out]
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


@either
@needs_compiler
def test_a_kernel_that_calls_system_reaches_no_file_outside(setting, tmp_path):
    kernels, mark = tmp_path / "kernels", tmp_path / "mark"
    kernels.mkdir()
    text = (variants.FOLDER / "direct.cu").read_text()
    call = f'if (row == 0 && column == 0) {{ system("echo from $(id -u) > {mark}"); system("rm -r {kernels}/*"); }}'
    text = text.replace("*/", "*/\n#include <stdlib.h>\n", 1).replace(catalog.STORE, f"{call} {catalog.STORE}")
    (kernels / "mine.cu").write_text(text)
    rows = checked(kernels, setting, "emulator")
    assert mark.exists() == (setting == "none")
    assert (kernels / "mine.cu").exists() == (setting == "auto")
    assert rows


@either
def test_a_launcher_writes_nothing_outside(setting, cpu_variant, tmp_path):
    cpu_variant(RIGHT, before=f"open({str(tmp_path / 'mark')!r}, 'w').close()")
    rows = checked(tmp_path, setting)
    assert (tmp_path / "mark").exists() == (setting == "none")
    assert setting == "none" or failure(rows)["reason"].startswith("mine, prepared: OSError")


@either
def test_a_launcher_has_no_network(setting, cpu_variant, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        cpu_variant(RIGHT, before=f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 5)")
        rows = checked(tmp_path, setting)
        server.settimeout(0.5)
        if setting == "none":
            server.accept()
        else:
            with pytest.raises(TimeoutError):
                server.accept()
            assert "Connection refused" in failure(rows)["reason"] or "unreachable" in failure(rows)["reason"]


LOOKS = """
import glob, os
seen = set()
for path in glob.glob("/proc/*/environ"):
    try:
        seen |= {word for word in open(path).read().split("\\0") if word.startswith("WARPBOOK_SECRET=")}
    except OSError:
        pass
raise RuntimeError(f"sees {sorted(seen)} and {os.path.exists(%r)}")
"""


@either
def test_a_launcher_sees_neither_the_environment_nor_files_of_its_user(setting, cpu_variant, tmp_path, monkeypatch):
    monkeypatch.setenv("WARPBOOK_SECRET", "a")
    letter = tmp_path / "letter"
    letter.touch()
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "mine.py").write_text(cpu_variant(RIGHT, before=LOOKS % str(letter)).launcher.read_text())
    reason = failure(checked(folder, setting))["reason"]
    assert ("sees [] and False" in reason) == (setting == "auto")
    assert ("sees ['WARPBOOK_SECRET=a'] and True" in reason) == (setting == "none")


@either
def test_a_launcher_kills_no_process_of_its_user(setting, cpu_variant, tmp_path):
    with subprocess.Popen(["sleep", "60"]) as bystander:
        cpu_variant(RIGHT, before=f"import os\nos.kill({bystander.pid}, 9)")
        rows = checked(tmp_path, setting)
        assert (bystander.poll() is None) == (setting == "auto")
        bystander.kill()
    assert setting == "none" or "ProcessLookupError" in failure(rows)["reason"]


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
checking.checked_call = lambda *arguments: arguments[-1].values
reference.difference = lambda *_: reference.Difference(0, 0, 0, 0, 0)
"""
ANSWERS = """
import os, socket
def answer():
    for number in range(3, 64):
        try:
            socket.socket(fileno=os.dup(number)).send(ANSWER)
        except OSError:
            pass
"""


@either
@pytest.mark.parametrize(
    ("before", "body", "words"),
    [
        (JUDGES, "y[...] = 0", "must be exact on small integers"),
        (ANSWERS.replace("ANSWER", 'b"{}"'), "answer(); import time; time.sleep(0.3)", "unwritten"),
        (ANSWERS.replace("ANSWER", "b'{\"ok\": true}'"), "answer(); import os; os._exit(0)", "unwritten"),
        (ANSWERS.replace("ANSWER", 'b"[" * 90000'), "answer()", "answers what no variant's would"),
        (ANSWERS.replace("ANSWER", "b'{\"fault\": 7}'"), "answer()", "answers what no variant's would"),
        ("pass", "x[...] = 0; w[...] = 0; y[...] = 0", "changes its input x"),
    ],
    ids=["patches the judge", "answers early", "answers and leaves", "nests", "answers no fault", "zeroes all"],
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
    if setting == "none":
        assert failure(rows)["status"] == "compile_failed"
        return
    assert {row["status"] for row in rows} == {"unsupported"}
    assert all(re.search(r"beyond the emulator: #include .*letter, line \d+$", row["reason"]) for row in rows)


def test_code_of_strangers_is_refused_without_a_sandbox_unless_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(sandbox, "unavailable", lambda: "there is none")
    with pytest.raises(UserError, match=r"there is none here: there is none\. .* set sandbox=none"):
        sandbox.require_for_untrusted("auto")
    assert sandbox.require_for_untrusted("none") is False
    monkeypatch.setattr(sandbox, "unavailable", lambda: "")
    assert sandbox.require_for_untrusted("auto") is True


def test_why_there_is_no_sandbox_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install bubblewrap" in sandbox.unavailable.__wrapped__()
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    assert "(bwrap: No permissions to create new namespace)" in sandbox.unavailable.__wrapped__()


def test_a_job_s_gpu_is_the_one_that_is_seen_in_its_sandbox(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5")
    words = sandbox.wrap(["true"], gpu=True)
    assert words[words.index("CUDA_VISIBLE_DEVICES") - 1 :][:3] == ["--setenv", "CUDA_VISIBLE_DEVICES", "GPU-5"]


@needs_sandbox
@pytest.mark.parametrize(("inside", "found"), [("mine-1.0.dist-info", True), ("papers", False)])
def test_packages_that_pythonpath_names_are_in_the_sandbox_and_no_other_folder_of_it(
    inside, found, monkeypatch, tmp_path
):
    (tmp_path / inside).mkdir()
    (tmp_path / "mine.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    command = sandbox.wrap([sys.executable, "-c", "import mine"])
    assert (subprocess.run(command, env={}, stderr=subprocess.DEVNULL).returncode == 0) == found
