"""The second milestone: convolution on the CPU."""

import itertools
import re

from warpbook.common import units
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence
from warpbook.report.evidence.missing_data import without_remedy
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, HtmlTable, View, numbers, words
from warpbook.report.views.profile_tables import PROGRAM_HEAD, all_outputs, program_cells


def milestone_2_view(ev: Evidence) -> View:
    """The CPU variants of a study."""
    naive, best = ev.ranking.naive_cpu, ev.ranking.best_cpu
    every, programs = ev.compared_variants("cpu"), _programs(ev)
    first = next((one for one in every if not one.header.builds_on and not one.header.peer), None)
    timed = [
        one for one in every if any(ev.times.op(one.name, layer, size) for layer in ev.layer_names for size in ev.sizes)
    ]
    return View(
        missing="" if programs else ev.problems.why_no_cpu,
        ideas=tuple(_idea(ev, variant, variant in timed) for variant in every),
        outputs=all_outputs(ev, first) if first else (),
        why_not_run=_why_not_run(ev),
        programs=programs,
        op_times=_op_times(ev, timed) if timed else None,
        discussion=_discussion(ev, naive, best) if naive and best else None,
    )


def _why_not_run(ev: Evidence) -> str:
    if not ev.network.has_labels:
        return f"{ev.network.name} is a workload of convolutions alone, which gives no classes"
    if not ev.plan.weight_sets(ev.network.name):
        return f"the weights of {ev.network.name} are not in weights/; scripts/import_weights.py imports them"
    if ev.network.name not in ev.local.record["networks"]:
        return f"this machine's run {ev.local.run_id} is not about {ev.network.name}"
    return (
        f"no program of the loop nest ended well in the run {ev.local.run_id}; the chapter on what is left out says why"
    )


def _idea(ev: Evidence, variant: Variant, measured: bool) -> View:
    header = variant.header
    reasons = tuple(map(without_remedy, ev.problems.for_variant(variant.name).reason.unique()))
    first = re.split(r"(?<=\.) ", header.idea, maxsplit=1)[0]  # the file has the others
    return View(
        name=variant.name, peer=header.peer, title=variant.title, idea=first, measured=measured, problems=reasons
    )


def _programs(ev: Evidence) -> HtmlTable | None:
    rows = []
    for variant in ev.compared_variants("cpu"):
        for size in ev.sizes:
            runs = ev.programs.runs(variant.name, size)
            if len(runs):
                rows.append((variant.name, units.count(size), *program_cells(runs)))
    if not rows:
        return None
    return HtmlTable(
        "m2-program-table",
        "The whole inference program on the CPU: elapsed time (median of the runs, its 95 % interval), user and system "
        "CPU time, peak memory and accuracy. User time "
        "includes BLAS threads that spin between layers.",
        (*words("Variant"), *numbers("Images"), *PROGRAM_HEAD),
        tuple(rows),
    )


def _op_times(ev: Evidence, measured: list[Variant]) -> HtmlTable:
    sizes = (f"{units.count(size)} {'image' if size == 1 else 'images'}" for size in ev.sizes)
    return HtmlTable(
        "m2-op-table",
        "Op time of each convolution on the CPU: median, and half the width of its 95 % interval. Images go through in "
        "chunks of at most 100, whose times are added; a value without an interval is a single sample.",
        (*words("Variant", "Layer"), *numbers(*sizes)),
        tuple(
            (variant.name, layer, *(cell_markup.time_cell(ev.times.op(variant.name, layer, size)) for size in ev.sizes))
            for variant in measured
            for layer in ev.layer_names
        ),
    )


def _discussion(ev: Evidence, naive: Variant, best: Variant) -> View:
    others = [variant for variant in ev.ranking.measured_variants("cpu") if variant.name != naive.name]
    gains: dict[str, dict[str, Cell]] = {}
    without: dict[str, list[str]] = {}
    for variant, layer in itertools.product(others, ev.layer_names[:2]):
        found = ev.times.speedup(variant.name, layer, ev.largest, over=naive.name)
        if found and found.quotable:
            gains.setdefault(variant.name, {})[layer] = cell_markup.speedup_cell(found)
        else:
            without.setdefault(layer, []).append(variant.name)
    whole = ev.times.total_speedup(best.name, ev.largest, over=naive.name)
    return View(
        layers="both convolutions" if len(ev.layers) == 2 else "the convolution",
        naive_time=cell_markup.time_cell(ev.times.total(naive.name, ev.largest)),
        naive_rate=_rate(ev, naive),
        best=best.name,
        best_time=cell_markup.time_cell(ev.times.total(best.name, ev.largest)),
        best_rate=_rate(ev, best),
        speedup=cell_markup.speedup_cell(whole) if whole and whole.quotable else "",
        gains=tuple(View(variant=name, layers=tuple(layers.items())) for name, layers in gains.items()),
        without=units.join_all(
            [
                f"{'every variant' if len(names) == len(others) else units.join_all(names)} on {layer}"
                for layer, names in without.items()
            ]
        ),
    )


def _rate(ev: Evidence, variant: Variant) -> str:
    """GFLOP/s of all layers at the largest size."""
    total = ev.times.total(variant.name, ev.largest)
    assert total is not None  # it is measured
    flops: float = sum(layer.at(ev.largest).flops for layer in ev.layers)
    return units.significant(flops / total.value / 1e6, 3)
