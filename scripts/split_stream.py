"""Divide a stream of images among shards: a JSON file for each, which says what its worker infers."""

import argparse
import json
import sys
from pathlib import Path

from warpbook import streams, variants
from warpbook.errors import UserError, exit_status
from warpbook.files import written_whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream", type=json.loads, required=True, help="its columns of STREAM_SHARDS, as JSON")
    parser.add_argument("--out", type=Path, nargs="+", required=True, help="a file for each shard, in their order")
    arguments = parser.parse_args()
    stream = arguments.stream
    if stream["variant"] == streams.UNNAMED:
        raise UserError(
            f"stream.variants in config.yaml names no variant for the {stream['device']}, where this stream would run; "
            f"--config stream='{{variants: {{{stream['device']}: <variant>}}}}' names one"
        )
    if not stream["weights"]:
        raise UserError(f"{stream['network']} is a workload without classes: there is no label to stream")
    found = variants.find(stream["variant"], variants.discover())
    if found.device != stream["device"]:
        raise UserError(
            f"stream.variants.{stream['device']}: {found.name} runs on the {found.device}; name one of the "
            f"{stream['device']}'s"
        )
    for number, (first, end) in enumerate(streams.split(stream["images"], len(arguments.out)), start=1):
        with written_whole(arguments.out[number - 1]) as temporary:
            temporary.write_text(json.dumps({**stream, "shard": number, "first": first, "end": end}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(exit_status(main))
