"""Import profiles of nvprof or Nsight as tables of one variant at one size.

python scripts/import_profile.py FILE... --study fa18 --variant direct --size 10000

Writes activities.csv.gz, profile_summaries.csv and counters.csv into results/imported/<study>/<variant>-<size>/, each
if the files have rows for it. Replaces an earlier import there. Writes nothing if a file is refused. The study's next
report shows the tables.
"""

import argparse
import re
import sys
from pathlib import Path

from warpbook.common import units, version
from warpbook.common.errors import UserError, exit_status, nearest_name
from warpbook.common.files import IN_CLONE
from warpbook.config import settings
from warpbook.kernels import variants
from warpbook.problems import fashion_mnist, networks
from warpbook.profiling import imported_tables, importing

_FOREIGN_SHOWN = 6


def _lines(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})-(\d{1,9})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST-LAST, as 180-238")
    return int(match[1]), int(match[2])


def main() -> None:
    program = None if IN_CLONE else "warpbook import"
    parser = argparse.ArgumentParser(program, description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"Warpbook {version.VERSION}")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="profiles, recognized by content")
    parser.add_argument("--study", required=True, help="a study of config.yaml")
    parser.add_argument("--variant", required=True, help="the variant of kernels/ that was profiled")
    parser.add_argument("--size", type=int, required=True, help="images in the dataset")
    parser.add_argument("--network", help="by default the study's")
    parser.add_argument("--layer", default="", help="the convolution layer of ncu's counters; by default all")
    parser.add_argument("--lines", type=_lines, metavar="FIRST-LAST", help="read only these lines of one text file")
    parser.add_argument("--device", default="", help="the GPU's name, if the files do not name it")
    parser.add_argument("--force", action="store_true", help="import another variant's kernels, too")
    parser.add_argument("--out", type=Path, default=imported_tables.FOLDER, help="by default results/imported")
    arguments = parser.parse_args()

    known = variants.discover()
    studies = settings.read(list(known)).studies
    if arguments.study not in studies and arguments.study in networks.library_configuration()["studies"]:
        studies = settings.read(list(known), study=arguments.study).studies  # a built-in one, which `report` takes too
    if arguments.study not in studies:
        raise UserError(f"no study is called {arguments.study!r}: {nearest_name(arguments.study, list(studies))}")
    variant = variants.find(arguments.variant, known)
    of = arguments.network or studies[arguments.study].network
    if not of:
        raise UserError(f"--study {arguments.study}: this study is of no network, and a profile is of its program")
    network = networks.find(of)
    there = fashion_mnist.count(network)
    if not 1 <= arguments.size <= there:
        raise UserError(f"--size {arguments.size} is outside 1 to {there}, the images that there are")
    layers = [conv.name for conv in network.convs]
    if arguments.layer and arguments.layer not in layers:
        raise UserError(f"{network.name} has no layer {arguments.layer!r}: {nearest_name(arguments.layer, layers)}")
    if arguments.lines and len(arguments.files) > 1:
        raise UserError("--lines is of one file; import the files one by one")

    read = {str(path): importing.read(path, arguments.lines) for path in arguments.files}
    for name, profile in read.items():
        reason = importing.wrong_variant_reason(profile, variant, known)
        if reason and not arguments.force:
            raise UserError(f"{name}: {reason}: give --variant, or --force where it is {variant.name}'s all the same")
        if reason:
            print(f"warning: {name}: {reason}", file=sys.stderr)
    rows_of = importing.combine(read, variant.name, network.name, arguments.size, arguments.layer)
    folder = arguments.out / arguments.study / f"{variant.name}-{arguments.size}"
    files = [imported_tables.describe_file(Path(path), profile) for path, profile in read.items()]
    device = arguments.device or ", ".join(dict.fromkeys(file.device for file in files if file.device))
    place = {"variant": variant.name, "network": network.name, "size": arguments.size}
    foreign = sorted({name for profile in read.values() for name in importing.foreign_kernels(profile, variant)})
    record = imported_tables.ImportRecord(**place, device=device, files=files, foreign_kernels=foreign)
    imported_tables.write(folder, record, rows_of)
    for path, profile in read.items():
        kinds = {"events": profile.events, "summary rows": profile.summaries, "counters": profile.counters}
        counts = ", ".join(f"{len(rows):,} {kind}" for kind, rows in kinds.items() if rows)
        left_out = f" (left out: {', '.join(profile.omissions)})" if profile.omissions else ""
        print(f"{path}: {profile.what}: {counts}{left_out}")
    if foreign:
        print(f"not kernels of {variant.name}: {units.join_some(foreign, _FOREIGN_SHOWN)}")
    print(f"{folder}: {', '.join(table.name for table in rows_of)}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
