"""The summary: headline figures of the study, or of its frameworks where it stops before a kernel of ours."""

from dataclasses import dataclass

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.kernels.variants import Variant
from warpbook.report import figures
from warpbook.report.evidence import Evidence, Speedup
from warpbook.report.views import cards, cell_markup, claim_table
from warpbook.report.views.components import Cell, Fact, Figure


@dataclass(frozen=True)
class RoundedVariant:
    """The best variant that rounds its operands first."""

    precision: str
    name: str
    time: Cell


@dataclass(frozen=True)
class KernelSummary:
    """What there is to say of our GPU kernels. tried: optimizations measured; fruitful, fruitless: their names."""

    rounded: RoundedVariant | None
    tried: int
    fruitful: tuple[str, ...]
    fruitless: tuple[str, ...]
    claims: claim_table.ClaimTally | None


@dataclass(frozen=True)
class CpuCode:
    """The best CPU code, where no GPU kernel has a figure."""

    device: str
    best: str
    time: Cell
    speedup: Cell
    naive: str


@dataclass(frozen=True)
class SummaryView:
    """facts and kernels: of the study's reach; figure: op times on the GPU, else on the CPU.

    broken: variants that failed, went stale or could not be measured; limits: why others were not measured everywhere.
    """

    images: str
    facts: tuple[Fact, ...]
    frameworks_alone: bool
    kernels: KernelSummary | None
    cpu_code: CpuCode | None
    figure: Figure | None
    why_no_gpu: str
    broken: tuple[str, ...]
    limits: tuple[str, ...]


def summary_view(ev: Evidence) -> SummaryView:
    """The summary of a study."""
    frameworks_alone = not {"milestone_3", "milestone_4"} & set(ev.study.sections)
    facts: tuple[Fact, ...] = ()
    kernels, cpu_code, figure = None, None, None
    if frameworks_alone:
        facts = _framework_facts(ev)
    elif ev.ranking.best:
        facts, kernels, figure = _kernel_facts(ev, ev.ranking.best), _kernels(ev), _gpu_figure(ev)
    elif ev.ranking.naive_cpu and ev.ranking.best_cpu:
        cpu_code, figure = _cpu_code(ev, ev.ranking.naive_cpu, ev.ranking.best_cpu), _cpu_figure(ev)
    problems = ev.problems.of_variants
    limited = problems.status == "unsupported"
    return SummaryView(
        images=units.count(ev.largest),
        facts=facts,
        frameworks_alone=frameworks_alone,
        kernels=kernels,
        cpu_code=cpu_code,
        figure=figure,
        why_no_gpu=ev.source.why,
        broken=tuple(problems[~limited].variant.unique()),
        limits=tuple(problems[limited].reason.unique()),
    )


def _time_and_name(label: str, variant: Variant | None) -> str:
    return f"{label}, {variant.name}" if variant else label


def _framework_facts(ev: Evidence) -> tuple[Fact, ...]:
    images = units.count(ev.largest)
    frameworks = {device: ev.programs.framework(device) for device in ("cpu", "gpu")}
    runs = {device: ev.programs.runs(variant.name, ev.largest) for device, variant in frameworks.items() if variant}
    elapsed = {
        device: units.time(float(runs[device].elapsed_s.median()) * 1e3, 3) if device in runs else MISSING
        for device in frameworks
    }
    spreads = {
        device: f"{cell_markup.run_spread(runs[device].elapsed_s)}, " if device in runs else "" for device in frameworks
    }
    accuracy = {device: float(rows.accuracy.iloc[0]) for device, rows in runs.items()}
    alike = "; the same on both" if len(accuracy) == 2 and accuracy["cpu"] == accuracy["gpu"] else ""
    on_gpu = (
        f"{spreads['gpu']}whole program, {ev.device_name('gpu')}" if "gpu" in runs else f"not measured: {ev.source.why}"
    )
    on_cpu = f"{spreads['cpu']}whole program, {images} images, {ev.device_name('cpu')}"
    return (
        Fact(
            _time_and_name("The framework on the CPU", frameworks["cpu"]),
            elapsed["cpu"],
            f"not measured: {why}" if (why := ev.missing_reason("cpu")) else on_cpu,
        ),
        Fact(_time_and_name("On the GPU", frameworks["gpu"]), elapsed["gpu"], on_gpu),
        Fact(
            "Accuracy",
            units.significant(next(iter(accuracy.values()))) if accuracy else MISSING,
            f"of {images} test images{alike}",
        ),
    )


def _kernel_facts(ev: Evidence, best: Variant) -> tuple[Fact, ...]:
    layers = f"both {ev.case_word}s" if len(ev.layers) == 2 else f"the {ev.case_word}"
    where = f" for {layers} of {ev.at_size(ev.largest)} on {ev.device_name('gpu')}"
    naive, cpu, peer = ev.ranking.naive, ev.ranking.best_cpu, ev.ranking.best_peer
    over_cpu, over_peer = _speedup_over(ev, best, cpu), _speedup_over(ev, best, peer)
    against_cpu = cards.summary_card(
        _time_and_name("Over the best CPU code", cpu), over_cpu, "no CPU figure", f"; {ev.device_name('cpu')}"
    )
    return (
        Fact(
            "Best of ours at FP32 accuracy",
            best.name,
            cell_markup.time_cell(ev.times.total(best.name, ev.largest)) + where,
            "name",
        ),
        _over_naive(ev, best, naive),
        *(() if ev.missing_reason("cpu") else (against_cpu,)),
        cards.summary_card(
            _time_and_name("Over cuDNN" if ev.is_network else "Over the best library", peer), over_peer, "not measured"
        ),
    )


def _over_naive(ev: Evidence, best: Variant, naive: Variant | None) -> Fact:
    label = _time_and_name("Over the naive kernel", naive)
    if naive is None:
        return Fact(label, MISSING, "not measured")
    speedup = _speedup_over(ev, best, naive) if naive.name != best.name else None
    if speedup is None:
        return Fact(label, "1×", "it is the naive kernel")
    return cards.summary_card(label, speedup, "not measured")


def _speedup_over(ev: Evidence, best: Variant, other: Variant | None) -> Speedup | None:
    return ev.times.total_speedup(best.name, ev.largest, over=other.name) if other else None


def _kernels(ev: Evidence) -> KernelSummary:
    optimizations = [
        variant for variant in ev.ranking.measured_variants("gpu", peers=False) if variant.header.builds_on
    ]
    speedups = {variant.name: ev.times.total_speedup(variant.name, ev.largest) for variant in optimizations}
    judged = {name: speedup.verdict for name, speedup in speedups.items() if speedup}
    return KernelSummary(
        rounded=_rounded(ev),
        tried=len(optimizations),
        fruitful=tuple(name for name, verdict in judged.items() if verdict == "faster"),
        fruitless=tuple(name for name, verdict in judged.items() if verdict != "faster"),
        claims=claim_table.tally_claims(ev),
    )


def _rounded(ev: Evidence) -> RoundedVariant | None:
    variant = ev.ranking.best_rounded
    if variant is None:
        return None
    time = cell_markup.time_cell(ev.times.total(variant.name, ev.largest))
    return RoundedVariant(variant.header.precision.upper(), variant.name, time)


def _gpu_figure(ev: Evidence) -> Figure:
    measured = len(ev.ranking.measured_variants("gpu"))
    shown = "every GPU variant, "
    if measured > figures.time_plots.MOST_SHOWN:
        shown = f"the fastest of {measured} GPU variants of every {ev.case_word}, the naive one and the libraries, "
    return Figure(
        "summary-times",
        figures.time_plots.op_times(ev),
        f"Bars of op time for every GPU variant on each {ev.case_word}, with the hardware's lower bound.",
        f"Op time on each {ev.case_word} of {shown}{ev.at_size(ev.largest)} on {ev.device_name('gpu')}: medians with "
        "95 % intervals of the calls alone, without host-device copies, the L2 cache overwritten before each; dashed: "
        "the least time that the hardware allows the direct method in FP32. A speedup is the other's time over ours, "
        "below 1 a loss, its 95 % interval in brackets; ± is half an interval's width, n the number of samples.",
    )


def _cpu_code(ev: Evidence, naive: Variant, best: Variant) -> CpuCode:
    return CpuCode(
        device=ev.device_name("cpu"),
        best=best.name,
        time=cell_markup.time_cell(ev.times.total(best.name, ev.largest)),
        speedup=cell_markup.speedup_cell(_speedup_over(ev, best, naive)),
        naive=naive.name,
    )


def _cpu_figure(ev: Evidence) -> Figure:
    words = "Op time of every CPU variant against dataset size"
    svg = figures.time_plots.times_by_size(ev, ev.ranking.measured_variants("cpu"), False)
    return Figure("summary-times", svg, f"{words}.", f"{words}, with 95 % intervals.")
