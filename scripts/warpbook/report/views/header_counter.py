"""What became of the hardware counter that a variant's header names."""

from warpbook.common import units
from warpbook.kernels.variants import Variant
from warpbook.profiling import counters
from warpbook.report.evidence import Evidence
from warpbook.report.views import borrowed_run
from warpbook.runs import tables

_VERDICTS = {True: ", the direction expected", False: ", not as expected", None: ""}


def counter_sentence(ev: Evidence, variant: Variant) -> str:
    """To follow the header's own words: its readings before and after, or why there are none."""
    metric = counters.named_metric(variant.header.check)
    if ev.counters.table.empty:
        return "; hardware counters were not read in this run"
    if not metric:
        return ""
    changes = ev.counters.header_counter_changes(variant)
    if not changes:
        return _why_not(ev, variant)
    readings = [
        f"{counters.amount(one.before, metric)} before and {counters.amount(one.after, metric)} after on {one.layer}"
        f"{counters.change(one.before, one.after)}{_VERDICTS[one.as_expected]}"
        for one in changes
    ]
    calls = {name: ev.counters.calls[name, changes[0].layer] for name in (variant.header.builds_on, variant.name)}
    scaled = [
        f"; {name}'s sum is scaled up from the first {len(call.launches)} of its {call.total_launches} launches"
        for name, call in calls.items()
        if call.is_truncated and metric.endswith(".sum")
    ]
    images = units.count(calls[variant.name].images)
    return (
        f". At {images} images{borrowed_run.within_sentence(ev, tables.COUNTERS)}: "
        f"{'; '.join(readings)}{''.join(scaled)}"
    )


def _why_not(ev: Evidence, variant: Variant) -> str:
    sides = (variant.header.builds_on, variant.name)
    failed = ev.counters.failed_rows(sides)
    if len(failed):
        return f"; it was not read{borrowed_run.within_sentence(ev, tables.COUNTERS)}: {failed.reason.iloc[0]}"
    lacking = [name for name in sides if not any(place[0] == name for place in ev.counters.calls)]
    programs = "whose program is" if len(lacking) == 1 else "whose programs are"
    older = ev.selection.from_older_run.get(tables.COUNTERS)
    here = f"in the run {older.run_id}, or of other sources there" if older else "here"
    return f"; it was not read for {' and '.join(lacking)}, {programs} not among those profiled {here}"
