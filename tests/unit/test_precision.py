"""The errors of variants beside those of the direct convolution: over the length of sums and the range of inputs."""

from dataclasses import replace

import numpy as np
import pytest

from warpbook.harness import precision
from warpbook.harness.bench import CpuBench
from warpbook.kernels import variants
from warpbook.problems import networks, problem
from warpbook.runs import tables

LAYER = networks.ConvLayer("6x9x11 * 3@5x5", 6, 9, 11, 3, 5)
CASE = LAYER.at(precision.IMAGES)
CONV = problem.find("conv")
CONVS = [conv for network in networks.all_networks().values() for conv in network.convs]
SUMS = """
K = w.shape[2]
columns = np.lib.stride_tricks.sliding_window_view(x, (K, K), axis=(2, 3)).transpose(0, 2, 3, 1, 4, 5)
y[...] = 0
for c in range(w.shape[1]):
    for p in range(K):
        for q in range(K):
            y += (columns[..., c, p, q][..., None] * w[:, c, p, q]).transpose(0, 3, 1, 2)
"""
"""As `direct` adds them up, in FP32."""


def in_half(array):
    return f"{array} = {array}.astype(np.float16).astype(np.float32)\n"


@pytest.fixture
def direct(cpu_variant):
    made = cpu_variant(SUMS)
    assert made.module  # imported now: the next variant's file has its name
    return made


def measured(variant, direct, layer=LAYER):
    rows = precision.measure_case(CpuBench(), variant, direct, layer.at(precision.IMAGES))
    tables.PRECISION.text(({"variant": variant.name, **row} for row in rows), "its errors")
    return rows


def test_the_direct_convolution_has_its_own_errors_with_every_kind_of_inputs(direct):
    rows = measured(direct, direct)
    assert [row["inputs"] for row in rows] == list(precision.EXPONENTS)
    for row in rows:
        assert 0 < row["rel_l2_err"] == row["direct_rel_l2_err"] < 1e-6
        assert row["fp32_class"]
        assert row["status"] == "ok"
        assert (row["products"], row["images"]) == (150, precision.IMAGES)


@pytest.mark.filterwarnings("ignore:.* encountered in .*:RuntimeWarning")
def test_operands_rounded_to_half_are_not_of_fp32_s_class_whatever_is_claimed(cpu_variant, direct):
    for header in ("", "precision: fp16\n"):
        reals, *_ = measured(cpu_variant(in_half("x") + SUMS, header=header), direct)
        assert reals["rel_l2_err"] > 100 * reals["direct_rel_l2_err"]
        assert not reals["fp32_class"]
        assert reals["status"] == "ok"
        assert reals["precision"] == ("fp16" if header else "fp32")


def test_twice_the_error_of_direct_is_within_the_class_and_no_more(direct):
    case = LAYER.at(1)
    (found,) = CpuBench().compare(case, precision.draw_inputs(case, "reals"), zeros(case)).values()
    for times, within in ((1.9, True), (2.0, True), (2.1, False)):
        row = precision.precision_columns(
            direct, replace(found, rel_l2_err=times * 1e-7), replace(found, rel_l2_err=1e-7)
        )
        assert row["fp32_class"] == within
    exact = replace(found, rel_l2_err=0.0)
    assert precision.precision_columns(direct, exact, exact)["fp32_class"]


def zeros(case):
    return {"y": np.zeros(case.shape("y"), np.float32)}


def test_a_variant_that_flushes_subnormals_fails_with_them_alone(cpu_variant, direct):
    flushing = "x = np.where(np.abs(x) < np.finfo(np.float32).tiny, np.float32(0), x)\n"
    rows = measured(cpu_variant(flushing + SUMS), direct)
    assert {row["inputs"] for row in rows if not row["fp32_class"]} == {"subnormal"}


def test_outputs_that_are_no_numbers_have_no_error_and_are_counted(cpu_variant, direct):
    rows = measured(cpu_variant(SUMS + "y[0, 0, 0, :2] = np.inf\n"), direct)
    assert {(row["status"], row["rel_l2_err"], row["fp32_class"]) for row in rows} == {("wrong_result", None, False)}
    assert "2 outputs are NaN or infinite" in rows[0]["reason"]
    assert rows[0]["direct_rel_l2_err"] > 0


@pytest.fixture
def no_lengths(monkeypatch):
    """The problem names no cases of its own: the others alone are measured."""
    conv = problem.find("conv")
    monkeypatch.setitem(conv.facts.__dict__, "precision", [])


def test_a_layer_that_a_variant_does_not_support_leaves_the_others(cpu_variant, direct, no_lengths):
    larger = networks.ConvLayer("1x9x11 * 3@7x7", 1, 9, 11, 3, 7)
    limited = cpu_variant(SUMS, header="limits: {K: 5}\n")
    unsupported, rows = precision.measure(CpuBench(), limited, direct, [larger, LAYER])
    assert [row["status"] for row in unsupported] == ["unsupported"]
    assert {row["status"] for row in rows} == {"ok"}


def test_a_variant_that_raises_has_a_row_that_names_it_and_is_left(cpu_variant, direct):
    (rows,) = precision.measure(CpuBench(), cpu_variant("raise ValueError('no such tile')"), direct, [])
    assert [(row["inputs"], row["status"]) for row in rows] == [("reals", "launch_failed")]
    assert "no such tile" in rows[0]["reason"]


def test_inputs_are_of_their_kind_and_the_same_whenever_they_are_drawn():
    for inputs in precision.EXPONENTS:
        drawn, again = (precision.draw_inputs(CASE, inputs) for _ in range(2))
        assert list(drawn) == list(again) == ["x", "w"]
        assert all(np.array_equal(drawn[name], again[name]) and drawn[name].dtype == np.float32 for name in drawn)
    x_of = {inputs: np.abs(precision.draw_inputs(CASE, inputs)["x"]) for inputs in precision.EXPONENTS}
    assert 0.9 < x_of["reals"].max() < 1
    assert (x_of["reals"].astype(np.float16) != x_of["reals"]).mean() > 0.99
    assert 0.9 < x_of["small"].max() * 2**20 < 1
    assert 0.9 < x_of["large"].max() / 2**20 < 1
    assert 2**10 < x_of["mixed"].max() < 2**12
    assert np.median(x_of["mixed"][0]) < 2
    assert 2**8 < x_of["outliers"].max() < 2**9
    assert (x_of["outliers"] > 1).sum() == -(-x_of["outliers"].size // 997)
    assert 0 < x_of["subnormal"].max() < np.finfo(np.float32).tiny
    assert len(np.unique(x_of["subnormal"])) > x_of["subnormal"].size * 0.9


def test_with_subnormal_inputs_the_results_are_normal_numbers_again():
    x, w = (array.astype(np.float64) for array in precision.draw_inputs(CASE, "subnormal").values())
    columns = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(2, 3))
    sums = np.einsum("nchwpq,mcpq->nmhw", columns, w)
    assert np.median(np.abs(sums)) > 2.0**-110
    assert np.finfo(np.float32).tiny < np.abs(sums).min()


def test_sums_grow_from_one_product_to_thousands_and_networks_have_their_own_layers():
    made = precision.cases(CONV, CONVS)
    assert [case.sums for case in precision.cases(CONV, [])] == [1, 9, 25, 49, 150, 294, 588, 1176, 2352, 4704]
    shapes = {str(conv) for conv in CONVS}
    assert shapes < {case.name for case in made}
    assert len({case.name for case in made}) == len(made)
    assert {case.size for case in made} == {precision.IMAGES}


def test_every_variant_of_other_numerics_computes_the_longest_sums():
    cases = precision.cases(CONV, CONVS)
    for name in ("fp16x3_mma", "tensor_cores", "fft", "fp16", "layer_specialised", "register_tiled_gemm", "direct"):
        variant = variants.read(name)
        assert not [case for case in cases if variant.unsupported(case)], name
