"""The executive page: what a reader of one page should know of the study's GPU kernels."""

import math
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from warpbook.common import units
from warpbook.harness import precision
from warpbook.kernels import lower_bounds
from warpbook.kernels.variants import Variant
from warpbook.report.comparison import Comparison
from warpbook.report.evidence import INCONCLUSIVE, NO_RATIO, Evidence
from warpbook.report.views import causes, cell_markup, claim_table
from warpbook.report.views.components import Cell, HtmlTable, View, words
from warpbook.runs import catalog, tables
from warpbook.runs.tables import PRECISION

LAUNCH_SHARE = 0.04  # of the bound's speed: what launch and wait cost beyond it is worth a second number
HOST_SHARE = 0.1  # by which a ratio of op times differs from that of GPU times: launches and waits then count in it
NOTABLE = 0.1  # the share of a program's time from which a kernel can change that time visibly
FAR_AHEAD = 1.5  # a mix of variants that is so many times as fast as the best alone is what a reader should know first


def executive_view(ev: Evidence) -> View | None:
    """None where no GPU kernel of ours has a figure."""
    best = ev.ranking.best
    if best is None:
        return None
    lead = _lead(ev, best)
    cause = causes.cause_sentence(ev, lead)
    if cause:
        cause = f"{f'{lead.stem}: ' * (lead != best)}Method: {lead.title}{_on_tensor_cores(lead)}. {cause}{ev.selection.in_other_run(tables.COUNTERS)}"
    said = {
        "Best": ". ".join(
            filter(
                None,
                (
                    _best_sentence(ev, best),
                    _tie_sentence(ev, best),
                    _peer_sentence(ev),
                    _plain_sentence(ev),
                    _behind_sentence(ev, best, lead),
                ),
            )
        ),
        "Why": cause,
        "Correct?": _correctness_sentence(ev, lead),
        "Program": _program_sentence(ev, best),
        "Next": ". ".join(filter(None, (_next_sentence(ev, best), causes.samples_sentence(ev)))),
    }
    facts = tuple(_facts(ev, best, lead))
    note = " †: times of two separate jobs." if any("†" in value for _, value in facts) else ""
    return View(
        findings=tuple(View(label=label, text=f"{text}.") for label, text in said.items() if text),
        facts=HtmlTable(
            "summary-facts",
            f"What the findings were measured on, and what supports them.{note}",
            words("Fact", "Value"),
            facts,
            "facts",
        ),
    )


def _on_tensor_cores(one: Variant) -> str:
    return ", on tensor cores" if one.header.split and "mma" not in one.title else ""


def _lead(ev: Evidence, best: Variant) -> Variant:
    """The best kernel, or where a mix is far ahead of it, that which computes the most cases of the mix."""
    if not _far_mix(ev, best):
        return best
    parts = [*ev.ranking.composite.values()]
    return max(parts, key=parts.count)


def _best_sentence(ev: Evidence, best: Variant) -> str:
    """The best kernel's time, and how it compares with the naive kernel, the best library and its lower bound."""
    total = ev.times.total(best.name, ev.largest)
    assert total is not None  # of the best kernel
    others = [one for one in (ev.ranking.naive, ev.ranking.best_peer) if one and one != best]
    where = ev.layer_names[0] if len(ev.layers) == 1 else f"{'both' if len(ev.layers) == 2 else 'all'} {ev.case_word}s"
    where += f" at {ev.at_size(ev.largest)}"
    if far := _far_mix(ev, best):
        by_gpu = ev.times.sum_over(ev.ranking.composite, ev.largest, kind="gpu")
        compared = []
        for one in (best, *others):
            time, alone = (ev.times.total(one.name, ev.largest, kind=kind) for kind in ("op", "gpu"))
            if time is None:
                continue
            ratio, second = time.value / far[0], alone.value / by_gpu.value if alone and by_gpu else 0.0
            told = one.header.peer and second and _host_counts(ratio, second)
            beside = f" ({units.ratio(second)} by GPU time)" if told else ""
            compared.append(f"{units.ratio(ratio)} that of {one.stem}{beside}")
        together = f"Together they compute {where} in {units.time(far[0])}"
        return f"{far[1]}, and {best.stem} elsewhere. {together}. Speed: {units.join_all(compared)}"
    compared = [_ratio_words(ev, best, one) for one in others]
    if bound := ev.times.total_method_bound_ms(best.name, ev.largest):
        compared.append(f"{units.percent(bound / total.value, 0)} of what the hardware allows this method")
        alone = ev.times.total(best.name, ev.largest, kind="gpu")
        if alone and bound / alone.value >= bound / total.value + LAUNCH_SHARE:
            compared[-1] += (
                f" ({units.percent(bound / alone.value, 0)} by GPU time: without the launch and the wait for it)"
            )
    mixed = _mix(ev)
    return (
        f"{best.stem} computes {where} in {units.time(total.value)}{'. Speed: ' if compared else ''}{units.join_all(compared)}"
        f"{f'. {mixed[1]} cuts this to {units.time(mixed[0])}' if mixed else ''}"
    )


def _tie_sentence(ev: Evidence, best: Variant) -> str:
    """Which kernel of ours may be as fast as the best; empty where none is."""
    others = [one for one in ev.ranking.fastest_first if not one.header.peer and one != best]
    speedup = ev.times.total_speedup(best.name, ev.largest, over=others[0].name) if others else None
    tie = speedup and not speedup.rough and speedup.verdict in ("same", "ambiguous")
    return f"{others[0].stem} may be as fast" if tie else ""


def _peer_sentence(ev: Evidence) -> str:
    """What the library is that the best kernel is compared with."""
    peer = ev.ranking.best_peer
    if peer is None:
        return ""
    same = ev.ranking.repeated(peer)
    return f"{peer.stem} is the fastest library at FP32 accuracy{f'; here it runs the kernels of {same.stem}' if same else ''}"


def _plain_sentence(ev: Evidence) -> str:
    """The fastest kernel without tensor cores, beside the library; empty where the best kernel is that."""
    plain, peer = ev.ranking.best_plain, ev.ranking.best_peer
    if plain is None:
        return ""
    against = f". Speed: {_ratio_words(ev, plain, peer)}" if peer else ""
    return f"Without tensor cores, in plain FP32, {plain.stem} is our fastest{against}"


def _behind_sentence(ev: Evidence, best: Variant, lead: Variant) -> str:
    """On which cases a library at FP32 accuracy is faster than what the sum over the cases is of; empty where on none."""
    behind = dict[str, str]()
    for layer in ev.layer_names if len(ev.layers) > 1 else ():
        ours, peer = ev.ranking.faster_variants.get(layer, best), ev.ranking.fastest_peer(layer)
        if peer is None:
            continue
        over = {one.stem: ev.times.speedup(one.name, layer, ev.largest, over=peer.name) for one in (best, ours)}
        judged = over[(best if lead == best else ours).stem]
        if judged and judged.verdict == "slower":
            first, *others = [(name, units.ratio(one.ratio.value)) for name, one in over.items() if one]
            words = f"On {layer}, {first[0]} has {first[1]} the speed of {peer.stem}"
            behind[layer] = f"{words}{''.join(f', and {name} has {ratio}' for name, ratio in others)}"
    if len(behind) > 1:
        return f"A library at FP32 accuracy is faster on {cell_markup.name_cases(ev, [*behind])}"
    return next(iter(behind.values()), "")


def _far_mix(ev: Evidence, best: Variant) -> tuple[float, str] | None:
    """As `_mix`, where that is far ahead of the best alone."""
    total, mixed = ev.times.total(best.name, ev.largest), _mix(ev)
    return mixed if total and mixed and mixed[0] * FAR_AHEAD < total.value else None


def _mix(ev: Evidence) -> tuple[float, str] | None:
    """The time of the best with each faster variant on its layer, and these in words; None where none is faster."""
    time = ev.times.sum_over(ev.ranking.composite, ev.largest) if ev.ranking.composite else None
    if time is None:
        return None
    quicker: dict[str, list[str]] = {}
    for layer, one in ev.ranking.faster_variants.items():
        quicker.setdefault(one.stem, []).append(layer)
    parts = [f"{name} on {cell_markup.name_cases(ev, layers)}" for name, layers in quicker.items()]
    return time.value, units.join_all(parts)


def _host_counts(by_op: float, by_gpu: float) -> bool:
    """Whether launches and waits make a ratio of op times another than that of GPU times."""
    return abs(math.log(by_gpu / by_op)) > HOST_SHARE


def _ratio_words(ev: Evidence, best: Variant, other: Variant) -> str:
    speedup = ev.times.total_speedup(best.name, ev.largest, over=other.name)
    assert speedup is not None  # both have a figure for every layer
    number = speedup.short_substitute or cell_markup.headline_ratio(speedup)
    if number == INCONCLUSIVE:
        return f"{number} against {other.stem} ({speedup.doubt})"
    if number == NO_RATIO:
        return f"{speedup.verdict} than {other.stem} ({speedup.doubt})"
    doubt = speedup.doubt if speedup.rough else ""
    by_gpu = ev.times.total_speedup(best.name, ev.largest, over=other.name, kind="gpu")
    alone = f"{units.ratio(by_gpu.ratio.value)} by GPU time" if by_gpu else ""
    if speedup.verdict == "ambiguous" and not doubt:
        doubt = f"ambiguous{f': {alone}' if alone else ''}"
    elif by_gpu and other.header.peer and not doubt and _host_counts(speedup.ratio.value, by_gpu.ratio.value):
        doubt = alone
    return f"{number} that of {other.stem}{f' ({doubt})' if doubt else ''}"


def _correctness_sentence(ev: Evidence, best: Variant) -> str:
    """Of the best kernel, and of those that are faster on a case of their own."""
    mine = ev.checks.for_variant(best.name)
    if mine is None:
        return ""
    mixed = {one.name: one.stem for one in ev.ranking.composite.values() if one != best}
    others = [(stem, tally) for name, stem in mixed.items() if (tally := ev.checks.for_variant(name))]
    right = all(tally.passed == tally.tests for tally in (mine, *(tally for _, tally in others)))
    words = f"{'Yes' if right else 'No'}: {best.stem} passes {mine.passed} of {mine.tests} tests against float64"
    beside = "".join(f"; {name} {tally.passed} of {tally.tests}" for name, tally in others)
    if mine.labels is None:
        return words + beside
    if mine.labels == 0:
        return f"{words}, and no label differs{beside}"
    return f"{words}, and {units.count(mine.labels)} of its labels differ{'s' if mine.labels == 1 else ''}{beside}"


def _program_sentence(ev: Evidence, best: Variant) -> str:
    """What the best kernel does to the whole program; empty where no program was run with it or with the naive one."""
    naive, shares, each = ev.ranking.naive, list[float](), list[str]()
    if naive is None:
        return ""
    for one in (naive, best) if naive != best else (best,):
        found, op = ev.programs.runs(one.name, ev.largest), ev.times.total(one.name, ev.largest)
        if found.empty or op is None:
            return ""
        whole_ms = 1e3 * float(found.elapsed_s.median())
        shares.append(op.value / whole_ms)
        share = units.percent(shares[-1], 1 if shares[-1] >= 0.001 else 2)
        runs = f" (median of {len(found)})" if len(found) > 1 else ""
        whole = (
            f"With {one.stem} the whole program takes {units.time(whole_ms, 3)}{runs}, the convolutions {share} of that"
        )
        each.append(f"{share} with {one.stem}" if each else whole)
    so = "Faster kernels save no measurable time" if max(shares) < NOTABLE else ""
    return ". ".join(filter(None, [", and ".join(each), so, _whole_network_sentence(ev, best)]))


def _whole_network_sentence(ev: Evidence, best: Variant) -> str:
    """What the whole network takes as one call, and with PyTorch; empty where neither is known."""
    convolutions, calls = ev.times.total(best.name, ev.largest), list[str]()
    for peers in (False, True):
        one = ev.networks.fastest(ev.largest, peers)
        time = ev.networks.time(one.name, ev.largest) if one else None
        if one and time:
            merges = bool(convolutions and time.value < convolutions.value)
            notes = ", ".join([*["library"] * peers, *["merges layers"] * merges])
            calls.append(f"{units.time(time.value)} with {one.name}{notes and f' ({notes})'}")
    return f"GPU time of the network alone: {', '.join(calls)}" if calls else ""


def _next_sentence(ev: Evidence, best: Variant) -> str:
    """Where most time is left: in another kernel of the program, else on the case farthest from its bound."""
    kernels = {row.name: row.total_ns / 1e6 for row in ev.profiles.rows(best.name, ev.largest, ("kernel",))}
    inside = [ev.profiles.within_layer(best.name, layer, ev.largest) for layer in ev.layer_names]
    ours = {name for events in inside for name in events.name[events.kind == "kernel"]}
    others = {name: ms for name, ms in kernels.items() if name not in ours}
    convolutions = sum(ms for name, ms in kernels.items() if name in ours)
    most = max(others, key=lambda name: others[name], default="")
    if convolutions and others.get(most, 0.0) > convolutions:
        fused = ev.networks.fastest(ev.largest, peers=False)
        whole = ev.networks.time(fused.name, ev.largest) if fused else None
        remedy = f"Speed up {most}"
        if fused and whole and whole.value < others[most]:
            remedy = f"{fused.name} computes the whole network in {units.time(whole.value)}: use it"
        return (
            f"In the program with {best.stem}, {most} takes {units.time(others[most], 3)}, the convolutions "
            f"{units.time(convolutions, 3)}. {remedy}"
        )
    return causes.next_sentence(ev, best)


def _facts(ev: Evidence, best: Variant, lead: Variant) -> Iterator[tuple[str, Cell]]:
    gpu = ev.gpu
    assert ev.gpu_run and gpu  # of which the best kernel is
    machine = ev.gpu_run.record["machine"]
    several = f" (each job on one of {units.number_word(ev.times.gpus)})" if ev.times.gpus > 1 else ""
    size = f"{gpu['multiprocessors']} multiprocessors, {gpu['memory_bytes'] / 2**30:.0f}\u202fGiB"
    archived = [run for run in ev.cited_runs if run is not ev.local]
    on_page = [(run, ", ".join(ev.selection.kinds_from(run, (tables.COUNTERS, PRECISION)))) for run in archived]
    runs = [
        f"{what}: run {run.run_id}" if what else f"run {run.run_id}"
        for run, what in on_page
        if what or run is ev.gpu_run
    ]
    limits = [
        f"{words} {gpu[key]:.0f}\u202f{unit}"
        for words, key, unit in (
            ("SM", "sm_clock_max_mhz", "MHz"), ("memory", "memory_clock_max_mhz", "MHz"), ("power", "power_limit_w", "W")
        )
        if gpu.get(key)
    ]  # fmt: skip
    most = [f"at most {', '.join(limits)}"] if limits else []
    rates = lower_bounds.fastest_gb_per_s(gpu) / 1e3, gpu["peak_gflop_per_s"]["fp32"] / 1e3
    most.append(f"bounds from {rates[0]:.2f}\u202fTB/s, measured, and {rates[1]:.1f}\u202fTFLOP/s, specified")
    yield "GPU", "; ".join([f"{gpu['name']}{several}, {size}", *most, *runs])
    major, minor = divmod(int(gpu["runtime_cuda"]), 1000)
    driver, held = gpu.get("driver") or "unknown", machine["packages"]
    libraries = (f"{name} {held[name]}" for name in ("cuDNN", "cuBLAS", "torch") if name in held)
    cuda = (f"driver {driver} (CUDA {gpu['driver_cuda']})", f"runtime {major}.{minor // 10}")
    yield "Software", "; ".join([*cuda, machine["compiler"], *libraries])
    yield "CPU", _cpu(ev, machine["cpu"])
    if code := ev.ranking.best_cpu:
        ours = ev.ranking.composite or dict.fromkeys(ev.layer_names, best)
        speedup = ev.times.speedup_of_sum(ours, code.name, ev.largest)
        whole = {one.name for one in ev.ranking.measured_variants("cpu")}
        in_part = any(
            ev.times.op(one.name, layer, ev.largest)
            for one in ev.compared_variants("cpu")
            for layer in ev.layer_names
            if one.name not in whole
        )
        where = f"; others are untimed on a {ev.case_word}" * in_part
        over = Markup("{}: {} over {}, {}{}")
        at, names = ev.at_size(ev.largest), [*dict.fromkeys(one.stem for one in ours.values())]
        yield (
            "Best GPU over best CPU code",
            over.format(cell_markup.ratio_cell(speedup), units.join_all(names), code.stem, at, where),
        )
    tallies = [found for one in ev.ranking.timed_variants("gpu") if (found := ev.checks.for_variant(one.name))]
    sound = sum(one.passed == one.tests for one in tallies)
    yield "Tests", f"{sound} of {len(tallies)} GPU variants pass all of theirs{_error_against_direct(ev, lead)}"
    if claims := claim_table.tally_claims(ev):
        refuted = f". One refuted: {claims.example}" if claims.example else ""
        yield "Claims", f"of {claims.claims} made beforehand: {claims.verdicts}{refuted}"
    if changes := _changes_since(ev):
        yield "Since the last run", changes
    failed = ev.problems.table[ev.problems.table.status != "unsupported"]
    wholly = failed[~failed[["layers", "sizes", "kinds"]].apply(lambda row: any(map(len, row)), axis=1)]
    no_cpu = ev.missing_reason("cpu")
    if left_out := [*([f"CPU times: {no_cpu}"] if no_cpu else []), *wholly.variant.unique()]:
        yield "Left out", "; ".join(left_out)


def _cpu(ev: Evidence, host: dict[str, Any]) -> str:
    """The host of the GPU, and where CPU times are of another."""
    model = str(host["model"]).replace("(R)", "")
    words = f"{model}, {host['cores']} cores, {host['memory_gib']:.0f}\u202fGiB"
    if ev.gpu_run is ev.local:
        return words
    of_local = f"CPU times from {ev.device_name('cpu')}" if ev.ranking.best_cpu else "builds and tests"
    return f"at the GPU {words}; {of_local}, run {ev.local.run_id}"


def _error_against_direct(ev: Evidence, best: Variant) -> str:
    """Empty where the run was not asked for errors over the length of sums and the range of inputs, or has none."""
    rows = ev.checks.errors
    rows = rows[(rows.variant == best.name) & rows.direct_rel_l2_err.notna()]
    if rows.empty:
        return ""
    least, most = (units.count(int(end)) for end in (rows.products.min(), rows.products.max()))
    beyond = rows[~rows.fp32_class].products
    others = f"; on the others, of at most {units.count(int(beyond.max()))} terms, more" if len(beyond) else ""
    return (
        f". On {int(rows.fp32_class.sum())} of {len(rows)} cases (sums of {least} to {most} terms, "
        f"{rows.inputs.nunique()} input ranges) the error of {best.stem} is at most {precision.CLASS_RATIO} times that of "
        f"{ev.problem.facts.baseline}{others}{ev.selection.in_other_run(PRECISION)}"
    )


def _changes_since(ev: Evidence) -> str:
    """What changed of the study's GPU kernels since the last archived run of this GPU model; else empty."""
    assert ev.gpu_run is not None  # of which the best kernel is
    before = catalog.earlier_runs_of_model(ev.gpu_run, ev.network.name)
    if not before:
        return ""
    earlier = before[0]
    compared = Comparison(earlier, ev.gpu_run, ev.config.tolerance)
    if "gpu" in compared.obstacles:
        return f"run {earlier.run_id} cannot be compared: {compared.obstacles['gpu']}"
    shown = {one.name for one in ev.ranking.measured_variants("gpu")}
    moved = [row for row in compared.movements if (row.place.network, row.place.device) == (ev.network.name, "gpu")]
    at_largest = [row for row in moved if row.place.size == ev.largest and row.place.variant in shown]
    at_largest = [row for row in at_largest if row.verdict != "same"]
    changes = [f"{row.place.variant} {units.ratio(row.speedup.value)}, {row.verdict}" for row in at_largest]
    changed = "; ".join(changes[:3]) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")
    return f"against run {earlier.run_id}: {changed}" if changed else ""
