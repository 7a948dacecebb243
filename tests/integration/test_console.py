"""What Snakemake says on the console: progress in few lines, and every error."""

import io
import logging
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from warpbook.common.files import PACKAGE, PROJECT
from warpbook.workflow import console

JOBS = 40

SNAKEFILE = f"""
import sys
sys.path.insert(0, {str(PROJECT / "scripts")!r})
from warpbook.workflow import console
console.install()

rule all:
    input: expand("{{n}}.txt", n=range({JOBS})), "bad.txt", "after.txt"

rule good:
    output: "{{n}}.txt"
    wildcard_constraints: n="[0-9]+"
    message: "Making {{wildcards.n}}"
    shell: "echo done > {{output}}"

rule bad:
    output: "bad.txt"
    log: "logs/bad.log"
    message: "Breaking it"
    shell: "echo 'error: no such tile' 2>&1 | tee {{log}} >&2; exit 3"

rule after:
    input: "bad.txt"
    output: "after.txt"
    message: "Going on"
    shell: "touch {{output}}"

rule slow:
    output: "slow.txt"
    message: "Sleeping"
    shell: "touch begun; sleep 600; touch {{output}}"
"""


@pytest.fixture(scope="module")
def snakemake(tmp_path_factory):
    """Run a workflow of forty jobs that end well, one that fails and one that waits for it."""
    folder = tmp_path_factory.mktemp("workflow")
    (folder / "Snakefile").write_text(SNAKEFILE)

    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "snakemake", "--cores", "2", "--keep-going", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)

    run.folder = folder
    return run


def test_many_jobs_take_few_lines_and_one_that_failed_is_told_with_its_words_and_log(snakemake):
    done = snakemake("all")
    assert done.returncode != 0
    lines = done.stderr.splitlines()
    assert len(lines) < 12, done.stderr
    assert sum("Making" in line for line in lines) == 1
    assert "error: no such tile" in lines
    failed = lines.index("FAILED: Breaking it")
    assert lines[failed + 1] == "  log: logs/bad.log"
    assert lines[-1].startswith(f"1 of {JOBS + 3} jobs failed, 2 were not begun that wait for such a one.")
    (log,) = (snakemake.folder / ".snakemake" / "log").glob("*.log")
    assert len(re.findall("Making", log.read_text())) == JOBS  # the file keeps all of it


def test_who_asks_snakemake_for_more_gets_all_of_it(snakemake):
    done = snakemake("--printshellcmds", "0.txt", "--force")
    assert "echo done > 0.txt" in done.stderr
    assert "1 of 1 steps (100%) done" in done.stderr
    planned = snakemake("--dry-run", "bad.txt")
    assert "Breaking it" in planned.stdout + planned.stderr
    assert "This was a dry-run" in planned.stdout + planned.stderr


def test_a_dry_run_names_few_files_in_a_reason_and_those_of_the_project_first():
    tool = [f"{PACKAGE}/{number}.py" for number in range(30)]
    record = SimpleNamespace(
        reason=f"Missing output files: a; Updated input files: {', '.join([*tool, 'kernels/b.cu'])}"
    )
    assert console.shorten_reason(record)
    assert record.reason == (
        "Missing output files: a; Updated input files: kernels/b.cu, warpbook/0.py, warpbook/1.py, warpbook/10.py, "
        "warpbook/11.py and 26 more"
    )


def test_who_interrupts_it_twice_is_told_so_and_of_no_failure(snakemake):
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "slow.txt"]
    with subprocess.Popen(
        command,
        cwd=snakemake.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as started:
        until = time.monotonic() + 60
        while not (snakemake.folder / "begun").exists() and time.monotonic() < until:
            time.sleep(0.1)
        for _ in range(2):  # as Ctrl-C does, to all of the terminal's processes
            os.killpg(started.pid, signal.SIGINT)
            time.sleep(0.5)
        words, _ = started.communicate(timeout=60)
    assert started.returncode
    assert "Stopped: 0 of 1 jobs are done. The same command does what is left." in words
    assert "Traceback" not in words and "FAILED" not in words and "failed" not in words, words
    assert not (snakemake.folder / "slow.txt").exists()


def test_where_nothing_is_to_be_done_what_was_asked_for_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    console.SAID.mkdir(parents=True)
    (console.SAID / "mine.txt").write_text("Report of mine: mine.pdf\n  best: none\n")
    reports = [f"reports/out/mine{ending}" for ending in (".pdf", "-supplement.pdf", ".html")]
    stream = io.StringIO()
    handler = console.Console(stream, logging.Formatter("%(message)s"), lambda: [*reports, *map(str, range(7))])
    handler.handle(logging.makeLogRecord({"levelno": logging.INFO, "msg": "Nothing to be done (all are present)."}))
    assert stream.getvalue().splitlines() == [
        "Nothing to be done (all are present).",
        "Report of mine: mine.pdf",
        "  best: none",
        "here: 0, 1, 2, 3, 4 and 2 more",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(stream: io.StringIO, *records: dict) -> str:
    """What a console writes for records of Snakemake's."""
    handler = console.Console(stream, logging.Formatter("%(message)s"))
    for fields in records:
        record = logging.makeLogRecord({"levelno": logging.INFO, "msg": "", **fields})
        handler.handle(record)
    handler.close()
    return stream.getvalue()


def begins(jobid: int, rule: str, words: str = "") -> dict:
    return {"event": "job_info", "jobid": jobid, "rule_name": rule, "rule_msg": words}


def test_a_terminal_has_one_line_that_is_written_over():
    text = said(
        Terminal(),
        {"event": "run_info", "stats": {"total": 8}},
        begins(1, "build", "Building a"),
        {"event": "progress", "done": 1, "total": 8},
        begins(2, "build", "Building b"),
        {"event": "progress", "done": 6, "total": 8},
        begins(3, "render", "Rendering"),
    )
    assert text.count("\n") == 1  # the last job's, below which its own words stand
    shown = [line.split("\x1b[K")[-1] for line in text.split("\r")]
    assert [re.sub("[━╌]+ ", "", line) for line in shown] == [
        "0/8 Building a … ",
        "1/8 Building b … ",
        "6/8 Rendering\n",
    ]


def test_time_that_passes_is_seen_where_no_terminal_is(monkeypatch):
    now = iter([0, 1, 2, 70])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(now))
    text = said(
        io.StringIO(), begins(1, "build", "Building a"), begins(2, "build", "b"), begins(3, "build", "Building c")
    )
    assert text.splitlines() == ["[0/0] 0:01 Building a", "[0/0] 1:10 Building c"]


def test_what_is_not_known_to_be_chatter_is_said():
    warning = {"levelno": logging.WARNING, "msg": "The disk is almost full"}
    text = said(io.StringIO(), {"msg": "Select jobs to execute..."}, warning, {"msg": "Trying to restart job 3."})
    assert text.splitlines() == ["The disk is almost full", "Trying to restart job 3."]


def test_of_a_job_that_failed_elsewhere_the_end_of_its_log_is_shown(tmp_path):
    log = tmp_path / "job.log"
    log.write_text("\n".join(f"line {number}" for number in range(50)))
    failed = {"event": "job_error", "jobid": 4, "rule_name": "time", "log": [str(log)], "shellcmd": "x"}
    text = said(io.StringIO(), {**failed, "aux": {"external_jobid": "77"}}, {**failed, "aux": {"external_jobid": "77"}})
    assert text.splitlines() == [
        "FAILED: time",
        "  external_jobid: 77",
        *[f"  | line {number}" for number in range(45, 50)],
        f"  log: {log}",
    ]
