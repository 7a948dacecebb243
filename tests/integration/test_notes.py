"""What is said of two archived runs on a change: the worst first, three lines at most, nothing for noise."""

import copy
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

import compare_runs
from warpbook.common.files import PROJECT
from warpbook.report import pdf
from warpbook.report.comparison import Comparison
from warpbook.report.views.runs_compared import notes
from warpbook.runs import catalog, tables

RUNS = PROJECT / "tests" / "data" / "runs"
OLDER, NEWER = "20261121-nvidia-h200-f71084", "20261121-nvidia-h200-42e94f"
TOLERANCE = 0.02


@pytest.fixture(scope="module")
def base() -> catalog.Run:
    """A run of an H200, its network fa18 alone."""
    run = catalog.open_run(RUNS / f"{NEWER}.zip")
    assert run.problem == ""
    return catalog.Run(run.path, {**run.record, "networks": {"fa18": run.record["networks"]["fa18"]}}, run.loaded)


def slowed(run: catalog.Run, **factors: float) -> catalog.Run:
    """A run with other sources of some variants, whose times are longer by a factor."""
    record, samples = copy.deepcopy(run.record), run.table(tables.SAMPLES)
    for name in factors:
        record["variants"][name]["source_sha256"] = "0" * 64
    longer = samples.assign(time_ms=samples.time_ms * samples.variant.map(factors).fillna(1.0))
    return catalog.Run(run.path, record, {**run.loaded, tables.SAMPLES.name: longer})


def test_what_is_faster_the_same_or_noise_makes_no_note(base):
    assert notes(Comparison(base, base, TOLERANCE)) == ""
    assert notes(Comparison(base, slowed(base, fft=0.8, coarsened=1.0), TOLERANCE)) == ""

    older, newer = (catalog.open_run(RUNS / f"{name}.zip") for name in (OLDER, NEWER))
    assert notes(Comparison(older, newer, TOLERANCE)) == ""


def test_the_worst_three_are_told_worst_first_and_how_many_more_there_are(base):
    words = notes(Comparison(base, slowed(base, fft=1.5, coarsened=1.2, fp16=2.0, block_1d=1.3), TOLERANCE))
    assert words.startswith("**Regressions**\n\n- `fp16` on `fa18` (gpu), ")
    assert re.findall(r"^- `(\w+)` on `fa18`|^- (and 1 more)$", words, re.MULTILINE) == [
        ("fp16", ""), ("fft", ""), ("block_1d", ""), ("", "and 1 more")
    ]  # fmt: skip
    assert "0.500× [" in words.splitlines()[2]
    path = RUNS / f"{NEWER}.zip"  # where it is not archived, an id would name nothing
    assert f"compare --config base={path} head={path}`" in words


def test_what_is_no_longer_right_stands_before_what_is_slower_and_its_words_are_code(base):
    head = slowed(base, fft=1.5)
    checks = head.table(tables.CORRECTNESS).copy()
    wrong = (checks.variant == "coarsened") & (checks.network == "fa18")
    checks.loc[wrong, "status"] = "wrong_result"
    checks.loc[wrong, "reason"] = "50 % wrong, ask @somebody\n- [x](http://elsewhere) `ls`"
    broken = catalog.Run(head.path, head.record, {**head.loaded, tables.CORRECTNESS.name: checks})
    first, second = notes(Comparison(base, broken, TOLERANCE)).splitlines()[2:4]
    assert first.endswith(": `` wrong_result: 50 % wrong, ask @somebody - [x](http://elsewhere) `ls` ``")
    assert second.startswith("- `fft`")


def test_what_may_be_slower_comes_with_what_would_decide_it(base):
    for factor, decides in [
        (1.01, "73 samples of each layer instead of 65 would decide it"),
        (1.02, "more samples decide little. To have both"),
    ]:
        words = notes(Comparison(base, slowed(base, fft=factor), TOLERANCE))
        assert words.startswith("**Not decided**\n\n- `fft` on `fa18` (gpu), 10 images: ")
        assert decides in words


def test_of_runs_that_cannot_be_compared_the_reason_is_told_and_no_regression(base):
    head = slowed(base, fft=9.0)
    checks = head.table(tables.CORRECTNESS).assign(status="wrong_result")
    machine = {
        **head.record["machine"],
        "gpu": {**head.gpu, "name": "NVIDIA Other"},
        "cpu": {**head.record["machine"]["cpu"], "model": "Other"},
    }
    other = catalog.Run(
        head.path, {**head.record, "machine": machine}, {**head.loaded, tables.CORRECTNESS.name: checks}
    )
    words = notes(Comparison(base, other, TOLERANCE))
    assert words.startswith(
        "**Not comparable**\n\n- GPU times: base was measured on NVIDIA H200, head on NVIDIA Other\n"
    )
    assert "Regressions" not in words and "fft" not in words


def test_a_share_that_is_none_is_refused_and_the_same_run_twice_is_said():
    program = [
        sys.executable,
        PROJECT / "scripts/compare_runs.py",
        "--base",
        RUNS / f"{NEWER}.zip",
        "--head",
        RUNS / f"{NEWER}.zip",
    ]
    for share in ("0", "1", "nan", "-1", "2 %"):
        done = subprocess.run([*program, "--tolerance", share], capture_output=True, text=True)
        assert done.returncode == 2 and f"{share!r} is not a share between 0 and 1" in done.stderr
    done = subprocess.run([*program, "--notes"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"base and head are the same run, {NEWER}" in done.stderr


def test_pages_of_a_comparison_are_laid_out_within_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(pdf, "LAYOUT_S", 1)
    monkeypatch.setattr(
        pdf, "write_pdf", lambda document, target: all(time.process_time() < 30 for _ in itertools.count())
    )
    sides = [f"--base={RUNS / NEWER}.zip", f"--head={RUNS / OLDER}.zip"]
    out = [f"--markdown={tmp_path}/x.md", f"--pdf={tmp_path}/x.pdf"]
    monkeypatch.setattr(sys, "argv", ["compare_runs", *sides, *out])
    with pytest.raises(pdf.LayoutLimit, match="takes more than 1 s"):
        compare_runs.main()


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
    summary, output = tmp_path / "summary.md", tmp_path / "output"
    command = step["run"].replace("--notes", "--notes --tolerance 0.0001")
    done = subprocess.run(
        ["bash", "-e", "-c", command], cwd=tmp_path, capture_output=True, text=True,
        env={
            **os.environ, "RUNNER_TEMP": str(tmp_path), "GITHUB_SHA": "4c01ceb", "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "base.zip").read_bytes() == (RUNS / f"{NEWER}.zip").read_bytes()
    words = summary.read_text()
    assert words.startswith("**Regressions**\n\n- ")  # the one GPU is slower by more than that tolerance
    assert output.read_text() == f"notes<<4c01ceb\n{words}4c01ceb\n"


def test_the_comment_is_made_where_there_is_something_to_say_and_the_right_to_say_it():
    jobs = yaml.safe_load((PROJECT / ".github" / "workflows" / "report.yml").read_text())["jobs"]
    comment = jobs["comment"]
    assert (comment["needs"], comment["permissions"]) == ("report", {"pull-requests": "write"})
    assert "needs.report.outputs.notes != ''" in comment["if"]
    assert all("permissions" not in job for name, job in jobs.items() if name != "comment")
    (step,) = comment["steps"]
    script = step["run"].split(" | ")[0]
    said = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={"NOTES": "- `x` $(id) %s", "RUN": "https://run"}
    )
    assert said.stdout == "- `x` $(id) %s\nThe report is [an artifact of this run](https://run).\n"
