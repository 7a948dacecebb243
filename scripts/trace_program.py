"""Profile the inference program at each size with CUPTI in process: every kernel, copy and API call, a row for each."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
from warpbook import exclusive, tables
from warpbook.errors import exit_status

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
    traced: list[pd.DataFrame] = []
    if not tables.failure(tables.CORRECTNESS.read(arguments.correctness)):
        with exclusive.machine(), tempfile.TemporaryDirectory() as scratch:
            for size in arguments.sizes:
                out = Path(scratch) / f"{size}.csv.gz"
                place = ["--variant", arguments.variant, "--network", arguments.network]
                program = [str(SCRIPTS / "infer.py"), *place, "--device", "gpu", str(size)]
                traced_place = [*place, "--size", str(size), "--out", str(out)]
                command: list[Any] = [sys.executable, "-m", "warpbook.cupti_trace", *traced_place, *program]
                environment = {**os.environ, "PYTHONPATH": str(SCRIPTS)}  # where `python -m warpbook...` is found
                try:
                    subprocess.run(command, env=environment, timeout=arguments.timeout, check=True)
                except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                    print(f"no profile of {arguments.variant} at {size} images: {error}", file=sys.stderr)
                else:
                    traced.append(tables.ACTIVITIES.read(out))
    frame = pd.concat(traced) if traced else tables.ACTIVITIES.empty()
    tables.ACTIVITIES.write(frame.to_dict("records"), arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
