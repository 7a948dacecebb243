"""The sections of a problem's ladder that a network's report does not have: accuracy, and what others published."""

import re
from functools import cache
from pathlib import Path

import pytest

from small_run import as_of_today
from warpbook.common import units
from warpbook.common.files import PROJECT
from warpbook.common.quick_yaml import load_yaml
from warpbook.config import settings
from warpbook.harness import reference
from warpbook.report.evidence import Evidence
from warpbook.report.figures import bound_plots, unit_plots
from warpbook.report.views import accuracy, cell_markup, claim_table, published_comparison
from warpbook.report.views.ladder import common_size, ladder_view
from warpbook.runs import catalog, tables
from warpbook.runs.catalog import Run


@pytest.fixture(scope="module")
def ladder(planned, tmp_path_factory):
    """The evidence of a problem's study in the newest archived run of it, as of today's sources."""
    newest = {name: run for run in catalog.gpu_runs(PROJECT / catalog.ARCHIVES) for name in run.record["networks"]}
    studies = load_yaml(settings.FILE.read_text())["studies"]

    @cache
    def read(path: Path) -> Run:
        return catalog.open_run(as_of_today(path, tmp_path_factory.mktemp("run")))

    def make(name: str, **changes: list[int]) -> Evidence:
        run = read(newest[name].path)
        changed = {**studies, name: studies[name] | changes}
        ev = Evidence(planned(study=name, measuring=run.record["measuring"], gpu="auto", studies=changed), name, run)
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


def test_gpu_times_are_compared_where_every_op_time_was_refused(ladder):
    ev = ladder("gemm", sizes=[8192])
    place = "gemm/fp16x3_tma", "square", 8192
    ev.times.samples = ev.times.samples.query("kind != 'op' or variant != 'gemm/fp16x3_tma'")
    assert ev.times.op(*place) is None
    speedup = ev.times.speedup(*place, over="gemm/cublas_fp32", kind="gpu")
    assert speedup.ratio.low > 2.5


def test_a_figure_of_counters_names_the_size_that_they_were_read_at(ladder):
    ev = ladder("gemm", sizes=[4096])
    drawn = unit_plots.speed_of_light(ev, ["gemm/naive"], ev.layers)
    assert "m=8192 n=8192 k=8192" in drawn and "4096" not in drawn
    points = bound_plots.roofline(ev, ["gemm/naive"])
    assert "m=8192 n=8192 k=8192" in points and "m=4096" not in points


def test_later_cases_stand_two_in_a_table_in_which_each_has_its_own_library(ladder):
    ev = ladder("gemm")
    tables_of_gpu = [table for table in ladder_view(ev).tables if table.id.startswith("ladder-gpu")]
    assert [table.id for table in tables_of_gpu] == ["ladder-gpu-square", "ladder-gpu-tall"]
    pair = tables_of_gpu[1]
    assert [one.label for one in pair.head[1:]] == [
        "tall",
        "Of bound",
        "Over library",
        "ragged",
        "Of bound",
        "Over library",
    ]
    rows = {row[0]: row for row in pair.rows}
    size = common_size(ev, "gpu", ev.layers[2])
    ours = ev.times.op("gemm/fp16x3_tma", "ragged", size)
    assert rows["fp16x3_tma"][4] == cell_markup.time_cell(ours, counted=False)
    libraries = [row[0] for row in pair.rows if "1×" in (row[3], row[6])]
    assert 1 <= len(libraries) <= 2 and all(name.endswith("(library)") for name in libraries)
    fastest = [
        ev.times.op(f"gemm/{name.split()[0]}", "tall", common_size(ev, "gpu", ev.layers[1])).value for name in rows
    ]
    assert fastest == sorted(fastest)


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
    assert "Those published are of size 4092." in gains.caption
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


def test_values_of_gpu_time_are_named_in_the_chapter_of_claims_that_failed(ladder):
    ev = ladder("gemm")
    failed = [one.claim.quantity for one in ev.claims.judged if one.verdict in ("refuted", "partly")]
    view = claim_table.claim_table_view(ev)
    named = [row[-1].endswith(" (GPU time)") for row in view.failed.rows]
    assert 0 < sum(named) == failed.count("gpu_time") < len(named)
    assert not any("(GPU time)" in row[-1] for row in claim_table.full_claim_table(ev).rows)
