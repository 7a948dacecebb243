"""Which events of a traced program belong to a layer."""

from typing import Any

import numpy as np
import pandas as pd

GPU_KINDS = ("kernel", "memcpy_htod", "memcpy_dtoh", "memcpy_dtod", "memcpy_other", "memset")
API_KINDS = ("api_runtime", "api_driver")


def layer_events(events: pd.DataFrame, layer: str, variant: str) -> pd.DataFrame:
    """A layer's range in a traced program, the calls in it and the device's work that they started, by start."""
    kinds: Any = events.kind.to_numpy()
    starts = events.start_ns.to_numpy()
    held = np.flatnonzero(kinds == "range")
    ranges = held[events.name.to_numpy()[held] == f"{layer} {variant}"][:1]
    if not len(ranges):
        return events.iloc[:0]
    began, ended = starts[ranges[0]], events.end_ns.iloc[ranges[0]]
    calls = np.flatnonzero((began <= starts) & (starts <= ended))
    calls = calls[np.isin(kinds[calls], API_KINDS)]
    numbers = events.correlation.to_numpy("int64", na_value=-1)
    work = np.flatnonzero(np.isin(numbers, numbers[calls]))
    work = work[np.isin(kinds[work], GPU_KINDS)]
    places = np.concatenate([ranges, calls, work])
    within: pd.DataFrame = events.take(places)
    return within.sort_values("start_ns")
