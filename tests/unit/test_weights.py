import json
import struct
import sys

import numpy as np
import pytest

import onnx_networks
from warpbook.common.errors import UserError
from warpbook.problems import networks, weights
from warpbook.problems.networks import Description, Network

PUBLISHED = {
    ("fa17", "high"): 0.8562,
    ("fa18", "trained"): 0.8451,
    ("fa19", "trained"): 0.7653,
    ("ece408", "trained"): 0.8714,
}


def test_shipped_weights_record_an_accuracy_on_all_images_above_the_published():
    for (network, weight_set), published in PUBLISHED.items():
        story = weights.provenance(networks.find(network), weight_set)
        assert story["accuracy"]["10000"] >= published, network
        assert {"seed", "steps", "optimizer", "torch"} <= story.keys(), network


def test_low_weights_are_deliberately_bad():
    accuracy = weights.provenance(networks.find("fa17"), "low")["accuracy"]["10000"]
    assert 0.60 < accuracy < 0.66


def test_shipped_weights_take_less_than_twenty_megabytes():
    sizes = {key: weights.weights_path(networks.find(key[0]), key[1]).stat().st_size for key in PUBLISHED}
    assert sum(sizes.values()) < 20e6
    assert sizes["ece408", "trained"] < 1e6


def test_parameters_of_another_network_are_refused_with_what_was_offered(reference_model):
    with pytest.raises(
        UserError, match=r"fa18's fc1.weight \(140, 10816\) fits 0 of the arrays left, .*fullyconnected0"
    ):
        weights.read(reference_model, networks.find("fa18"))


def test_the_course_s_weights_are_refused_for_another_network(course_weights):
    with pytest.raises(UserError, match=r"holds layers of 200, 3152, 41504, 330 numbers, and fa18 needs 156, 2416, "):
        weights.read(course_weights, networks.find("fa18"))


def small() -> Network:
    layers = [
        {"conv": {"out_channels": 2, "kernel_size": 3, "activation": "relu"}},
        {"pool": {"size": 2}},
        {"fc": {"out_features": 10}},
    ]
    return Network("small", Description.model_validate({"input": {"size": 6}, "layers": layers}))


def course_file(*layers: list[float]) -> bytes:
    """As the course writes them: a count of layers, then each layer's count of numbers and its numbers."""
    parts = (struct.pack("<i", len(layer)) + np.array(layer, "<f4").tobytes() for layer in layers)
    return struct.pack("<i", len(layers)) + b"".join(parts)


SMALL = [list(range(20)), [], [], [0.5 * number for number in range(90)]]


def test_a_file_of_the_course_gives_each_layer_s_weights_and_the_biases_of_those_that_have_some(tmp_path):
    (tmp_path / "small.bin").write_bytes(course_file(*SMALL))
    parameters, _ = weights.read(tmp_path / "small.bin", small())
    assert parameters.keys() == {"conv1.weight", "fc1.weight", "fc1.bias"}
    assert parameters["conv1.weight"].ravel().tolist() == list(range(18))
    assert parameters["fc1.weight"][1].tolist() == [4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5]
    assert parameters["fc1.bias"].tolist() == [0.5 * number for number in range(80, 90)]


def test_what_is_no_file_of_the_course_is_refused(tmp_path):
    for content, words in [
        (course_file(*SMALL)[:-1], "1 bytes short: truncated"),
        (course_file(*SMALL) + b"1", "has 1 bytes behind its last layer"),
        (course_file(), "holds layers of no numbers, and small needs 20, 90"),
        (struct.pack("<ii", 1, -1), "gives a layer -1 numbers; the file is damaged"),
        (b"", "4 bytes short: truncated"),
    ]:
        (tmp_path / "small.bin").write_bytes(content)
        with pytest.raises(UserError, match=words):
            weights.read(tmp_path / "small.bin", small())


def test_a_numpy_file_is_imported_by_names_and_else_by_shapes(tmp_path):
    arrays = {name: np.full(shape, 0.5) for name, shape in small().parameters.items()}
    foreign = {"first": arrays["conv1.weight"], "w": arrays["fc1.weight"], "b": arrays["fc1.bias"]}
    shuffled = dict(reversed(foreign.items()))
    for offered in (arrays, foreign, shuffled, {**arrays, "steps": np.array(3)}):
        np.savez(tmp_path / "small.npz", **offered)
        parameters, form = weights.read(tmp_path / "small.npz", small())
        assert form == "a NumPy file"
        assert {name: array.shape for name, array in parameters.items()} == small().parameters
    np.savez(tmp_path / "small.npz", **foreign, more=arrays["fc1.bias"])
    with pytest.raises(UserError, match=r"fc1.bias \(10,\) fits 2 of the arrays left, b \(10,\), more \(10,\)"):
        weights.read(tmp_path / "small.npz", small())


def npz(path, **arrays):
    np.savez(path, **{name.replace("__", "."): np.asarray(array, np.float64) for name, array in arrays.items()})
    return path


def test_what_does_not_fit_is_named_with_the_nearest(tmp_path):
    own = {name: np.full(shape, 0.5) for name, shape in small().parameters.items()}
    for change, words in (
        ({"fc1.bias": None}, "small's fc1.bias (10,) fits 0 of the arrays left, none; is this small?"),
        ({"fc1.bias": None, "fc1.bis": np.ones(9)}, "fc1.bias (10,) fits 0 of the arrays left, fc1.bis (9,)"),
        (
            {"fc1.bias": None, "fc1.bis": np.ones(9), "zz": np.ones((2, 2))},
            "fc1.bias (10,) fits 0 of the arrays left, the nearest fc1.bis (9,); is this small?",
        ),
        (
            {"conv1.weight": np.ones((2, 1, 5, 5))},
            "conv1.weight has the shape (2, 1, 5, 5), and small needs (2, 1, 3, 3)",
        ),
        ({"conv2.weigt": np.ones((3, 3))}, "conv2.weigt (3, 3) is no parameter of small: did you mean 'conv1.weight'?"),
    ):
        arrays = {name: array for name, array in {**own, **change}.items() if array is not None}
        with pytest.raises(UserError) as raised:
            weights.read(npz(tmp_path / "small.npz", **arrays), small())
        assert words in str(raised.value)


def test_a_bias_that_the_network_does_not_have_is_refused_from_whatever_file(tmp_path, monkeypatch):
    own = {name: np.full(shape, 0.5) for name, shape in small().parameters.items()}
    words = r"conv1.bias \(2,\) may be a bias, and small's conv1 has none; set `bias: true` there, or take it out"
    with pytest.raises(UserError, match=words):
        weights.read(npz(tmp_path / "small.npz", **own, **{"conv1.bias": np.ones(2)}), small())
    with pytest.raises(UserError, match=r"b0 \(2,\) may be a bias, and small's conv1 has none"):
        weights.read(npz(tmp_path / "small.npz", **own, b0=np.ones(2)), small())
    monkeypatch.setattr(weights, "FOLDERS", (tmp_path,))
    weights.save({**own, "conv1.bias": np.ones(2)}, {}, tmp_path / "small.npz")
    with pytest.raises(UserError, match=words):
        weights.load(small(), "trained")


def test_an_onnx_file_gives_the_weights_of_a_network_described_here(tmp_path):
    path = onnx_networks.lenet(tmp_path / "lenet.onnx")
    from_file = Network("lenet", Description.model_validate({"onnx": str(path)}))
    here = {"input": {"size": 28}, "layers": json.loads(from_file.description.model_dump_json())["layers"]}
    network = Network("lenet", Description.model_validate(here))
    parameters, form = weights.read(path, network)
    assert form == "an ONNX file"
    loaded = weights.load(from_file, "trained")
    assert all(np.array_equal(parameters[name], loaded[name]) for name in loaded)
    with pytest.raises(UserError, match=r"lenet.onnx: conv1.weight has the shape \(6, 1, 5, 5\), and small needs"):
        weights.read(path, small())


def normalized(bias: bool = False) -> Network:
    conv = {"out_channels": 2, "kernel_size": 3, "batch_norm": True, "bias": bias}
    layers = [{"conv": conv}, {"conv": {**conv, "bias": False}}, {"fc": {"out_features": 10}}]
    return Network("normal", Description.model_validate({"input": {"size": 6}, "layers": layers}))


def test_batch_normalisation_is_folded_when_weights_are_read(tmp_path):
    for bias in [False, True]:
        for eps in [None, 0.125]:
            network, drawn = normalized(bias), np.random.default_rng(4)
            arrays = {name: 1 + drawn.random(shape) for name, shape in network.unfolded_parameters.items()}
            found, _ = weights.read(
                npz(tmp_path / "normal.npz", **arrays, **({} if eps is None else {"conv1.eps": eps, "conv2.eps": eps})),
                network,
            )
            assert {name: array.shape for name, array in found.items()} == network.parameters
            for name in ("conv1", "conv2"):
                gamma, beta, mean, var = (arrays[f"{name}.{part}"] for part in ("gamma", "beta", "mean", "var"))
                scale = gamma / np.sqrt(var + (1e-5 if eps is None else eps))
                shift = beta + (arrays.get(f"{name}.bias", 0) - mean) * scale
                assert np.allclose(
                    found[f"{name}.weight"], arrays[f"{name}.weight"] * scale[:, None, None, None], rtol=1e-6
                )
                assert np.allclose(found[f"{name}.bias"], shift, rtol=1e-6, atol=1e-6)
            folded, _ = weights.read(npz(tmp_path / "folded.npz", **found), network)
            assert all(np.array_equal(folded[name], found[name]) for name in found)


def test_batch_normalisation_of_a_framework_is_read_in_its_order_and_by_its_words(tmp_path):
    network, drawn = normalized(), np.random.default_rng(4)
    ours = {name: 1 + drawn.random(shape) for name, shape in network.unfolded_parameters.items()}
    expected, _ = weights.read(npz(tmp_path / "ours.npz", **ours), network)
    torch = {
        "conv1": "conv1", "gamma": "weight", "beta": "bias", "mean": "running_mean", "var": "running_var"
    }  # fmt: skip
    theirs = {}
    for name, array in ours.items():
        layer, part = name.split(".")
        place = layer if part not in torch else f"bn{layer[-1]}"
        theirs[f"{place}.{torch.get(part, part)}"] = array
    by_words = {
        name.replace("gamma", "scale").replace("mean", "running_mean").replace("var", "running_var"): array
        for name, array in reversed(ours.items())
    }
    for arrays in (theirs, by_words):
        found, _ = weights.read(npz(tmp_path / "theirs.npz", **arrays), network)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_batch_normalisation_that_the_network_does_not_have_is_refused(tmp_path):
    own = {name: np.full(shape, 0.5) for name, shape in small().parameters.items()}
    for more, words in (
        (
            {"conv1.gamma": np.ones(2)},
            "conv1.gamma (2,) is of batch normalisation, and small's conv1 has none; set `batch_",
        ),
        (
            {"conv1.eps": 0.1},
            "conv1.eps is of batch normalisation, and small has none to fold there; set `batch_norm: true`",
        ),
    ):
        with pytest.raises(UserError) as raised:
            weights.read(npz(tmp_path / "small.npz", **own, **more), small())
        assert f"small.npz: {words}" in str(raised.value)


def test_a_file_whose_package_is_missing_says_what_to_install(tmp_path, monkeypatch):
    for ending, package in [("safetensors", "safetensors"), ("pt", "torch"), ("pth", "torch")]:
        monkeypatch.setitem(sys.modules, package, None)
        path = tmp_path / f"small.{ending}"
        path.write_bytes(b"anything")
        with pytest.raises(UserError, match=f"needs the Python package {package}: pip install {package}"):
            weights.read(path, small())


def test_a_safetensors_file_is_imported(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    own = {name: np.full(shape, 0.5, np.float32) for name, shape in small().parameters.items()}
    path = tmp_path / "small.safetensors"
    numpy.save_file(own, path)
    parameters, form = weights.read(path, small())
    assert form == "a safetensors file"
    assert {name: array.shape for name, array in parameters.items()} == small().parameters
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="is no safetensors file of float arrays"):
        weights.read(path, small())


def test_a_numpy_file_of_objects_or_half_of_one_is_refused(tmp_path):
    path = tmp_path / "small.npz"
    np.savez(path, allow_pickle=True, objects=np.array([{}], object))
    with pytest.raises(UserError, match=r"small.npz is damaged, or holds more than arrays"):
        weights.read(path, small())
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UserError, match=r"small.npz is damaged"):
        weights.read(path, small())


def test_a_workload_has_no_weights_and_says_how_it_would():
    workload = Network(
        "w",
        Description.model_validate({"input": {"size": 9}, "layers": [{"conv": {"out_channels": 1, "kernel_size": 3}}]}),
    )
    with pytest.raises(
        UserError, match=r"w is a workload without classes: it has no weights, .* fc: {out_features: 10}"
    ):
        weights.weights_path(workload, "trained")


def test_a_truncated_parameter_file_is_refused(reference_model, tmp_path):
    cut, whole = tmp_path / "cut.params", reference_model.read_bytes()
    for keep in (0, 7, 23, 24, 40, 100, 5000, len(whole) - 1):
        cut.write_bytes(whole[:keep])
        with pytest.raises(UserError, match=r"cut\.params"):
            weights.read_mxnet(cut)


def test_a_foreign_file_is_refused_as_no_parameter_file(tmp_path):
    path = tmp_path / "photo.params"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    with pytest.raises(UserError, match="is not an MXNet parameter file"):
        weights.read_mxnet(path)


def test_weights_survive_being_saved_and_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "FOLDERS", (tmp_path,))
    network = networks.find("sp19")
    parameters = {name: np.full(shape, 0.25, np.float16) for name, shape in network.parameters.items()}
    weights.save(parameters, {"imported_from": "a test"}, weights.weights_path(network, "trained"))
    loaded = weights.load(network, "trained")
    assert all(array.dtype == np.float32 and (array == 0.25).all() for array in loaded.values())
    assert weights.provenance(network, "trained") == {"imported_from": "a test"}


def test_missing_weights_are_named_with_the_way_to_import_them(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "FOLDERS", (tmp_path,))
    with pytest.raises(UserError, match=r"sp19\.npz does not exist; train .* import them .* --network sp19"):
        weights.load(networks.find("sp19"), "trained")


def test_rounding_keeps_the_asked_bits_of_the_mantissa():
    values = np.array([1.0, 1.015625, -0.3, 1e-3, 0.0])
    rounded = weights.round_mantissa(values, 6).astype(float)
    assert np.abs(rounded - values).max() <= 2.0**-7 * 1.02
    assert rounded[0] == 1.0
    assert rounded[4] == 0.0
    assert (rounded.astype(np.float16).view(np.uint16) & 0xF == 0).all()
