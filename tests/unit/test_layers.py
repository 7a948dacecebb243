"""The layers around the convolutions: on the CPU and in float64 they are the same."""

import json
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpbook.common.errors import UserError
from warpbook.harness import inference, reference
from warpbook.kernels import variants
from warpbook.problems import fashion_mnist, networks
from warpbook.problems.layers import Activation, ConvLayer, PoolLayer, Step
from warpbook.problems.networks import Description, Network


def test_pooling_gives_cases_worked_out_by_hand():
    x = np.array([[[[1, -2, 3], [4, 5, -6], [7, 8, 9]]]], np.float32)
    whole, cut = PoolLayer("max", 2, False, 1, 3, 3), PoolLayer("average", 2, True, 1, 3, 3)
    for pool in (lambda layer: reference.pool(x, layer), lambda layer: inference.pool(x, layer, "none")):
        assert pool(whole).tolist() == [[[[5]]]]
        assert pool(cut).tolist() == [[[[2, -1.5], [7.5, 9]]]]


def test_overlapping_windows_and_padding_give_a_case_worked_out_by_hand():
    x = np.array([[[[1, -2, 3], [4, 5, -6], [7, 8, 9]]]], np.float32)
    whole = PoolLayer("max", 2, False, 1, 3, 3, 1)
    padded = PoolLayer("average", (2, 1), False, 1, 3, 3, (2, 1), (1, 0, 0, 0))
    for pool in (lambda layer: reference.pool(x, layer), lambda layer: inference.pool(x, layer, "none")):
        assert pool(whole).tolist() == [[[[5, 5], [8, 9]]]]
        assert pool(padded).tolist() == [[[[1, -2, 3], [5.5, 6.5, 1.5]]]]


@given(st.sampled_from(get_args(Activation)), st.sampled_from([0.0, 0.25, 1.0]))
def test_activations_are_right_in_either_precision(activation, slope):
    x = np.array([-100, -1.5, -0.0, 0.0, 0.25, 3, 100], np.float32)
    expected = {
        "none": x, "tanh": np.tanh(x), "relu": np.maximum(x, 0), "sigmoid": 1 / (1 + np.exp(-x.astype(np.float64))),
        "leaky_relu": np.where(x > 0, x, slope * x),
    }[activation]  # fmt: skip
    found = reference.activate(x, activation, slope)
    assert found.dtype == np.float32
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert np.allclose(reference.activate(x.astype(np.float64), activation, slope), expected, rtol=1e-6, atol=1e-15)


def _draw_pool(draw):
    """A pooling whose padding is smaller than its windows, and these no larger than the padded image."""
    image = [draw(st.integers(1, 11)) for _ in range(2)]
    window = [draw(st.integers(1, 4)) for _ in range(2)]
    padding = [draw(st.integers(0, extent - 1)) for extent in (*window, *window)]
    room = zip(image, window, padding[:2], padding[2:], strict=True)
    window = [min(size, extent + before + after) for extent, size, before, after in room]
    padding = [min(each, size - 1) for each, size in zip(padding, window * 2, strict=True)]
    window = [min(size, extent) for size, extent in zip(window, image, strict=True)]
    padding = [min(each, size - 1) for each, size in zip(padding, window * 2, strict=True)]
    stride = (draw(st.integers(1, 4)), draw(st.integers(1, 4))) if draw(st.booleans()) else None
    kind, ceil = draw(st.sampled_from(["max", "average"])), draw(st.booleans())
    return PoolLayer(kind, tuple(window), ceil, draw(st.integers(1, 3)), *image, stride, tuple(padding))


@given(st.composite(_draw_pool)(), st.sampled_from(get_args(Activation)), st.integers(1, 2))
def test_pooling_on_the_cpu_is_the_reference_s(layer, activation, images):
    x = np.random.default_rng(layer.H).standard_normal((images, layer.C, layer.H, layer.W)).astype(np.float32)
    expected = reference.pool(reference.activate(x.astype(np.float64), activation, 0.25), layer)
    found = inference.pool(x, layer, activation, 0.25)
    assert found.dtype == np.float32
    assert found.shape == expected.shape == (images, *layer.gives)
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)


def network_of(layers, **given):
    return Network("mine", Description.model_validate({"input": given, "layers": layers}))


EVERYTHING = network_of(
    [
        {"conv": {"out_channels": 5, "kernel_size": 3, "stride": 2, "padding": 1, "activation": "relu"}},
        {"pool": {"size": 2, "kind": "average", "ceil": True}},
        {"conv": {"out_channels": 4, "kernel_size": 2, "padding": 1, "activation": "leaky_relu", "slope": 0.6}},
        {"conv": {"out_channels": 6, "kernel_size": [1, 3], "padding": "same", "bias": True, "activation": "leaky_relu"}},
        {"pool": {"size": 3, "stride": [2, 1], "padding": 1}},
        {"conv": {"out_channels": 4, "kernel_size": 2, "dilation": [1, 2], "groups": 2, "batch_norm": True}},
        {"pool": {"size": 2, "ceil": True}},
        {"fc": {"out_features": 11, "activation": "sigmoid"}},
        {"fc": {"out_features": 10}},
    ],
    size=[21, 34], channels=3, scale=0.01, resizing="pad",
)  # fmt: skip


def test_a_network_of_every_kind_of_layer_predicts_what_the_reference_does(general_cpu_variant):
    generator = np.random.default_rng(11)
    shapes = EVERYTHING.parameters.items()
    parameters = {name: 0.9 * generator.standard_normal(shape).astype(np.float32) for name, shape in shapes}
    images = generator.integers(0, 256, (150, 3, 21, 34), dtype=np.uint8)
    predicted, op_s = inference.load(general_cpu_variant, EVERYTHING, parameters)(images)
    expected = reference.labels(EVERYTHING, parameters, images)
    assert len(op_s) == 4
    assert len(set(expected)) > 3
    assert (predicted != expected).sum() <= 1


def test_a_variant_that_is_told_of_no_bias_computes_no_network_with_one(cpu_variant):
    layers = [{"conv": {"out_channels": 2, "kernel_size": 3, "bias": True}}, {"fc": {"out_features": 10}}]
    network = network_of(layers, size=28)
    parameters = {name: np.zeros(shape, np.float32) for name, shape in network.parameters.items()}
    variant = cpu_variant("y[...] = convolve(x, w)")
    with pytest.raises(UserError, match="mine does not say that it handles the optional input bias"):
        inference.load(variant, network, parameters)(np.zeros((3, 1, 28, 28), np.uint8))


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
