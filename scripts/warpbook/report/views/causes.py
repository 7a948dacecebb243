"""Why the best kernel is faster than the naive one: what bounds either, and how many instructions each takes."""

from warpbook import units
from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall
from warpbook.report.evidence import Evidence
from warpbook.variants import Variant

Calls = dict[str, CountedCall]
"""A variant's counted calls by layer."""


def sentences(ev: Evidence, best: Variant) -> str:
    """What bounds the naive kernel and what the best one; empty where no counters of the best were read."""
    naive = ev.ranking.naive
    after = _calls(ev, best)
    before = _calls(ev, naive) if naive and naive != best else {}
    if not after:
        return ""
    if naive is None or before.keys() != after.keys():
        return f"{best.name} is bound {_bounds(after)}."
    fma = _share(before, counters.FFMA, 32)
    of_fma = f"; {fma} of its instructions are FP32 multiply-adds" if fma else ""
    return (
        f"{naive.name} is bound {_bounds(before)}{of_fma}. "
        f"{best.name}{_fewer(before, after)} is bound {_bounds(after)}."
    )


def _calls(ev: Evidence, variant: Variant) -> Calls:
    calls = {layer: ev.counters.calls.get((variant.name, layer)) for layer in ev.layer_names}
    return {layer: call for layer, call in calls.items() if call and counters.nearest(call.longest)}


def _bounds(calls: Calls) -> str:
    """What bounds calls, once where it is the same: by instruction issue (conv1 84 %, conv2 82 % of cycles)."""
    found: dict[tuple[str, str], list[str]] = {}
    for layer, call in calls.items():
        name, share, of = counters.bound_in_short(call.longest)
        found.setdefault((name, of), []).append(f"{layer} {share}" if len(calls) > 1 else share)
    return " and ".join(f"{name} ({', '.join(shares)} {of})" for (name, of), shares in found.items())


def _sum(calls: Calls, metric: str) -> float | None:
    """A counter over all layers; None where one was not read."""
    values = [call.value(metric) for call in calls.values()]
    return sum(value or 0.0 for value in values) if None not in values else None


def _share(calls: Calls, metric: str, threads: int = 1) -> str:
    """The share of instructions that a counter counts, of so many threads each; empty where none is or was read."""
    counted, every = _sum(calls, metric), _sum(calls, counters.INSTRUCTIONS)
    return units.percent(counted / threads / every, 0) if counted and every else ""


def _fewer(before: Calls, after: Calls) -> str:
    """How many times fewer instructions calls take than others; empty where they do not, or none were read."""
    instructions, left = (_sum(calls, counters.INSTRUCTIONS) for calls in (before, after))
    if not instructions or not left or instructions < (1 + counters.ALIKE) * left:
        return ""
    tensor = _share(after, counters.TENSOR)
    among = f", {tensor} of them on tensor cores," if tensor else ""
    return f" takes {units.significant(instructions / left, 2)} times fewer instructions{among} and"
