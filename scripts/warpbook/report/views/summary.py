"""The summary: headline figures of the study, or of its frameworks where it stops before a kernel of ours."""

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence
from warpbook.report.figures import time_plots
from warpbook.report.views import cell_markup, executive
from warpbook.report.views.components import Fact, Figure, HtmlTable, View, numbers, words


def summary_view(ev: Evidence) -> View:
    """The summary of a study."""
    facts: tuple[Fact, ...] = ()
    kernels, cpu_code, figure = None, None, None
    if ev.frameworks_alone:
        facts = _framework_facts(ev)
    elif ev.ranking.best:
        kernels, figure = executive.executive_view(ev), _gpu_figure(ev)
    elif ev.ranking.naive_cpu and ev.ranking.best_cpu:
        cpu_code, figure = _cpu_code(ev, ev.ranking.naive_cpu, ev.ranking.best_cpu), _cpu_figure(ev)
    problems = ev.problems.of_variants
    if ev.gpu_run is None:  # which is said of all its variants at once
        problems = problems[problems.device != "gpu"]
    limited = problems.status == "unsupported"
    checked = {variant.name for variant, _ in ev.checks.without_time}
    return View(
        images=units.count(ev.largest),
        facts=facts,
        kernels=kernels,
        cpu_code=cpu_code,
        figure=figure,
        why_no_gpu=f"the run {ev.gpu_run.run_id} holds none of them" if ev.gpu_run else ev.source.why,
        checked=_checked_table(ev) if checked else None,
        broken=tuple(name for name in problems[~limited].variant.unique() if name not in checked),
        limits=tuple(problems[limited].reason.unique()),
    )


def _checked_table(ev: Evidence) -> HtmlTable:
    rows = []
    for variant, tally in ev.checks.without_time:
        right = f"right; {tally.unsupported}" if tally.unsupported else "right"
        verdict = f"wrong: {tally.failure['reason']}" if tally.failure else right
        ratio = units.significant(tally.worst_ratio, 2)
        rows.append((variant.stem, f"{tally.passed} of {tally.tests}", ratio, verdict))
    return HtmlTable(
        "summary-checked",
        "Kernels without a time in this report, run on the CPU. Right: they pass every test. Results are compared with "
        "float64; unless the verdict says otherwise, accesses outside arrays, uninitialized memory and data races are looked for.",
        (*words("Kernel"), *numbers("Tests passed", "Error / tolerance"), *words("Verdict")),
        tuple(rows),
    )


def _time_and_name(label: str, variant: Variant | None) -> str:
    return f"{label}, {variant.name}" if variant else label


def _framework_facts(ev: Evidence) -> tuple[Fact, ...]:
    images = units.count(ev.largest)
    frameworks = {device: ev.programs.framework(device) for device in ("cpu", "gpu")}
    runs = {device: ev.programs.runs(variant.name, ev.largest) for device, variant in frameworks.items() if variant}
    elapsed = {
        device: f"{units.seconds(float(runs[device].elapsed_s.median()))}\u202fs" if device in runs else MISSING
        for device in frameworks
    }
    spreads = {
        device: f"{cell_markup.run_spread(runs[device].elapsed_s)} in s, " if device in runs else ""
        for device in frameworks
    }
    accuracy = {device: float(rows.accuracy.iloc[0]) for device, rows in runs.items()}
    alike = "; the same on both" if len(accuracy) == 2 and accuracy["cpu"] == accuracy["gpu"] else ""
    on_gpu = (
        f"{spreads['gpu']}whole program, {ev.device_name('gpu')}" if "gpu" in runs else f"not measured: {ev.source.why}"
    )
    on_cpu = f"{spreads['cpu']}whole program, {images} images, {ev.device_name('cpu')}"
    return (
        Fact(
            _time_and_name("The framework on the CPU", frameworks["cpu"]),
            elapsed["cpu"],
            f"not measured: {why}" if (why := ev.missing_reason("cpu")) else on_cpu,
        ),
        Fact(_time_and_name("On the GPU", frameworks["gpu"]), elapsed["gpu"], on_gpu),
        Fact(
            "Accuracy",
            units.significant(next(iter(accuracy.values()))) if accuracy else MISSING,
            f"of {images} test images{alike}",
        ),
    )


def _gpu_figure(ev: Evidence) -> Figure:
    measured = len(ev.ranking.measured_variants("gpu"))
    shown = "every GPU variant. "
    if measured > time_plots.MOST_SHOWN:
        shown = f"the fastest of {measured} GPU variants, the naive one and the libraries. "
    svg = time_plots.op_times(ev)
    return Figure(
        "summary-times",
        svg,
        f"Bars of op time for every GPU variant on each {ev.case_word}, with the hardware's lower bound.",
        f"Op time on each {ev.case_word}, {ev.at_size(ev.largest)}, {ev.device_name('gpu')}: {shown}"
        "Medians with 95 % intervals, without copies, the L2 cache flushed before each call. Dashed: the lower bound of the direct method in FP32."
        f"{' →: the bar ends beyond the chart.' if '→' in svg else ''}",
    )


def _cpu_code(ev: Evidence, naive: Variant, best: Variant) -> View:
    over = ev.times.total_speedup(best.name, ev.largest, over=naive.name) if naive else None
    return View(
        device=ev.device_name("cpu"),
        best=best.name,
        time=cell_markup.time_cell(ev.times.total(best.name, ev.largest)),
        speedup=cell_markup.speedup_cell(over) if over and over.quotable else "",
        naive=naive.name,
    )


def _cpu_figure(ev: Evidence) -> Figure:
    words = "Op time of every CPU variant against dataset size"
    svg = time_plots.times_by_size(ev, ev.ranking.measured_variants("cpu"), False)
    return Figure("summary-times", svg, f"{words}.", f"{words}, with 95 % intervals.")
