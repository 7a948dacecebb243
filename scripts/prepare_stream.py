"""Write the images that a stream reads: the data set as one network takes it, several times over."""

import argparse
import sys
from pathlib import Path

from warpbook.common.errors import exit_status
from warpbook.problems import networks
from warpbook.workflow import streams


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", required=True)
    parser.add_argument("--passes", type=int, required=True, help="how often the file holds the data set")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    streams.write_images(networks.find(arguments.network), arguments.passes, arguments.out)


if __name__ == "__main__":
    sys.exit(exit_status(main))
