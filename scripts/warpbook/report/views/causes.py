"""Why the best kernel is faster than the naive one: what bounds either, and how many instructions each takes."""

from warpbook.common import units
from warpbook.kernels.variants import Variant
from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall
from warpbook.report.evidence import Evidence

LEAST_TENSOR = 5.0
"""Percent of instructions on the tensor pipe, below which they need not be tensor cores' products: it takes others."""

Calls = dict[str, CountedCall]
"""A variant's counted calls by layer."""


def cause_sentences(ev: Evidence, best: Variant) -> str:
    """What bounds the naive kernel and what the best one, without a full stop; empty where no counters of the best were
    read."""
    naive = ev.ranking.naive
    after = _calls(ev, best)
    before = _calls(ev, naive) if naive and naive != best else {}
    if not after:
        return ""
    if naive is None or before.keys() != after.keys():
        return f"{best.name} is bound {_bounds(after)}"
    fma = counters.instruction_share(before.values(), counters.FFMA)
    of_fma = f"; {units.percent(fma / 100, 0)} of its instructions are FP32 multiply-adds" if fma else ""
    return (
        f"{naive.name} is bound {_bounds(before)}{of_fma}. {best.name}{_instruction_ratio(before, after)} is "
        f"bound {_bounds(after)}"
    )


def _calls(ev: Evidence, variant: Variant) -> Calls:
    calls = {layer: ev.counters.calls.get((variant.name, layer)) for layer in ev.layer_names}
    return {layer: call for layer, call in calls.items() if call and counters.nearest_peak(call.longest)}


def _bounds(calls: Calls) -> str:
    """What bounds calls, once where it is the same: by instruction issue (conv1 84 %, in part conv2 79 % of cycles)."""
    found: dict[str, list[tuple[str, str]]] = {}
    for layer, call in calls.items():
        degree, name, share = counters.short_bound(call.longest)
        found.setdefault(name, []).append((degree, f"{layer} {share}" if len(calls) > 1 else share))
    return " and ".join(_bound(name, shares) for name, shares in found.items())


def _bound(name: str, shares: list[tuple[str, str]]) -> str:
    of = "cycles" if name == counters.UNITS[counters.ISSUE] else "peak"
    if len({degree for degree, _ in shares}) == 1:
        return f"{shares[0][0]}by {name} ({', '.join(share for _, share in shares)} of {of})"
    return f"by {name} ({', '.join(degree + share for degree, share in shares)} of {of})"


def _instruction_ratio(before: Calls, after: Calls) -> str:
    """How many times fewer instructions calls take than others; empty where they do not, or none were read."""
    instructions, left = (counters.total(calls.values(), counters.INSTRUCTIONS) for calls in (before, after))
    if not instructions or not left or instructions < (1 + counters.UNCHANGED_WITHIN) * left:
        return ""
    tensor = counters.instruction_share(after.values(), counters.TENSOR) or 0.0
    among = f", {units.percent(tensor / 100, 0)} on tensor cores," if tensor >= LEAST_TENSOR else ""
    return f" takes {units.significant(instructions / left, 2)} times fewer instructions{among} and"
