"""The summary: headline figures of the study, or of its frameworks where it stops before a kernel of ours."""

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.report.evidence import Evidence
from warpbook.report.figures import time_plots
from warpbook.report.views import cell_markup, executive, milestone_1
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
        facts=facts,
        compared=milestone_1.compared_programs(ev) if ev.frameworks_alone else "",
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
        verdict = "; ".join(filter(None, ("right" if tally.tests else "not checked", tally.unsupported)))
        verdict = f"wrong: {tally.failure['reason']}" if tally.failure else verdict
        ratio = units.significant(tally.worst_ratio, 2)
        passed = f"{tally.passed} of {tally.tests}" if tally.tests else MISSING
        rows.append((variant.stem, passed, ratio if tally.tests else MISSING, verdict))
    return HtmlTable(
        "summary-checked",
        "Kernels without a time in this report, run on the CPU. Right: they pass every test. Results are compared with "
        "float64; unless the verdict says otherwise, accesses outside arrays, uninitialized memory and data races are looked for.",
        (*words("Kernel"), *numbers("Tests passed", "Error / tolerance"), *words("Verdict")),
        tuple(rows),
    )


def _framework_facts(ev: Evidence) -> tuple[Fact, ...]:
    images, facts, accuracies = units.count(ev.largest), [], list[float]()
    why = {"cpu": ev.missing_reason("cpu"), "gpu": ev.source.why}
    for device, label in (("cpu", "The framework on the CPU"), ("gpu", "On the GPU")):
        framework = ev.programs.framework(device)
        lacking = why[device] or "no framework's program was run"
        detail, elapsed = f"not measured: {lacking}", MISSING
        if framework:
            runs = ev.programs.runs(framework.name, ev.largest)
            accuracies.append(float(runs.accuracy.iloc[0]))
            elapsed = f"{units.seconds(float(runs.elapsed_s.median()))}\u202fs"
            spread = cell_markup.run_spread(runs.elapsed_s).strip("()")
            label, spread = f"{label}, {framework.name}", f"{'runs in s: ' * (len(runs) > 1)}{spread}; "
            detail = f"{spread}whole program, {f'{images} images, ' * (device == 'cpu')}{ev.device_name(device)}"
        facts.append(Fact(label, elapsed, detail))
    alike = "; the same on both" if len(accuracies) == 2 and len({*accuracies}) == 1 else ""
    accuracy = units.significant(accuracies[0]) if accuracies else MISSING
    return (*facts, Fact("Accuracy", accuracy, f"of {images} test images{alike}"))


def _gpu_figure(ev: Evidence) -> Figure:
    measured = len(ev.ranking.timed_variants("gpu"))
    shown = "every GPU variant. "
    if measured > len(ev.ranking.foremost("gpu")):
        shown = f"of {measured} GPU variants, the first, our fastest, and the libraries. "
    svg = time_plots.op_times(ev)
    return Figure(
        "summary-times",
        svg,
        f"Bars of op time of GPU variants on each {ev.case_word}, with lower bounds.",
        f"Op time on each {ev.case_word}, {ev.at_size(ev.largest)}, {ev.device_name('gpu')}: {shown}"
        "Medians with 95 % intervals, L2 cache flushed before each call. Dashed: the direct method's bound in FP32; short dashes: that of the variant's method."
        f"{' →: beyond the chart.' if '→' in svg else ''}{_form_of(ev.layers[0])}",
    )


def _form_of(case: Case) -> str:
    """What the numbers of a layer's short form are; empty for other problems."""
    if case.problem.name != "conv":
        return ""
    extent = case.extents
    size, filters = f"{extent['H']}x{extent['W']}", f"{extent['K']}x{extent['KW']}"
    channels = f"{extent['C']} channel{'s' * (extent['C'] > 1)} of {size}"
    return f" {case}: {channels}, {extent['M']} filters of {filters}."


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
