"""The layers around the convolutions: on the CPU and in float64 they are the same."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpbook.harness import inference, reference
from warpbook.kernels import variants
from warpbook.problems import fashion_mnist, networks
from warpbook.problems.layers import ConvLayer, PoolLayer, Step
from warpbook.problems.networks import Description, Network


def test_pooling_gives_cases_worked_out_by_hand():
    x = np.array([[[[1, -2, 3], [4, 5, -6], [7, 8, 9]]]], np.float32)
    whole, cut = PoolLayer("max", 2, False, 1, 3, 3), PoolLayer("average", 2, True, 1, 3, 3)
    for pool in (lambda layer: reference.pool(x, layer), lambda layer: inference.pool(x, layer, "none")):
        assert pool(whole).tolist() == [[[[5]]]]
        assert pool(cut).tolist() == [[[[2, -1.5], [7.5, 9]]]]


@given(
    *(st.sampled_from(choice) for choice in (("max", "average"), (False, True), ("none", "tanh", "relu"))),
    *(st.integers(1, most) for most in (4, 2, 3, 11, 11)),
)
def test_pooling_on_the_cpu_is_the_reference_s(kind, ceil, activation, size, images, C, H, W):
    layer = PoolLayer(kind, min(size, H, W), ceil, C, H, W)
    x = np.random.default_rng(H).standard_normal((images, C, H, W)).astype(np.float32)
    expected = reference.pool(reference.activate(x.astype(np.float64), activation), layer)
    found = inference.pool(x, layer, activation)
    assert found.dtype == np.float32
    assert found.shape == expected.shape == (images, *layer.gives)
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)


def network_of(layers, **given):
    return Network("mine", Description.model_validate({"input": given, "layers": layers}))


EVERYTHING = network_of(
    [
        {"conv": {"out_channels": 5, "kernel_size": 3, "stride": 2, "padding": 1, "activation": "relu"}},
        {"pool": {"size": 2, "kind": "average", "ceil": True}},
        {"conv": {"out_channels": 4, "kernel_size": 2, "padding": 1, "activation": "tanh"}},
        {"conv": {"out_channels": 3, "kernel_size": 1}},
        {"pool": {"size": 2, "ceil": True}},
        {"fc": {"out_features": 11, "activation": "relu"}},
        {"fc": {"out_features": 10}},
    ],
    size=[21, 34], channels=3, scale=0.01, resizing="pad",
)  # fmt: skip


def test_a_network_of_every_kind_of_layer_predicts_what_the_reference_does(cpu_variant):
    generator = np.random.default_rng(11)
    shapes = EVERYTHING.parameters.items()
    parameters = {name: 0.3 * generator.standard_normal(shape).astype(np.float32) for name, shape in shapes}
    images = generator.integers(0, 256, (150, 3, 21, 34), dtype=np.uint8)
    variant = cpu_variant("y[...] = convolve(x, w, layer.S, layer.P)", header="limits: {S: 2, P: 1}\n")
    predicted, op_s = inference.load(variant, EVERYTHING, parameters)(images)
    expected = reference.labels(EVERYTHING, parameters, images)
    assert len(op_s) == 3
    assert len(set(expected)) > 3
    assert (predicted != expected).sum() <= 1


def test_activations_go_behind_the_pooling_that_follows_them():
    first, pool, *_ = inference.fused_steps(networks.find("ece408"))
    assert isinstance(first.layer, ConvLayer)
    assert first.activation == "none"
    assert isinstance(pool, Step)
    assert pool.activation == "relu"


@pytest.mark.parametrize("name", ["onnxruntime", "torch_cpu"])
def test_a_framework_that_brings_networks_of_2017_whole_gives_others_its_convolution(name):
    variant = variants.read(name)
    if variant.missing:
        pytest.skip(variant.missing)
    network = network_of(
        [{"conv": {"out_channels": 2, "kernel_size": 5, "activation": "relu"}}, {"fc": {"out_features": 10}}], size=28
    )
    generator = np.random.default_rng(12)
    parameters = {name: generator.standard_normal(shape).astype("f4") for name, shape in network.parameters.items()}
    images = fashion_mnist.read_idx("t10k-images-idx3-ubyte.gz")[:30, None]
    predicted, op_s = inference.load(variant, network, parameters)(images)
    assert len(op_s) == 1
    assert (predicted == reference.labels(network, parameters, images)).all()


def test_a_network_goes_to_a_variant_s_own_process_as_it_is_described():
    content = json.loads(json.dumps(EVERYTHING.description.model_dump()))
    assert Network("mine", Description.model_validate(content)) == EVERYTHING
