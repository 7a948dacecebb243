"""Regressions between two archived runs as notes on a change: the worst first, three at most, none for noise."""

import copy
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from warpbook import runs, tables
from warpbook.files import PROJECT
from warpbook.report.comparison import Comparison
from warpbook.report.notes import notes

RUNS = PROJECT / "tests" / "data" / "runs"
OLDER, NEWER = "20261121-nvidia-h200-f71084", "20261121-nvidia-h200-42e94f"
TOLERANCE = 0.02


@pytest.fixture(scope="module")
def base() -> runs.Run:
    """A run of an H200, its network fa18 alone."""
    run = runs.open_run(RUNS / f"{NEWER}.zip")
    assert run.problem == ""
    return runs.Run(run.path, {**run.record, "networks": {"fa18": run.record["networks"]["fa18"]}}, run.loaded)


def slowed(run: runs.Run, **factors: float) -> runs.Run:
    """A run with other sources of some variants, whose times are longer by a factor."""
    record, samples = copy.deepcopy(run.record), run.table(tables.SAMPLES)
    for name in factors:
        record["variants"][name]["source_sha256"] = "0" * 64
    longer = samples.assign(time_ms=samples.time_ms * samples.variant.map(factors).fillna(1.0))
    return runs.Run(run.path, record, {**run.loaded, tables.SAMPLES.name: longer})


def test_what_is_faster_or_the_same_makes_no_note(base):
    assert notes(Comparison(base, base, TOLERANCE)) == []
    assert notes(Comparison(base, slowed(base, fft=0.8, coarsened=1.0), TOLERANCE)) == []


def test_the_noise_between_two_gpus_makes_no_note():
    older, newer = (runs.open_run(RUNS / f"{name}.zip") for name in (OLDER, NEWER))
    assert notes(Comparison(older, newer, TOLERANCE)) == []


def test_the_worst_three_are_told_worst_first_and_how_many_more_there_are(base):
    told = notes(Comparison(base, slowed(base, fft=1.5, coarsened=1.2, fp16=2.0, block_1d=1.3), TOLERANCE))
    named = [re.match(r"::warning title=Regression::(\w+) on fa18", note)[1] for note in told]
    assert named == ["fp16", "fft", "block_1d"]
    assert "0.500× [" in told[0]
    assert told[-1].endswith("(and 1 more: compare the runs)")


def test_what_is_no_longer_right_stands_before_what_is_slower_and_its_words_are_no_command(base):
    head = slowed(base, fft=1.5)
    checks = head.table(tables.CORRECTNESS).copy()
    wrong = (checks.variant == "coarsened") & (checks.network == "fa18")
    checks.loc[wrong, "status"] = "wrong_result"
    checks.loc[wrong, "reason"] = "50 % wrong\n::error::mine"
    broken = runs.Run(head.path, head.record, {**head.loaded, tables.CORRECTNESS.name: checks})
    first, second = notes(Comparison(base, broken, TOLERANCE))
    assert first.endswith("wrong_result: 50 %25 wrong%0A::error::mine")
    assert "\n" not in first
    assert "fft" in second


def git(folder: Path, *arguments: str):
    names = {f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env={**os.environ, **names})


def test_the_workflow_holds_the_newest_run_of_a_change_against_that_of_what_it_is_merged_into(tmp_path):
    jobs = yaml.safe_load((PROJECT / ".github" / "workflows" / "report.yml").read_text())["jobs"]
    (step,) = (step for step in jobs["report"]["steps"] if "--notes" in step.get("run", ""))
    assert step["if"] == "github.event_name == 'pull_request'"
    archives = tmp_path / "reports" / "runs"
    archives.mkdir(parents=True)
    for name in ("scripts", "pyproject.toml", "reports/sections"):
        (tmp_path / name).symlink_to(PROJECT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    git(tmp_path, "init", "--quiet")
    shutil.copy(RUNS / f"{NEWER}.zip", archives / "20261121-a.zip")
    git(tmp_path, "add", "reports/runs")
    git(tmp_path, "commit", "--quiet", "-m", "base")
    shutil.move(archives / "20261121-a.zip", archives / "20261122-b.zip")
    shutil.copy(RUNS / f"{OLDER}.zip", archives / "20261122-b.zip")
    (archives / "20261122-b.profiles.zip").write_bytes(b"")
    git(tmp_path, "add", "--all", "reports/runs")
    git(tmp_path, "commit", "--quiet", "-m", "head")
    command = step["run"].replace("--notes", "--notes --tolerance 0.0001")
    done = subprocess.run(
        ["bash", "-e", "-c", command], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "RUNNER_TEMP": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "base.zip").read_bytes() == (RUNS / f"{NEWER}.zip").read_bytes()
    assert 1 <= len(done.stdout.splitlines()) <= 3  # the one GPU is slower by more than that tolerance
    assert all(line.startswith("::warning title=Regression::") for line in done.stdout.splitlines())
