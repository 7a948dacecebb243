"""A whole network from the host to the host: uint8 images in page-locked memory to labels there.

All chunks of images are ordered to the device at once, and made numbers there as they come; while it infers one, the
next are on their way.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter  # by name: a launcher may replace it in its module
from typing import Any

import cupy
import numpy as np
from cupy.cuda import Event
from cupy.cuda.runtime import deviceSynchronize

from warpbook.harness import genuine
from warpbook.harness.streaming import page_locked
from warpbook.networks import Network

CHUNKS, CHUNK_LEAST = 5, 1000
"""More chunks begin earlier and fill the device less: blocks that take one image after another end together."""

NO_LABEL = -1


def chunks_of(images: int) -> int:
    """In how many chunks of one size so many images go to the device: CHUNKS at most, of CHUNK_LEAST or of them all."""
    most = min(CHUNKS, images // CHUNK_LEAST)
    return next((count for count in range(most, 1, -1) if images % count == 0), 1)


@dataclass(frozen=True)
class Chunk:
    """A chunk's call and its places in the arrays of all; `of` tells which images it has."""

    call: Any
    images: cupy.ndarray
    x: cupy.ndarray
    scores: cupy.ndarray
    found: cupy.ndarray
    of: slice
    arrived: Event = field(default_factory=lambda: Event(disable_timing=True))
    entered: Event = field(default_factory=lambda: Event(disable_timing=True))


class FromHost:
    """Images (n, H, W) uint8 through a network, whose call is prepared for each chunk: `call(x, scores, labels)`."""

    def __init__(self, network: Network, images: int, classes: int, prepare: Callable[[int], Any]):
        self._scale = np.float32(network.input.scale)
        self.images = page_locked((images, *network.image))
        self._found_bytes = page_locked((4 * images,))
        self._images, self._found = cupy.empty(self.images.shape, np.uint8), cupy.empty(images, np.int32)
        # What makes numbers of a chunk has a stream of its own: the next chunk's copy does not wait for it.
        self._inward, self._entering = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        x = cupy.empty((images, network.input.channels, *network.image), np.float32)
        scores = cupy.empty((images, classes), np.float32)
        count = chunks_of(images)
        # Arrays of its own for each: a call may have kept the places of those that it was given before.
        self._chunks = []
        for number in range(count):
            of = slice(number * images // count, (number + 1) * images // count)
            arrays = self._images[of], x[of], scores[of], self._found[of]
            self._chunks.append(Chunk(prepare(images // count), *arrays, of))

    @property
    def labels(self) -> np.ndarray:
        """The labels (n,) int32 of the images when they were last inferred."""
        return self._found_bytes.view(np.int32)

    def infer(self) -> float:
        """Milliseconds from the images to the labels, by the host's clock."""
        deviceSynchronize()
        began = perf_counter()
        for chunk in self._chunks:
            source = self.images[chunk.of]
            chunk.images.data.copy_from_host_async(source.ctypes.data, source.nbytes, self._inward)
            chunk.arrived.record(self._inward)
        main = cupy.cuda.Stream.null
        for chunk in self._chunks:
            self._entering.wait_event(chunk.arrived)
            with self._entering:
                cupy.multiply(chunk.images[:, None], self._scale, out=chunk.x)
            chunk.entered.record(self._entering)
            main.wait_event(chunk.entered)
            chunk.call(chunk.x, chunk.scores, chunk.found)
        self._found.data.copy_to_host_async(self._found_bytes.ctypes.data, self._found.nbytes, main)
        deviceSynchronize()
        return (perf_counter() - began) * 1e3

    def copy(self) -> float:
        """Milliseconds of the copies alone, of all images and then of their labels."""
        deviceSynchronize()
        began = perf_counter()
        self._images.data.copy_from_host_async(self.images.ctypes.data, self.images.nbytes, self._inward)
        self._found.data.copy_to_host_async(self._found_bytes.ctypes.data, self._found.nbytes, self._inward)
        deviceSynchronize()
        return (perf_counter() - began) * 1e3

    def mismatched(self, images: np.ndarray, expected: np.ndarray) -> int:
        """How many of the images (n, H, W) get another label than expected."""
        self.images[...] = images
        self.labels[...] = NO_LABEL
        self.infer()
        return int((self.labels != expected).sum())


genuine.hold(sys.modules[__name__])
genuine.hold(FromHost)
