import pytest

from warpbook import networks
from warpbook.errors import UserError


@pytest.mark.parametrize(
    ("name", "features", "parameters"),
    [("fa17", 7200, 5), ("fa18", 10816, 6), ("sp19", 5184, 6), ("fa19", 17496, 6)],
)
def test_features_entering_the_first_fc_layer_follow_from_the_shapes(name, features, parameters):
    network = networks.find(name)
    assert network.features == features
    assert len(network.parameters) == parameters


def test_second_layer_of_fa18_has_the_course_s_shapes():
    layer = networks.find("fa18").convs[1]
    assert (layer.C, layer.H, layer.M, layer.K) == (6, 30, 16, 5)
    assert layer.y_shape(10) == (10, 16, 26, 26)


def test_bytes_and_operations_count_every_value_and_product_once():
    first, second = networks.find("fa18").convs
    assert second.flops(10_000) == 2 * 10_000 * 16 * 26 * 26 * 150
    assert first.bytes(10_000) == 4 * (10_000 * 64 * 64 + 6 * 25 + 10_000 * 6 * 60 * 60)


def test_shapes_have_an_identity_that_changes_with_them():
    hashes = {network.shapes_sha256 for network in networks.NETWORKS.values()}
    assert len(hashes) == len(networks.NETWORKS)


def test_unknown_network_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="no network is called 'fa18x': did you mean 'fa18'"):
        networks.find("fa18x")
