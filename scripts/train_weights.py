"""Train a network of the course on Fashion-MNIST's 60,000 training images and write weights/<model>.npz.

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

from warpbook import data, networks, provenance, weights
from warpbook.errors import exit_status

# Stored weights keep 6 of float16's 10 mantissa bits, so that all sets together stay under 20 MB compressed.
MANTISSA_BITS = 6
# The course's second fa17 model was deliberately bad: training stops at this running accuracy.
LOW_ACCURACY = 0.63


class CourseNetwork(nn.Module):
    """conv1 - tanh - max pool - [conv2 -] flatten - fc1 - tanh - fc2, fed 0..255."""

    def __init__(self, network: networks.Network):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(conv.C, conv.M, conv.K, bias=False) for conv in network.convs)
        self.fc1 = nn.Linear(network.features, network.hidden)
        self.fc2 = nn.Linear(network.hidden, network.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x / 255.0  # folded into conv1 when the weights are written
        x = nn.functional.max_pool2d(torch.tanh(self.convs[0](x)), 2)
        for conv in self.convs[1:]:
            x = conv(x)
        return self.fc2(torch.tanh(self.fc1(x.flatten(1))))

    def parameters_by_name(self) -> dict[str, np.ndarray]:
        named = {f"conv{number}.weight": conv.weight for number, conv in enumerate(self.convs, start=1)}
        for name in ("fc1", "fc2"):
            layer = getattr(self, name)
            named |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias}
        arrays = {name: tensor.detach().numpy() for name, tensor in named.items()}
        return arrays | {"conv1.weight": arrays["conv1.weight"] / 255.0}


def accuracy(model: CourseNetwork, images: np.ndarray, labels: np.ndarray) -> float:
    """Share of images (count, side, side) whose label the model predicts."""
    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(images), 500):
            x = torch.from_numpy(images[start : start + 500]).float().unsqueeze(1)
            right += int((model(x).argmax(1).numpy() == labels[start : start + 500]).sum())
    return right / len(images)


def train(network: networks.Network, low: bool, seed: int, epochs: int) -> tuple[CourseNetwork, dict[str, Any]]:
    """A trained model, and how it was trained."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    images, labels = data.read_idx("train-images-idx3-ubyte.gz"), data.read_idx("train-labels-idx1-ubyte.gz")
    images = np.concatenate([data.resize(part, network.image) for part in np.array_split(images, 60)])
    model = CourseNetwork(network)
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
            x = torch.from_numpy(images[chosen]).float().unsqueeze(1)
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
        "input": "0..255, the division by 255 is folded into conv1",
    }
    return model, story


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"Warpbook {provenance.VERSION}")
    parser.add_argument("network")
    parser.add_argument("--weights", help="which set of the network's weights (fa17: high or low)")
    parser.add_argument("--seed", type=int, default=408)
    parser.add_argument("--epochs", type=int, default=6)
    arguments = parser.parse_args()
    network = networks.find(arguments.network)
    weight_set = arguments.weights or network.weight_sets[0]
    path = weights.path_of(network, weight_set)
    torch.set_num_threads(os.cpu_count() or 1)
    model, story = train(network, weight_set == "low", arguments.seed, arguments.epochs)

    parameters = {name: weights.rounded(array, MANTISSA_BITS) for name, array in model.parameters_by_name().items()}
    with torch.no_grad():  # the stored weights are judged, which are rounded
        stored = {name: torch.from_numpy(array.astype(np.float32)) for name, array in parameters.items()}
        stored["conv1.weight"] = stored["conv1.weight"] * 255.0
        for number, conv in enumerate(model.convs, start=1):
            conv.weight.copy_(stored[f"conv{number}.weight"])
        for name in ("fc1", "fc2"):
            getattr(model, name).weight.copy_(stored[f"{name}.weight"])
            getattr(model, name).bias.copy_(stored[f"{name}.bias"])
    images, labels = data.load(network)
    story["accuracy"] = {str(size): accuracy(model, images[:size, 0], labels[:size]) for size in (10, 100, 1000, 10000)}
    weights.save(parameters, story, path)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB, accuracy {story['accuracy']}")


if __name__ == "__main__":
    sys.exit(exit_status(main))
