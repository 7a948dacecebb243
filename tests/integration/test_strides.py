"""Strides and padding: the reference computes them; a variant does where it is told of them, else says it cannot."""

import json

import numpy as np
import pytest

from warpbook.harness import building, checking, reference
from warpbook.harness.attacks import catalog
from warpbook.harness.bench import CpuBench
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants
from warpbook.problems import networks
from warpbook.runs import tables

needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)

STRIDED, PADDED, BOTH = (layer for layer, _ in checking.RAGGED_STEPS)
PLAIN = checking.RAGGED_LAYERS[0][0]

KERNEL = """\
__global__ void forward_kernel(
    float* y, const float* x, const float* w, int M, int C, int H, int W, int K, int S, int P)
{
    const int H_out = (H + 2 * P - K) / S + 1, W_out = (W + 2 * P - K) / S + 1;
    const int tiles = (W_out + 15) / 16;
    const int column = blockIdx.x % tiles * 16 + threadIdx.x, row = blockIdx.x / tiles * 16 + threadIdx.y;
    const int map = blockIdx.y, image = blockIdx.z;
    if (row >= H_out || column >= W_out) return;
    float sum = 0;
    for (int c = 0; c < C; ++c)
        for (int p = 0; p < K; ++p)
            for (int q = 0; q < K; ++q) {
                const int i = row * S + p - P, j = column * S + q - P;
                if (i < 0 || i >= H || j < 0 || j >= W) continue;
                sum += x[((image * C + c) * H + i) * W + j] * w[((map * C + c) * K + p) * K + q];
            }
    y[((image * M + map) * H_out + row) * W_out + column] = sum;
}
"""
FACTS = "arguments: [y, x, w, M, C, H, W, K, S, P]\nthreads: [16, 16, 1]\ngrid: [tiles, M, N]\n"


STEPS = {"out_channels": 3, "kernel_size": 3, "stride": 2, "padding": 1}


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """The rows of checking a kernel with facts beside it on the emulator, on the ragged layers and a network's."""
    network = {"input": {"size": [9, 12], "channels": 2}, "layers": [{"conv": STEPS}]}
    monkeypatch.setenv(networks.GIVEN, json.dumps({"networks": {"steps": network}}))

    def judge(code: str, facts: str) -> list[dict]:
        (tmp_path / "mine.cu").write_text(code)
        (tmp_path / "mine.yaml").write_text(facts)
        return catalog.check_rows(tmp_path, "mine", "emulator", "steps")

    return judge


def test_the_definition_gives_strides_and_padding_worked_out_by_hand():
    x = np.array([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], np.float32)
    w = np.array([[[[1, 0], [0, -1]]]], np.float32)
    assert reference.convolve_by_definition(x, w, stride=2).tolist() == [[[[-4]]]]
    assert reference.convolve_by_definition(x, w, stride=2, padding=1).tolist() == [[[[-1, -3], [-7, -4]]]]


@pytest.mark.parametrize(("layer", "images"), checking.RAGGED_STEPS, ids=str)
def test_the_fast_reference_equals_the_definition(layer, images):
    generator = np.random.default_rng(5)
    x, w = generator.standard_normal(layer.x_shape(images)), generator.standard_normal(layer.w_shape)
    expected = reference.convolve_by_definition(x, w, layer.S, layer.P)
    assert expected.shape == layer.y_shape(images)
    assert np.allclose(reference.convolve(x, w, layer.S, layer.P), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", variants.discover())
def test_a_variant_that_is_told_of_neither_says_so(name):
    variant = variants.read(name)
    assert "unsupported: stride 3, of which it is told nothing; " in variant.unsupported(STRIDED, 1)
    assert "unsupported: padding 2, of which it is told nothing; " in variant.unsupported(PADDED, 1)
    assert "unsupported: stride 2 and padding 1, of which it is told nothing; " in variant.unsupported(BOTH, 1)


def test_the_remedy_is_where_a_variant_can_be_told(cuda_variant, tmp_path):
    (tmp_path / "host.cpp").write_text("/*\ntitle: t\nlimits: {S: 3}\n*/\n")
    assert cuda_variant("").unsupported(BOTH, 1).endswith("; name S and P in `arguments` in mine.cu if it can")
    assert variants.read("host", tmp_path).unsupported(STRIDED, 1).endswith("; write it as a launcher in Python")


def test_what_it_says_stands_in_a_row(cpu_variant):
    (row,) = checking.check_layer(CpuBench(), cpu_variant("raise AssertionError('never called')"), STRIDED, 2)
    assert row["status"] == "unsupported"
    assert row["reason"].startswith("mine: unsupported: stride 3")
    assert row["reason"].endswith("name S in `limits` in mine.py if it can")


def test_a_constant_of_that_name_is_no_stride(cuda_variant):
    header = "arguments: [x, w, y, N, C, H, W, M, K, S]\nconstants: {S: 3}\n"
    assert "stride 3, of which it is told nothing" in cuda_variant("", header=header).unsupported(STRIDED, 1)


def test_a_launcher_that_names_them_in_limits_computes_within_those(cpu_variant):
    right = cpu_variant("y[...] = convolve(x, w, layer.S, layer.P)", header="limits: {S: 3, P: 1}\n")
    assert all(row["ok"] for layer in (STRIDED, BOTH) for row in checking.check_layer(CpuBench(), right, layer, 2))
    assert "P = 2 exceeds its limit 1" in right.unsupported(PADDED, 1)


def test_a_launcher_that_takes_another_padding_is_caught(cpu_variant):
    body = "y[...] = convolve(np.roll(x, layer.P - 1, axis=3), w, layer.S, layer.P)"
    wrong = cpu_variant(body, header="limits: {S: 3, P: 3}\n")
    assert all(row["ok"] for row in checking.check_layer(CpuBench(), wrong, BOTH, 2))
    assert "must be exact" in checking.check_layer(CpuBench(), wrong, PADDED, 2)[-1]["reason"]


@needs_compiler
def test_a_right_kernel_passes_on_all_ragged_layers(judged):
    rows = judged(KERNEL, FACTS)
    assert tables.first_failure(rows) is None
    passed = {row["layer"] for row in rows if row["ok"]}
    assert {layer.name for layer, _ in (*checking.RAGGED_LAYERS, *checking.RAGGED_STEPS)} | {"conv1"} <= passed


@needs_compiler
def test_a_kernel_that_gets_no_padding_passes_where_there_is_none(judged):
    rows = judged(KERNEL.replace(", int P)", ")\n#define P 0"), FACTS.replace(", P]", "]"))
    assert tables.first_failure(rows) is None
    passed = {row["layer"] for row in rows if row["ok"]}
    assert {PLAIN.name, STRIDED.name} <= passed
    assert not {PADDED.name, BOTH.name} & passed


OUTSIDE = "i < 0 || i >= H || j < 0 || j >= W"
WRONG = {
    "a stride of columns alone": ("row * S + p", "row + p", "wrong on 3x17x22 * 5@4x4 stride 3"),
    "padding of three sides": (OUTSIDE, OUTSIDE.replace(" || j >= W", ""), "heap-buffer-overflow in forward_kernel"),
    "padding that is not zero": (
        f"if ({OUTSIDE})",
        f"if (({OUTSIDE}) && (sum += 1, true))",
        "wrong on 2x9x14 * 7@5x5 padding 2",
    ),
}


@needs_compiler
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_caught(judged, name):
    old, new, words = WRONG[name]
    assert old in KERNEL
    assert words in tables.first_failure(judged(KERNEL.replace(old, new), FACTS))["reason"]


def test_a_kernel_with_strides_builds_for_a_gpu(tmp_path):
    (tmp_path / "mine.cu").write_text(KERNEL)
    (tmp_path / "mine.yaml").write_text(FACTS)
    made = building.build(variants.read("mine", tmp_path), "sm_80")
    assert made.cubin, made.log
