"""Report on one submission of the course: create or update its own project, and make the report there."""

import argparse
import contextlib
import gc
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import assemble_run
import build_variant
import check_variant
import probe_machine
import render_submission
from warpbook.common import files, supervision
from warpbook.common.errors import MachineFault, UserError, exit_status
from warpbook.common.quick_yaml import load_yaml
from warpbook.common.supervision import VariantFailure, end_with_parent, run_supervised
from warpbook.config.course_term import Term
from warpbook.course import gradescope, submissions
from warpbook.course.grades_table import GRADES
from warpbook.problems import networks
from warpbook.report import class_report
from warpbook.runs import tables
from warpbook.workflow import plan
from warpbook.workflow.targets import Targets

REPORT = Path("results/report")  # what the project's Snakemake makes, from its folder
UNJUDGED = "not judged: "  # how a MachineFault begins that stopped a check

TIMEOUTS = 2  # of `timeout_s` in all: for files that do not end, a layer each
FILE_S = 60  # for each file, to be built and checked
OVERHEAD_S = 300  # for all else, the report's pages first of all
MEMORY_BYTES = 2 * supervision.MEMORY_BYTES


def limit_s(room: Path, timeout_s: float) -> float:
    """What the Snakemake of a submission may take, by a Stopwatch."""
    return OVERHEAD_S + TIMEOUTS * timeout_s + FILE_S * len(list((room / "kernels").rglob("*.cu")))


def run_project(room: Path, cores: int) -> None:
    """Make the report in its project: by the project's own Snakemake, which makes anew what changed on all cores, where
    that can be only part or times are taken. Raises UserError where it fails."""
    if len(list((room / "kernels").rglob("*.cu"))) == 1:
        with contextlib.chdir(room):
            targets = read_targets()
            if not targets.on_gpu:
                make_report(targets)
                return
    parent = os.getpid()
    done = subprocess.run(command(cores), cwd=room, env=environment(room), preexec_fn=lambda: end_with_parent(parent))
    if done.returncode:
        raise UserError(f"the Snakemake of {room} failed with exit status {done.returncode}; its words stand above")


def work_with_limit(room: Path, limit_s: float) -> None:
    """The same within a time, its words in a log; else a UserError, and all that it started ends."""
    log = room.absolute() / "logs" / "submission.log"

    def work() -> Iterator[None]:
        os.chdir(room)
        log.parent.mkdir(exist_ok=True)
        with log.open("w", encoding="utf-8") as words:
            for output in (sys.stdout, sys.stderr):
                os.dup2(words.fileno(), output.fileno())
        targets = read_targets()
        if not targets.on_gpu:
            make_report(targets)
        elif status := subprocess.run(command(1)).returncode:
            reasons = re.findall(r"^error: (.+)", log.read_text(encoding="utf-8"), re.MULTILINE)
            if fault := next((reason for reason in reasons if _is_machine_fault(reason)), ""):
                raise MachineFault(f"{UNJUDGED}{fault.removeprefix(UNJUDGED)}")
            why = f" ({reasons[-1]})" if reasons else ""
            raise UserError(f"its Snakemake failed with exit status {status}{why}; {log} has its words")
        yield

    try:
        for _ in run_supervised(work, limit_s, MEMORY_BYTES):
            pass
    except VariantFailure as failure:
        if failure.status == "timed_out":
            raise UserError(f"it took longer than the {limit_s:.0f} s that a submission of so many files may") from None
        raise UserError(str(failure)) from None


def read_targets() -> Targets:
    """What is to be made in the project that is the working folder."""
    values = networks.with_library(load_yaml(Path("config.yaml").read_text(encoding="utf-8")))
    return Targets(plan.from_config(values))


def make_report(targets: Targets) -> None:
    """What the rules do where no GPU is measured on, all in this process: to start Snakemake, and Python for each part,
    would take longer than the parts."""
    planned, config = targets.plan, targets.plan.config
    machine = Path("results/parts/machine.json")
    probe_machine.main(["--gpu", "no", "--out", str(machine)])
    sandboxed = ["--sandbox", config.sandbox]
    for name, folder in zip(planned.variants_to_build, targets.builds, strict=True):
        build_variant.main(["--variant", name, "--architectures", *planned.architectures, *sandboxed, "--out", folder])
    for path in targets.checks:
        network, name = Path(path).parent.name, Path(path).stem
        sizes = map(str, planned.sizes(network))
        limits = ["--timeout", str(config.measuring.timeout_s), "--spent", str(submissions.SPENT)]
        place = ["--device", "emulator", "--cases", network, "--variant", name]
        check_variant.main([*place, "--sizes", *sizes, *limits, *sandboxed, "--out", path])
    values = json.loads(config.recorded_json)
    run = Path("results/run")
    parts = assemble_run.group_by_table(
        [*(Path(folder, tables.BUILDS.name) for folder in targets.builds), *map(Path, targets.parts)]
    )
    sizes_of = {name: planned.sizes(name) for name in planned.case_sets}
    assemble_run.assemble(json.loads(machine.read_text()), parts, values, sizes_of, [], run)
    render_submission.render(values, run, REPORT)


def _is_machine_fault(reason: str) -> bool:
    """Whether an error of a program tells of a MachineFault."""
    return reason.startswith(UNJUDGED) or " cannot be written: " in reason


def command(cores: int) -> list[str]:
    return [sys.executable, "-m", "snakemake", "--cores", str(cores), str(REPORT)]


def environment(room: Path) -> dict[str, str]:
    return {**os.environ, files.PROJECT_VARIABLE: str(room.absolute()), files.SUBMISSION_VARIABLE: "1"}


def run_untrusted(shared: dict[str, Any]) -> dict[str, Any]:
    """The configuration for a stranger's submission: sandboxed unless none is asked for, without profilers."""
    return {**shared, "sandbox": "none" if shared["sandbox"] == "none" else "all", "profilers": []}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the submission")
    parser.add_argument("--problem", nargs="?", const="", default="", help="why nothing of it can be read")
    parser.add_argument("--name", required=True, help="its name")
    parser.add_argument(
        "--config", type=json.loads, required=True, help="the configuration that its project takes over, as JSON"
    )
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument(
        "--untrusted", action="store_true", help="one of many, by someone else: a failure becomes its row"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the reports")
    arguments = parser.parse_args()
    gc.disable()  # what is read stays, and so does a document until it is written
    shared = run_untrusted(arguments.config) if arguments.untrusted else arguments.config
    study, timeout_s = shared["study"], shared["measuring"]["timeout_s"]
    room = submissions.ROOMS / study / arguments.name
    named = f"ECE408_{study.upper()}_{arguments.name}_m3_report"  # as the course wants it called
    problem = ""
    try:
        if arguments.problem:
            raise UserError(arguments.problem)
        submissions.open_room(room, arguments.name, arguments.folder, shared)
        (room / submissions.SPENT).unlink(missing_ok=True)
        if arguments.untrusted:
            work_with_limit(room, limit_s(room, timeout_s))
        else:
            run_project(room, arguments.cores)
    except (UserError, OSError, ValueError) as error:  # a file that went away, a name that is no text
        if not arguments.untrusted:
            raise
        problem = str(error)
    with files.atomic_write(arguments.out) as out:
        out.mkdir()
        if problem:
            GRADES.write([class_report.failure_row(arguments.name, study, problem)], out / f"{named}.csv")
        for ending in () if problem else (".pdf", ".html", ".csv"):
            shutil.copyfile(room / REPORT / f"report{ending}", out / f"{named}{ending}")
        if not problem.startswith(UNJUDGED):
            term = Term.model_validate(shared["studies"][study]["course"])
            results = gradescope.results_json(GRADES.rows(out / f"{named}.csv"), term)
            (out / gradescope.NAME).write_text(results, encoding="utf-8")
    print(f"{arguments.name}: {problem}" if problem else f"Report of {arguments.name}: {arguments.out / named}.pdf")


if __name__ == "__main__":
    sys.exit(exit_status(main))
