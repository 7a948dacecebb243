"""What a variant's code can do while it is built, timed and run as a program, seen from outside."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from warpbook.common import statistics
from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.harness import checking, sandbox
from warpbook.harness.attacks import attack_registry
from warpbook.kernels import variants
from warpbook.runs import tables

needs_sandbox = pytest.mark.skipif(bool(sandbox.unavailable_reason()), reason=sandbox.unavailable_reason())
# Each attack is made outside the sandbox too, where it does its harm: one that never could shows nothing.
either = pytest.mark.parametrize("setting", [pytest.param("auto", marks=needs_sandbox), "none"])

RIGHT = "y[...] = convolve(x, w)"
CHECKED = {**tables.place("conv", "fa17", "conv1"), "size": 3, "test": "integers", **checking.NOT_COMPARED}
SOUND = {**CHECKED, "ok": True, "status": "ok", "reason": ""}


def passed(path: Path, device: str = "cpu") -> Path:
    """The table of a check that `mine` passed."""
    tables.CORRECTNESS.write([{"variant": "mine", "device": device, **SOUND}], path)
    return path


def timed(folder: Path, setting: str, *sizes: int):
    """The samples of the variant `mine` of a folder."""
    out, machine = folder.parent / f"{folder.name}.samples.csv", folder.parent / "machine.json"
    machine.write_text(json.dumps(attack_registry.MACHINE))
    command = [sys.executable, attack_registry.MEASURE, "--device", "cpu", "--kernels", folder, "--variant", "mine"]
    command += [
        "--cases",
        "fa17",
        "--sizes",
        *map(str, sizes),
        "--measuring",
        attack_registry.MEASURING.model_dump_json(),
    ]
    command += ["--correctness", passed(folder.parent / "passed.csv"), "--machine", machine, "--sandbox", setting]
    subprocess.run([*command, "--out", out], check=True, capture_output=True)
    return tables.SAMPLES.rows(out)


def failure(rows) -> dict[str, str]:
    first = tables.first_failure({**row, "ok": row["status"] == "ok"} for row in rows)
    assert first, "it passed"
    return first


@either
def test_a_sound_variant_is_timed_and_writes_nothing_outside(setting, cpu_variant, tmp_path):
    mark = tmp_path / "mark"
    cpu_variant(RIGHT, before=f"try:\n    open({str(mark)!r}, 'w').close()\nexcept OSError:\n    pass")
    rows = timed(tmp_path, setting, 3, 5)
    assert mark.exists() == (setting == "none")
    assert {(row["size"], row["status"]) for row in rows} == {(3, "ok"), (5, "ok")}
    assert all(row["time_ms"] > 0 for row in rows)


@needs_sandbox
def test_a_crash_while_it_is_timed_is_told_and_what_was_timed_before_is_kept(cpu_variant, tmp_path):
    cpu_variant(f"{RIGHT}\nif len(x) == 5:\n    import ctypes; ctypes.string_at(0)")
    rows = timed(tmp_path, "auto", 3, 5)
    assert {row["status"] for row in rows if row["size"] == 3} == {"ok"}
    (row,) = (row for row in rows if row["size"] == 5)
    assert row["status"] == "launch_failed"
    assert row["reason"].startswith("its process died: SIGSEGV")


FORKS = """
import os, time
for _ in range(600):
    if os.fork() == 0:
        time.sleep(50)
        os._exit(0)
time.sleep(50)
"""


@needs_sandbox
def test_a_launcher_that_forks_without_end_while_it_is_timed_is_stopped(cpu_variant, tmp_path):
    cpu_variant(RIGHT, before=FORKS)
    assert "processes, more than the 256" in failure(timed(tmp_path, "auto", 3))["reason"]


SAYS = """
import os
for number in range(3, 64):
    try:
        os.write(number, {answer!r})
    except OSError:
        pass
"""


@needs_sandbox
@pytest.mark.parametrize("answer", [b"no JSON\n", b'{"item": ["conv1", 99, []]}\n'])
def test_a_launcher_that_answers_for_the_harness_is_a_failure_that_is_told(answer, cpu_variant, tmp_path):
    cpu_variant(RIGHT, before=SAYS.format(answer=answer))
    assert re.search("its process answers what no (variant|measurement)", failure(timed(tmp_path, "auto", 3))["reason"])


@either
def test_a_source_that_nvrtc_compiles_includes_no_file_of_its_user(setting, tmp_path):
    (tmp_path / "letter").write_text("secret words\n")
    folder = tmp_path / "kernels"
    folder.mkdir()
    text = (variants.FOLDER / "direct.cu").read_text()
    (folder / "mine.cu").write_text(text.replace("*/", f'*/\n#include "{tmp_path}/letter"\n', 1))
    command = [sys.executable, PROJECT / "scripts" / "build_variant.py", "--kernels", folder, "--variant", "mine"]
    command += ["--architectures", "sm_90", "--sandbox", setting, "--out", tmp_path / "builds"]
    subprocess.run(command, check=True, capture_output=True)
    rows = tables.BUILDS.rows(tmp_path / "builds" / "builds.csv")
    assert rows and all(row["ok"] for row in rows)  # what is no header of CUDA's or beside the source is left out
    assert not any("secret" in row["log"] for row in rows)


@needs_sandbox
def test_a_build_is_the_same_inside_and_outside(tmp_path):
    made = {}
    for setting in ("auto", "none"):
        command = [sys.executable, PROJECT / "scripts" / "build_variant.py", "--variant", "direct"]
        command += ["--architectures", "sm_80", "sm_90", "--sandbox", setting, "--out", tmp_path / setting]
        subprocess.run(command, check=True, capture_output=True)
        made[setting] = {path.name: path.read_bytes() for path in (tmp_path / setting).iterdir()}
    assert made["auto"] == made["none"]
    assert made["auto"].keys() == {"builds.csv", "sm_80.cubin", "sm_90.cubin"}


@either
def test_a_launcher_writes_nothing_outside_while_its_program_runs(setting, cpu_variant, tmp_path):
    project = tmp_path / "project"
    for name in ("scripts", "weights"):
        shutil.copytree(PROJECT / name, project / name, ignore=shutil.ignore_patterns("*.pyc.*"))
    for name in ("pyproject.toml", "config.yaml"):
        shutil.copy(PROJECT / name, project)
    kernels = project / "kernels" / "conv"
    kernels.mkdir(parents=True)
    shutil.copy(variants.FOLDER / "problem.py", kernels)
    mark = tmp_path / "mark"
    launcher = cpu_variant(
        RIGHT, before=f"try:\n    open({str(mark)!r}, 'w').close()\nexcept OSError:\n    pass"
    ).launcher
    shutil.copy(launcher, kernels)
    command = [sys.executable, "scripts/run_program.py", "--network", "fa17", "--weights", "high", "--variant", "mine"]
    command += ["--sizes", "3", "--measuring", attack_registry.MEASURING.model_dump_json(), "--sandbox", setting]
    command += ["--correctness", passed(tmp_path / "passed.csv"), "--out", "programs.csv"]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    (row,) = tables.PROGRAMS.rows(project / "programs.csv")
    assert (row["status"], row["accuracy"]) == ("ok", 1.0)
    assert 0 < row["user_s"] + row["system_s"] < 60
    assert row["max_rss_kib"] > 30_000
    assert mark.exists() == (setting == "none")


def test_a_gpu_s_jobs_are_in_the_sandbox_only_where_that_is_asked_for_and_it_answers_there(monkeypatch):
    monkeypatch.setattr(sandbox, "unavailable_reason", lambda: "")
    monkeypatch.setattr(sandbox, "gpu_unavailable_reason", lambda: "no /dev/nvidia0")
    assert [sandbox.is_chosen(setting, "gpu") for setting in sandbox.SETTINGS] == [False, False, False]
    assert [sandbox.why_absent(setting, "gpu") for setting in sandbox.SETTINGS] == ["", "no /dev/nvidia0", ""]
    monkeypatch.setattr(sandbox, "gpu_unavailable_reason", lambda: "")
    assert {setting: sandbox.is_chosen(setting, "gpu") for setting in sandbox.SETTINGS} == {
        "auto": False,
        "all": True,
        "none": False,
    }
    assert [sandbox.is_chosen(setting, "emulator") for setting in sandbox.SETTINGS] == [True, True, False]


def test_strangers_code_for_a_gpu_that_does_not_answer_in_the_sandbox_is_refused(monkeypatch):
    monkeypatch.setattr(sandbox, "gpu_unavailable_reason", lambda: "the GPU does not answer in bubblewrap (no device)")
    for setting in ("auto", "all"):
        with pytest.raises(UserError, match=r"does not answer in bubblewrap \(no device\)\. .* set sandbox=none"):
            sandbox.require_for_untrusted(setting, "gpu")
    assert sandbox.require_for_untrusted("none", "gpu") is False


@needs_sandbox
def test_the_sandbox_is_asked_whether_the_gpu_answers_there():
    """Here, where there is none, and on a machine where there is one: in either the question reaches the driver."""
    assert re.fullmatch(
        r"|the GPU does not answer in bubblewrap \(no CUDA d(river|evice).*\)", sandbox.gpu_unavailable_reason()
    )


ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "60"))
TIMES = """
import sys
from time import perf_counter
import numpy as np
from warpbook.kernels import variants
from warpbook.problems.networks import ConvLayer
case = ConvLayer("1x28x28 * 50@5x5", 1, 28, 28, 50, 5).at(1)
operation = variants.read(sys.argv[1]).prepare(case)
x, w, y = (np.ones(case.shape(name), np.float32) for name in ("x", "w", "y"))
for _ in sys.stdin:
    operation(x, w, y)
    began = perf_counter()
    operation(x, w, y)
    print(perf_counter() - began, flush=True)
"""


@needs_sandbox
@pytest.mark.parametrize("name", ["loop_nest", "onnxruntime"])
def test_a_variant_takes_the_same_time_inside_and_outside(name, tried):
    """New processes up to three times: one can be slow in all its calls by chance, a slow sandbox slows each."""
    outcomes = []
    for _ in range(3):
        ratio, noise = times_inside_over_outside(name)
        outcome = f"times as long as outside: {ratio.value:.3f}, 95 % interval {ratio.low:.3f} to {ratio.high:.3f}"
        outcomes.append(f"{outcome}; a second one outside: {noise.value:.3f}, {noise.low:.3f} to {noise.high:.3f}")
        if same := ratio.low < 1.1 and ratio.high > 0.9:
            break
    tried(f"a call of `{name}` timed in the sandbox, interleaved with one outside", ROUNDS, "; again: ".join(outcomes))
    assert same, outcomes


def times_inside_over_outside(name: str) -> tuple[statistics.Estimate, statistics.Estimate]:
    """Timed in turn, call by call: what the machine does meanwhile both see. A second one outside shows the noise."""
    command = [sys.executable, "-c", TIMES, name]
    outside = {**os.environ, "PYTHONPATH": str(PROJECT / "scripts")}
    started = {
        "inside": (sandbox.wrap(command, readable=[variants.FOLDER]), {}),
        "outside": (command, outside),
        "again": (command, outside),
    }
    times_s = {place: [] for place in started}
    with contextlib.ExitStack() as held:
        processes = {}
        for place, (words, environment) in started.items():
            # A session each: Linux divides the processors among sessions.
            process = subprocess.Popen(
                words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
            processes[place] = held.enter_context(process)
        for number in range(ROUNDS):
            for place in [*processes][number % 3 :] + [*processes][: number % 3]:
                print(file=processes[place].stdin, flush=True)
                times_s[place].append(float(processes[place].stdout.readline()))
    taken = {place: np.array(values) for place, values in times_s.items()}
    ratio = statistics.paired_ratio(taken["inside"], taken["outside"])
    return ratio, statistics.paired_ratio(taken["again"], taken["outside"])
