"""Networks as `networks:` in config.yaml describes them, checked, and their layers by shape.

A network that ends in a fully connected layer of 10 classes labels Fashion-MNIST's images, and has weights. One without
fully connected layers is a workload: its convolutions are checked and timed on random numbers.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import PROJECT
from warpbook.common.validation import explain, validate
from warpbook.problems.layers import Activation, ConvLayer, DenseLayer, Layer, Maps, PoolLayer, Step
from warpbook.problems.problem import Case, Problem

__all__ = ["ConvLayer", "DenseLayer", "Description", "Layer", "Network", "PoolLayer", "Step", "all_networks", "find"]

CONFIGURATION_VARIABLE = "WARPBOOK_CONFIGURATION"
"""The environment variable that holds `networks:` and `studies:` as JSON, where a Snakemake's configuration is not the
file's."""

CLASSES = 10
EXTENT_MAX = 65_535  # CUDA's limit on a grid's second and third dimension, which kernels give to maps
VALUES_MAX = 2**31 - 1
PIXELS_MAX = 100_000
"""Of an image of the data set: ten thousand of them are kept as one file."""

_NAME = re.compile(r"[A-Za-z0-9_]+")

Count = Annotated[int, Field(ge=1, le=EXTENT_MAX)]


class _NetworkModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _sides(size: Any) -> Any:
    sides = [size, size] if isinstance(size, int) or str(size).isdecimal() else size
    if not isinstance(sides, list) or len(sides) != 2:
        raise ValueError(f"{size!r} is no size; write 64, or [48, 72] for 48 rows of 72 pixels")
    return sides


class Input(_NetworkModel):
    """The input image. With several channels, each holds the same grey image."""

    channels: Count = 1
    size: Annotated[list[Count], BeforeValidator(_sides)] = Field(description="side in pixels, or [rows, columns]")
    resizing: Literal["bilinear", "pad"] = Field("bilinear", description="pad: zeros around the 28x28 pixels")
    scale: float = Field(1.0, gt=0, le=1e6, allow_inf_nan=False, description="factor on the pixels, which are 0 to 255")


class Convolution(_NetworkModel):
    out_channels: Count
    kernel_size: Count
    stride: Count = 1
    padding: int = Field(0, ge=0, le=EXTENT_MAX)
    activation: Activation = "none"


class Pooling(_NetworkModel):
    kind: Literal["max", "average"] = "max"
    size: Count
    ceil: bool = Field(False, description="keep a smaller window at the edge")


class FullyConnected(_NetworkModel):
    out_features: Count
    activation: Activation = "none"


class LayerDescription(_NetworkModel):
    """One layer: exactly one of the three keys."""

    conv: Convolution | None = None
    pool: Pooling | None = None
    fc: FullyConnected | None = None

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in LayerDescription.model_fields if getattr(self, kind) is not None]

    @model_validator(mode="after")
    def _one_kind(self) -> "LayerDescription":
        if len(self.kinds) != 1:
            said = " and ".join(self.kinds) or "nothing"
            raise ValueError(f"a layer is one of conv, pool and fc, and this says {said}")
        return self


def _weight_sets(names: list[str]) -> list[str]:
    for name in names:
        if not re.fullmatch("[a-z]+", name) or names.count(name) > 1:
            raise ValueError(f"{name!r} is no name of its own in small letters")
    return names


class Description(_NetworkModel):
    """A network: its input and its layers in order."""

    input: Input
    layers: list[LayerDescription] = Field(min_length=1)
    weights: Annotated[list[str], Field(min_length=1), AfterValidator(_weight_sets)] = ["trained"]

    @model_validator(mode="after")
    def _fits_together(self) -> "Description":
        steps = list(self.steps())
        if not any(isinstance(step.layer, ConvLayer) for step in steps):
            raise ValueError("no layer is a convolution, which is what kernels compute; add conv: {maps: 6, taps: 5}")
        last = steps[-1].layer
        height, width = self.input.size
        if isinstance(last, DenseLayer) and last.outputs != CLASSES:
            raise ValueError(
                f"the last layer has {last.outputs} outputs, and Fashion-MNIST {CLASSES} classes; write {CLASSES}, or "
                "leave fc out for a workload of convolutions alone"
            )
        if isinstance(last, DenseLayer) and height * width > PIXELS_MAX:
            raise ValueError(
                f"images of {height} x {width} pixels are larger than the limit, {PIXELS_MAX} pixels; take a smaller "
                "size, or leave fc out for a workload of convolutions alone"
            )
        return self

    def steps(self) -> Iterator[Step]:
        """The layers in order. Raises ValueError where one does not fit what it gets."""
        height, width = self.input.size
        given: Maps = (self.input.channels, height, width)
        counts = {"conv": 0, "pool": 0, "fc": 0}
        for place, described in enumerate(self.layers):
            (kind,) = described.kinds
            counts[kind] += 1
            try:
                step = _step(described, f"{kind}{counts[kind]}", given, flat=counts["fc"] > 0)
                for values in (math.prod(given), math.prod(step.layer.gives)):
                    if values > VALUES_MAX:
                        raise ValueError(f"an image has {values} values there, and the limit is {VALUES_MAX}")
            except ValueError as error:
                raise ValueError(f"layers.{place}: {error}") from None
            yield step
            given = step.layer.gives


def _step(described: LayerDescription, name: str, given: Maps, flat: bool) -> Step:
    maps, height, width = given
    if described.fc:
        return Step(DenseLayer(name, math.prod(given), described.fc.out_features), described.fc.activation)
    if flat:
        raise ValueError(f"{name} follows a fully connected layer, which leaves no image; put it before")
    if described.pool:
        pool = described.pool
        if pool.size > min(height, width):
            raise ValueError(f"{name} pools {pool.size} x {pool.size} of {height} x {width}; take a smaller size")
        return Step(PoolLayer(pool.kind, pool.size, pool.ceil, *given))
    conv = described.conv
    assert conv is not None
    if conv.padding >= conv.kernel_size:
        raise ValueError(
            f"{name} has padding {conv.padding} with kernel_size {conv.kernel_size}; take a padding of at most "
            f"{conv.kernel_size - 1}, or a larger kernel"
        )
    if conv.kernel_size > min(height, width) + 2 * conv.padding:
        raise ValueError(
            f"{name} has kernel_size {conv.kernel_size} on {height} x {width} inputs; take a smaller kernel, or more "
            "padding"
        )
    return Step(
        ConvLayer(name, maps, height, width, conv.out_channels, conv.kernel_size, conv.stride, conv.padding),
        conv.activation,
    )


class Form2017(NamedTuple):
    """A network of the form conv - tanh - 2x2 max pool - [conv -] ... fc - tanh - fc, on unscaled grey squares.

    Frameworks' launchers bring networks of this form whole, and recorded runs know shapes by these four.
    """

    image: int
    convs: tuple[ConvLayer, ...]
    hidden: int
    classes: int


@dataclass(frozen=True)
class Network:
    """A network: images of the data set, its layers in order, and its sets of weights."""

    name: str
    description: Description

    @property
    def input(self) -> Input:
        return self.description.input

    @property
    def image(self) -> tuple[int, int]:
        """Rows and columns of an image."""
        height, width = self.input.size
        return height, width

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return tuple(self.description.steps())

    @cached_property
    def convs(self) -> tuple[ConvLayer, ...]:
        return tuple(step.layer for step in self.steps if isinstance(step.layer, ConvLayer))

    @property
    def cases(self) -> tuple[Case, ...]:
        """Its convolutions, as cases of `conv`."""
        return self.convs

    @property
    def problem(self) -> Problem:
        return self.convs[0].problem

    @cached_property
    def dense_layers(self) -> tuple[DenseLayer, ...]:
        return tuple(step.layer for step in self.steps if isinstance(step.layer, DenseLayer))

    @property
    def has_labels(self) -> bool:
        """Whether it gives classes; without them it is a workload, of random numbers and no accuracy."""
        return isinstance(self.steps[-1].layer, DenseLayer)

    @property
    def weight_sets(self) -> tuple[str, ...]:
        """Names of its sets of weights, the usual one first; none of a workload."""
        return tuple(self.description.weights) if self.has_labels else ()

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter by name, in the order of use."""
        shapes: dict[str, tuple[int, ...]] = {}
        for step in self.steps:
            if isinstance(step.layer, ConvLayer):
                shapes[f"{step.layer.name}.weight"] = step.layer.w_shape
            elif isinstance(step.layer, DenseLayer):
                shapes[f"{step.layer.name}.weight"] = (step.layer.outputs, step.layer.inputs)
                shapes[f"{step.layer.name}.bias"] = (step.layer.outputs,)
        return shapes

    @cached_property
    def form_2017(self) -> Form2017 | None:
        """What the course's networks of 2017 to 2019 differ in; None of a network of another form."""
        first, *later = self.convs
        grey_squares = self.input.channels == 1 and self.image[0] == self.image[1]
        if not (grey_squares and self.input.scale == 1 and self.input.resizing == "bilinear"):
            return None
        if any((conv.S, conv.P) != (1, 0) for conv in self.convs) or len(self.dense_layers) != 2:
            return None
        hidden, last = self.dense_layers
        pool = PoolLayer("max", 2, False, *first.gives)
        form = (Step(first, "tanh"), Step(pool), *map(Step, later), Step(hidden, "tanh"), Step(last))
        return Form2017(self.image[0], self.convs, hidden.outputs, last.outputs) if self.steps == form else None

    @property
    def shapes_sha256(self) -> str:
        """Identity of the shapes: a recorded figure holds only for the shapes it was measured on."""
        described = (self.input.channels, *self.image, self.input.resizing, self.input.scale, self.steps)
        return hashlib.sha256(repr(tuple(self.form_2017 or described)).encode()).hexdigest()

    def model(self, weight_set: str) -> str:
        """The name that the course's scripts print after `Model:`."""
        return self.name if len(self.weight_sets) == 1 else f"{self.name}-{weight_set}"


def valid_name(name: str) -> str:
    """A network's name, which files are called by. Raises ValueError where it is none."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of letters, digits and underscores; rename the network")
    return name


class _Networks(BaseModel):
    """Of config.yaml, what this module knows."""

    model_config = ConfigDict(strict=True)
    networks: dict[Annotated[str, AfterValidator(valid_name)], Description]


def all_networks() -> dict[str, Network]:
    """Every network by name: those of this command's configuration, else config.yaml's.

    Raises UserError with every mistake on a line.
    """
    path = PROJECT / "config.yaml"
    try:
        given = os.environ.get(CONFIGURATION_VARIABLE)
        return _read(given, json.loads) if given else _read(path.read_text(), yaml.safe_load)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error


@cache
def _read(text: str, parse: Callable[[str], Any]) -> dict[str, Network]:
    try:
        content = validate(_Networks, parse(text))
    except ValidationError as error:
        raise UserError("\n".join(["config.yaml:", *(f"  {line}" for line in explain(error, _Networks))])) from error
    except yaml.YAMLError as error:
        raise UserError(f"config.yaml cannot be read: {error}") from error
    return {name: Network(name, described) for name, described in content.networks.items()}


def find(name: str) -> Network:
    """The network called `name`; UserError with the nearest valid name when there is none."""
    networks = all_networks()
    if name not in networks:
        raise UserError(f"no network is called {name!r}: {nearest_name(name, list(networks))}")
    return networks[name]
