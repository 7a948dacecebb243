"""Times of a recorded run that no machine can have taken. Whoever measures refuses them; an archive may hold them."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from warpbook.common import intervals
from warpbook.kernels import lower_bounds
from warpbook.kernels.variants import Variant
from warpbook.problems.problem import Case
from warpbook.report.evidence.layer_events import layer_events
from warpbook.runs import tables
from warpbook.runs.catalog import Run

LEAST_SHARE = 0.5
"""Of the time that a profiler saw a call's kernels take: a call that takes less did not run them."""

Place = tuple[str, str, int]  # variant, layer, size


def impossible_times(run: Run, network: str, cases: Iterable[Case], variants: Iterable[Variant]) -> dict[Place, str]:
    """Why the GPU times of a variant on a layer at a size cannot be true, where they cannot."""
    layers, known = {case.name: case for case in cases}, {one.name: one for one in variants}
    samples = run.table(tables.SAMPLES)
    chosen = (samples.network == network) & samples.variant.isin(list(known)) & samples.layer.isin(list(layers))
    samples = samples[chosen & (samples.device == "gpu") & (samples.status == "ok")]
    places = ["variant", "layer", "size"]
    fastest = samples.groupby(places).time_ms.min()
    medians = samples[samples.kind == "op"].groupby(places).time_ms.median()
    found: dict[Place, str] = {}
    gpu = run.gpu
    assert gpu is not None  # GPU times are of a GPU
    rows: Iterable[Any] = fastest.reset_index().itertuples(index=False)
    for row in rows:
        case = layers[row.layer].at(int(row.size))
        bound = lower_bounds.method_bound_ms(case, known[row.variant].header, gpu, kept_bytes=gpu["l2_bytes"])
        if row.time_ms < bound:
            found[row.variant, row.layer, int(row.size)] = (
                f"impossible: a sample of {row.time_ms:.4g} ms is below the hardware's lower bound of {bound:.4g} ms"
            )
    ours = [one.name for one in known.values() if not one.header.peer]  # a library's first call may try algorithms
    for place, kernels_ms in _profiled_ms(run, network, layers, ours).items():
        if place in medians and medians[place] < LEAST_SHARE * kernels_ms:
            found.setdefault(
                place,
                f"impossible: calls of {medians[place]:.4g} ms, whose kernels take {kernels_ms:.4g} ms under the profiler",
            )
    return found


def _profiled_ms(run: Run, network: str, layers: Iterable[str], variants: list[str]) -> dict[Place, float]:
    """How long a variant's kernels ran in the profiled program, on each layer at the largest size."""
    events = run.table(tables.ACTIVITIES)
    events = events[(events.network == network) & (events.weights == "") & events.variant.isin(variants)]
    found: dict[Place, float] = {}
    size = int(events["size"].max()) if len(events) else 0
    for variant, of_program in events[events["size"] == size].groupby("variant"):
        of_tool = of_program[of_program.tool == of_program.tool.iloc[0]]
        for layer in layers:
            within: pd.DataFrame = layer_events(of_tool, layer, str(variant))
            kernels = within[within.kind == "kernel"]
            spans = zip(kernels.start_ns.astype(int), kernels.end_ns.astype(int), strict=True)
            found[str(variant), layer, size] = intervals.total_length(spans) / 1e6
    return found
