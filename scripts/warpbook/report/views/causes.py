"""Why the best kernel is faster than the naive one, and what its counters suggest to try next."""

import math

from warpbook.common import statistics, units
from warpbook.common.files import COMMAND
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.profiling import counters
from warpbook.profiling.counters import CountedCall
from warpbook.report.evidence import Evidence
from warpbook.report.views import cell_markup

FEWER = "a method of fewer operations"
REMEDIES = {
    counters.DRAM: "fusing it with its neighbours, so that fewer bytes move",
    counters.L2: "larger blocks, so that L2 delivers each value less often",
    counters.L1: "larger register tiles, so that each value from shared memory feeds more multiply-adds",
    counters.SM: f"tensor cores, or {FEWER}",
    counters.ISSUE: "wider loads and larger tiles, so that fewer instructions serve each multiply-add",
}
LATENCY_REMEDY = "asynchronous copies or more warps, so that more loads are in flight"

FURTHER = 2.0  # times as far
SECTOR_BYTES, MOSTLY = 32, 0.4
SHOWN = 3  # comparisons that a sentence names
NEAR_BOUND = 0.85  # of its bound: what a kernel can hardly pass
FAR_SLOWER = 0.5  # a speedup over the naive kernel that one sample is enough to tell from 1
Calls = dict[str, CountedCall]  # a variant's counted calls by layer


def cause_sentence(ev: Evidence, best: Variant) -> str:
    """How many instructions, and loads, the best kernel saves, and its busiest unit; empty without counters."""
    naive, after = ev.ranking.naive, _calls(ev, best)
    if not after:
        return ""
    before = _calls(ev, naive) if naive and naive != best else {}
    found = {layer.name: counters.nearest_peak(after[layer.name].longest) for layer in ev.layers if layer.name in after}
    shares = {layer: after[layer].longest.values[unit] / 100 for layer, unit in found.items()}
    idle = [layer for layer, share in shares.items() if 100 * share < counters.LOW]
    busy = {layer: unit for layer, unit in found.items() if layer not in idle}
    busiest = []
    for unit in dict.fromkeys(busy.values()):
        layers = [layer for layer, of in busy.items() if of == unit]
        ends = (units.percent(end([shares[layer] for layer in layers]), 0) for end in (min, max))
        where = "" if len(ev.layers) == 1 else f" on {cell_markup.name_cases(ev, layers)}"
        partly = ", in part" * (max(shares[layer] for layer in layers) < counters.HIGH / 100)
        busiest.append(f"{counters.UNITS[unit]}{where} ({' to '.join(dict.fromkeys(ends))}{partly})")
    limits = [f"what limits it is {units.join_all(busiest)}"] if busiest else []
    if idle:
        where = "" if len(idle) == len(ev.layers) == 1 else f" on {cell_markup.name_cases(ev, idle)}"
        most = units.percent(max(shares[layer] for layer in idle), 0)
        limits.append(f"latency limits it{where}: no unit passes {most} of its peak")
    words = "; ".join(limits)
    words = words[:1].upper() + words[1:]
    of_memory = all(ev.times.limiting_resource(layer, ev.largest) == "memory bandwidth" for layer in ev.layers)
    saved = _saved(before, after, of_memory) if naive and before.keys() == after.keys() else []
    return f"It {units.join_all(saved)} than {naive.stem}. {words}" if naive and saved else words


def next_sentence(ev: Evidence, best: Variant) -> str:
    """What to try on the layer that loses most time against its bound, by its counters; empty where there are none."""
    fastest = {layer: ev.ranking.faster_variants.get(layer, best) for layer in ev.layer_names}
    far = [
        (share, (1 - share) * time.value, case)
        for case in ev.layers
        if (share := _share_of_bound(ev, fastest[case.name], case, "op")) is not None
        if (time := ev.times.op(fastest[case.name].name, case.name, ev.largest, "op"))
    ]
    if not far:
        return ""
    least = min(share for share, *_ in far)
    if least >= NEAR_BOUND:
        near = f"runs at {units.percent(least, 0)} of its bound or more"
        return f"Little is left to gain by this method: every {ev.case_word} {near}"
    share, _, case = max(far, key=lambda each: each[1])
    one, runs = fastest[case.name], f"runs at {units.percent(share, 0)} of its bound"
    alone = _share_of_bound(ev, one, case, "gpu") or 0.0
    if alone >= NEAR_BOUND:
        kernels = f"its kernels alone reach {units.percent(alone, 0)}"
        return (
            f"On {case.name}, {one.stem} {runs}; {kernels}. Little is left to gain but the launch and the wait for it"
        )
    call = _calls(ev, one).get(case.name)
    if call is None:
        return f"Read the hardware counters of {one.stem}: {COMMAND} count --config study={ev.name}"
    unit = counters.nearest_peak(call.longest)
    latency = call.longest.values[unit] < counters.LOW
    limit = "latency limits it" if latency else f"what limits it is {counters.UNITS[unit]}"
    remedy = FEWER if unit == counters.SM and one.header.split else REMEDIES[unit]
    return f"On {case.name}, {one.stem} {runs}, and {limit}. Try {LATENCY_REMEDY if latency else remedy}"


def _share_of_bound(ev: Evidence, one: Variant, case: Case, kind: str) -> float | None:
    """A variant's lower bound over its time of a kind; None where either is unknown."""
    time = ev.times.op(one.name, case.name, ev.largest, kind)
    bound = ev.times.method_bound_ms(one.name, case, ev.largest)
    return bound / time.value if time and bound else None


def samples_sentence(ev: Evidence) -> str:
    """How many samples would settle which ambiguous comparisons at the largest size, fewest first; else empty."""
    margin, asked = ev.config.measuring.equivalence_margin, []
    for variant in ev.ranking.measured_variants("gpu", peers=False):
        baseline = ev.plan.variants.get(variant.header.builds_on)
        speedup = ev.times.total_speedup(variant.name, ev.largest)
        if baseline is None or speedup is None or speedup.verdict != "ambiguous" or speedup.rough:
            continue
        naive = ev.ranking.naive
        over_naive = ev.times.total_speedup(variant.name, ev.largest, over=naive.name) if naive else None
        if over_naive and (over_naive.verdict == "slower" or over_naive.ratio.value < FAR_SLOWER):
            continue  # nobody needs to know by how much
        # To tell it from 1, or that it lies within the margin: whichever is sooner.
        enough = (statistics.samples_to_decide(speedup.ratio, margin, beyond) for beyond in (0.0, margin))
        least = min((n for n in enough if n), default=statistics.SAMPLES_MOST + 1)
        if not math.isfinite(speedup.ratio.low):  # one sample tells nothing of how many it takes
            least = statistics.SMALLEST_RANKED
        if least <= speedup.ratio.n:
            continue  # the two clocks differ, which more samples do not settle
        against = "" if speedup.paired else f" beside {baseline.stem}"
        asked.append((least, f"{variant.stem}{against}", speedup.ratio.n))
    words = [f"{what} ({have} now, {_count_to_decide(n)} to decide)" for n, what, have in sorted(asked)]
    if not words:
        return ""
    others = len(words) - SHOWN
    more = f", and of {'another' if others == 1 else f'{others} others'}" if others > 0 else ""
    return f"Take more samples of {units.join_all(words[:SHOWN])}{more}"


def _count_to_decide(samples: int) -> str:
    """About how many samples decide, in words."""
    if samples > statistics.SAMPLES_MOST:
        return f"more than {units.count(statistics.SAMPLES_MOST)}"
    return f"about {units.count(round(samples, 2 - len(str(samples))))}"


def _calls(ev: Evidence, variant: Variant) -> Calls:
    calls = {layer: ev.counters.calls.get((variant.name, layer)) for layer in ev.layer_names}
    return {layer: call for layer, call in calls.items() if call and counters.nearest_peak(call.longest)}


def _saved(before: Calls, after: Calls, of_memory: bool) -> list[str]:
    """How many times fewer instructions calls take than others, and, of a problem that memory bounds, fewer loads where those
    fall much further and are most of what the calls move: asynchronous copies are not among them. Empty where they take no
    fewer, or nothing was read."""
    metrics = (counters.INSTRUCTIONS, counters.LOADED_SECTORS, counters.DRAM_BYTES)
    read = [
        {metric: [call.value(metric) for call in calls.values()] for metric in metrics} for calls in (before, after)
    ]
    was, now = ({metric: None if None in of else sum(filter(None, of)) for metric, of in one.items()} for one in read)
    ratios = {metric: amount / left for metric, amount in was.items() if amount and (left := now[metric])}
    instructions, loads = (ratios.get(metric, 0.0) for metric in (counters.INSTRUCTIONS, counters.LOADED_SECTORS))
    said = []
    if instructions >= 1 + counters.UNCHANGED_WITHIN:
        said.append(f"executes {units.significant(instructions, 2)} times fewer instructions")
    loaded, moved = now[counters.LOADED_SECTORS], now[counters.DRAM_BYTES]
    if of_memory and loads > FURTHER * instructions and loaded and moved and SECTOR_BYTES * loaded >= MOSTLY * moved:
        said.append(f"loads {units.significant(loads, 2)} times fewer sectors of global memory")
    return said
