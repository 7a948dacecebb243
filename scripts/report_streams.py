"""Print what was streamed here, a line for each stream, and write it as a table."""

import argparse
import sys
from pathlib import Path

import pandas as pd

from warpbook.common import units
from warpbook.common.errors import UserError, exit_status
from warpbook.runs import tables
from warpbook.workflow import streams


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", default="", help="why there is no stream")
    parser.add_argument("--shards", type=Path, nargs="*", default=[], help="tables of shards, one for each stream")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.problem:
        raise UserError(arguments.problem)
    rows = list(streams.summarize_streams(pd.concat([tables.STREAM_SHARDS.read(path) for path in arguments.shards])))
    tables.STREAMS.write(rows, arguments.out)
    for row in rows:
        efficiency = "" if row["efficiency"] is None else f", efficiency {units.percent(row['efficiency'])}"
        over = streams.device_words(row)
        print(
            f"{row['network']} {row['variant']}: {row['images']:,} images over {over} in {row['wall_s']:.2f} s: "
            f"{row['images_per_s']:,.0f} a second{efficiency}; past its start {row['streaming_s']:.2f} s: "
            f"{row['streaming_images_per_s']:,.0f}; labels' sum {row['labels_sum']:,}, {row['stream_sha256'][:12]}, "
            f"{row['mismatched_labels']} differ from the program's"
        )
    return 1 if any(row["mismatched_labels"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(exit_status(main))
