"""Images and labels of a user's own, from the .npy files that a network's `input` names."""

from pathlib import Path

import numpy as np

from warpbook.common.errors import UserError
from warpbook.common.files import find_file
from warpbook.problems.networks import Network


def paths(network: Network) -> list[Path]:
    """The files of its images and of their labels; none of a network on Fashion-MNIST."""
    return [find_file(name) for name in (network.input.data, network.input.labels) if name]


def read(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """A network's images (n, channels, height, width), uint8 or float32, and labels (n,), uint8. UserError if unfit."""
    images_path, labels_path = paths(network)
    images, labels = _load(images_path), _load(labels_path)
    channels, (height, width) = network.input.channels, network.image
    if images.dtype not in (np.uint8, np.float32):
        raise UserError(f"{images_path} holds {images.dtype}, and images are uint8 or float32; convert them by .astype")
    if images.shape[1:] == (height, width, channels) != (channels, height, width):
        images = images.transpose(0, 3, 1, 2)
    elif images.ndim == 3 and channels == 1:
        images = images[:, None]
    if images.shape[1:] != (channels, height, width):
        raise UserError(
            f"{images_path} holds images of shape {images.shape[1:]}, and {network.name} takes {channels} channels of "
            f"{height} x {width} pixels; set input.channels and input.size to theirs"
        )
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),) or not len(labels):
        raise UserError(
            f"{labels_path} holds {labels.dtype} of shape {labels.shape}, and {images_path.name} has {len(images)} "
            "images; give each a whole number"
        )
    if outside := [int(label) for label in (labels.min(), labels.max()) if not 0 <= label < network.classes]:
        raise UserError(
            f"{labels_path} holds the label {outside[0]}, outside 0 to {network.classes - 1}, the classes that "
            f"{network.name} gives; set out_features of its last layer to the number of classes"
        )
    return images, labels.astype(np.uint8)


def _load(path: Path) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} holds several arrays; write one by np.save")
    return array
