"""What inference programs printed, and GNU time of them."""

import pandas as pd

from warpbook.common import units
from warpbook.kernels.variants import Variant
from warpbook.report.evidence import Evidence
from warpbook.report.views import cell_markup
from warpbook.report.views.components import Cell, numbers

PROGRAM_HEAD = numbers("Elapsed, s", "User, s", "System, s", "Peak memory, MiB", "Accuracy")


def program_cells(runs: pd.DataFrame) -> tuple[Cell, ...]:
    """Runs of a program in the columns PROGRAM_HEAD."""
    return (
        cell_markup.elapsed_cell(runs.elapsed_s),
        units.seconds(runs.user_s.median()),
        units.seconds(runs.system_s.median()),
        units.mebibytes(runs.max_rss_kib.median()),
        units.significant(runs.accuracy.iloc[0]),
    )


def median_output(ev: Evidence, variant: Variant, size: int, weight_set: str = "") -> str:
    """The command, the output and GNU time's line of that of a program's runs whose elapsed time is the median's; empty
    where the program was not run. weight_set: the network's first by default."""
    runs = ev.programs.runs(variant.name, size, weight_set or None)
    if runs.empty:
        return ""
    row = runs.sort_values("elapsed_s").iloc[(len(runs) - 1) // 2]
    options = f"--network {ev.network.name} --variant {variant.name} --device {variant.device}"
    weights = f" --weights {weight_set}" if weight_set else ""
    return (
        f"* Running /usr/bin/time python scripts/infer.py {options}{weights} {size}\n"
        f"{row.output}{units.gnu_time(row.user_s, row.system_s, row.elapsed_s, row.max_rss_kib)}"
    )


def all_outputs(ev: Evidence, variant: Variant) -> tuple[str, ...]:
    """The same at each size that was run, the largest first, and there with each other weight set."""
    largest = [
        median_output(ev, variant, ev.largest),
        *(median_output(ev, variant, ev.largest, name) for name in other_sets(ev)),
    ]
    smaller = [median_output(ev, variant, size) for size in reversed(ev.sizes[:-1])]
    return tuple(filter(None, [*largest, *smaller]))


def other_sets(ev: Evidence) -> tuple[str, ...]:
    """The network's weight sets besides its first, with which figures are quoted."""
    return ev.network.weight_sets[1:]
