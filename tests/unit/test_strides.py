"""Strides and padding: the reference computes them; a variant does where it is told of them, else says it cannot."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from warpbook.harness import checking, reference
from warpbook.harness.bench import CpuBench
from warpbook.kernels import variants
from warpbook.problems.layers import ConvLayer

STRIDED, PADDED, BOTH = (layer for layer, _ in checking.RAGGED_STEPS)


def test_the_definition_gives_strides_and_padding_worked_out_by_hand():
    x = np.array([[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]], np.float32)
    w = np.array([[[[1, 0], [0, -1]]]], np.float32)
    assert reference.convolve_by_definition(x, w, stride=2).tolist() == [[[[-4]]]]
    assert reference.convolve_by_definition(x, w, stride=2, padding=1).tolist() == [[[[-1, -3], [-7, -4]]]]


@settings(deadline=None)
@given(*(st.integers(1, most) for most in (2, 3, 9, 9, 3, 4, 3)), st.data())
def test_the_fast_reference_equals_the_definition(images, C, H, W, M, K, S, data):
    K = min(H, W, K)
    layer = ConvLayer("drawn", C, H, W, M, K, S, data.draw(st.integers(0, K - 1), label="padding"))
    generator = np.random.default_rng(5)
    x, w = generator.standard_normal(layer.at(images).shape("x")), generator.standard_normal(layer.w_shape)
    expected = reference.convolve_by_definition(x, w, layer.S, layer.P)
    assert expected.shape == layer.at(images).shape("y")
    assert np.allclose(reference.convolve(x, w, layer.S, layer.P), expected, rtol=1e-13, atol=1e-13)


def test_a_variant_that_is_told_of_neither_says_so():
    for name, variant in variants.discover().items():
        assert "unsupported: stride 3, of which it is told nothing; " in variant.unsupported(STRIDED.at(1)), name
        assert "unsupported: padding 2, of which it is told nothing; " in variant.unsupported(PADDED.at(1)), name
        assert "unsupported: stride 2 and padding 1, of which it is told nothing; " in variant.unsupported(
            BOTH.at(1)
        ), name


def test_the_remedy_is_where_a_variant_can_be_told(cuda_variant, tmp_path):
    (tmp_path / "host.cpp").write_text("/*\ntitle: t\nlimits: {S: 3}\n*/\n")
    assert cuda_variant("").unsupported(BOTH.at(1)).endswith("; name S and P in `arguments` in mine.cu if it can")
    assert variants.read("host", tmp_path).unsupported(STRIDED.at(1)).endswith("; write it as a launcher in Python")


def test_what_it_says_stands_in_a_row(cpu_variant):
    (row,) = checking.check_case(CpuBench(), cpu_variant("raise AssertionError('never called')"), STRIDED.at(2))
    assert row["status"] == "unsupported"
    assert row["reason"].startswith("mine: unsupported: stride 3")
    assert row["reason"].endswith("name S in `limits` in mine.py if it can")


def test_a_constant_of_that_name_is_no_stride(cuda_variant):
    header = "arguments: [x, w, y, N, C, H, W, M, K, S]\nconstants: {S: 3}\n"
    assert "stride 3, of which it is told nothing" in cuda_variant("", header=header).unsupported(STRIDED.at(1))


def test_a_launcher_that_names_them_in_limits_computes_within_those(cpu_variant):
    right = cpu_variant("y[...] = convolve(x, w, layer.S, layer.P)", header="limits: {S: 3, P: 1}\n")
    assert all(row["ok"] for layer in (STRIDED, BOTH) for row in checking.check_case(CpuBench(), right, layer.at(2)))
    assert "P = 2 exceeds its limit 1" in right.unsupported(PADDED.at(1))


def test_a_launcher_that_takes_another_padding_is_caught(cpu_variant):
    body = "y[...] = convolve(np.roll(x, layer.P - 1, axis=3), w, layer.S, layer.P)"
    wrong = cpu_variant(body, header="limits: {S: 3, P: 3}\n")
    assert all(row["ok"] for row in checking.check_case(CpuBench(), wrong, BOTH.at(2)))
    assert "must be exact" in checking.check_case(CpuBench(), wrong, PADDED.at(2))[-1]["reason"]
