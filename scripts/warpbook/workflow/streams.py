"""Streams: inference of more images than the data set has, in shards, each of which one worker on one device infers.
Image i of a stream is image i % 10,000 of the data set. The images lie in a file as the network takes them, uint8, the
whole set so often as fits into FILE_BYTES; a stream longer than the file begins it again."""

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warpbook.common.errors import UserError
from warpbook.common.files import atomic_write
from warpbook.common.intervals import total_length
from warpbook.problems import fashion_mnist
from warpbook.problems.networks import Network
from warpbook.runs import run_parts
from warpbook.runs.schema import Row

if TYPE_CHECKING:
    import pandas as pd

FILE_BYTES = 512 << 20
"""More than processors' caches hold, so that a chunk comes from the disk, or from the memory that keeps files; and less
than ten million images of 64 x 64, which are 41 GB."""

READERS = 4  # threads that read a chunk together: one copies less from the system's memory than a GPU infers
PARTS = Path(run_parts.PARTS, "stream_shards")  # where streams are made, a table of shards for each

IDENTITY = ["network", "variant", "images", "shards", "workers"]
"""Columns of STREAM_SHARDS that tell streams apart."""


@dataclass(frozen=True)
class Stream:
    """What one command streams: `images` through a variant, in `shards`, of which `workers` run at a time."""

    network: Network
    weights: str
    variant: str
    device: str
    images: int
    shards: int
    workers: int
    problem: str = ""
    """Why it cannot be."""

    @property
    def name(self) -> str:
        return f"{self.network.name}-{self.variant}-{self.images}-{self.shards}-{self.workers}"

    @property
    def part(self) -> str:
        """Its shards as a table."""
        return str(PARTS / f"{self.name}.csv")

    @property
    def passes(self) -> int:
        """How often its file holds the data set."""
        set_bytes = fashion_mnist.IMAGES * math.prod(self.network.image)
        return max(1, min(-(-self.images // fashion_mnist.IMAGES), FILE_BYTES // set_bytes))

    @property
    def program_labels(self) -> str:
        """The labels of its images by the inference program, those of the data set at most."""
        place = f"results/stream/labels/{self.device}/{self.network.name}-{self.weights}"
        return f"{place}/{self.variant}-{min(self.images, fashion_mnist.IMAGES)}.npy"

    @property
    def columns(self) -> Row:
        """Its columns of STREAM_SHARDS."""
        return {
            "network": self.network.name,
            "weights": self.weights,
            "variant": self.variant,
            "device": self.device,
            "images": self.images,
            "shards": self.shards,
            "workers": self.workers,
        }


def gather_tables() -> list[str]:
    """The tables of streams that were made here, by this command or others: all belong to this machine's run."""
    return sorted(map(str, PARTS.glob("*.csv")))


def split(images: int, shards: int) -> list[tuple[int, int]]:
    """The first image of each shard, and the one that follows its last: lengths differ by one at most."""
    return list(pairwise(images * number // shards for number in range(shards + 1)))


def write_images(network: Network, passes: int, path: Path) -> None:
    """The data set as the network takes it, `passes` times, as an .npy file (images, height, width) of uint8."""
    images, _ = fashion_mnist.load(network)
    grey = np.ascontiguousarray(images[:, 0])
    described = {"descr": "|u1", "fortran_order": False, "shape": (passes * len(grey), *network.image)}
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, described)
        for _ in range(passes):
            file.write(grey.data)


class Images:
    """A file of `write_images`, read as a stream without end. Raises UserError where it is not whole."""

    def __init__(self, path: Path, network: Network):
        self._path = path
        try:
            self._file = path.open("rb", buffering=0)
            np.lib.format.read_magic(self._file)
            shape, _, kind = np.lib.format.read_array_header_1_0(self._file)
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read ({error}); {_REMEDY}") from error
        self._begin, self._image_bytes, self._count = self._file.tell(), math.prod(network.image), shape[0]
        if kind != np.uint8 or shape[1:] != network.image or not self._count or self._count % fashion_mnist.IMAGES:
            raise UserError(f"{path} holds {kind} of shape {shape}, no images of {network.name}; {_REMEDY}")
        self._readers = ThreadPoolExecutor(READERS)
        held, whole = path.stat().st_size - self._begin, self._count * self._image_bytes
        if held != whole:
            raise UserError(
                f"{path} holds {held} bytes of images, and its {self._count} images take {whole}; {_REMEDY}"
            )

    def read(self, first: int, out: np.ndarray) -> None:
        """Fill `out` (n, height, width) with the stream's images from `first` on."""
        parts = np.array_split(out, READERS)
        begins = accumulate(map(len, parts), initial=first)
        list(self._readers.map(self._fill, begins, parts))

    def _fill(self, first: int, out: np.ndarray) -> None:
        done = 0
        while done < len(out):
            place = (first + done) % self._count
            part = out[done : done + self._count - place]
            left, offset = part.reshape(-1).data, self._begin + place * self._image_bytes
            while len(left):
                got = os.preadv(self._file.fileno(), [left], offset)  # at most 2 GiB a call
                if not got:
                    raise UserError(f"{self._path} ended before its {self._count} images; {_REMEDY}")
                left, offset = left[got:], offset + got
            done += len(part)


_REMEDY = "delete it and run the command again"


def summarize_streams(shards: "pd.DataFrame") -> Iterator[Row]:
    """A row of STREAMS for each stream, from rows of STREAM_SHARDS; workers are those devices that had a shard."""
    rows: list[dict[str, Any]] = []
    for _, one in shards.groupby(IDENTITY, sort=True):
        images, devices = int(one.images.iloc[0]), one.measured_on.nunique()
        # Pauses between spans left out: a shard may be done again later.
        wall_s = total_length(zip(one.began_s, one.ended_s, strict=True))
        streaming_s = total_length(zip(one.first_read_s, one.ended_s, strict=True))
        rows.append(
            {name: one[name].iloc[0] for name in (*IDENTITY, "device", "stream_sha256")}
            | {
                "devices": devices,
                "wall_s": wall_s,
                "images_per_s": images / wall_s,
                "streaming_s": streaming_s,
                "streaming_images_per_s": images / streaming_s,
                **{name: one[name].mean() for name in ("start_s", "read_s", "copy_s", "compute_s")},
                "device_bytes": one.device_bytes.max(),
                "max_rss_kib": int(one.max_rss_kib.max()),
                "labels_sum": int(one.labels_sum.sum()),
                "mismatched_labels": int(one.mismatched_labels.sum()),
            }
        )
    for row in rows:
        alike = {"devices": 1} | {name: row[name] for name in ("network", "variant", "images")}
        single = next((other for other in rows if alike.items() <= other.items()), None)
        for rate in ("images_per_s", "streaming_images_per_s"):
            name = rate.replace("images_per_s", "efficiency")
            row[name] = row[rate] / (row["devices"] * single[rate]) if single else None
        yield row


def device_words(row: Row) -> str:
    """How many devices a row of STREAMS is of, in words: 4 GPUs."""
    return f"{row['devices']} {row['device'].upper()}{'s' * (row['devices'] > 1)}"
