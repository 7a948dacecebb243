"""What the console says when a report is made: where it is, its headline, what it lacks, what to type next."""

from pathlib import Path

from warpbook import units
from warpbook.report.evidence import Evidence

MOST_NAMED = 5
MOST_CHARACTERS = 160


def lines(ev: Evidence, pdf: Path, html: Path) -> list[str]:
    """The last words on a study's report, in plain text."""
    problems = ev.problems.table[ev.problems.table.status != "unsupported"].drop_duplicates("variant")
    stale = list(problems[problems.status == "stale"].variant)
    absent = list(problems[problems.status == "not_measured"].variant)
    failed = problems[~problems.status.isin(["stale", "not_measured"])]
    said = [f"{html} for a browser, and {pdf.stem}-supplement.pdf beside with all that it rests on", _headline(ev)]
    said += [f"failed: {row.variant}: {_short(str(row.reason))}" for row in failed.itertuples()]
    if stale:
        said.append(f"stale, left out until measured again: {units.listed(stale, MOST_NAMED)}")
    if absent:
        said.append(f"not measured: {units.listed(absent, MOST_NAMED)}")
    said.append(f"next: {_next(ev, list(failed.variant), bool(stale or absent))}")
    return [f"Report of {ev.name}: {pdf}", *(f"  {line}" for line in said)]


def _headline(ev: Evidence) -> str:
    best = ev.ranking.best or ev.ranking.best_cpu
    total = ev.times.total(best.name, ev.largest) if best else None
    if best is None or total is None:
        return "no variant has a figure for every layer"
    interval = f"{units.spread(total)} at 95\u202f%, " if units.spread(total) else "no interval, "
    words = f"best: {best.name}, {units.time(total.value)} ({interval}{units.sample_size([total])})"
    words += f" for {units.count(ev.largest)} images on {ev.device_name(best.device)}"
    naive = ev.ranking.naive if best.device == "gpu" else ev.ranking.naive_cpu
    speedup = ev.times.total_speedup(best.name, ev.largest, over=naive.name) if naive and naive != best else None
    if naive is None or speedup is None:
        return words
    ratio = f"{units.ratio_within(speedup.ratio)} {units.ratio_interval(speedup.ratio)}"
    return f"{words}; {ratio} over {naive.name} ({units.sample_size([speedup.ratio])})"


def _short(reason: str) -> str:
    line = reason.split("\n")[0]
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"


def _next(ev: Evidence, failed: list[str], unmeasured: bool) -> str:
    """What somebody would most likely type now."""
    if failed:
        return f"mend kernels/{failed[0]}.*, then snakemake --cores 1 check"
    if unmeasured and ev.gpu_run is not ev.local:
        return "on a machine with an NVIDIA GPU: snakemake --cores all archive --config study=all"
    if ev.gpu_run is ev.local:
        return "snakemake --cores 1 archive, to keep this run"
    others = [name for name in ev.config.studies if name != ev.name]
    return f"snakemake --cores 1 report --config study={others[0]}" if others else "add a kernel: README"
