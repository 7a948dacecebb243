"""Import the parameters of an MXNet model (.params) as weights/<model>.npz, and say how well they predict.

python scripts/import_weights.py ece408-0002.params --network sp19
"""

import argparse
import sys
from pathlib import Path

from warpbook import data, networks, provenance, variants, weights
from warpbook.errors import exit_status
from warpbook.files import sha256
from warpbook.harness import inference

SIZES = (100, 1000, 10000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"Warpbook {provenance.VERSION}")
    parser.add_argument("params", type=Path)
    parser.add_argument("--network", required=True, help=f"one of {', '.join(networks.NETWORKS)}")
    parser.add_argument("--weights", help="which set of the network's weights; its first by default")
    parser.add_argument("--out", type=Path, help="where to write; weights/<model>.npz by default")
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    target = arguments.out or weights.path_of(network, arguments.weights or network.weight_sets[0])
    parameters = weights.match(weights.read_mxnet(arguments.params), network)
    images, labels = data.load(network)
    predict = inference.load(variants.read("simd"), network, parameters)
    right = predict(images)[0] == labels
    accuracy = {str(size): float(right[:size].mean()) for size in SIZES}
    story = {
        "imported_from": f"imported from an MXNet file of SHA-256 {sha256(arguments.params)[:16]}",
        "accuracy": accuracy,
    }
    weights.save(parameters, story, target)
    print(f"{target}: correctness {', '.join(f'{value:.4f} at {size}' for size, value in accuracy.items())}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
