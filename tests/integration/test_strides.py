"""Strides and padding in kernels, emulated and built."""

import json

import pytest

from warpbook.harness import building
from warpbook.harness.attacks import attack_registry
from warpbook.harness.emulator import emulation
from warpbook.kernels import variants
from warpbook.problems import networks, problem
from warpbook.runs import tables

needs_compiler = pytest.mark.skipif(
    emulation.compiler() is None, reason="there is no C++ compiler here to emulate with"
)

RAGGED = {case.name: case for case in problem.find("conv").ragged}
PLAIN = RAGGED["3x19x23 * 5@4x4"]
STRIDED, PADDED = RAGGED["3x17x22 * 5@4x4 stride 3"], RAGGED["2x9x14 * 7@5x5 padding 2"]
BOTH = RAGGED["3x18x11 * 2@3x3 stride 2 padding 1"]

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
    monkeypatch.setenv(networks.CONFIGURATION_VARIABLE, json.dumps({"networks": {"steps": network}}))

    def judge(code: str, facts: str) -> list[dict]:
        (tmp_path / "mine.cu").write_text(code)
        (tmp_path / "mine.yaml").write_text(facts)
        return attack_registry.check_rows(tmp_path, "mine", "emulator", "steps")

    return judge


@needs_compiler
def test_a_right_kernel_passes_on_all_ragged_layers(judged):
    rows = judged(KERNEL, FACTS)
    assert tables.first_failure(rows) is None
    passed = {row["case"].partition("/")[2] for row in rows if row["ok"]}
    assert {name for name, case in RAGGED.items() if not (case.unusual.keys() - {"S", "P"} or case.optional)} | {
        "conv1"
    } <= passed


@needs_compiler
def test_a_kernel_that_gets_no_padding_passes_where_there_is_none(judged):
    rows = judged("#define P 0\n" + KERNEL.replace(", int P)", ")"), FACTS.replace(", P]", "]"))
    assert tables.first_failure(rows) is None
    passed = {row["case"].partition("/")[2] for row in rows if row["ok"]}
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
def test_a_wrong_kernel_is_caught(judged):
    for wrong, (old, new, words) in WRONG.items():
        assert old in KERNEL
        assert words in tables.first_failure(judged(KERNEL.replace(old, new), FACTS))["reason"], wrong


def test_a_kernel_with_strides_builds_for_a_gpu(tmp_path):
    (tmp_path / "mine.cu").write_text(KERNEL)
    (tmp_path / "mine.yaml").write_text(FACTS)
    made = building.build(variants.read("mine", tmp_path), "sm_80")
    assert made.cubin, made.log
