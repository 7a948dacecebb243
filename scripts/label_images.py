"""Score test images in float64: the reference for variants' labels and networks' scores."""

import argparse
import io
import sys
from pathlib import Path

import numpy as np

from warpbook.common.errors import exit_status
from warpbook.common.files import atomic_write
from warpbook.harness import reference
from warpbook.problems import fashion_mnist, networks, weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--images", type=int, help="how many of them; by default all")
    parser.add_argument("--labels", type=Path, required=True, help="where each image's label is written")
    parser.add_argument("--scores", type=Path, required=True, help="where each image's scores are written")
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    images, _ = fashion_mnist.load(network)
    scores = reference.scores(network, weights.load(network, arguments.weights), images[: arguments.images])
    for path, array in ((arguments.labels, scores.argmax(axis=1).astype(np.uint8)), (arguments.scores, scores)):
        with atomic_write(path) as temporary:
            np.save(content := io.BytesIO(), array)  # to a file it would not say why it cannot write
            temporary.write_bytes(content.getvalue())


if __name__ == "__main__":
    sys.exit(exit_status(main))
