"""A whole network from the host to the host: uint8 images in page-locked memory to labels there. All chunks of images
are copied ahead; while the device infers some, the next are on their way. Chunks take turns on two streams, so that one
fills the device where the one before leaves it."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter  # by name: a launcher may replace it in its module
from typing import Any

import cupy
import numpy as np
from cupy.cuda import Event
from cupy.cuda.runtime import deviceSynchronize

from warpbook.harness import tamper_check
from warpbook.harness.gpu_bench import GpuBench
from warpbook.harness.pinned_memory import pinned_zeros
from warpbook.problems.networks import Network

SHARES = (
    (1,),
    (50, 50),
    (20, 80),
    (15, 38, 47),
    (5, 10, 15, 20, 25, 25),
    (5, 8, 11, 14, 17, 20, 15, 10),
    (5, 10, 15, 20, 20, 15, 10, 5),
)
"""Ways to share the images among chunks. Where the work takes longer than the copies, chunks grow: the next is there
when one ends. Where copies take as long or longer, the last is small. Few chunks have fewer of a call's fixed costs."""

TRIALS = 7
STREAMS = 2
BLOCKS = 4  # images of a multiprocessor that fill it: a chunk of a multiple leaves few of them idle at its end
NO_LABEL = -1


def chunk_sizes(images: int, shares: Sequence[int], multiprocessors: int) -> list[int]:
    """The sizes of the chunks: multiples of what fills the device, but for the last; few images make fewer chunks."""
    fill = BLOCKS * multiprocessors
    sizes: list[int] = []
    for share in shares[:-1]:
        sizes.append(min(images - sum(sizes), max(1, round(images * share / sum(shares) / fill)) * fill))
    return [size for size in (*sizes, images - sum(sizes)) if size]


@dataclass(frozen=True)
class Chunk:
    """A chunk's call and its places in the arrays of all; `of` tells which images it has. The call takes x, which are
    the images themselves where it takes bytes."""

    call: Any
    images: cupy.ndarray
    x: cupy.ndarray
    scores: cupy.ndarray
    found: cupy.ndarray
    of: slice
    arrived: Event = field(default_factory=lambda: Event(disable_timing=True))
    entered: Event = field(default_factory=lambda: Event(disable_timing=True))


class HostToHost:
    """Images through a network whose call is prepared for each chunk: `call(x, scores, labels)`, x being float32, or
    the images where it `takes_bytes`. The fastest way to share images among chunks is found here."""

    def __init__(
        self,
        bench: GpuBench,
        network: Network,
        images: np.ndarray,
        classes: int,
        prepare: Callable[[int], Any],
        takes_bytes: bool,
    ):
        self._bench, self._network, self._prepare, self._takes_bytes = bench, network, prepare, takes_bytes
        count = len(images)
        self.images, self.labels = pinned_zeros(images.shape, images.dtype.type), pinned_zeros((count,), np.int32)
        self.images[...] = images
        self._images, self._found = cupy.empty(images.shape, images.dtype), cupy.empty(count, np.int32)
        x_shape = (count, network.input.channels, *network.image)
        self._x = self._images if takes_bytes else cupy.empty(x_shape, np.float32)
        self._scores = cupy.empty((count, classes), np.float32)
        # What makes numbers of a chunk has a stream of its own: the next chunk's copy does not wait for it.
        self._inward, self._entering = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        # These wait for the default stream, and it for them, should a call order something there.
        self._mains = [cupy.cuda.Stream() for _ in range(STREAMS)]
        self._chunks: list[Chunk] = []
        least = math.inf
        for sizes in dict.fromkeys(tuple(chunk_sizes(count, shares, bench.multiprocessors)) for shares in SHARES):
            chunks = self._make_chunks(sizes)
            self._run_chunks(chunks)
            if (taken := median([self._run_chunks(chunks) for _ in range(TRIALS)])) < least:
                self._chunks, least = chunks, taken

    def _make_chunks(self, sizes: Sequence[int]) -> list[Chunk]:
        """Chunks with places of their own: a call may keep those that it was given before."""
        chunks, end = [], 0
        for size in sizes:
            of = slice(end, end := end + size)
            arrays = self._images[of], self._x[of], self._scores[of], self._found[of]
            chunks.append(Chunk(self._prepare(size), *arrays, of))
        return chunks

    @property
    def sizes(self) -> list[int]:
        """How many images each chunk has."""
        return [chunk.of.stop - chunk.of.start for chunk in self._chunks]

    def infer(self) -> float:
        """Milliseconds from the images to the labels, by the host's clock."""
        return self._run_chunks(self._chunks)

    def _run_chunks(self, chunks: Sequence[Chunk]) -> float:
        deviceSynchronize()
        began = perf_counter()
        for chunk in chunks:
            source = self.images[chunk.of]
            chunk.images.data.copy_from_host_async(source.ctypes.data, source.nbytes, self._inward)
            chunk.arrived.record(self._inward)
        for number, chunk in enumerate(chunks):
            main, labels = self._mains[number % STREAMS], self.labels[chunk.of]
            main.wait_event(chunk.arrived if self._takes_bytes else self._enqueue_input(chunk))
            with main:
                chunk.call(chunk.x, chunk.scores, chunk.found)
            chunk.found.data.copy_to_host_async(labels.ctypes.data, labels.nbytes, main)
        deviceSynchronize()
        return (perf_counter() - began) * 1e3

    def _enqueue_input(self, chunk: Chunk) -> Event:
        """Order numbers to be made of a chunk as soon as it has arrived: when they are made."""
        self._entering.wait_event(chunk.arrived)
        with self._entering:
            self._bench.make_input(chunk.images, chunk.x, self._network.input.scale)
        chunk.entered.record(self._entering)
        return chunk.entered

    def copy(self) -> float:
        """Milliseconds of the copies alone, of all images and then of their labels."""
        deviceSynchronize()
        began = perf_counter()
        self._images.data.copy_from_host_async(self.images.ctypes.data, self.images.nbytes, self._inward)
        self._found.data.copy_to_host_async(self.labels.ctypes.data, self._found.nbytes, self._inward)
        deviceSynchronize()
        return (perf_counter() - began) * 1e3

    def result(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The scores, and the labels as they came to the host, of images (n, H, W)."""
        self.images[...] = images
        self.labels[...] = NO_LABEL
        self._scores.fill(np.nan)
        self.infer()
        return self._scores.get(), self.labels


tamper_check.remember(sys.modules[__name__])
tamper_check.remember(HostToHost)
