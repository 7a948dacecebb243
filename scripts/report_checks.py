"""Print the result of the checks, a line for each variant and network; fail when a variant failed."""

import argparse
import sys
from pathlib import Path

import pandas as pd

from warpbook.common import units
from warpbook.common.errors import exit_status
from warpbook.kernels import variants
from warpbook.runs import tables


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--builds", type=Path, nargs="*", default=[], help="folders of builds")
    parser.add_argument("--correctness", type=Path, nargs="*", default=[])
    parser.add_argument("--sanitizer", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    failed = 0
    built: list[str] = []
    for folder in arguments.builds:
        builds = tables.BUILDS.read(folder / "builds.csv")
        built += builds[builds.ok].variant.unique().tolist()
        broken = builds[~builds.ok]
        failed += len(broken)
        for row in builds[builds.ok].itertuples():
            kernel = f"{row.registers} registers, {row.shared_bytes} bytes shared"
            resources = str(row.compiler) if row.registers is pd.NA else kernel
            print(f"built   {row.variant:24} {row.arch:8} {row.kernel}: {resources}")
        for row in broken.itertuples():
            print(f"FAILED  {row.variant:24} {row.arch:8} {row.log}")
    frames = [tables.CORRECTNESS.read(path) for path in arguments.correctness]
    correctness = tables.with_places(pd.concat(frames) if frames else tables.CORRECTNESS.empty())
    for name in correctness.variant.unique():
        if written := variants.read(name).inferred_launch:
            print(f"called  {name:24} {written.sentence}")
    for (variant, network), tests in correctness.groupby(["variant", "network"], sort=False):
        failure = tables.first_failure(tests.to_dict("records"))
        failed += failure is not None
        place = f"{variant:24} {network:8}"
        if failure:
            print(f"FAILED  {place} {failure['status']}: {failure['reason']}")
        elif (tests.status == "unsupported").all():
            print(f"not run {place} {tests.reason.iloc[0]}")
        else:
            words = f"{tests.ok.sum()} tests, error at most {tests.worst_ratio.max():.2g} of its tolerance"
            if tests.mismatched_labels.notna().any():
                words += f", {tests.mismatched_labels.max():.0f} labels differ"
            print(f"checked {place} {words}")
            if len(left_out := tests[tests.status == "unsupported"]):
                count, more = len(left_out), left_out.reason.nunique() - 1
                others = f" (and {more} more reasons)" if more else ""
                print(f"not run {place} {count} test{'s' * (count > 1)}: {left_out.reason.iloc[0]}{others}")
    if unchecked := [name for name in built if name not in {*correctness.variant}]:
        names = units.join_some(unchecked)
        print(
            f"not checked: {names}: no chosen study names {'it' if len(unchecked) == 1 else 'them'} under `variants:`"
        )
    for tool in (row for path in arguments.sanitizer for row in tables.SANITIZER.rows(path)):
        failed += tool["status"] not in ("ok", "unsupported")
        outcome = f"{tool['errors']} errors" if tool["status"] == "ok" else f"{tool['status']}: {tool['reason']}"
        print(f"{tool['tool']:10} {tool['variant']:32} {outcome}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
