"""Trained weights: stored as float16 with a record of their training, or imported from the files of others: MXNet's
`.params`, `.npz`, and the `.bin` that the course hands out since 2020.

One `weights/<model>.npz` holds a network's parameters by name (`conv1.weight`, `fc1.bias`, ...) and `provenance`, a
JSON text. Models: `fa17-high` and `fa17-low`, else the network's own name.
"""

import json
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common.errors import UserError, nearest_name
from warpbook.common.files import PROJECT, atomic_write
from warpbook.problems.layers import PoolLayer
from warpbook.problems.networks import Network

FOLDER = PROJECT / "weights"


def choose_set(network: Network, weight_set: str | None) -> str:
    """A set of a network's weights, its usual one where none is named. UserError where there is no such set."""
    if not network.has_labels:
        raise UserError(
            f"{network.name} is a workload without classes: it has no weights, and predicts nothing; end it with "
            "fc: {out_features: 10} for both"
        )
    weight_set = weight_set or network.weight_sets[0]
    if weight_set not in network.weight_sets:
        sets = list(network.weight_sets)
        raise UserError(f"{network.name} has no weights called {weight_set!r}: {nearest_name(weight_set, sets)}")
    return weight_set


def weights_path(network: Network, weight_set: str) -> Path:
    return FOLDER / f"{network.model(choose_set(network, weight_set))}.npz"


def available_sets(network: Network) -> list[str]:
    """Weight sets of a network whose files are here; sp19's are imported by whoever has them."""
    return [name for name in network.weight_sets if weights_path(network, name).exists()]


def load(network: Network, weight_set: str) -> dict[str, np.ndarray]:
    """Float32 parameters of a network by name, their shapes checked against it."""
    path = weights_path(network, weight_set)
    try:
        with np.load(path) as content:
            parameters = {name: content[name].astype(np.float32) for name in network.parameters}
    except FileNotFoundError as error:
        raise UserError(
            f"{path} does not exist; train them with `python scripts/train_weights.py {network.name}`, or import them "
            f"with `python scripts/import_weights.py FILE --network {network.name}`"
        ) from error
    except (OSError, ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged or not {network.name}'s ({error})") from error
    for name, shape in network.parameters.items():
        if parameters[name].shape != shape:
            raise UserError(f"{path}: {name} has shape {parameters[name].shape}, {network.name} needs {shape}")
    return parameters


def provenance(network: Network, weight_set: str) -> dict[str, Any]:
    """How these weights came to be, as recorded when they were written."""
    with np.load(weights_path(network, weight_set)) as content:
        story: dict[str, Any] = json.loads(str(content["provenance"]))
    return story


def save(parameters: dict[str, np.ndarray], story: dict[str, Any], path: Path) -> None:
    """Write parameters as they are, without change of precision, with their provenance."""
    with atomic_write(path) as temporary:
        arrays = {"provenance": np.array(json.dumps(story, indent=1)), **parameters}
        np.savez_compressed(temporary, allow_pickle=True, **arrays)


def round_mantissa(values: np.ndarray, bits: int) -> np.ndarray:
    """Values as float16 with `bits` explicit mantissa bits (float16 has 10), rounded to nearest.

    The zero bits compress: ten thousand predictions are the same at 6 bits to within a few images.
    """
    mantissa, exponent = np.frexp(values.astype(np.float64))
    scale = 2.0 ** (bits + 1)
    return np.ldexp(np.round(mantissa * scale) / scale, exponent).astype(np.float16)


# MXNet's NDArray list file, little endian: uint64 magic, uint64 reserved, uint64 count, the arrays, uint64 count, the
# names. An array: uint32 version magic, int32 storage type (version 2 on), uint32 dimensions, int64 each, int32 device
# type and id, int32 element type, the elements. Source: NDArray::Save and NDArray::Load in MXNet's src/ndarray.
_LIST_MAGIC = 0x112
_ARRAY_V1, _ARRAY_V2, _ARRAY_V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DTYPES = {0: "<f4", 1: "<f8", 2: "<f2", 3: "u1", 4: "<i4", 5: "i1", 6: "<i8"}


class _Reader:
    def __init__(self, content: bytes, origin: str):
        self.content, self.origin, self.offset = content, origin, 0

    def take(self, count: int) -> bytes:
        end = self.offset + count
        if end > len(self.content):
            raise UserError(
                f"{self.origin} ends at byte {len(self.content)}, {end - len(self.content)} bytes short: truncated"
            )
        part = self.content[self.offset : end]
        self.offset = end
        return part

    def number(self, form: str) -> int:
        (value,) = struct.unpack("<" + form, self.take(struct.calcsize(form)))
        return int(value)


def read_mxnet(path: Path) -> dict[str, np.ndarray]:
    """Arrays of an MXNet `.params` file by name, the `arg:` and `aux:` prefixes removed.

    Raises UserError on a file that is truncated, of another format, or holds sparse arrays.
    """
    try:
        reader = _Reader(path.read_bytes(), str(path))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if len(reader.content) < 24 or reader.number("Q") != _LIST_MAGIC:
        raise UserError(f"{path} is not an MXNet parameter file: it does not begin with 0x112")
    reader.number("Q")
    arrays = []
    for index in range(reader.number("Q")):
        version = reader.number("I")
        if version not in (_ARRAY_V1, _ARRAY_V2, _ARRAY_V3):
            raise UserError(f"{path}: array {index} has version {version:#x}; only 1 to 3 are read")
        if version != _ARRAY_V1 and (storage := reader.number("i")) != 0:
            raise UserError(f"{path}: array {index} is sparse (storage type {storage}); only dense arrays are read")
        dimensions = reader.number("I")
        if dimensions > 32:
            raise UserError(f"{path}: array {index} claims {dimensions} dimensions; the file is damaged")
        shape = [reader.number("q") for _ in range(dimensions)]
        reader.take(8)  # the device it was saved from
        kind = reader.number("i")
        if kind not in _DTYPES or any(extent < 1 for extent in shape):
            raise UserError(f"{path}: array {index} has element type {kind} and shape {shape}; the file is damaged")
        dtype = np.dtype(_DTYPES[kind])
        count = 1
        for extent in shape:
            count *= extent
        arrays.append(np.frombuffer(reader.take(count * dtype.itemsize), dtype).reshape(shape))
    try:
        names = [reader.take(reader.number("Q")).decode() for _ in range(reader.number("Q"))]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: a name in it is no text ({error}); the file is damaged") from error
    if len(names) != len(arrays):
        raise UserError(f"{path} holds {len(arrays)} arrays and {len(names)} names")
    return {name.removeprefix("arg:").removeprefix("aux:"): array for name, array in zip(names, arrays, strict=True)}


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a NumPy file by name. Raises UserError where it is damaged or holds objects."""
    try:
        with np.load(path) as content:
            return {name: content[name] for name in content.files if content[name].dtype.kind == "f"}
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged, or holds more than arrays ({error})") from error


def read_course(path: Path, network: Network) -> dict[str, np.ndarray]:
    """A network's parameters from the course's file: int32 count of layers, then int32 n and n float32 of each layer,
    little endian; weights, then biases. Convolutions' biases are left out, as the course leaves them.

    Raises UserError where it is none, or another network's.
    """
    reader = _Reader(path.read_bytes(), str(path))
    layers = []
    for _ in range(reader.number("i")):
        count = reader.number("i")
        if count < 0:
            raise UserError(f"{path} gives a layer {count} numbers; the file is damaged")
        layers.append(np.frombuffer(reader.take(4 * count), "<f4"))
    if rest := len(reader.content) - reader.offset:
        raise UserError(f"{path} has {rest} bytes behind its last layer; it is no file of the course's weights")
    held = [numbers for numbers in layers if len(numbers)]
    wanted = [step.layer for step in network.steps if not isinstance(step.layer, PoolLayer)]
    shapes = network.parameters
    needed = [math.prod(shapes[f"{layer.name}.weight"]) + layer.gives[0] for layer in wanted]
    sizes = [len(numbers) for numbers in held]
    if sizes != needed:
        raise UserError(
            f"{path} holds layers of {_format_numbers(sizes)} numbers, and {network.name} needs "
            f"{_format_numbers(needed)}; is this {network.name}?"
        )
    parameters = {}
    for layer, numbers in zip(wanted, held, strict=True):
        for name in (f"{layer.name}.weight", f"{layer.name}.bias"):
            if name in shapes:
                count = math.prod(shapes[name])
                parameters[name], numbers = numbers[:count].reshape(shapes[name]), numbers[count:]
    return parameters


def _format_numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "no"


def read(path: Path, network: Network) -> tuple[dict[str, np.ndarray], str]:
    """A network's float32 parameters from a file of any known form, told by its content, and the form's name.

    Raises UserError where the file cannot be read, or is another network's.
    """
    try:
        with path.open("rb") as file:
            begin = file.read(8)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    if begin.startswith(b"PK"):
        return match(read_npz(path), network), "a NumPy file"
    if path.suffix == ".bin":
        return match(read_course(path, network), network), "a file of the course"
    return match(read_mxnet(path), network), "an MXNet file"


def match(arrays: dict[str, np.ndarray], network: Network) -> dict[str, np.ndarray]:
    """A network's parameters as float32: those of their name and shape, else the only array of their shape.

    Raises UserError, listing what fits nothing, when a parameter has no array or more than one.
    """
    parameters = {}
    for name, shape in network.parameters.items():
        fitting = [foreign for foreign, array in arrays.items() if array.shape == shape]
        if name in fitting:
            fitting = [name]
        if len(fitting) != 1:
            offered = ", ".join(f"{foreign} {array.shape}" for foreign, array in arrays.items())
            raise UserError(
                f"{network.name}'s {name} {shape} fits {len(fitting)} of the arrays offered ({offered}); "
                f"is this {network.name}?"
            )
        parameters[name] = np.array(arrays[fitting[0]], np.float32)
    return parameters
