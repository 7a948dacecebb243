"""Implementations of whole networks: their files, and the arithmetic that they prepare, which needs no GPU."""

import importlib.util
import sys

import numpy as np
import pytest

pytest.importorskip("cupy")  # launchers import it, and it starts a process as it is imported

from warpbook.harness import reference
from warpbook.kernels import variants, whole_networks
from warpbook.problems import networks
from warpbook.problems.layers import ConvLayer

BUILT_IN = ["fa17", "fa18", "sp19", "fa19", "ece408"]


@pytest.fixture
def launcher(monkeypatch):
    """A launcher of kernels/network with NumPy in CuPy's place."""

    def imported(name):
        module = whole_networks.read(name).module
        monkeypatch.setattr(module, "cupy", np)
        return module

    return imported


def changed(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_each_says_what_it_is_and_comes_after_what_it_builds_on():
    found = whole_networks.discover()
    assert [one.read_error for one in found.values()] == [""] * len(found)
    assert all(one.header.title and one.header.idea and one.header.expect for one in found.values())
    places = list(found)
    below = {name: one.header.builds_on for name, one in found.items() if one.header.builds_on}
    assert all(places.index(under) < places.index(name) for name, under in below.items())


def test_identity_is_of_all_that_runs_and_of_no_words(copied_networks):
    before = {
        name: whole_networks.read(name).source_sha256 for name in ("unfused", "fused_mma", "fused_conv_fc_algebra")
    }
    changed(copied_networks / "fused_mma.cu", "title:     Layers in one kernel", "title:     Layers together")
    assert {name: whole_networks.read(name).source_sha256 for name in before} == before
    changed(copied_networks / "fused_mma.py", "MOST_CLASSES = 16", "MOST_CLASSES = 17")
    after = {name: whole_networks.read(name).source_sha256 for name in before}
    assert after["unfused"] == before["unfused"]
    assert (
        after["fused_mma"] != before["fused_mma"] and after["fused_conv_fc_algebra"] != before["fused_conv_fc_algebra"]
    )
    changed(copied_networks.parent / "conv" / "fp16x3_mma.cu", "conv_multi_channel_4_7_16", "conv_4_7_16")
    assert whole_networks.read("unfused").source_sha256 != before["unfused"]


def test_an_include_that_is_no_file_is_the_implementation_s_problem(copied_networks):
    changed(copied_networks / "unfused.cu", '"layers.cu"', '"nothing.cu"')
    assert '#include "nothing.cu": there is no such file in ' in whole_networks.read("unfused").read_error


def test_constants_of_what_is_included_are_known_and_give_way_to_an_implementation_s_own(copied_networks):
    included = variants.read("fp16x3_mma").header.constants
    assert included.items() <= whole_networks.read("fused_mma").constants.items()
    assert whole_networks.read("fused_conv_fc_algebra").constants == whole_networks.read("fused_mma").constants
    changed(copied_networks / "fused_mma.cu", "constants: {", "constants: {MULTI_4_THREADS: 64, ")
    assert whole_networks.read("fused_mma").constants["MULTI_4_THREADS"] == 64


def test_what_cannot_be_read_or_imported_is_one_failed_implementation(copied_networks, monkeypatch):
    (copied_networks / "mine.py").write_text('"""\ntitle: [\n"""\n')
    (copied_networks / "yours.py").write_text('"""\ntitle: Yours\n"""\nimport nothing_of_that_name\n')
    found = whole_networks.discover()
    assert found["mine"].read_error and not found["fused_mma"].read_error
    with pytest.raises(whole_networks.UserError, match=r"yours\.py: the launcher does not import: ModuleNotFoundError"):
        found["yours"].unsupported(networks.find("fa18"), 10)


@pytest.mark.parametrize("fused", ["fused_mma", "fused_wgmma"])
def test_the_fused_kernels_are_for_every_built_in_network(fused):
    one = whole_networks.read(fused)
    assert {name: why for name in BUILT_IN if (why := one.unsupported(networks.find(name), 10))} == {}


CONV = {"out_channels": 6, "kernel_size": 5, "activation": "tanh"}
MATRICES = [{"fc": {"out_features": 140}}, {"fc": {"out_features": 10}}]


def test_another_network_is_unsupported_with_the_reason():
    second = {"conv": {"out_channels": 16, "kernel_size": 5, "activation": "relu"}}
    for layers, reason in (
        ([{"conv": {"out_channels": 6, "kernel_size": 3}}, {"fc": {"out_features": 10}}], "first layer"),
        ([{"conv": CONV}, {"pool": {"size": 2}}, second, *MATRICES], "followed by relu"),
        ([{"conv": CONV}, {"pool": {"size": 3}}, *MATRICES], "pooled 2 x 2"),
    ):
        described = networks.Description.model_validate({"input": {"size": 64}, "layers": layers})
        assert reason in whole_networks.read("fused_mma").unsupported(networks.Network("mine", described), 10)


FC = [{"fc": {"out_features": 140, "activation": "tanh"}}, {"fc": {"out_features": 10}}]
LATER = {"out_channels": 16, "kernel_size": 5}
UNLIKE = {
    "bias": [{"conv": {**CONV, "bias": True}}, {"pool": {"size": 2}}, *FC],
    "batch norm": [{"conv": {**CONV, "batch_norm": True}}, {"pool": {"size": 2}}, *FC],
    "sigmoid": [{"conv": {**CONV, "activation": "sigmoid"}}, {"pool": {"size": 2}}, *FC],
    "padding": [{"conv": {**CONV, "padding": "same"}}, {"pool": {"size": 2}}, *FC],
    "columns": [{"conv": {**CONV, "kernel_size": [5, 3]}}, {"pool": {"size": 2}}, *FC],
    "stride of a row": [{"conv": {**CONV, "stride": [1, 2]}}, {"pool": {"size": 2}}, *FC],
    "dilation": [{"conv": {**CONV, "dilation": 2}}, {"pool": {"size": 2}}, *FC],
    "overlapping windows": [{"conv": CONV}, {"pool": {"size": 2, "stride": 1}}, *FC],
    "padded windows": [{"conv": CONV}, {"pool": {"size": 2, "padding": [1, 0]}}, *FC],
    "leaky hidden layer": [
        {"conv": CONV}, {"pool": {"size": 2}}, {"fc": {"out_features": 140, "activation": "leaky_relu"}}, FC[1]
    ],
    "later bias": [{"conv": CONV}, {"pool": {"size": 2}}, {"conv": {**LATER, "bias": True}}, *FC],
    "later groups": [{"conv": CONV}, {"pool": {"size": 2}}, {"conv": {**LATER, "groups": 2}}, *FC],
    "later leaky": [{"conv": CONV}, {"pool": {"size": 2}}, {"conv": {**LATER, "activation": "leaky_relu"}}, *FC],
}  # fmt: skip
FUSED = ("fused_mma", "fused_cublas", "fused_wgmma", "fused_conv_fc_algebra")


def test_what_a_fused_kernel_does_not_compute_does_not_slip_through():
    def reasons(layers):
        described = networks.Description.model_validate({"input": {"size": 64}, "layers": layers})
        network = networks.Network("mine", described)
        return {one: whole_networks.read(one).unsupported(network, 10) for one in FUSED}

    for name, layers in UNLIKE.items():
        plain = [{"conv": CONV}, {"pool": {"size": 2}}, *([{"conv": LATER}] if "later" in name else []), *FC]
        assert not reasons(plain)["fused_mma"], name
        assert all(reasons(layers).values()), (name, reasons(layers))


def test_layer_by_layer_is_for_what_its_convolution_computes():
    def reason(**more):
        conv = {"out_channels": 5, "kernel_size": 3, "activation": "sigmoid", **more}
        layers = [{"conv": conv}, {"pool": {"kind": "global_average"}}, {"fc": {"out_features": 10}}]
        described = networks.Description.model_validate({"input": {"size": 20}, "layers": layers})
        return whole_networks.read("unfused").unsupported(networks.Network("mine", described), 10)

    assert not reason()
    assert "fp16x3_mma does not say that it handles the optional input bias" in reason(bias=True)
    assert "fp16x3_mma does not say that it handles stride 2" in reason(stride=2)


def test_folding_wants_nothing_but_sums_between_convolution_and_matrix():
    folded = whole_networks.read("fused_conv_fc_algebra")
    assert [folded.unsupported(networks.find(name), 10) == "" for name in BUILT_IN] == [False, True, True, True, False]


def test_a_library_gets_halves_of_tanh_and_shares_that_it_can_read(launcher):
    library = launcher("fused_cublas")
    supported = [library.unsupported(networks.find(name)) == "" for name in BUILT_IN]
    assert dict(zip(BUILT_IN, supported, strict=True)) == {
        "fa17": True, "fa18": True, "sp19": True, "fa19": False, "ece408": False
    }  # fmt: skip
    for inputs, shares in ((7200, 4), (5400, 3), (2904, 3)):
        assert library.shares_of(inputs) == shares
        assert inputs % (8 * shares) == 0 and inputs / shares <= 2000


def test_a_folded_matrix_gives_what_convolution_and_matrix_give(launcher):
    conv = ConvLayer("conv2", C=3, H=9, W=8, M=4, K=3)
    drawn = np.random.default_rng(1)
    w_conv = drawn.standard_normal(conv.w_shape).astype(np.float32)
    w_dense = drawn.standard_normal((5, conv.M * conv.H_out * conv.W_out)).astype(np.float32)
    x = drawn.standard_normal(conv.at(6).shape("x"))
    matrix = launcher("fused_conv_fc_algebra").product(conv, w_conv, w_dense)
    expected = reference.convolve(x, w_conv).reshape(6, -1) @ w_dense.T.astype(np.float64)
    assert np.allclose(x.reshape(6, -1) @ matrix.T, expected, rtol=1e-12)


def test_halves_of_a_matrix_add_up_to_it_in_the_lanes_that_take_them(launcher):
    w = np.random.default_rng(2).standard_normal((20, 40)) * np.logspace(-9, 9, 20)[:, None]
    parts, exponents = launcher("fused_mma").split_matrix(w, tiles=2, blocks=1)
    assert parts.shape == (1, 4, 4, 8, 4, 4)  # block, step, tile, output, pair, then high, high, low, low
    halves = parts.view(np.float16).reshape(1, 4, 4, 8, 4, 2, 2, 2).astype(np.float64)
    joined = halves[:, :, :, :, :, 0] + halves[:, :, :, :, :, 1]  # block, step, tile, output, pair, eight, number
    matrix = joined.transpose(0, 2, 3, 1, 5, 4, 6).reshape(32, 64)
    assert not matrix[20:].any() and not matrix[:, 40:].any()
    scaled = np.ldexp(w, (14 - exponents)[:, None])
    assert np.abs(scaled).max() < 2.0**15
    largest = np.abs(scaled).max(axis=1, keepdims=True)
    assert (np.abs(matrix[:20, :40] - scaled) <= largest * 2.0**-22).all()


def test_shares_of_a_matrix_product_fill_the_device(launcher, monkeypatch):
    fused = launcher("fused_mma")
    device = type("Device", (), {"attributes": {"MultiProcessorCount": 132}})
    monkeypatch.setattr(np, "cuda", type("cuda", (), {"Device": device}), raising=False)
    assert fused.shares_of(10816, 79) * 79 <= 3 * 132  # 79 blocks alone would leave 53 of 132 idle
    assert fused.shares_of(10816, 79) > 1
    assert 16 <= fused.shares_of(10816, 1) <= 132


def test_a_launcher_is_found_by_its_name_alone():
    assert whole_networks.read("fused_conv_fc_algebra").module.fused_mma is sys.modules["fused_mma"]


def test_a_variant_called_like_a_library_does_not_hide_it_from_who_imported_a_launcher():
    before = list(sys.path)
    assert whole_networks.read("unfused").module.fp16x3_mma
    assert sys.path == before
    assert importlib.util.find_spec("onnxruntime").origin != str(variants.FOLDER / "onnxruntime.py")
