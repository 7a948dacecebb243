"""Supplement: the GPUs that shared a run's jobs, how busy each was, and how far their times differ."""

import numpy as np

from warpbook.common import units
from warpbook.common.units import MISSING
from warpbook.report.evidence import Evidence
from warpbook.report.views.components import Cell, HtmlTable, numbers, words


def gpus_table(ev: Evidence) -> HtmlTable | None:
    """Of the run that GPU times come from; None where one GPU made it, or nobody noted which."""
    shares = ev.trust.gpu_shares.to_dict("records")
    if len(shares) < 2:
        return None
    several_nodes = len({row["measured_on"].partition("/")[0] for row in shares}) > 1
    wall_s = float(shares[0]["wall_s"])
    rows = []
    for row in shares:
        gpu = row["measured_on"]
        busy = (units.count(row["jobs"]), f"{row['busy_s']:.0f}", units.percent(row["busy_s"] / wall_s))
        rows.append((gpu if several_nodes else gpu.partition("/")[2], row["cores"], *busy, *_aa(ev, gpu)))
    return HtmlTable(
        "gpu-shares-table",
        f"The {len(shares)} GPUs that shared the run's jobs, by their hashed UUIDs, in the {wall_s:.0f} s of measuring. Wrong: "
        "A/A tests wrongly called faster or slower. Times: the GPU's median op time over that of the middle GPU, and the range "
        f"of 95\u202f% of such ratios. A speedup is taken within one job on one GPU; a † ratio allows for these differences. "
        f"Every row of samples.csv.gz names its GPU.{_differences(ev)}",
        (
            *words("GPU", "Cores of its jobs"),
            *numbers("Jobs", "Busy, s", "Busy", "A/A tests", "Wrong", "Times", "from", "to"),
        ),
        tuple(rows),
    )


def _aa(ev: Evidence, gpu: str) -> tuple[Cell, ...]:
    """A GPU's A/A tests, and how its times compare with those of the others."""
    tests = ev.trust.aa_tests
    mine, span = tests[tests.measured_on == gpu], ev.trust.gpu_ratios.get(gpu)
    wrong = int(mine.verdict.isin(["faster", "slower"]).sum())
    ends = (span.middle, span.low, span.high) if span else ()
    return (units.count(len(mine)), str(wrong), *(map(units.significant, ends) if ends else (MISSING,) * 3))


def _differences(ev: Evidence) -> str:
    """How much more the slowest GPU took than the fastest, by size."""
    apart: dict[int, list[float]] = {}
    for (*_, size), by_gpu in ev.trust.aa_by_gpu.items():
        medians = [float(np.median(times)) for times in by_gpu.values()]
        apart.setdefault(size, []).append(max(medians) / min(medians) - 1)
    if not apart:
        return ""
    spans = (
        f"{units.percent(float(np.median(found)))} and {units.percent(max(found))} at {units.count(size)}"
        for size, found in sorted(apart.items())
    )
    return f" The slowest GPU took longer than the fastest (median and largest difference): {', '.join(spans)} images."
