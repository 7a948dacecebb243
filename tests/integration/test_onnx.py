"""Networks from ONNX files in inference: labels are those of ONNX Runtime."""

import json
import subprocess
import sys

import numpy as np
import pytest

import onnx_networks
from warpbook.common.files import PROJECT
from warpbook.harness import cpp_compiler, inference, reference
from warpbook.kernels import variants
from warpbook.problems import fashion_mnist, networks, weights
from warpbook.problems.networks import Description, Network


@pytest.fixture
def lenet(tmp_path):
    """A LeNet with biases from a file, and what its input says besides."""
    path = onnx_networks.lenet(tmp_path / "lenet.onnx")
    return path, {"onnx": str(path), "input": {"scale": 1 / 255}}


@pytest.mark.parametrize("name", ["loop_nest", "im2col_blas", "simd", "register_blocked", "onnxruntime"])
def test_a_lenet_from_a_file_labels_fashion_mnist_as_onnx_runtime_does(lenet, name):
    path, described = lenet
    if (variant := variants.read(name)).cpp_source and cpp_compiler.compiler() is None:
        pytest.skip("there is no C++ compiler here")
    network = Network("lenet", Description.model_validate(described))
    images = fashion_mnist.load(networks.find("fa17"))[0][:250]
    labels, op_s = inference.load(variant, network, weights.load(network, "trained"))(images)
    expected = onnx_networks.outputs(path, fashion_mnist.normalize(images, network, np.float32)).argmax(axis=1)
    assert len(set(expected)) > 3
    assert labels.tolist() == expected.tolist()
    assert len(op_s) == 2


def run(monkeypatch, described, program, *arguments):
    monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, json.dumps({"networks": {"lenet": described}}))
    command = [sys.executable, str(PROJECT / "scripts" / program), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_programs_take_a_network_from_a_file(lenet, tmp_path, monkeypatch):
    _, described = lenet
    out = [str(tmp_path / name) for name in ("labels.npy", "scores.npy")]
    own = {"data": str(tmp_path / "images.npy"), "labels": str(tmp_path / "classes.npy")}
    images = np.random.default_rng(1).integers(0, 256, (30, 28, 28), dtype=np.uint8)
    np.save(own["data"], images)
    np.save(own["labels"], np.arange(30) % 10)
    described = {**described, "input": {**described["input"], **own}}
    monkeypatch.chdir(tmp_path)  # results/data is below
    arguments = ["--network", "lenet", "--weights", "trained", "--labels", out[0], "--scores", out[1]]
    done = run(monkeypatch, described, "label_images.py", *arguments)
    assert done.returncode == 0, done.stderr
    network = Network("lenet", Description.model_validate(described))
    expected = reference.scores(network, weights.load(network, "trained"), images[:, None])
    assert np.allclose(np.load(out[1]), expected, rtol=1e-12)
    assert np.load(out[0]).tolist() == expected.argmax(axis=1).tolist()


def test_a_variant_without_bias_says_so_in_a_line(lenet, monkeypatch):
    done = run(monkeypatch, lenet[1], "infer.py", "--network", "lenet", "--variant", "fft", "10")
    assert done.returncode == 2
    assert done.stderr.startswith("error: fft does not say that it handles ")
    assert "and the optional input bias;" in done.stderr
    assert done.stderr.count("\n") == 1
