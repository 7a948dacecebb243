"""Check every attack on the harness: a row for each, caught or missed."""

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from warpbook import attacks, tables
from warpbook.errors import exit_status

AT_ONCE = 4


def attacked(name: str, device: str) -> dict[str, Any]:
    """A row of ATTACKS."""
    with tempfile.TemporaryDirectory() as folder:
        failure = attacks.failure_of(attacks.ATTACKS[name], device, Path(folder))
    nothing = {"status": "ok", "reason": ""}
    return {"attack": name, "device": device, "caught": failure is not None, **(failure or nothing)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("gpu", "emulator"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    shows = "gpu" if arguments.device == "gpu" else "emulated"
    names = [name for name, attack in attacks.ATTACKS.items() if getattr(attack, shows) is not None]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(lambda name: attacked(name, arguments.device), names))
    tables.ATTACKS.write(rows, arguments.out)
    for row in rows:
        if not row["caught"]:
            print(f"MISSED: a kernel that {row['attack']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
