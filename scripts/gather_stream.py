"""Put the shards of a stream together: a row for each, and one hash of all labels."""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from warpbook.common.errors import exit_status
from warpbook.runs import tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--shards", type=Path, nargs="+", required=True, help="the files that stream_shard wrote, in order"
    )
    parser.add_argument("--labels", type=Path, nargs="+", required=True, help="the shards' labels, in the same order")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    shards = [json.loads(path.read_text()) for path in arguments.shards]
    digest = hashlib.sha256()
    for path in arguments.labels:
        digest.update(np.load(path).data)
    start = min(shard["began_s"] for shard in shards)
    rows = [
        {**shard, "stream_sha256": digest.hexdigest()}
        | {name: shard[name] - start for name in ("began_s", "first_read_s", "ended_s")}
        for shard in shards
    ]
    tables.STREAM_SHARDS.write(rows, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
