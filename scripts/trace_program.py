"""Profile the inference program at each size with CUPTI in process: every kernel, copy and API call, a row for each."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from warpbook import exclusive, tables
from warpbook.errors import exit_status

EVENTS_MAX = 20_000
SCRIPTS = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--correctness", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []

    def fail(size: int, reason: str) -> None:
        """A row that stands for a profile that could not be had."""
        place = {"tool": "cupti", "variant": arguments.variant, "network": arguments.network, "size": size, "event": 0}
        nothing = dict.fromkeys(("stream", "correlation", "registers", "shared_bytes", "bytes"))
        rows.append(
            {**place, "kind": "failed", "name": reason, "start_ns": 0, "end_ns": 0, "grid": "", "block": "", **nothing}
        )

    failure = tables.failure(tables.CORRECTNESS.rows(arguments.correctness))
    with exclusive.machine(), tempfile.TemporaryDirectory() as scratch:
        remaining = list(arguments.sizes)
        while remaining:
            size = remaining.pop(0)
            if failure:
                fail(size, failure["reason"])
                continue
            out = Path(scratch) / f"{size}.csv"
            place = ["--variant", arguments.variant, "--network", arguments.network]
            program = [SCRIPTS / "infer.py", *place, "--device", "gpu", str(size)]
            command = [
                sys.executable,
                SCRIPTS / "trace_with_cupti.py",
                *place,
                "--size",
                str(size),
                "--out",
                out,
                *program,
            ]
            try:
                subprocess.run(command, timeout=arguments.timeout, check=True, text=True, capture_output=True)
                events = tables.ACTIVITIES.rows(out)
                if len(events) <= EVENTS_MAX:
                    rows += events
                else:
                    fewer = max(1, size // 10)
                    fail(size, f"{len(events)} events, more than the {EVENTS_MAX} that a run keeps; see {fewer} images")
                    if fewer not in [*arguments.sizes, size]:
                        remaining.append(fewer)
            except subprocess.TimeoutExpired:
                fail(size, f"still running after {arguments.timeout:g} s (timeout_s in config.yaml)")
            except subprocess.CalledProcessError as error:
                words = error.stderr.strip().splitlines()
                fail(size, f"profiling failed: {words[-1] if words else f'exit status {error.returncode}'}")
    tables.ACTIVITIES.write(rows, arguments.out)
    for row in rows:
        if row["kind"] == "failed":
            print(f"no profile of {arguments.variant} at {row['size']} images: {row['name']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
