"""Run a Python program with CUPTI's activity tracing on and write its events as rows of ACTIVITIES.

    python scripts/trace_with_cupti.py --variant direct --network fa18 --size 10 --at-most 20000 --out events.csv
        --sums sums.csv --count count.txt PROGRAM [ARGUMENT ...]

Runs the program in this process, as `nsys profile python PROGRAM` would in another.
"""

import argparse
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from cupti import cupti

from warpbook.harness import preload
from warpbook.machine import gpu_wait
from warpbook.profiling import profile_schema
from warpbook.profiling.cupti_sqlite import demangle
from warpbook.profiling.profile_schema import Row, Sums
from warpbook.runs import tables

KINDS = (
    cupti.ActivityKind.CONCURRENT_KERNEL,
    cupti.ActivityKind.MEMCPY,
    cupti.ActivityKind.MEMSET,
    cupti.ActivityKind.RUNTIME,
    cupti.ActivityKind.DRIVER,
    cupti.ActivityKind.MARKER,
)
_COPIES = {
    cupti.ActivityMemcpyKind.HTOD: "HtoD",
    cupti.ActivityMemcpyKind.DTOH: "DtoH",
    cupti.ActivityMemcpyKind.DTOD: "DtoD",
}
BUFFER_BYTES = 8 << 20


def hear_ranges() -> None:
    """Make NVTX, once the program loads it, report its ranges to the CUPTI that this process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "libcupti.so" in path:
            os.environ["NVTX_INJECTION64_PATH"] = path


def _event(activity: Any) -> Row | None:
    """An activity as columns of ACTIVITIES; times are still on CUPTI's clock."""
    kind, details = activity.kind, {"correlation": activity.correlation_id}
    if kind in (cupti.ActivityKind.RUNTIME, cupti.ActivityKind.DRIVER):
        runtime = kind == cupti.ActivityKind.RUNTIME
        domain = cupti.CallbackDomain.RUNTIME_API if runtime else cupti.CallbackDomain.DRIVER_API
        name = profile_schema.clean(cupti.get_callback_name(domain, activity.cbid))
        return profile_schema.event(
            "api_runtime" if runtime else "api_driver", name, activity.start, activity.end, **details
        )
    details["stream"] = activity.stream_id
    if kind == cupti.ActivityKind.CONCURRENT_KERNEL:
        name = demangle(activity.name)
        details |= {
            "grid": f"{activity.grid_x}x{activity.grid_y}x{activity.grid_z}",
            "block": f"{activity.block_x}x{activity.block_y}x{activity.block_z}",
            "registers": activity.registers_per_thread,
            "shared_bytes": activity.static_shared_memory + activity.dynamic_shared_memory,
            "static_shared_bytes": activity.static_shared_memory,
        }
    elif kind == cupti.ActivityKind.MEMCPY:
        direction = _COPIES.get(activity.copy_kind)
        name = f"[CUDA memcpy {direction}]" if direction else "[CUDA memcpy]"
        details["bytes"] = activity.bytes
    elif kind == cupti.ActivityKind.MEMSET:
        name = "[CUDA memset]"
    else:
        return None
    return profile_schema.event(
        profile_schema.activity_kind(name, api=False), name, activity.start, activity.end, **details
    )


def trace(program: str, arguments: list[str], at_most: int) -> tuple[list[dict[str, Any]], Sums, int, int]:
    """(events in order of start, their sums, how many there were, exit status); no events if more than `at_most`."""
    rows: list[dict[str, Any]] = []
    sums = Sums()
    started: dict[int, tuple[int, str]] = {}  # by id: a range's first marker, until its second comes
    count = 0

    def store_activities(activities: list[Any]) -> None:
        nonlocal count
        count += len(activities)
        for activity in activities:
            if activity.kind != cupti.ActivityKind.MARKER:
                row = _event(activity)
            elif activity.id in started:
                start_ns, name = started.pop(activity.id)
                row = profile_schema.event("range", name, start_ns, activity.timestamp)
            else:
                started[activity.id] = activity.timestamp, str(activity.name)
                row = None
            if row:
                sums.add(row)
                rows.extend([row] if count <= at_most else [])

    cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), store_activities)
    for kind in KINDS:
        cupti.activity_enable(kind)
    hear_ranges()
    sys.argv = [program, *arguments]
    status = 0
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        cupti.activity_flush_all(1)
        for kind in KINDS:
            cupti.activity_disable(kind)
    rows.sort(key=lambda row: row["start_ns"])
    return (rows if count <= at_most else []), sums, count, status


def write(rows: list[dict[str, Any]], place: dict[str, Any], out: Path) -> None:
    """Write a program's events, in order of start, as ACTIVITIES; times become those since the first event."""
    origin = rows[0]["start_ns"] if rows else 0
    tables.ACTIVITIES.write(
        (
            {**row, **place, "event": number, "start_ns": row["start_ns"] - origin, "end_ns": row["end_ns"] - origin}
            for number, row in enumerate(rows)
        ),
        out,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", required=True)
    parser.add_argument("--network", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument(
        "--at-most", type=int, required=True, help="most events to write; beyond that, their sums and count"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sums", type=Path, required=True, help="where to write calls and times by name")
    parser.add_argument("--count", type=Path, required=True, help="where to write how many events there were")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    # Not in the program: CUPTI may ask CUDA for its devices. Before CUPTI is loaded no library may load its own.
    preload.import_packages()
    gpu_wait.wait()
    rows, sums, count, status = trace(arguments.program, arguments.arguments, arguments.at_most)
    if status:
        return status
    place = {"tool": "cupti", "variant": arguments.variant, "network": arguments.network}
    place |= {"size": arguments.size, "weights": ""}
    write(rows, place, arguments.out)
    tables.SUMMARIES.write(({**row, **place} for row in sums.rows("cupti")), arguments.sums)
    arguments.count.write_text(f"{count}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
