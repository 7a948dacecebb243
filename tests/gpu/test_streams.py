"""Streams on a GPU: labels and memory of a worker."""

import numpy as np
import pytest

from warpbook.harness import inference, streaming
from warpbook.kernels import variants
from warpbook.problems import fashion_mnist, networks, weights
from warpbook.workflow import streams

NETWORK = networks.find("fa17")


@pytest.fixture(scope="module")
def images_file(tmp_path_factory):
    """Fashion-MNIST twice over, as fa17 takes it."""
    path = tmp_path_factory.mktemp("stream") / "fa17-2.npy"
    streams.write_images(NETWORK, 2, path)
    return path


@pytest.mark.gpu
@pytest.mark.parametrize("variant", ["direct", "constant_weights", "unroll_gemm_streams", "fp16x3_mma"])
def test_a_gpu_worker_s_labels_are_the_inference_program_s_and_its_memory_is_bounded(images_file, tmp_path, variant):
    found, parameters = variants.read(variant), weights.load(NETWORK, "high")
    expected, _ = inference.load(found, NETWORK, parameters)(fashion_mnist.load(NETWORK)[0])
    lanes = streaming.open_lanes(found, NETWORK, "high", 31_003)
    assert len(lanes) == streaming.LANES
    images = streams.Images(images_file, NETWORK)
    measured = streaming.run(lanes, images, 7, 31_010, expected, tmp_path / "labels.npy")
    assert measured["mismatched_labels"] == 0
    assert measured["labels_sum"] == np.resize(expected, 31_010)[7:].sum()
    assert measured["copy_s"] > 0
    assert measured["compute_s"] > 0
