"""A notebook folder: what it does not have is the library's; and the command that is typed in it."""

import shutil
import sys

import pytest
import yaml
from typer.testing import CliRunner

import doctor
import new
import warpbook
from warpbook import command_line
from warpbook.common import files
from warpbook.common.errors import UserError
from warpbook.common.files import LIBRARY, PROJECT
from warpbook.config import settings
from warpbook.kernels import sources, variants
from warpbook.machine.cuda_devices import Device
from warpbook.problems import networks, problem
from warpbook.workflow import plan

KERNEL = """/*
title: Mine
builds_on: tiled
threads: [16, 16]
grid: [ceil(n / 16), ceil(m / 16)]
*/
#include "async_copy.cuh"
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {}
"""
STUDY = {"title": "Mine", "problem": "gemm", "cases": [{"name": "a", "m": "size", "n": 8, "k": 8}], "sizes": [8],
         "sections": ["ladder"]}  # fmt: skip


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """A notebook folder with one kernel of gemm, as the modules see it that look for files."""
    folders = (tmp_path / "kernels", LIBRARY / "kernels")
    monkeypatch.setattr(problem, "FOLDER", folders[0])
    monkeypatch.setattr(problem, "FOLDERS", folders)
    for module in (files, networks, variants, plan):
        monkeypatch.setattr(module, "PROJECT", tmp_path)
    (tmp_path / "kernels" / "gemm").mkdir(parents=True)
    (tmp_path / "kernels" / "gemm" / "mine.cu").write_text(KERNEL)
    return tmp_path


def configured(**changes):
    return networks.with_library({"report": {"title": "T", "authors": ["A"]}, **changes})


def planned(monkeypatch, **changes):
    monkeypatch.setattr(plan.cuda_devices, "visible_devices", lambda: "none here")
    return plan.from_config(configured(**changes))


def test_a_kernel_of_the_notebook_builds_on_a_built_in_one_and_includes_built_in_code(notebook):
    mine = variants.read("gemm/mine")
    assert (mine.read_error, mine.header.builds_on, mine.own) == ("", "gemm/tiled", True)
    assert mine.included == (LIBRARY / "kernels" / "include" / "async_copy.cuh",)
    (notebook / "kernels" / "gemm" / "mine.cu").write_text(
        KERNEL.replace("builds_on: tiled", "builds_on: warpbook/tiled")
    )
    assert variants.read("gemm/mine").header.builds_on == "gemm/tiled"
    built_in = variants.read("gemm/tiled")
    assert (built_in.cuda_source, built_in.own) == (LIBRARY / "kernels" / "gemm" / "tiled.cu", False)


def test_a_built_in_kernel_is_the_same_in_a_notebook_as_in_the_clone(notebook, monkeypatch):
    seen = variants.discover()["gemm/naive"].source_sha256
    monkeypatch.undo()
    assert seen == variants.discover()["gemm/naive"].source_sha256


def test_a_file_of_the_notebook_takes_the_place_of_the_built_in_kernel_of_its_name(notebook):
    (notebook / "kernels" / "gemm" / "naive.cu").write_text(KERNEL.replace("Mine", "My naive"))
    assert variants.discover()["gemm/naive"].title == variants.read("gemm/naive").title == "My naive"


def test_a_configuration_changes_the_library_s_key_by_key(notebook):
    library = yaml.safe_load(settings.FILE.read_text())
    values = configured(study="mine", studies={"mine": STUDY}, measuring={"gpu": {"max_time_s": 7}})
    assert values["measuring"] == library["measuring"] | {"gpu": library["measuring"]["gpu"] | {"max_time_s": 7}}
    assert values["networks"] == library["networks"]
    assert values["report"] == {"title": "T", "authors": ["A"]}
    assert list(values["studies"]) == ["mine"]
    changed = configured(studies={"gemm": {"variants": ["mine"]}})["studies"]
    assert changed == {"gemm": library["studies"]["gemm"] | {"variants": ["mine"]}}
    assert configured(study="sp25")["studies"]["sp25"] == library["studies"]["sp25"]


def test_the_clone_s_configuration_is_left_as_it_is():
    assert LIBRARY == PROJECT
    values = {"study": "x"}
    assert networks.with_library(values) is values


def test_a_plan_has_the_notebook_s_kernels_and_those_that_they_need(notebook, monkeypatch):
    for named, compared in [
        ({}, {"gemm/mine", "gemm/tiled", "gemm/coalesced", "gemm/naive"}),
        (
            {"variants": ["cublas_fp32"]},
            {"gemm/cublas_fp32", "gemm/mine", "gemm/tiled", "gemm/coalesced", "gemm/naive"},
        ),
    ]:
        made = planned(monkeypatch, study="mine", studies={"mine": STUDY | named})
        assert set(made.variants) == compared


def test_a_built_in_study_that_the_notebook_does_not_change_compares_the_built_in_kernels_too(notebook, monkeypatch):
    gemm = {name for name in variants.discover() if name.startswith("gemm/")}
    made = planned(monkeypatch, study="gemm")
    assert {"gemm/mine", "gemm/cublas_fp32"} < gemm <= set(made.variants)
    of_the_report = plan.from_config(made.config.model_dump(mode="json"))  # what renders it gets the configuration so
    assert of_the_report.variants.keys() == made.variants.keys()
    changed = planned(monkeypatch, study="gemm", studies={"gemm": {"title": "Mine"}})
    assert "gemm/cublas_fp32" not in changed.variants


def test_a_study_of_a_problem_without_own_kernels_compares_all_built_in_ones(notebook, monkeypatch):
    made = planned(monkeypatch, study="softmax")
    softmax = {name for name in variants.discover() if name.startswith("softmax/")}
    assert softmax < set(made.variants)


def test_the_code_of_a_submission_includes_nothing_built_in(notebook, monkeypatch):
    mine = notebook / "kernels" / "gemm" / "mine.cu"
    mine.write_text(KERNEL.replace("async_copy.cuh", "tiled.cu"))
    assert not variants.read("gemm/mine").read_error
    monkeypatch.setattr(sources, "_LIBRARY_TOO", False)
    assert 'line 7: #include "tiled.cu": there is no such file' in variants.read("gemm/mine").read_error


def test_an_empty_submission_is_judged_without_a_built_in_kernel(notebook, monkeypatch):
    shutil.rmtree(notebook / "kernels")
    submission = {key: {} for key in ("files", "answers", "outputs", "refused")} | {"name": "empty"}
    assert not planned(monkeypatch, study="sp25", submission=submission).variants


@pytest.mark.parametrize("of", ["conv", "gemm", "reduce", "softmax"])
def test_init_writes_a_notebook_whose_kernel_and_configuration_are_read_without_a_fault(notebook, monkeypatch, of):
    shutil.rmtree(notebook / "kernels")
    made = new.write_notebook(notebook, problem.find(of))
    assert len(made) >= 5
    mine = variants.read(f"{of}/my_{of}".removeprefix("conv/"))
    assert (mine.own, mine.read_error) == (True, "")
    assert mine.header.builds_on == variants.full_name(mine.problem, mine.problem.facts.baseline)
    text = (notebook / "config.yaml").read_text()
    assert len([line for line in text.splitlines() if line]) == 10
    values = networks.with_library(yaml.safe_load(text))
    library = yaml.safe_load(settings.FILE.read_text())["studies"]
    ((study, described),) = values["studies"].items()
    assert described["cases"] == library[study]["cases"] and described["sizes"] == library[study]["sizes"]
    monkeypatch.setattr(plan.cuda_devices, "visible_devices", lambda: "none here")
    assert mine.name in plan.from_config(values).variants_for(study, "gpu")


def test_init_writes_over_nothing(notebook):
    new.write_notebook(notebook, problem.find("gemm"))
    with pytest.raises(UserError, match=r"config\.yaml is there already"):
        new.write_notebook(notebook, problem.find("gemm"))
    with pytest.raises(UserError, match=r"config\.yaml is a file"):
        new.write_notebook(notebook / "config.yaml" / "below", problem.find("gemm"))


def test_the_code_of_a_first_kernel_is_its_baseline_s(notebook):
    new.write_notebook(notebook, problem.find("gemm"))
    own, original = (sources.read_cuda(path / "kernels" / "gemm" / name).code
                     for path, name in ((notebook, "my_gemm.cu"), (LIBRARY, "naive.cu")))  # fmt: skip
    assert own == original


@pytest.fixture
def typed(tmp_path, monkeypatch):
    """Type a command in a notebook folder: what Python would be called with, or the exit status."""
    (tmp_path / "config.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    called = []
    monkeypatch.setattr(command_line.os, "execv", lambda _, words: called.append(words[1:]))

    def run(*words):
        done = CliRunner().invoke(command_line.app, list(words))
        run.output = done.output
        return called.pop() if called else done.exit_code

    return run


def test_a_target_is_snakemake_s_under_the_library_s_snakefile(typed):
    for words, command in [
        (["report"], ["report"]),
        (["check", "--study", "a", "--config", "gpu=none"], ["check", "--config", "gpu=none", "study=a"]),
        (["report", "--config", "a=1", "b=2", "-n"], ["report", "-n", "--config", "a=1", "b=2"]),
        (["submission", ".", "--study", "sp25"], ["submission", "--config", "path=.", "study=sp25"]),
    ]:
        snakemake = ["-Pm", "snakemake", "--snakefile", str(LIBRARY / "Snakefile"), "--cores", "all"]
        assert typed(*words) == snakemake + command


def test_a_program_gets_what_was_typed(typed):
    for words, command in [
        (["init", "x"], ["new.py", "notebook", "x", "--problem", "gemm"]),
        (["new", "kernel", "a", "--problem", "gemm"], ["new.py", "kernel", "a", "--problem", "gemm"]),
        (["compare", "a", "b", "--notes"], ["compare_runs.py", "--base=a", "--head=b", "--notes"]),
        (["import", "--help"], ["import_profile.py", "--help"]),
        (["doctor"], ["doctor.py"]),
    ]:
        assert typed(*words) == [str(LIBRARY / "scripts" / command[0]), *command[1:]]


def test_a_command_of_a_notebook_is_refused_without_a_configuration(typed, tmp_path):
    (tmp_path / "config.yaml").unlink()
    for words in (["report"], ["new", "kernel", "mine"], ["new", "problem", "mine"]):
        assert typed(*words) == 2


def test_a_target_is_refused_where_the_compiler_is_not_installed(typed, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert typed("check") == 2 and "`warpbook doctor` names the command" in typed.output
    assert typed("site")[:2] == ["-Pm", "snakemake"]


def test_a_mistake_in_a_command_is_named(typed):
    for words, reason in [
        (["report", "--cores", "x"], "error: --cores x: write a number, or all\n"),
        (["report", "--config", "gpu"], "error: --config gpu: write KEY=VALUE"),
        (["submission", "nowhere", "--study", "sp25"], "dir 'nowhere' does not exist"),
    ]:
        assert typed(*words) == 2
        assert reason in typed.output


def test_a_doctor_names_a_command_that_works_in_this_environment(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.sys, "executable", str(tmp_path / "my env" / "bin" / "python"))
    assert doctor.install_command() == f"uv pip install --python '{tmp_path}/my env/bin/python'"
    pip = tmp_path / "my env" / "bin" / "pip"
    pip.parent.mkdir(parents=True)
    pip.touch(0o755)
    assert doctor.install_command() == f"'{pip}' install"
    monkeypatch.setenv("PATH", str(pip.parent))
    assert doctor.install_command() == "pip install"


def test_a_doctor_tells_a_driver_that_is_older_than_the_compiler():
    for cuda, found in [("12.8", False), ("13.0", True), ("13.1", True)]:
        one = doctor.driver(Device("GPU", "sm_90", "", cuda), "NVRTC 13.0")
        assert bool(one.found) is found and f"for CUDA {cuda}" in one.found + one.remedy
        assert found or "warpbook[cuda12]" in one.remedy


def test_a_doctor_outside_a_notebook_says_how_one_is_made(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(doctor, "findings", list)
    monkeypatch.setattr(doctor.sys, "argv", ["doctor.py"])
    monkeypatch.setattr(doctor, "PROJECT", tmp_path)
    assert doctor.main() == 0
    assert "warpbook init mynotes && cd mynotes && warpbook report" in capsys.readouterr().out


def test_every_name_of_the_package_is_there_and_documented():
    for name in warpbook.__all__:
        assert getattr(warpbook, name).__doc__
    with pytest.raises(AttributeError, match="nothing"):
        _ = warpbook.nothing


def test_wrong_arguments_are_errors_of_one_line_that_name_them():
    naive = LIBRARY / "kernels" / "gemm" / "naive.cu"
    for call, reason in [
        (lambda: warpbook.check(naive.with_name("nothing.cu")), "does not exist"),
        (lambda: warpbook.check(naive.parent), "is no kernel"),
        (lambda: warpbook.check(naive, "gem"), "did you mean 'gemm'"),
        (lambda: warpbook.check(naive, study="gemn"), "did you mean 'gemm'"),
        (lambda: warpbook.check(naive, sizes=[64, 0]), "sizes: 0 is no whole number"),
        (lambda: warpbook.check(naive, device="cpu"), "take emulator or gpu"),
        (lambda: warpbook.check(LIBRARY / "kernels" / "conv" / "simd.py", device="gpu"), "take cpu"),
        (lambda: warpbook.list_kernels("gem"), "did you mean 'gemm'"),
        (lambda: warpbook.read("nothing"), "no archived run is called"),
        (lambda: warpbook.time(int, int, max_time_s=0), "max_time_s: 0 is not above 0"),
    ]:
        with pytest.raises(UserError, match=reason) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_a_slower_baseline_makes_a_call_faster():
    timed = warpbook.time(lambda: sum(range(1000)), lambda: sum(range(20000)), max_time_s=0.2)
    assert timed.verdict == "faster" and timed.speedup.low > 1
    assert len(timed.samples) == timed.speedup.n
    assert timed.call_ms.low <= timed.call_ms.value <= timed.call_ms.high < timed.baseline_ms.low
