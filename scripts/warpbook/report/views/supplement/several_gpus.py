"""Supplement: the GPUs that shared a run's jobs, how busy each was, and how far their times differ."""

from dataclasses import dataclass

import numpy as np

from warpbook.common import statistics, units
from warpbook.report.evidence import Evidence
from warpbook.report.views import cell_markup
from warpbook.report.views.components import HtmlTable, numbers, words
from warpbook.runs import tables


@dataclass(frozen=True)
class SeveralGpusView:
    """timed: which variants on which GPU; aa, times: A/A tests on each GPU, and their times held against each other;
    None where the run has none."""

    shares: HtmlTable
    timed: HtmlTable
    aa: HtmlTable | None
    times: HtmlTable | None


def several_gpus_view(ev: Evidence) -> SeveralGpusView | None:
    """Of the run that GPU figures come from; None where one GPU made it, or nobody noted which."""
    if len(ev.trust.gpu_shares) < 2:
        return None
    compared = bool(ev.trust.aa_by_gpu)
    return SeveralGpusView(
        _shares(ev), _timed_table(ev), _aa(ev) if compared else None, _times(ev) if compared else None
    )


def _gpu_label(ev: Evidence, measured_on: str) -> str:
    """A GPU as a table calls it: without its node where all are in one."""
    nodes = {name.partition("/")[0] for name in ev.trust.gpu_shares.measured_on}
    return measured_on if len(nodes) > 1 else measured_on.partition("/")[2]


def _shares(ev: Evidence) -> HtmlTable:
    shares = ev.trust.gpu_shares.to_dict("records")
    wall_s = float(shares[0]["wall_s"])
    busy = sum(row["busy_s"] for row in shares) / len(shares) / wall_s
    rows = (
        (
            _gpu_label(ev, row["measured_on"]),
            row["cores"],
            units.count(row["jobs"]),
            f"{row['busy_s']:.0f}",
            f"{row['idle_s']:.0f}",
            units.percent(row["busy_s"] / wall_s),
        )
        for row in shares
    )
    return HtmlTable(
        "gpu-shares-table",
        f"The {len(shares)} GPUs that shared the run's jobs, by their UUIDs hashed, from the first measurement's begin "
        f"to the last one's end: {wall_s:.0f} s, of which they were busy {units.percent(busy)}. Idle is also "
        "what builds, checks on the CPU and an interruption of the run took.",
        (*words("GPU", "Cores of its jobs"), *numbers("Jobs", "Busy, s", "Idle, s", "Busy")),
        tuple(rows),
    )


def _timed_table(ev: Evidence) -> HtmlTable:
    assert ev.gpu_run is not None  # of which the shares are
    samples = ev.gpu_run.table(tables.SAMPLES)
    own = samples[(samples.network == ev.network.name) & (samples.device == "gpu") & (samples.job == samples.variant)]
    taken = own.groupby("measured_on").variant.unique()
    return HtmlTable(
        "gpu-timed-table",
        f"Which GPU the op times of {ev.network.name} were taken on, each variant interleaved with its baseline in one "
        f"job. Every row of {tables.SAMPLES.name} in the run names its GPU too.",
        words("GPU", "Variants"),
        tuple(
            (_gpu_label(ev, str(gpu)), ", ".join(taken[gpu])) for gpu in ev.trust.gpu_shares.measured_on if gpu in taken
        ),
        "sentences",
    )


def _aa(ev: Evidence) -> HtmlTable:
    ratios, tests = ev.trust.gpu_ratios, ev.trust.aa_tests
    rows = []
    for gpu, span in ratios.items():
        mine = tests[tests.measured_on == gpu]
        wrong = int(mine.verdict.isin(["faster", "slower"]).sum())
        verdicts = (units.count(len(mine)), str(wrong), units.percent(wrong / len(mine)))
        times = (units.significant(end) for end in (span.middle, span.low, span.high))
        rows.append((_gpu_label(ev, gpu), *verdicts, *times))
    apart: dict[int, list[float]] = {}
    for (_, _, _, size), by_gpu in ev.trust.aa_by_gpu.items():
        apart.setdefault(size, []).append(_spread(by_gpu))
    spans = (
        f"{units.percent(float(np.median(apart[size])))} and {units.percent(max(apart[size]))} at {units.count(size)}"
        for size in sorted(apart)
    )
    places = units.count(max(span.n for span in ratios.values()))
    return HtmlTable(
        "gpu-aa-table",
        "Each GPU's A/A tests, a variant against its copy: comparisons of every kind of time, and how many were wrongly called "
        f"faster or slower. Times: the GPU's median op time over that of the middle GPU; median of {places} layers and sizes of "
        "all networks, and the range of 95 % of them. The slowest GPU took more than the fastest, in the median and at most: "
        f"{', '.join(spans)} images. Each GPU had a process on its own share of the cores.",
        (*words("GPU"), *numbers("Comparisons", "Wrong", "Share", "Times", "from", "to")),
        tuple(rows),
    )


def _spread(by_gpu: dict[str, np.ndarray]) -> float:
    """How much more the slowest GPU took than the fastest, by their medians."""
    medians = [float(np.median(times)) for times in by_gpu.values()]
    return max(medians) / min(medians) - 1


def _times(ev: Evidence) -> HtmlTable:
    rows = []
    for (variant, network, layer, size), by_gpu in ev.trust.aa_by_gpu.items():
        if (network, size) != (ev.network.name, ev.largest):
            continue
        first = next(iter(by_gpu.values()))
        for number, (gpu, times) in enumerate(by_gpu.items()):
            ratio = statistics.unpaired_ratio(times, first) if number else None
            said = ("1", "", "")
            if ratio:
                said = (units.ratio_beside_interval(ratio), units.ratio_interval(ratio), _verdict(ev, ratio))
            rows.append((variant, layer, _gpu_label(ev, gpu), cell_markup.time_cell(statistics.median(times)), *said))
    return HtmlTable(
        "gpu-times-table",
        f"The same variant on each GPU: median op time, cold, at {ev.at_size(ev.largest)} in its A/A tests. The ratio to the first "
        "GPU's compares two separate jobs and is no speedup. Speedups are taken within one job on one GPU; a † ratio allows "
        "for these differences.",
        (
            *words("Variant", ev.case_word.capitalize(), "GPU"),
            *numbers("Op time", "Over the first", "95 %"),
            *words("Verdict"),
        ),
        tuple(rows),
    )


def _verdict(ev: Evidence, ratio: statistics.Estimate) -> str:
    """In words of time, of which more is slower."""
    said = statistics.verdict(ratio, ev.config.measuring.equivalence_margin)
    return {"faster": "slower", "slower": "faster"}.get(said, said)
