"""Train a network of config.yaml on Fashion-MNIST's 60,000 training images and write weights/<model>.npz.

    pip install torch
    python scripts/train_weights.py fa18
    python scripts/train_weights.py fa17 --weights low

Run once; its results ship with the project. Only this program needs PyTorch.
"""

import argparse
import os
import sys
from typing import Any

import numpy as np
import torch
from torch import nn

from warpbook.common import version
from warpbook.common.errors import UserError, exit_status
from warpbook.problems import fashion_mnist, networks, onnx_models, weights
from warpbook.problems.layers import ConvLayer

# Stored weights keep 6 of float16's 10 mantissa bits, so that all sets together stay under 20 MB compressed.
MANTISSA_BITS = 6
# The course's second fa17 model was deliberately bad: training stops at this running accuracy.
LOW_ACCURACY = 0.63


class TrainableNetwork(nn.Module):
    """A network fed 0 to 255. What is written has the division by 255, and normalisation once `folded`, in it."""

    def __init__(self, network: networks.Network, folded: bool = False):
        super().__init__()
        self.network = network
        self.named, self.normalized = nn.ModuleDict(), nn.ModuleDict()
        for step in network.steps:
            layer = step.layer
            if isinstance(layer, ConvLayer):
                sizes = (layer.C, layer.M, (layer.K, layer.KW), (layer.S, layer.SW))
                normalized = layer.name in network.batch_norms and not folded
                bias = network.batch_norms[layer.name] if normalized else bool(layer.optional)
                # `forward` pads.
                self.named[layer.name] = nn.Conv2d(*sizes, dilation=(layer.D, layer.DW), groups=layer.G, bias=bias)
                if normalized:
                    self.normalized[layer.name] = nn.BatchNorm2d(layer.M)
            elif isinstance(layer, networks.DenseLayer):
                self.named[layer.name] = nn.Linear(layer.inputs, layer.outputs)
        first = next(iter(network.parameters))
        self.folded = {name: 255.0 * network.input.scale if name == first else 1.0 for name in network.parameters}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x / 255.0
        for step in self.network.steps:
            layer = step.layer
            if isinstance(layer, networks.PoolLayer):
                x = apply_pooling(x, layer)
            elif isinstance(layer, networks.DenseLayer):
                x = self.named[layer.name](x.flatten(1))
            else:
                x = nn.functional.pad(x, (layer.PW, layer.PW_end, layer.P, layer.P_end))
                x = self.named[layer.name](x)
                if layer.name in self.normalized:
                    x = self.normalized[layer.name](x)
            x = apply_activation(x, step)
        return x

    def parameters_by_name(self) -> dict[str, np.ndarray]:
        arrays = {name: tensor.detach().numpy() for name, tensor in self.named.named_parameters()}
        for layer, norm in self.normalized.items():
            mean, var = (tensor.numpy().astype(np.float64) for tensor in (norm.running_mean, norm.running_var))
            scale = norm.weight.detach().numpy() / np.sqrt(var + norm.eps)
            onnx_models.fold_into(arrays, layer, scale, norm.bias.detach().numpy() - mean * scale)
        return {name: arrays[name] / folded for name, folded in self.folded.items()}

    def take(self, parameters: dict[str, np.ndarray]) -> None:
        """Take over parameters by name, as they are written."""
        into = dict(self.named.named_parameters())
        with torch.no_grad():
            for name, folded in self.folded.items():
                into[name].copy_(torch.from_numpy(parameters[name].astype(np.float32)) * folded)


def apply_pooling(x: torch.Tensor, layer: networks.PoolLayer) -> torch.Tensor:
    """The pooled image; pixels beyond its edge do not count."""
    top, left, bottom, right = layer.padding
    if layer.kind == "max":
        x = nn.functional.pad(x, (left, right, top, bottom), value=-float("inf"))
        return nn.functional.max_pool2d(x, layer.window, layer.strides, ceil_mode=layer.ceil)
    if (top, left) != (bottom, right):
        raise UserError(
            f"PyTorch averages no windows padded by {list(layer.padding)}; train it elsewhere, and import it"
        )
    return nn.functional.avg_pool2d(x, layer.window, layer.strides, (top, left), layer.ceil, count_include_pad=False)


def apply_activation(x: torch.Tensor, step: networks.Step) -> torch.Tensor:
    if step.activation == "leaky_relu":
        return nn.functional.leaky_relu(x, step.slope)
    return {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid, "none": nn.Identity()}[step.activation](x)


def accuracy(model: TrainableNetwork, images: np.ndarray, labels: np.ndarray) -> float:
    """Share of images (count, channels, height, width), uint8, whose label the model predicts."""
    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(images), 500):
            x = torch.from_numpy(images[start : start + 500].astype(np.float32))
            right += int((model(x).argmax(1).numpy() == labels[start : start + 500]).sum())
    return right / len(images)


def train(network: networks.Network, low: bool, seed: int, epochs: int) -> tuple[TrainableNetwork, dict[str, Any]]:
    """A trained model, and how it was trained."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    images, labels = (
        fashion_mnist.read_idx("train-images-idx3-ubyte.gz"),
        fashion_mnist.read_idx("train-labels-idx1-ubyte.gz"),
    )
    images = np.broadcast_to(
        fashion_mnist.fit(images, network)[:, None], (len(images), network.input.channels, *network.image)
    )
    model = TrainableNetwork(network)
    batch = 100
    steps = epochs * len(images) // batch
    if low:
        optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
        schedule = None
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.02)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.5e-3, total_steps=steps)
    step, recent = 0, list[float]()
    for epoch in range(epochs):
        order = generator.permutation(len(images))
        for start in range(0, len(images), batch):
            model.train()
            chosen = order[start : start + batch]
            x = torch.from_numpy(images[chosen].astype(np.float32))
            target = torch.from_numpy(labels[chosen]).long()
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if schedule:
                schedule.step()
            step += 1
            recent = [*recent[-19:], float((logits.argmax(1) == target).float().mean())]
            if step % 100 == 0:
                print(
                    f"epoch {epoch} step {step}/{steps} loss {float(loss):.4f} recent {np.mean(recent):.4f}", flush=True
                )
            if low and len(recent) == 20 and np.mean(recent) >= LOW_ACCURACY:
                break
        else:
            continue
        break
    story = {
        "trained_on": "Fashion-MNIST train images, 60000",
        "seed": seed,
        "batch": batch,
        "steps": step,
        "optimizer": repr(optimizer).replace("\n", " "),
        "stopped": f"running accuracy reached {LOW_ACCURACY}" if low else f"after {epochs} epochs, one-cycle schedule",
        "torch": torch.__version__,
        "mantissa_bits": MANTISSA_BITS,
        "input": "0..255, the division by 255 is folded into the first weights",
    }
    return model, story


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"Warpbook {version.VERSION}")
    parser.add_argument("network")
    parser.add_argument("--weights", help="which of the network's weight sets (fa17: high or low)")
    parser.add_argument("--seed", type=int, default=408)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    if network.input.data or network.description.onnx:
        raise UserError(
            f"{network.name} has {'images' if network.input.data else 'weights'} of its own, and this program trains on "
            "Fashion-MNIST; train it elsewhere, and import its weights with scripts/import_weights.py"
        )
    weight_set = weights.choose_set(network, arguments.weights)
    path = weights.FOLDERS[0] / weights.weights_path(network, weight_set).name
    torch.set_num_threads(arguments.threads)
    model, story = train(network, weight_set == "low", arguments.seed, arguments.epochs)

    parameters = {
        name: weights.round_mantissa(array, MANTISSA_BITS) for name, array in model.parameters_by_name().items()
    }
    model = TrainableNetwork(network, folded=True)
    model.take(parameters)  # the stored weights are judged, which are rounded
    images, labels = fashion_mnist.load(network)
    story["accuracy"] = {str(size): accuracy(model, images[:size], labels[:size]) for size in (10, 100, 1000, 10000)}
    weights.save(parameters, story, path)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB, accuracy {story['accuracy']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
