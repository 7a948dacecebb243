"""What the console says when a report is made: where it is, its headline, what it lacks, what to type next."""

from pathlib import Path

from warpbook.common import units
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence
from warpbook.runs import summaries

MOST_NAMED = 5
MOST_CHARACTERS = 160


def summary_lines(ev: Evidence, pdf: Path, html: Path) -> list[str]:
    """The last words on a study's report, in plain text."""
    problems = ev.problems.of_variants
    problems = problems[problems.status != "unsupported"]
    problems = problems.assign(slowed=problems.reason.astype(str).str.startswith(summaries.NONE_SOUND))
    problems = problems.sort_values("slowed", kind="stable").drop_duplicates("variant")  # a failure is told before it
    stale = list(problems[problems.status == "stale"].variant)
    absent = list(problems[problems.status == "not_measured"].variant)
    slowed = problems[problems.slowed]
    failed = problems[~problems.status.isin(["stale", "not_measured"]) & ~problems.slowed]
    said = [f"{html} for a browser, and {pdf.stem}-supplement.pdf beside with all that it rests on", _headline(ev)]
    said += [f"failed: {row.variant}: {_short(str(row.reason))}" for row in failed.itertuples()]
    said += [f"without a figure: {row.variant}: {_short(str(row.reason))}" for row in slowed.itertuples()]
    if stale:
        said.append(f"stale, left out until measured again: {units.join_some(stale, MOST_NAMED)}")
    if absent:
        said.append(f"not measured: {units.join_some(absent, MOST_NAMED)}")
    lacking = set(problems.device[problems.status.isin(["stale", "not_measured"])])
    said.append(f"next: {_next_command(ev, list(failed.variant), lacking)}")
    return [f"Report of {ev.name}: {pdf}", *(f"  {line}" for line in said)]


def _headline(ev: Evidence) -> str:
    best = ev.ranking.best or ev.ranking.best_cpu
    total = ev.times.total(best.name, ev.largest) if best else None
    if best is None or total is None:
        return "no variant has a figure for every layer"
    interval = f"{units.spread(total)} at 95\u202f%, " if units.spread(total) else "no interval, "
    ahead = _library_ahead(ev)
    said = "best of ours" if ahead and ahead[0] != best else "best, a library" if ahead else "best"
    words = f"{said}: {best.name}, {units.time(total.value)} ({interval}{units.sample_size([total])})"
    words += f" for {ev.at_size(ev.largest)} on {ev.device_name(best.device)}"
    if ahead and ahead[0] != best:
        words += f"; the library {ahead[0].name} takes {units.time(ahead[1])}"
    naive = ev.ranking.naive if best.device == "gpu" else ev.ranking.naive_cpu
    speedup = ev.times.total_speedup(best.name, ev.largest, over=naive.name) if naive and naive != best else None
    if naive is None or speedup is None:
        return words
    ratio = units.ratio_and_interval(speedup.ratio)
    return f"{words}; {ratio} over {naive.name} ({units.sample_size([speedup.ratio])})"


def _short(reason: str) -> str:
    line = reason.split("\n")[0]
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"


def _library_ahead(ev: Evidence) -> tuple[Variant, float] | None:
    """The fastest FP32 library of the headline's device and its time in ms, where it is faster than all of ours."""
    gpu = bool(ev.ranking.best or ev.ranking.best_peer)
    ours = ev.ranking.best if gpu else ev.ranking.best_own_cpu
    library = ev.ranking.best_peer if gpu else ev.ranking.best_cpu
    taken = ev.times.total(library.name, ev.largest) if library and library.header.peer else None
    least = ev.times.total(ours.name, ev.largest) if ours else None
    if library is None or taken is None or (least and least.value <= taken.value):
        return None
    return library, taken.value


def _next_command(ev: Evidence, failed: list[str], lacking: set[str]) -> str:
    """What somebody would most likely type now. lacking: the devices without some figure that could be had."""
    again = f"snakemake --cores 1 report --config study={ev.name}"
    if failed:
        variant = ev.plan.variants[failed[0]]
        return f"mend kernels/{variant.problem.name}/{variant.stem}.*, then snakemake --cores 1 check"
    if "gpu" in lacking and ev.config.gpu == "none":
        return f"{again} gpu=auto, for figures of a GPU"
    if "gpu" in lacking and ev.gpu_run is not ev.local:
        return "on a machine with an NVIDIA GPU: snakemake --cores all archive --config study=all"
    if ev.missing_reason("cpu"):
        return f"{again} cpu=live, for figures of this machine's CPU"
    if ev.gpu_run is ev.local and ev.local.path.is_dir():
        return "snakemake --cores 1 archive, to keep this run"
    if ahead := _library_ahead(ev):
        library, ms = ahead
        cases = ev.config.cases_of(ev.name)
        for name, study in ev.config.studies.items():
            if ev.study.variants and ev.config.cases_of(name) == cases and not (study.variants or study.course):
                return f"snakemake --cores 1 report --config study={name}, which compares every kernel on this network"
        file = f"kernels/{ev.problem.name}/<name>.{'cu' if library.device == 'gpu' else 'cpp'}"
        return f"a kernel that beats {library.name}'s {units.time(ms)}: {file} (docs/guides/kernels.md), then {again}"
    others = [name for name in ev.config.studies if name != ev.name]
    return f"snakemake --cores 1 report --config study={others[0]}" if others else "add a kernel (docs/guides)"
