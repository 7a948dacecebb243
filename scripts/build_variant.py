"""Compile one variant for every architecture; the rows of a variant that does not compile say why."""

import argparse
import sys
from pathlib import Path

from warpbook import locks, variants
from warpbook.errors import exit_status
from warpbook.harness import building


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--architectures", nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with locks.machine(shared=True):
        builds = building.build_all(variants.read(arguments.variant), arguments.architectures, arguments.out)
    for made in builds:
        if made.cubin is None:
            print(f"{made.variant} for {made.arch}: {made.log}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
