"""Compile one variant for every architecture, or C++ for this machine. If it does not compile, its row says why."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from warpbook.common.errors import exit_status
from warpbook.harness import building, sandbox
from warpbook.kernels import variants
from warpbook.machine import locks


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--architectures", nargs="+", required=True)
    parser.add_argument("--kernels", type=Path, help="folder of the variant's files, if not its problem's")
    parser.add_argument("--sandbox", choices=sandbox.SETTINGS, default="auto", help="as `sandbox` in config.yaml")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    variant, sandboxed = variants.read(arguments.variant, arguments.kernels), sandbox.is_chosen(arguments.sandbox)
    with locks.lock_machine(shared=True):
        builds = building.build_all(variant, arguments.architectures, arguments.out, sandboxed)
    if variant.language and not builds:
        print(f"registers and shared memory not known: {building.not_compiled_reason(variant)}")
    elif variant.language and any(row["registers"] is None for made in builds if made.ok for row in made.rows):
        print("registers and shared memory not known: there is no ptxas here: pip install 'warpbook[course]'")
    for made in builds:
        if not made.ok:
            print(f"{made.variant} for {made.arch}: {made.log}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
