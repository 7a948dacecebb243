"""The chapter on hardware counters: what bounds each variant's longest kernel."""

from markupsafe import Markup

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall, CountedLaunch
from warpbook.report.evidence import Evidence
from warpbook.report.figures import bound_plots, unit_plots
from warpbook.report.views.components import Cell, Figure, HtmlTable, View, numbers, words
from warpbook.report.views.profile_tables import short_name
from warpbook.runs import tables

NAME_WIDTH = 13
MOST_NAMED = 8
MOST_TOGETHER = 12  # rows of bars in one figure: a quarter of a page
SHARES = {
    "SM": counters.SM, "Issue": counters.ISSUE, "L1": counters.L1, "L2": counters.L2, "DRAM": counters.DRAM,
    "Memory": counters.MEMORY, "Achieved": counters.ACHIEVED, "At most": counters.THEORETICAL,
}  # fmt: skip
"""Columns in percent: what `counters.bound_sentence` makes its sentences of, then the memory system as a whole and
occupancy."""
BUSY = {
    "Issue": counters.ISSUE, "Pipes": counters.SM, "L1": counters.L1, "L2": counters.L2, "DRAM": counters.DRAM,
}  # fmt: skip
"""What may bound a kernel."""
BUSY_HEAD = ("Instructions", "FMAs", *BUSY, "DRAM over copy")

CountedLayer = tuple[Variant, Case, CountedCall]


def analysis_view(ev: Evidence) -> View | None:
    """None where nobody tried to count."""
    if ev.counters.table.empty:
        return None
    counted = ev.counters.counted
    counts = (
        View(
            at_size=ev.at_size(ev.counters.size),
            coverage=_coverage(ev, [*ev.counters.numbers]),
            units=_units(ev),
            units_of_others=_units_of_others(ev),
            roofline=_roofline(ev, counted),
        )
        if counted
        else None
    )
    return View(counts=counts, notes=tuple(_notes(ev)))


def full_analysis(ev: Evidence) -> View | None:
    """For the supplement; None where nothing was counted."""
    counted = ev.counters.counted
    if not counted:
        return None
    labels = {name: f"{number}\u00a0{name}" for name, number in ev.counters.numbers.items()}
    return View(
        kernels=_kernels(ev, counted, labels, ev.at_size(ev.counters.size)), bounds=_bounds(ev, counted, labels)
    )


def _coverage(ev: Evidence, counted: list[str]) -> str:
    """What the counters are of, as a sentence: the run, the network, and the variants that have some and none."""
    run = ev.selection.run_with(tables.COUNTERS)
    assert run is not None and ev.gpu_run is not None  # which the counters are of, and the times
    others = [variant.name for variant in ev.ranking.measured_variants("gpu") if variant.name not in counted]
    older, whole = run is not ev.gpu_run, "network" if ev.is_network else "study"
    changed = " there, or whose sources are others today" if older else ""
    named = ", ".join(others) if len(others) <= MOST_NAMED else f"the other {len(others)} variants"
    lacking = f"{named}, whose programs were not profiled on this {whole}{changed}"
    most = "every variant with a time" + f" but {lacking}" * bool(others)
    which = most if len(others) < len(counted) else f"{', '.join(counted)}; none are of {lacking}"
    said = f"The counters are of the run {run.run_id} and the {whole} {ev.network.name}: of {which}."
    return f"{said} The run {ev.gpu_run.run_id}, which the times are of, holds none." if older else said


def _roofline(ev: Evidence, counted: list[CountedLayer]) -> Figure:
    above = ". Hollow points are libraries, and variants of fewer operations or of TF32 or FP16: they may lie above the roof of FP32"
    hollow = "" if all(variant.header.sums_in_fp32 for variant, *_ in counted) else above
    return Figure(
        "analysis-roofline",
        bound_plots.roofline(ev, [one.name for one in ev.ranking.headliners]),
        f"Rate against arithmetic intensity of every variant's call on each {ev.case_word}, under the roof of copy bandwidth and "
        "FP32 peak.",
        f"Roofline: useful operations a second against useful operations for each byte of DRAM traffic, of each variant's whole call. "
        "Times are the kernels' own, by the GPU's clock: a short call's op time adds the launch, so its rate in the ladder is lower. "
        "Numbers name the variants as above; small grey points are the others, which the supplement lists. "
        f"{_roof(ev)} Useful operations are those of the direct method on the {ev.case_word}{hollow}. Reading alone is faster "
        "than copying, so a point may lie above the slope."
        f"{ev.selection.other_run_note(tables.COUNTERS)}",
    )


def _roof(ev: Evidence) -> str:
    """What the roof is made of, as a sentence."""
    gpu = ev.counters.gpu
    copy, peak = gpu["copy_gb_per_s"] / 1e3, gpu["peak_gflop_per_s"]["fp32"] / 1e3
    headliners = {one.name for one in ev.ranking.headliners}
    higher = bound_plots.precision_roofs(
        [one.header for one, *_ in ev.counters.counted if one.name in headliners], gpu["peak_gflop_per_s"]
    )
    thin = [f"{words}, {units.significant(roof / 1e3, 3)} TFLOP/s" for words, roof in higher.items()]
    dashed = ""
    if "fp32_gflop_per_s" in gpu:
        measured = units.significant(gpu["fp32_gflop_per_s"] / 1e3, 3)
        dashed = f" (dashed: multiply-adds as measured, {measured} TFLOP/s)"
    return (
        f"The roof: copy bandwidth as measured, {units.significant(copy, 3)} TB/s, and the FP32 peak by specification, "
        f"{units.significant(peak, 3)} TFLOP/s{dashed}.{f' Thin: {units.join_all(thin)}.' if thin else ''}"
    )


def _kernels(ev: Evidence, counted: list[CountedLayer], labels: dict[str, str], at_size: str) -> HtmlTable:
    return HtmlTable(
        "analysis-table",
        f"The longest kernel of each variant on each {ev.case_word}, {at_size} on {ev.device_name('gpu')}. In percent of their peaks: "
        "the multiprocessors, their schedulers' issue, L1 with shared memory, L2, DRAM, and the memory system. Occupancy: "
        "achieved and theoretical. Largest stall: what warps wait for most, in Nsight Compute's words, as a share of their "
        "time; “not selected” where another warp issued. Useful operations are those of the direct method, for the whole call. "
        "FP32 done: FP32 operations for each useful one; padding makes it more than 1, tensor cores and FP16 less."
        f"{ev.selection.other_run_note(tables.COUNTERS)}",
        (
            *words("Variant", ev.case_word.capitalize(), "Kernel"),
            *numbers(*SHARES),
            *words("Largest stall"),
            *numbers("Useful TFLOP/s", "FLOP/B", "FP32 done"),
        ),
        tuple(_kernel(labels[variant.name], layer, call) for variant, layer, call in counted),
        "wide",
    )


def _kernel(label: str, layer: Case, call: CountedCall) -> tuple[Cell, ...]:
    launch, useful = call.longest, layer.at(call.images).flops
    kernel = short_name(launch.kernel)
    place, done = call.roofline_point(useful), call.fp32_flop
    intensity, rate = place or (None, None)
    return (
        label,
        layer.name,
        kernel if len(kernel) <= NAME_WIDTH else f"{kernel[: NAME_WIDTH - 1]}…",
        *(counters.percent(launch.values.get(metric)) for metric in SHARES.values()),
        stall_text(launch),
        units.significant(rate / 1e3, 3) if rate is not None else MISSING,
        units.significant(intensity, 3) if intensity is not None else MISSING,
        units.significant(done / useful, 3) if done is not None else MISSING,
    )


def stall_text(launch: CountedLaunch) -> str:
    """What warps wait for most, with its share, not to be broken over lines."""
    if not launch.stall:
        return MISSING
    reason, share = launch.stall
    largest = f"{reason} {units.percent(share, 0)}".replace("_", "\u00a0").replace(" ", "\u00a0")
    if launch.ready is None or launch.ready <= share:
        return largest
    return f"{largest}, not\u00a0selected\u00a0{units.percent(launch.ready, 0)}"


def bound_text(call: CountedCall) -> str:
    """What bounds a call's longest kernel; of a call with several kernels, which one and its share of the time."""
    sentence, share = counters.bound_sentence(call.longest), call.longest_share
    if not sentence or call.total_launches == 1 or share is None:
        return sentence or MISSING
    return f"{short_name(call.longest.kernel)}, {units.percent(share, 0)} of the call's kernel time: {sentence}"


def _bounds(ev: Evidence, counted: list[CountedLayer], labels: dict[str, str]) -> HtmlTable:
    return HtmlTable(
        "analysis-bound",
        f"What bounds each kernel: the unit nearest its peak from {counters.HIGH:.0f} % on, in part from {counters.LOW:.0f} % on; "
        "below that, latency. L1 throughput is of the cycles in which L1 was active; the others are of all cycles."
        f"{ev.selection.other_run_note(tables.COUNTERS)}",
        words("Variant", ev.case_word.capitalize(), "What bounds it"),
        tuple((labels[variant.name], layer.name, bound_text(call)) for variant, layer, call in counted),
        "sentences",
    )


def _units(ev: Evidence) -> Figure | None:
    names = [one.name for one in ev.ranking.headliners]
    rows = [row for case in ev.layers for row in unit_plots.unit_rows(ev, case, names)]
    if not rows:
        return None
    tensor = any(unit_plots.TENSOR in row.shares for row in rows)
    needed = "Tensor cores: operations that the method needs, of the whole call. " if tensor else ""
    return Figure(
        "analysis-units",
        unit_plots.speed_of_light(ev, names, ev.layers[:1] if _many_bars(ev) else ev.layers),
        f"Bars of how busy each unit of the GPU is, in percent of its peak, on each {ev.case_word}, under "
        f"{units.join_all([*dict.fromkeys(row.name for row in rows)])}.",
        "Use of each unit in percent of its peak, in the longest kernel of a call. Rows: the first kernel, each step from it to the "
        "best, and the fastest library at FP32 accuracy, as far as they were counted. Pipes: the busiest arithmetic pipe; FP32: operations done. "
        f"{needed}Dark: the unit nearest its peak. From {counters.HIGH:.0f} % on it bounds the kernel, from {counters.LOW:.0f} % on in part. "
        "No dark bar: latency bounds it. Issue is dark only if it is as busy as the busiest pipe. Of DRAM and L2, DRAM is dark if both pass "
        f"{counters.HIGH:.0f} %. Issue and L1 count "
        f"the cycles in which a multiprocessor is active, the others all. On the right: warp instructions of the whole call, and "
        f"the share that FP32 FMAs are of them{', and mma and wgmma' * any(row.words[-1] != MISSING for row in rows)}.{ev.selection.other_run_note(tables.COUNTERS)}",
    )


def _units_of_others(ev: Evidence) -> tuple[Figure, ...]:
    """The same of each later case alone, where one figure of all would leave much of a page empty before it."""
    names = [one.name for one in ev.ranking.headliners]
    return tuple(
        Figure(
            f"analysis-units-{case.name.replace(' ', '-')}",
            unit_plots.speed_of_light(ev, names, [case]),
            f"Bars of how busy each unit of the GPU is, in percent of its peak, on {case.name}.",
            f"Use of each unit on {case.name}, with the rows, columns and colours above.",
        )
        for case in (ev.layers[1:] if _many_bars(ev) else ())
        if unit_plots.unit_rows(ev, case, names)
    )


def _many_bars(ev: Evidence) -> bool:
    names = [one.name for one in ev.ranking.headliners]
    rows = [len(unit_plots.unit_rows(ev, case, names)) for case in ev.layers]
    return bool(rows[0]) and sum(rows) > MOST_TOGETHER


def busy_caption(of_all: str, of_one: str, copy_gb_per_s: float) -> str:
    """What the columns BUSY_HEAD tell, the sums `of_all` and the shares `of_one`."""
    return (
        f"Of {of_all}: warp instructions, and the share of FP32 FMAs (32 threads' as one) among them. Of {of_one}, in percent "
        "of each unit's own peak: instruction issue, arithmetic pipes, L1 with shared memory, L2 and DRAM. DRAM over copy: DRAM's "
        f"rate over that of a plain copy, {units.significant(copy_gb_per_s / 1e3, 3)}\u202fTB/s as measured. Bold: the unit that bounds "
        f"the kernel, from {counters.HIGH:.0f} % of its peak on, and in part from {counters.LOW:.0f} % on. No bold: latency bounds it."
    )


def busy_cells(call: CountedCall, copy_gb_per_s: float) -> tuple[Cell, ...]:
    """A call's cells in the columns BUSY_HEAD."""
    values, unit = call.longest.values, counters.nearest_peak(call.longest)
    instructions = call.value(counters.INSTRUCTIONS)
    bold = unit if unit and values[unit] >= counters.LOW else ""
    shares = {metric: counters.percent(values.get(metric)) for metric in BUSY.values()}
    moved, ns = (values.get(metric) for metric in (counters.DRAM_BYTES, counters.DURATION))
    return (
        counters.amount(instructions, "") if instructions else MISSING,
        counters.percent(call.instruction_share(counters.FFMA)),
        *(Markup("<strong>{}</strong>").format(cell) if metric == bold else cell for metric, cell in shares.items()),
        counters.percent(100 * moved / ns / copy_gb_per_s if moved and ns else None),
    )


def _notes(ev: Evidence) -> list[str]:
    notes = [
        f"No hardware counters{' of ' + ', '.join(places) if ev.counters.counted else ''}: {reason}."
        for reason, places in ev.counters.uncounted.items()
    ]
    if ev.counters.unread:
        notes.append(f"Nsight Compute gave no reading of {', '.join(ev.counters.unread)}.")
    return notes
