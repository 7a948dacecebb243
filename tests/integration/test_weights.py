"""What shipped and imported weights predict."""

import numpy as np
import pytest

from warpbook.common.errors import UserError
from warpbook.harness import inference
from warpbook.kernels import variants
from warpbook.problems import fashion_mnist, networks, weights
from warpbook.problems.networks import Description, Network

PUBLISHED = {
    ("fa17", "high"): 0.8562,
    ("fa18", "trained"): 0.8451,
    ("fa19", "trained"): 0.7653,
    ("ece408", "trained"): 0.8714,
}


def test_shipped_weights_reach_the_published_correctness_on_a_thousand_images():
    for (name, weight_set), published in PUBLISHED.items():
        network = networks.find(name)
        images, labels = fashion_mnist.load(network)
        predict = inference.load(variants.read("simd"), network, weights.load(network, weight_set))
        accuracy = (predict(images[:1000])[0] == labels[:1000]).mean()
        assert accuracy >= published, name
        assert accuracy == weights.provenance(network, weight_set)["accuracy"]["1000"], name


REFERENCE = {100: 0.84, 1000: 0.852, 10000: 0.8397}


def test_reference_model_is_imported_and_predicts_as_published_with_every_cpu_variant(reference_model):
    network = networks.find("sp19")
    parameters = weights.read(reference_model, network)[0]
    images, labels = fashion_mnist.load(network)
    every = variants.discover().values()
    found = [one for one in every if one.device == "cpu" and one.problem.name == "conv" and not one.missing]
    assert found
    for variant in found:
        sizes = [size for size in REFERENCE if size <= 1000 or variant.name == "simd"]  # the others take seconds
        right = inference.load(variant, network, parameters)(images[: max(sizes)])[0] == labels[: max(sizes)]
        for size in sizes:
            assert abs(right[:size].sum() - REFERENCE[size] * size) <= 1 + 1e-9, variant.name


COURSE = {100: 0.86, 1000: 0.886}


def test_the_course_s_weights_since_2020_are_imported_and_predict_as_published(course_weights):
    network = networks.find("ece408")
    parameters, form = weights.read(course_weights, network)
    assert form == "a file of the course, without the biases of convolutions, which the course's programs leave out"
    images, labels = fashion_mnist.load(network)
    right = inference.load(variants.read("simd"), network, parameters)(images[:1000])[0] == labels[:1000]
    assert {size: float(right[:size].mean()) for size in COURSE} == COURSE


def test_a_state_dict_of_pytorch_is_imported_and_no_code_of_it_run(tmp_path):
    layers = [{"conv": {"out_channels": 2, "kernel_size": 3}}, {"pool": {"size": 2}}, {"fc": {"out_features": 10}}]
    network = Network("small", Description.model_validate({"input": {"size": 6}, "layers": layers}))
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3, bias=False), torch.nn.Flatten(), torch.nn.Linear(8, 10))
    path = tmp_path / "small.pt"
    for content in (model.state_dict(), {"epoch": 3, "state_dict": model.state_dict()}):
        torch.save(content, path)
        parameters, form = weights.read(path, network)
        assert form == "a PyTorch file"
        assert np.array_equal(parameters["fc1.bias"], model[2].bias.detach().numpy())
    for content, words in ((model, "holds more than weights, or is damaged"), ([1], "holds no state_dict")):
        torch.save(content, path)
        with pytest.raises(UserError, match=rf"{words}.*; save it with torch.save\(model.state_dict\(\), path\)"):
            weights.read(path, network)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="holds more than weights, or is damaged"):
        weights.read(path, network)
