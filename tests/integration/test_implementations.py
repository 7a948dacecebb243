"""Implementations of whole networks: their kernels compile, and the error allowed them is that of single precision."""

from types import SimpleNamespace

import numpy as np
import pytest

import measure_network
from policies import MEASURING
from warpbook.harness import building, gpu_bench, network_bench, reference
from warpbook.kernels import whole_networks
from warpbook.kernels.headers import Header
from warpbook.problems import fashion_mnist, networks, weights
from warpbook.problems.layers import ConvLayer


# fused_wgmma includes all of fused_mma's source.
@pytest.mark.parametrize("name", ["unfused", "fused_wgmma"])
def test_kernels_of_an_implementation_compile_with_what_they_include(name):
    one = whole_networks.read(name)
    arch = one.header.compile_target("sm_90")
    options = building.compiler_options(arch, [f"-D{key}={value}" for key, value in one.constants.items()])
    cubin, log = building.compile_source(one.text, one.cuda_source.name, options)
    assert cubin, log
    assert b"conv_multi_channel_12_7_24" in cubin
    assert (b"conv_pool_86_7" in cubin) == (name == "fused_wgmma")
    assert "wgmma.mma_async instructions are serialized" not in log


def single_precision(network, parameters, images, rounded):
    """Scores in float32, every operand of a product passed through `rounded`."""
    from warpbook.harness import inference

    x = fashion_mnist.normalize(images, network, np.float32)
    for step in network.steps:
        layer = step.layer
        if isinstance(layer, ConvLayer):
            windows = np.lib.stride_tricks.sliding_window_view(rounded(x), (layer.K, layer.K), axis=(2, 3))
            w = rounded(parameters[f"{layer.name}.weight"])
            x = np.ascontiguousarray(np.tensordot(windows, w, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2))
        elif hasattr(layer, "outputs"):
            w, b = parameters[f"{layer.name}.weight"], parameters[f"{layer.name}.bias"]
            x = rounded(x.reshape(len(x), -1)) @ rounded(w).T + b
        else:
            x = inference.pool(x, layer, "none")
        x = inference.activate(x, step.activation)
    return x


def tf32(values):
    """The nearest numbers of 10 bits behind the point."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((words + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("name", ["fa17", "ece408"])
def test_the_error_allowed_to_a_network_tells_single_precision_from_tf32(name):
    network = networks.find(name)
    parameters = weights.load(network, network.weight_sets[0])
    images = fashion_mnist.load(network)[0][:6]
    expected = reference.outputs(network, parameters, images)

    def error(rounded):
        off = single_precision(network, parameters, images, rounded) - expected
        return np.linalg.norm(off) / np.linalg.norm(expected)

    def allowed(precision, method):
        return reference.network_error(network, Header(precision=precision, method=method))

    assert error(lambda x: x) <= allowed("fp32", "direct") < allowed("fp32", "any") < error(tf32)
    assert error(tf32) <= allowed("tf32", "direct")


def test_an_implementation_is_timed_in_turn_with_the_first_of_its_baselines_that_computes_the_network(monkeypatch):
    ours, *baselines = (
        SimpleNamespace(name=name, unsupported=lambda _, images, least=least: "too few" if images < least else "")
        for name, least in (("ours", 0), ("near", 1000), ("far", 100), ("farthest", 0))
    )
    together = {}

    def measure(_, timed, images, *__):
        together[images] = [one.name for one in timed]
        return [{"variant": "ours", "time_ms": 1.0}], {}

    monkeypatch.setattr(measure_network.gc, "disable", lambda: None)  # for this process is not short
    monkeypatch.setattr(gpu_bench, "open_bench", lambda *_: None)
    monkeypatch.setattr(measure_network, "compilable_network", lambda *_: ({}, None, None))
    monkeypatch.setattr(measure_network, "least_ms", lambda *_: 0.0)
    monkeypatch.setattr(
        network_bench, "NetworkBench", type("Bench", (), {"__init__": lambda *_: None, "measure": measure})
    )
    given = (networks.find("fa18"), "", None, [10, 100, 1000], MEASURING, {})
    found = list(measure_network.measure(ours, baselines, *given))
    assert len(found) == 3
    assert together == {10: ["ours", "farthest"], 100: ["ours", "far"], 1000: ["ours", "near"]}


def test_the_baselines_of_an_implementation_are_all_that_it_was_built_up_from():
    assert [one.name for one in whole_networks.read("fused_conv_fc_algebra").baselines] == ["fused_mma", "unfused"]
