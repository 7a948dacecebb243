"""Streams: images without end in shards, whose labels are those of the inference program however they are divided."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.harness import inference, streaming
from warpbook.kernels import variants
from warpbook.problems import fashion_mnist, networks, weights
from warpbook.runs import tables
from warpbook.workflow import streams

NETWORK = networks.find("fa17")


@pytest.fixture(scope="module")
def images_file(tmp_path_factory):
    """Fashion-MNIST twice over, as fa17 takes it."""
    path = tmp_path_factory.mktemp("stream") / "fa17-2.npy"
    streams.write_images(NETWORK, 2, path)
    return path


class Told:
    """A lane that labels an image by the sum of its pixels, and keeps what it was sent."""

    def __init__(self, chunk):
        self.images = np.zeros((chunk, *NETWORK.image), np.uint8)
        self.copy_s, self.compute_s = None, 0.0

    def send(self):
        self.sent = self.images.copy()

    def labels(self):
        return told(self.sent)


def told(images):
    return (images.reshape(len(images), -1).sum(axis=1, dtype=np.int64) % 10).astype(np.uint8)


def stream(path, lanes, first, end, out):
    expected = told(fashion_mnist.load(NETWORK)[0])
    return streaming.run(lanes, streams.Images(path, NETWORK), first, end, expected, out / "labels.npy")


def test_labels_are_the_same_however_a_stream_is_divided_and_begin_the_file_again(images_file, tmp_path):
    images = 41_003
    expected = np.resize(told(fashion_mnist.load(NETWORK)[0]), images)
    for lanes, shards in [(1, 5), (3, 1), (3, 2)]:
        kept = []
        for first, end in streams.split(images, shards):
            measured = stream(images_file, [Told(700) for _ in range(lanes)], first, end, tmp_path)
            labels = np.load(tmp_path / "labels.npy")
            assert (measured["labels_sum"], measured["mismatched_labels"]) == (labels.sum(), 0)
            assert measured["labels_sha256"] == hashlib.sha256(labels.tobytes()).hexdigest()
            kept.append(labels)
        assert np.array_equal(np.concatenate(kept), expected)


def test_a_label_that_is_not_the_program_s_is_counted(images_file, tmp_path):
    expected = told(fashion_mnist.load(NETWORK)[0])
    expected[3] += 1
    images = streams.Images(images_file, NETWORK)
    measured = streaming.run([Told(100)], images, 0, 20_010, expected, tmp_path / "labels.npy")
    assert measured["mismatched_labels"] == 3


def test_shards_follow_each_other_and_differ_by_one_image_at_most():
    assert streams.split(11, 3) == [(0, 3), (3, 7), (7, 11)]


def test_a_worker_s_labels_are_those_of_the_inference_program(images_file, tmp_path):
    found = variants.read("im2col_blas")
    images, _ = fashion_mnist.load(NETWORK)
    expected, _ = inference.load(found, NETWORK, weights.load(NETWORK, "high"))(images[:430])
    lanes = streaming.open_lanes(found, NETWORK, "high", 150)
    padded = np.resize(expected, fashion_mnist.IMAGES)
    measured = streaming.run(lanes, streams.Images(images_file, NETWORK), 50, 430, padded, tmp_path / "labels.npy")
    assert measured["mismatched_labels"] == 0
    assert np.array_equal(np.load(tmp_path / "labels.npy"), expected[50:])
    assert measured["compute_s"] > 0


MEMORY = """\
import sys, test_streams as tests
from pathlib import Path
from warpbook.machine import host
from warpbook.kernels import variants
from warpbook.harness import streaming

path, out = map(Path, sys.argv[1:])

def grown_kib(lanes, few, many):
    tests.stream(path, lanes, 0, few, out)
    before = host.peak_memory_kib()
    tests.stream(path, lanes, 0, many, out)
    return host.peak_memory_kib() - before

print(grown_kib(streaming.open_lanes(variants.read("im2col_blas"), tests.NETWORK, "high", 100), 200, 2000))
print(grown_kib([tests.Told(700) for _ in range(3)], 20_000, 400_000))
"""


def test_a_worker_s_memory_does_not_grow_with_its_images(images_file, tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", MEMORY, images_file, tmp_path]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=PROJECT, env={**os.environ, "PYTHONPATH": paths}
    )
    inferring, reading = map(int, done.stdout.split())
    assert inferring < 8 << 10  # the activations of 1800 images are 200 MiB
    assert reading < 4 << 10  # 380 000 images are 284 MiB


def test_a_file_cut_short_is_refused_by_a_sentence(images_file, tmp_path):
    short = tmp_path / "short.npy"
    short.write_bytes(images_file.read_bytes()[:-1])
    with pytest.raises(
        UserError, match=r"holds 15679999 bytes of images, and its 20000 images take 15680000; delete it"
    ):
        streams.Images(short, NETWORK)


def test_a_file_cut_short_while_it_is_read_is_refused_too(images_file, tmp_path):
    short = tmp_path / "short.npy"
    short.write_bytes(images_file.read_bytes())
    images = streams.Images(short, NETWORK)
    with short.open("rb+") as file:
        file.truncate(1 << 20)
    with pytest.raises(UserError, match=r"short.npy ended before its 20000 images; delete it"):
        images.read(0, np.empty((5000, *NETWORK.image), np.uint8))


def test_a_file_of_other_images_is_refused(tmp_path):
    for shape, dtype in [((10_000, 64, 64), np.uint8), ((10_000, 28, 28), np.float64), ((9, 28, 28), np.uint8)]:
        np.save(tmp_path / "other.npy", np.zeros(shape, dtype))
        with pytest.raises(UserError, match="no images of fa17; delete it and run the command again"):
            streams.Images(tmp_path / "other.npy", NETWORK)


def rows(devices, images, seconds, **changes):
    """Rows of STREAM_SHARDS of workers that began 2 s one after the other and took `seconds` each."""
    defaults = {"Int64": 1, "int64": 1, "float64": 0.5, "string": "x", "bool": True}
    for number in range(devices):
        yield {
            **{name: defaults[column.dtype] for name, column in tables.STREAM_SHARDS.columns.items()},
            "images": images,
            "shards": devices,
            "workers": devices,
            "shard": number + 1,
            "measured_on": f"node/{number}",
            "began_s": 2.0 * number,
            "first_read_s": 2.0 * number + 1,
            "ended_s": 2.0 * number + seconds,
            **changes,
        }


def test_efficiency_is_the_rate_over_that_of_one_device_times_the_devices():
    shards = pd.DataFrame([*rows(1, 1000, 10), *rows(2, 1000, 6), *rows(2, 500, 6)])
    found = {(row["images"], row["devices"]): row for row in streams.summarize_streams(shards)}
    assert found[1000, 1]["efficiency"] == found[1000, 1]["streaming_efficiency"] == 1
    assert found[1000, 2]["wall_s"] == 8
    assert found[1000, 2]["efficiency"] == pytest.approx(10 / (2 * 8))
    assert found[1000, 2]["streaming_efficiency"] == pytest.approx(9 / (2 * 7))
    assert found[500, 2]["efficiency"] is None


def test_the_pause_before_a_shard_is_done_again_is_no_time_of_the_stream():
    first, second = rows(2, 1000, 6)
    second |= {"began_s": 100.0, "first_read_s": 101.0, "ended_s": 104.0}
    (found,) = streams.summarize_streams(pd.DataFrame([first, second]))
    assert (found["wall_s"], found["streaming_s"]) == (10, 8)


def test_a_chunk_on_a_gpu_leaves_the_widest_convolution_in_its_bound():
    for name in networks.all_networks():
        network = networks.find(name)
        chunk = streaming.gpu_chunk(network)
        assert 1000 <= chunk <= fashion_mnist.IMAGES
        widest = max(np.prod(conv.at(chunk).shape("x")) + np.prod(conv.at(chunk).shape("y")) for conv in network.convs)
        assert 4 * widest <= streaming.GPU_CHUNK_BYTES
