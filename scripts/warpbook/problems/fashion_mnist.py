"""Fashion-MNIST: found, checked, resized for each network, cached. A network may have images of its own in its place.
Every study infers the ten thousand t10k images; only training reads the sixty thousand train images."""

import gzip
import hashlib
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from warpbook.common.errors import UserError
from warpbook.common.files import atomic_write
from warpbook.problems import image_files
from warpbook.problems.networks import Network

CACHE = Path("results/data")
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
DOWNLOAD_FOLDER = CACHE / "fashion-mnist"
DOWNLOAD_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
IMAGES = 10_000
SIDES = (28, 28)

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
    import urllib.request  # with TLS, for which few of our many short processes have a use

    target = DOWNLOAD_FOLDER / name
    try:
        with urllib.request.urlopen(f"{DOWNLOAD_URL}/{name}", timeout=60) as answer:
            content = answer.read()
    except OSError as error:
        places = "\n".join(f"  {path}" for path in looked)
        raise UserError(
            f"Fashion-MNIST's {name} is on none of these paths, and cannot be downloaded here ({error}):\n{places}\n"
            "Install Debian's package (apt-get install dataset-fashion-mnist), put the file in one of those folders, "
            "or name its folder in the environment variable FASHION_MNIST."
        ) from error
    _unpack(content, name, f"{DOWNLOAD_URL}/{name}")
    with atomic_write(target) as temporary:
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


def resize(images: np.ndarray, height: int, width: int) -> np.ndarray:
    """Images (count, n, m) as (count, height, width), uint8: bilinear, zero outside the image, truncated. Equal, bit
    for bit, to scikit-image's `resize(image / 256.0, (height, width), mode="constant", cval=0) * 256` truncated to
    uint8, which made the inputs of the course's models; the order of the operations is part of that."""
    if images.shape[1:] == (height, width):
        return images

    def taps(old: int, new: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """For both neighbours of each new pixel: their places in the padded image, and their weights."""
        position = (np.arange(new) + 0.5) * (old / new) - 0.5
        before = np.floor(position).astype(int)
        weight_after = position - before
        return [(before + 1, 1 - weight_after), (before + 2, weight_after)]

    padded = np.pad(images / 256.0, ((0, 0), (1, 1), (1, 1)))
    result = np.zeros((len(images), height, width))
    for rows, row_weight in taps(images.shape[1], height):
        for columns, column_weight in taps(images.shape[2], width):
            result += padded[:, rows][:, :, columns] * row_weight[:, None] * column_weight
    return (result * 256).astype(np.uint8)


def pad(images: np.ndarray, height: int, width: int) -> np.ndarray:
    """Images (count, n, m) in the middle of zeros, or their middle: (count, height, width), uint8."""
    padded = np.zeros((len(images), height, width), np.uint8)
    into, of = zip(
        *(_middles(old, new) for old, new in zip(images.shape[1:], (height, width), strict=True)), strict=True
    )
    padded[:, into[0], into[1]] = images[:, of[0], of[1]]
    return padded


def _middles(old: int, new: int) -> tuple[slice, slice]:
    """Where `old` pixels go among `new`, and which of them do."""
    kept = min(old, new)
    return slice((new - kept) // 2, (new - kept) // 2 + kept), slice((old - kept) // 2, (old - kept) // 2 + kept)


def fit(images: np.ndarray, network: Network) -> np.ndarray:
    """Images (count, 28, 28) as a network's (count, height, width), uint8; few at a time, so that what resizing makes of
    them, in float64, stays in a processor's cache."""
    fit = {"bilinear": resize, "pad": pad}[network.input.resizing]
    parts = [images[start : start + 50] for start in range(0, len(images), 50)]
    return np.concatenate([fit(part, *network.image) for part in parts])


def normalize(images: np.ndarray, network: Network, kind: type[np.floating]) -> np.ndarray:
    """What enters a network of images (count, channels, height, width), uint8: scaled, of a floating-point kind."""
    values = images.astype(kind, order="C")
    return values if network.input.scale == 1 else values * kind(network.input.scale)


def count(network: Network) -> int:
    """How many images there are for a network."""
    return len(load(network)[1]) if network.input.data else IMAGES


def as_kept(images: np.ndarray, network: Network) -> np.ndarray:
    """Images of `load` as they come to a device, contiguous: (n, height, width) where every channel is the same."""
    return np.ascontiguousarray(images if network.input.data else images[:, 0])


def _is_newer(file: Path, than: Path) -> bool:
    return file.stat().st_mtime_ns > than.stat().st_mtime_ns


def cache_path(network: Network) -> Path:
    """Where `prepare` keeps a network's images and labels."""
    return CACHE / f"{network.name}.npz"


def prepare(network: Network, path: Path) -> None:
    """Write a network's images and labels, uint8: the t10k images (10000, height, width), or those of its own files."""
    if network.input.data:
        images, labels = image_files.read(network)
    else:
        images = fit(read_idx("t10k-images-idx3-ubyte.gz"), network)
        labels = read_idx("t10k-labels-idx1-ubyte.gz")
    with atomic_write(path) as temporary:
        np.savez(temporary, images=images, labels=labels)


def load(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """The images (n, channels, height, width) and labels (n,) of a network, uint8; prepared on first use. Of
    Fashion-MNIST they are the ten thousand t10k images, and every channel is the same grey image. A network's own may
    be float32."""
    path = cache_path(network)
    if not path.exists() or any(file.exists() and _is_newer(file, path) for file in image_files.paths(network)):
        prepare(network, path)
    try:
        with np.load(path) as content:
            images, labels = content["images"], content["labels"]
    except (OSError, ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged ({error}); delete it and run the command again") from error
    if network.input.data and images.shape[1:] == (network.input.channels, *network.image):
        return images, labels
    if images.shape != (IMAGES, *network.image) or labels.shape != (IMAGES,):
        raise UserError(f"{path} holds images {images.shape}, not {network.name}'s; delete it and run again")
    return np.broadcast_to(images[:, None], (IMAGES, network.input.channels, *network.image)), labels
