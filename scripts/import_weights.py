"""Import trained parameters as weights/<model>.npz, and print how well they predict.

ONNX, NumPy's .npz, .safetensors, PyTorch's .pt, MXNet's .params, and the .bin that the course hands out since 2020.

    python scripts/import_weights.py ece408-0002.params --network sp19
    python scripts/import_weights.py weights-86.bin --network ece408
"""

import argparse
import sys
from pathlib import Path

from warpbook.common import version
from warpbook.common.errors import exit_status
from warpbook.common.files import sha256
from warpbook.harness import inference, reference
from warpbook.kernels import variants
from warpbook.problems import fashion_mnist, networks, weights

SIZES = (100, 1000, 5000, 10000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"Warpbook {version.VERSION}")
    parser.add_argument("file", type=Path)
    parser.add_argument("--network", required=True, help="a network of config.yaml")
    parser.add_argument("--weights", help="which of the network's weight sets; by default the first")
    parser.add_argument("--out", type=Path, help="where to write; by default weights/<model>.npz")
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    target = arguments.out or weights.FOLDERS[0] / weights.weights_path(network, arguments.weights).name
    parameters, form = weights.read(arguments.file, network)
    images, labels = fashion_mnist.load(network)
    variant = variants.read("simd")
    if any(variant.unsupported(conv.at(len(images))) for conv in network.convs):
        predicted = reference.labels(network, parameters, images)
    else:
        predicted, _ = inference.load(variant, network, parameters)(images)
    right = predicted == labels
    accuracy = {str(size): float(right[:size].mean()) for size in (*SIZES, len(images)) if size <= len(images)}
    story = {"imported_from": f"imported from {form} of SHA-256 {sha256(arguments.file)[:16]}", "accuracy": accuracy}
    weights.save(parameters, story, target)
    print(f"{target}: correctness {', '.join(f'{value:.4f} at {size}' for size, value in accuracy.items())}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
