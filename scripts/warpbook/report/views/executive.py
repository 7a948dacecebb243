"""The executive page: what a reader of one page should know of the study's GPU kernels."""

from collections.abc import Iterator
from dataclasses import dataclass

from warpbook.common import units
from warpbook.harness import precision
from warpbook.kernels.variants import Variant
from warpbook.report.comparison import Comparison
from warpbook.report.evidence import Evidence
from warpbook.report.views import borrowed_run, causes, cell_markup, whole_network
from warpbook.report.views.components import Cell
from warpbook.runs import catalog, tables
from warpbook.runs.tables import PRECISION


@dataclass(frozen=True)
class HeadlineSpeedup:
    """A speedup of a variant over another: of all layers, and of each where there are several."""

    name: str
    over: str
    whole: Cell
    layers: tuple[tuple[str, Cell], ...]


@dataclass(frozen=True)
class FasterOnLayer:
    """A variant that is faster on one layer than the best over all of them. speedup: of one of ours over our best, of
    our best over a library."""

    layer: str
    name: str
    time: Cell
    speedup: Cell


@dataclass(frozen=True)
class TestSummary:
    """Tests passed by the best kernel and by all measured variants, and how many of these passed every one.

    worst: the largest error over its tolerance; labels: predicted otherwise than by the reference, None where none was
    predicted; beside_direct: how the best kernel's error compares with the direct convolution's, as a sentence.
    """

    passed: int
    tests: int
    variants: int
    sound: int
    worst: str
    labels: int | None
    beside_direct: str


@dataclass(frozen=True)
class ProgramTime:
    """A whole program and its time."""

    name: str
    elapsed: Cell


@dataclass(frozen=True)
class ExecutiveView:
    """idea: the best kernel's title, within a sentence; cause: why it is faster than the naive one; shares: whether a
    table has what that rests on; largest: of the steps from the naive kernel to it; spread: how long the programs of
    all variants take; since: what changed since the run before, empty where nothing did."""

    time: Cell
    idea: str
    best: HeadlineSpeedup | None
    faster_variants: tuple[FasterOnLayer, ...]
    peer: HeadlineSpeedup | None
    faster_peers: tuple[FasterOnLayer, ...]
    largest: HeadlineSpeedup | None
    least: HeadlineSpeedup | None
    tests: TestSummary | None
    cause: str
    shares: bool
    programs: tuple[ProgramTime, ...]
    spread: str
    network: str
    changes_since: str
    caveats: tuple[str, ...]


def executive_view(ev: Evidence) -> ExecutiveView | None:
    """None where no GPU kernel of ours has a figure."""
    best, ranking = ev.ranking.best, ev.ranking
    if best is None:
        return None
    tried = [one for one in ranking.measured_variants("gpu", peers=False) if one.header.builds_on]
    gains = {one.name: found for one in tried if (found := ev.times.total_speedup(one.name, ev.largest))}
    steps = sorted((one for one in tried if one.name in gains), key=lambda one: gains[one.name].ratio.value)
    chain = {one.name for one in ranking.chain(best)}
    cause = causes.cause_sentences(ev, best)
    counted = borrowed_run.within_sentence(ev, tables.COUNTERS)
    taken = [one for one in steps if one.name in chain]
    return ExecutiveView(
        time=cell_markup.time_cell(ev.times.total(best.name, ev.largest)),
        idea=cell_markup.within_sentence(best.title),
        best=_gain(ev, best, ranking.naive.name if ranking.naive and ranking.naive != best else ""),
        faster_variants=tuple(
            _faster_variant(ev, layer, one, one, best) for layer, one in ranking.faster_variants.items()
        ),
        peer=_gain(ev, best, ranking.best_peer.name if ranking.best_peer else ""),
        faster_peers=tuple(_faster_variant(ev, layer, one, best, one) for layer, one in ranking.faster_peers.items()),
        largest=_gain(ev, taken[-1], taken[-1].header.builds_on) if taken else None,
        least=_gain(ev, steps[0], steps[0].header.builds_on) if len(steps) > 1 else None,
        tests=_tests(ev, best),
        cause=f"{cause}, as counted{counted}" if cause and counted else cause,
        shares=bool(cause) and "analysis" in ev.study.sections,
        programs=tuple(_programs(ev, best)),
        spread=_spread(ev),
        network=whole_network.network_headline(ev) if "whole_network" in ev.study.sections else "",
        changes_since=_changes_since(ev),
        caveats=tuple(_caveats(ev)),
    )


def _faster_variant(ev: Evidence, layer: str, one: Variant, faster: Variant, slower: Variant) -> FasterOnLayer:
    speedup = ev.times.speedup(faster.name, layer, ev.largest, over=slower.name)
    return FasterOnLayer(
        layer,
        one.name,
        cell_markup.time_cell(ev.times.op(one.name, layer, ev.largest)),
        cell_markup.speedup_cell(speedup),
    )


def _gain(ev: Evidence, variant: Variant, over: str) -> HeadlineSpeedup | None:
    whole = ev.times.total_speedup(variant.name, ev.largest, over=over) if over else None
    if whole is None:
        return None
    layers = ev.layer_names if len(ev.layer_names) > 1 else []
    found = ((layer, ev.times.speedup(variant.name, layer, ev.largest, over=over)) for layer in layers)
    return HeadlineSpeedup(
        variant.name,
        over,
        cell_markup.speedup_cell(whole),
        tuple((layer, cell_markup.speedup_cell(speedup)) for layer, speedup in found),
    )


def _tests(ev: Evidence, best: Variant) -> TestSummary | None:
    mine = ev.checks.for_variant(best.name)
    if mine is None:
        return None
    tallies = [found for one in ev.ranking.measured_variants("gpu") if (found := ev.checks.for_variant(one.name))]
    return TestSummary(
        passed=mine.passed,
        tests=mine.tests,
        variants=len(tallies),
        sound=sum(one.passed == one.tests for one in tallies),
        worst=units.percent(mine.worst_ratio, 0),
        labels=mine.labels,
        beside_direct=_error_against_direct(ev, best),
    )


def _error_against_direct(ev: Evidence, best: Variant) -> str:
    """Empty where the run was not asked for errors over the length of sums and the range of inputs, or has none."""
    rows = ev.checks.errors
    rows = rows[(rows.variant == best.name) & rows.direct_rel_l2_err.notna()]
    if rows.empty:
        return ""
    least, most = (units.count(int(end)) for end in (rows.products.min(), rows.products.max()))
    beyond = rows[~rows.fp32_class].products
    others = f"; the others add up at most {units.count(int(beyond.max()))}" if len(beyond) else ""
    return (
        f"Over sums of {least} to {most} products and {rows.inputs.nunique()} ranges of inputs its error is at most "
        f"{precision.CLASS_RATIO} times {ev.problem.facts.baseline}'s, FP32's class, in {int(rows.fp32_class.sum())} of "
        f"{len(rows)} cases{borrowed_run.within_sentence(ev, PRECISION)}{others}."
    )


def _programs(ev: Evidence, best: Variant) -> Iterator[ProgramTime]:
    """The best kernel's, the naive one's, and the frameworks'."""
    shown = [best, ev.ranking.naive, ev.programs.framework("gpu"), ev.programs.framework("cpu")]
    for variant in dict.fromkeys(one.name for one in shown if one):
        found = ev.programs.runs(variant, ev.largest)
        if not found.empty:
            device = ev.plan.variants[variant].device
            yield ProgramTime(
                f"{variant} on the CPU" if device == "cpu" else variant,
                cell_markup.elapsed_cell(found.elapsed_s, "\u202fs"),
            )


def _spread(ev: Evidence) -> str:
    """How long whole programs take with any of our GPU kernels, and how much of that is convolution; empty for one."""
    times, shares, runs_of_each = [], [], set()
    for variant in ev.ranking.measured_variants("gpu", peers=False):
        found, op = ev.programs.runs(variant.name, ev.largest), ev.times.total(variant.name, ev.largest)
        if not found.empty and op:
            times.append(float(found.elapsed_s.median()))
            runs_of_each.add(len(found))
            shares.append(op.value / 1e3 / times[-1])
    if len(times) < 2:
        return ""
    made = "one run each" if runs_of_each == {1} else f"{min(runs_of_each)} to {max(runs_of_each)} runs each"
    return (
        f"With any of our {len(times)} GPU variants the whole program takes {units.time(min(times) * 1e3, 3)} to "
        f"{units.time(max(times) * 1e3, 3)} ({made}), of which the convolutions' op times are "
        f"{units.percent(min(shares))} to {units.percent(max(shares))}"
    )


def _changes_since(ev: Evidence) -> str:
    """What changed of the study's GPU kernels since the run archived before, of this GPU model; empty where nothing
    did."""
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


def _library_drift(ev: Evidence, library: str) -> str:
    """How far a library's time differed between jobs, where that is more than for any kernel of ours: it may choose
    another algorithm in each process."""
    there = [one for one in ev.times.drift.differences if one.variant == library and one.size == ev.largest]
    most = max(there, key=lambda one: abs(one.change), default=None)
    if most is None or abs(most.change) <= max(ev.times.drift.between_jobs("gpu", ev.largest), default=0.0):
        return ""
    return f" ({library}: {units.percent(abs(most.change), 0)} on {most.layer})"


def _caveats(ev: Evidence) -> Iterator[str]:
    apart = ev.gpu_run is not ev.local
    if apart and ev.ranking.best_cpu:
        assert ev.gpu_run is not None  # of which the best kernel is
        host = ev.gpu_run.record["machine"]["cpu"]
        yield (
            f"GPU and CPU figures come from two machines, the GPU's host with {host['model']}, {host['cores']} cores"
        )
    if ev.times.gpus > 1:
        yield f"GPU figures are of {units.number_word(ev.times.gpus)} GPUs of one model"
    if ev.ranking.best_peer:
        yield (
            "† marks ratios of times not taken in turn, intervals widened by the drift seen between jobs"
            f"{_library_drift(ev, ev.ranking.best_peer.name)}"
        )
    if why := ev.missing_reason("cpu"):
        yield why
    failed = ev.problems.table[ev.problems.table.status != "unsupported"]
    if not failed.empty:
        yield f"without a figure somewhere (last chapter): {', '.join(failed.variant.unique())}"
