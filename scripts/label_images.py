"""Predict every test image's label in float64: the reference for the labels of every variant."""

import argparse
import io
import sys
from pathlib import Path

import numpy as np

from warpbook import data, networks, reference, weights
from warpbook.errors import exit_status
from warpbook.files import written_whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    images, _ = data.load(network)
    labels = reference.labels(network, weights.load(network, arguments.weights), images)
    with written_whole(arguments.out) as temporary:
        np.save(content := io.BytesIO(), labels)  # to a file it would not say why it cannot write
        temporary.write_bytes(content.getvalue())


if __name__ == "__main__":
    sys.exit(exit_status(main))
