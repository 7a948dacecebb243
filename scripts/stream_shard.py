"""Infer one shard of a stream on one device: its labels, and how long it took and what memory, as JSON."""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from warpbook.common.errors import UserError, exit_status
from warpbook.common.files import atomic_write
from warpbook.common.supervision import VariantFailure
from warpbook.harness import streaming
from warpbook.kernels import variants
from warpbook.machine import gpu_pool
from warpbook.machine.host import node_and_gpu, require_target
from warpbook.problems import networks
from warpbook.workflow import streams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--stream", type=json.loads, required=True, help="its columns of the table STREAM_SHARDS, as JSON"
    )
    parser.add_argument("--shard", required=True, help="its number and how many there are, as 2-of-8")
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--program", type=Path, required=True, help="labels that the inference program predicts")
    parser.add_argument(
        "--began", type=float, required=True, help="when this process was started, in seconds since 1970"
    )
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    number, shards = map(int, arguments.shard.split("-of-"))
    first, end = streams.split(arguments.stream["images"], shards)[number - 1]
    shard = {**arguments.stream, "shard": number, "first": first, "end": end}
    network, variant = networks.find(shard["network"]), variants.read(shard["variant"])
    if variant.read_error:
        raise UserError(variant.read_error)
    images, expected = streams.Images(arguments.images, network), np.load(arguments.program)
    require_target(variant.device)
    ready = time.time()
    with gpu_pool.acquire(variant.device, arguments.out):
        held = time.time()
        shard["measured_on"] = node_and_gpu(variant.device)
        try:
            lanes = streaming.open_lanes(variant, network, shard["weights"], end - first)
        except VariantFailure as failed:
            raise UserError(str(failed)) from failed
        measured = streaming.run(lanes, images, first, end, expected, arguments.labels)
        shard |= {"device_bytes": streaming.device_bytes(variant.device), "chunk": len(lanes[0].images)}
    waited_s = held - ready
    shard |= {"began_s": arguments.began, "waited_s": waited_s, **measured}
    shard["start_s"] = shard["first_read_s"] - shard["began_s"] - waited_s
    with atomic_write(arguments.out) as temporary:
        temporary.write_text(json.dumps(shard, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(exit_status(main))
