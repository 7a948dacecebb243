"""Networks as config.yaml describes them: their shapes, and what is no network."""

import copy
import hashlib
import json

import pytest
import yaml

from warpbook.common.errors import UserError
from warpbook.config import settings
from warpbook.kernels import variants
from warpbook.problems import networks
from warpbook.problems.networks import Description, Network

KNOWN = list(variants.discover())
VALUES = yaml.safe_load(settings.FILE.read_text())
ONE_LAYER = {"input": {"channels": 64, "size": 56}, "layers": [{"conv": {"out_channels": 64, "kernel_size": 3}}]}


def described(layers, size=28, **more):
    """A network of layers as config.yaml would have it."""
    return Network("mine", Description.model_validate({"input": {"size": size, **more}, "layers": layers}))


def test_features_entering_the_first_fc_layer_follow_from_the_shapes():
    features = {"fa17": 7200, "fa18": 10816, "sp19": 5184, "fa19": 17496, "ece408": 1296}
    assert {name: networks.find(name).parameters["fc1.weight"][1] for name in features} == features
    assert {name: len(networks.find(name).parameters) for name in features} == {**dict.fromkeys(features, 6), "fa17": 5}


def test_second_layer_of_fa18_has_the_course_s_shapes():
    layer = networks.find("fa18").convs[1]
    assert (layer.C, layer.H, layer.M, layer.K) == (6, 30, 16, 5)
    assert layer.at(10).shape("y") == (10, 16, 26, 26)


def test_the_course_s_network_since_2020_has_its_shapes():
    first, pool, second, ceil_pool, *_ = (step.layer for step in networks.find("ece408").steps)
    assert (first.gives, pool.gives, second.gives, ceil_pool.gives) == (
        (4, 80, 80),
        (4, 40, 40),
        (16, 34, 34),
        (16, 9, 9),
    )


def test_stride_padding_and_what_is_left_over_at_an_edge_count_in_the_shapes():
    layers = [
        {"conv": {"out_channels": 3, "kernel_size": 3, "stride": 2, "padding": 1}},
        {"pool": {"size": 2, "kind": "average", "ceil": True}},
        {"pool": {"size": 2}},
    ]
    conv, ceil, floor = (step.layer for step in described(layers, [17, 22]).steps)
    assert (conv.gives, ceil.gives, floor.gives) == ((3, 9, 11), (3, 5, 6), (3, 2, 3))
    assert conv.at(2).flops == 2 * 2 * 3 * 9 * 11 * 9
    assert str(conv) == "1x17x22 * 3@3x3 stride 2 padding 1"


def test_bytes_and_operations_count_every_value_and_product_once():
    first, second = networks.find("fa18").convs
    assert second.at(10_000).flops == 2 * 10_000 * 16 * 26 * 26 * 150
    assert first.at(10_000).bytes == 4 * (10_000 * 64 * 64 + 6 * 25 + 10_000 * 6 * 60 * 60)


def test_shapes_have_an_identity_that_changes_with_them():
    hashes = {network.shapes_sha256 for network in networks.all_networks().values()}
    assert len(hashes) == len(networks.all_networks())
    conv = {"out_channels": 3, "kernel_size": 3}
    changed = [{}, {"stride": 2}, {"padding": 1}, {"activation": "relu"}, {"activation": "tanh"}]
    assert len({described([{"conv": {**conv, **change}}]).shapes_sha256 for change in changed}) == len(changed)
    assert described([{"conv": conv}]).shapes_sha256 != described([{"conv": conv}], scale=0.5).shapes_sha256


def test_an_identity_is_the_same_after_a_configuration_was_recorded_and_read_again():
    made = settings.read(KNOWN)
    again = settings.load(json.loads(made.recorded_json), KNOWN)
    for name in made.networks:
        assert (
            again.network(name).shapes_sha256 == made.network(name).shapes_sha256 == networks.find(name).shapes_sha256
        )


def test_an_identity_is_that_of_the_text_that_recorded_runs_used():
    text = "(28, (ConvLayer(name='conv1', C=1, H=28, W=28, M=50, K=5),), 500, 10)"
    assert networks.find("fa17").shapes_sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_unknown_network_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="no network is called 'fa18x': did you mean 'fa18'"):
        networks.find("fa18x")


def test_a_workload_of_one_layer_is_five_lines_and_has_no_weights():
    text = """\
networks:
  mine: {input: {channels: 64, size: 56}, layers: [{conv: {out_channels: 64, kernel_size: 3}}]}
studies:
  mine: {title: My layer, network: mine, sizes: [1, 10], sections: [analysis]}
study: mine
"""
    values = copy.deepcopy(VALUES) | yaml.safe_load(text)
    network = settings.load(values, KNOWN).network("mine")
    assert [str(conv) for conv in network.convs] == ["64x56x56 * 64@3x3"]
    assert network.weight_sets == ()
    assert not network.has_labels


def test_programs_read_what_a_command_set_over_the_file(monkeypatch):
    monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, json.dumps({"networks": {"mine": ONE_LAYER}}))
    assert list(networks.all_networks()) == ["mine"]
    assert networks.find("mine").convs[0].C == 64
    texts = {
        "input": {"channels": "64", "size": "56"},
        "layers": [{"conv": {"out_channels": "64", "kernel_size": "3"}}],
    }
    monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, json.dumps({"networks": {"mine": texts}}))
    assert networks.find("mine").convs == networks.Network("mine", networks.Description(**ONE_LAYER)).convs


def test_a_program_lists_what_is_wrong_with_the_networks(monkeypatch):
    wrong = {"mine": ONE_LAYER, "other": {**ONE_LAYER, "layer": 1}}
    monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, json.dumps({"networks": wrong}))
    with pytest.raises(UserError, match=r"config.yaml:\n  networks.other.layer: unknown key: did you mean 'layers'\?"):
        networks.find("mine")


def test_what_is_no_network_is_named_with_value_limit_and_remedy():
    for layers, words in [
        ([{"cnv": {}}], "networks.mine.layers.0.cnv: unknown key: did you mean 'conv'?"),
        (
            [{"conv": {"out_channel": 3, "kernel_size": 5}}],
            "networks.mine.layers.0.conv.out_channel: unknown key: did you mean",
        ),
        ([{"conv": {"out_channels": 3}}], "networks.mine.layers.0.conv.kernel_size: missing"),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 0}}],
            "conv.kernel_size: Input should be greater than or equal to 1 (it is 0)",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 5, "activation": "gelu"}}],
            "should be 'none', 'tanh' or 'relu' (it is 'gelu')",
        ),
        ([{}], "networks.mine.layers.0: a layer is one of conv, pool and fc, and this says nothing"),
        ([{"conv": {"out_channels": 3, "kernel_size": 5}, "pool": {"size": 2}}], "and this says conv and pool"),
        ([], "networks.mine.layers: List should have at least 1 item"),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 5}}, {"pool": {"size": 5}},
             {"conv": {"out_channels": 3, "kernel_size": 7}}],
            "networks.mine: layers.2: conv2 has kernel_size 7 on 4 x 4 inputs; take a smaller kernel, or more padding",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 5, "padding": 5}}],
            "conv1 has padding 5 with kernel_size 5; take a padding of at most 4",
        ),
        ([{"pool": {"size": 29}}], "layers.0: pool1 pools 29 x 29 of 28 x 28; take a smaller size"),
        (
            [{"fc": {"out_features": 10}}, {"conv": {"out_channels": 3, "kernel_size": 1}}],
            "layers.1: conv1 follows a fully connected layer, which leaves no image; put it before",
        ),
        ([{"fc": {"out_features": 10}}], "no layer is a convolution, which is what kernels compute; add conv:"),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 5}}, {"fc": {"out_features": 12}}],
            "the last layer has 12 outputs, and Fashion-MNIST 10 classes; write 10, or leave fc out",
        ),
        (
            [{"conv": {"out_channels": 65535, "kernel_size": 255, "padding": 254}}],
            "layers.0: an image has 5211605340 values there, and the limit is 2147483647",
        ),
    ]:  # fmt: skip
        values = copy.deepcopy(VALUES)
        values["networks"]["mine"] = {"input": {"size": 28}, "layers": layers}
        with pytest.raises(UserError) as raised:
            settings.load(values, KNOWN)
        assert words in str(raised.value)


def test_what_is_no_input_is_named_with_value_limit_and_remedy():
    for given, words in [
        ({"size": "big"}, "networks.mine.input.size: 'big' is no size; write 64, or [48, 72] for 48 rows of 72 pixels"),
        ({"size": [1, 2, 3]}, "[1, 2, 3] is no size"),
        ({"size": 0}, "networks.mine.input.size.0: Input should be greater than or equal to 1 (it is 0)"),
        ({"size": 500}, "images of 500 x 500 pixels are larger than the limit, 100000 pixels; take a smaller size"),
        ({"size": 28, "scale": 0}, "networks.mine.input.scale: Input should be greater than 0 (it is 0)"),
        ({"size": 28, "resizing": "nearest"}, "Input should be 'bilinear' or 'pad' (it is 'nearest')"),
        ({"size": 28, "chanels": 3}, "networks.mine.input.chanels: unknown key: did you mean 'channels'?"),
    ]:
        values = copy.deepcopy(VALUES)
        values["networks"]["mine"] = {
            "input": given,
            "layers": [{"conv": {"out_channels": 3, "kernel_size": 5}}, {"fc": {"out_features": 10}}],
        }
        with pytest.raises(UserError) as raised:
            settings.load(values, KNOWN)
        assert words in str(raised.value)


def test_names_that_could_be_no_file_s_are_refused():
    values = copy.deepcopy(VALUES)
    values["networks"]["../mine"] = ONE_LAYER
    values["networks"]["mine"] = {**ONE_LAYER, "weights": ["High"]}
    with pytest.raises(UserError) as raised:
        settings.load(values, KNOWN)
    assert "'../mine' is no name of letters, digits and underscores; rename the network" in str(raised.value)
    assert "networks.mine.weights: 'High' is no name of its own in small letters" in str(raised.value)
