"""Run a network of the course once over Fashion-MNIST and print what the course's scripts print.

    python scripts/infer.py --network fa18 --variant direct --device gpu 10000

Op Time is the time of one convolution call in seconds, without host-device copies. An unknown variant, network, size
or device ends with exit status 2 and one line.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from warpbook.common import version
from warpbook.common.errors import UserError, exit_status
from warpbook.harness import inference
from warpbook.kernels import variants
from warpbook.machine import gpu_wait
from warpbook.problems import fashion_mnist, networks, weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"Warpbook {version.VERSION}")
    parser.add_argument("--network", default="fa18", help="a network of config.yaml")
    parser.add_argument("--weights", help="which of the network's weight sets; by default the first")
    parser.add_argument("--variant", required=True, help="name of a file in kernels/conv/, without its suffix")
    parser.add_argument("--device", choices=("cpu", "gpu"), help="where the variant must run: an error if it does not")
    parser.add_argument("--predictions", type=Path, help="write the predicted labels to this .npy file")
    parser.add_argument("size", nargs="?", help="number of images; by default all")
    arguments = parser.parse_args()

    network = networks.find(arguments.network)
    variant = variants.read(arguments.variant)  # alone: reading the others takes a tenth of a program's time
    if not variant.files:
        variant = variants.find(arguments.variant, variants.discover())
    there = fashion_mnist.count(network)
    given = str(there) if arguments.size is None else arguments.size
    if not given.isdigit() or not 1 <= int(given) <= there:
        raise UserError(f"size {given!r} is no whole number from 1 to {there}, the images that there are")
    size = int(given)
    if arguments.device not in (None, variant.device):
        others = [name for name, other in variants.discover().items() if other.device == arguments.device]
        raise UserError(
            f"{variant.name} runs on the {variant.device}, not the {arguments.device}; there: {', '.join(others)}"
        )
    if variant.read_error:
        raise UserError(variant.read_error)
    if reason := variant.unsupported_in(network, size):
        raise UserError(reason)
    marked: Callable[[str], AbstractContextManager[object]] = nullcontext
    if variant.device == "gpu":
        if variant.cuda_source is None:
            _ = variant.module  # a library takes seconds to load, in which a GPU would be held for nothing
        from warpbook.harness import gpu_bench

        gpu_wait.wait()
        gpu_bench.require_device()
        marked = gpu_bench.nvtx_range

    weight_set = weights.choose_set(network, arguments.weights)
    parameters = weights.load(network, weight_set)

    print("Loading fashion-mnist data...", end=" ", flush=True)
    with marked("load data"):
        images, labels = fashion_mnist.load(network)
    print("done", flush=True)
    print("Loading model...", end=" ", flush=True)
    with marked("load model"):
        predict = inference.load(variant, network, parameters)
    print("done\nNew Inference", flush=True)
    with marked(f"inference of {size} images"):
        predicted, op_s = predict(images[:size])
    for conv, op_time in zip(network.convs, op_s, strict=False):  # no times: a peer's program has none
        extents = conv.at(size).extents
        print(f"Op Time: {op_time:.6f}", *(f"{name}={extents[name]}" for name in "NMCHWK"))
    accuracy = round(float((predicted == labels[:size]).mean()), 4)
    if op_s:
        print(f"Correctness: {accuracy} Model: {network.model(weight_set)}")
    else:
        print(f"EvalMetric: {{'accuracy': {accuracy}}}")
    if arguments.predictions:
        import numpy as np

        np.save(arguments.predictions, predicted)


if __name__ == "__main__":
    sys.exit(exit_status(main))
