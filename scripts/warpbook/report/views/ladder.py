"""The ladder: every variant of a problem in one table, the fastest first, and rates against size."""

import math
from collections.abc import Callable

from warpbook.common import units
from warpbook.common.statistics import Estimate
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.report.evidence import Evidence
from warpbook.report.figures import bound_plots
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, Figure, HtmlTable, TableColumn, View, numbers, words

MOST_CASES = 3  # the most layers of a network whose times have a column each beside their sum
Parts = dict[str, Variant]  # which variant computes each case
Place = tuple[Case, int]  # a case and a size


def ladder_view(ev: Evidence) -> View:
    """Each case at the largest size at which most variants have a figure, later ones two in a table; a chart of the GPU's
    rates, of the CPU's where there are none."""
    tables: list[HtmlTable] = []
    charts: list[Figure] = []
    missing = []
    for device in ("gpu", "cpu"):
        sized = [(case, size) for case in ev.layers if (size := common_size(ev, device, case))]
        if not sized:
            run = ev.run_for(device)
            none = f"the run {run.run_id} holds none" if run else "there is no run"
            missing.append((device.upper(), ev.missing_reason(device) or none))
            continue
        later = sized[1:]
        for places in [sized[:1], *(later[start : start + 2] for start in range(0, len(later), 2))]:
            if len(places) == 2:
                tables.append(_table_of_pair(ev, device, places))
            else:
                (case, size), explained = places[0], not tables
                tables.append(ladder_table(ev, device, (case,), size, lambda one: one.stem, explained))
        if len(ev.sizes) > 1 and not charts:
            charts.append(_chart(ev, device))
    return View(
        title=ev.problem.title,
        reference=f"kernels/{ev.problem.name}/problem.py",
        tables=tuple(tables),
        charts=tuple(charts),
        missing=tuple(missing),
    )


def common_size(ev: Evidence, device: str, case: Case) -> int | None:
    """The largest size at which most variants of a device have a time for a case; None where none has one."""
    counts = {
        size: sum(bool(ev.times.op(one.name, case.name, size)) for one in ev.compared_variants(device))
        for size in ev.sizes
    }
    most = max(counts.values(), default=0)
    return max((size for size, count in counts.items() if count == most), default=None) if most else None


def _table_of_pair(ev: Evidence, device: str, places: list[Place]) -> HtmlTable:
    """Every variant's times of two cases beside each other, the fastest on the first of them first."""
    first = places[0][0].name
    known = {place: _fastest_first(ev, device, *place) for place in places}
    libraries = {place: next(filter(_is_fp32_library, known[place]), None) for place in places}
    order = {one.name: one for variants in known.values() for one in variants}
    rows = tuple(
        (
            one.stem + " (library)" * one.header.peer,
            *(cell for place, library in libraries.items() for cell in _pair_cells(ev, one, *place, library)),
        )
        for one in order.values()
    )
    heads = [(case.name, *["Of bound"] * (device == "gpu"), "Over library") for case, _ in places]
    of = units.join_all([f"{case.name}: {case.at(size)}, {ev.at_size(size)}" for case, size in places])
    over = [f"{cell_markup.library_words(ev, one)} on {case.name}" for (case, _), one in libraries.items() if one]
    best = f" Best library at FP32 accuracy: {units.join_all(over)}." if over else ""
    doubts = cell_markup.doubt_note(cell for row in rows for cell in row)
    return HtmlTable(
        f"ladder-{device}-{first.replace(' ', '-')}",
        f"{of}, on {ev.device_name(device)}: every {device.upper()} variant, the fastest on {first} first. A case's name stands over its "
        f"op times; other columns as in the first table.{best}{doubts}",
        (*words("Variant"), *(column for labels in heads for column in numbers(*labels))),
        rows,
        "dense",
    )


def _fastest_first(ev: Evidence, device: str, case: Case, size: int) -> list[Variant]:
    timed = [(ev.times.op(one.name, case.name, size), one) for one in ev.compared_variants(device)]
    return [one for time, one in sorted(((time.value, one) for time, one in timed if time), key=lambda each: each[0])]


def _pair_cells(ev: Evidence, one: Variant, case: Case, size: int, library: Variant | None) -> list[Cell]:
    time = ev.times.op(one.name, case.name, size)
    bound = [_share([ev.times.method_bound_ms(one.name, case, size)], time)] if one.device == "gpu" else []
    return [cell_markup.time_cell(time, counted=False), *bound, _speedup_cell(ev, {case.name: one}, library, size)]


def _is_fp32_library(one: Variant) -> bool:
    return one.header.peer and one.header.precision == "fp32"


def ladder_table(
    ev: Evidence,
    device: str,
    cases: tuple[Case, ...],
    size: int,
    name: Callable[[Variant], Cell],
    explained: bool = True,
) -> HtmlTable:
    """Every variant of a device with a time of all `cases` together, the fastest first; behind them those with a time
    of some, whose other cells are empty. The best of each case together are a row too, where they are several
    variants. One table of several has its columns `explained`."""
    rungs: list[Parts] = [{case.name: one for case in cases} for one in ev.compared_variants(device)]
    if len(cases) > 1 and (composite := ev.ranking.composite):
        rungs.append(composite)
    known = [
        (ev.times.sum_over(parts, size), parts)
        for parts in rungs
        if any(ev.times.op(one.name, case, size) for case, one in parts.items())
    ]
    known.sort(key=lambda rung: rung[0].value if rung[0] else math.inf)
    timed = [(time, parts) for time, parts in known if time]
    whole = [next(iter(parts.values())) for _, parts in timed if len({one.name for one in parts.values()}) == 1]
    naive = next((one for one in whole if not one.header.builds_on and not one.header.peer), None)
    library = next(filter(_is_fp32_library, whole), None)
    of = f"{cases[0].name}: {cases[0].at(size)}" if len(cases) == 1 else f"All {ev.case_word}s together"
    best = f" Best library at FP32 accuracy: {cell_markup.library_words(ev, library)}." if library else ""
    has_energy = any(ev.times.energy_of_sum(parts, size) for _, parts in timed)
    rows = tuple(_row(ev, parts, cases, size, name, (naive, library), has_energy) for _, parts in known)
    counted = units.sample_size(time for time, _ in timed)
    energy = (
        " Energy is that of the whole GPU for a call, averaged over half a second of calls without a pause. Power may limit the "
        "clock there, so that these calls take longer than op time."
    ) * has_energy
    columns = (
        "Op time is the median of calls and a wait for the device, with half its 95 % interval. TFLOP/s and GB/s count the direct "
        "method's operations, and each array once. The bound is that of the variant's own method and precision; a library's method is taken for direct unless it is faster. The last column compares a "
        f"variant with the one that it builds on.{energy} †: times of two separate jobs. A ratio without it is of samples taken in "
        "alternation; the times are of each variant's own job."
        if explained
        else "Columns as in the first table."
    )
    return HtmlTable(
        f"ladder-{device}" + (f"-{cases[0].name.replace(' ', '-')}" if len(cases) == 1 else ""),
        f"{of}, {ev.at_size(size)}, on {ev.device_name(device)}: every {device.upper()} variant, the fastest first"
        f"{f' ({counted})' if counted else ''}. {columns}{best}{cell_markup.doubt_note(cell for row in rows for cell in row)}",
        _head(ev, device, cases, size, naive, has_energy),
        rows,
        "wide" if len(cases) > 1 else "dense",
    )


def _head(
    ev: Evidence, device: str, cases: tuple[Case, ...], size: int, naive: Variant | None, has_energy: bool
) -> tuple[TableColumn, ...]:
    return (
        *words("Variant"),
        *numbers(*(case.name for case in _columns(cases)), "Op time"),
        *numbers(*(["TFLOP/s"] if cases[0].at(size).flops else []), "GB/s", *(["Of bound"] if device == "gpu" else [])),
        *numbers(*["mJ a call"] * has_energy),
        *numbers(f"Over {naive.stem if naive else 'the naive one'}", "Over best library"),
        *words("Against its baseline"),
    )


def _columns(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    return cases if 1 < len(cases) <= MOST_CASES else ()


def _row(
    ev: Evidence,
    parts: Parts,
    cases: tuple[Case, ...],
    size: int,
    name: Callable[[Variant], Cell],
    others: tuple[Variant | None, Variant | None],
    has_energy: bool,
) -> tuple[Cell, ...]:
    time, one = ev.times.sum_over(parts, size), parts[cases[0].name]
    joules = ev.times.energy_of_sum(parts, size)
    alone = len({each.name for each in parts.values()}) == 1
    shapes = [case.at(size).with_problem(parts[case.name].problem) for case in cases]
    bounds = [ev.times.method_bound_ms(parts[case.name].name, case, size) for case in cases]
    each = [ev.times.op(parts[case.name].name, case.name, size) for case in _columns(cases)]
    label = name(one) if alone else ", ".join(f"{case} by {part.stem}" for case, part in parts.items())
    return (
        label + " (library)" * (alone and one.header.peer),
        *(units.time(found.value) if found else MISSING for found in each),
        cell_markup.time_cell(time, counted=False),
        *([_rate(sum(shape.flops for shape in shapes) / 1e9, time)] if shapes[0].flops else []),
        _rate(sum(shape.bytes for shape in shapes) / 1e6, time),
        *([_share(bounds, time)] if one.device == "gpu" else []),
        *[units.significant(1e3 * joules, 3) if joules else MISSING] * has_energy,
        *(_speedup_cell(ev, parts, other, size) for other in others),
        _verdict(ev, one, cases, size) if alone else MISSING,
    )


def _share(bounds: list[float | None], time: Estimate | None) -> str:
    """A sum of bounds in percent of a time."""
    if time is None or None in bounds:
        return MISSING
    share = sum(filter(None, bounds)) / time.value
    return units.percent(share, 0 if share >= 0.1 else 1)


def _rate(amount: float, time: Estimate | None) -> str:
    return units.significant(amount / time.value, 3) if time else MISSING


def _speedup_cell(ev: Evidence, parts: Parts, other: Variant | None, size: int) -> Cell:
    if other and all(one == other for one in parts.values()):
        return "1×"
    return cell_markup.ratio_cell(ev.times.speedup_of_sum(parts, other.name, size) if other else None)


def _verdict(ev: Evidence, one: Variant, cases: tuple[Case, ...], size: int) -> Cell:
    baseline = one.header.builds_on
    if not baseline:
        return "starting point"
    known = [case.name for case in cases if ev.times.op(one.name, case.name, size)]
    whole = len(known) == len(cases) > 1
    speedup = ev.times.total_speedup(one.name, size) if whole else ev.times.speedup(one.name, known[0], size)
    where = f", {known[0]}" if len(known) < len(cases) else ""
    return cell_markup.comparison_cell(speedup, f"{baseline.rpartition('/')[2]}{where}") if speedup else MISSING


def _chart(ev: Evidence, device: str) -> Figure:
    what = "Rate" if any(case.at(ev.largest).flops for case in ev.layers) else "Traffic"
    timed = ev.ranking.timed_variants(device)
    drawn = ev.ranking.foremost(device) or timed
    left_out = [one.stem for one in timed if one not in drawn]
    shown = (
        f"the fastest {device.upper()} variants, the naive one and the libraries"
        if left_out
        else f"every {device.upper()} variant"
    )
    return Figure(
        f"ladder-{device}-rates",
        bound_plots.rates_by_size(ev, device, drawn),
        f"{what} of {shown} against size, a panel for each {ev.case_word}.",
        f"{what} of {shown} against size, on {ev.device_name(device)}, by op time; intervals of 95 %."
        + f" Not drawn: {units.join_all(left_out)}." * bool(left_out)
        + (" Dashed: what the hardware allows the direct method in FP32." if device == "gpu" else ""),
    )
