"""Fashion-MNIST: found, checked, resized for each network, cached.

Every study infers the ten thousand t10k images; only training reads the sixty thousand train images.
"""

import gzip
import hashlib
import os
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path

import numpy as np

from warpbook.errors import UserError
from warpbook.files import written_whole
from warpbook.networks import Network

CACHE = Path("results/data")
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
DOWNLOAD_FOLDER = CACHE / "fashion-mnist"
DOWNLOAD_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
IMAGES = 10_000

# SHA-256 of the uncompressed idx files, because Debian and the original compress them differently.
SHA256 = {
    "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
}


def folders() -> list[Path]:
    """Folders to search for the idx files, in order. FASHION_MNIST names one to search first."""
    named = os.environ.get("FASHION_MNIST")
    return [*([Path(named)] if named else []), DEBIAN_FOLDER, DOWNLOAD_FOLDER]


def find_or_download(name: str) -> Path:
    """Path of one idx file, downloaded when no folder has it. UserError names the folders that were searched."""
    looked = [folder / name for folder in folders()]
    for path in looked:
        if path.exists():
            return path
    target = DOWNLOAD_FOLDER / name
    try:
        with urllib.request.urlopen(f"{DOWNLOAD_URL}/{name}", timeout=60) as answer:
            content = answer.read()
    except (urllib.error.URLError, OSError, TimeoutError) as error:
        places = "\n".join(f"  {path}" for path in looked)
        raise UserError(
            f"Fashion-MNIST's {name} is on none of these paths, and cannot be downloaded here ({error}):\n{places}\n"
            "Install Debian's package (apt-get install dataset-fashion-mnist), put the file in one of those folders, "
            "or name its folder in the environment variable FASHION_MNIST."
        ) from error
    _unpack(content, name, f"{DOWNLOAD_URL}/{name}")
    with written_whole(target) as temporary:
        temporary.write_bytes(content)
    return target


def _unpack(compressed: bytes, name: str, origin: str) -> bytes:
    try:
        content = gzip.decompress(compressed)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{origin} is not a whole gzip file ({error}); delete or replace it") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != SHA256[name]:
        raise UserError(
            f"{origin} is not Fashion-MNIST's {name}: SHA-256 of its content is {digest[:16]}..., "
            f"expected {SHA256[name][:16]}...; delete or replace it"
        )
    return content


def read_idx(name: str) -> np.ndarray:
    """One idx file as uint8: images (count, 28, 28) or labels (count,), its SHA-256 checked."""
    path = find_or_download(name)
    content = _unpack(path.read_bytes(), name, str(path))
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def resize(images: np.ndarray, side: int) -> np.ndarray:
    """Images (count, n, n) as (count, side, side), uint8: bilinear, zero outside the image, truncated.

    Equal, bit for bit, to scikit-image's `resize(image / 256.0, (side, side), mode="constant", cval=0) * 256`
    truncated to uint8, which made the inputs of the course's models; the order of the operations is part of that.
    """
    n = images.shape[1]
    if n == side:
        return images
    position = (np.arange(side) + 0.5) * (n / side) - 0.5
    before = np.floor(position).astype(int)
    weight_after = position - before
    weight_before = 1 - weight_after
    padded = np.pad(images / 256.0, ((0, 0), (1, 1), (1, 1)))
    taps = ((before + 1, weight_before), (before + 2, weight_after))
    result = np.zeros((len(images), side, side))
    for rows, row_weight in taps:
        for columns, column_weight in taps:
            result += padded[:, rows][:, :, columns] * row_weight[:, None] * column_weight
    return (result * 256).astype(np.uint8)


def cached(network: Network) -> Path:
    """Where `prepare` keeps a network's images and labels."""
    return CACHE / f"{network.name}.npz"


def prepare(network: Network, path: Path) -> None:
    """Write the t10k images (10000, side, side) and labels (10000,) of a network, uint8."""
    images = read_idx("t10k-images-idx3-ubyte.gz")
    labels = read_idx("t10k-labels-idx1-ubyte.gz")
    # A thousand at a time: the interpolation works in float64.
    resized = np.concatenate([resize(part, network.image) for part in np.array_split(images, 10)])
    with written_whole(path) as temporary:
        np.savez(temporary, images=resized, labels=labels)


def load(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """The t10k images (10000, 1, side, side) and labels (10000,) of a network, uint8; prepared on first use."""
    path = cached(network)
    if not path.exists():
        prepare(network, path)
    try:
        with np.load(path) as content:
            images, labels = content["images"], content["labels"]
    except (OSError, ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged ({error}); delete it and run the command again") from error
    if images.shape != (IMAGES, network.image, network.image) or labels.shape != (IMAGES,):
        raise UserError(f"{path} holds images {images.shape}, not {network.name}'s; delete it and run again")
    return images[:, None], labels
