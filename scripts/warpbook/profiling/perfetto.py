"""Profiled programs as trace files that Perfetto and Chrome's tracing page open: the Trace Event Format, gzipped.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU"""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd

from warpbook.common.files import atomic_write

HOST, DEVICE = 1, 2
_ROWS = {
    "api_runtime": (HOST, 1, "Runtime API"),
    "api_driver": (HOST, 2, "Driver API"),
    "range": (HOST, 3, "NVTX ranges"),
    "memcpy_htod": (DEVICE, 1, "Copies to the device"),
    "memcpy_dtoh": (DEVICE, 2, "Copies to the host"),
    "memcpy_dtod": (DEVICE, 3, "Copies on the device"),
    "memcpy_other": (DEVICE, 3, "Copies on the device"),
    "memset": (DEVICE, 4, "Memsets"),
}
_FACTS = ("grid", "block", "registers", "shared_bytes", "bytes", "correlation")


def trace_events(activities: pd.DataFrame) -> list[dict[str, Any]]:
    """Trace events of one program's activities, times in us from its first event; kernels have a row a stream."""
    events: list[dict[str, Any]] = []
    named: dict[tuple[int, int], str] = {}
    for row in activities.to_dict("records"):
        if row["kind"] == "kernel":
            process, thread, name = DEVICE, 100 + int(row["stream"]), f"Kernels, stream {row['stream']}"
        elif row["kind"] in _ROWS:
            process, thread, name = _ROWS[row["kind"]]
        else:
            continue
        named[process, thread] = name
        known = {key: row[key] for key in _FACTS if not (pd.isna(row[key]) or row[key] == "")}
        facts = {key: value if isinstance(value, str) else int(value) for key, value in known.items()}
        span = {"ts": row["start_ns"] / 1e3, "dur": (row["end_ns"] - row["start_ns"]) / 1e3}
        events.append({"ph": "X", "name": row["name"], "pid": process, "tid": thread, **span, "args": facts})
    said = [{"ph": "M", "name": "process_name", "pid": HOST, "args": {"name": "Host"}}]
    said.append({"ph": "M", "name": "process_name", "pid": DEVICE, "args": {"name": "GPU"}})
    for (process, thread), name in sorted(named.items()):
        said.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}})
    return [*said, *events]


def write(activities: pd.DataFrame, folder: Path) -> list[Path]:
    """One `<network>-<variant>-<size>-<tool>.json.gz` in a folder for each profile of a program; the paths written. A
    weight set that is not the network's first stands behind the tool."""
    written = []
    for key, events in activities.groupby(["network", "variant", "size", "tool", "weights"], sort=False):
        document = {"displayTimeUnit": "ms", "traceEvents": trace_events(events)}
        path = folder / f"{'-'.join(filter(None, map(str, key)))}.json.gz"
        with atomic_write(path) as temporary:
            temporary.write_bytes(gzip.compress(json.dumps(document).encode(), compresslevel=5, mtime=0))
        written.append(path)
    return written
