import gzip
import os

import numpy as np
import pytest

from warpbook.common.errors import UserError
from warpbook.common.files import PROJECT
from warpbook.problems import fashion_mnist, image_files, networks

LABELS = "t10k-labels-idx1-ubyte.gz"


def test_resizing_equals_scikit_image_bit_for_bit():
    # Values of skimage.transform.resize(image / 256.0, (6, 6), mode="constant", cval=0) * 256, truncated.
    image = np.array([[0, 255, 128], [64, 7, 200], [255, 255, 1]], np.uint8)
    expected = np.load(PROJECT / "tests" / "data" / "resized_by_scikit_image.npz")
    assert np.array_equal(fashion_mnist.resize(image[None], 6, 6)[0], expected["small"])
    photograph = fashion_mnist.read_idx("t10k-images-idx3-ubyte.gz")[:3]
    for side in (48, 64, 72):
        assert np.array_equal(fashion_mnist.resize(photograph, side, side), expected[f"side_{side}"])


def test_images_of_their_own_size_are_left_alone():
    images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    assert fashion_mnist.resize(images, 28, 28) is images


def test_each_edge_is_resized_by_itself():
    images = np.random.default_rng(7).integers(0, 256, (2, 5, 7), dtype=np.uint8)
    tall = fashion_mnist.resize(images, 9, 7)
    assert tall.shape == (2, 9, 7)
    assert np.array_equal(fashion_mnist.resize(images.transpose(0, 2, 1), 7, 9), tall.transpose(0, 2, 1))
    assert np.array_equal(fashion_mnist.resize(tall, 9, 7), tall)


def test_padding_keeps_the_middle():
    image = np.arange(1, 7, dtype=np.uint8).reshape(1, 2, 3)
    assert fashion_mnist.pad(image, 4, 3).tolist() == [[[0, 0, 0], [1, 2, 3], [4, 5, 6], [0, 0, 0]]]
    assert fashion_mnist.pad(image, 2, 1).tolist() == [[[2], [5]]]


def test_cached_images_have_the_network_s_shape(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "CACHE", tmp_path)
    described = {
        "input": {"channels": 3, "size": [7, 9]},
        "layers": [{"conv": {"out_channels": 1, "kernel_size": 3}}, {"fc": {"out_features": 10}}],
    }
    network = networks.Network("small", networks.Description.model_validate(described))
    for _ in ("made", "cached"):
        images, labels = fashion_mnist.load(network)
        assert images.shape == (10_000, 3, 7, 9)
        assert labels[:5].tolist() == [9, 2, 1, 1, 6]
        assert len(labels) == 10_000
        assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


def own_images(tmp_path, images, labels, **given):
    """A network of three classes on images and labels of files of its own."""
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    described = {
        "input": {"data": str(tmp_path / "images.npy"), "labels": str(tmp_path / "labels.npy"), **given},
        "layers": [{"conv": {"out_channels": 1, "kernel_size": 3}}, {"fc": {"out_features": 3}}],
    }
    return networks.Network("own", networks.Description.model_validate(described))


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.parametrize("order", ["channels first", "channels last", "grey"])
def test_own_images_come_as_they_are_channels_first(tmp_path, monkeypatch, kind, order):
    monkeypatch.setattr(fashion_mnist, "CACHE", tmp_path / "cache")
    expected = np.random.default_rng(3).integers(0, 256, (4, 1 if order == "grey" else 3, 5, 7)).astype(kind)
    given = {"channels first": expected, "channels last": expected.transpose(0, 2, 3, 1), "grey": expected[:, 0]}
    network = own_images(tmp_path, given[order], np.array([0, 2, 1, 1]), size=[5, 7], channels=expected.shape[1])
    for _ in ("made", "cached"):
        images, labels = fashion_mnist.load(network)
        assert images.dtype == kind
        assert np.array_equal(images, expected)
        assert labels.tolist() == [0, 2, 1, 1]
    assert fashion_mnist.count(network) == 4
    assert fashion_mnist.as_kept(images, network).flags.c_contiguous
    assert fashion_mnist.normalize(images, network, np.float32).dtype == np.float32


def test_own_images_that_changed_are_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "CACHE", tmp_path / "cache")
    network = own_images(tmp_path, np.zeros((2, 5, 5), np.uint8), np.array([0, 1]), size=5)
    assert fashion_mnist.load(network)[0].max() == 0
    own_images(tmp_path, np.ones((3, 5, 5), np.uint8), np.array([0, 1, 2]), size=5)
    os.utime(tmp_path / "images.npy", ns=(2**62, 2**62))
    assert fashion_mnist.load(network)[0].shape == (3, 1, 5, 5)


def test_own_images_that_do_not_fit_are_named_with_the_remedy(tmp_path):
    images, labels = np.zeros((2, 5, 5), np.uint8), np.array([0, 1])
    for bad_images, bad_labels, words in (
        (images.astype(float), labels, "images.npy holds float64, and images are uint8 or float32; convert them by"),
        (
            np.zeros((2, 5, 6), np.uint8),
            labels,
            "images.npy holds images of shape (1, 5, 6), and own takes 1 channels of 5 x 5",
        ),
        (images, np.array([0, 1, 2]), "labels.npy holds int64 of shape (3,), and images.npy has 2 images; give each a"),
        (images, np.array([0.0, 1.0]), "labels.npy holds float64 of shape (2,), and images.npy has 2 images"),
        (images, np.array([0, 3]), "labels.npy holds the label 3, outside 0 to 2, the classes that own gives; set"),
        (images, np.array([-1, 0]), "labels.npy holds the label -1, outside 0 to 2"),
    ):
        with pytest.raises(UserError) as raised:
            image_files.read(own_images(tmp_path, bad_images, bad_labels, size=5))
        assert words in str(raised.value)
    network = own_images(tmp_path, images, labels, size=5)
    (tmp_path / "labels.npy").unlink()
    with pytest.raises(UserError, match=r"labels\.npy cannot be read: .*No such file"):
        image_files.read(network)
    np.savez(tmp_path / "several.npz", images=images)
    (tmp_path / "several.npz").rename(tmp_path / "labels.npy")
    with pytest.raises(UserError, match=r"labels\.npy holds several arrays; write one by np\.save"):
        image_files.read(network)


def test_a_damaged_or_foreign_file_is_refused_by_name(tmp_path, monkeypatch):
    for content, words in [
        (gzip.compress(b"\0\0\x08\x01" + (10_000).to_bytes(4, "big") + bytes(10_000)), "SHA-256"),
        (b"not a gzip file", "not a whole gzip file"),
        (gzip.compress(bytes(100_000))[:60], "not a whole gzip file"),
    ]:
        (tmp_path / LABELS).write_bytes(content)
        monkeypatch.setenv("FASHION_MNIST", str(tmp_path))
        with pytest.raises(UserError, match=words) as raised:
            fashion_mnist.read_idx(LABELS)
        assert str(tmp_path / LABELS) in str(raised.value)


def test_without_data_or_network_every_place_looked_at_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FASHION_MNIST", str(tmp_path / "mine"))
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setattr(fashion_mnist, "DOWNLOAD_FOLDER", tmp_path / "downloaded")
    monkeypatch.setattr(fashion_mnist, "DOWNLOAD_URL", "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(UserError) as raised:
        fashion_mnist.read_idx(LABELS)
    for place in ("mine", "debian", "downloaded"):
        assert str(tmp_path / place / LABELS) in str(raised.value)
    assert "apt-get install dataset-fashion-mnist" in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_cache_is_named_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "CACHE", tmp_path)
    (tmp_path / "fa17.npz").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(UserError, match=r"fa17\.npz is damaged.*delete it"):
        fashion_mnist.load(networks.find("fa17"))
