"""A tiny study's commands killed in their midst: the same command, given again, ends as though nothing had been.

`make chaos` kills 40 times, at random moments: Snakemake, one of its programs, or everything at once; and it grades two
submissions too. The suite kills Snakemake once, as soon as a first result is there, so that no machine is too fast or too
slow for it.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from pypdf import PdfReader

from warpbook.common.files import PROJECT
from warpbook.config import settings
from warpbook.harness.emulator import emulation
from warpbook.runs import catalog, tables
from workspaces import TINY

KILLS = int(os.environ.get("CHAOS_KILLS", "1"))
ENDED_WITHIN_S = 10
ARCHIVE = ["archive", "--config", "archive=archives"]
GRADE = ["grade", "--config", "submissions=all", "study=sp25", "sandbox=none"]
COMPARE = ["compare", "--config", "base=results/run", "head=results/run"]

# What is asked for, and what is undone before it.
COMMANDS = {
    "report": (["report"], ["results/run", "results/parts", "results/builds", "reports/out"]),
    "measure": (["measure"], ["results/run", "results/parts"]),
    "archive": (ARCHIVE, ["results/archived.txt", "archives", "results/run"]),
    "rendering": (["report", "--forcerun", "render_report"], []),
    "compare": (COMPARE, ["reports/out/compare.md", "reports/out/compare.pdf"]),
}
GRADED = {"grade": (GRADE, ["reports/out/sp25", "reports/out/sp25-grades", "results/submissions"])}
FIRST_MEASURED = "results/parts/machine.json"
CHOICE = random.Random()


class Study:
    """A workspace whose commands and their jobs know each other by a word in their environment."""

    def __init__(self, workspace):
        self.workspace, self.folder = workspace, workspace.folder
        (self.folder / "tmp").mkdir()

    def hand_in(self) -> None:
        """Two submissions to grade: a wrong file, and one that does not compile."""
        course = yaml.safe_load(settings.FILE.read_text())["studies"]["sp25"]
        self.workspace.configure(studies={**TINY["studies"], "sp25": course})
        code = (PROJECT / "tests" / "data" / "course" / "one_call.cu").read_text()
        for name, file in (
            ("wrong", code.replace("(TILE + K - 1) * (TILE + K - 1)", "TILE * TILE")),
            ("broken", code.replace("const int H_out", "const imt H_out", 1)),
        ):
            assert file != code
            folder = self.folder / "all" / name / "project" / "m3" / "op_0"
            folder.mkdir(parents=True)
            (folder / "m3-forward.cu").write_text(file)

    def start(self, *arguments: str) -> subprocess.Popen:
        return self.workspace.start(*arguments, TMPDIR=str(self.folder / "tmp"), TINY_STUDY=str(self.folder))

    def make(self, *arguments: str) -> str:
        """What a command prints that ends well; a comparison may end with its verdict."""
        process = self.start(*arguments)
        words, _ = process.communicate(timeout=300)
        assert process.returncode in (0, 3, 4, 5) if "compare" in arguments else process.returncode == 0, words
        return words

    def alive(self) -> list[int]:
        """Processes that this study started, ended ones left out."""
        mark = f"TINY_STUDY={self.folder}\0".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (path / "environ").read_bytes():
                    found.append(int(path.name))
            except OSError:  # it ended meanwhile, or is another user's
                continue
        return found

    def temporary(self) -> list[str]:
        """Files that nobody should be left with."""
        kept = (".lock", ".snakemake_timestamp")
        found = [path for name in ("results", "logs", "archives") for path in (self.folder / name).rglob(".*")]
        found += (self.folder / "reports" / "out").rglob(".*")
        found += (self.folder / "tmp").iterdir()
        # Two libraries leave folders of their own in TMPDIR when they are killed.
        found = [
            path
            for path in found
            if not path.match("tmp/snakemake*")
            and not path.match("tmp/*-pulp.*")
            and not path.match("tmp/weasyprint-*")
        ]
        return [str(path.relative_to(self.folder)) for path in found if not path.name.endswith(kept)]

    def results(self) -> dict[str, object]:
        """What a run and its report say, without times."""
        run = catalog.open_run(self.folder / "results" / "run")
        assert run.problem == ""
        builds, checks = run.table(tables.BUILDS), run.table(tables.CORRECTNESS)
        samples, programs = run.table(tables.SAMPLES), run.table(tables.PROGRAMS)
        columns = ["variant", "network", "layer", "device", "size", "status"]
        report = PdfReader(self.folder / "reports" / "out" / "tiny.pdf")
        html = (self.folder / "reports" / "out" / "tiny.html").read_text()
        assert html.rstrip().endswith("</html>")
        grades = self.folder / "reports" / "out" / "sp25-grades" / "grades.csv"
        return {
            "grades": grades.read_text() if grades.exists() else "",
            "builds": builds.to_csv(),
            "correctness": checks[[*columns, "test", "ok", "mismatched_labels"]].to_csv(),
            "samples": samples[columns].drop_duplicates().to_csv(index=False),
            "programs": programs[["variant", "network", "size", "accuracy", "status"]].to_csv(),
            "headings": [words for words in re.findall("<h[12][^>]*>(.*?)</h", html) if run.run_id not in words],
            "the report's first page": re.sub(r"\d.*", "", report.pages[0].extract_text()),
        }


@pytest.fixture
def study(workspace) -> Study:
    """A study that was made once."""
    return Study(workspace)


def undo(study: Study, paths: list[str]):
    for path in (study.folder / name for name in paths):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def killed(study: Study, arguments: list[str], whom: str, is_time: Callable[[], bool]) -> bool:
    """Start a command and kill it once it is time; whether it had not ended before."""
    process = study.start(*arguments)
    while not is_time():
        if process.poll() is not None:
            return False
        time.sleep(0.02)
    others = [pid for pid in study.alive() if pid != process.pid]
    victims = {"Snakemake": [process.pid], "one of its programs": others and [CHOICE.choice(others)]}
    for pid in victims.get(whom) or [process.pid, *others]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.communicate(timeout=120)
    return True


def duration(study: Study, arguments: list[str], undone: list[str]) -> float:
    """Seconds that a command takes which nobody kills."""
    undo(study, undone)
    began = time.monotonic()
    study.make(*arguments)
    return time.monotonic() - began


def test_a_command_killed_at_any_moment_is_made_good_by_the_same_command(study, tried):
    commands = COMMANDS | (GRADED if KILLS > 1 and emulation.compiler() else {})
    if commands != COMMANDS:
        study.hand_in()
    lasts_s = {name: duration(study, *commands[name]) for name in commands} if KILLS > 1 else {}
    undisturbed = study.results()
    assert len(re.findall("wrong|does not compile", str(undisturbed["grades"]))) >= 2 * (commands != COMMANDS)
    assert study.temporary() == []
    kinds = ("Snakemake", "one of its programs", "everything")
    order = ["measure", *CHOICE.sample(sorted(commands.keys() - {"measure"}), len(commands) - 1)]
    interrupted = 0
    for number in range(KILLS):
        name, whom = order[number % len(order)], kinds[number % len(kinds)]
        arguments, undone = commands[name]
        undo(study, undone)
        if lasts_s:
            after_s = CHOICE.uniform(0.2, 1.0) * lasts_s[name]
            place, ends = f"{name}, {whom} killed after {after_s:.2f} s", time.monotonic() + after_s
            interrupted += killed(study, arguments, whom, lambda ends=ends: time.monotonic() > ends)
        else:
            place, first = f"{name}, {whom} killed after its first result", study.folder / FIRST_MEASURED
            interrupted += killed(study, arguments, whom, first.exists)
        until = time.monotonic() + ENDED_WITHIN_S
        while (left := study.alive()) and time.monotonic() < until:
            time.sleep(0.1)
        assert not left, f"{place}: processes left: {left}"
        study.make(*arguments)
        if "report" not in arguments:
            study.make("report")
        assert study.temporary() == [], place
        assert study.results() == undisturbed, place
    assert interrupted, "every command ended before it was killed: nothing was tested"
    outcome = (
        "given again, the command ends with the results of an undisturbed one; no process after "
        f"{ENDED_WITHIN_S} s, no temporary file"
    )
    tried("`kill -9` of Snakemake, one of its programs or everything, at a random moment", interrupted, outcome)
