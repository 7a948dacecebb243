"""A whole network from the host to the host: uint8 images in page-locked memory to labels there.

All chunks of images are ordered to the device at once; while it infers one, the next are on their way.
"""

import sys
from collections.abc import Callable
from time import perf_counter  # by name: a launcher may replace it in its module
from typing import Any

import cupy
import numpy as np
from cupy.cuda.runtime import deviceSynchronize

from warpbook.harness import genuine, gpu
from warpbook.harness.inference import Around
from warpbook.harness.streaming import page_locked
from warpbook.networks import Network

CHUNKS, CHUNK_LEAST = 5, 1000
"""More chunks begin earlier and fill the device less: blocks that take one image after another end together."""

NO_LABEL = 255


def chunks_of(images: int) -> int:
    """In how many chunks of one size so many images go to the device: CHUNKS at most, of CHUNK_LEAST or of them all."""
    most = min(CHUNKS, images // CHUNK_LEAST)
    return next((count for count in range(most, 1, -1) if images % count == 0), 1)


class FromHost:
    """Images (n, H, W) uint8 through a network, whose call is prepared for a chunk: `call(x, scores, labels)`."""

    def __init__(self, network: Network, images: int, classes: int, prepare: Callable[[int], Any], arch: str):
        self._network = network
        self._chunk = images // chunks_of(images)
        self._call = prepare(self._chunk)
        self._around = Around(gpu.project_module("layers", arch).get_function, cupy.empty)
        self.images, self.labels = page_locked((images, *network.image)), page_locked((images,))
        self._images, self._labels = cupy.empty(self.images.shape, np.uint8), cupy.empty(images, np.uint8)
        self._x = cupy.empty((self._chunk, network.input.channels, *network.image), np.float32)
        self._scores = cupy.empty((self._chunk, classes), np.float32)
        self._found = cupy.empty(self._chunk, np.int32)
        self._inward = cupy.cuda.Stream(non_blocking=True)
        self._arrived = [cupy.cuda.Event(disable_timing=True) for _ in range(chunks_of(images))]

    def infer(self) -> float:
        """Milliseconds from the images to the labels, by the host's clock."""
        deviceSynchronize()
        began = perf_counter()
        self._send()
        main = cupy.cuda.Stream.null
        for number, arrived in enumerate(self._arrived):
            chunk = slice(number * self._chunk, (number + 1) * self._chunk)
            main.wait_event(arrived)
            self._around.entering(self._images[chunk], self._network.input.channels, self._network.input.scale, self._x)
            self._call(self._x, self._scores, self._found)
            self._labels[chunk] = self._found
        self._labels.data.copy_to_host_async(self.labels.ctypes.data, self.labels.nbytes, main)
        deviceSynchronize()
        return (perf_counter() - began) * 1e3

    def copy(self) -> float:
        """Milliseconds of the copies alone, of all images and then of their labels."""
        deviceSynchronize()
        began = perf_counter()
        self._images.data.copy_from_host_async(self.images.ctypes.data, self.images.nbytes, self._inward)
        self._labels.data.copy_to_host_async(self.labels.ctypes.data, self.labels.nbytes, self._inward)
        deviceSynchronize()
        return (perf_counter() - began) * 1e3

    def mismatched(self, images: np.ndarray, expected: np.ndarray) -> int:
        """How many of the images (n, H, W) get another label than expected."""
        self.images[...] = images
        self.labels[...] = NO_LABEL
        self.infer()
        return int((self.labels != expected).sum())

    def _send(self) -> None:
        """Order every chunk of the images to the device."""
        for number, arrived in enumerate(self._arrived):
            chunk = slice(number * self._chunk, (number + 1) * self._chunk)
            source, target = self.images[chunk], self._images[chunk]
            target.data.copy_from_host_async(source.ctypes.data, source.nbytes, self._inward)
            self._inward.record(arrived)


genuine.hold(sys.modules[__name__])
genuine.hold(FromHost)
