"""The version: said once, in pyproject.toml, and told by everything that names one."""

import importlib.util
import re
import subprocess
import sys

import pytest
import yaml

from warpbook.common import version
from warpbook.common.files import PROJECT
from warpbook.harness import timing
from warpbook.runs.manifest import FORMAT


def test_a_program_that_people_type_tells_the_version(monkeypatch, capsys):
    programs = ["benchmark", "compare_runs", "import_profile", "import_weights", "infer"]
    if importlib.util.find_spec("torch"):
        programs.append("train_weights")
    for program in programs:
        monkeypatch.setattr(sys, "argv", [f"{program}.py", "--version"])
        with pytest.raises(SystemExit) as ended:
            importlib.import_module(program).main()
        assert not ended.value.code
        assert capsys.readouterr().out == f"Warpbook {version.VERSION}\n"


def test_the_citation_names_the_version():
    assert yaml.safe_load((PROJECT / "CITATION.cff").read_text())["version"] == version.VERSION


def test_the_newest_entry_of_the_changelog_is_the_version():
    versions = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == version.VERSION


def test_the_changelog_says_what_each_number_means():
    for title, newest in [("format", FORMAT), ("protocol", timing.PROTOCOL)]:
        head = f"| {title} | since | meaning |\n| --- | --- | --- |\n"
        _, _, rows = (PROJECT / "CHANGELOG.md").read_text().partition(head)
        numbers = re.findall(r"^\| (\d+) \|", rows.partition("\n\n")[0], re.MULTILINE)
        assert numbers == [str(number) for number in range(1, newest + 1)]


def test_archived_runs_are_no_uncommitted_changes_but_any_other_file_is(tmp_path, monkeypatch):
    run = lambda *words: subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)  # noqa: E731
    run("init", "-q")
    run("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "a")
    monkeypatch.setattr(version, "PROJECT", tmp_path)
    for name, dirty in [("reports/runs/20260101-gpu-abcdef.zip", False), ("kernels/conv/mine.cu", True)]:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
        assert version.commit()[1] is dirty
