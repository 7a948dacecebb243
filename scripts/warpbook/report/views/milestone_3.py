"""The third milestone: a first GPU kernel, its profile, and what it gains over the CPU."""

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.report import trace_layout
from warpbook.report.evidence import Evidence
from warpbook.report.figures import style, time_plots, timelines
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, Figure, HtmlTable, View, numbers, words
from warpbook.report.views.profile_tables import all_outputs, launch_table, other_sets, profile_places, program_profile


def milestone_3_view(ev: Evidence) -> View:
    """The first GPU kernel of a study."""
    kernel = _kernel(ev, ev.ranking.naive) if ev.ranking.naive else None
    tables = (place for *_, label in _profiled(ev) for place in profile_places("m3", label))
    ends = ("m3-timeline-figure", "m3-kernel-table", "m3-cpu-gpu", "m3-discussion")
    return View(source=ev.source.why, places=("m3-output", "m3-table", *tables, *ends), kernel=kernel)


def _profiled(ev: Evidence) -> list[tuple[int, str, str]]:
    """(size, weight set, label of its tables) of each profile that is shown: each size, and each other weight set."""
    sized = [(size, "", str(size)) for size in reversed(ev.sizes)]
    return sized + [(ev.largest, weights, weights) for weights in other_sets(ev)]


def _kernel(ev: Evidence, naive: Variant) -> View:
    first, unprofiled = ev.layer_names[0], ev.profiles.events_problem(naive.name, ev.largest)
    call, copied = (ev.times.op(naive.name, first, ev.largest, kind=kind) for kind in ("op", "layer"))
    why_no_cpu = ev.problems.why_no_cpu
    return View(
        variant=naive,
        notes=naive.notes(ev.layers),
        outputs=all_outputs(ev, naive),
        sizes=_sizes(ev, naive),
        profiles=tuple(
            program_profile(ev, naive, size, profile_places("m3", label), weights)
            for size, weights, label in _profiled(ev)
        ),
        unprofiled=unprofiled,
        timeline=None if unprofiled else _timeline(ev, naive),
        launches=_launches(ev, naive),
        figure_title="Op times" if why_no_cpu else "Op times: CPU against GPU",
        beside_cpu=_beside_cpu(ev, naive),
        figure=_figure(ev, naive),
        half=View(shown="GPU", lacking="CPU", why=why_no_cpu) if why_no_cpu else None,
        against_cpu=_against_cpu(ev, naive),
        first_layer=first,
        smallest=_call_and_kernel(ev, naive, ev.sizes[0]),
        largest=_call_and_kernel(ev, naive, ev.largest),
        copied=cell_markup.time_cell(copied),
        copied_ratio=units.ratio(copied.value / call.value) if copied and call else MISSING,
        limits=tuple(limit for layer in ev.layers if (limit := _limit(ev, naive, layer))),
    )


def _sizes(ev: Evidence, naive: Variant) -> HtmlTable:
    op_times = (f"Op time {layer}" for layer in ev.layer_names)
    head = (
        *numbers("Images", *op_times, "Accuracy", "Labels differing"),
        *words("Integers"),
        *numbers("Error / tolerance", "Program, s"),
    )
    return HtmlTable(
        "m3-table",
        "The first kernel at each size. ±: half the 95 % interval of an op time. Accuracy: on the real images. "
        "Labels differing: from the float64 reference's. Integers: whether small integers come out exact. Error / "
        "tolerance: the largest error on random reals as a share of what FP32 rounding allows.",
        head,
        tuple(_size(ev, naive, size) for size in ev.sizes),
    )


def _size(ev: Evidence, naive: Variant, size: int) -> tuple[Cell, ...]:
    runs = ev.programs.runs(naive.name, size)
    labels, reals, integers = (ev.checks.rows(test, naive.name, size) for test in ("labels", "reals", "integers"))
    return (
        units.count(size),
        *(cell_markup.time_cell(ev.times.op(naive.name, layer, size)) for layer in ev.layer_names),
        MISSING if runs.empty else units.significant(runs.accuracy.iloc[0]),
        MISSING if labels.empty else str(labels.mismatched_labels.iloc[0]),
        "exact" if integers.ok.all() and not integers.empty else "failed",
        MISSING if reals.empty else units.significant(reals.worst_ratio.max(), 2),
        MISSING if runs.empty else cell_markup.elapsed_cell(runs.elapsed_s),
    )


def _timeline(ev: Evidence, naive: Variant) -> View:
    hidden = trace_layout.copy_overlap(ev.profiles.events(naive.name, ev.largest))
    return View(
        figure=Figure(
            "m3-timeline-figure",
            timelines.program_timeline(ev.profiles.events(naive.name, ev.largest), style.kernel_colours(ev)),
            "Rows of bars over time: API calls, copies and kernels of the profiled program, whole and from the images' "
            "copy to the labels.",
            f"The profiled program with {naive.name} at {units.count(ev.largest)} images, above from its first CUDA call, "
            "below the part in which the device works. NVTX ranges mark its steps. Ranges and API calls are times of the host, "
            "copies and kernels of the device. Adjacent events are merged; the legend gives each kernel's total.",
            "timeline",
        ),
        copies=units.time(hidden.copies_ns / 1e6),
        hidden=units.percent(hidden.share, 1),
    )


def _launches(ev: Evidence, naive: Variant) -> HtmlTable | None:
    launches = ev.profiles.launches(naive.name, ev.largest)
    if not launches:
        return None
    return launch_table(
        "m3-kernel-table",
        f"Kernels of the program with {naive.name} at {units.count(ev.largest)} images, in order of first launch. "
        "Registers: of a thread. Shared memory: of a block; –: not known.",
        launches,
    )


def _beside_cpu(ev: Evidence, naive: Variant) -> HtmlTable | None:
    """Op times of the CPU's naive code beside the first kernel's, by layer and size; None where the CPU has none."""
    on_cpu = ev.ranking.naive_cpu
    if on_cpu is None or not any(ev.times.total(on_cpu.name, size) for size in ev.sizes):
        return None
    columns = (f"{layer}, {what}" for layer in ev.layer_names for what in ("CPU", "GPU", "CPU / GPU"))
    return HtmlTable(
        "m3-beside-cpu",
        f"Op times on each {ev.case_word}: {on_cpu.name} on the CPU ({ev.device_name('cpu')}), {naive.name} on the GPU "
        f"({ev.device_name('gpu')}). Beside a time: half the width of its 95 % interval, and its number of samples.",
        numbers("Images", *columns),
        tuple(_beside_cpu_row(ev, on_cpu.name, naive.name, size) for size in reversed(ev.sizes)),
    )


def _beside_cpu_row(ev: Evidence, on_cpu: str, naive: str, size: int) -> tuple[Cell, ...]:
    row: list[Cell] = [units.count(size)]
    for layer in ev.layer_names:
        row += [cell_markup.time_cell(ev.times.op(name, layer, size)) for name in (on_cpu, naive)]
        row.append(cell_markup.ratio_cell(ev.times.speedup(naive, layer, size, over=on_cpu)))
    return tuple(row)


def _figure(ev: Evidence, naive: Variant) -> Figure:
    on_cpu = ev.ranking.measured_variants("cpu")
    variants = [*on_cpu, naive]
    beside, of = ("CPU variants and ", f"CPU ({ev.device_name('cpu')}) and ") if on_cpu else ("", "")
    drawn = (ev.times.op(one.name, layer, size) for one in variants for layer in ev.layer_names for size in ev.sizes)
    return Figure(
        "m3-times",
        time_plots.times_by_size(ev, variants, True),
        f"Op time against dataset size for {beside}the first GPU kernel.",
        f"Op time against dataset size, {of}GPU ({ev.device_name('gpu')}), medians with "
        f"95\u202f% intervals, {units.sample_size(filter(None, drawn))}. Work in proportion to the images is a slope of 1. Where "
        "launch overhead dominates, a GPU's line is flat.",
    )


def _against_cpu(ev: Evidence, naive: Variant) -> View | None:
    loop_nest, best = ev.ranking.naive_cpu, ev.ranking.best_cpu
    if loop_nest is None or best is None:
        return None
    over_naive, over_best = (
        [
            cell_markup.speedup_cell(ev.times.total_speedup(naive.name, size, over=other.name))
            for size in (ev.largest, ev.sizes[0])
        ]
        for other in (loop_nest, best)
    )
    return View(best=best.name, over_naive=over_naive, over_best=over_best)


def _call_and_kernel(ev: Evidence, naive: Variant, size: int) -> View:
    call, kernel = (ev.times.op(naive.name, ev.layer_names[0], size, kind=kind) for kind in ("op", "gpu"))
    return View(images=units.count(size), call=cell_markup.time_cell(call), kernel=cell_markup.time_cell(kernel))


def _limit(ev: Evidence, naive: Variant, layer: Case) -> View | None:
    """None where the GPU's limits or the kernel's time on the device are not known."""
    bound = ev.times.fp32_bound_ms(layer, ev.largest)
    kernel = ev.times.op(naive.name, layer.name, ev.largest, kind="gpu")
    if bound is None or kernel is None:
        return None
    flops, traffic = layer.at(ev.largest).flops, layer.at(ev.largest).bytes
    return View(
        layer=layer.name,
        gflop=units.significant(flops / 1e9, 3),
        megabytes=units.significant(traffic / 1e6, 3),
        bound_by=ev.times.limiting_resource(layer, ev.largest),
        bound=units.time(bound, 3),
        times_bound=units.ratio(kernel.value / bound),
        tflop_per_s=units.significant(flops / kernel.value / 1e9, 3),
        tb_per_s=units.significant(traffic / kernel.value / 1e9, 3),
    )
