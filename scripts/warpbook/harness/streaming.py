"""One worker of a stream: chunks of images of one size, read from a file, through a network, to labels. On a GPU there
are three lanes: one chunk is inferred, one copied on a stream of its own, one read, so that memory is that of three
chunks. On the CPU there is one lane: a variant takes every core."""

import hashlib
import time
from collections import deque
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from warpbook.common.errors import UserError
from warpbook.common.files import atomic_write
from warpbook.harness import inference
from warpbook.kernels.variants import Variant
from warpbook.machine import host
from warpbook.problems import fashion_mnist, weights
from warpbook.problems.networks import Network
from warpbook.runs.schema import Row
from warpbook.workflow.streams import Images

if TYPE_CHECKING:
    import cupy

LANES = 3
CPU_CHUNK = 1000
GPU_CHUNK_BYTES = 512 << 20  # what a convolution of a chunk may read and write on a GPU

POOL_BYTES = 3 << 30
"""What a worker's arrays may take on a GPU; with CUDA's own, kernels' code among it, that is less than 4 GiB."""


class Lane(Protocol):
    """The way of one chunk: `images` (chunk, height, width) uint8 to labels (chunk,) uint8."""

    images: np.ndarray
    copy_s: float | None
    """Seconds that its copies took on the device; none on the CPU."""
    compute_s: float

    def send(self) -> None:
        """Have the images inferred; they must stay until the labels are there."""
        ...

    def labels(self) -> np.ndarray:
        """The labels, waited for; they stay until the lane is used again."""
        ...


class CpuLane:
    """A chunk's way where nothing overlaps: on the CPU, or in a framework that brings its network."""

    def __init__(self, predict: inference.Predict, network: Network, chunk: int):
        self.images = np.zeros((chunk, *network.image), np.uint8)
        self.copy_s: float | None = None
        self.compute_s = 0.0
        self._predict, self._shape = predict, (chunk, network.input.channels, *network.image)

    def send(self) -> None:
        began = time.perf_counter()
        self._labels, _ = self._predict(np.broadcast_to(self.images[:, None], self._shape))
        self.compute_s += time.perf_counter() - began

    def labels(self) -> np.ndarray:
        return np.asarray(self._labels, np.uint8)


class GpuLane:
    """A chunk's way over a GPU. Copies have streams of their own, and kernels the default one: some variants' streams,
    constant memory and scratch memory are ordered by it."""

    def __init__(
        self,
        loaded: inference.GpuNetwork,
        network: Network,
        chunk: int,
        inward: "cupy.cuda.Stream",
        outward: "cupy.cuda.Stream",
    ):
        import cupy

        from warpbook.harness.pinned_memory import pinned_zeros

        self.copy_s: float | None = 0.0
        self.compute_s = 0.0
        self._loaded, self._input = loaded, network.input
        self._inward, self._main, self._outward = inward, cupy.cuda.get_current_stream(), outward
        self.images, self._labels = pinned_zeros((chunk, *network.image)), pinned_zeros((chunk,))
        self._on_device = cupy.empty(self.images.shape, np.uint8)
        self._sent, self._arrived, self._begun, self._computed, self._done = (cupy.cuda.Event() for _ in range(5))
        self._elapsed_ms = cupy.cuda.get_elapsed_time

    def send(self) -> None:
        self._inward.record(self._sent)
        self._on_device.data.copy_from_host_async(self.images.ctypes.data, self.images.nbytes, self._inward)
        self._inward.record(self._arrived)
        self._main.wait_event(self._arrived)
        self._main.record(self._begun)
        x = self._loaded.around.network_input(self._on_device, self._input.channels, self._input.scale)
        # Held until its copy is over: the memory of an array that is let go is given to the next.
        self._found = self._loaded.around.argmax(self._loaded.scores(x))
        self._main.record(self._computed)
        self._outward.wait_event(self._computed)
        self._found.data.copy_to_host_async(self._labels.ctypes.data, self._labels.nbytes, self._outward)
        self._outward.record(self._done)

    def labels(self) -> np.ndarray:
        self._done.synchronize()
        assert self.copy_s is not None
        self.copy_s += self._elapsed_ms(self._sent, self._arrived) / 1e3
        self.copy_s += self._elapsed_ms(self._computed, self._done) / 1e3
        self.compute_s += self._elapsed_ms(self._begun, self._computed) / 1e3
        return self._labels


def gpu_chunk(network: Network) -> int:
    """Images of a chunk on a GPU: as many as leave what the widest convolution reads and writes in GPU_CHUNK_BYTES."""
    widest = max(4 * (conv.at(1).count("x") + conv.at(1).count("y")) for conv in network.convs)
    return min(fashion_mnist.IMAGES, max(1, GPU_CHUNK_BYTES // widest))


def open_lanes(variant: Variant, network: Network, weight_set: str, images: int) -> list[Lane]:
    """A worker's lanes, each tried once. UserError where the variant cannot, or chunks exceed POOL_BYTES."""
    parameters = weights.load(network, weight_set)
    on_gpu = variant.device == "gpu" and not inference.runs_whole_network(variant, network)
    chunk = min(images, gpu_chunk(network) if variant.device == "gpu" else CPU_CHUNK)
    for conv in network.convs:
        if reason := variant.unsupported(conv.at(chunk)):
            raise UserError(reason)
    if on_gpu:
        return _on_gpu(variant, network, parameters, chunk)
    lane = CpuLane(inference.load(variant, network, parameters), network, chunk)
    lane.send()
    lane.compute_s = 0.0
    return [lane]


def _on_gpu(variant: Variant, network: Network, parameters: dict[str, np.ndarray], chunk: int) -> list[Lane]:
    import cupy

    cupy.get_default_memory_pool().set_limit(size=POOL_BYTES)
    try:
        loaded = inference.GpuNetwork(variant, network, parameters)
        streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
        lanes: list[Lane] = [GpuLane(loaded, network, chunk, *streams) for _ in range(LANES)]
        cupy.cuda.runtime.deviceSynchronize()
        for lane in lanes:
            lane.send()
            lane.labels()
            lane.copy_s, lane.compute_s = 0.0, 0.0
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise UserError(
            f"{variant.name}: a chunk of {chunk} images needs more than the {POOL_BYTES >> 30} GiB that a worker may "
            f"take of a GPU ({error}); lower GPU_CHUNK_BYTES in harness/streaming.py"
        ) from error
    return lanes


def device_bytes(device: str) -> int | None:
    """Device memory in use, as the driver counts it, which at the end is the most there was; none on the CPU."""
    if device == "cpu":
        return None
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    return int(total - free)


def run(lanes: list[Lane], images: Images, first: int, end: int, expected: np.ndarray, out: Path) -> Row:
    """Infer the stream's images from `first` to before `end`, write their labels to the .npy file `out`, and return
    columns of STREAM_SHARDS. `expected` are labels of the data set, or of the stream where it is shorter: those that
    differ are counted."""
    chunk = len(lanes[0].images)
    under_way: deque[tuple[int, int, Lane]] = deque()
    digest, labels_sum, mismatched, read_s = hashlib.sha256(), 0, 0, 0.0
    began = time.time()
    with atomic_write(out) as temporary, temporary.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (end - first,)})

        def finish() -> None:
            nonlocal labels_sum, mismatched
            place, count, lane = under_way.popleft()
            labels = lane.labels()[:count]
            labels_sum += int(labels.sum(dtype=np.int64))
            mismatched += int((labels != expected.take(range(place, place + count), mode="wrap")).sum())
            digest.update(labels.data)
            file.write(labels.data)

        for place, lane in zip(range(first, end, chunk), cycle(lanes), strict=False):
            if len(under_way) == len(lanes):
                finish()
            count = min(chunk, end - place)  # the last chunk's rest is computed too, and not looked at
            reading = time.perf_counter()
            images.read(place, lane.images[:count])
            read_s += time.perf_counter() - reading
            lane.send()
            under_way.append((place, count, lane))
        while under_way:
            finish()
        ended = time.time()
    copies = [lane.copy_s for lane in lanes if lane.copy_s is not None]
    return {
        "first_read_s": began,
        "ended_s": ended,
        "read_s": read_s,
        "copy_s": sum(copies) if copies else None,
        "compute_s": sum(lane.compute_s for lane in lanes),
        "max_rss_kib": host.peak_memory_kib(),
        "labels_sum": labels_sum,
        "labels_sha256": digest.hexdigest(),
        "mismatched_labels": mismatched,
    }
