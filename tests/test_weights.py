import numpy as np
import pytest

from warpbook import data, networks, variants, weights
from warpbook.errors import UserError
from warpbook.harness import inference

PUBLISHED = {("fa17", "high"): 0.8562, ("fa18", "trained"): 0.8451, ("fa19", "trained"): 0.7653}


@pytest.mark.parametrize(("network", "weight_set"), PUBLISHED, ids=str)
def test_shipped_weights_reach_the_published_correctness_on_a_thousand_images(network, weight_set):
    network = networks.find(network)
    images, labels = data.load(network)
    predict = inference.load(variants.read("simd"), network, weights.load(network, weight_set))
    accuracy = (predict(images[:1000])[0] == labels[:1000]).mean()
    assert accuracy >= PUBLISHED[network.name, weight_set]
    assert accuracy == weights.provenance(network, weight_set)["accuracy"]["1000"]


@pytest.mark.parametrize(("network", "weight_set"), PUBLISHED, ids=str)
def test_shipped_weights_record_an_accuracy_on_all_images_above_the_published(network, weight_set):
    story = weights.provenance(networks.find(network), weight_set)
    assert story["accuracy"]["10000"] >= PUBLISHED[network, weight_set]
    assert {"seed", "steps", "optimizer", "torch"} <= story.keys()


def test_low_weights_are_deliberately_bad():
    accuracy = weights.provenance(networks.find("fa17"), "low")["accuracy"]["10000"]
    assert 0.60 < accuracy < 0.66


def test_shipped_weights_take_less_than_twenty_megabytes():
    assert sum(path.stat().st_size for path in weights.FOLDER.glob("fa*.npz")) < 20e6


REFERENCE = {100: 0.84, 1000: 0.852, 10000: 0.8397}
CPU = [name for name, variant in variants.discover().items() if variant.device == "cpu"]


@pytest.mark.parametrize("name", CPU)
def test_reference_model_is_imported_and_predicts_as_published_with(name, reference_model):
    variant = variants.read(name)
    if variant.missing:
        pytest.skip(variant.missing)
    network = networks.find("sp19")
    parameters = weights.match(weights.read_mxnet(reference_model), network)
    images, labels = data.load(network)
    right = inference.load(variant, network, parameters)(images)[0] == labels
    for size, published in REFERENCE.items():
        assert abs(right[:size].sum() - published * size) <= 1 + 1e-9


def test_parameters_of_another_network_are_refused_with_what_was_offered(reference_model):
    with pytest.raises(UserError, match=r"fc1.weight \(140, 10816\) fits 0 of the arrays offered .*fullyconnected0"):
        weights.match(weights.read_mxnet(reference_model), networks.find("fa18"))


@pytest.mark.parametrize("keep", [0, 7, 23, 24, 40, 100, 5000, -1])
def test_a_truncated_parameter_file_is_refused(reference_model, tmp_path, keep):
    cut = tmp_path / "cut.params"
    cut.write_bytes(reference_model.read_bytes()[:keep])
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
    weights.save(parameters, {"imported_from": "a test"}, weights.path_of(network, "trained"))
    loaded = weights.load(network, "trained")
    assert all(array.dtype == np.float32 and (array == 0.25).all() for array in loaded.values())
    assert weights.provenance(network, "trained") == {"imported_from": "a test"}


def test_missing_weights_are_named_with_the_way_to_import_them(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=r"sp19\.npz does not exist; train .* import them .* --network sp19"):
        weights.load(networks.find("sp19"), "trained")


def test_rounding_keeps_the_asked_bits_of_the_mantissa():
    values = np.array([1.0, 1.015625, -0.3, 1e-3, 0.0])
    rounded = weights.rounded(values, 6).astype(float)
    assert np.abs(rounded - values).max() <= 2.0**-7 * 1.02
    assert rounded[0] == 1.0
    assert rounded[4] == 0.0
    assert (rounded.astype(np.float16).view(np.uint16) & 0xF == 0).all()
