"""Divide a stream of images among shards: a JSON file for each, which says what its worker infers."""

import argparse
import json
import sys
from pathlib import Path

from warpbook.common.errors import exit_status
from warpbook.common.files import atomic_write
from warpbook.workflow import streams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", type=json.loads, required=True, help="its columns of STREAM_SHARDS, as JSON")
    parser.add_argument("--out", type=Path, nargs="+", required=True, help="a file for each shard, in their order")
    arguments = parser.parse_args()
    stream = arguments.stream
    for number, (first, end) in enumerate(streams.split(stream["images"], len(arguments.out)), start=1):
        with atomic_write(arguments.out[number - 1]) as temporary:
            temporary.write_text(json.dumps({**stream, "shard": number, "first": first, "end": end}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(exit_status(main))
