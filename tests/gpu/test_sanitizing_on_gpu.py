"""compute-sanitizer finds what one image leaves in the way of the next, and nothing in our own kernels.

On one network, and with one tool each: `make report` on a GPU runs every tool on every network.
"""

import json
import shutil

import pytest
import yaml

import sanitize_variant
from warpbook.common.files import PROJECT, PROJECT_VARIABLE
from warpbook.config import settings
from warpbook.kernels import whole_networks
from warpbook.problems import networks

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

TIMEOUT_S = 90
"""What a tool may take, its program's start and compiler included: a few seconds to half a minute were seen."""

KERNEL = """/*
title: One image after another
*/
extern "C" __global__ void sums(const float* x, float* y, int N, int inputs, int outputs)
{{
    __shared__ float held[64];
    for (int n = blockIdx.x; n < N; n += gridDim.x) {{
        held[threadIdx.x] = threadIdx.x < inputs ? x[(size_t)n * inputs + threadIdx.x] : 0.0f;
        __syncthreads();
        for (int i = threadIdx.x; i < outputs; i += 64) y[(size_t)n * outputs + i] = held[63 - i % 64];
        {barrier}
    }}
}}
"""
LAUNCHER = """
import numpy as np
def prepare(kernels, layer, images, launch):
    import cupy
    function = kernels.function("sums")
    inputs, outputs = layer.C * layer.H * layer.W, layer.M * layer.H_out * layer.W_out
    grid = min(images, 2 * cupy.cuda.Device().attributes["MultiProcessorCount"])
    counts = [np.int32(count) for count in (images, inputs, outputs)]
    return lambda x, w, y: function((grid,), (64,), (x, y, *counts))
"""


@pytest.fixture
def found(monkeypatch, pytestconfig):
    """A function of a variant, a tool and the one network that there is: (status, errors) of the tool."""
    if not shutil.which("compute-sanitizer") and not pytestconfig.getoption("--require-gpu"):
        pytest.skip("compute-sanitizer is not installed")
    monkeypatch.chdir(PROJECT)

    def run(variant, tool, network, kernels=None):
        described = yaml.safe_load(settings.FILE.read_text())["networks"][network]
        monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, json.dumps({"networks": {network: described}}))
        row = sanitize_variant.sanitize(variant, kernels, tool, TIMEOUT_S)
        return row["status"], row["errors"]

    return run


def test_a_block_that_overwrites_an_image_while_it_is_read_is_found(found, tmp_path):
    (tmp_path / "mine.py").write_text(LAUNCHER)
    (tmp_path / "mine.cu").write_text(KERNEL.format(barrier=""))
    assert found("mine", "racecheck", "fa18", tmp_path)[0] == "wrong_result"
    (tmp_path / "mine.cu").write_text(KERNEL.format(barrier="__syncthreads();"))
    assert found("mine", "racecheck", "fa18", tmp_path) == ("ok", 0)


def supported(name, network):
    """An implementation that computes a network; the test is skipped where it does not."""
    one = whole_networks.read(name)
    if reason := one.unsupported(networks.find(network), sanitize_variant.IMAGES):
        pytest.skip(reason)
    return one


@pytest.mark.parametrize(
    ("name", "network", "tool"),
    [
        ("unfused", "fa18", "initcheck"),
        ("fused_mma", "fa18", "racecheck"),
        ("fused_conv_fc_algebra", "fa18", "memcheck"),
        ("fused_cublas", "fa18", "initcheck"),
        ("fused_wgmma", "fa17", "synccheck"),
        ("fused_wgmma", "ece408", "memcheck"),
        ("fused_wgmma", "fa17", "memcheck"),
        ("fused_wgmma", "fa18", "initcheck"),
    ],
)
def test_whole_networks_of_ours_give_a_tool_nothing_to_say(found, name, network, tool):
    supported(name, network)
    assert found(f"network/{name}", tool, network) == ("ok", 0)


def test_a_fault_in_our_kernels_beside_a_library_s_is_found(found, tmp_path, monkeypatch):
    supported("fused_cublas", "fa18")
    source = (PROJECT / "kernels/network/fused_mma.cu").read_text()
    write = "scores[(size_t)image * classes + lane] = score;"
    assert write in source
    copy = tmp_path / "project"
    shutil.copytree(PROJECT / "kernels", copy / "kernels")
    for name in ("scripts", "weights", "config.yaml"):
        (copy / name).symlink_to(PROJECT / name)
    broken = source.replace(write, write.replace("+ lane]", "+ lane + 1]"))
    (copy / "kernels/network/fused_mma.cu").write_text(broken)
    monkeypatch.setenv(PROJECT_VARIABLE, str(copy))
    status, errors = found("network/fused_cublas", "memcheck", "fa18")
    assert status == "wrong_result" and errors > 0
