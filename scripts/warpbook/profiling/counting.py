"""Runs a program under Nsight Compute, which counts what it marks by cudaProfilerStart and -Stop."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from warpbook.common.errors import UserError
from warpbook.machine import gpu_turn
from warpbook.profiling import ncu, nsight
from warpbook.runs import tables
from warpbook.runs.schema import Row

RETRIES_MAX = 6  # after so many runs without the counters that ncu named, it must be refusing for another reason
NO_PERMISSION = (
    "ERR_NVGPUCTRPERM: the driver lets only administrators read hardware counters; "
    "run as root, or load its module with NVreg_RestrictProfilingToAdminUsers=0"
)
RunCommand = Callable[[Sequence[str | Path], float, Mapping[str, str]], tuple[int, str, str]]
"""Runs a command to its end, in so many seconds under an environment: (exit status, stdout, stderr). Raises
TimeoutExpired."""

Failure = tuple[str, str]  # (a status of the tables, the reason)

NOTHING = {"launch": 0, "kernel": "", "metric": "", "unit": "", "value": None, "launches": None}
"""Columns of COUNTERS for a call that was not counted."""
_UNKNOWN = re.compile(r"Failed to find metric (?:regex:\^?)?(\w+(?:\.\w+)*)")
_OWN_WORDS = re.compile(r"==ERROR== (?!The application returned an error code)(.*)")


def drop_unknown(metrics: list[str], said: str) -> list[str]:
    """The counters, without those that ncu says it does not know."""
    unknown = set(_UNKNOWN.findall(said))
    return [metric for metric in metrics if metric not in unknown and metric.split(".")[0] not in unknown]


def no_counters_reason(status: int, said: str, err: str) -> Failure:
    """The failure in ncu's output: `refused` where ncu names one, else the program's last words."""
    if "NVGPUCTRPERM" in said + err:
        return "refused", NO_PERMISSION
    if words := _OWN_WORDS.findall(said + "\n" + err):
        return "refused", f"ncu: {words[0].strip()[:300]}"
    lines = [line.strip() for line in err.splitlines() if line.strip() and not line.startswith("==")]
    reason = lines[-1][:300].removeprefix("error: ") if lines else f"ncu counted nothing, exit status {status}"
    return "launch_failed", reason


def run_under_ncu(
    run: RunCommand, inside: Sequence[str], metrics: list[str], timeout_s: float, report: Path
) -> tuple[list[dict[str, Any]], Failure | None]:
    """(a row for each counter of each launch of a command that `run` runs, with NVTX `ranges`, counters unknown to ncu
    left out; the failure if any). ncu's report stays at `report`."""
    program = shutil.which("ncu")
    if not program:
        return [], ("unsupported", "ncu (Nsight Compute) is not on PATH")
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "ncu.csv"
        for _ in range(RETRIES_MAX):
            command = [
                program, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
                "--cache-control", "none", "--replay-mode", "kernel", "--profile-from-start", "off", "--nvtx",
                "--metrics", ",".join(metrics), "--log-file", str(log), "--export", str(report), "--force-overwrite",
                *inside,
            ]  # fmt: skip
            log.unlink(missing_ok=True)
            report.unlink(missing_ok=True)
            try:
                # One ncu at a time gets at $TMPDIR/nsight-compute-lock, and each of several GPUs may have one.
                status, out, err = run(command, timeout_s, {**os.environ, "TMPDIR": scratch})
            except subprocess.TimeoutExpired:
                return [], ("timed_out", f"still running under ncu after {timeout_s:g} s (timeout_s)")
            said = log.read_text(errors="replace") if log.exists() else ""
            known = drop_unknown(metrics, said + out + err)
            if known == metrics or report.exists():
                break
            metrics = known
        try:
            page = ncu.read_page(said.splitlines())
            if page is None and report.exists():
                page = ncu.read_page(nsight.raw_page(report).splitlines())
            counted: list[dict[str, Any]] = []
            if page:
                named = [row for row in page.counters if row["metric"] in metrics]
                counted = [{**row, "ranges": page.ranges.get(row["launch"], "")} for row in named]
        except UserError as error:
            return [], ("launch_failed", str(error))
        return counted, None if counted and not status else no_counters_reason(status, said + out, err)


def counter_rows(
    place: dict[str, Any], counted: list[dict[str, Any]], metrics: list[str], launches: int | None
) -> list[dict[str, Any]]:
    """Rows of COUNTERS for a call at `place` of so many launches, if known: one for each metric and launch counted."""
    rows: list[dict[str, Any]] = []
    for launch in sorted({counter["launch"] for counter in counted}):
        by_metric = {counter["metric"]: counter for counter in counted if counter["launch"] == launch}
        kernel = next(iter(by_metric.values()))["kernel"]
        rows += [
            {
                **place, "launch": launch, "kernel": kernel, "metric": metric,
                "unit": by_metric[metric]["unit"] if metric in by_metric else "",
                "value": by_metric[metric]["value"] if metric in by_metric else None,
                "launches": launches, "status": "ok", "reason": "",
            }
            for metric in metrics
        ]  # fmt: skip
    return rows


def write_counters(out: Path, count: Callable[[RunCommand], list[Row]]) -> None:
    """Write the rows of COUNTERS that `count` makes in this job's turn at the GPU, and print why others are not."""
    with gpu_turn.hold_turn(out) as turn:
        rows = count(turn.run)
        turn.report_rows(rows)
    tables.COUNTERS.write(rows, out)
    for row in rows:
        if row["status"] != "ok":
            print(f"no counters of {row['variant']} on {row['case']}: {row['status']}: {row['reason']}")
