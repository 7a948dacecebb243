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


IDENTITIES = {
    "fa17": "6d7b517844e97d8e9b523584e71eb9d53b625f43f3ccda5f9599148a2b346ca4",
    "fa18": "198499ecb679f1423731453dbf86c2748d4e5485d3744ad1189fdb541877366c",
    "sp19": "49439ca862f72d984881dc69efb90a41805e4694d95e6a08d956493da8aee379",
    "fa19": "e68e4b0339b571ce683e6854a34b2a563e3fa458a7b642cb8f5d7e681655d8a7",
    "ece408": "6dcd45c321a6483113e804bb50da445ca12a6bb9ebe02126ed98df31c14aa6f0",
}


def test_the_shipped_networks_are_those_of_recorded_runs():
    assert {name: networks.find(name).shapes_sha256 for name in IDENTITIES} == IDENTITIES
    dense = [f"fc{number}.{part}" for number in (1, 2) for part in ("weight", "bias")]
    two = ["conv1.weight", "conv2.weight", *dense]
    names = {name: list(networks.find(name).parameters) for name in IDENTITIES}
    assert names == {**dict.fromkeys(IDENTITIES, two), "fa17": ["conv1.weight", *dense]}


def test_padding_same_gives_an_output_for_each_stride_and_pads_at_the_end():
    for size, stride, (top, left, bottom, right) in [
        ([17, 22], 2, (1, 0, 1, 1)),
        ([17, 22], 1, (1, 1, 1, 1)),
        ([17, 22], [3, 1], (0, 1, 1, 1)),
        ([7, 3], [7, 3], (0, 0, 0, 0)),
    ]:
        conv = {"out_channels": 3, "kernel_size": 3, "stride": stride, "padding": "same"}
        (layer,) = described([{"conv": conv}], size).convs
        rows, columns = [stride, stride] if isinstance(stride, int) else stride
        assert layer.gives == (3, -(-size[0] // rows), -(-size[1] // columns))
        assert (layer.P, layer.PW, layer.P_end, layer.PW_end) == (top, left, bottom, right)


def test_what_a_convolution_does_not_say_is_no_part_of_its_case():
    plain = {"out_channels": 4, "kernel_size": 3, "padding": 1}
    full = {
        "out_channels": 4, "kernel_size": [3, 5], "stride": [2, 1], "padding": [0, 1, 2, 3], "dilation": [1, 2],
        "groups": 2, "batch_norm": True, "activation": "leaky_relu", "slope": 0.25,
    }  # fmt: skip
    network = described([{"conv": plain}, {"conv": full}], channels=2)
    first, second = network.convs
    assert first.unusual == {"P": 1} and not first.optional
    assert second.unusual == {
        "KW": 5, "S": 2, "SW": 1, "PW": 1, "P_end": 2, "PW_end": 3, "DW": 2, "G": 2
    }  # fmt: skip
    assert second.optional == {"bias"}
    assert network.parameters == {"conv1.weight": (4, 2, 3, 3), "conv2.weight": (4, 2, 3, 5), "conv2.bias": (4,)}
    parts = ["weight", "gamma", "beta", "mean", "var"]
    assert list(network.unfolded_parameters) == ["conv1.weight", *(f"conv2.{part}" for part in parts)]
    assert repr(network.steps[1]).endswith(", activation='leaky_relu', slope=0.25)")


def test_a_list_that_says_one_number_is_the_number_and_so_is_text():
    same = [3, [3, 3], "3", ["3", "3"]]
    found = [described([{"conv": {"out_channels": 1, "kernel_size": size}}]).description for size in same]
    assert all(one == found[0] for one in found)
    assert found[0].model_dump(exclude_defaults=True)["layers"][0]["conv"]["kernel_size"] == 3


def test_windows_have_strides_padding_and_may_be_the_whole_image():
    layers = [
        {"conv": {"out_channels": 2, "kernel_size": 1}},
        {"pool": {"size": 3, "stride": 2, "padding": "same"}},
        {"pool": {"size": [2, 3], "stride": [2, 1], "padding": [1, 0]}},
        {"pool": {"kind": "global_average"}},
    ]
    network = described(layers, [17, 22])
    _, same, uneven, whole = (step.layer for step in network.steps)
    assert (same.gives, same.padding) == ((2, 9, 11), (1, 0, 1, 1))
    assert uneven.gives == (2, 5, 9)
    assert (whole.kind, whole.size, whole.gives) == ("average", (5, 9), (2, 1, 1))
    assert not any(layer.has_plain_windows for layer in (same, uneven, whole))


def test_own_images_decide_the_classes_and_are_part_of_the_identity():
    layers = [{"conv": {"out_channels": 3, "kernel_size": 5}}, {"fc": {"out_features": 12}}]
    own = described(layers, data="images.npy", labels="labels.npy")
    assert own.classes == 12
    assert own.shapes_sha256 != described(layers, data="others.npy", labels="labels.npy").shapes_sha256
    for more, words in (
        ([{"fc": {"out_features": 300}}], "the last layer has 300 outputs, and the limit is 256 classes"),
        ([], "a workload takes random numbers, and input.data has images; end the network with fc"),
    ):
        with pytest.raises(ValueError, match=words):
            described([*layers[:1], *more], data="images.npy", labels="labels.npy")


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
            "conv.kernel_size: 0 is outside 1 to 65535; write 3, or [3, 5] for 3 rows and 5 columns",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 5, "activation": "gelu"}}],
            "should be 'none', 'tanh', 'relu', 'sigmoid' or 'leaky_relu' (it is 'gelu')",
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
            "the last layer has 12 outputs, and Fashion-MNIST 10 classes; write 10, or name your own images in",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": [3, 4, 5]}}],
            "conv.kernel_size: [3, 4, 5] is none; write 3, or [3, 5] for 3 rows and 5 columns",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 5, "padding": "valid"}}],
            "conv.padding: 'valid' is none; write 1, [1, 2] for rows and columns, [0, 0, 1, 1] for top, left, bottom",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": [3, 5], "padding": [3, 1]}}],
            "conv1 has padding [3, 1] with kernel_size [3, 5]; take a padding of at most 2, or a larger kernel",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 5, "dilation": 7}}],
            "conv1 has kernel_size 5 on 28 x 28 inputs; take a smaller kernel, or more padding",
        ),
        (
            [{"conv": {"out_channels": 6, "kernel_size": 3}}, {"conv": {"out_channels": 8, "kernel_size": 3, "groups": 4}}],
            "layers.1: conv2 has groups 4, and 6 input channels and 8 out_channels are not both multiples of it; take",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 3, "activation": "relu", "slope": 0.1}}],
            "layers.0.conv: slope is of leaky_relu, and the activation is relu; leave it out",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 3, "activation": "leaky_relu", "slope": -0.1}}],
            "conv.slope: Input should be greater than or equal to 0 (it is -0.1)",
        ),
        ([{"pool": {}}], "layers.0.pool: a pooling has a size, but for kind: global_average, whose window is the image"),
        ([{"pool": {"kind": "global_average", "size": 2}}], "layers.0.pool: a pooling has a size, but for kind:"),
        (
            [{"pool": {"size": 2, "padding": 2}}],
            "pool1 has padding 2 with size 2; take a padding of at most 1",
        ),
        (
            [{"conv": {"out_channels": 3, "kernel_size": 3, "input_shape": [1, 9, 9]}}, {"fc": {"out_features": 10}}],
            "layers with an input_shape are a workload of convolutions alone; leave pool and fc out",
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
        ({"size": 28, "data": "images.npy"}, "input: `data` and `labels` go together: a file of images and a file of"),
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
