"""Gradescope's autograder: its zip, its two programs in their documented places, and the results that they write."""

import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.config.course_term import Term
from warpbook.course import gradescope
from warpbook.course.grades_table import GRADES
from warpbook.harness import sandbox
from warpbook.harness.emulator import emulation
from warpbook.report import class_report
from workspaces import link_project

RIGHT = PROJECT / "tests" / "data" / "course" / "one_call.cu"
VALUES = yaml.safe_load(settings.FILE.read_text(encoding="utf-8"))
SP25 = Term.model_validate(VALUES["studies"]["sp25"]["course"])

WHOLE = {
    "score": float, "execution_time": float, "output": str, "output_format": str, "test_output_format": str,
    "test_name_format": str, "visibility": str, "stdout_visibility": str, "extra_data": dict, "tests": list,
    "leaderboard": list,
}  # fmt: skip
TEST = {
    "score": float, "max_score": float, "status": str, "name": str, "name_format": str, "number": str, "output": str,
    "output_format": str, "tags": list, "visibility": str, "extra_data": dict,
}  # fmt: skip
"""What Gradescope documents of results.json."""


def assert_documented(results: dict) -> None:
    for content, known in [(results, WHOLE), *((test, TEST) for test in results["tests"])]:
        assert content.keys() <= known.keys()
        assert all(type(value) is known[key] for key, value in content.items())
        assert content["visibility"] in ("hidden", "after_due_date", "after_published", "visible")
    assert {test["status"] for test in results["tests"] if "status" in test} <= {"passed", "failed"}
    assert results["output_format"] in ("text", "html", "simple_format", "md", "ansi")


def row(number: str, verdict: str, **columns) -> dict:
    nothing = class_report.failure_row("mine", "sp25", "")
    return {**nothing, "number": number, "title": f"Title of {number}", "verdict": verdict, **columns}


def test_a_score_is_the_points_of_right_files_that_hold_the_words_asked_for():
    rows = [
        row("final", "right"),
        row("req_0", "right", possible=10, claimed=10, rule="right; cudaStreamCreate in line 3; cudaMemcpyAsync in line 4"),
        row("req_1", "right", possible=10, claimed=10, rule="right", person="why its code has no wmma"),
        row("op_0", "wrong", possible=1, claimed=1, words="a fault", place="m3/op_0/m3-forward.cu:19", rule="wrong"),
        row("op_5", "not judged", possible=4, claimed=4, rule="not judged", person="whether it is right: beyond"),
        row("op_2", "no file", possible=1),
    ]  # fmt: skip
    results = json.loads(gradescope.results_json(rows, SP25))
    assert_documented(results)
    tests = {test["name"].split(":")[0]: test for test in results["tests"]}
    assert {name: test["score"] for name, test in tests.items() if test["score"]} == {"req_0": 10}
    assert results["score"] == 10
    assert {name: test.get("status") for name, test in tests.items()} == {
        "final": "passed", "req_0": "passed", "req_1": "passed", "op_0": "failed", "op_5": None, "op_2": "failed",
    }  # fmt: skip
    assert tests["op_0"]["output"] == "wrong, m3/op_0/m3-forward.cu:19\na fault"
    assert "why its code has no wmma" in tests["req_1"]["output"]


def test_optional_points_count_up_to_what_the_term_says():
    number, one = "op_6", SP25.optimizations["op_6"]
    assert one.points + SP25.optimizations["op_3"].points + SP25.optimizations["op_5"].points > SP25.optional_points
    shown = {name: SP25.optimizations[name].code_must_contain for name in ("op_6", "op_3", "op_5")}
    rows = [
        row(name, "right", possible=SP25.optimizations[name].points, claimed=SP25.optimizations[name].points,
            rule="; ".join(["right", *(f"{word} in line 1" for word in words)]))
        for name, words in shown.items()
    ]  # fmt: skip
    assert json.loads(gradescope.results_json(rows, SP25))["score"] == SP25.optional_points
    assert number in shown


class Autograder:
    """The folders that Gradescope has under /autograder, elsewhere."""

    def __init__(self, root: Path):
        self.root = root
        for name in ("source", "submission", "results"):
            (root / name).mkdir()
        for name in ("setup.sh", "run_autograder"):
            shutil.copy(PROJECT / "autograder" / name, root / "source")
        (root / "source" / "term.txt").write_text("sp25\n")

    def run(self, program: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.root / "source" / program], env={**os.environ, "AUTOGRADER": str(self.root), **environment},
            cwd=self.root, capture_output=True, text=True, timeout=600,
        )  # fmt: skip


def test_the_image_s_set_up_installs_the_locked_environment_into_the_source(tmp_path):
    grader = Autograder(tmp_path)
    source = tmp_path / "source"
    (source / "scripts").mkdir()
    (source / "scripts" / "install.sh").write_text('#!/bin/sh\nmkdir "$1"; echo "$PWD" "$@" > asked\n')
    (source / "scripts" / "install.sh").chmod(0o755)
    done = grader.run("setup.sh")
    assert done.returncode == 0, done.stderr
    where, folder, *locks = (source / "asked").read_text().split()
    assert (where, folder) == (str(source), ".venv")
    assert all((PROJECT / lock).is_file() for lock in locks) and locks
    assert (source / ".venv" / "installed").exists()


@pytest.mark.skipif(emulation.compiler() is None, reason="there is no C++ compiler here to emulate with")
@pytest.mark.skipif(bool(sandbox.unavailable_reason()), reason="there is no sandbox here")
def test_a_submission_in_its_place_gives_the_results_in_theirs(tmp_path):
    grader = Autograder(tmp_path)
    source = tmp_path / "source"
    link_project(source)
    (source / "config.yaml").write_bytes(settings.FILE.read_bytes())
    (source / ".venv").symlink_to(sys.prefix)
    for place, code in (("src/layer/custom", RIGHT.read_text()), ("m3/op_2", "no C++")):
        (tmp_path / "submission" / "project" / place).mkdir(parents=True)
        (tmp_path / "submission" / "project" / place / "m3-forward.cu").write_text(code)
    done = grader.run("run_autograder", WARPBOOK_PROJECT=str(source))
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results" / "results.json").read_text())
    assert_documented(results)
    tests = {test["name"].split(":")[0]: test for test in results["tests"]}
    assert tests["final"]["status"] == "passed"
    assert tests["op_2"]["output"].startswith("does not compile")
    assert (tests["op_2"]["score"], tests["op_2"]["max_score"]) == (0, 1)


def test_the_zip_holds_the_project_and_the_two_programs_at_its_root():
    done = subprocess.run(
        ["make", "autograder", "study=sp25"], cwd=PROJECT, capture_output=True, text=True
    )  # of what is committed
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(PROJECT / "reports" / "out" / "sp25-autograder.zip") as packed:
        assert {"setup.sh", "run_autograder", "Snakefile", "config.yaml", "scripts/install.sh"} <= set(
            packed.namelist()
        )
        assert packed.read("term.txt") == b"sp25\n"
        assert (packed.getinfo("run_autograder").external_attr >> 16) & stat.S_IXUSR


def test_a_row_of_a_submission_without_a_report_is_a_test_that_says_why(tmp_path):
    GRADES.write([class_report.failure_row("mine", "sp25", "it is a link")], tmp_path / "mine.csv")
    results = json.loads(gradescope.results_json(GRADES.rows(tmp_path / "mine.csv"), SP25))
    assert_documented(results)
    (test,) = results["tests"]
    assert (test["name"], test["status"], test["output"]) == ("mine", "failed", "no report\nit is a link")
