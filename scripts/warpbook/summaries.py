"""From samples to figures: medians with intervals, speedups with verdicts, lower bounds."""

from typing import Any

import pandas as pd

from warpbook import estimates, networks, tables, timing, variants
from warpbook.variants import Header

SERIES = ["variant", "network", "layer", "device", "size", "state", "kind"]


def bound_ms(network: str, layer: str, size: int, header: Header, machine: dict[str, Any]) -> float | None:
    """The hardware's lower bound for a layer on a run's GPU, every byte moved; None where the GPU or its peak is
    unknown."""
    gpu = machine["gpu"]
    if not gpu:
        return None
    conv = next(conv for conv in networks.find(network).convs if conv.name == layer)
    peak = gpu["peak_gflop_per_s"][header.precision] if header.method == "direct" else None
    return timing.lower_bound_ms(conv, size, gpu["copy_gb_per_s"], peak)


def op_times(samples: pd.DataFrame, machine: dict[str, Any]) -> pd.DataFrame:
    """OP_TIMES from SAMPLES: one row for each series that a variant's own job took; throttled samples left out and
    counted."""
    own = samples[samples.job == samples.variant]
    known = variants.discover()
    rows = []
    for key, series in own.groupby(SERIES, sort=False):
        place = dict(zip(SERIES, key, strict=True))
        first = series.iloc[0]
        estimate = estimates.median(series[~series.throttled & (series.status == "ok")].time_ms.to_numpy())
        status, reason = first.status, first.reason
        if status == "ok" and estimate.n == 0:
            status, reason = "refused", f"all {len(series)} samples were taken while a slowdown was active"
        gpu = place["device"] == "gpu" and status == "ok"
        rows.append(
            {
                **place,
                "n": estimate.n,
                "median_ms": estimate.value,
                "ci_low_ms": estimate.low,
                "ci_high_ms": estimate.high,
                "throttled_count": int(series.throttled.sum()),
                "bound_ms": bound_ms(
                    place["network"], place["layer"], place["size"], known[place["variant"]].header, machine
                )
                if gpu
                else None,
                "stop_reason": first.stop_reason,
                "status": status,
                "reason": reason,
            }
        )
    return pd.DataFrame(rows, columns=list(tables.OP_TIMES.columns))
