"""The sections of a problem's ladder that a network's report does not have: accuracy, and what others published."""

import re

import pytest

from warpbook.common import units
from warpbook.harness import reference
from warpbook.report.evidence import Evidence
from warpbook.report.views import accuracy, cell_markup, published_comparison
from warpbook.runs import tables


@pytest.fixture(scope="module")
def ladder(newest_archive, opened, planned):
    """The evidence of a problem's study in the newest archive."""

    def make(name: str) -> Evidence:
        run = opened(newest_archive)
        ev = Evidence(planned(study=name, measuring=run.record["measuring"], gpu="auto"), name, run)
        ev.gpu_run = run
        return ev

    return make


def column(table, label: str) -> list[str]:
    place = [one.label for one in table.head].index(label)
    return [row[place] for row in table.rows]


def test_an_error_is_shown_beside_its_tolerance_by_the_terms_of_its_sum(ladder):
    ev = ladder("gemm")
    tests = ev.gpu_run.table(tables.CORRECTNESS)
    tests = tests[(tests.variant == "gemm/naive") & (tests.layer == "square") & (tests["size"] == 4096)]
    (ratio,) = tests[tests.test == "reals"].worst_ratio
    limit = reference.unit_error(ev.layers[0].at(4096), ev.plan.variants["gemm/naive"])
    errors = ev.checks.unit_errors["gemm/naive"]
    assert {17, 130, 512, 4096} <= {*errors.index}  # ragged cases too
    assert errors.limit[4096] == limit == pytest.approx(10 * 4097**0.5 * 2**-24)
    assert errors.error[4096] == pytest.approx(ratio * limit)

    view = accuracy.accuracy_view(ev)
    for name in ("naive", "fp16x3_mma", "fp16x3_wgmma", "cublas_tf32", ev.ranking.best_plain.stem):
        assert f" {name}" in view.figure.alt and f">{name}<" in view.figure.svg
    for words in ("tolerance of FP32", "tolerance of TF32", "tolerance of FP16"):
        assert view.figure.svg.count(f">{words}<") == 1
    name, share = re.fullmatch(r"(\w+), (\d+)\s%", view.worst).groups()
    worst = ev.checks.unit_errors[f"gemm/{name}"]
    assert float(share) / 100 == pytest.approx((worst.error / worst.limit).max(), abs=0.005) and not view.own_magnitude
    assert accuracy.accuracy_view(ladder("softmax")).own_magnitude
    ev.checks.unit_errors = {}
    assert accuracy.accuracy_view(ev) is None


def test_a_published_ladder_s_gains_and_shares_of_its_library_stand_beside_ours(ladder):
    ev = ladder("gemm")
    gains = published_comparison.published_comparison_view(ev).gains
    rows = {row[0]: row for row in gains.rows}
    assert [one.label for one in gains.head][:4] == ["Variant", "Over", "Published gain", "Ours"]
    assert rows["coalesced"][:3] == ("coalesced", "naive", "6.43×")  # 1986.5 over 309 GFLOP/s
    assert rows["warp_tile"][4] == "0.937×"  # of cuBLAS, as printed: 93.7 %
    gain = ev.times.speedup("gemm/warp_tile", "square", 4096, "gemm/vectorised", "gpu")
    assert rows["warp_tile"][3] == cell_markup.speedup_cell(gain)
    library = ev.ranking.fastest_peer("square").name
    share = ev.times.speedup("gemm/warp_tile", "square", 4096, library, "gpu")
    assert rows["warp_tile"][5] == cell_markup.ratio_cell(share)
    assert "of square at size 4096" in gains.caption and rows["cublas_fp32"][4:] == ("1×", "1×")

    ev = ladder("reduce")  # nobody's library is among its published times
    view = published_comparison.published_comparison_view(ev)
    assert view.table is None and view.machines == ("NVIDIA G80",)
    assert column(view.gains, "Published gain") == ["4.68×", "1.78×", "1.80×", "2.00×"]
    assert len(view.gains.head) == 4 and units.count(67_108_864) in view.gains.caption


def test_a_ladder_s_report_names_whose_values_it_compares(documents):
    report = documents("gemm").report
    assert "S. Boehm" in report and "NVIDIA A6000" in report and "student report" not in report
    assert "Nearest to its tolerance comes" in report
