"""The package that people install: from its wheel to a notebook folder, its checked kernel and the report."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from pypdf import PdfReader

from warpbook.common.files import PROJECT, PROJECT_VARIABLE
from warpbook.kernels.languages import LANGUAGES
from warpbook.machine import locks
from workspaces import keep_emulator, share_sound_marks

PACKAGE_BYTES = 30 << 20
KERNEL = """/*
title:     Neighbouring threads read neighbouring columns
idea:      Loads of B are contiguous.
expect:    Faster than naive.
builds_on: naive
threads:   [32, 8]
grid:      [ceil(n / 32), ceil(m / 8)]
*/
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k)
{
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[(size_t)row * k + i] * b[(size_t)i * n + column];
    c[(size_t)row * n + column] = sum;
}
"""


class Installed:
    """The wheel, unpacked as `pip --target` does, and a notebook folder."""

    def __init__(self, wheel: Path, folder: Path):
        self.wheel, self.site, self.notebook = wheel, folder / "site-packages", folder / "notes"
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(self.site)
        (folder / "lock").mkdir()
        (folder / "lock").chmod(0o1777)

    @property
    def library(self) -> Path:
        return self.site / "warpbook" / "_library"

    @property
    def environment(self) -> dict[str, str]:
        here = {key: value for key, value in os.environ.items() if key != PROJECT_VARIABLE}
        return {**here, "PYTHONPATH": str(self.site), locks.LOCKS_VARIABLE: str(self.site.parent / "lock")}

    def python(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess:
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=folder or self.notebook, env=self.environment, capture_output=True, text=True, timeout=600
        )

    def warpbook(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess:
        return self.python("-m", "warpbook", *words, folder=folder)


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Installed:
    """An installed Warpbook whose update changed the built-in kernel `naive`, and a notebook with one kernel more."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=PROJECT, check=True)
    made = Installed(next(folder.glob("*.whl")), folder)
    naive = made.library / "kernels" / "gemm" / "naive.cu"
    naive.write_text(naive.read_text() + "__device__ int changed;\n")
    keep_emulator(made.library)
    done = made.warpbook("init", str(made.notebook), "--problem", "gemm", folder=folder)
    assert done.returncode == 0, done.stderr
    share_sound_marks(made.notebook)
    (made.notebook / "kernels" / "gemm" / "my_gemm.cu").unlink()
    (made.notebook / "kernels" / "gemm" / "rows.cu").write_text(KERNEL)
    config = made.notebook / "config.yaml"
    values = yaml.safe_load(config.read_text()) | {"architectures": ["sm_90"]}
    values["studies"]["gemm"] |= {"variants": ["rows", "cublas_fp32"]}
    config.write_text(yaml.safe_dump(values))
    return made


def test_both_packages_are_small_and_the_wheel_has_what_was_made_nowhere(installed, tmp_path):
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path], cwd=PROJECT, check=True)
    (source,) = tmp_path.iterdir()
    assert max(installed.wheel.stat().st_size, source.stat().st_size) < PACKAGE_BYTES
    names = zipfile.ZipFile(installed.wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"warpbook", f"warpbook-{installed.wheel.name.split('-')[1]}.dist-info"}
    assert not [name for name in names if re.search(r"\.pyc$|/results/|/reports/out/|_library/scripts/warpbook/", name)]


def test_a_kernel_of_a_notebook_is_checked_and_its_report_has_archived_times_of_built_in_kernels(installed):
    done = installed.warpbook("report")
    assert done.returncode == 0, done.stdout + done.stderr
    pages = PdfReader(installed.notebook / "reports" / "out" / "gemm.pdf").pages
    text = re.sub(r"\s+", " ", " ".join(page.extract_text() for page in pages))
    assert "Neighbouring threads read neighbouring columns" in text
    assert "cublas_fp32 (library)" in text and "NVIDIA H200" in text
    assert "it becomes the discussion of the report on gemm" in text  # the notebook's own words
    # What an update changed is named, with the reason; and how to have times of it.
    assert re.search(r"gemm/naive gpu stale .*source", text)
    assert "warpbook archive" in done.stdout
    # No GPU has timed the notebook's kernel. Page 2 and the console say that it is right all the same.
    assert re.search(r"rows (\d+) of \1 \S+ right", re.sub(r"\s+", " ", pages[1].extract_text()))
    assert "correct: yes; " in done.stdout
    made = sorted(path.name for path in (installed.notebook / "results" / "builds" / "gemm").iterdir())
    assert made == ["naive", "rows"]  # and none that the notebook does not need
    checked = installed.warpbook("check")
    assert re.search(r"checked gemm/rows +gemm +\d+ tests", checked.stdout), checked.stdout + checked.stderr


def test_an_unchanged_notebook_has_nothing_to_do_and_a_changed_kernel_is_checked_again(installed):
    again = installed.warpbook("report", "--dry-run")
    assert "Nothing to be done" in again.stdout + again.stderr
    kernel = installed.notebook / "kernels" / "gemm" / "rows.cu"
    kernel.write_text(KERNEL.replace("column >= n", "column > n"))
    planned = installed.warpbook("report", "--dry-run").stdout
    assert re.search(r"Checking gemm/rows .*\n +Reason: Updated input files: kernels/gemm/rows.cu\n", planned), planned
    kernel.with_name("unnamed.cu").write_text(KERNEL)
    failed = installed.warpbook("check")
    kernel.with_name("unnamed.cu").unlink()
    assert failed.returncode == 1
    assert "not checked: gemm/unnamed: no chosen study names it under `variants:`\n" in failed.stdout
    assert re.search(r"FAILED +gemm/rows +gemm +wrong_result: .*rows.cu:15: a read", failed.stdout), failed.stdout
    told = installed.warpbook("report").stdout
    page = PdfReader(installed.notebook / "reports" / "out" / "gemm.pdf").pages[1].extract_text()
    assert "correct: no: rows failed a test" in told and re.search(r"(?s)wrong: .*rows.cu:15: a\sread", page)
    kernel.write_text(KERNEL)


def test_a_doctor_finds_that_a_report_can_be_made_here(installed):
    done = installed.warpbook("doctor")
    assert done.returncode == 0, done.stdout
    assert all(re.search(rf"^(ok|-)\s+{one.name} ", done.stdout, re.M) for one in LANGUAGES.values()), done.stdout
    assert f"This notebook: {installed.notebook}\n" in done.stdout and str(installed.library) in done.stdout


def test_a_mistake_in_an_option_is_one_line_and_no_page_of_snakemake_s_usage(installed):
    for words, reason in [
        (["--studdy", "a"], "error: there is no option --studdy; did you mean --study?\n"),
        (["--rerun-triggers", "x"], "error: argument --rerun-triggers: invalid choice: 'x'"),
    ]:
        done = installed.warpbook("report", *words)
        assert done.returncode == 2 and done.stderr.startswith(reason) and len(done.stderr.splitlines()) == 1


def test_a_profile_is_imported_for_a_built_in_study_that_the_notebook_does_not_name(installed):
    words = [str(PROJECT / "tests" / "data" / "profiles" / "nvprof_console.txt"), "--force", "--device", "GPU"]
    done = installed.warpbook("import", *words, "--study", "fa18", "--variant", "direct", "--size", "10000")
    assert done.returncode == 0, done.stderr
    assert (installed.notebook / "results" / "imported" / "fa18" / "direct-10000").is_dir()
    refused = installed.warpbook("import", *words, "--study", "gemm", "--variant", "gemm/naive", "--size", "64")
    assert refused.returncode == 2 and "this study is of no network" in refused.stderr


def test_importing_warpbook_loads_nothing_until_it_is_asked(installed):
    script = (
        "import sys; before = set(sys.modules); import warpbook; print(sorted(set(sys.modules) - before))\n"
        "tests = warpbook.check('kernels/gemm/rows.cu', 'gemm', sizes=[64]); print(len(tests) > 20, tests.ok.all())\n"
        "runs = warpbook.list_runs(); print(*runs.run)\n"
        "times = warpbook.read(next(run for run in runs.run if 'h100' in run)); print((times.problem == 'gemm').any())\n"
        "kernels = warpbook.list_kernels('gemm'); print({*kernels.kernel} >= {'gemm/rows', 'gemm/naive'})\n"
    )
    done = installed.python("-c", script)
    assert done.returncode == 0, done.stderr
    archived = " ".join(sorted(path.stem for path in (installed.library / "reports" / "runs").glob("*.zip")))
    assert done.stdout.splitlines() == ["['warpbook']", "True True", archived, "True", "True"]


def git(folder: Path, *arguments: str) -> None:
    names = {f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env={**os.environ, **names})


def test_the_action_comments_on_a_pull_request_that_brings_a_slower_run(installed, tmp_path):
    action = yaml.safe_load((PROJECT / "action.yml").read_text())
    (step,) = (step for step in action["runs"]["steps"] if "--notes" in step.get("run", ""))
    runs = PROJECT / "tests" / "data" / "runs"
    origin, folder, programs = (tmp_path / name for name in ("origin", "folder", "programs"))
    archives = origin / "reports" / "runs"
    archives.mkdir(parents=True)
    git(origin, "init", "--quiet", "--initial-branch", "main")
    shutil.copy(runs / "20261121-nvidia-h200-42e94f.zip", archives / "20261121-a.zip")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "-m", "base")
    git(tmp_path, "clone", "--quiet", str(origin), str(folder))
    shutil.copy(runs / "20261121-nvidia-h200-f71084.zip", folder / "reports" / "runs" / "20261122-b.zip")
    programs.mkdir()
    for name, words in (
        ("warpbook", f'exec {sys.executable} -m warpbook "$@" --tolerance 0.0001'),
        ("gh", f'printf "%s\\n" "$@" > {tmp_path}/gh.txt'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{words}\n")
        (programs / name).chmod(0o755)
    summary = tmp_path / "summary.md"
    given = {"PATH": f"{programs}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path), "GITHUB_BASE_REF": "main"}
    given |= {"GITHUB_STEP_SUMMARY": str(summary), "PULL_REQUEST": "https://pull", "GH_TOKEN": "none"}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]], cwd=folder, capture_output=True, text=True,
        env={**installed.environment, **given},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert summary.read_text().startswith("**")
    assert (tmp_path / "gh.txt").read_text().split("\n")[:3] == ["pr", "comment", "https://pull"]


def test_the_action_and_the_template_type_commands_that_there_are(installed):
    known = installed.warpbook("--help").stdout
    for file in ("action.yml", "ci/gitlab.yml", "docs/guides/notebook-folders.md"):
        named = set(re.findall(r"\bwarpbook ([a-z]+)\b", (PROJECT / file).read_text())) - {"in", "of", "for"}
        assert named and not [name for name in named if not re.search(rf"^  {name} ", known, re.MULTILINE)], file
