"""Put the parts that were measured together as a run: its tables, their summary, and run.json."""

import hashlib
import json
import re
import shutil
import sys
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from warpbook import networks, provenance, runs, summaries, tables, timing, traces, variants, weights
from warpbook.errors import exit_status
from warpbook.files import sha256, written_whole
from warpbook.tables import Table

REPORTS_LIMIT_BYTES = 15 << 20


def gather(table: Table, paths: list[Path]) -> pd.DataFrame:
    """The rows of all parts of one table."""
    frames = [table.read(path) for path in paths]
    return pd.concat(frames, ignore_index=True) if frames else table.empty()


def describe_variants() -> dict[str, Any]:
    """Every variant's identity and header, so that a run can be read without the code that made it."""
    return {
        name: {
            "source_sha256": variant.source_sha256,
            "problem": variant.problem,
            **variant.header.model_dump(mode="json"),
        }
        for name, variant in variants.discover().items()
    }


def describe_network(name: str, sizes: list[int]) -> dict[str, Any]:
    """A network's identity: its shapes, the sizes measured and the SHA-256 of each weight set that is here."""
    network = networks.find(name)
    paths = {weight_set: weights.path_of(network, weight_set) for weight_set in network.weight_sets}
    return {
        "shapes_sha256": network.shapes_sha256,
        "sizes": sizes,
        "weights_sha256": {weight_set: sha256(path) for weight_set, path in paths.items() if path.exists()},
    }


def run_id_of(machine: dict[str, Any], ended: datetime, samples: Path) -> str:
    """An id that sorts by date and names the machine: 20261120-nvidia-h200-3f2a1c."""
    name = (machine["gpu"] or {}).get("name") or machine["cpu"]["model"].split("@")[0]
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower().replace("(r)", "")).strip("-")[:24].strip("-")
    digest = hashlib.sha256(sha256(samples).encode() + machine["started"].encode()).hexdigest()
    return f"{ended:%Y%m%d}-{slug}-{digest[:6]}"


def keep_reports(reports: list[Path], folder: Path) -> list[str]:
    """Copy profilers' own reports into a run's folder; the names of those left out, the largest, to keep to the limit.

    The limit is on what the archive will hold, where they are compressed.
    """
    sizes = {path: len(zlib.compress(path.read_bytes())) for path in reports}
    left_out = []
    while sum(sizes.values()) > REPORTS_LIMIT_BYTES:
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
    """Write a run's folder from the parts of each table and the profilers' own `reports`; `sizes` are those of each
    network that was measured."""
    ended = datetime.now(UTC)
    commit, dirty = provenance.commit()
    frames = {table: gather(table, paths) for table, paths in parts.items()}
    frames[tables.OP_TIMES] = summaries.op_times(frames[tables.SAMPLES], machine)
    with written_whole(out) as run:
        run.mkdir()
        for table in tables.RUN_TABLES:
            table.write(frames[table].to_dict("records") if table in frames else [], run / table.name)
        traces.write(frames[tables.ACTIVITIES], run / "traces")
        (run / "profiles").mkdir()
        left_out = keep_reports(reports, run / "profiles")
        if left_out:
            limit = REPORTS_LIMIT_BYTES >> 20
            print(f"left out of the run, whose reports may take {limit} MiB: {', '.join(left_out)}")
        record = {
            "format": runs.FORMAT,
            "run_id": run_id_of(machine, ended, run / tables.SAMPLES.name),
            "studies": list(config["studies"]) if config["study"] == "all" else [config["study"]],
            "networks": {name: describe_network(name, sizes[name]) for name in sizes},
            "variants": describe_variants(),
            "started": machine["started"],
            "ended": ended.isoformat(timespec="seconds"),
            "commit": commit,
            "dirty": dirty,
            "protocol": timing.PROTOCOL,
            "measuring": config["measuring"],
            "machine": machine,
            "config": config,
            "reports_left_out": left_out,
        }
        (run / "run.json").write_text(json.dumps(record, indent=1) + "\n")


def main(job: Any) -> None:
    """Assemble what a Snakemake job names."""
    given = job.input
    assemble(
        machine=json.loads(Path(given.machine).read_text()),
        parts={
            tables.BUILDS: [Path(folder) / "builds.csv" for folder in given.builds],
            tables.CORRECTNESS: [Path(path) for path in given.correctness],
            tables.SAMPLES: [Path(path) for path in given.samples],
            tables.PROGRAMS: [Path(path) for path in given.programs],
            tables.SANITIZER: [Path(path) for path in given.sanitizer],
            tables.ATTACKS: [Path(path) for path in given.attacks],
            tables.SWEEP: [Path(path) for path in given.sweep],
            tables.COUNTERS: [Path(path) for path in given.counters],
            tables.ACTIVITIES: [Path(path) for path in given.activities],
            tables.PROFILES: [Path(path) for path in given.profiles],
        },
        config=job.params.config,
        sizes=job.params.sizes,
        reports=sorted(path for folder in given.reports for path in Path(folder).glob("[!.]*")),
        out=Path(job.output[0]),
    )


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(snakemake)))  # noqa: F821
