"""The whole network on a GPU: implementations of it beside a library's, from images on the device to labels there."""

from collections.abc import Iterator

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.whole_networks import Implementation
from warpbook.profiling.counters import DURATION, CountedCall
from warpbook.report.evidence import Evidence, Speedup
from warpbook.report.figures import time_plots
from warpbook.report.views import analysis, cell_markup, profile_tables
from warpbook.report.views.components import Cell, Figure, HtmlTable, View, numbers, words
from warpbook.runs import tables

HOST_TO_HOST_HEAD = (
    "Host to host: from uint8 images in page-locked memory to labels there, in chunks whose copies overlap the work, at the best "
    "chunk size. Over the larger: that time over the larger of copies alone and GPU time. "
)


def whole_network_view(ev: Evidence) -> View | None:
    """The section of a study; None where the run holds no figure of its whole network."""
    shown = [
        one
        for one in ev.networks.recorded_implementations
        if any(ev.networks.time(one.name, size) for size in ev.sizes)
    ]
    if not shown and not ev.networks.omission_reasons:
        return None
    ours = ev.networks.fastest(ev.largest, peers=False)
    call = ev.networks.calls.get(ours.name) if ours else None
    return View(
        headline=" ".join(filter(None, (network_headline(ev), *_slower(ev)))),
        ideas=tuple(_idea(ev, one, one == ours) for one in shown if not one.header.peer),
        chart=Figure(
            "networks-by-size",
            time_plots.networks_by_size(ev, shown),
            "Line chart of GPU time against the number of images for each implementation, both axes logarithmic.",
            f"GPU time from images to labels on {ev.device_name('gpu')}, the L2 cache flushed before. Coloured: ours. Grey: "
            "PyTorch, darker in FP32; compiled: dotted, or a marker where one size was measured.",
        )
        if shown
        else None,
        comparison=_comparison_table(ev, shown) if shown else None,
        kernels=_kernels(ev, ours, call) if ours and call else None,
        bound=_bound(ev, ours, call) if ours else "",
    )


def _bound(ev: Evidence, ours: Implementation, call: CountedCall | None) -> str:
    """A sentence on what bounds our fastest, or why it has no counters; empty where they were not read."""
    run, failure = ev.selection.in_other_run(tables.COUNTERS), ev.networks.counter_failures.get(ours.name)
    if call:
        return f"What bounds {ours.name}{run}: {analysis.bound_text(call)}"
    return f"No hardware counters of {ours.name}{run}: {failure}." if failure else ""


def network_headline(ev: Evidence) -> str:
    """On the fastest of ours and the fastest frameworks; empty where there is none of ours, or no framework."""
    ours, theirs = (ev.networks.fastest(ev.largest, peers) for peers in (False, True))
    if not (ours and theirs):
        return ""
    time, other = (ev.networks.time(one.name, ev.largest) for one in (ours, theirs))
    ratio = ev.networks.ratio(ours.name, theirs.name, ev.largest)
    assert time and other and ratio
    return (
        f"The fastest of ours, {ours.name}, takes {units.time(time.value)} for {units.count(ev.largest)} images "
        f"({cell_markup.within_sentence(ours.title)}). The fastest framework within its tolerance, {theirs.name}, takes "
        f"{units.time(other.value)}: {units.ratio_and_interval(ratio, '†')}.{_in_fp32(ev, ours, theirs)}"
    )


def _in_fp32(ev: Evidence, ours: Implementation, theirs: Implementation) -> str:
    """How ours compares with the fastest framework in FP32, where the fastest of all rounds: its equal in accuracy."""
    equal = ev.networks.fastest(ev.largest, peers=True, precision="fp32")
    if equal is None or equal == theirs:
        return ""
    time, ratio = ev.networks.time(equal.name, ev.largest), ev.networks.ratio(ours.name, equal.name, ev.largest)
    assert time and ratio
    takes = f" The fastest in FP32, {equal.name}, takes {units.time(time.value)}"
    return f"{takes}: {units.ratio_and_interval(ratio, '†')}."


def _slower(ev: Evidence) -> Iterator[str]:
    """A sentence on each of ours, but for the fastest, that is slower than the fastest framework."""
    ours, framework = (ev.networks.fastest(ev.largest, peers) for peers in (False, True))
    if framework is None:
        return
    for one in ev.networks.recorded_implementations:
        if one == ours or one.header.peer:
            continue
        time, ratio = ev.networks.time(one.name, ev.largest), ev.networks.ratio(one.name, framework.name, ev.largest)
        if time and ratio and ratio.high < 1:
            said = f"{one.name} takes {units.time(time.value)}, slower than the framework"
            yield f"{said}: {units.ratio_and_interval(ratio, '†')}."


def _idea(ev: Evidence, one: Implementation, in_full: bool) -> View:
    said = ""
    if gain := ev.networks.gain(one, ev.largest):
        # What the GPU times in the table make of a gain, where that is something else.
        ratio = ev.networks.separate_ratio(one, ev.largest)
        apart = f" ({units.ratio_and_interval(ratio, '†')} from separate jobs)" if ratio else ""
        over = f"Speedup over {ev.networks.baseline(one, ev.largest)} at {units.count(ev.largest)} images"
        said = f"{over}: {units.ratio_and_interval(gain)}{apart}."
    idea, expect = (one.header.idea.strip(), one.header.expect.strip()) if in_full else ("", "")
    return View(name=one.name, title=one.title, idea=idea, expect=expect, gains=said)


def _comparison_table(ev: Evidence, shown: list[Implementation]) -> HtmlTable:
    """Everything at the largest size, the least time first."""
    best = ev.networks.fastest(ev.largest, peers=True)
    hosted = any(ev.networks.time(one.name, ev.largest, "host") for one in shown)
    rows: list[tuple[float, tuple[Cell, ...]]] = []
    for one in shown:
        time, check = ev.networks.time(one.name, ev.largest), ev.networks.check(one.name, ev.largest)
        if time and check is not None:
            over = ev.networks.ratio(one.name, best.name, ev.largest) if best and best != one else None
            op = cell_markup.time_cell(ev.networks.time(one.name, ev.largest, "op"))
            rate = units.significant(ev.largest / time.value / 1e3, 3)
            host = _from_host(ev, one, time.value) if hosted else ()
            ratio = cell_markup.speedup_cell(Speedup(over, paired=False, verdict="") if over else None)
            error, wrong = f"{check.rel_l2_err:.1e}", units.count(int(check.mismatched_labels))
            cells = (one.name, cell_markup.time_cell(time), op, rate, *host, ratio, error, wrong)
            rows.append((time.value, cells))
    return HtmlTable(
        "networks-beside",
        f"From images to labels at {units.count(ev.largest)} images on {ev.device_name('gpu')}. GPU time: CUDA events around the "
        f"call; M images/s: millions a second by it. Op time: the host's clock around the call and a wait. {HOST_TO_HOST_HEAD if hosted else ''}Times as fast: the "
        "framework's time over this one's, from two jobs (†); the speedups above are of samples in alternation. Error: of the scores, "
        "relative to float64. Labels: how many differ.",
        (
            *words("Implementation"),
            *numbers(
                "GPU time",
                "Op time",
                "M images/s",
                *(("Host to host", "Over the larger") if hosted else ()),
                f"Times as fast as {best.name if best else 'a framework'}",
            ),
            *numbers("Error", "Labels"),
        ),
        tuple(row for _, row in sorted(rows, key=lambda each: each[0])),
    )


def _kernels(ev: Evidence, ours: Implementation, call: CountedCall) -> HtmlTable:
    """The kernels of one call in the order of their first launches."""
    copy, whole = ev.counters.gpu["copy_gb_per_s"], call.value(DURATION)
    rows: list[tuple[Cell, ...]] = []
    for kernel in dict.fromkeys(launch.kernel for launch in call.launches):
        launches = tuple(launch for launch in call.launches if launch.kernel == kernel)
        of_kernel = CountedCall(call.images, launches, len(launches))
        ns, name = of_kernel.value(DURATION), profile_tables.short_name(kernel)
        timed = (units.time(ns / 1e6), units.percent(ns / whole, 0)) if ns and whole else (MISSING, MISSING)
        rows.append((name, str(len(launches)), *timed, *analysis.busy_cells(of_kernel, copy)))
    return HtmlTable(
        "networks-kernels",
        f"Kernels of {ours.name} at {units.count(call.images)} images, {call.total_launches} launches a call, one by one under "
        f"Nsight Compute: launches, time and its share. {analysis.busy_caption('all launches', 'the longest', copy)}"
        f"{ev.selection.other_run_note(tables.COUNTERS)}",
        (*words("Kernel"), *numbers("Launches", "Time", "Share", *analysis.BUSY_HEAD)),
        tuple(rows),
        "dense",
    )


def _from_host(ev: Evidence, one: Implementation, gpu_ms: float) -> tuple[Cell, Cell]:
    """The time from the host to the host, and what it is over the larger of its copies and the GPU's time."""
    host, copy = (ev.networks.time(one.name, ev.largest, kind) for kind in ("host", "copy"))
    if not host or not copy:
        return MISSING, MISSING
    larger = max(copy.value, gpu_ms)
    return cell_markup.time_cell(host), f"{units.significant(host.value / larger, 3)}× of {units.time(larger)}"
