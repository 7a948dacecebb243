"""Networks read from ONNX files: they compute what ONNX Runtime does, and what cannot be expressed is named."""

import json

import numpy as np
import pytest
import yaml

import onnx_networks
from onnx_networks import drawn, save
from warpbook.common.errors import UserError
from warpbook.config import settings
from warpbook.harness import reference
from warpbook.kernels import variants
from warpbook.problems import networks, onnx_models, weights
from warpbook.problems.networks import Description, Network


def network_of(path, **more):
    return Network("mine", Description.model_validate({"onnx": str(path), **more}))


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_a_lenet_with_biases_gives_what_onnx_runtime_gives(tmp_path):
    path = onnx_networks.lenet(tmp_path / "lenet.onnx")
    network = network_of(path)
    images = drawn(5, 1, 28, 28, scale=1)
    found = reference.outputs(network, weights.load(network, "trained"), images)
    assert np.allclose(softmax(found), onnx_networks.outputs(path, images), atol=1e-5, rtol=0)
    assert network.shapes_sha256 != networks.find("fa17").shapes_sha256
    assert list(network.parameters) == [
        f"{layer}.{part}" for layer in ("conv1", "conv2", "fc1", "fc2") for part in ("weight", "bias")
    ]


def test_a_keras_like_network_gives_what_onnx_runtime_gives_its_batch_normalisation_folded(tmp_path):
    path = onnx_networks.keras_like(tmp_path / "keras.onnx")
    network = network_of(path)
    images = drawn(5, 3, 17, 22, scale=1)
    found = reference.outputs(network, weights.load(network, "trained"), images)
    assert np.allclose(found, onnx_networks.outputs(path, images), atol=1e-5, rtol=0)
    assert [" ".join(sorted(conv.unusual)) for conv in network.convs] == [
        "P PW PW_end S",
        "G P",
        "D DW KW P PW PW_end P_end",
    ]
    assert [len(conv.optional) for conv in network.convs] == [1, 1, 0]


def test_convolutions_and_windows_of_any_kind_are_those_of_onnx_runtime(tmp_path):
    for attributes, shape in [
        ({"strides": [2, 3], "pads": [1, 0, 2, 2]}, (4, 2, 3, 5)),
        ({"dilations": [3, 2], "pads": [1, 2, 2, 3]}, (4, 2, 2, 4)),
        ({"strides": [3, 3], "auto_pad": "SAME_UPPER"}, (4, 2, 4, 3)),
        ({"group": 2, "auto_pad": "VALID"}, (6, 1, 3, 2)),
    ]:
        for pool in ["MaxPool", "AveragePool"]:
            window = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 2, 0], "ceil_mode": 1}
            nodes = [("Conv", ["x", "w"], "conv", attributes), (pool, ["conv"], "y", window)]
            path = save(tmp_path / "one.onnx", nodes, {"w": drawn(*shape)}, (2, 17, 22), None)
            network = network_of(path)
            images = drawn(3, 2, 17, 22)
            found = reference.outputs(network, onnx_models.read(path).parameters, images)
            expected = onnx_networks.outputs(path, images)
            assert found.shape == expected.shape
            assert np.allclose(found, expected, atol=1e-5, rtol=0)


def test_softmax_is_left_out_and_the_weights_say_so(tmp_path):
    network = network_of(onnx_networks.lenet(tmp_path / "lenet.onnx"))
    story = weights.provenance(network, "trained")["imported_from"]
    assert story.startswith("read from lenet.onnx of SHA-256 ")
    assert story.endswith("; node y (Softmax) is left out: labels are the same without it")
    assert weights.available_sets(network) == ["trained"]


def test_convolutions_of_a_residual_block_are_a_workload_each_shape_once(tmp_path):
    path = onnx_networks.residual_block(tmp_path / "block.onnx")
    network = network_of(path, layers_only=True)
    assert [str(conv) for conv in network.convs] == [
        "3x14x14 * 8@3x3 stride 2 padding 1",
        "8x7x7 * 8@3x3 padding 1 bias",
    ]
    assert not network.has_labels


def test_a_process_that_cannot_read_the_file_knows_the_network(tmp_path, monkeypatch):
    path = onnx_networks.keras_like(tmp_path / "keras.onnx")
    network = network_of(path)
    given = {"networks": {"mine": {"onnx": str(path), "input": {"scale": 0.5}}}, "studies": {"one": {}}}
    monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, json.dumps(given))
    resolved = networks.resolved_configuration()
    path.unlink()
    monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, resolved)
    assert networks.find("mine").steps == network.steps
    assert networks.find("mine").input.scale == 0.5
    assert json.loads(resolved)["studies"] == {"one": {}}
    content = json.loads(json.dumps(network.description.model_dump()))
    assert Network("mine", Description.model_validate(content)) == network


def test_a_study_of_a_network_from_a_file_is_checked_as_any(tmp_path):
    values = yaml.safe_load(settings.FILE.read_text())
    values["networks"]["mine"] = {"onnx": str(onnx_networks.lenet(tmp_path / "lenet.onnx"))}
    values["studies"]["mine"] = {"title": "Mine", "network": "mine", "sizes": [10], "sections": ["analysis"]}
    config = settings.load(values, list(variants.discover()))
    assert [str(case) for case in config.case_set("mine").cases] == [
        "1x28x28 * 6@5x5 padding 2 bias",
        "6x14x14 * 16@5x5 bias",
    ]


W = {"w": drawn(4, 1, 3, 3)}
CONV = ("Conv", ["x", "w"], "conv", {})
POOLED = ("AveragePool", ["conv"], "pool", {"kernel_shape": [2, 2], "strides": [2, 2]})
ALONE = "; write `layers_only: true` for a workload of its convolutions alone"


def test_what_a_network_cannot_express_is_named_with_its_node_and_a_remedy(tmp_path):
    for nodes, constants, words in [
        ([CONV, ("Clip", ["conv"], "y", {})], W, "node y (Clip) is none of Conv, BatchNormalization, "),
        ([CONV, ("Clip", ["conv"], "y", {})], W, f"Dropout and Constant{ALONE}"),
        (
            [CONV, ("Relu", ["conv"], "relu", {}), ("Add", ["conv", "relu"], "y", {})],
            W,
            f"conv goes to node relu (Relu) and node y (Add), and a network is a chain of layers{ALONE}",
        ),
        (
            [CONV, ("Shape", ["conv"], "shape", {}), ("Reshape", ["conv", "shape"], "y", {})],
            W,
            "flatten by torch.flatten(x, 1), or run onnxsim on the file",
        ),
        (
            [("Transpose", ["x"], "turned", {"perm": [0, 2, 3, 1]}), ("Conv", ["turned", "w"], "y", {})],
            W,
            "node turned (Transpose) is none of",
        ),
        (
            [("Transpose", ["x"], "turned", {"perm": [0, 2, 3, 1]}), ("Conv", ["turned", "w"], "y", {})],
            W,
            "; export it with images as (N, C, H, W) (tf2onnx: --inputs-as-nchw)",
        ),
        ([CONV, POOLED, ("Relu", ["pool"], "y", {})], W, "node y (Relu) follows no convolution or fully connected"),
        (
            [CONV, ("Relu", ["conv"], "relu", {}), ("Tanh", ["relu"], "y", {})],
            W,
            "node y (Tanh) follows no convolution or fully connected layer without activation",
        ),
        (
            [CONV, POOLED, ("Add", ["pool", "b"], "y", {})],
            {**W, "b": drawn(4, 1, 1)},
            "node y (Add) does not directly follow a convolution or fully connected layer",
        ),
        (
            [CONV, ("Add", ["conv", "b"], "y", {})],
            {**W, "b": drawn(26, 26)},
            "node y (Add) adds an array of shape (26, 26), which is no bias of conv1",
        ),
        ([CONV, ("Flatten", ["conv"], "y", {"axis": 2})], W, "flattens from axis 2 on; export it with axis 1"),
        (
            [CONV, ("Reshape", ["conv", "s"], "y", {})],
            {**W, "s": np.array([-1, 26, 104])},
            "node y (Reshape) reshapes to [-1, 26, 104], and only (images, features) is read",
        ),
        (
            [CONV, ("MaxPool", ["conv"], "y", {"kernel_shape": [2, 2], "dilations": [2, 2]})],
            W,
            "node y (MaxPool) has dilations [2, 2], and windows are whole here",
        ),
        (
            [CONV, ("AveragePool", ["conv"], "y", {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1})],
            W,
            "counts its padding in averages (count_include_pad); export it with count_include_pad=False",
        ),
        ([("Conv", ["x", "w"], "y", {"auto_pad": "SAME_LOWER"})], W, "has auto_pad SAME_LOWER; export it with pads"),
        (
            [CONV, ("Softmax", ["conv"], "soft", {"axis": 1}), ("Relu", ["soft"], "y", {})],
            W,
            "node y (Relu) follows Softmax, which is the last node of a network",
        ),
        ([CONV, ("Softmax", ["conv"], "y", {"axis": 2})], W, "is over axis 2, and scores are along axis 1"),
        (
            [CONV, ("MatMul", ["w", "conv"], "y", {})],
            W,
            "node y (MatMul) multiplies by no constant matrix on the right",
        ),
        (
            [CONV, ("MatMul", ["conv", "v"], "y", {})],
            {**W, "v": drawn(26, 5)},
            "node y (MatMul) takes an image that is not flattened; put Flatten before it",
        ),
        ([CONV, ("LeakyRelu", ["conv"], "y", {"alpha": -1.0})], W, "layers.0.conv.slope"),
    ]:
        path = save(tmp_path / "mine.onnx", nodes, constants, outputs=None)
        with pytest.raises(ValueError) as raised:
            network_of(path)
        assert words in str(raised.value)


def test_what_is_no_file_or_has_no_image_is_refused_in_a_line(tmp_path):
    (tmp_path / "text.onnx").write_text("no model")
    dynamic = save(tmp_path / "dynamic.onnx", [("Conv", ["x", "w"], "y", {})], W, (1, "h", 28), None)
    flat = save(tmp_path / "flat.onnx", [("MatMul", ["x", "w"], "y", {})], {"w": drawn(5, 10)}, (5,))
    no_conv = save(tmp_path / "none.onnx", [("Relu", ["x"], "y", {})], {}, outputs=None)
    for path, more, words in (
        (tmp_path / "nothing.onnx", {}, "nothing.onnx cannot be read: No such file or directory"),
        (tmp_path / "text.onnx", {}, "text.onnx is no ONNX file that can be read: "),
        (dynamic, {}, "dynamic.onnx: the input x has the dynamic shape (?, 1, ?, 28); export it with fixed channels"),
        (dynamic, {"layers_only": True}, "the input of node y (Conv) has the dynamic shape (?, 1, ?, 28)"),
        (flat, {}, "flat.onnx: the input x has the shape (?, 5), and images have (N, C, H, W)"),
        (no_conv, {"layers_only": True}, "none.onnx has no node Conv, and kernels compute convolutions"),
        (dynamic, {"input": {"size": 28}}, "dynamic.onnx says; leave it out"),
    ):
        with pytest.raises(ValueError) as raised:
            network_of(path, **more)
        assert words in str(raised.value)
        assert "\n" not in str(raised.value.errors()[0]["msg"])


def test_a_file_of_two_inputs_is_refused(tmp_path):
    import onnx

    path = save(tmp_path / "two.onnx", [("Conv", ["x", "w"], "y", {})], W, outputs=None)
    model = onnx.load(path)
    model.graph.input.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [1]))
    onnx.save(model, path)
    with pytest.raises(
        UserError, match=r"two\.onnx has the inputs x, z and the outputs y, and a network has one of each"
    ):
        onnx_models.read(path)


def test_layers_only_needs_a_file():
    with pytest.raises(ValueError, match="layers_only is of an ONNX file; name it with onnx:"):
        Description.model_validate(
            {"layers_only": True, "input": {"size": 9}, "layers": [{"conv": {"out_channels": 1, "kernel_size": 3}}]}
        )
