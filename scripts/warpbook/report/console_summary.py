"""What the console says when a report is made: where it is, its result, what it lacks, what to type next."""

from collections import Counter
from pathlib import Path

from warpbook.common import units
from warpbook.common.files import COMMAND, IN_CLONE, OF_STUDY, RUN
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import INCONCLUSIVE, Evidence, missing_data
from warpbook.report.views import cell_markup

NEW = ".venv/bin/python scripts/new.py" if IN_CLONE else f"{COMMAND} new"
MOST_CHARACTERS = 160


def summary_lines(ev: Evidence, pdf: Path, html: Path) -> list[str]:
    """The last words on a study's report, in plain text."""
    lines = [f"also: {html}, {pdf.stem}-supplement.pdf", _best_line(ev)]
    lines += filter(None, (_verdicts_line(ev), _correctness_line(ev)))
    lines += [f"GPU times: {_source(ev)}", *_left_out(ev), f"next: {_next_command(ev)}"]
    return [f"Report of {ev.name}: {pdf}", *(f"  {line}" for line in lines)]


def _best_line(ev: Evidence) -> str:
    best = ev.ranking.best or ev.ranking.best_cpu
    total = ev.times.total(best.name, ev.largest) if best else None
    if best is None or total is None:
        return f"best: none, no variant has a valid time for every {ev.case_word}"
    naive, library = (ev.ranking.naive, ev.ranking.best_peer) if best.device == "gpu" else (ev.ranking.naive_cpu, None)
    others = (other for other in (naive, library) if other and other != best)
    time = f"{units.time(total.value)} for {ev.at_size(ev.largest)} on {ev.device_name(best.device)}"
    return "; ".join(
        [f"best: {best.stem}, {time}", *filter(None, (_comparison_words(ev, best, one) for one in others))]
    )


def _comparison_words(ev: Evidence, best: Variant, other: Variant) -> str:
    """How the best variant compares with another, for example `faster than direct: 18.9×`."""
    speedup = ev.times.total_speedup(best.name, ev.largest, over=other.name)
    if speedup is None:
        return ""
    number = speedup.short_substitute or cell_markup.headline_ratio(speedup)
    if number == INCONCLUSIVE:
        return f"{number} against {other.stem} ({speedup.doubt})"
    if speedup.rough:
        return f"{number} the speed of {other.stem} ({speedup.doubt})"
    compared = f"{speedup.compared} {other.stem}"
    return f"{compared}: {number}" if speedup.quotable else f"{compared} ({speedup.doubt})"


def _verdicts_line(ev: Evidence) -> str:
    """How many optimizations are faster than what they build on, slower, same and ambiguous; empty where none is."""
    device = "gpu" if ev.ranking.best else "cpu"
    tried = [one for one in ev.ranking.measured_variants(device, peers=False) if one.header.builds_on]
    judged = Counter(found.verdict for one in tried if (found := ev.times.total_speedup(one.name, ev.largest)))
    words = [f"{judged[word]} {word}" for word in ("faster", "slower", "same", "ambiguous") if judged[word]]
    return f"verdicts against baselines: {', '.join(words)}" if words else ""


def _correctness_line(ev: Evidence) -> str:
    device = "gpu" if ev.ranking.best else "cpu"
    emulated = {one.stem: tally for one, tally in ev.checks.without_time if tally.tests}
    untested = [(one, tally.unsupported) for one, tally in ev.checks.without_time if not tally.tests]
    unchecked = {one.stem: reason.replace(one.name, "it") for one, reason in untested}
    measured = ev.ranking.timed_variants(device)
    tallies = {one.stem: found for one in measured if (found := ev.checks.for_variant(one.name))} | emulated
    wrong = [name for name, tally in tallies.items() if tally.passed < tally.tests]
    left = f"not checked: {units.join_some([*unchecked])}: {next(iter(unchecked.values()), '')}"
    if not tallies:
        return left if unchecked else ""
    verdict = f"no: {units.join_some(wrong)} failed a test" if wrong else "yes"
    alone = f" ({len(emulated)} of them on the CPU, emulated, and without a time)" if emulated else ""
    passed = len(tallies) - len(wrong)
    told = f"correct: {verdict}; {passed} of {len(tallies)} variants{alone} pass every test against float64"
    return f"{told}; {left}" if unchecked else told


def _source(ev: Evidence) -> str:
    if ev.gpu_run is None:
        return f"none ({ev.source.why})"
    return "measured here" if ev.gpu_run is ev.local else f"from the archived run {ev.gpu_run.run_id}"


def _left_out(ev: Evidence) -> list[str]:
    """What the report lacks, each reason once, with the command that adds it."""
    lines = []
    if why := ev.missing_reason("cpu"):
        lines.append(f"left out: CPU times, {why}; to add them: {RUN} report --config study={ev.name} cpu=live")
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in ev.problems.of_variants.to_dict("records"):
        reason = _short(missing_data.without_remedy(row["reason"]).replace(str(row["variant"]), "it"))
        some = "some times of " * any(len(row[where]) for where in ("layers", "sizes", "kinds"))
        alike.setdefault((str(row["device"]), str(row["status"]), reason), []).append(f"{some}{row['variant']}")
    for (device, status, reason), names in alike.items():
        if status == "unsupported":
            continue
        named = units.join_some(list(dict.fromkeys(names)))
        lines.append(f"left out: {named} ({status.replace('_', ' ')}: {reason}); {_remedy(ev, device, status, reason)}")
    return lines


def _remedy(ev: Evidence, device: str, status: str, reason: str) -> str:
    if reason == missing_data.BUSY:
        return f"to measure again, with them closed: {RUN} {missing_data.AGAIN} --config study={ev.name}"
    if status not in ("stale", "not_measured", "refused"):
        return f"after a correction: {_command('check', ev)}"
    if device == "cpu" and status == "refused":  # what is there already would not be made again
        return f"to measure again: {RUN} {missing_data.AGAIN} --config study={ev.name}"
    if device == "cpu":
        return f"to measure: {RUN} report --config study={ev.name} cpu=live"
    return f"to measure, on a machine with an NVIDIA GPU: {_measure(ev)}"


def _command(target: str, ev: Evidence) -> str:
    """A target of this study, which need not be the one that config.yaml chooses."""
    return f"{RUN} {target} {OF_STUDY}{ev.name}"


def _measure(ev: Evidence) -> str:
    return ".venv/bin/snakemake --cores all archive --config study=all" if IN_CLONE else _command("archive", ev)


def _short(reason: str) -> str:
    line = reason.split("\n")[0]
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"


def _next_command(ev: Evidence) -> str:
    """What somebody would most likely type now, with its reason as a comment of the shell."""
    problems = ev.problems.of_variants
    broken = problems[~problems.status.isin(["unsupported", "stale", "not_measured", "refused"])]
    if len(broken):
        variant = ev.plan.variants[str(broken.variant.iloc[0])]
        return f"{_command('check', ev)}  # after a correction of kernels/{variant.problem.name}/{variant.stem}"
    again = f"{RUN} report --config study={ev.name}"
    lacking = set(problems.device[problems.status.isin(["stale", "not_measured"])])
    if "gpu" in lacking and ev.config.gpu == "none":
        return f"{again} gpu=auto  # adds GPU times"
    if "gpu" in lacking and ev.gpu_run is not ev.local:
        return f"{_measure(ev)}  # on a machine with an NVIDIA GPU: measures what is left out"
    if ev.missing_reason("cpu"):
        return f"{again} cpu=live  # adds this machine's CPU times"
    if ev.gpu_run is ev.local and ev.local.path.is_dir():
        return f"{_command('archive', ev)}  # keeps this run"
    if ev.study.variants:
        cases = ev.config.case_set_name(ev.name)
        for name, study in ev.config.studies.items():
            if ev.config.case_set_name(name) == cases and not (study.variants or study.course):
                return f"{RUN} report --config study={name}  # compares every kernel on these {ev.case_word}s"
    return f"{NEW} kernel mine --problem {ev.problem.name}  # starts a kernel of yours"
