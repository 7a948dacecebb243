"""Errors beside those of the direct convolution, as the report shows them."""

import re

import pandas as pd
import pytest

from warpbook.harness import precision
from warpbook.problems import networks, problem
from warpbook.report.figures import ratio_plots
from warpbook.report.views import executive
from warpbook.report.views.supplement import correctness
from warpbook.runs import catalog, tables

AT_MOST = f"At most {precision.CLASS_RATIO}×"
RATIOS = {
    "direct": 1.0,
    "layer_specialised": 0.9,
    "fp16x3_mma": 1.5,
    "fft": 2.5,
    "tensor_cores": 1000.0,
    "fp16": 2000.0,
}
CONVS = [conv for network in networks.all_networks().values() for conv in network.convs]
CASES = precision.cases(problem.find("conv"), CONVS)
CLAIMS = {"tensor_cores": "tf32", "fp16": "fp16"}


def rows_of(name, ratio):
    """The rows of a variant whose error is `ratio` times that of `direct` everywhere."""
    for case in CASES:
        by_direct = 3e-8 * case.sums**0.5
        for inputs in precision.EXPONENTS:
            yield {
                "variant": name, "inputs": inputs, "layer": case.name, "precision": CLAIMS.get(name, "fp32"),
                "products": case.sums, "images": precision.IMAGES, "rel_l2_err": ratio * by_direct,
                "direct_rel_l2_err": by_direct, "fp32_class": ratio <= precision.CLASS_RATIO, "status": "ok",
                "reason": "",
            }  # fmt: skip


@pytest.fixture
def frame(tmp_path):
    rows = [row for name, ratio in RATIOS.items() for row in rows_of(name, ratio)]
    unsupported = {**rows[0], "variant": "register_tiled_gemm", "inputs": "", "rel_l2_err": None, "fp32_class": False}
    rows.append({**unsupported, "direct_rel_l2_err": None, "status": "unsupported", "reason": "K = 9 exceeds 7"})
    tables.PRECISION.write(rows, tmp_path / "precision.csv")
    return tables.PRECISION.read(tmp_path / "precision.csv")


@pytest.fixture
def with_errors(evidence_of, small_archive, few_variants):
    """Evidence of the small run as though it held these errors."""
    few = few_variants["studies"]
    names = [*few["fa18"]["variants"], *CLAIMS, "register_tiled_gemm"]
    studies = few | {"fa18": few["fa18"] | {"variants": names}}

    def make(frame: pd.DataFrame):
        made = evidence_of(small_archive, studies=studies)
        run = made.gpu_run
        loaded = {**run.loaded, tables.PRECISION.name: frame}
        made.gpu_run = made.local = catalog.Run(run.path, run.record, loaded)
        return made

    return make


def cell(table, row, label):
    return row[[column.label for column in table.head].index(label)]


def test_the_largest_ratio_to_direct_stands_by_range_and_what_is_no_number_has_none(with_errors, frame):
    worst = (frame.variant == "fp16x3_mma") & (frame.inputs == "subnormal") & (frame.products == 1)
    frame.loc[worst, ["rel_l2_err", "fp32_class"]] = [6e-8 * 2, False]
    table = correctness.correctness_view(with_errors(frame)).errors.ranges
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == [*RATIOS, "register_tiled_gemm"]
    cases = len(CASES) * len(precision.EXPONENTS)
    split = rows["fp16x3_mma"]
    assert cell(table, split, AT_MOST) == f"{cases - 1} of {cases}"
    assert (cell(table, split, "reals"), cell(table, split, "subnormal")) == ("1.50×", "4.00×")
    assert cell(table, split, "Longest sum beyond") == "1"
    assert cell(table, rows["direct"], "Longest sum beyond") == "–"
    assert cell(table, rows["fft"], AT_MOST) == f"0 of {cases}"
    assert cell(table, rows["fp16"], "Claims") == "fp16"
    assert cell(table, rows["register_tiled_gemm"], "Not measured") == "K = 9 exceeds 7"

    large = (frame.variant == "fp16") & (frame.inputs == "large")
    frame.loc[large, "rel_l2_err"] = float("nan")
    frame.loc[large, "status"] = "wrong_result"
    table = correctness.correctness_view(with_errors(frame)).errors.ranges
    (row,) = (row for row in table.rows if row[0] == "fp16")
    assert cell(table, row, "large") == "NaN or ∞"
    assert cell(table, row, "small") == "2\u202f000×"


def test_the_chart_has_a_line_and_a_name_for_each_variant_and_the_limit(with_errors, frame):
    drawn = ratio_plots.error_by_length(with_errors(frame))
    assert set(re.findall(r">(\w+)</text>", drawn)) >= {*RATIOS}
    assert "2 × direct</text>" in drawn
    assert "register_tiled_gemm" not in drawn


def test_an_exact_result_where_direct_s_is_exact_too_is_no_gap(with_errors, frame):
    exact = frame.products == 1
    frame.loc[exact, ["rel_l2_err", "direct_rel_l2_err"]] = 0.0
    errors = with_errors(frame).checks.errors
    assert (errors.ratio[errors.products == 1] == 1).all()
    assert "Relative L2 error</text>" in ratio_plots.error_by_length(with_errors(frame))


def test_the_box_of_the_summary_has_the_best_kernel_s_errors_where_the_run_holds_them(with_errors, frame, ev):
    assert ev.ranking.best.name == "fp16x3_mma"

    def tests_of(frame):
        return dict(executive.executive_view(with_errors(frame)).facts.rows)["Tests"]

    assert tests_of(frame.iloc[:0]).endswith(" pass all of theirs")
    cases = len(CASES) * len(precision.EXPONENTS)
    assert f". On {cases} of {cases} cases" in tests_of(frame)
    frame.loc[(frame.variant == "fp16x3_mma") & (frame.products <= 9), "fp32_class"] = False
    assert "; on the others, of at most 9 terms" in tests_of(frame)
    without = frame[frame.variant != "fp16x3_mma"]
    assert tests_of(without).endswith(" pass all of theirs")


def test_without_the_measurement_or_a_comparison_there_is_no_chart(with_errors, frame):
    assert correctness.correctness_view(with_errors(frame.iloc[:0])).errors is None

    found = correctness.correctness_view(with_errors(frame[frame.status != "ok"])).errors
    assert found.figure is None
    assert len(found.ranges.rows) == 1
