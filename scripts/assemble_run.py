"""Assemble the measured parts into a run: its tables, their summary, and run.json."""

import argparse
import hashlib
import json
import re
import shutil
import sys
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from warpbook.common import version
from warpbook.common.errors import exit_status
from warpbook.common.files import atomic_write, sha256
from warpbook.common.supervision import process_pool
from warpbook.config.settings import named_studies
from warpbook.harness import timing
from warpbook.kernels import variants, whole_networks
from warpbook.kernels.variants import Variant
from warpbook.kernels.whole_networks import Implementation
from warpbook.machine import gpu_pool, gpu_quarantine
from warpbook.problems import case_sets, weights
from warpbook.problems.networks import Network
from warpbook.profiling import perfetto
from warpbook.runs import run_parts, summaries, tables
from warpbook.runs.manifest import FORMAT
from warpbook.runs.schema import Table

RUN_LIMIT_BYTES = 8_000_000
"""What a run may take when it is packed, with the profilers' reports that it keeps: git keeps it for ever."""

ENTRY_BYTES = 200  # what an archive has of a file beside the file: its name twice, sizes and dates
IN_ANOTHER_TABLE = {"aa": tables.SAMPLES}  # parts that are rows of a table of another name
MEASURED_TABLES = (tables.SAMPLES, tables.PROGRAMS, tables.JOBS)  # tables whose rows say where they were made


def gather(table: Table, paths: list[Path]) -> pd.DataFrame:
    """All rows of one table, from its parts."""
    frames = [table.read(path) for path in paths]
    return pd.concat(frames, ignore_index=True) if frames else table.empty()


def group_by_table(paths: Iterable[Path]) -> dict[Table, list[Path]]:
    """Parts by the table whose rows they hold: that which their folder, or the file itself, is called like."""
    known = {table.name.split(".")[0]: table for table in tables.RUN_TABLES} | IN_ANOTHER_TABLE
    parts: dict[Table, list[Path]] = {table: [] for table in tables.RUN_TABLES if table is not tables.OP_TIMES}
    for path in paths:
        kind = path.name if path.name == tables.BUILDS.name else path.relative_to(run_parts.PARTS).parts[0]
        parts[known[kind.split(".")[0]]].append(path)
    return parts


def describe_variants() -> dict[str, Any]:
    """Identity and header of every variant, also of whole networks: a run can be read without its code."""
    every: dict[str, Variant | Implementation] = {**variants.discover()}
    every |= {one.full_name: one for one in whole_networks.discover().values()}
    return {
        name: {
            "source_sha256": variant.source_sha256,
            "problem": variant.read_error,
            **variant.header.model_dump(mode="json"),
        }
        for name, variant in every.items()
    }


def describe_network(name: str, sizes: list[int]) -> dict[str, Any]:
    """The identity of a network or of cases: its shapes, the sizes measured, the SHA-256 of its weight sets."""
    network = case_sets.find(name)
    sets = network.weight_sets
    paths = {each: weights.weights_path(network, each) for each in sets} if isinstance(network, Network) else {}
    return {
        "shapes_sha256": network.shapes_sha256,
        "sizes": sizes,
        "weights_sha256": {weight_set: sha256(path) for weight_set, path in paths.items() if path.exists()},
    }


def make_run_id(machine: dict[str, Any], ended: datetime, samples: Path) -> str:
    """An id that sorts by date and names the machine: 20261120-nvidia-h200-3f2a1c."""
    name = (machine["gpu"] or {}).get("name") or machine["cpu"]["model"].split("@")[0]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower().replace("(r)", "")).strip("-")[:24].strip("-")
    digest = hashlib.sha256(sha256(samples).encode() + machine["started"].encode()).hexdigest()
    return f"{ended:%Y%m%d}-{slug}-{digest[:6]}"


def write(frames: Mapping[Table, pd.DataFrame], run: Path) -> None:
    """Write a run's tables and its traces, each in a process of its own: the longest takes half of the time of all."""
    with process_pool() as pool:
        traces = pool.submit(perfetto.write, frames[tables.ACTIVITIES], run / "traces")
        written = [pool.submit(_write, table, frames.get(table), run / table.name) for table in tables.RUN_TABLES]
        traces.result()
        for one in written:
            one.result()


def _write(table: Table, frame: pd.DataFrame | None, path: Path) -> None:
    table.write([] if frame is None else frame.to_dict("records"), path)


def packed_bytes(paths: Iterable[Path]) -> dict[Path, int]:
    """Bytes that each file takes in an archive, which compresses those that are not gzipped yet."""
    packed = {
        path: path.stat().st_size if path.suffix == ".gz" else len(zlib.compress(path.read_bytes())) for path in paths
    }
    return {path: size + ENTRY_BYTES for path, size in packed.items()}


def keep_reports(reports: list[Path], folder: Path, limit_bytes: int) -> list[str]:
    """Copy profilers' reports into a run's folder; the names of the largest, left out to keep to the limit."""
    sizes = packed_bytes(reports)
    left_out = []
    while sum(sizes.values()) > limit_bytes:
        largest = max(sizes, key=lambda path: sizes[path])
        del sizes[largest]
        left_out.append(largest.name)
    for path in sizes:
        shutil.copyfile(path, folder / path.name)
    return sorted(left_out)


def assemble(
    machine: dict[str, Any],
    parts: dict[Table, list[Path]],
    config: dict[str, Any],
    sizes: dict[str, list[int]],
    reports: list[Path],
    out: Path,
) -> None:
    """Write a run's folder from each table's parts and the profilers' `reports`; `sizes`: each network's."""
    ended = datetime.now(UTC)
    commit, dirty = version.commit()
    frames = {table: gather(table, paths) for table, paths in parts.items()}
    frames[tables.OP_TIMES] = summaries.summarize_series(tables.with_places(frames[tables.SAMPLES]), machine)
    with atomic_write(out) as run:
        run.mkdir()
        write(frames, run)
        (run / "profiles").mkdir()
        for share in summaries.gpu_shares(frames[tables.JOBS]).itertuples():
            print(f"{share.measured_on}: {share.jobs} jobs, busy {share.busy_s:.0f} s of {share.wall_s:.0f} s")
        put_aside = gpu_quarantine.quarantined_since(machine["started"])
        for sentence in put_aside:
            print(f"put aside: {sentence}")
        record = {
            "format": FORMAT,
            "run_id": make_run_id(machine, ended, run / tables.SAMPLES.name),
            "studies": named_studies(
                config["study"], [name for name, one in config["studies"].items() if not one["by_name"]]
            ),
            "networks": {name: describe_network(name, sizes[name]) for name in sizes},
            "variants": describe_variants(),
            "started": machine["started"],
            "ended": ended.isoformat(timespec="seconds"),
            "version": version.VERSION,
            "commit": commit,
            "dirty": dirty,
            "protocol": timing.PROTOCOL,
            "measuring": config["measuring"],
            "machine": {
                **machine,
                "measured_on": sorted(
                    {name for table in MEASURED_TABLES for name in frames[table].measured_on.unique() if name}
                ),
                "put_aside": put_aside,
            },
            "config": config,
            "reports_left_out": [path.name for path in reports],  # all, until it is weighed
        }
        (run / "run.json").write_text(json.dumps(record, indent=1) + "\n")
        own = packed_bytes([run / "run.json", *(run / table.name for table in tables.RUN_TABLES)])
        own_bytes = sum(own.values())
        left_out = keep_reports(reports, run / "profiles", max(0, RUN_LIMIT_BYTES - own_bytes))
        if left_out:
            limit = f"{RUN_LIMIT_BYTES / 1e6:.0f} MB packed, of which its tables take {own_bytes / 1e6:.1f}"
            print(f"left out of the run, which may take {limit}: {', '.join(left_out)}")
        (run / "run.json").write_text(json.dumps(record | {"reports_left_out": left_out}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="the configuration, as JSON")
    parser.add_argument("--sizes", type=json.loads, required=True, help="sizes of each network, as JSON")
    parser.add_argument("--machine", type=Path, required=True, help="the file that probe_machine wrote")
    parser.add_argument("--builds", type=Path, nargs="*", default=[], help="folders of builds")
    parser.add_argument("--inputs", type=Path, nargs="*", default=[], help=f"files of {run_parts.PARTS}")
    parser.add_argument("--reports", type=Path, nargs="*", default=[], help="folders of profilers' files")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    notes = [note for part in arguments.inputs if (note := gpu_pool.note_path(part)) and note.exists()]
    assemble(
        machine=json.loads(arguments.machine.read_text()),
        parts=group_by_table([*(folder / "builds.csv" for folder in arguments.builds), *arguments.inputs, *notes]),
        config=arguments.config,
        sizes=arguments.sizes,
        reports=sorted(path for folder in arguments.reports for path in folder.glob("[!.]*")),
        out=arguments.out,
    )


if __name__ == "__main__":
    sys.exit(exit_status(main))
