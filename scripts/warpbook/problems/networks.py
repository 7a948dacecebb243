"""Networks as `networks:` in config.yaml describes them, checked, and their layers by shape. A network that ends in a
fully connected layer labels images, Fashion-MNIST's or its own, and has weights. One without fully connected layers is
a workload: its convolutions are checked and timed on random numbers."""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import LIBRARY, PROJECT, find_file
from warpbook.common.quick_yaml import load_configuration, load_yaml
from warpbook.common.validation import explain, validate
from warpbook.problems import onnx_models
from warpbook.problems.layers import Activation, ConvLayer, DenseLayer, Layer, Maps, PoolLayer, Step
from warpbook.problems.problem import Case, Problem

__all__ = ["ConvLayer", "DenseLayer", "Description", "Layer", "Network", "PoolLayer", "Step", "all_networks", "find"]

CONFIGURATION_VARIABLE = "WARPBOOK_CONFIGURATION"
"""The environment variable that holds `networks:` and `studies:` as JSON, where a Snakemake's configuration is not the
file's."""

CLASSES = 10  # of Fashion-MNIST
CLASSES_MAX = 256  # a label is kept as a byte
EXTENT_MAX = 65_535  # CUDA's limit on a grid's second and third dimension, which kernels give to maps
VALUES_MAX = 2**31 - 1
PIXELS_MAX = 100_000  # of an image of the data set: ten thousand of them are kept as one file
_NAME = re.compile(r"[A-Za-z0-9_]+")

Count = Annotated[int, Field(ge=1, le=EXTENT_MAX)]


class _NetworkModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _sides(size: Any) -> Any:
    sides = [size, size] if isinstance(size, int) or str(size).isdecimal() else size
    if not isinstance(sides, list) or len(sides) != 2:
        raise ValueError(f"{size!r} is no size; write 64, or [48, 72] for 48 rows of 72 pixels")
    return sides


def _numbers(least: int, lengths: tuple[int, ...], remedy: str) -> Callable[[Any], Any]:
    """A reader of one whole number, or of a list of so many; a list that says one number twice becomes the number."""

    def read(value: Any) -> Any:
        # Snakemake makes texts of what is nested in a value of `--config`.
        listed = [int(one) if str(one).isdecimal() else one for one in (value if isinstance(value, list) else [value])]
        if len(listed) not in lengths or any(type(one) is not int for one in listed):
            raise ValueError(f"{value!r} is none; {remedy}")
        if outside := [one for one in listed if not least <= one <= EXTENT_MAX]:
            raise ValueError(f"{outside[0]} is outside {least} to {EXTENT_MAX}; {remedy}")
        if listed[:2] == listed[2:]:
            listed = listed[:2]
        return listed[0] if len(set(listed)) == 1 else listed

    return read


def _padding(value: Any) -> Any:
    remedy = "write 1, [1, 2] for rows and columns, [0, 0, 1, 1] for top, left, bottom and right, or same"
    return value if value == "same" else _numbers(0, (1, 2, 4), remedy)(value)


_PAIR = _numbers(1, (1, 2), "write 3, or [3, 5] for 3 rows and 5 columns")
Numbers = Annotated[int | list[int], BeforeValidator(_PAIR)]
Padding = Annotated[int | list[int] | Literal["same"], BeforeValidator(_padding)]


def _pair(numbers: int | list[int]) -> tuple[int, int]:
    """Of rows and of columns."""
    rows, columns = [numbers, numbers] if isinstance(numbers, int) else numbers
    return rows, columns


class Input(_NetworkModel):
    """The input image. With several channels, each holds the same grey image, unless `data` has images of its own."""

    channels: Count = 1
    size: Annotated[list[Count], BeforeValidator(_sides)] = Field(description="side in pixels, or [rows, columns]")
    resizing: Literal["bilinear", "pad"] = Field("bilinear", description="pad: zeros around the 28x28 pixels")
    scale: float = Field(1.0, gt=0, le=1e6, allow_inf_nan=False, description="factor on the pixels, which are 0 to 255")
    data: str = Field("", description="a .npy file of images in place of Fashion-MNIST")
    labels: str = Field("", description="a .npy file of their labels, 0 to one less than the classes")

    @model_validator(mode="after")
    def _images_have_labels(self) -> "Input":
        if bool(self.data) != bool(self.labels):
            raise ValueError("`data` and `labels` go together: a file of images and a file of their labels")
        return self


class _Activated(_NetworkModel):
    activation: Activation = "none"
    slope: float | None = Field(
        None, ge=0, le=1, description="of leaky_relu: the factor on negative values; by default 0.01"
    )

    @model_validator(mode="after")
    def _slope_is_used(self) -> "_Activated":
        if self.slope is not None and self.activation != "leaky_relu":
            raise ValueError(f"slope is of leaky_relu, and the activation is {self.activation}; leave it out")
        return self

    def step(self, layer: Layer) -> Step:
        slope = (0.01 if self.slope is None else self.slope) if self.activation == "leaky_relu" else 0.0
        return Step(layer, self.activation, slope)


class Convolution(_Activated):
    out_channels: Count
    kernel_size: Numbers
    stride: Numbers = 1
    padding: Padding = 0
    dilation: Numbers = 1
    groups: Count = 1
    bias: bool = False
    batch_norm: bool = Field(False, description="folded into weight and bias when weights are read")
    input_shape: Annotated[list[Count], Field(min_length=3, max_length=3)] | None = Field(
        None, description="[channels, rows, columns] where the layer is no part of a chain, but a workload by itself"
    )


class Pooling(_NetworkModel):
    kind: Literal["max", "average", "global_average"] = "max"
    size: Numbers | None = None
    stride: Numbers | None = Field(None, description="by default the size")
    padding: Padding = 0
    ceil: bool = Field(False, description="keep a smaller window at the edge")

    @model_validator(mode="after")
    def _has_windows(self) -> "Pooling":
        if (self.kind == "global_average") == bool(self.size):
            raise ValueError("a pooling has a size, but for kind: global_average, whose window is the image")
        return self


class FullyConnected(_Activated):
    out_features: Count


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


MOST_LAYERS = 1000


class Description(_NetworkModel):
    """A network: its input and its layers in order, or the ONNX file that has them."""

    onnx: str = Field("", description="an ONNX file, which has input, layers and weights")
    layers_only: bool = Field(False, description="of an ONNX file, take the convolutions alone, as a workload")
    input: Input
    layers: list[LayerDescription] = Field(min_length=1, max_length=MOST_LAYERS)
    weights: Annotated[list[str], Field(min_length=1), AfterValidator(_weight_sets)] = ["trained"]

    @model_validator(mode="before")
    @classmethod
    def _from_onnx(cls, content: Any) -> Any:
        """The layers of the ONNX file; where they are there already, another process has read it."""
        if not isinstance(content, dict) or not content.get("onnx") or "layers" in content:
            return content
        said = content.get("input") or {}
        if isinstance(said, dict) and (known := sorted(said.keys() & {"channels", "size"})):
            raise ValueError(f"input.{known[0]} is what {content['onnx']} says; leave it out")
        try:
            layers_only = content.get("layers_only") in (True, "true", "True")
            read = onnx_models.read(find_file(str(content["onnx"])), layers_only)
        except UserError as error:
            raise ValueError(str(error)) from None
        return {**content, "input": {**said, **read.input} if isinstance(said, dict) else said, "layers": read.layers}

    @model_validator(mode="after")
    def _fits_together(self) -> "Description":
        steps = list(self.steps())
        convs = [one.conv for one in self.layers if one.conv]
        if not convs:
            raise ValueError(
                "no layer is a convolution, which is what kernels compute; add conv: {out_channels: 6, kernel_size: 5}"
            )
        if self.layers_only and not self.onnx:
            raise ValueError("layers_only is of an ONNX file; name it with onnx:")
        if any(conv.input_shape for conv in convs) and len(convs) < len(steps):
            raise ValueError("layers with an input_shape are a workload of convolutions alone; leave pool and fc out")
        last = steps[-1].layer
        height, width = self.input.size
        if not isinstance(last, DenseLayer):
            if self.input.data:
                raise ValueError("a workload takes random numbers, and input.data has images; end the network with fc")
            return self
        if not self.input.data and last.outputs != CLASSES:
            raise ValueError(
                f"the last layer has {last.outputs} outputs, and Fashion-MNIST {CLASSES} classes; write {CLASSES}, or "
                "name your own images in input.data, or leave fc out for a workload of convolutions alone"
            )
        if last.outputs > CLASSES_MAX:
            raise ValueError(
                f"the last layer has {last.outputs} outputs, and the limit is {CLASSES_MAX} classes; "
                "leave fc out for a workload of convolutions alone"
            )
        if height * width > PIXELS_MAX:
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
    if described.fc:
        return described.fc.step(DenseLayer(name, math.prod(given), described.fc.out_features))
    if flat:
        raise ValueError(f"{name} follows a fully connected layer, which leaves no image; put it before")
    if described.pool:
        return Step(_pool_layer(described.pool, name, given))
    conv = described.conv
    assert conv is not None
    return conv.step(_conv_layer(conv, name, given))


def _pool_layer(pool: Pooling, name: str, given: Maps) -> PoolLayer:
    _, height, width = given
    if pool.size is None:
        return PoolLayer("average", height if height == width else (height, width), False, *given)
    kind: Literal["max", "average"] = "max" if pool.kind == "max" else "average"
    size, stride = _pair(pool.size), _pair(pool.size if pool.stride is None else pool.stride)
    padding = _padding_around((height, width), pool.padding, size, stride)
    _require_pixels(name, f"size {pool.size}", size, pool.padding, padding)
    if _exceeds(size, (height, width), padding):
        rows, columns = size
        raise ValueError(f"{name} pools {rows} x {columns} of {height} x {width}; take a smaller size")
    return PoolLayer(
        kind,
        pool.size if isinstance(pool.size, int) else size,
        pool.ceil,
        *given,
        None if stride == size else stride[0] if stride[0] == stride[1] else stride,
        padding,
    )


def _conv_layer(conv: Convolution, name: str, given: Maps) -> ConvLayer:
    maps, height, width = conv.input_shape or given
    kernel, stride, dilation = map(_pair, (conv.kernel_size, conv.stride, conv.dilation))
    spans = dilation[0] * (kernel[0] - 1) + 1, dilation[1] * (kernel[1] - 1) + 1
    padding = _padding_around((height, width), conv.padding, spans, stride)
    _require_pixels(name, f"kernel_size {conv.kernel_size}", spans, conv.padding, padding)
    if _exceeds(spans, (height, width), padding):
        raise ValueError(
            f"{name} has kernel_size {conv.kernel_size} on {height} x {width} inputs; take a smaller kernel, or more "
            "padding"
        )
    if maps % conv.groups or conv.out_channels % conv.groups:
        raise ValueError(
            f"{name} has groups {conv.groups}, and {maps} input channels and {conv.out_channels} out_channels are not "
            "both multiples of it; take another number of groups"
        )
    top, left, bottom, right = padding
    extents = {"S": stride[0], "P": top, "KW": kernel[1], "SW": stride[1], "PW": left, "P_end": bottom}
    extents |= {"PW_end": right, "D": dilation[0], "DW": dilation[1], "G": conv.groups}

    def layer(more: dict[str, int]) -> ConvLayer:
        bias = conv.bias or conv.batch_norm
        return ConvLayer(name, maps, height, width, conv.out_channels, kernel[0], bias=bias, **more)

    return layer(layer(extents).unusual)


def _padding_around(
    image: tuple[int, int], padding: int | list[int] | str, spans: tuple[int, int], strides: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Rows above, columns on the left, rows below and columns on the right. `same` gives an output for each `stride`
    inputs, as TensorFlow has it: what is odd goes to the end."""
    if isinstance(padding, str):
        short = [
            max((-(-extent // stride) - 1) * stride + span - extent, 0)
            for extent, span, stride in zip(image, spans, strides, strict=True)
        ]
        rows, columns = short
        return rows // 2, columns // 2, rows - rows // 2, columns - columns // 2
    if isinstance(padding, int):
        return padding, padding, padding, padding
    top, left, bottom, right = padding if len(padding) == 4 else [*padding, *padding]
    return top, left, bottom, right


def _exceeds(spans: tuple[int, int], image: tuple[int, int], padding: tuple[int, int, int, int]) -> bool:
    """Whether a window is larger than the padded image."""
    top, left, bottom, right = padding
    return spans[0] > image[0] + top + bottom or spans[1] > image[1] + left + right


def _require_pixels(
    name: str, size: str, spans: tuple[int, int], said: int | list[int] | str, padding: tuple[int, int, int, int]
) -> None:
    """Raises ValueError where a window could lie beyond the image as a whole. `same` pads less than a window has."""
    for span, before, after in zip(spans, padding[:2], padding[2:], strict=True):
        if max(before, after) >= span and said != "same":
            raise ValueError(
                f"{name} has padding {said} with {size}; take a padding of at most {span - 1}, or a larger kernel"
            )


class Form2017(NamedTuple):
    """A network of the form conv - tanh - 2x2 max pool - [conv -] ... fc - tanh - fc, on unscaled grey squares.
    Frameworks' launchers bring networks of this form whole, and recorded runs know shapes by these four."""

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
    def classes(self) -> int:
        """How many scores it gives each image."""
        return self.dense_layers[-1].outputs

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
                if step.layer.optional:
                    shapes[f"{step.layer.name}.bias"] = (step.layer.M,)
            elif isinstance(step.layer, DenseLayer):
                shapes[f"{step.layer.name}.weight"] = (step.layer.outputs, step.layer.inputs)
                shapes[f"{step.layer.name}.bias"] = (step.layer.outputs,)
        return shapes

    @cached_property
    def batch_norms(self) -> dict[str, bool]:
        """Names of the convolutions whose batch normalisation is folded into them, and whether they have a bias too."""
        said = (described.conv for described in self.description.layers if described.conv)
        pairs = zip(said, self.convs, strict=True)
        return {layer.name: conv.bias for conv, layer in pairs if conv.batch_norm}

    @property
    def unfolded_parameters(self) -> dict[str, tuple[int, ...]]:
        """`parameters` before batch normalisation is folded in, as frameworks store them."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name, shape in self.parameters.items():
            layer, part = name.split(".")
            if layer not in self.batch_norms:
                shapes[name] = shape
            elif part == "weight":
                shapes[name] = shape
                bias = ["bias"] * self.batch_norms[layer]
                shapes |= {f"{layer}.{each}": shape[:1] for each in (*bias, "gamma", "beta", "mean", "var")}
        return shapes

    @cached_property
    def form_2017(self) -> Form2017 | None:
        """What the course's networks of 2017 to 2019 differ in; None of a network of another form."""
        first, *later = self.convs
        grey_squares = self.input.channels == 1 and self.image[0] == self.image[1]
        if not (grey_squares and self.input.scale == 1 and self.input.resizing == "bilinear") or self.input.data:
            return None
        if any(conv.unusual or conv.optional for conv in self.convs) or len(self.dense_layers) != 2:
            return None
        hidden, last = self.dense_layers
        pool = PoolLayer("max", 2, False, *first.gives)
        form = (Step(first, "tanh"), Step(pool), *map(Step, later), Step(hidden, "tanh"), Step(last))
        return Form2017(self.image[0], self.convs, hidden.outputs, last.outputs) if self.steps == form else None

    @property
    def shapes_sha256(self) -> str:
        """Identity of the shapes: a recorded figure holds only for the shapes it was measured on."""
        described: tuple[Any, ...] = (
            self.input.channels,
            *self.image,
            self.input.resizing,
            self.input.scale,
            self.steps,
        )
        if self.input.data:
            described = (*described, self.input.data, self.input.labels)
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


def configuration() -> tuple[str, Callable[[str], Any]]:
    """The text of this command's configuration, else of config.yaml, and what parses it."""
    if given := os.environ.get(CONFIGURATION_VARIABLE):
        return given, json.loads
    path = PROJECT / "config.yaml"
    try:
        return path.read_text(encoding="utf-8"), _parse_project
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def project_configuration() -> dict[str, Any]:
    """What the project's config.yaml holds with the library's; nothing where there is none. Raises UserError with the line
    that is wrong."""
    path = PROJECT / "config.yaml"
    return with_library(load_configuration(path)) or {} if path.exists() else {}


def _parse_project(text: str) -> Any:
    return with_library(load_yaml(text))


def library_configuration() -> dict[str, Any]:
    """The library's own config.yaml."""
    content: dict[str, Any] = load_yaml((LIBRARY / "config.yaml").read_text(encoding="utf-8"))
    return content


def with_library(values: Any) -> Any:
    """A project's configuration, completed: it changes the library's, key by key. `report` and `stream` are its own; of
    the library's studies there are only those that it changes, or that `study` names."""
    if LIBRARY == PROJECT or not isinstance(values, Mapping):
        return values
    library = library_configuration()
    kept = {*map(str.strip, str(values.get("study", "")).split(",")), *(values.get("studies") or {})}
    library["studies"] = {name: study for name, study in library["studies"].items() if name in kept}
    return _changed({key: value for key, value in library.items() if key not in ("report", "stream")}, values)


def _changed(known: Any, changes: Any) -> Any:
    if not isinstance(known, Mapping) or not isinstance(changes, Mapping):
        return changes
    return {**known, **{key: _changed(known.get(key), value) for key, value in changes.items()}}


def all_networks() -> dict[str, Network]:
    """Every network by name: those of this command's configuration, else config.yaml's. Raises UserError with every
    mistake on a line."""
    return _read(*configuration())


def resolved_configuration() -> str:
    """This command's networks and studies as JSON, for a process that cannot read the ONNX files that networks name."""
    described = {
        name: one.description.model_dump(mode="json", exclude_defaults=True) for name, one in all_networks().items()
    }
    text, parse = configuration()
    return json.dumps({"networks": described, "studies": parse(text).get("studies") or {}})


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
