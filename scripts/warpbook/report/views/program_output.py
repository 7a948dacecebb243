"""What inference programs printed, and GNU time of them."""

from warpbook import units
from warpbook.report.evidence import Evidence
from warpbook.variants import Variant


def printed(ev: Evidence, variant: Variant, size: int) -> str:
    """The command, the output and GNU time's line of that of a program's runs whose elapsed time is the median's; empty
    where the program was not run."""
    runs = ev.programs.runs(variant.name, size)
    if runs.empty:
        return ""
    row = runs.sort_values("elapsed_s").iloc[(len(runs) - 1) // 2]
    options = f"--network {ev.network.name} --variant {variant.name} --device {variant.device}"
    return (
        f"* Running /usr/bin/time python scripts/infer.py {options} {size}\n"
        f"{row.output}{units.gnu_time(row.user_s, row.system_s, row.elapsed_s, row.max_rss_kib)}"
    )
