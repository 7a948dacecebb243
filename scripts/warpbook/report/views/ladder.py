"""The ladder: every variant of each case in one table, the fastest first, and their rates against size."""

from dataclasses import dataclass

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.report import figures
from warpbook.report.evidence import Evidence
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, Figure, HtmlTable, TableColumn, numbers, words


@dataclass(frozen=True)
class LadderView:
    """tables: of each device, a case each; charts: of each device that has several sizes; missing: devices without a
    figure, and why."""

    title: str
    reference: str
    tables: tuple[HtmlTable, ...]
    charts: tuple[Figure, ...]
    missing: tuple[tuple[str, str], ...]


def ladder_view(ev: Evidence) -> LadderView:
    """Each table at the largest size at which most variants have a figure."""
    tables, charts, missing = [], [], []
    for device in ("gpu", "cpu"):
        found = [table for case in ev.layers if (table := _table(ev, device, case))]
        tables += found
        if not found:
            missing.append((device.upper(), ev.missing_reason(device) or "no variant has a sound figure"))
        elif len(ev.sizes) > 1:
            charts.append(_chart(ev, device))
    return LadderView(
        title=ev.problem.title,
        reference=f"kernels/{ev.problem.name}/problem.py",
        tables=tuple(tables),
        charts=tuple(charts),
        missing=tuple(missing),
    )


def size_of(ev: Evidence, device: str, case: Case) -> int | None:
    """The largest size at which most variants of a device have a figure of a case; None where none has one."""
    counts = {
        size: sum(bool(ev.times.op(one.name, case.name, size)) for one in ev.compared_variants(device))
        for size in ev.sizes
    }
    most = max(counts.values(), default=0)
    return max((size for size, count in counts.items() if count == most), default=None) if most else None


def _table(ev: Evidence, device: str, case: Case) -> HtmlTable | None:
    size = size_of(ev, device, case)
    if size is None:
        return None
    bound = case.at(size)
    timed = [(time, one) for one in ev.compared_variants(device) if (time := ev.times.op(one.name, case.name, size))]
    timed.sort(key=lambda pair: pair[0].value)
    naive = next((one for _, one in timed if not one.header.builds_on and not one.header.peer), None)
    library = next((one for _, one in timed if one.header.peer and one.header.precision == "fp32"), None)
    on_gpu = device == "gpu"
    limit = ev.times.fp32_bound_ms(case, size) if on_gpu else None
    rows = tuple(
        (
            f"{one.stem}{' (library)' if one.header.peer else ''}",
            cell_markup.time_cell(time),
            *([units.significant(bound.flops / time.value / 1e9, 3)] if bound.flops else []),
            units.significant(bound.bytes / time.value / 1e6, 3),
            *([units.percent(limit / time.value, 0)] if limit else []),
            _over(ev, one, naive, case, size),
            _over(ev, one, library, case, size),
            _verdict(ev, one, case, size),
        )
        for time, one in timed
    )
    head = (
        *words("Variant"),
        *numbers("Op time", *(["TFLOP/s"] if bound.flops else []), "GB/s", *(["Of FP32 bound"] if limit else [])),
        TableColumn(f"Over {naive.stem}" if naive else "Over the naive one", "number"),
        TableColumn("Over best library", "number"),
        *words("Against its baseline"),
    )
    of = f"{case.name}: {bound}" if case.name != str(bound) else case.name
    best = f" Best library at FP32 accuracy: {library.stem}." if library else ""
    return HtmlTable(
        f"ladder-{device}-{case.name.replace(' ', '-')}",
        f"{of}, {ev.at_size(size)}, on {ev.device_name(device)}: every {device.upper()} variant, the fastest first. Op time is the "
        "median of calls and a wait for the device, with half its 95 % interval; rates count the direct method's operations "
        f"and each array once.{best}",
        head,
        rows,
        "dense",
    )


def _over(ev: Evidence, one: Variant, other: Variant | None, case: Case, size: int) -> Cell:
    if other is None:
        return MISSING
    if one == other:
        return "1×"
    return cell_markup.ratio_cell(ev.times.speedup(one.name, case.name, size, over=other.name))


def _verdict(ev: Evidence, one: Variant, case: Case, size: int) -> Cell:
    baseline = one.header.builds_on
    if not baseline:
        return "starting point"
    speedup = ev.times.speedup(one.name, case.name, size)
    verdict = cell_markup.verdict_cell(speedup)
    return (
        verdict
        if speedup is None
        else verdict + f" than {baseline.rpartition('/')[2]}" * (speedup.verdict in ("faster", "slower"))
    )


def _chart(ev: Evidence, device: str) -> Figure:
    what = "Rate" if any(case.at(ev.largest).flops for case in ev.layers) else "Traffic"
    alt = f"{what} of every {device.upper()} variant against size, a panel for each {ev.case_word}."
    return Figure(
        f"ladder-{device}-rates",
        figures.rate_plots.rates_by_size(ev, device),
        alt,
        f"{what} of every {device.upper()} variant against size, on {ev.device_name(device)}, by op time; intervals of 95 %."
        + (" Dashed: what the hardware allows the direct method in FP32." if device == "gpu" else ""),
    )
