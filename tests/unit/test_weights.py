import struct

import numpy as np
import pytest

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
    with pytest.raises(UserError, match=r"fc1.weight \(140, 10816\) fits 0 of the arrays offered .*fullyconnected0"):
        weights.match(weights.read_mxnet(reference_model), networks.find("fa18"))


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
    for offered in (arrays, foreign, {**arrays, "more": arrays["fc1.bias"]}):
        np.savez(tmp_path / "small.npz", **offered)
        parameters, form = weights.read(tmp_path / "small.npz", small())
        assert form == "a NumPy file"
        assert {name: array.shape for name, array in parameters.items()} == small().parameters
    np.savez(tmp_path / "small.npz", **foreign, more=arrays["fc1.bias"])
    with pytest.raises(UserError, match=r"fc1.bias \(10,\) fits 2 of the arrays offered"):
        weights.read(tmp_path / "small.npz", small())


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
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    network = networks.find("sp19")
    parameters = {name: np.full(shape, 0.25, np.float16) for name, shape in network.parameters.items()}
    weights.save(parameters, {"imported_from": "a test"}, weights.weights_path(network, "trained"))
    loaded = weights.load(network, "trained")
    assert all(array.dtype == np.float32 and (array == 0.25).all() for array in loaded.values())
    assert weights.provenance(network, "trained") == {"imported_from": "a test"}


def test_missing_weights_are_named_with_the_way_to_import_them(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=r"sp19\.npz does not exist; train .* import them .* --network sp19"):
        weights.load(networks.find("sp19"), "trained")


def test_rounding_keeps_the_asked_bits_of_the_mantissa():
    values = np.array([1.0, 1.015625, -0.3, 1e-3, 0.0])
    rounded = weights.round_mantissa(values, 6).astype(float)
    assert np.abs(rounded - values).max() <= 2.0**-7 * 1.02
    assert rounded[0] == 1.0
    assert rounded[4] == 0.0
    assert (rounded.astype(np.float16).view(np.uint16) & 0xF == 0).all()
