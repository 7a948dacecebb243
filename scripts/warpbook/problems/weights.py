"""Trained weights: stored as float16 with a record of their training, or imported from the files of others: ONNX, `.npz`,
`.safetensors`, PyTorch's `.pt`, MXNet's `.params`, and the `.bin` that the course hands out since 2020.

One `weights/<model>.npz` holds a network's parameters by name (`conv1.weight`, `fc1.bias`, ...) and `provenance`, a
JSON text. Models: `fa17-high` and `fa17-low`, else the network's own name. A network that an ONNX file describes has the
weights of that file.
"""

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from warpbook.common.errors import UserError, first_line, nearest_name
from warpbook.common.files import atomic_write, both_folders, find_file, sha256
from warpbook.problems import onnx_models
from warpbook.problems.layers import PoolLayer
from warpbook.problems.networks import Network

FOLDERS = both_folders("weights")


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
    """The file of a set of weights."""
    if network.description.onnx:
        return find_file(network.description.onnx)
    return find_file(f"{network.model(choose_set(network, weight_set))}.npz", FOLDERS)


def readable(network: Network) -> list[Path]:
    """What a process must be able to read for a network's weights: their folder, and the file that brings them."""
    return [*FOLDERS, *([find_file(network.description.onnx)] if network.description.onnx else [])]


def available_sets(network: Network) -> list[str]:
    """Weight sets of a network whose files are here; sp19's are imported by whoever has them."""
    return [name for name in network.weight_sets if weights_path(network, name).exists()]


def load(network: Network, weight_set: str) -> dict[str, np.ndarray]:
    """Float32 parameters of a network by name, their shapes checked against it."""
    path = weights_path(network, weight_set)
    if network.description.onnx:
        return match(onnx_models.read(path).parameters, network, path)
    if not path.exists():
        raise UserError(
            f"{path} does not exist; train them with `python scripts/train_weights.py {network.name}`, or import them "
            f"with `python scripts/import_weights.py FILE --network {network.name}`"
        )
    return match(read_npz(path), network, path)


def provenance(network: Network, weight_set: str) -> dict[str, Any]:
    """How these weights came to be, as recorded when they were written."""
    path = weights_path(network, weight_set)
    if network.description.onnx:
        notes = "".join(f"; {note}" for note in onnx_models.read(path).notes)
        return {"imported_from": f"read from {path.name} of SHA-256 {sha256(path)[:16]}{notes}"}
    with np.load(path) as content:
        story: dict[str, Any] = json.loads(str(content["provenance"]))
    return story


def save(parameters: dict[str, np.ndarray], story: dict[str, Any], path: Path) -> None:
    """Write parameters as they are, without change of precision, with their provenance."""
    with atomic_write(path) as temporary:
        arrays = {"provenance": np.array(json.dumps(story, indent=1)), **parameters}
        np.savez_compressed(temporary, allow_pickle=True, **arrays)


def round_mantissa(values: np.ndarray, bits: int) -> np.ndarray:
    """Values as float16 with `bits` explicit mantissa bits (float16 has 10), rounded to nearest. The zero bits
    compress: ten thousand predictions are the same at 6 bits to within a few images."""
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
    """Arrays of an MXNet `.params` file by name, without `arg:` and `aux:`. UserError for what it does not read."""
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
        arrays.append(np.frombuffer(reader.take(math.prod(shape) * dtype.itemsize), dtype).reshape(shape))
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
            return _float_arrays({name: content[name] for name in content.files})
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged, or holds more than arrays ({error})") from error


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a safetensors file by name."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise UserError(f"{path} needs the Python package safetensors: pip install safetensors") from error
    try:
        return _float_arrays(safetensors.numpy.load_file(path))
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise UserError(f"{path} is no safetensors file of float arrays that NumPy has ({error})") from error


def read_pytorch(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a PyTorch file by name: a state_dict, or a dictionary that has one. No code in it is run."""
    try:
        import torch
    except ImportError as error:
        raise UserError(f"{path} needs the Python package torch: pip install torch") from error
    remedy = "save it with torch.save(model.state_dict(), path)"
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zipfile and PyTorch each have exceptions of their own
        raise UserError(f"{path} holds more than weights, or is damaged ({first_line(error)}); {remedy}") from error
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(one, torch.Tensor) for one in content.values()):
        raise UserError(f"{path} holds no state_dict; {remedy}")
    return _float_arrays({str(name): one.double().numpy() for name, one in content.items() if one.is_floating_point()})


def _float_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of floating-point numbers, without the counters that frameworks store beside them."""
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}


def read_course(path: Path, network: Network) -> dict[str, np.ndarray]:
    """A network's parameters from the course's file: int32 count of layers, then int32 n and n float32 of each layer,
    little endian; weights, then biases. Convolutions' biases are left out, as the course leaves them. Raises UserError
    where it is none, or another network's."""
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
    """A network's float32 parameters from a file of any known form, and the form's name. UserError if unfit."""
    try:
        with path.open("rb") as file:
            begin = file.read(8)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    ending = path.suffix.lower()
    if ending == ".bin":
        form = "a file of the course"
        if not all(conv.optional for conv in network.convs):
            form += ", without the biases of convolutions, which the course's programs leave out"
        return match(read_course(path, network), network, path), form
    if ending == ".onnx":
        arrays, form = onnx_models.read(path).parameters, "an ONNX file"
    elif ending == ".safetensors":
        arrays, form = read_safetensors(path), "a safetensors file"
    elif ending in (".pt", ".pth"):
        arrays, form = read_pytorch(path), "a PyTorch file"
    elif begin.startswith(b"PK"):
        arrays, form = read_npz(path), "a NumPy file"
    else:
        arrays, form = read_mxnet(path), "an MXNet file"
    return match(arrays, network, path), form


BATCH_NORM = {"scale": "gamma", "running_mean": "mean", "running_var": "var"}
"""Frameworks' words for the parameters of batch normalisation, and ours."""


def match(arrays: Mapping[str, np.ndarray], network: Network, path: Path) -> dict[str, np.ndarray]:
    """A network's parameters as float32, batch normalisation folded in, from the arrays of a file.

    Arrays whose shapes, in order, are the network's belong in that order, unless a name says else. Else an array belongs
    to the parameter of its name, or to the only one of its shape. Every parameter needs an array, and every array a
    parameter.

    Raises UserError naming what does not fit.
    """
    offered = {_our_name(name): array for name, array in arrays.items()}
    eps = {name: float(offered.pop(name).reshape(-1)[0]) for name in list(offered) if name.endswith(".eps")}
    is_folded = not network.batch_norms or offered.keys() == network.parameters.keys()
    shapes = network.parameters if is_folded else network.unfolded_parameters
    sources = _sources(offered, shapes, network, path)
    parameters = {name: np.array(offered[source], np.float32) for name, source in sources.items()}
    if unknown := [name for name in eps if is_folded or name.removesuffix(".eps") not in network.batch_norms]:
        raise UserError(
            f"{path.name}: {unknown[0]} is of batch normalisation, and {network.name} has none to fold there; "
            "set `batch_norm: true`, or take the array out of the file"
        )
    for layer in () if is_folded else network.batch_norms:
        gamma, beta, mean, var = (parameters.pop(f"{layer}.{part}") for part in ("gamma", "beta", "mean", "var"))
        scale, shift = onnx_models.batch_norm(gamma, beta, mean, var, eps.get(f"{layer}.eps", onnx_models.EPS))
        onnx_models.fold_into(parameters, layer, scale, shift)
    return parameters


def _our_name(name: str) -> str:
    layer, _, part = name.rpartition(".")
    return f"{layer}.{BATCH_NORM[part]}" if layer and part in BATCH_NORM else name


def _sources(
    offered: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], network: Network, path: Path
) -> dict[str, str]:
    """Which of the arrays each parameter is. Raises UserError where one has none, or an array is left over."""
    if [array.shape for array in offered.values()] == list(shapes.values()):
        pairs = dict(zip(shapes, offered, strict=True))
        if all(name == source or {name, source}.isdisjoint(offered.keys() & shapes) for name, source in pairs.items()):
            return pairs
    sources = {name: name for name in shapes if name in offered}
    if wrong := next((name for name in sources if offered[name].shape != shapes[name]), ""):
        raise UserError(
            f"{path.name}: {wrong} has the shape {offered[wrong].shape}, and {network.name} needs {shapes[wrong]}; "
            f"is this {network.name}?"
        )
    left = [name for name in offered if name not in shapes]
    for name, shape in shapes.items():
        if name in sources:
            continue
        fitting = [each for each in left if offered[each].shape == shape]
        if len(fitting) != 1:
            raise UserError(
                f"{path.name}: {network.name}'s {name} {shape} fits {len(fitting)} of the arrays left, "
                f"{_nearest_arrays(name, left, offered)}; is this {network.name}?"
            )
        sources[name] = fitting[0]
        left.remove(fitting[0])
    if left:
        raise UserError(f"{path.name}: {left[0]} {offered[left[0]].shape} {_why_left_over(left[0], offered, network)}")
    return sources


def _nearest_arrays(name: str, left: Sequence[str], offered: Mapping[str, np.ndarray]) -> str:
    shown = get_close_matches(name, left, n=1) or left
    return ("the nearest " if len(shown) < len(left) else "") + (
        ", ".join(f"{each} {offered[each].shape}" for each in shown) or "none"
    )


def _why_left_over(name: str, offered: Mapping[str, np.ndarray], network: Network) -> str:
    """What to do with an array that no parameter is."""
    layer, _, part = name.rpartition(".")
    without = [conv.name for conv in network.convs if not conv.optional and offered[name].shape == (conv.M,)]
    if part in ("gamma", "beta", "mean", "var") and layer in without:
        return f"is of batch normalisation, and {network.name}'s {layer} has none; set `batch_norm: true` there"
    if without:
        at = layer if layer in without else without[0]
        return f"may be a bias, and {network.name}'s {at} has none; set `bias: true` there, or take it out of the file"
    remedy = nearest_name(name, list(network.parameters))
    return f"is no parameter of {network.name}: {remedy}"
