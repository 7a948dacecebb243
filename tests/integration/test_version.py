"""The version: said once, in pyproject.toml, and told by everything that names one."""

import re
import subprocess
import sys

import pytest
import yaml

from warpbook.common import version
from warpbook.common.files import PROJECT
from warpbook.harness import timing
from warpbook.runs.manifest import FORMAT


@pytest.mark.parametrize(
    "program", ["benchmark", "compare_runs", "import_profile", "import_weights", "infer", "train_weights"]
)
def test_a_program_that_people_type_tells_the_version(program):
    if program == "train_weights":
        pytest.importorskip("torch", reason="training needs PyTorch, which is not installed")
    command = [sys.executable, f"scripts/{program}.py", "--version"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == f"Warpbook {version.VERSION}\n"


def test_the_citation_names_the_version():
    assert yaml.safe_load((PROJECT / "CITATION.cff").read_text())["version"] == version.VERSION


def test_the_newest_entry_of_the_changelog_is_the_version():
    versions = re.findall(r"^## \[?(\d+\.\d+\.\d+)", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == version.VERSION


@pytest.mark.parametrize(("title", "newest"), [("format", FORMAT), ("protocol", timing.PROTOCOL)])
def test_the_changelog_says_what_each_number_means(title, newest):
    head = f"| {title} | since | meaning |\n| --- | --- | --- |\n"
    _, _, rows = (PROJECT / "CHANGELOG.md").read_text().partition(head)
    numbers = re.findall(r"^\| (\d+) \|", rows.partition("\n\n")[0], re.MULTILINE)
    assert numbers == [str(number) for number in range(1, newest + 1)]
