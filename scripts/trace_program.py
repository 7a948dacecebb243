"""Profile the inference program at each size: a row for each kernel, copy, API call and range."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpbook.common.errors import UserError, exit_status
from warpbook.common.supervision import VariantFailure
from warpbook.kernels import variants
from warpbook.machine import gpu_turn
from warpbook.machine.host import require_target
from warpbook.problems import networks
from warpbook.profiling import cupti_sqlite, importing, nsight, profile_schema
from warpbook.profiling.profile_schema import Profile
from warpbook.runs import tables

EVENTS_MAX = 25_000
SCRIPTS = Path(__file__).parent


@dataclass(frozen=True)
class ProfilerCapture:
    """A program that a profiler watched: events as rows of ACTIVITIES, their sums as rows of SUMMARIES, their number, the
    profiler's files."""

    events: list[dict[str, Any]]
    sums: list[dict[str, Any]]
    count: int
    output: str
    reports: list[Path]


@dataclass(frozen=True)
class TracedProgram:
    """The inference program with one variant at one size, and a folder to work in. weights: empty for the first."""

    network: str
    variant: str
    size: int
    weights: str
    timeout_s: float
    scratch: Path
    turn: gpu_turn.GpuTurn

    @property
    def command(self) -> list[str]:
        place = ["--variant", self.variant, "--network", self.network, "--device", "gpu"]
        place += ["--weights", self.weights] if self.weights else []
        return [sys.executable, str(SCRIPTS / "infer.py"), *place, str(self.size)]

    @property
    def name(self) -> str:
        return "-".join(filter(None, [self.network, self.variant, str(self.size), self.weights]))

    def run(self, *command: str | Path) -> str:
        """A command's output. Raises VariantFailure, with its last words, where it hangs or fails."""
        try:
            status, out, err = self.turn.run(command, self.timeout_s)
        except subprocess.TimeoutExpired:
            reason = f"still running after {self.timeout_s:g} s (timeout_s in config.yaml)"
            raise VariantFailure("timed_out", reason) from None
        except OSError as error:
            raise VariantFailure("unsupported", f"{command[0]} cannot be started: {error.strerror}") from None
        if status:
            words = (err.strip() or out.strip()).splitlines()
            reason = words[-1] if words else f"exit status {status}"
            raise VariantFailure("launch_failed", f"profiling failed: {reason.removeprefix('error: ')}")
        return out


def trace_by_cupti(program: TracedProgram) -> ProfilerCapture:
    out, sums, count = (program.scratch / name for name in ("events.csv", "sums.csv", "count.txt"))
    place = ["--variant", program.variant, "--network", program.network, "--size", str(program.size)]
    limits: list[str | Path] = ["--at-most", str(EVENTS_MAX), "--out", out, "--sums", sums, "--count", count]
    output = program.run(sys.executable, SCRIPTS / "trace_with_cupti.py", *place, *limits, *program.command[1:])
    events, sums_by_name = tables.ACTIVITIES.rows(out), tables.SUMMARIES.rows(sums)
    return ProfilerCapture(events, sums_by_name, int(count.read_text()), output, [])


def trace_by_nsys(program: TracedProgram) -> ProfilerCapture:
    report, exported = program.scratch / "report.nsys-rep", program.scratch / "exported.sqlite"
    options = ["--trace", "cuda,nvtx", "--sample", "none", "--cpuctxsw", "none", "--force-overwrite", "true"]
    output = program.run("nsys", "profile", *options, "--output", report.with_suffix(""), *program.command)
    nsight.export(report, exported)
    profile = cupti_sqlite.read(exported, report.name)
    kept = program.scratch / f"{program.name}.nsys.sqlite"
    nsight.copy_events(exported, kept)
    return read_capture(program, profile, output, [kept])


def trace_by_nvprof(program: TracedProgram) -> ProfilerCapture:
    """A trace, and the analysis metrics of the variant's own longest kernel, as the visual profiler reads them."""
    kept = [program.scratch / f"{program.name}.nvvp", program.scratch / f"{program.name}-analysis.nvvp"]
    output = program.run("nvprof", "--force-overwrite", "--export-profile", kept[0], *program.command)
    seen = read_capture(program, cupti_sqlite.read(kept[0], kept[0].name), output, kept[:1])
    spans: dict[str, int] = {}
    for event in seen.events:
        if event["kind"] == "kernel":
            spans[event["name"]] = spans.get(event["name"], 0) + event["end_ns"] - event["start_ns"]
    if spans:
        longest = max(spans, key=lambda name: spans[name]).split("(")[0]
        options = ["--force-overwrite", "--kernels", longest, "--analysis-metrics", "--export-profile"]
        try:
            program.run("nvprof", *options, kept[1], *program.command)
            seen.reports.append(kept[1])
        except VariantFailure as failed:
            print(f"no analysis metrics of {longest} with {program.variant}: {failed}")
    return seen


def read_capture(program: TracedProgram, profile: Profile, output: str, reports: list[Path]) -> ProfilerCapture:
    """What a profiler's file holds."""
    rows_of = importing.combine({reports[0].name: profile}, program.variant, program.network, program.size)
    events = rows_of.get(tables.ACTIVITIES, [])
    sums = rows_of.get(tables.SUMMARIES) or profile_schema.sums(profile.tool, events)
    count = len(events) or sum(row["calls"] or 0 for row in sums)
    return ProfilerCapture(events, sums, count, program_output(output), reports)


def program_output(text: str) -> str:
    """The program's output, without what the profiler printed around it."""
    begin, end = "Loading fashion-mnist", ("Correctness:", "EvalMetric:")
    lines = text.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith(begin)), 0)
    last = next((number for number, line in enumerate(lines) if line.startswith(end)), len(lines) - 1)
    return "".join(f"{line}\n" for line in lines[first : last + 1])


TRACERS: dict[str, Callable[[TracedProgram], ProfilerCapture]] = {
    "cupti": trace_by_cupti,
    "nsys": trace_by_nsys,
    "nvprof": trace_by_nvprof,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", choices=TRACERS, required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--weights", nargs="*", default=[], help="further weight sets, at the largest size")
    parser.add_argument("--baseline", type=Path, nargs="?", help="rows of PROFILES of the variant's baseline")
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--correctness", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="rows of ACTIVITIES")
    parser.add_argument(
        "--sums", type=Path, required=True, help="rows of SUMMARIES, of what has more events than are kept"
    )
    parser.add_argument("--profiles", type=Path, required=True, help="rows of PROFILES")
    parser.add_argument("--reports", type=Path, required=True, help="folder for the profiler's own files")
    arguments = parser.parse_args()
    require_target(tool=arguments.tool)
    events: list[dict[str, Any]] = []
    sums: list[dict[str, Any]] = []
    arguments.reports.mkdir(parents=True, exist_ok=True)
    failure = tables.first_failure(tables.CORRECTNESS.rows(arguments.correctness))
    variant, network = variants.read(arguments.variant), networks.find(arguments.network)

    watched_rows: list[dict[str, Any]] = []

    def watch(turn: gpu_turn.GpuTurn, size: int, weights: str = "") -> int:
        """Profile the program at one size and keep its events and files; return the number of events."""
        place = {"tool": arguments.tool, "variant": arguments.variant, "network": arguments.network}
        place |= {"size": size, "weights": weights}
        seen, state = ProfilerCapture([], [], 0, "", []), {"status": "ok", "reason": ""}
        began = time.perf_counter() - turn.waited_s
        with tempfile.TemporaryDirectory() as scratch:
            try:
                if failure:
                    raise VariantFailure(**failure)
                if reason := variant.unsupported_in(network, size):
                    raise VariantFailure("unsupported", reason)
                of = (arguments.network, arguments.variant, size, weights)
                program = TracedProgram(*of, arguments.timeout, Path(scratch), turn)
                seen = TRACERS[arguments.tool](program)
                if seen.count > EVENTS_MAX:
                    sums.extend({**row, **place} for row in seen.sums)
                    reason = f"{seen.count} events, more than the {EVENTS_MAX} that a run keeps"
                    raise VariantFailure("refused", f"{reason}; see {reduce_events(size)} images")
                events.extend({**event, **place} for event in seen.events)
                for report in seen.reports:
                    shutil.copyfile(report, arguments.reports / report.name)
            except VariantFailure as failed:
                state = failed.columns
            except UserError as error:
                state = {"status": "launch_failed", "reason": str(error)}
        kept = seen.reports[0].name if seen.reports and state["status"] == "ok" else ""
        took = {"elapsed_s": time.perf_counter() - turn.waited_s - began, "output": seen.output, "report": kept}
        watched_rows.append({**place, "events": len(seen.events) if state["status"] == "ok" else 0, **took, **state})
        return seen.count

    remaining = list(arguments.sizes)
    if arguments.baseline:
        # The report draws both on one time axis, so both need a profile at the same size.
        theirs = [row["size"] for row in tables.PROFILES.rows(arguments.baseline) if row["status"] == "ok"]
        if theirs and max(remaining) not in theirs:
            remaining.append(max(theirs))
    with gpu_turn.hold_turn(arguments.out) as turn:
        while remaining:
            size = remaining.pop(0)
            if watch(turn, size) > EVENTS_MAX and reduce_events(size) not in [*arguments.sizes, *remaining, size]:
                remaining.append(reduce_events(size))
        for weights in arguments.weights:
            watch(turn, max(arguments.sizes), weights)
        turn.report_rows(watched_rows)
    tables.ACTIVITIES.write(events, arguments.out)
    tables.SUMMARIES.write(sums, arguments.sums)
    tables.PROFILES.write(watched_rows, arguments.profiles)
    for row in watched_rows:
        if row["status"] != "ok":
            print(f"no profile of {row['variant']} at {row['size']} images: {row['reason']}")


def reduce_events(size: int) -> int:
    """The size to profile instead of one at which there are too many events."""
    return max(1, size // 10)


if __name__ == "__main__":
    sys.exit(exit_status(main))
