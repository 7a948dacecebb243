"""Find or download Fashion-MNIST's test images, check and resize them for one network; or read the network's own."""

import argparse
import sys
from pathlib import Path

from warpbook.common.errors import exit_status
from warpbook.problems import fashion_mnist, networks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    fashion_mnist.prepare(networks.find(arguments.network), arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
